//! Law 9 between growth and waiting workloads: capacity that comes free goes to what waits.

use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::replay::{Happening, Life, Run};
use sluice_engine::types::{Event, PodShape, Time, Workload, WorkloadId};

use super::world::{gpus, node, team};

fn job(name: &str, pods: u32, each: i64, at: Time) -> Workload {
    let shape = PodShape { requests: gpus(each), ..PodShape::default() };
    Workload::job(&"t".into(), &name.into(), pods, shape, at)
}

fn runs_for(seconds: u64) -> Life {
    Life { run: Some(Duration::from_secs(seconds)), ..Life::default() }
}

proptest! {
    /// One node is full of single Jobs that end one after another, and of an elastic Job that runs on and wants all of it. A Job
    /// that waits starts with the end that frees enough for it, and what is left goes to growth.
    #[test]
    fn law_9_a_waiting_workload_comes_before_growth_of_its_team(
        ends in prop::collection::vec(2..500_u64, 2..9),
        elastic in 1..4_u32,
        wanted in 1..9_usize,
    ) {
        let wanted = wanted.min(ends.len());
        let size = ends.len() + elastic as usize;
        let mut run = Run::new(Engine::new(), Time(0));
        let count = i64::try_from(size).unwrap_or(0);
        run.apply(Event::NodeApplied(node("n0", count)));
        run.apply(Event::TeamApplied(team("t", None, count, None)));
        for (index, end) in ends.iter().enumerate() {
            run.submit(job(&format!("single-{index}"), 1, 1, Time(0)), runs_for(*end));
        }
        let grows = Workload { min_pods: Some(1), resizable: true, ..job("elastic", 20, 1, Time(0)) };
        let grows_id = grows.id.clone();
        let (mut starts, mut resizes): (Vec<(i64, WorkloadId)>, Vec<i64>) = (Vec::new(), Vec::new());
        let mut on = |at: Time, happening: &Happening| match happening {
            Happening::Admitted { id, .. } => starts.push((at.0, id.clone())),
            Happening::Resized { id, .. } if *id == grows_id => resizes.push(at.0),
            _ => {}
        };
        run.settle(&mut on)?;
        run.submit(grows, Life::default());
        run.settle(&mut on)?;
        run.reach(Time(1_000), &mut on)?;
        let waits = job("waits", 1, i64::try_from(wanted).unwrap_or(0), Time(1_000));
        let id = waits.id.clone();
        run.submit(waits, Life::default());
        run.settle(&mut on)?;
        run.advance(Time(550_000), &mut on)?;

        let mut sorted = ends.clone();
        sorted.sort_unstable();
        let enough = i64::try_from(sorted[wanted - 1]).unwrap_or(0) * 1_000;
        let started = starts.iter().find(|(_, started)| *started == id).map(|(at, _)| *at);
        prop_assert_eq!(started, Some(enough), "the first {} of {:?} have ended", wanted, sorted);
        prop_assert!(resizes.iter().all(|at| *at >= enough), "it grew at {resizes:?}, before {enough}");
        let running = run.workload(&grows_id).map(|workload| workload.state.clone());
        let pods = match running {
            Some(sluice_engine::types::Observed::Admitted(admission)) => admission.pods as usize,
            _ => 0,
        };
        prop_assert_eq!(pods, size - wanted, "growth takes what is left");
    }
}
