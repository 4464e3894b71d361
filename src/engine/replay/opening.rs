//! The beginning that all plays of one engine have in common.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::Engine;
use crate::prediction::run_times::{Length, Manner};
use crate::prediction::timeline;
use crate::replay::grounds::Ledger;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Time, WorkloadId};

/// The length of the run of a workload that has been running for some time.
type Lengths<'a> = &'a dyn Fn(&WorkloadInfo, &Manner, Duration) -> Option<Length>;

/// A workload at the beginning of a play.
pub(super) struct Opened {
    pub(super) id: WorkloadId,
    pub(super) length: Option<Length>,
    /// Its number among similar ones.
    pub(super) number: usize,
    /// How long its pods may take to end.
    pub(super) grace: Duration,
    pub(super) waits: bool,
}

/// What the plays of one engine have in common at their beginning: its workloads, how long they are taken to run, and what
/// their ends rest on.
pub struct Opening {
    pub(super) runs: Vec<Opened>,
    /// Those that ask for no pods, and so never start.
    pub(super) without_pods: Vec<WorkloadId>,
    pub(super) ledger: Ledger,
    /// The number of pods of each workload that runs.
    pub(super) sizes: BTreeMap<WorkloadId, u32>,
}

impl Opening {
    /// The opening at `now`, with runs as people are shown.
    pub fn new(engine: &Engine, now: Time) -> Self {
        let run_times = &engine.scheduler.prediction.run_times;
        Self::with_lengths(engine, now, &|_, manner, elapsed| run_times.shown_length(manner, elapsed))
    }

    /// The opening with the given lengths of runs.
    pub fn with_lengths(engine: &Engine, now: Time, lengths: Lengths<'_>) -> Self {
        let state = &engine.scheduler.state;
        let all = state.iter().filter(|info| !info.removed && info.unadmitted.is_none());
        let (mut known, mut runs, mut similar) = (Vec::new(), Vec::new(), BTreeMap::new());
        for info in all {
            let started = timeline::running_admission(info).map(|admission| admission.at);
            let (manner, elapsed) = (Manner::of(state, info), started.map(|started| now.since(started)));
            let length = lengths(info, &manner, elapsed.unwrap_or_default());
            known.push((info, length));
            let number = similar.entry(manner.class().cloned()).or_insert(0_usize);
            let waits = info.phase == Phase::Pending;
            let (id, grace) = (info.workload.id.clone(), info.workload.grace);
            runs.push(Opened { id, length, number: *number, grace, waits });
            *number += 1;
        }
        let size = |info| timeline::running_admission(info).map(|admission| admission.pods);
        let sizes = known.iter().filter_map(|(info, _)| Some((info.workload.id.clone(), size(*info)?)));
        let without_pods = known.iter().filter(|(info, _)| info.workload.pods == 0);
        Self {
            runs,
            without_pods: without_pods.map(|(info, _)| info.workload.id.clone()).collect(),
            ledger: Ledger::new(engine, &known),
            sizes: sizes.collect(),
        }
    }
}
