//! Which templates are being given back, and which wait to be tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::engine::types::{Time, WorkloadId, backoff};

/// The first pause after a failure; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Restorations that are being written, or have failed.
#[derive(Debug, Default)]
pub struct Restores(BTreeMap<WorkloadId, Restore>);

#[derive(Debug, Default)]
struct Restore {
    under_way: bool,
    failures: u32,
    not_before: Time,
}

impl Restores {
    /// Forgets those that are not wanted any more; gives those that are to be written now.
    pub fn due(&mut self, wanted: &BTreeSet<WorkloadId>, now: Time) -> Vec<WorkloadId> {
        self.0.retain(|id, restore| restore.under_way || wanted.contains(id));
        let due = |id: &&WorkloadId| self.0.get(*id).is_none_or(|r| !r.under_way && r.not_before <= now);
        wanted.iter().filter(due).cloned().collect()
    }

    /// One is being written.
    pub fn started(&mut self, id: WorkloadId) {
        self.0.entry(id).or_default().under_way = true;
    }

    /// One has been written, or is no longer to be.
    pub fn ended(&mut self, id: &WorkloadId) {
        self.0.remove(id);
    }

    /// One could not be written; it is tried again after a pause.
    pub fn failed(&mut self, id: &WorkloadId, now: Time) {
        let Some(restore) = self.0.get_mut(id) else { return };
        let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, restore.failures);
        restore.under_way = false;
        restore.failures += 1;
        restore.not_before = now.after(pause);
    }

    /// When the next one is to be tried again.
    pub fn next(&self) -> Option<Time> {
        self.0.values().filter(|restore| !restore.under_way).map(|restore| restore.not_before).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_restoration_is_tried_again_later_and_only_while_it_is_wanted() {
        let id = WorkloadId("job".into());
        let one = [WorkloadId("job".into())];
        let wanted = BTreeSet::from(one.clone());
        let mut restores = Restores::default();
        assert_eq!(restores.due(&wanted, Time(0)), one);
        restores.started(id.clone());
        assert_eq!(restores.due(&wanted, Time(0)), []);
        assert_eq!(restores.next(), None, "its end is news by itself");
        restores.failed(&id, Time(1000));
        assert_eq!(restores.due(&wanted, Time(1000)), []);
        assert_eq!(restores.next(), Some(Time(1200)));
        assert_eq!(restores.due(&wanted, Time(1200)), one);
        assert_eq!(restores.due(&BTreeSet::new(), Time(1200)), []);
        assert_eq!(restores.next(), None, "nothing is left to wait for");
    }
}
