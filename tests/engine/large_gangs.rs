//! Law 3 for gangs of many pods: they get back what their team has guaranteed from however many borrowers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::{Action, Name, Observed, Settings, Workload, WorkloadId};

use super::echoes::Cluster;
use super::ops::TEAMS;
use super::world::team;

/// The GPUs that a workload holds on each node.
fn holds(workload: &Workload) -> Vec<(Name, i64)> {
    let each: i64 = workload.shape.requests.values().map(|amount| amount.as_milli() / 1_000).sum();
    match &workload.state {
        Observed::Admitted(admission) => {
            admission.nodes.iter().map(|(node, pods)| (node.clone(), each * i64::from(*pods))).collect()
        }
        _ => Vec::new(),
    }
}

/// A cluster and what fills it: the number of nodes, the GPUs of each, the smallest and the largest borrower.
type Setup = (usize, i64, (i64, i64));

/// Each kind has more of something than a search for few pods looks at: possible victims, nodes, and victims for one pod.
fn setup() -> impl Strategy<Value = Setup> {
    prop_oneof![
        (90..110_usize, Just(8), Just((1, 2))),
        (300..330_usize, Just(8), Just((8, 8))),
        (40..50_usize, Just(16), Just((1, 1))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 64, ..ProptestConfig::default() })]

    /// A team borrows all nodes with workloads that started at different times. The gang of another team starts in one plan, and
    /// without any of its victims one of its pods would have no node.
    #[test]
    fn law_3_a_gang_of_any_size_gets_its_guarantee(
        (nodes, node, (least, most)) in setup(),
        part in 80..=100_usize,
        less in 0..3_i64,
        sizes in prop::collection::vec(0..8_i64, 24),
        pauses in prop::collection::vec(1..100_u64, 24),
        seed in any::<u64>(),
    ) {
        let (pods, each) = (u32::try_from(nodes * part / 100).unwrap_or(0), node - less);
        let teams = vec![team(TEAMS[0], None, i64::from(pods) * each, None), team(TEAMS[1], None, 0, None)];
        let mut cluster = Cluster::new(&vec![node; nodes], teams, Settings::default(), seed);
        let mut left = i64::try_from(nodes).unwrap_or(0) * node;
        for at in 0.. {
            let gpus = (least + sizes[at % sizes.len()] % (most - least + 1)).min(left);
            if gpus == 0 {
                break;
            }
            cluster.now = cluster.now.after(Duration::from_secs(pauses[at % pauses.len()]));
            let borrower = cluster.job(TEAMS[1], &format!("b{at}"), 1, gpus);
            cluster.submit(borrower);
            left -= gpus;
        }
        cluster.settle();
        let before = cluster.objects.clone();
        let (began, gang) = (cluster.log.len(), cluster.job(TEAMS[0], "gang", pods, each));
        let gang = cluster.submit(gang);
        let evicted = |action: &Action| match action {
            Action::Evict { workload, .. } => Some(workload.clone()),
            _ => None,
        };
        let victims: BTreeSet<WorkloadId> = cluster.log[began..].iter().filter_map(evicted).collect();
        cluster.settle();

        let started = holds(&cluster.objects[&gang]);
        prop_assert_eq!(started.iter().map(|(_, gpus)| gpus).sum::<i64>(), i64::from(pods) * each);
        let mut free: BTreeMap<Name, i64> = BTreeMap::new();
        for (id, workload) in &before {
            for (at, gpus) in holds(workload) {
                *free.entry(at).or_insert(node) -= if victims.contains(id) { 0 } else { gpus };
            }
        }
        let fit: i64 = free.values().map(|free| free / each).sum();
        for id in &victims {
            let lost = holds(&before[id]).into_iter().map(|(node, gpus)| free[&node] / each - (free[&node] - gpus) / each);
            prop_assert!(fit - lost.sum::<i64>() < i64::from(pods), "{id} need not go");
        }
    }
}
