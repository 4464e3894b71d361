//! Law 7: no circle of waiting arises among the owners of reservations.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_engine::types::{Queue, Reason, Time, WorkloadId};

use super::reservations::{JobSpec, Simulation, seconds};

/// How long the longest jobs run.
const FOR_EVER: i64 = 1_000_000;

/// For each workload that could start without a reservation, the owner of that reservation.
fn waits_for(simulation: &Simulation, ids: &[WorkloadId]) -> BTreeMap<WorkloadId, WorkloadId> {
    let verdicts = ids.iter().filter_map(|id| Some((id, simulation.run.engine().verdict(id)?)));
    let reserved = verdicts.filter(|(_, verdict)| verdict.reason == Reason::Reserved);
    let owner = |message: &str| {
        let names = message.split([' ', ',']);
        names.map(|name| WorkloadId(name.into())).find(|id| ids.contains(id))
    };
    reserved.filter_map(|(id, verdict)| Some((id.clone(), owner(&verdict.message)?))).collect()
}

/// A job of one pod without a time limit, of either team.
fn job(most: i64) -> impl Strategy<Value = JobSpec> {
    let run = prop_oneof![4 => 10..600_i64, 1 => FOR_EVER..FOR_EVER + 2];
    (0..20_i64, 1..=most, run).prop_map(|(pause, gpus, run)| JobSpec {
        pause,
        pods: 1,
        gpus,
        run,
        limit: None,
    })
}

proptest! {
    #[test]
    fn law_7_no_circle_of_waiting_arises(
        nodes in prop::collection::vec(4..9_i64, 1..3), guarantee in 0..3_i64,
        jobs in prop::collection::vec(job(4), 4..14),
    ) {
        let queue =
            Queue { reserve_after: seconds(60), min_runtime: seconds(FOR_EVER), ..Queue::fallback() };
        let mut simulation = Simulation::with_guarantees(&nodes, queue, 2, guarantee);
        let mut ids = Vec::new();
        for job in &jobs {
            simulation.advance_unjudged(Time(simulation.run.now().0 + job.pause * 1_000));
            ids.push(simulation.submit(job));
        }
        // By then everything has ended that does not run for ever.
        for _ in 0..100 {
            simulation.advance_unjudged(Time(simulation.run.now().0 + 60_000));
            let waits_for = waits_for(&simulation, &ids);
            for first in waits_for.keys() {
                let (mut at, mut steps) = (first, 0);
                while let Some(next) = waits_for.get(at) {
                    (at, steps) = (next, steps + 1);
                    prop_assert!(steps <= waits_for.len(), "{first} waits in a circle: {waits_for:?}");
                }
            }
        }
    }
}
