//! Verdicts on objects that are sent with dry-run: what would happen to them, within a time that a create may take.
//!
//! Tools send such requests all day, and decisions and real creates must not pay for them. So only a few verdicts are
//! made at once, all of them together use a part of one processor, one copy of the engine serves all until the engine
//! changes, and a verdict is kept for a moment. The less is left of that part, the shorter a start is predicted, so that
//! what is decided at once, which takes far less, can still be said of many. Further requests get no verdict.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::candidate::{changed, reviewed};
use crate::background;
use crate::cluster::clock::now;
use crate::cluster::target::Managed;
use crate::cluster::target::unsubmitted::Unsubmitted;
use crate::controller::{Asker, Candidate, Question};
use crate::engine::Engine;
use crate::engine::replay::calibration::{Calibration, Corrections};
use crate::engine::replay::forecast::{Bounds, Submission};
use crate::engine::types::Name;
use crate::kinds::Kinds;
use crate::view::{Accelerators, PoolAccelerators, WhatIfRow};

/// The verdicts in work at once.
const AT_ONCE: usize = 2;
/// The part of one processor that verdicts may use in the long run: one in so many.
const SHARE: u32 = 4;
/// The processor time that verdicts may use at once after a rest.
const BURST: Duration = Duration::from_secs(2);
/// The part of what is left of it that one prediction of a start may use: one in so many.
const PREDICTION: u32 = 2;
/// The pause between two copies of the engine as a multiple of the cost of one.
const PAUSE: u32 = 10;
/// How long a verdict is kept, and a copy of the engine that has not changed.
const KEPT: Duration = Duration::from_secs(10);
/// The most verdicts that are kept.
const MOST_KEPT: usize = 256;

/// The UID of an object that does not exist.
const UID: &str = "dry-run";

/// What is said about an object.
#[derive(Clone, Debug)]
pub enum Said {
    /// What would happen to it.
    Row(Arc<Foreseen>),
    /// Too many verdicts are being made.
    Busy,
    /// The time was too short even for what is decided at once, or the state of the cluster is not available.
    NotInTime,
    /// It is no workload.
    Nothing,
}

/// What would happen to a workload.
#[derive(Clone, Debug)]
pub struct Foreseen {
    /// Its state, start and victims.
    pub row: WhatIfRow,
    /// The name and size of the group that the object is a pod of: the row is about the whole group.
    pub group: Option<(Name, u32)>,
}

/// The processor time that verdicts may still use, or have used beyond their share.
#[derive(Debug)]
struct Purse {
    left: Duration,
    debt: Duration,
    since: Instant,
}

impl Purse {
    fn new() -> Self {
        Self { left: BURST, debt: Duration::ZERO, since: Instant::now() }
    }

    fn refill(&mut self) {
        let share = self.since.elapsed() / SHARE;
        self.left = (self.left + share.saturating_sub(self.debt)).min(BURST);
        self.debt = self.debt.saturating_sub(share);
        self.since = Instant::now();
    }

    /// What is left, if anything.
    fn left(&mut self) -> Option<Duration> {
        self.refill();
        Some(self.left).filter(|left| !left.is_zero())
    }

    fn spend(&mut self, time: Duration) {
        self.refill();
        self.debt += time.saturating_sub(self.left);
        self.left = self.left.saturating_sub(time);
    }
}

/// A copy of the engine.
#[derive(Debug)]
struct Base {
    /// Behind a lock, since an engine is not shared between threads; it is only copied.
    engine: Arc<Mutex<Box<Engine>>>,
    changes: u64,
    began: Instant,
    cost: Duration,
}

/// A verdict that is kept.
#[derive(Debug)]
struct Kept {
    foreseen: Arc<Foreseen>,
    changes: u64,
    since: Instant,
}

/// Makes verdicts.
#[derive(Clone, Debug)]
pub struct Verdicts {
    asker: Asker,
    turns: Arc<Semaphore>,
    purse: Arc<Mutex<Purse>>,
    base: Arc<AsyncMutex<Option<Base>>>,
    /// By namespace, UID of what is stored, and a hash of the object.
    kept: Arc<Mutex<BTreeMap<(String, u64), Kept>>>,
    hasher: RandomState,
    /// How earlier forecasts came true.
    calibration: Arc<ArcSwap<Calibration>>,
    /// Resources that count as GPUs, besides those in quotas.
    accelerators: Accelerators,
    stop: CancellationToken,
}

impl Verdicts {
    /// Makes verdicts from the engine behind `asker`, until `stop`. The calibration is that of the forecasts, so that a
    /// verdict says what they say.
    pub(super) fn new(
        asker: Asker,
        calibration: Arc<ArcSwap<Calibration>>,
        accelerators: Accelerators,
        stop: CancellationToken,
    ) -> Self {
        Self {
            asker,
            calibration,
            accelerators,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            purse: Arc::new(Mutex::new(Purse::new())),
            base: Arc::default(),
            kept: Arc::default(),
            hasher: RandomState::new(),
            stop,
        }
    }

    /// The verdict on an object as it would be stored, as far as it is known at `until`; `old` is the one that is stored.
    pub async fn on(
        &self,
        kinds: &Kinds,
        namespace: &str,
        (old, object): (Option<Value>, Value),
        until: Instant,
    ) -> Said {
        let stored = old.as_ref().and_then(|old| old["metadata"]["uid"].as_str()).unwrap_or_default();
        let key = (format!("{namespace}/{stored}"), self.hash(&object));
        // An object of a form that cannot be read waits with that reason once it is stored; no sentence is made twice.
        let unsubmitted = match old {
            Some(old) => changed(kinds, &old, &object, now()),
            None => reviewed(kinds, object, (UID, now())),
        };
        let Ok(Some(unsubmitted)) = unsubmitted else { return Said::Nothing };
        match timeout_at(until, self.remembered(&key)).await {
            Ok(Some(foreseen)) => return Said::Row(foreseen),
            Ok(None) => {}
            Err(_) => return Said::NotInTime,
        }
        let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() else { return Said::Busy };
        let Some(left) = self.purse.lock().unwrap_or_else(PoisonError::into_inner).left() else {
            return Said::Busy;
        };
        let Unsubmitted { managed, group, .. } = unsubmitted;
        let Ok(Some((engine, candidate))) = timeout_at(until, self.candidate(managed)).await else {
            return Said::NotInTime;
        };
        let changes = candidate.changes;
        let (to_first, mut first) = oneshot::channel();
        let (purse, stop, accelerators) =
            (Arc::clone(&self.purse), self.stop.clone(), self.accelerators.clone());
        let corrections = self.calibration.load().corrections(now());
        let whole = background::spawn(move || {
            let began = Instant::now();
            let mut go_on = || Instant::now() < until && !stop.is_cancelled();
            let engine = settled(&engine, &mut go_on);
            let asked = (&candidate, &accelerators);
            let prediction = (&corrections, left / PREDICTION);
            let row = engine.and_then(|engine| foreseen(*engine, asked, prediction, to_first, &mut go_on));
            purse.lock().unwrap_or_else(PoisonError::into_inner).spend(began.elapsed());
            drop(turn);
            row
        });
        if let Ok(Ok(Some(row))) = timeout_at(until, whole).await {
            let foreseen = Arc::new(Foreseen { row, group });
            self.keep(key, changes, &foreseen);
            return Said::Row(foreseen);
        }
        match first.try_recv() {
            Ok(row) => Said::Row(Arc::new(Foreseen { row, group })),
            Err(_) => Said::NotInTime,
        }
    }

    /// The number of verdicts that may begin now.
    #[cfg(test)]
    pub fn free_turns(&self) -> usize {
        self.turns.available_permits()
    }

    /// Uses processor time up.
    #[cfg(test)]
    pub fn spend(&self, time: Duration) {
        self.purse.lock().unwrap_or_else(PoisonError::into_inner).spend(time);
    }

    /// A hash of what an object says, without what the API server writes into each new object.
    fn hash(&self, object: &Value) -> u64 {
        let metadata = &object["metadata"];
        let said = json!([
            object["apiVersion"],
            object["kind"],
            object["spec"],
            metadata["name"],
            metadata["labels"],
            metadata["annotations"],
        ]);
        self.hasher.hash_one(said.to_string())
    }

    /// The verdict that is kept, if the engine has not changed since.
    async fn remembered(&self, key: &(String, u64)) -> Option<Arc<Foreseen>> {
        let (foreseen, changes) = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = kept.get(key).filter(|kept| kept.since.elapsed() < KEPT)?;
            (Arc::clone(&kept.foreseen), kept.changes)
        };
        (self.asker.ask(Question::Changes).await? == changes).then_some(foreseen)
    }

    fn keep(&self, key: (String, u64), changes: u64, foreseen: &Arc<Foreseen>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, kept| kept.since.elapsed() < KEPT);
        if kept.len() < MOST_KEPT {
            kept.insert(key, Kept { foreseen: Arc::clone(foreseen), changes, since: Instant::now() });
        }
    }

    /// The workload, and the engine that it would come to: the copy at hand if the engine has not changed.
    async fn candidate(&self, managed: Box<Managed>) -> Option<(Arc<Mutex<Box<Engine>>>, Candidate)> {
        let mut base = self.base.lock().await;
        let mut known = base.as_ref().filter(|base| base.began.elapsed() < KEPT).map(|base| base.changes);
        if let Some(last) = base.as_ref() {
            // The loop makes the copies, between its decisions.
            let free = last.began + last.cost.saturating_mul(PAUSE);
            if free > Instant::now() && self.asker.ask(Question::Changes).await? != last.changes {
                sleep(free.saturating_duration_since(Instant::now())).await;
                known = None;
            }
        }
        let began = Instant::now();
        let asked_for = |to| Question::Candidate(managed, known, to);
        let mut candidate = self.asker.ask(asked_for).await.flatten()?;
        let changes = candidate.changes;
        if let Some(engine) = candidate.engine.take() {
            let cost = began.elapsed();
            *base = Some(Base { engine: Arc::new(Mutex::new(engine)), changes, began, cost });
        }
        let engine = Arc::clone(&base.as_ref()?.engine);
        Some((engine, candidate))
    }
}

/// The copy of the engine once nothing is left to decide in it; `None` where the time was too short. The engine of a replica
/// that does not lead has decided nothing, and the next verdict goes on from what is decided here.
fn settled(base: &Mutex<Box<Engine>>, go_on: &mut dyn FnMut() -> bool) -> Option<Box<Engine>> {
    let mut engine = base.lock().unwrap_or_else(PoisonError::into_inner);
    while go_on() {
        let decided = !engine.plan(now()).actions.is_empty();
        if !decided && !engine.has_more() {
            return Some(engine.clone());
        }
    }
    None
}

/// What would happen to a workload. What is decided at once goes to `first` before the start is predicted, within `time`;
/// `None` where the time was too short for that.
fn foreseen(
    engine: Engine,
    (Candidate { workload, queue, shares, .. }, accelerators): (&Candidate, &Accelerators),
    (corrections, time): (&Corrections, Duration),
    first: oneshot::Sender<WhatIfRow>,
    go_on: &mut dyn FnMut() -> bool,
) -> Option<WhatIfRow> {
    let (at, accelerators) = (now(), PoolAccelerators::of(&engine, accelerators, shares));
    let mut submission = Submission::new(engine, workload.clone(), at, go_on);
    let row = |of: &Submission, prospect| {
        WhatIfRow::new((of.engine(), of.decided()), (workload, queue), &prospect, &accelerators, at)
    };
    let at_once = submission.at_once();
    at_once.verdict.as_ref()?;
    if submission.starts_at_once() {
        return Some(row(&submission, at_once));
    }
    // The receiver may have stopped waiting.
    let _ = first.send(row(&submission, at_once).without_start());
    let (mut in_time, began) = (true, Instant::now());
    let whole = submission.shown(Bounds::default(), corrections, &mut |_| {
        in_time &= go_on() && began.elapsed() < time;
        in_time
    });
    in_time.then(|| row(&submission, whole))
}
