//! What a verb means for a workload, which depends on the state that Sluice shows of it.

use crate::api::question::Phase;

/// What a verb does to a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It writes, and that means this.
    Writes(&'static str),
    /// There is nothing to do, for this reason.
    Nothing(&'static str),
}

/// The state of this name; `None` for one that this version does not know.
fn phase(state: &str) -> Option<Phase> {
    Phase::ALL.into_iter().find(|phase| phase.code() == state)
}

/// What `sluice hold` means. What runs is not stopped, and is held when it waits again.
pub fn hold(state: &str) -> Meaning {
    match phase(state) {
        Some(Phase::Running) => Meaning::Writes(
            "runs on, since a hold stops no run; once it is back in the queue it is on hold, and starts again only after \
             `sluice release`",
        ),
        Some(Phase::Evicting) => Meaning::Writes(
            "is stopping; once it is back in the queue it is on hold, and starts again only after `sluice release`",
        ),
        Some(Phase::Finished) => Meaning::Nothing("has ended, so there is nothing to hold"),
        Some(Phase::Held | Phase::Pending) | None => Meaning::Writes(
            "is on hold: it keeps its place in the queue, and starts again only after `sluice release`",
        ),
    }
}

/// What `sluice requeue` means. Only a run can be evicted; the time that is written has no effect on a later run.
pub fn requeue(state: &str) -> Meaning {
    match phase(state) {
        Some(Phase::Pending) => Meaning::Nothing("waits already, so there is no run to evict"),
        Some(Phase::Held) => Meaning::Nothing("is on hold, so there is no run to evict"),
        Some(Phase::Evicting) => Meaning::Nothing("is stopping already"),
        Some(Phase::Finished) => Meaning::Nothing("has ended, so there is no run to evict"),
        Some(Phase::Running) | None => {
            Meaning::Writes("is evicted once, and returns to its old place in the queue")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_stops_no_run() {
        for (state, begins) in
            [("Pending", "is on hold"), ("Running", "runs on"), ("Evicting", "is stopping")]
        {
            let Meaning::Writes(meaning) = hold(state) else { panic!("{state}: nothing is written") };
            assert!(
                meaning.starts_with(begins) && meaning.ends_with("only after `sluice release`"),
                "{meaning}"
            );
        }
        assert!(matches!(hold("Finished"), Meaning::Nothing(_)));
    }

    #[test]
    fn only_a_run_is_requeued() {
        assert!(matches!(requeue("Running"), Meaning::Writes(_)));
        for state in ["Held", "Pending", "Evicting", "Finished"] {
            assert!(matches!(requeue(state), Meaning::Nothing(_)), "{state}");
        }
    }
}
