//! When those who still wait at the end of a simulation are expected to start.

use std::collections::BTreeMap;

use crate::engine::replay::forecast::{self, Bounds};
use crate::engine::replay::{Happening, Run};
use crate::engine::types::{Time, WorkloadId};

/// The starts that the engine foretells from limits and past runs. Where it cannot, because it does not
/// know how long something runs, the simulation does: then it is when they start if nobody else comes.
#[must_use]
pub fn etas(run: &Run, now: Time) -> BTreeMap<WorkloadId, Time> {
    let bounds = Bounds::default();
    let forecast = forecast::forecast(run.engine(), now, bounds);
    let told = forecast.etas.iter().filter_map(|(id, eta)| Some((id.clone(), eta.likely?)));
    let mut etas: BTreeMap<WorkloadId, Time> = told.collect();
    let mut unknown: Vec<&WorkloadId> = forecast.etas.keys().filter(|id| !etas.contains_key(*id)).collect();
    let mut on = run.clone();
    for _ in 0..bounds.steps {
        let Some(next) = on.next().filter(|_| !unknown.is_empty()) else { break };
        let rests = on.advance(next, &mut |at, happening| {
            if let Happening::Admitted { id, .. } = happening
                && let Some(place) = unknown.iter().position(|waiting| *waiting == id)
            {
                unknown.swap_remove(place);
                etas.insert(id.clone(), at);
            }
        });
        if rests.is_err() || next > now.after(bounds.ahead) {
            break;
        }
    }
    etas
}
