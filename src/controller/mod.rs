//! The control loop. It owns the engine, feeds it events, writes its decisions and answers queries.
//!
//! The loop handles arrivals at once, together with everything already in its channels; it never
//! delays to collect more. Writes run concurrently and report their outcome as an arrival. A replica
//! that gains leadership lists the cluster again and starts with an empty engine: it sees every write
//! of the previous leader, so no workload is admitted twice.

mod context;
mod decisions;
mod pod_groups;
mod pod_placement;
mod preview;
mod queries;
mod readiness;
mod retries;
mod session;
mod unschedulable;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use context::Context;
#[cfg(test)]
pub use queries::answer;
pub use queries::{Asker, Candidate, Question};
pub use readiness::Readiness;
use session::Session;

use crate::cluster::clock::now;
use crate::engine::types::Time;

/// The time limit for the last writes on shutdown.
const DRAIN: Duration = Duration::from_secs(3);
/// The longest sleep. It bounds the time until lost leadership is noticed.
const TICK: Duration = Duration::from_secs(1);

/// Runs the loop until `stop` and answers `questions`. Returns false when the outcome of the last writes is
/// unknown.
pub async fn run(
    mut context: Context,
    mut questions: mpsc::Receiver<Question>,
    stop: CancellationToken,
) -> bool {
    let mut session = Session::begin(&context, None);
    loop {
        context.heart.beat();
        let wake = wake_after(session.next_deadline(), now());
        tokio::select! {
            () = stop.cancelled() => break,
            renewed = context.leadership.changed() => if !renewed { break },
            arrived = session.arrived() => if !arrived { break },
            Some(question) = questions.recv() => {
                session.answer(question);
                continue;
            }
            () = tokio::time::sleep_until(wake) => {}
        }
        let began = Instant::now();
        let worked = session.take_waiting();
        context.heart.beat();
        follow_leadership(&context, &mut session);
        if let Some(directory) = session.directory() {
            context.directory.store(directory);
        } else if worked {
            context.directory.wake();
        }
        if session.complete() {
            if context.ready.lists_complete() {
                tracing::info!("the first lists are complete; ready");
            }
            session.decide(now());
            if worked && session.term().is_some() {
                context.metrics.decision.observe(began.elapsed().as_secs_f64());
            }
        }
    }
    context.metrics.leader.set(0);
    session.finish(DRAIN).await
}

/// Starts a new session when leadership is gained, or was lost for a moment, also unnoticed. Stops deciding when
/// leadership is lost.
fn follow_leadership(context: &Context, session: &mut Session) {
    let term = context.leadership.term();
    if term == session.term() && !session.lost_track() {
        return;
    }
    context.metrics.leader.set(i64::from(term.is_some()));
    if term.is_some() {
        tracing::info!("became leader; listing the cluster again");
        session.answer_held();
        *session = Session::begin(context, term);
    } else {
        tracing::warn!("lost leadership");
        session.stand_down();
    }
}

/// The next wake-up if nothing arrives before.
fn wake_after(deadline: Option<Time>, now: Time) -> Instant {
    let sleep = deadline.map_or(TICK, |deadline| deadline.since(now).min(TICK));
    Instant::now() + sleep
}
