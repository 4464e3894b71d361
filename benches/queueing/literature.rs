//! Predictors of run times from the literature, in the same replay.
//!
//! **The last two**: the mean of the user's last two runs (Tsafrir, Etsion and Feitelson, 2007). The traces have no users, so
//! those of the team with the same number of GPUs stand in for them. **The request**: users ask for a
//! time limit from a short list, which the run does not exceed. The traces have no requests either, so the shortest
//! limit of the list that the run keeps stands in: it knows the true run time, as users know something of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::outcome::Predictor;
use super::trace::Trace;

/// The hours that requests ask for.
const REQUESTS: [i64; 9] = [1, 4, 12, 24, 48, 168, 336, 720, 2160];
/// A run that outlasts its prediction is taken to last so many times longer than it has so far.
const LONGER: u32 = 2;

/// The last two runs of each team and number of GPUs, in seconds.
#[derive(Default)]
pub struct Literature {
    last: BTreeMap<(usize, u32), (i64, Option<i64>)>,
}

impl Literature {
    /// Takes note of the end of a job.
    pub fn ended(&mut self, trace: &Trace, job: usize) {
        let job = &trace.jobs[job];
        let before = self.last.get(&(job.team, job.gpus)).map(|(last, _)| *last);
        self.last.insert((job.team, job.gpus), (job.duration, before));
    }

    /// How long a job runs, by that predictor, if it has been running for `elapsed`.
    pub fn length(
        &self,
        predictor: Predictor,
        trace: &Trace,
        job: usize,
        elapsed: Duration,
    ) -> Option<Duration> {
        let job = &trace.jobs[job];
        let seconds = match predictor {
            Predictor::Sluice => return None,
            Predictor::LastTwo => {
                let (last, before) = self.last.get(&(job.team, job.gpus))?;
                (last + before.unwrap_or(*last)) / 2
            }
            Predictor::Request => {
                let enough = REQUESTS.iter().map(|hours| hours * 3600).find(|limit| *limit >= job.duration);
                enough.unwrap_or(job.duration)
            }
        };
        let length = Duration::from_secs(seconds.unsigned_abs());
        Some(if length > elapsed { length } else { elapsed * LONGER })
    }
}
