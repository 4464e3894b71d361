//! The verdicts of a replica that does not lead. It plans nothing, so it makes a copy of its engine when a question comes,
//! plans on the copy away from the loop, and throws it away after use.
//!
//! A verdict of the copy counts only for a workload that is the same in both engines and that the copy took no action
//! on: what the copy starts or evicts, the leader is about to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::background;
use crate::cluster::clock::now;
use crate::engine::Engine;
use crate::engine::types::{Observed, Verdict, Workload, WorkloadId};

/// The shortest validity of a copy while the cluster changes.
const PERIOD: Duration = Duration::from_secs(1);
/// Validity of a copy as a multiple of its cost: copies take at most a twentieth of one processor.
const VALIDITY: u32 = 20;
/// How long a copy may plan.
const BUDGET: Duration = Duration::from_secs(2);
/// The most questions that wait for a copy; further ones are answered without.
const MOST_WAITING: usize = 64;

/// What a copy of the engine has said after its plan.
#[derive(Debug)]
pub struct Planned {
    /// The waiting workloads that it took no action on, as it knew them, with its verdicts.
    verdicts: BTreeMap<WorkloadId, (Arc<Workload>, Verdict)>,
    began: Instant,
    cost: Duration,
}

impl Planned {
    /// Plans on a copy until nothing is left to decide, or for as long as it may.
    fn of(mut engine: Engine) -> Self {
        let (began, now) = (Instant::now(), now());
        let mut acted = BTreeSet::new();
        loop {
            let plan = engine.plan(now);
            acted.extend(plan.actions.iter().map(|action| action.workload().clone()));
            if !engine.has_more() || began.elapsed() > BUDGET {
                break;
            }
        }
        let waits =
            |workload: &&Arc<Workload>| workload.state == Observed::Queued && !acted.contains(&workload.id);
        let verdict = |workload: &Arc<Workload>| Some((Arc::clone(workload), engine.verdict(&workload.id)?));
        let verdicts = engine.workloads().filter(waits).filter_map(verdict);
        let verdicts = verdicts.map(|(workload, verdict)| (workload.id.clone(), (workload, verdict)));
        Self { verdicts: verdicts.collect(), began, cost: began.elapsed() }
    }
}

/// What the newest copy has said, and the questions that wait for the next.
#[derive(Debug)]
pub struct Preview<Q> {
    newest: Option<Planned>,
    /// Whether the engine has changed since the newest copy was made.
    changed: bool,
    waiting: Vec<Q>,
    /// Whether a copy is being made.
    busy: bool,
    plan: fn(Engine) -> Planned,
    done: mpsc::UnboundedSender<Option<Planned>>,
}

impl<Q> Preview<Q> {
    /// Sends each finished copy to `done`, none where its plan panicked.
    pub fn new(done: mpsc::UnboundedSender<Option<Planned>>) -> Self {
        Self { newest: None, changed: true, waiting: Vec::new(), busy: false, plan: Planned::of, done }
    }

    /// Notes that the engine has changed.
    pub fn changed(&mut self) {
        self.changed = true;
    }

    /// Whether the newest copy may answer.
    fn is_fresh(&self) -> bool {
        self.newest.as_ref().is_some_and(|newest| {
            let valid = PERIOD.max(newest.cost.saturating_mul(VALIDITY));
            !self.changed || newest.began.elapsed() < valid
        })
    }

    /// Keeps a question about workloads until there is a fresh copy; returns it if it is to be answered at once. `copy`
    /// makes a copy of the engine, or none where it is too large.
    pub fn hold(&mut self, question: Q, copy: impl FnOnce() -> Option<Box<Engine>>) -> Option<Q> {
        if self.is_fresh() || self.waiting.len() >= MOST_WAITING {
            return Some(question);
        }
        if !self.busy {
            let Some(engine) = copy() else { return Some(question) };
            (self.busy, self.changed) = (true, false);
            let (plan, done) = (self.plan, self.done.clone());
            let copy = background::spawn(move || plan(*engine));
            tokio::spawn(async move {
                let planned =
                    copy.await.inspect_err(|error| tracing::error!(%error, "cannot plan on a copy"));
                // The receiver goes with the session; then no question waits any more.
                let _ = done.send(planned.ok());
            });
        }
        self.waiting.push(question);
        None
    }

    /// Takes a finished copy, and returns the questions that waited for it. Without a copy they are answered by the one
    /// before; the next question asks for another.
    pub fn finish(&mut self, planned: Option<Planned>) -> Vec<Q> {
        self.busy = false;
        if planned.is_some() {
            self.newest = planned;
        }
        self.give_up()
    }

    /// The questions that wait for a copy, which is not awaited any more.
    pub fn give_up(&mut self) -> Vec<Q> {
        std::mem::take(&mut self.waiting)
    }

    /// The verdict on a waiting workload of the watched engine, where the newest copy has one that counts.
    pub fn verdict(&self, workload: &Workload) -> Option<&Verdict> {
        let (known, verdict) = self.newest.as_ref()?.verdicts.get(&workload.id)?;
        (**known == *workload).then_some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_plan_that_panics_leaves_no_question_without_an_answer() {
        let (done, mut finished) = mpsc::unbounded_channel();
        let mut preview = Preview { plan: |_| panic!("as an engine might"), ..Preview::new(done) };
        let copy = || Some(Box::new(Engine::new()));
        assert_eq!(preview.hold("why?", copy), None, "it waits for a copy");
        let planned = tokio::time::timeout(Duration::from_secs(10), finished.recv()).await;
        let planned = planned.expect("its end is sent").expect("the preview is there");
        assert_eq!(preview.finish(planned), ["why?"]);
        preview.plan = Planned::of;
        assert_eq!(preview.hold("and now?", copy), None);
        let planned = finished.recv().await.expect("the preview is there");
        assert!(planned.is_some(), "a new copy is made");
        assert_eq!(preview.finish(planned), ["and now?"]);
    }
}
