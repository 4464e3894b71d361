//! Expected starts of the workloads that still wait at the end of a simulation.

use std::collections::BTreeMap;

use crate::engine::replay::forecast::{self, Bounds};
use crate::engine::replay::{Happening, Run};
use crate::engine::types::{Time, WorkloadId};

/// The starts that the engine expects from time limits and past runs. Where the engine has no estimate because a run
/// length is unknown, the simulation knows it: the start is then the simulated one, without further submissions. There too a
/// workload with a time limit runs until it, so that no start contradicts the estimate of another one.
#[must_use]
pub fn expected_starts(run: &Run, now: Time) -> BTreeMap<WorkloadId, Time> {
    let bounds = Bounds::default();
    let forecast = forecast::forecast(run.engine(), now, bounds);
    let estimated = forecast.etas.iter().filter_map(|(id, eta)| Some((id.clone(), eta.likely?)));
    let mut starts: BTreeMap<WorkloadId, Time> = estimated.collect();
    let mut unknown: Vec<&WorkloadId> = forecast.etas.keys().filter(|id| !starts.contains_key(*id)).collect();
    let mut continued = run.clone().with_strays(false).with_limits();
    for _ in 0..bounds.steps {
        let Some(next) = continued.next().filter(|_| !unknown.is_empty()) else { break };
        let settled = continued.advance(next, &mut |at, happening| {
            if let Happening::Admitted { id, .. } = happening
                && let Some(place) = unknown.iter().position(|waiting| *waiting == id)
            {
                unknown.swap_remove(place);
                starts.insert(id.clone(), at);
            }
        });
        if settled.is_err() || next > now.after(bounds.ahead) {
            break;
        }
    }
    starts
}
