//! Notifications: what happens to the workloads of a team is sent to the endpoints that its Team names.
//!
//! The decision loop puts a transition into a bounded channel and goes on. Each endpoint has a queue and a task of its own, so
//! that a slow one delays no other. What an endpoint does not accept is sent again, with rising pauses and the same ID. What
//! does not fit a queue is dropped and counted. Nothing here is a decision, and losing it changes none: a transition is
//! lost if its leader is killed before the endpoint has accepted it.

mod line;
mod message;
mod post;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{IntCounterVec, Opts, Registry};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::post::Poster;
use crate::api::notify::{Endpoint, Transition};
use crate::engine::types::Name;

pub use self::post::Unusable;

/// The most transitions between the loop and the queues of endpoints.
const BACKLOG: usize = 4096;
/// The most transitions that wait for one endpoint.
const LINE: usize = 256;
/// The time for what waits when Sluice ends.
const FLUSH: Duration = Duration::from_secs(3);

/// How attempts end, a label.
pub const OUTCOMES: [&str; 5] = ["delivered", "retried", "refused", "expired", "dropped"];

/// Options of notifications.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Directory with the secrets of endpoints, one file TEAM.NAME each: the mounted Secret sluice-notify.
    #[arg(long, default_value = "/etc/sluice/notify", value_name = "DIRECTORY")]
    pub notify_secrets: PathBuf,
    /// File with further certificate authorities of endpoints, in PEM; those of Mozilla are trusted always.
    #[arg(long, value_name = "FILE")]
    pub notify_ca: Option<PathBuf>,
}

/// What happened to a workload, or to the budget of a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The transition.
    pub transition: Transition,
    /// When.
    pub at: jiff::Timestamp,
    /// A number that distinguishes the transitions of one kind of a workload, and is the same on every replica.
    pub occasion: i64,
    /// The reason code.
    pub reason: String,
    /// One sentence, without names of workloads in other namespaces.
    pub message: String,
    /// The team.
    pub team: Name,
    /// The queue; empty for a team.
    pub queue: Name,
    /// The user that submitted the workload.
    pub user: Option<Name>,
    /// The kind of its object.
    pub kind: String,
    /// Its namespace; empty for a team.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its UID.
    pub uid: Name,
}

impl News {
    /// An ID that is the same however often the transition is sent, and by whichever replica.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}.{}.{:x}", self.uid, self.transition.name().to_lowercase(), self.occasion)
    }
}

/// Takes transitions. All clones feed one queue.
#[derive(Clone, Debug)]
pub struct Notifier {
    sender: mpsc::Sender<(Arc<Endpoint>, Arc<News>)>,
    counts: IntCounterVec,
}

impl Notifier {
    /// Queues a transition for the endpoints that want it; drops it where too many wait.
    pub fn send<'a>(&self, endpoints: impl Iterator<Item = &'a Arc<Endpoint>>, news: News) {
        let news = Arc::new(news);
        for endpoint in endpoints {
            if self.sender.try_send((Arc::clone(endpoint), Arc::clone(&news))).is_err() {
                count(&self.counts, "dropped");
            }
        }
    }
}

fn count(counts: &IntCounterVec, outcome: &str) {
    counts.with_label_values(&[outcome]).inc();
}

/// Registers the metric.
///
/// # Errors
/// If the registry has it already.
pub fn counter(registry: &Registry) -> prometheus::Result<IntCounterVec> {
    let help = "Notifications by outcome: delivered, retried after a failure, refused by the endpoint, expired after all \
                retries, or dropped because too many waited.";
    let counts = IntCounterVec::new(Opts::new("sluice_notifications_total", help), &["outcome"])?;
    registry.register(Box::new(counts.clone()))?;
    for outcome in OUTCOMES {
        counts.with_label_values(&[outcome]).reset();
    }
    Ok(counts)
}

/// The notifier, and what delivers its transitions until the token is cancelled and for a moment more.
///
/// # Errors
/// If the file of authorities cannot be read, or the registry has the metric already.
pub fn start(
    options: &Options,
    registry: &Registry,
    stop: CancellationToken,
) -> Result<(Notifier, impl Future<Output = ()> + Send + use<>), Unusable> {
    let counts = counter(registry)?;
    let poster = Arc::new(Poster::new(options)?);
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let notifier = Notifier { sender, counts: counts.clone() };
    Ok((
        notifier,
        Deliveries { poster, counts, lines: BTreeMap::new(), tasks: JoinSet::new() }.run(receiver, stop),
    ))
}

/// A team and one of its endpoints.
type Key = (Name, Arc<Endpoint>);

/// The queues and tasks of endpoints.
struct Deliveries {
    poster: Arc<Poster>,
    counts: IntCounterVec,
    lines: BTreeMap<Key, mpsc::Sender<Arc<News>>>,
    tasks: JoinSet<()>,
}

impl Deliveries {
    async fn run(
        mut self,
        mut receiver: mpsc::Receiver<(Arc<Endpoint>, Arc<News>)>,
        stop: CancellationToken,
    ) {
        while let Some(Some((endpoint, news))) = stop.run_until_cancelled(receiver.recv()).await {
            self.pass_on(endpoint, news);
        }
        while let Ok((endpoint, news)) = receiver.try_recv() {
            self.pass_on(endpoint, news);
        }
        self.lines.clear();
        let rest = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(FLUSH, rest).await.is_err() {
            tracing::warn!(endpoints = self.tasks.len(), "ending with notifications that were not accepted");
        }
    }

    /// Puts a transition into the queue of an endpoint. The task of an endpoint ends when nothing has come for long.
    fn pass_on(&mut self, endpoint: Arc<Endpoint>, news: Arc<News>) {
        while self.tasks.try_join_next().is_some() {}
        let key = (news.team.clone(), endpoint);
        let news = match self.lines.get(&key).map(|line| line.try_send(Arc::clone(&news))) {
            Some(Ok(())) => return,
            Some(Err(TrySendError::Full(_))) => return count(&self.counts, "dropped"),
            Some(Err(TrySendError::Closed(news))) => news,
            None => news,
        };
        self.lines.retain(|_, line| !line.is_closed());
        let (sender, receiver) = mpsc::channel(LINE);
        let (team, endpoint) = key.clone();
        // A queue that was just made has room.
        let _ = sender.try_send(news);
        self.lines.insert(key, sender);
        let line =
            line::Line { team, endpoint, poster: Arc::clone(&self.poster), counts: self.counts.clone() };
        self.tasks.spawn(line.run(receiver));
    }
}

#[cfg(test)]
mod tests;
