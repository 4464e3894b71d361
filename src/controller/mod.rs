//! The control loop. It owns the engine, feeds it events, writes its decisions and answers queries.
//!
//! The loop handles arrivals at once, together with everything already in its channels; it never
//! delays to collect more. Writes run concurrently and report their outcome as an arrival. A replica
//! that gains leadership goes on with the cache and the engine that it has kept up to date, once the cache
//! shows every write of the previous leader ([`crate::cluster::catch_up`]), so no workload is admitted
//! twice. Where that cannot be known it lists the cluster again and starts with an empty engine.

mod allowance;
mod budget_news;
mod context;
mod decisions;
mod long_waits;
mod news;
mod pod_groups;
mod pod_placement;
mod preview;
mod queries;
mod readiness;
mod recorder;
mod retries;
mod samples;
mod session;
mod waiting;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use context::Context;
#[cfg(test)]
pub use queries::answer;
pub use queries::{Asker, Candidate, Choice, Question, WorkloadsPart};
pub use readiness::Readiness;
pub use recorder::Recorder;
use session::Session;

use crate::cluster::catch_up::Progress;
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
        session = follow_leadership(&context, session);
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
            session.record(now());
            if worked && session.decides() {
                context.metrics.decision.observe(began.elapsed().as_secs_f64());
            }
        }
    }
    context.metrics.leader.set(0);
    session.hand_over(now());
    session.finish(DRAIN).await
}

/// Follows leadership. A replica that gains it takes over with its cache, or begins again where the cache cannot be known to
/// show every write before: its first lists are not complete, or it led itself until now and does not know how its last
/// writes ended. One that loses it stands down.
fn follow_leadership(context: &Context, mut session: Session) -> Session {
    let term = context.leadership.term();
    let led = session.term().is_some();
    if term == session.term() && !session.lost_track() {
        return follow_catch_up(context, session);
    }
    context.metrics.leader.set(i64::from(term.is_some()));
    match term {
        Some(term) if !led && session.complete() => {
            tracing::info!("became leader; comparing the cache with the versions of the objects");
            session.take_over(context, term);
            session
        }
        Some(term) => {
            tracing::info!("became leader; listing the cluster again");
            begin_again(context, session, term)
        }
        None => {
            tracing::warn!("lost leadership");
            session.stand_down(context)
        }
    }
}

/// Lets a session that takes over decide once its cache is new enough; begins again where that cannot be known.
fn follow_catch_up(context: &Context, mut session: Session) -> Session {
    match (session.progress(), session.term()) {
        (Some(Progress::Level), _) => {
            let took = session.lead();
            context.metrics.takeovers.with_label_values(&["warm"]).inc();
            tracing::info!(?took, "the cache shows every write of the leader before");
            session
        }
        (Some(Progress::Unknown(problem)), Some(term)) => {
            tracing::warn!(problem, "cannot tell how old the cache is; listing the cluster again");
            begin_again(context, session, term)
        }
        _ => session,
    }
}

fn begin_again(context: &Context, mut session: Session, term: u64) -> Session {
    session.answer_held();
    context.metrics.takeovers.with_label_values(&["cold"]).inc();
    Session::begin(context, Some(term))
}

/// The next wake-up if nothing arrives before.
fn wake_after(deadline: Option<Time>, now: Time) -> Instant {
    let sleep = deadline.map_or(TICK, |deadline| deadline.since(now).min(TICK));
    Instant::now() + sleep
}
