//! How a session follows leadership: it begins, takes over from another leader, and stands down.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::budget_news::BudgetNews;
use super::super::context::Context;
use super::super::long_waits::LongWaits;
use super::super::pod_placement::PodPlacement;
use super::super::preview::Preview;
use super::super::retries::Retries;
use super::super::waiting::Waiting;
use super::refusals::Refusals;
use super::reports;
use super::{Arrival, CHANGES, Session};
use crate::cluster::actuator::Actuator;
use crate::cluster::catch_up::{Answer, CatchUp, Progress};
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::twins::Twins;
use crate::cluster::watch;
use crate::engine::Engine;

/// The cache and what fills it.
struct View {
    mirror: Mirror,
    changes: mpsc::Receiver<Change>,
    watches: JoinSet<()>,
}

impl Session {
    /// Starts the watches, with an empty engine and cache. Given a term, it decides once all their lists are complete: they
    /// are no older than this call.
    pub fn begin(context: &Context, term: Option<u64>) -> Self {
        let (changes_in, changes) = mpsc::channel(CHANGES);
        // While the cluster is listed again, the webhook uses the old pod places.
        let places = context.directory.load().places.clone();
        places.forget_expected();
        let mirror = Mirror::new(context.kinds.clone(), places).capped(context.caps);
        let watches = watch::start(&context.client, &context.kinds, &changes_in);
        Self { term, ..Self::over(context, View { mirror, changes, watches }) }
    }

    /// A session that does not lead, with an engine that knows nothing of the view yet.
    fn over(context: &Context, view: View) -> Self {
        let (outcomes_in, outcomes) = mpsc::unbounded_channel();
        let (previews_in, previews) = mpsc::unbounded_channel();
        let actuator = Actuator::new(
            context.client.clone(),
            context.leadership.clone(),
            Arc::clone(&context.metrics),
            Arc::clone(&context.busy),
            outcomes_in,
        );
        let mut engine = Engine::with_settings(context.settings);
        context.recorder.lock().unwrap_or_else(PoisonError::into_inner).begin(&mut engine);
        Self {
            engine,
            mirror: view.mirror,
            changes: view.changes,
            outcomes,
            previews,
            preview: Preview::new(previews_in),
            first: None,
            actuator,
            term: None,
            catch_up: None,
            lost_track: false,
            decisions: [].into(),
            last_number: 0,
            restores: Retries::default(),
            releases: Retries::default(),
            completions: Retries::default(),
            shortenings: Retries::default(),
            ending: [].into(),
            placing: PodPlacement::default(),
            refusals: Refusals::default(),
            kept: [].into(),
            waiting: Waiting::default(),
            budget_news: BudgetNews::default(),
            long_waits: LongWaits::default(),
            starts: reports::starts(),
            leads_since: None,
            notifier: context.notifier.clone(),
            recorder: Arc::clone(&context.recorder),
            twins: Twins::new(
                context.client.clone(),
                context.leadership.clone(),
                Arc::clone(&context.metrics),
            ),
            metrics: Arc::clone(&context.metrics),
            notices: context.notices.clone(),
            watches: view.watches,
        }
    }

    /// Begins a term with the cache and the engine as they are. It decides once the cache is known to be new enough.
    pub fn take_over(&mut self, context: &Context, term: u64) {
        self.term = Some(term);
        self.catch_up = Some(CatchUp::begin(&context.client, &context.kinds));
    }

    /// How far the cache is behind, while that keeps the session from deciding.
    pub fn progress(&mut self) -> Option<Progress> {
        Some(self.catch_up.as_mut()?.progress(&self.mirror))
    }

    /// Decides from now on; returns how long it has caught up.
    pub fn lead(&mut self) -> Duration {
        // A session that does not lead places no pods.
        self.mirror.mark_all_dirty();
        self.catch_up.take().map_or(Duration::ZERO, |catch_up| catch_up.age())
    }

    /// Goes on with the cache without leading. What it decided and no object shows is forgotten: its writes end, and the
    /// engine is filled again from the cache.
    pub fn stand_down(mut self, context: &Context) -> Self {
        self.answer_held();
        let Self { mirror, changes, watches, first, .. } = self;
        mirror.places().forget_expected();
        let mut session = Self::over(context, View { mirror, changes, watches });
        session.first = first.filter(|arrival| matches!(arrival, Arrival::Change(_)));
        session.apply(session.mirror.replay());
        session
    }
}

/// The next list of a session that catches up. Safe to cancel.
pub(super) async fn next_answer(catch_up: &mut Option<CatchUp>) -> Option<Answer> {
    match catch_up {
        Some(catch_up) => catch_up.answer().await,
        None => None,
    }
}
