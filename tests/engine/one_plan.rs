//! Law 8: a preemption is one plan, carried out once, however late the cluster answers.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason, Observed, Reason, Settings, Team, Workload, WorkloadId};

use super::echoes::Cluster;
use super::ops::{Setup, TEAMS, setup};
use super::world::team;

/// A workload to submit.
#[derive(Clone, Debug)]
struct Submission {
    team: usize,
    queue: &'static str,
    priority: i32,
    pods: u32,
    gpus: i64,
    /// The least pods of an elastic one.
    least: Option<u32>,
}

fn submission() -> impl Strategy<Value = Submission> {
    let queue = prop_oneof![4 => Just("train"), 1 => Just("fixed")];
    let least = prop::option::weighted(0.4, 1..4_u32);
    (0..3_usize, queue, -1..2_i32, 1..7_u32, 1..5_i64, least).prop_map(
        |(team, queue, priority, pods, gpus, least)| Submission {
            team,
            queue,
            priority,
            pods,
            gpus,
            least: least.map(|least| least.min(pods)),
        },
    )
}

fn teams(setup: &Setup) -> Vec<Team> {
    let parent_of = |i: usize| (i < 2 && setup.parent.is_some()).then_some("top");
    let limit = |i: usize| setup.limits[i].map(|limit| limit.max(setup.guarantees[i]));
    let mut teams: Vec<_> = (0..3)
        .map(|i| {
            let team = team(TEAMS[i], parent_of(i), setup.guarantees[i], limit(i));
            Team { weight: setup.weights[i], ..team }
        })
        .collect();
    teams.extend(setup.parent.map(|guaranteed| team("top", None, guaranteed, None)));
    teams
}

fn cluster(setup: &Setup, seed: u64) -> Cluster {
    Cluster::new(&setup.nodes, teams(setup), Settings::default(), seed)
}

/// An event of the environment besides submissions and ends.
#[derive(Clone, Debug)]
enum Edit {
    Cordon(usize),
    Open(usize),
    Guarantee(usize, i64),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (0..4_usize).prop_map(Edit::Cordon),
        (0..4_usize).prop_map(Edit::Open),
        (0..3_usize, 0..9_i64).prop_map(|(team, gpus)| Edit::Guarantee(team, gpus)),
    ]
}

fn workload(cluster: &Cluster, name: &str, submission: &Submission) -> Workload {
    let job = cluster.job(TEAMS[submission.team], name, submission.pods, submission.gpus);
    let queue = Some(submission.queue.into());
    Workload { queue, priority: submission.priority, min_pods: submission.least, ..job }
}

/// The nodes on which each workload is to start for which the plan frees capacity, as its verdict says.
fn plan_of(cluster: &Cluster) -> BTreeMap<WorkloadId, String> {
    let nodes = |id: &WorkloadId| {
        let verdict =
            cluster.engine.verdict(id).filter(|verdict| verdict.reason == Reason::WaitingForEviction)?;
        let (nodes, _) = verdict.message.strip_prefix("Starts on ")?.split_once(" once ")?;
        Some((id.clone(), nodes.to_owned()))
    };
    cluster.objects.keys().filter_map(nodes).collect()
}

/// The workloads that a plan moves; each starts again elsewhere.
fn moved_by(actions: &[Action]) -> BTreeSet<WorkloadId> {
    let moved = |decided: &Action| match decided {
        Action::Evict { workload, reason: EvictReason::Moved, .. } => Some(workload.clone()),
        _ => None,
    };
    actions.iter().filter_map(moved).collect()
}

/// The workloads for which a plan evicts, shrinks or moves others.
fn preemptors_of(actions: &[Action]) -> BTreeSet<WorkloadId> {
    let preemptor = |action: &Action| match action {
        Action::Evict { preemptor, .. } | Action::Resize { preemptor, .. } => preemptor.clone(),
        _ => None,
    };
    actions.iter().filter_map(preemptor).collect()
}

/// Follows the plan that began with the action at `began` until each preemptor has started, or a deadline has come. Nothing
/// is decided but starts on the nodes of the plan, and starts of what moves.
pub fn carried_out_once(cluster: &mut Cluster, began: usize) -> Result<(), TestCaseError> {
    let plan = cluster.log[began..].to_vec();
    let (mut moved, mut preemptors) = (moved_by(&plan), preemptors_of(&plan));
    let mut planned = plan_of(cluster);
    preemptors.retain(|id| planned.contains_key(id));
    let (deadline, mut seen) = (cluster.engine.next_deadline(), cluster.log.len());
    while !preemptors.is_empty() && cluster.step() {
        if deadline.is_some_and(|deadline| cluster.now >= deadline) {
            return Ok(());
        }
        for action in &cluster.log[seen..] {
            if preemptors.is_empty() {
                break;
            }
            let Action::Admit { workload, admission, .. } = action else {
                return Err(TestCaseError::fail(format!("decided besides the plan {plan:?}: {action:?}")));
            };
            if moved.remove(workload) {
                continue;
            }
            let Some(nodes) = planned.remove(workload) else {
                return Err(TestCaseError::fail(format!("started besides the plan {plan:?}: {action:?}")));
            };
            preemptors.remove(workload);
            let there: BTreeSet<&str> = admission.nodes.keys().map(|name| &**name).collect();
            let nodes: BTreeSet<&str> = nodes.split(", ").collect();
            // An elastic one may grow onto more nodes in the same write.
            let elastic = cluster.objects[workload].min_pods.is_some();
            let as_planned = if elastic { there.is_superset(&nodes) } else { there == nodes };
            prop_assert!(as_planned, "planned on {:?}: {:?}", nodes, action);
        }
        seen = cluster.log.len();
    }
    prop_assert!(preemptors.is_empty(), "never started: {:?} of {:?}", preemptors, plan);
    Ok(())
}

/// The running workload with that number, if there is one.
fn nth_running(cluster: &Cluster, n: usize) -> Option<WorkloadId> {
    let runs = |workload: &&Workload| matches!(workload.state, Observed::Admitted(_));
    let running: Vec<&Workload> = cluster.objects.values().filter(runs).collect();
    running.get(n % running.len().max(1)).map(|workload| workload.id.clone())
}

/// False for an eviction for a preemptor that does not name the workload which took over the capacity cleared before, or,
/// with `edits`, the last change since its plan.
fn names_cause(action: &Action, of: &WorkloadId, edits: bool) -> bool {
    match action {
        Action::Evict { preemptor, message, .. } | Action::Resize { preemptor, message, .. } => {
            preemptor.as_ref() != Some(of)
                || message.contains("took over the capacity")
                || edits && message.contains("does not hold any more, last since a change of")
        }
        _ => true,
    }
}

/// Every second preemption for one start names its cause.
fn added_victims_are_named(cluster: &Cluster, edits: bool) -> Result<(), TestCaseError> {
    let mut planned: BTreeSet<WorkloadId> = BTreeSet::new();
    for actions in cluster.plans() {
        for id in preemptors_of(actions) {
            let once =
                planned.insert(id.clone()) || actions.iter().all(|action| names_cause(action, &id, edits));
            prop_assert!(once, "{} preempts twice for one start: {:?}", id, cluster.log);
        }
        for action in actions {
            if let Action::Admit { workload, .. } = action {
                planned.remove(workload);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn law_8_a_preemption_is_carried_out_once(
        setup in setup(),
        submissions in prop::collection::vec(submission(), 1..12),
        seed in any::<u64>(),
    ) {
        let mut cluster = cluster(&setup, seed);
        for (i, submission) in submissions.iter().enumerate() {
            let began = cluster.log.len();
            let workload = workload(&cluster, &format!("w{i}"), submission);
            cluster.submit(workload);
            carried_out_once(&mut cluster, began)?;
            cluster.settle();
        }
    }

    #[test]
    fn law_8_no_victim_is_added_when_others_come_and_go(
        setup in setup(),
        submissions in prop::collection::vec((submission(), 0..12_usize, prop::option::of(0..8_usize)), 1..12),
        seed in any::<u64>(),
    ) {
        let mut cluster = cluster(&setup, seed);
        for (i, (submission, steps, ends)) in submissions.iter().enumerate() {
            if let Some(id) = ends.and_then(|n| nth_running(&cluster, n)) {
                cluster.finish(&id);
            }
            let workload = workload(&cluster, &format!("w{i}"), submission);
            cluster.submit(workload);
            (0..*steps).for_each(|_| _ = cluster.step());
        }
        cluster.settle();
        added_victims_are_named(&cluster, false)?;
    }

    #[test]
    fn law_8_an_added_victim_names_the_edit_that_broke_the_plan(
        setup in setup(),
        submissions in prop::collection::vec((submission(), 0..12_usize, prop::option::of(edit())), 1..12),
        seed in any::<u64>(),
    ) {
        let (mut setup, mut cluster) = (setup.clone(), cluster(&setup, seed));
        for (i, (submission, steps, edit)) in submissions.iter().enumerate() {
            match edit {
                Some(Edit::Cordon(node)) => cluster.cordon(*node, true),
                Some(Edit::Open(node)) => cluster.cordon(*node, false),
                Some(Edit::Guarantee(team, gpus)) => {
                    setup.guarantees[*team] = *gpus;
                    cluster.edit(teams(&setup).swap_remove(*team));
                }
                None => {}
            }
            let workload = workload(&cluster, &format!("w{i}"), submission);
            cluster.submit(workload);
            (0..*steps).for_each(|_| _ = cluster.step());
        }
        cluster.settle();
        added_victims_are_named(&cluster, true)?;
    }
}

/// Team a runs 2, 1, 4 x 1, a gang of 4 x 4 and an elastic 8 x 1 that needs 2; team b asks for 2 x 8 with 9 of 40 GPUs free.
#[test]
fn law_8_the_gang_is_not_evicted_after_the_elastic_job_has_shrunk() {
    for seed in 1..40 {
        let teams = vec![team("a", None, 20, None), team("b", None, 20, None)];
        let mut cluster = Cluster::new(&[8, 8, 8, 8, 8], teams, Settings::default(), seed);
        let jobs = [
            (1, 2, None),
            (1, 1, None),
            (1, 1, None),
            (1, 1, None),
            (1, 1, None),
            (1, 1, None),
            (4, 4, None),
            (8, 1, Some(2)),
        ];
        for (i, (pods, gpus, least)) in jobs.into_iter().enumerate() {
            let job = Workload { min_pods: least, ..cluster.job("a", &format!("a{i}"), pods, gpus) };
            cluster.submit(job);
            cluster.settle();
        }
        let began = cluster.log.len();
        let job = cluster.job("b", "b", 2, 8);
        cluster.submit(job);
        if let Err(error) = carried_out_once(&mut cluster, began) {
            panic!("seed {seed}: {error}");
        }
    }
}
