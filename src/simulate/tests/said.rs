//! What is said of workloads that wait.

use super::*;

/// A team of that spec with its namespace of the same name.
fn team(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: sluice.dev/v1alpha1\nkind: Team\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n\
         ---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{sluice.dev/team: {name}}}}}\n"
    )
}

fn quota(guaranteed: u32, limit: u32) -> String {
    format!("quotas: [{{guaranteed: {{nvidia.com/gpu: {guaranteed}}}, limit: {{nvidia.com/gpu: {limit}}}}}]")
}

const QUEUES: &str = "queues: [{name: t}, {name: i, priority: 100, preemptible: false}]";

/// The row of the workload `name` at this second.
fn row(parts: &[String], second: u64, name: &str) -> WorkloadRow {
    let until = Some(Duration::from_secs(second));
    let scenario = Scenario::parse([("s.yaml", parts.concat().as_str())]).expect("a scenario");
    let outcome = run(&scenario, &Options { until, ..Options::default() }).expect("an outcome");
    outcome.workloads.into_iter().find(|row| row.name == name).expect("it is there")
}

fn said(parts: &[String], second: u64, name: &str) -> String {
    let row = row(parts, second, name);
    format!("{}: {}", row.reason, row.message)
}

/// A Job that may not be preempted.
fn fixed(label: &str, pods: u32, at: &str) -> String {
    job(label, pods, &notes(&[("at", at)]))
        .replace("annotations:", "labels: {sluice.dev/queue: i}, annotations:")
}

#[test]
fn what_a_guarantee_never_holds_can_never_start_although_a_limit_is_in_use_too() {
    let never = |pods: u32, team: &str| {
        format!(
            "NotPreemptibleOverGuarantee: Can never start in pool default as the guarantee stands: it is not preemptible and \
             needs {pods} GPUs, and team {team} is guaranteed {} GPUs.",
            pods - 1
        )
    };
    let own = [
        node("n0", 8, ""),
        team("a", &format!("{}, {QUEUES}", quota(4, 6))),
        job("a/z", 4, ""),
        fixed("a/n", 5, "3s"),
    ];
    assert_eq!(said(&own, 4, "n"), never(5, "a"));
    let of_parent = [
        node("n0", 8, ""),
        team("p", &quota(2, 4)),
        team("a", &format!("parent: p, {}, {QUEUES}", quota(4, 8))),
        job("a/z", 4, ""),
        fixed("a/n", 3, "3s"),
    ];
    assert_eq!(said(&of_parent, 4, "n"), never(3, "p"));
    let full = "queues: [{name: i, preemptible: false, limit: {nvidia.com/gpu: 4}}]";
    let of_queue = [
        node("n0", 8, ""),
        team("a", &format!("{}, {full}", quota(2, 8))),
        fixed("a/z", 2, "1s"),
        fixed("a/n", 3, "3s"),
    ];
    assert_eq!(said(&of_queue, 4, "n"), never(3, "a"));
}

#[test]
fn a_limit_that_never_holds_a_workload_is_said_although_its_queue_is_full() {
    let full = "queues: [{name: t, limit: {nvidia.com/gpu: 6}}]";
    let parts = [
        node("n0", 8, ""),
        team("a", &format!("{}, {full}", quota(2, 4))),
        job("a/z", 2, ""),
        job("a/n", 5, &notes(&[("at", "3s")])),
    ];
    assert_eq!(
        said(&parts, 4, "n"),
        "TeamLimit: Can never start in pool default as the limit stands: it needs 5 GPUs, and team a has a limit of 4 GPUs."
    );
}

#[test]
fn quota_that_is_kept_for_a_preemptor_is_said_with_its_name() {
    let slow = "|      terminationGracePeriodSeconds: 60";
    let high = "|      priorityClassName: high";
    let class =
        "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 3\n";
    let parts = [
        node("n0", 9, ""),
        class.to_owned(),
        team("a", &quota(4, 4)),
        job_of("a/l", 1, 2, "", slow),
        job_of("a/x", 1, 4, &notes(&[("at", "5s")]), high),
        job("a/s", 1, &notes(&[("at", "20s")])),
    ];
    assert_eq!(
        said(&parts, 30, "s"),
        "TeamLimit: Needs 1 GPU; team a uses 2 of its limit of 4 GPUs in pool default, and 4 GPUs of it are kept for \
         preemptors. Capacity is being cleared for a/x."
    );
}

#[test]
fn free_capacity_that_is_kept_for_a_preemptor_is_said_with_its_name() {
    let ending = |seconds: u32| format!("|      terminationGracePeriodSeconds: {seconds}");
    let parts = [
        node("n0", 4, ""),
        team("a", "quotas: [{guaranteed: {nvidia.com/gpu: 4}}]"),
        team("b", ""),
        job_of("b/quick", 1, 1, &notes(&[("count", "2")]), &ending(10)),
        job_of("b/slow", 1, 1, &notes(&[("count", "2")]), &ending(300)),
        job_of("a/y", 1, 4, &notes(&[("at", "10s")]), ""),
        job_of("b/later", 1, 1, &notes(&[("at", "45s")]), ""),
    ];
    assert_eq!(
        said(&parts, 50, "later"),
        "RoomHeld: Needs 1 GPU; 2 GPUs are free in pool default, of which 2 GPUs are kept for preemptors. Capacity is being \
         cleared for a/y."
    );
}

#[test]
fn the_start_of_an_owner_is_said_by_its_wait_and_stays_true() {
    let limited = "sluice.dev/time-limit: 100s";
    let parts = [
        node("n0", 4, ""),
        team("a", "quotas: [{guaranteed: {nvidia.com/gpu: 4}}]"),
        team("b", "quotas: [{guaranteed: {nvidia.com/gpu: 0}}]"),
        job_of("a/r", 1, 3, &format!("{limited}, {}", notes(&[("duration", "100s")])), ""),
        job_of("a/big", 1, 4, &notes(&[("at", "5s"), ("duration", "10s")]), ""),
        job_of("b/s", 1, 1, &notes(&[("at", "60s")]), ""),
    ];
    for second in [60, 90] {
        assert_eq!(
            said(&parts, second, "s"),
            "Reserved: Waits for a/big, which has a reservation on n0 and is expected to start by the time it has waited 1m35s."
        );
    }
}

#[test]
fn expected_starts_of_two_workloads_do_not_contradict_each_other() {
    let limit = |seconds: u64| format!("sluice.dev/time-limit: {seconds}s");
    let parts = [
        node("n0", 4, ""),
        team("a", "quotas: [{guaranteed: {nvidia.com/gpu: 4}}]"),
        job_of("a/r", 1, 3, &format!("{}, {}", limit(100), notes(&[("duration", "40s")])), ""),
        job_of("a/big", 1, 4, &notes(&[("at", "5s"), ("duration", "10s")]), ""),
        job_of("a/s", 1, 1, &format!("{}, {}", limit(200), notes(&[("at", "11s"), ("duration", "20s")])), ""),
    ];
    let start = |name: &str| row(&parts, 20, name).eta;
    assert_eq!((start("big"), start("s")), (Some(Clock::seconds(100)), Some(Clock::seconds(110))));
}
