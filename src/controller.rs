//! The loop that owns the engine: news in, decisions out, answers to questions in between.
//!
//! It acts at once on what has arrived and takes along what is already waiting; it never pauses to
//! collect. Writes run beside it and report back as news. Whoever gains the lead reads the cluster
//! anew and starts from an empty engine, so that it sees every write of the leader before it and
//! nothing is admitted twice.

mod decided;
mod grouped;
mod placing;
mod questions;
mod readiness;
mod refusals;
mod restores;
mod session;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use questions::{Asker, Candidate, Question, answer};
pub use readiness::Readiness;
use session::Session;

use crate::cluster::clock::now;
use crate::cluster::events::Notices;
use crate::cluster::leader::Claim;
use crate::directory::SharedDirectory;
use crate::engine::types::{Settings, Time};
use crate::kinds::Kinds;
use crate::metrics::Metrics;

/// How long the last writes may take at the end.
const DRAIN: Duration = Duration::from_secs(3);
/// The longest sleep: a bound on how long a lost claim goes unnoticed.
const TICK: Duration = Duration::from_secs(1);

/// What the loop works with.
#[derive(Clone)]
pub struct Controller {
    /// The API server.
    pub client: Client,
    /// Whether this process leads.
    pub claim: Claim,
    /// What the webhook reads.
    pub directory: SharedDirectory,
    /// Every metric.
    pub metrics: Arc<Metrics>,
    /// Where events go.
    pub notices: Notices,
    /// How many writes are under way.
    pub busy: Arc<AtomicUsize>,
    /// How is decided.
    pub settings: Settings,
    /// The kinds besides Job and Pod whose objects are workloads.
    pub kinds: Kinds,
    /// To be told when the first lists are complete.
    pub ready: Arc<Readiness>,
}

impl Controller {
    /// Runs until `stop`, answering `questions`; false when what became of the last writes is not known.
    pub async fn run(mut self, mut questions: mpsc::Receiver<Question>, stop: CancellationToken) -> bool {
        let mut session = Session::begin(&self, false);
        loop {
            let wake = wake_after(session.next_deadline(), now());
            tokio::select! {
                () = stop.cancelled() => break,
                renewed = self.claim.changed() => if !renewed { break },
                arrived = session.arrived() => if !arrived { break },
                Some(question) = questions.recv() => {
                    session.answer(question);
                    continue;
                }
                () = tokio::time::sleep_until(wake) => {}
            }
            let began = Instant::now();
            let worked = session.take_waiting();
            self.follow_the_lead(&mut session);
            if let Some(directory) = session.directory() {
                self.directory.store(directory);
            } else if worked {
                self.directory.wake();
            }
            if session.complete() {
                if self.ready.lists_complete() {
                    tracing::info!("every list is complete; ready");
                }
                session.decide(now());
                if worked {
                    self.metrics.decision.observe(began.elapsed().as_secs_f64());
                }
            }
        }
        self.metrics.leader.set(0);
        session.finish(DRAIN).await
    }

    /// Begins anew when the lead has been gained, or was lost for a moment in which a write was under
    /// way; stands down when it has been lost.
    fn follow_the_lead(&self, session: &mut Session) {
        let leads = self.claim.holds();
        if leads == session.leads() && !session.lost_track() {
            return;
        }
        self.metrics.leader.set(i64::from(leads));
        if leads {
            tracing::info!("leading; reading the cluster anew");
            *session = Session::begin(self, true);
        } else {
            tracing::warn!("no longer leading");
            session.stand_down();
        }
    }
}

/// When to look again although nothing has arrived.
fn wake_after(deadline: Option<Time>, now: Time) -> Instant {
    let sleep = deadline.map_or(TICK, |deadline| deadline.since(now).min(TICK));
    Instant::now() + sleep
}
