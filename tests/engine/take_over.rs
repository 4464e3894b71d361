//! Law 8 for owners that come while capacity is being cleared for a borrower.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::{Action, Observed, Settings};

use super::echoes::Cluster;
use super::ops::TEAMS;
use super::world::team;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// One team borrows all GPUs, a second one preempts some of it for its fair share, and a third one asks for a part of its
    /// guarantee before that capacity is free. What waits then for its victims is not started to be evicted for the owner.
    #[test]
    fn law_8_no_preemptor_starts_to_be_evicted_for_an_owner_that_waits(
        nodes in prop::collection::vec(2..5_i64, 1..3),
        sizes in prop::collection::vec(1..3_i64, 8),
        preempts in 1..4_i64,
        asks in 1..5_i64,
        steps in 0..6_usize,
        seed in any::<u64>(),
    ) {
        let all: i64 = nodes.iter().sum();
        let teams = (0..3).map(|i| team(TEAMS[i], None, if i == 0 { all } else { 0 }, None)).collect();
        let mut cluster = Cluster::new(&nodes, teams, Settings::default(), seed);
        for (at, gpus) in sizes.iter().enumerate() {
            let borrower = cluster.job(TEAMS[1], &format!("b{at}"), 1, *gpus);
            cluster.submit(borrower);
        }
        cluster.settle();
        cluster.now = cluster.now.after(Duration::from_secs(5));
        let preemptor = cluster.job(TEAMS[2], "preemptor", 1, preempts);
        cluster.submit(preemptor);
        for _ in 0..steps {
            cluster.step();
        }
        let began = cluster.log.len();
        let owner = cluster.job(TEAMS[0], "owner", 1, asks);
        let owner = cluster.submit(owner);
        cluster.settle();
        let mut started = BTreeSet::new();
        for action in &cluster.log[began..] {
            match action {
                Action::Admit { workload, .. } => {
                    started.insert(workload.clone());
                }
                Action::Evict { workload, preemptor: Some(by), .. } => prop_assert!(
                    !started.contains(workload) || *by != owner,
                    "{workload} starts and goes for {by}, which waited: {:?}",
                    &cluster.log[began..]
                ),
                _ => {}
            }
        }
        let runs = matches!(cluster.objects[&owner].state, Observed::Admitted(_));
        prop_assert_eq!(runs, nodes.iter().any(|gpus| asks <= *gpus), "the owner starts where a node is large enough");
    }
}
