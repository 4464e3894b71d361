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
/// Pods do not wait again.
pub fn hold(kind: &str, state: &str) -> Meaning {
    let are_pods = matches!(kind, "Pod" | "PodGroup");
    match phase(state) {
        Some(Phase::Running) if are_pods => Meaning::Nothing(
            "runs, and pods without a Job never return to the queue, so there is nothing to hold",
        ),
        Some(Phase::Evicting) if are_pods => Meaning::Nothing(
            "is stopping, and pods without a Job never return to the queue, so there is nothing to hold",
        ),
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

/// What a workload still does that has not come to the state that is waited for.
pub fn still(state: &str) -> &'static str {
    match phase(state) {
        Some(Phase::Running) => "still runs",
        Some(Phase::Evicting) => "is still stopping",
        Some(Phase::Held) => "is still on hold",
        Some(Phase::Pending | Phase::Finished) | None => "still waits",
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
            let Meaning::Writes(meaning) = hold("Job", state) else { panic!("{state}: nothing is written") };
            assert!(
                meaning.starts_with(begins) && meaning.ends_with("only after `sluice release`"),
                "{meaning}"
            );
        }
        assert!(matches!(hold("Job", "Finished"), Meaning::Nothing(_)));
    }

    #[test]
    fn pods_that_run_never_wait_again_so_they_are_not_held() {
        for kind in ["Pod", "PodGroup"] {
            assert!(matches!(hold(kind, "Pending"), Meaning::Writes(_)), "{kind}");
            for state in ["Running", "Evicting"] {
                let Meaning::Nothing(why) = hold(kind, state) else {
                    panic!("{kind} {state}: it is written")
                };
                assert!(why.contains("never return to the queue"), "{why}");
            }
        }
    }

    #[test]
    fn a_wait_that_is_too_long_says_what_the_workload_does() {
        for (state, does) in
            [("Running", "still runs"), ("Pending", "still waits"), ("Held", "is still on hold")]
        {
            assert_eq!(still(state), does);
        }
    }

    #[test]
    fn only_a_run_is_requeued() {
        assert!(matches!(requeue("Running"), Meaning::Writes(_)));
        for state in ["Held", "Pending", "Evicting", "Finished"] {
            assert!(matches!(requeue(state), Meaning::Nothing(_)), "{state}");
        }
    }
}
