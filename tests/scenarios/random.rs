//! Random scenarios: the laws hold in them too.

use std::fmt::Write as _;

use proptest::prelude::*;
use sluice::scenario::Scenario;

use crate::cluster::Cluster;
use crate::outcome::Outcome;
use crate::{laws, parse, simulate};

/// Number of scenarios.
const CASES: u32 = 64;

/// A team's guarantee in GPUs, weight, and the distance from guarantee to limit, if it has one.
type Team = (u32, u32, Option<u32>);

/// One Job.
#[derive(Clone, Debug)]
struct Job {
    team: usize,
    pods: u32,
    /// The fewest pods, if it is elastic.
    least: Option<u32>,
    /// GPUs of a pod; half of one when zero.
    gpus: u32,
    priority: i32,
    /// Whether it is in the queue with `preemptible: false`.
    fixed: bool,
    /// Submission, in seconds.
    at: u32,
    duration: Option<u32>,
    grace: u32,
}

fn job() -> impl Strategy<Value = Job> {
    let size = (1_u32..=3, 0_u32..=4, proptest::option::weighted(0.25, 1_u32..=2));
    let times = (
        0_u32..=60,
        proptest::option::weighted(0.6, 5_u32..=120),
        prop_oneof![Just(0_u32), Just(0), Just(7)],
    );
    (0_usize..3, size, -1_i32..=1, proptest::bool::weighted(0.15), times).prop_map(
        |(team, (pods, gpus, least), priority, fixed, (at, duration, grace))| Job {
            team,
            pods,
            least: least.filter(|least| *least < pods),
            gpus,
            priority,
            fixed,
            at,
            // Pods of an elastic workload would end one by one, which the outcome does not list.
            duration: duration.filter(|_| least.is_none()),
            grace,
        },
    )
}

/// The scenario of these nodes, teams and Jobs.
fn text(nodes: &[u32], teams: &[Team], jobs: &[Job]) -> String {
    let mut text = String::new();
    for (index, gpus) in nodes.iter().enumerate() {
        let offers = format!("{{cpu: '64', pods: '110', nvidia.com/gpu: '{gpus}'}}");
        let _ = write!(
            text,
            "apiVersion: v1\nkind: Node\nmetadata: {{name: n{index}}}\nstatus: {{capacity: {offers}, allocatable: {offers}}}\n---\n"
        );
    }
    for priority in [-1, 1] {
        let _ = write!(
            text,
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: class{priority}}}\nvalue: {priority}\n---\n"
        );
    }
    for (index, (guaranteed, weight, more)) in teams.iter().enumerate() {
        let limit = more.map(|more| format!(", limit: {{nvidia.com/gpu: {}}}", guaranteed + more));
        let _ = write!(
            text,
            "apiVersion: sluice.dev/v1alpha1\nkind: Team\nmetadata: {{name: t{index}}}\nspec:\n  weight: {weight}\n  \
             quotas: [{{guaranteed: {{nvidia.com/gpu: {guaranteed}}}{}}}]\n  \
             queues: [{{name: train}}, {{name: build, preemptible: false}}]\n---\n\
             apiVersion: v1\nkind: Namespace\nmetadata: {{name: t{index}, labels: {{sluice.dev/team: t{index}}}}}\n---\n",
            limit.unwrap_or_default()
        );
    }
    for (index, job) in jobs.iter().enumerate() {
        let mut notes = format!("simulate.sluice.dev/at: {}s", job.at);
        if let Some(duration) = job.duration {
            let _ = write!(notes, ", simulate.sluice.dev/duration: {duration}s");
        }
        if let Some(least) = job.least {
            let _ = write!(notes, ", sluice.dev/min-parallelism: '{least}'");
        }
        let resources = if job.gpus == 0 {
            notes.push_str(", sluice.dev/gpu-fraction: '0.5'");
            String::new()
        } else {
            format!(", resources: {{limits: {{nvidia.com/gpu: {}}}}}", job.gpus)
        };
        let class = if job.priority == 0 {
            String::new()
        } else {
            format!("priorityClassName: class{}, ", job.priority)
        };
        let _ = write!(
            text,
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j{index}, namespace: t{}, labels: {{sluice.dev/queue: {}}}, \
             annotations: {{{notes}}}}}\nspec: {{parallelism: {pods}, completions: {pods}, template: {{spec: {{\
             restartPolicy: Never, terminationGracePeriodSeconds: {}, {class}\
             containers: [{{name: main, image: registry.example/x{resources}}}]}}}}}}\n---\n",
            job.team % teams.len(),
            if job.fixed { "build" } else { "train" },
            job.grace,
            pods = job.pods,
        );
    }
    text.truncate(text.trim_end_matches("---\n").len());
    text
}

/// The text of a scenario of a few nodes, teams and Jobs.
pub fn scenario() -> impl Strategy<Value = String> {
    (
        proptest::collection::vec(1_u32..=6, 1..=3),
        proptest::collection::vec((0_u32..=4, 0_u32..=2, proptest::option::weighted(0.3, 0_u32..=3)), 2..=3),
        proptest::collection::vec(job(), 3..=12),
    )
        .prop_map(|(nodes, teams, jobs)| text(&nodes, &teams, &jobs))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_law_is_broken_in_random_scenarios(text in scenario()) {
        let scenario = Scenario::parse([("random", text.as_str())]).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let run = |until| simulate(&scenario, until, None).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")));
        let printed = run(None)?;
        let outcome: Outcome = parse("the simulator's output", &printed);
        let mut lines = laws::breaches(&Cluster::of(&scenario), &outcome);
        if run(None)? != printed {
            lines.push("the second run gave another outcome".to_owned());
        }
        let later: Outcome = parse("the simulator's output", &run(Some(outcome.end.later(crate::DAY)))?);
        lines.extend(crate::changed(&outcome, &later));
        prop_assert!(lines.is_empty(), "{}\nwhat happened:\n{}\n\n{text}", lines.join("\n"), outcome.story().join("\n"));
    }
}
