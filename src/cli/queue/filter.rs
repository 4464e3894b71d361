//! Which workloads a command is about.

use std::collections::{BTreeMap, BTreeSet};

use kube::Api;
use kube::api::ListParams;
use kube::core::DynamicObject;

use crate::api::names;
use crate::api::question::{Phase, QuestionSpec, QueueFilter};
use crate::cli::cluster::Cluster;
use crate::cli::complete;
use crate::cli::resources;
use crate::view::WorkloadRow;

/// The workloads that a command lists.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Filter {
    /// Only this team's workloads.
    #[arg(long, short, value_name = "TEAM", add = complete::teams())]
    team: Option<String>,
    /// Only this queue's workloads.
    #[arg(long, short, value_name = "QUEUE", add = complete::queues())]
    queue: Option<String>,
    /// Only workloads that this user submitted.
    #[arg(long, short, value_name = "USER", conflicts_with = "me")]
    user: Option<String>,
    /// Only workloads that you submitted.
    #[arg(long)]
    me: bool,
    /// Only workloads in these states: Held, Pending, Running, Evicting, Finished.
    #[arg(long, short, value_name = "STATES", value_delimiter = ',', value_parser = phase, conflicts_with = "all")]
    state: Vec<Phase>,
    /// Only workloads with these labels, written as for kubectl.
    #[arg(long, short = 'l', value_name = "LABELS")]
    selector: Option<String>,
    /// Also ended workloads.
    #[arg(long, short)]
    all: bool,
}

/// Every state.
const PHASES: [Phase; 5] = [Phase::Held, Phase::Pending, Phase::Running, Phase::Evicting, Phase::Finished];

/// Parses `--state`.
fn phase(text: &str) -> Result<Phase, String> {
    let found = PHASES.into_iter().find(|phase| phase.code().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "expected Held, Pending, Running, Evicting or Finished".to_owned())
}

impl Filter {
    /// Whether it leaves out anything but ended workloads.
    pub fn chooses(&self) -> bool {
        let Self { team, queue, user, me, state, selector, all: _ } = self;
        let named = [team, queue, user, selector].iter().any(|one| one.is_some());
        named || *me || !state.is_empty()
    }

    /// Whether it names a user.
    pub fn names_user(&self) -> bool {
        self.me || self.user.is_some()
    }

    /// Whether it has a selector of labels, which only the objects have.
    pub fn selects(&self) -> bool {
        self.selector.is_some()
    }

    /// The team.
    pub fn team(&self) -> Option<&str> {
        self.team.as_deref()
    }

    /// The queue.
    pub fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    /// The question for these workloads, or for those of the caller among them.
    pub fn question(&self, me: bool) -> QuestionSpec {
        let Self { team, queue, user, state, all, .. } = self.clone();
        let states = if all { PHASES.to_vec() } else { state };
        let queue = QueueFilter { namespace: None, team, queue, user, me: self.me || me, states };
        QuestionSpec { queue: Some(queue), ..QuestionSpec::default() }
    }

    /// The rows whose objects have the labels of the selector. The objects are listed as the user of the kubeconfig.
    ///
    /// # Errors
    /// When objects may not be listed.
    pub async fn selected(
        &self,
        cluster: &Cluster,
        rows: Vec<WorkloadRow>,
    ) -> anyhow::Result<Vec<WorkloadRow>> {
        let Some(selector) = &self.selector else { return Ok(rows) };
        let kinds: BTreeSet<&String> = rows.iter().map(|row| &row.kind).collect();
        let mut found: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
        for kind in kinds {
            let resource = resources::of(kind)?;
            let api: Api<DynamicObject> = if cluster.all {
                Api::all_with(cluster.client(), &resource)
            } else {
                Api::namespaced_with(cluster.client(), &cluster.namespace, &resource)
            };
            let listed = api.list_metadata(&ListParams::default().labels(selector)).await;
            let listed = listed.map_err(|error| cluster.refused(&resource.plural, error))?;
            let names = listed.items.into_iter().filter_map(|object| {
                let group =
                    object.metadata.labels.as_ref().and_then(|labels| labels.get(names::GROUP).cloned());
                let name = if kind == "PodGroup" { group? } else { object.metadata.name? };
                Some((object.metadata.namespace?, name))
            });
            found.insert(kind.clone(), names.collect());
        }
        let has = |row: &WorkloadRow| {
            let key = (row.head.namespace.clone(), row.head.name.clone());
            found.get(&row.kind).is_some_and(|names| names.contains(&key))
        };
        Ok(rows.into_iter().filter(has).collect())
    }
}
