//! Pods that are older than the membership of their namespace.

use super::*;

/// A pod `namespace/name` without a Job, of one GPU, that takes five seconds to end.
fn pod(label: &str) -> String {
    let (namespace, name) = label.split_once('/').expect("namespace/name");
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{terminationGracePeriodSeconds: 5, containers: [{{name: m, image: x, resources: {{limits: \
         {{nvidia.com/gpu: 1}}}}}}]}}\n"
    )
}

fn namespace(name: &str, team: &str, notes: &str) -> String {
    let labels = if team.is_empty() { String::new() } else { format!("sluice.dev/team: {team}") };
    format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}, annotations: {{{notes}}}}}\n"
    )
}

fn at(time: &str) -> String {
    notes(&[("at", time)])
}

#[test]
fn pods_of_a_namespace_that_joins_a_team_are_charged_to_it_and_those_of_a_job_stay() {
    let parts = [
        node("n0", 3, ""),
        namespace("old", "", ""),
        job("old/x", 3, &notes(&[("duration", "60s")])),
        namespace("old", "a", &at("10s")),
        // Team a has taken more than its guarantee, and nothing may be evicted for team b.
        job("a/y", 1, &at("20s")),
        job("b/z", 2, &at("20s")),
    ];
    let until = |seconds: u64| Options { until: Some(Duration::from_secs(seconds)), ..Options::default() };
    let charged = outcome(&parts, &until(15));
    assert_eq!(charged.teams[0].used["nvidia.com/gpu"], "3");
    assert_eq!(charged.teams[0].borrowed["nvidia.com/gpu"], "1");
    let left = [parts.as_slice(), &[namespace("old", "", &at("12s"))]].concat();
    assert_eq!(outcome(&left, &until(15)).teams[0].used["nvidia.com/gpu"], "0");
    assert_eq!(
        histories(&outcome(&parts, &Options::default())),
        ["old/x; 0s on n0=3; Succeeded at 60s", "a/y; 60s on n0=1; Running", "b/z; 60s on n0=2; Running",]
    );
}

#[test]
fn an_adopted_pod_that_no_job_owns_is_evicted_for_an_owner_and_ends_after_its_grace() {
    let parts = [
        node("n0", 3, ""),
        namespace("old", "", ""),
        pod("old/one"),
        pod("old/two"),
        pod("old/three"),
        namespace("old", "a", &at("10s")),
        job("b/z", 1, &at("20s")),
    ];
    let outcome = outcome(&parts, &Options { events: true, ..Options::default() });
    let evicted: Vec<&WorkloadRow> =
        outcome.workloads.iter().filter(|row| !row.evictions.is_empty()).collect();
    let [row] = evicted[..] else { panic!("{:?}", histories(&outcome)) };
    assert_eq!((row.evictions[0].at, row.evictions[0].preemptor.as_str()), (Clock::seconds(20), "b/z"));
    assert_eq!((row.namespace.as_str(), row.state), ("old", State::Failed));
    assert_eq!(histories(&outcome)[3], "b/z; 25s on n0=1; Running");
    assert_eq!(outcome.summary.evictions, 1);
}
