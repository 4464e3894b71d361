//! Law 3 for elastic workloads: another team takes none below what the guarantee of its team covers.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_engine::types::{
    Action, EvictReason, Name, Observed, ResizeCause, Settings, Workload, WorkloadId,
};

use super::echoes::Cluster;
use super::ops::TEAMS;
use super::world::team;

/// A workload to submit: its team, pods, GPUs of each, and the least pods of an elastic one.
type Submission = (usize, u32, i64, Option<u32>);

fn submission() -> impl Strategy<Value = Submission> {
    let least = prop::option::weighted(0.6, 1..5_u32);
    (0..3_usize, 1..7_u32, 1..3_i64, least)
}

fn gpus(cluster: &Cluster, id: &WorkloadId, pods: u32) -> i64 {
    let requests = &cluster.objects[id].shape.requests;
    requests.values().map(|amount| amount.as_milli() / 1_000).sum::<i64>() * i64::from(pods)
}

fn admitted(workload: &Workload) -> u32 {
    match &workload.state {
        Observed::Admitted(admission) => admission.pods,
        _ => 0,
    }
}

/// The usage of each team while nothing is under way.
fn usage(cluster: &Cluster) -> BTreeMap<Name, i64> {
    let mut usage: BTreeMap<Name, i64> = BTreeMap::new();
    for (id, workload) in &cluster.objects {
        *usage.entry(workload.team.clone()).or_default() += gpus(cluster, id, admitted(workload));
    }
    usage
}

/// A victim that one plan takes from another team: the pods that it had, and the pods that it keeps.
struct Taken {
    id: WorkloadId,
    before: u32,
    after: u32,
    /// Whether the preemptor is within guarantee.
    reclaimed: bool,
    /// The GPUs with which workloads of its team started earlier in the plan.
    started: i64,
    /// The preemptor, and the GPUs with which workloads of its team started earlier in the plan.
    by: Option<(WorkloadId, i64)>,
}

fn taken(cluster: &Cluster, before: &BTreeMap<WorkloadId, u32>, began: usize) -> Vec<Taken> {
    let of_another = |id: &WorkloadId, by: &Option<WorkloadId>| {
        by.as_ref().is_some_and(|by| cluster.objects[by].team != cluster.objects[id].team)
    };
    let mut taken = Vec::new();
    let mut started: BTreeMap<&Name, i64> = BTreeMap::new();
    for action in &cluster.log[began..] {
        let (id, after, reclaimed, by) = match action {
            Action::Admit { workload, admission, .. } => {
                let of = &cluster.objects[workload].team;
                *started.entry(of).or_default() += gpus(cluster, workload, admission.pods);
                continue;
            }
            Action::Evict { workload, preemptor, reason, .. }
                if *reason != EvictReason::Moved && of_another(workload, preemptor) =>
            {
                (workload, 0, *reason == EvictReason::Reclaimed, preemptor)
            }
            Action::Resize { workload, preemptor, admission, cause: ResizeCause::Shrunk, .. }
                if of_another(workload, preemptor) =>
            {
                (workload, admission.pods, false, preemptor)
            }
            _ => continue,
        };
        let started = |team: &Name| started.get(team).copied().unwrap_or_default();
        let by = by.as_ref().map(|by| (by.clone(), started(&cluster.objects[by].team)));
        let started = started(&cluster.objects[id].team);
        taken.push(Taken { id: id.clone(), before: before[id], after, reclaimed, started, by });
    }
    taken
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn law_3_an_elastic_workload_keeps_what_the_guarantee_covers(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        guarantees in prop::array::uniform3(0..8_i64),
        submissions in prop::collection::vec(submission(), 2..10),
        seed in any::<u64>(),
    ) {
        let teams = (0..3).map(|i| team(TEAMS[i], None, guarantees[i], None)).collect();
        let mut cluster = Cluster::new(&nodes, teams, Settings::default(), seed);
        for (i, (of, pods, each, least)) in submissions.iter().enumerate() {
            let used = usage(&cluster);
            let before: BTreeMap<WorkloadId, u32> =
                cluster.objects.iter().map(|(id, workload)| (id.clone(), admitted(workload))).collect();
            let began = cluster.log.len();
            let job = cluster.job(TEAMS[*of], &format!("w{i}"), *pods, *each);
            cluster.submit(Workload { min_pods: least.map(|least| least.min(*pods)), ..job });

            let taken = taken(&cluster, &before, began);

            for victim in &taken {
                let (team, min) = (&cluster.objects[&victim.id].team, cluster.objects[&victim.id].min_pods);
                let guarantee = guarantees[TEAMS.iter().position(|name| **name == **team).unwrap_or(0)];
                let Some(least) = min.filter(|least| *least < victim.before) else { continue };
                // What cannot shrink to the guarantee has no protected part for work within guarantee (law 2).
                if victim.reclaimed && gpus(&cluster, &victim.id, least) > guarantee {
                    continue;
                }
                let left: i64 = used[team] + victim.started
                    - taken
                        .iter()
                        .filter(|other| cluster.objects[&other.id].team == *team)
                        // What goes as a whole for work within guarantee may take its team below: that is no loss of
                        // this one, which keeps what the guarantee covered beside it.
                        .filter(|other| other.after > 0 || !other.reclaimed || other.id == victim.id)
                        .map(|other| gpus(&cluster, &other.id, other.before - other.after))
                        .sum::<i64>();
                let shrunk = used[team] + victim.started - gpus(&cluster, &victim.id, victim.before - least);
                prop_assert!(
                    victim.after > 0 || shrunk > guarantee,
                    "{} goes, though shrinking it leaves {} of {} GPUs: {:?}",
                    victim.id, shrunk, guarantee, cluster.log
                );
                // A pod that the guarantee covers in part goes for work within guarantee: what stays is covered whole.
                let within = victim.by.as_ref().is_some_and(|(by, started)| {
                    let guarantee_of = |id: &WorkloadId| {
                        let team = &cluster.objects[id].team;
                        guarantees[TEAMS.iter().position(|name| **name == **team).unwrap_or(0)]
                    };
                    let least = |id: &WorkloadId| {
                        let workload = &cluster.objects[id];
                        gpus(&cluster, id, workload.min_pods.unwrap_or(workload.pods))
                    };
                    // What is larger than the guarantee is left out of the usage held against it (law 2).
                    let counts = |id: &WorkloadId| {
                        cluster.objects[id].team == cluster.objects[by].team && least(id) <= guarantee_of(id)
                    };
                    let held = before.iter().filter(|(id, _)| counts(id));
                    let held: i64 = held.map(|(id, pods)| gpus(&cluster, id, *pods)).sum();
                    held + started + least(by) <= guarantee_of(by)
                });
                // The pod that is covered in part may be of another workload of the team that shrinks too.
                let shrunk_of_team = taken.iter().filter(|other| {
                    other.after > 0 && cluster.objects[&other.id].team == *team
                });
                let largest_pod = shrunk_of_team.map(|other| gpus(&cluster, &other.id, 1)).max().unwrap_or(1);
                let covered_in_part = if within { largest_pod - 1 } else { 0 };
                prop_assert!(
                    victim.after == 0 || left + covered_in_part >= guarantee,
                    "{} shrinks to {} pods, which leaves {} of {} GPUs: {:?}",
                    victim.id, victim.after, left, guarantee, cluster.log
                );
            }
            cluster.settle();
        }
    }
}
