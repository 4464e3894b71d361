//! A what-if result in sentences: the answer of `sluice what-if` and of a request with dry-run.

use jiff::Timestamp;

use super::{EtaRow, WhatIfRow};
use crate::chart::units::whole_span;
use crate::engine::types::Reason;
use crate::engine::types::runs_on;
use crate::sentences;

/// The most nodes that a sentence names.
const FEW: usize = 6;
/// The most characters of a warning. The API server cuts longer answers, and headers have no line breaks.
const LONGEST: usize = 200;
/// What stands in place of an expected start that takes too long to predict.
const NOT_NOW: &str =
    "The start cannot be predicted now, in the time of a dry-run; `sluice what-if` takes the time.";

/// How a point in time is written.
pub type Clock<'a> = &'a dyn Fn(Timestamp) -> String;

impl WhatIfRow {
    /// The same before its start is predicted.
    #[must_use]
    pub fn without_start(mut self) -> Self {
        NOT_NOW.clone_into(&mut self.eta.message);
        self
    }

    /// The result in at most four sentences: its state, its expected start, its place in the queue, and the work that
    /// would have to go. `clock` writes its times.
    #[must_use]
    pub fn sentences(&self, now: Timestamp, clock: Clock<'_>) -> Vec<String> {
        let head = &self.head;
        let mut sentences = match head.state.as_str() {
            "Running" if self.displaced.is_empty() => vec![format!("Would start now {}.", self.place())],
            "Running" => vec![format!("Would start once preempted work has stopped, {}.", self.place())],
            // What its annotation holds keeps a place in the queue; what its user has suspended has none.
            "Held" if head.reason == Reason::OnHold.code() => {
                vec![format!("Would not start. {}", head.message)]
            }
            "Held" => vec![format!("Would not be in the queue. {}", head.message)],
            _ => {
                let (start, basis) = (self.eta.sentence(now, clock), &self.eta.message);
                let expected = match (self.eta.likely, &self.pool) {
                    (Some(_), Some(_)) => format!("Expected {start}, {}. {basis}", self.place()),
                    _ => start,
                };
                let waits = format!("Would wait. {}: {}", head.reason, head.message);
                // Nothing is in the way of what can never start.
                if head.never_starts { vec![waits] } else { vec![waits, expected] }
            }
        };
        if let Some(place) = self.eta.place.as_ref().filter(|_| head.state == "Pending") {
            sentences.push(format!("Position {}.", place.sentence(&head.team)));
        }
        sentences.extend(self.preempts());
        sentences
    }

    /// The sentences as warnings of the API server.
    #[must_use]
    pub fn warnings(&self, now: Timestamp) -> Vec<String> {
        self.sentences(now, &utc).iter().map(|sentence| warning(sentence)).collect()
    }

    /// Where it runs, and on which quota.
    fn place(&self) -> String {
        let kind = runs_on(self.outside_quotas, self.borrowed);
        let nodes = self.nodes.iter().take(FEW).map(|(node, pods)| format!("{node} ({})", counted(*pods)));
        let nodes = nodes.collect::<Vec<_>>().join(", ");
        let more = match self.nodes.len().saturating_sub(FEW) {
            0 => String::new(),
            more => format!(" and {more} more nodes"),
        };
        format!("{kind} of pool {} on {nodes}{more}", self.pool.as_deref().unwrap_or_default())
    }

    /// The work that would have to go; that of other namespaces is counted where its names are hidden.
    fn preempts(&self) -> Option<String> {
        let named = sentences::counted(&self.displaced);
        (!named.is_empty()).then(|| format!("Would preempt {}.", named.join(", ")))
    }
}

impl EtaRow {
    /// The expected start in one sentence, with the age of the estimate; or why there is none. `clock`
    /// writes its times.
    #[must_use]
    pub fn sentence(&self, now: Timestamp, clock: Clock<'_>) -> String {
        let estimated = match now.as_second() - self.foretold.as_second() {
            age if age > 1 => format!(" (estimated {} ago)", whole_span(age)),
            _ => String::new(),
        };
        let when = |at: Timestamp| match at.as_second() - now.as_second() {
            left if left > 0 => format!("in {}, at {}", whole_span(left), clock(at)),
            _ => "at any moment".to_owned(),
        };
        let start = match (self.early, self.likely, self.late) {
            (Some(early), Some(likely), Some(late)) if early == late => {
                format!("start {}", when(likely))
            }
            (Some(early), Some(likely), Some(late)) => {
                let (early, late) = (clock(early), clock(late));
                format!("start {}; earliest {early}, latest {late}", when(likely))
            }
            _ => return self.message.clone(),
        };
        format!("{start}{estimated}")
    }
}

/// A sentence as a warning: one line of at most [`LONGEST`] characters.
#[must_use]
pub fn warning(sentence: &str) -> String {
    let line: String =
        format!("sluice: {sentence}").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= LONGEST {
        return line;
    }
    let cut: String = line.chars().take(LONGEST - 3).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}...", cut[..end].trim_end_matches([',', ';', '.']))
}

/// A time in whole seconds of UTC, for readers in an unknown zone.
#[must_use]
pub fn utc(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// A number of pods.
#[must_use]
pub fn counted(pods: impl Into<u64>) -> String {
    match pods.into() {
        1 => "1 pod".to_owned(),
        pods => format!("{pods} pods"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-11-24T10:00:00Z".parse().expect("a time")
    }

    fn row(state: &str, more: Value) -> WhatIfRow {
        let mut row = json!({
            "namespace": "a", "name": "x", "team": "red", "queue": "work", "state": state, "reason": "NoRoom",
            "message": "Needs 8 nvidia.com/gpu; 5 are free.", "nodes": {}, "borrowed": false, "displaced": [],
            "eta": {"foretold": "2026-11-24T10:00:00Z", "basis": "NothingEnds", "message": "No estimate: why."},
        });
        json_patch::merge(&mut row, &more);
        serde_json::from_value(row).expect("a row")
    }

    #[test]
    fn what_starts_now_says_where_and_on_whose_quota() {
        let nodes: Value = (0..8).map(|node| (format!("gpu-{node}"), json!(node + 1))).collect();
        let few = row("Running", json!({"pool": "default", "nodes": {"gpu-0": 2, "gpu-1": 1}}));
        let expected =
            "Would start now within the guarantee of pool default on gpu-0 (2 pods), gpu-1 (1 pod).";
        assert_eq!(few.sentences(now(), &utc), [expected]);
        let outside =
            row("Running", json!({"pool": "default", "nodes": {"cpu-0": 1}, "outsideQuotas": true}));
        assert_eq!(
            outside.sentences(now(), &utc),
            ["Would start now outside all quotas of pool default on cpu-0 (1 pod)."],
            "whatever its message says"
        );
        let held =
            row("Held", json!({"reason": "OnHold", "message": "On hold, and keeps its place in the queue."}));
        assert_eq!(
            held.sentences(now(), &utc),
            ["Would not start. On hold, and keeps its place in the queue."],
            "it is in the queue"
        );
        let many = row("Running", json!({"pool": "a100", "nodes": nodes, "borrowed": true}));
        let said = many.sentences(now(), &utc).concat();
        assert!(
            said.starts_with("Would start now on borrowed capacity of pool a100 on gpu-0 (1 pod), "),
            "{said}"
        );
        assert!(said.ends_with("gpu-5 (6 pods) and 2 more nodes."), "{said}");
    }

    #[test]
    fn what_waits_says_why_for_how_long_and_behind_what() {
        let eta = json!({
            "likely": "2026-11-24T10:40:00Z", "early": "2026-11-24T10:25:00Z", "late": "2026-11-24T11:10:00Z",
            "message": "Rests on time limits.",
            "place": {"pool": "default", "position": 2, "waiting": 2, "inFront": ["a/y"], "teamsInFront": 0},
        });
        let hidden = "a workload of team blue";
        let more = json!({
            "eta": eta, "pool": "default", "nodes": {"gpu-3": 2}, "borrowed": true,
            "displaced": [hidden, "a/z", hidden],
        });
        assert_eq!(
            row("Pending", more).sentences(now(), &utc),
            [
                "Would wait. NoRoom: Needs 8 nvidia.com/gpu; 5 are free.",
                "Expected start in 40m, at 2026-11-24T10:40:00Z; earliest 2026-11-24T10:25:00Z, latest \
                 2026-11-24T11:10:00Z, on borrowed capacity of pool default on gpu-3 (2 pods). Rests on time limits.",
                "Position 2 of 2 that wait for pool default in team red; in front of it: a/y.",
                "Would preempt 2 workloads of team blue, a/z.",
            ]
        );
        let in_front = json!(["a/y", hidden, hidden, "a/z", hidden]);
        let place =
            json!({"pool": "default", "position": 8, "waiting": 9, "inFront": in_front, "teamsInFront": 0});
        let behind = row("Pending", json!({"eta": {"place": place}}));
        let said = "Position 8 of 9 that wait for pool default in team red; in front of it: a/y, 3 workloads of team blue, a/z \
                    and 2 more.";
        assert_eq!(behind.sentences(now(), &utc)[2], said);
        let unknown = row("Pending", json!({}));
        assert_eq!(unknown.sentences(now(), &utc)[1], "No estimate: why.");
        assert_eq!(unknown.without_start().sentences(now(), &utc)[1], NOT_NOW);
        let never = row(
            "Pending",
            json!({"reason": "QueueLimit", "message": "Can never start: why.", "neverStarts": true}),
        );
        assert_eq!(never.sentences(now(), &utc), ["Would wait. QueueLimit: Can never start: why."]);
        let held = row("Held", json!({"message": "On hold: suspended by its user."}));
        assert_eq!(
            held.sentences(now(), &utc),
            ["Would not be in the queue. On hold: suspended by its user."]
        );
    }

    #[test]
    fn an_expected_start_has_its_range_and_age() {
        let at = |second| Timestamp::from_second(second).ok();
        let now = at(1_000).expect("a time");
        let clock = |at: Timestamp| at.strftime("%H:%M:%S").to_string();
        let eta = |early, likely, late| EtaRow {
            early: at(early),
            likely: at(likely),
            late: at(late),
            foretold: at(990).expect("a time"),
            basis: "TimeLimits".into(),
            message: "Rests on the time limits of the runs in its way.".into(),
            place: None,
        };
        assert_eq!(
            eta(1_090, 1_090, 1_090).sentence(now, &clock),
            "start in 1m30s, at 00:18:10 (estimated 10s ago)"
        );
        let range = eta(1_030, 1_090, 1_120);
        assert_eq!(
            range.sentence(now, &clock),
            "start in 1m30s, at 00:18:10; earliest 00:17:10, latest 00:18:40 (estimated 10s ago)"
        );
        let unknown =
            EtaRow { early: None, likely: None, late: None, message: "No estimate: why.".into(), ..range };
        assert_eq!(unknown.sentence(now, &clock), "No estimate: why.");
        assert!(eta(999, 999, 999).sentence(now, &clock).starts_with("start at any moment"));
    }

    #[test]
    fn a_warning_is_one_short_line() {
        assert_eq!(warning("One\ntwo."), "sluice: One two.");
        let long = warning(&"größe ".repeat(60));
        assert!(long.chars().count() <= LONGEST && long.ends_with("größe..."), "{long}");
        assert!(warning(&"x".repeat(300)).chars().count() <= LONGEST);
    }
}
