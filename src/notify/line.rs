//! The task of one endpoint: sends what is queued for it, in order.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use prometheus::IntCounterVec;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::News;
use super::message::{Message, message};
use super::post::{Failure, Poster};
use crate::api::notify::{Endpoint, Form};
use crate::engine::types::Name;

/// The pause after the first failure, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The most retries of a notification: some seven minutes.
const RETRIES: usize = 12;
/// The time without news after which the task ends.
const IDLE: Duration = Duration::from_secs(300);
/// The most transitions in one text.
const TEXT: usize = 20;

/// The task of an endpoint.
pub struct Line {
    pub team: Name,
    pub endpoint: Arc<Endpoint>,
    pub poster: Arc<Poster>,
    pub counts: IntCounterVec,
}

impl Line {
    /// Sends until the queue is closed, or nothing has come for long.
    pub async fn run(self, mut queue: mpsc::Receiver<Arc<News>>) {
        while let Ok(Some(first)) = timeout(IDLE, queue.recv()).await {
            let mut batch = vec![first];
            while self.endpoint.form == Form::Slack
                && batch.len() < TEXT
                && let Ok(next) = queue.try_recv()
            {
                batch.push(next);
            }
            let outcome = self.deliver(&message(self.endpoint.form, &batch)).await;
            self.counts.with_label_values(&[outcome]).inc_by(batch.len() as u64);
        }
    }

    /// Sends one message, again after failures that may pass. The log names neither URL nor secret.
    async fn deliver(&self, message: &Message) -> &'static str {
        let pauses = ExponentialBuilder::default().with_min_delay(PAUSE).with_max_delay(LONGEST_PAUSE);
        let mut pauses = pauses.with_max_times(RETRIES).with_jitter().build();
        loop {
            let (problem, pause) = match self.poster.post(&self.team, &self.endpoint, message).await {
                Ok(()) => return "delivered",
                Err(Failure::Final(problem)) => (problem, None),
                Err(Failure::Passing { problem, after }) => {
                    let pause = pauses.next().map(|pause| pause.max(after).min(LONGEST_PAUSE));
                    if pause.is_none() {
                        tracing::warn!(team = %self.team, problem, "a notification was given up after all retries");
                        return "expired";
                    }
                    (problem, pause)
                }
            };
            let Some(pause) = pause else {
                tracing::warn!(team = %self.team, problem, "an endpoint refuses a notification");
                return "refused";
            };
            tracing::debug!(team = %self.team, problem, ?pause, "an endpoint does not accept a notification yet");
            self.counts.with_label_values(&["retried"]).inc();
            sleep(pause).await;
        }
    }
}
