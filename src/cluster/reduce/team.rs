//! Teams, pools and namespaces as the cache keeps them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::core::{ObjectMeta, PartialObjectMeta};

use super::{instant, label, name, version};
use crate::api::convert::shares;
use crate::api::names;
use crate::api::node_pool::NodePool;
use crate::api::notify::Endpoint;
use crate::api::team;
use crate::api::values::duration;
use crate::cluster::run_lengths;
use crate::directory::Membership;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{BudgetUsed, Name, PastUsage, Pool, RunLengths, Team, Time};

/// The most resources of one pool that a status is read for.
const MOST_RESOURCES: usize = 256;

/// A team: the engine's part, and the fields that the webhook and the status need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamSeen {
    /// The engine's part.
    pub team: Team,
    /// The PriorityClass each queue gives to pods that name none.
    pub classes: Vec<(Name, Name)>,
    /// The longest termination grace period of each queue that has its own.
    pub graces: Vec<(Name, Duration)>,
    /// Its UID.
    pub uid: Name,
    /// The endpoints that are notified.
    pub notify: Vec<Arc<Endpoint>>,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The version of the object.
    pub version: u64,
    /// What it borrowed in the past, as last written in its status.
    pub past: Option<PastUsage>,
    /// What was used of its budget, as last written in its status.
    pub budget: Option<BudgetUsed>,
    /// How long its runs took, as last written in its status.
    pub run_lengths: Option<RunLengths>,
}

/// A node pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSeen {
    /// The engine's part.
    pub pool: Pool,
    /// The resources that its nodes offer for GPU fractions.
    pub shares: ResourceList,
    /// The generation of its spec.
    pub generation: Option<i64>,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSeen {
    /// Its name.
    pub name: Name,
    /// The team and queue in its labels; `None` without the team label.
    pub membership: Option<Membership>,
    /// Since when its label has named that team; unknown without managed fields.
    pub since: Option<Time>,
}

/// Converts a team.
///
/// # Errors
/// A sentence that names the field.
pub fn team(object: &team::Team) -> Result<TeamSeen, String> {
    let queues = object.spec.queues.iter();
    Ok(TeamSeen {
        team: Team::try_from(object).map_err(|error| error.to_string())?,
        classes: queues
            .filter_map(|q| Some((q.name.as_str().into(), q.priority_class_name.as_deref()?.into())))
            .collect(),
        graces: object
            .spec
            .queues
            .iter()
            .map(grace)
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?,
        uid: name(object.metadata.uid.as_ref()),
        notify: object.spec.notify.iter().cloned().map(Arc::new).collect(),
        generation: object.metadata.generation,
        version: version(&object.metadata),
        past: object.status.as_ref().and_then(|status| past_usage(object, status)),
        budget: object.status.as_ref().and_then(|status| budget_used(object, status)),
        run_lengths: object.status.as_ref().and_then(|status| run_lengths::read(&object.name_any(), status)),
    })
}

/// The past usage in a status. What cannot be read there counts as none: it is no reason to ignore the team.
fn past_usage(object: &team::Team, status: &team::TeamStatus) -> Option<PastUsage> {
    let at = instant(status.decayed_at.as_ref()?);
    let read = |pool: &team::PoolUsage| {
        let usage = pool.decayed_usage.iter().filter_map(|(resource, amount)| {
            let amount = Amount::parse(&amount.0).ok().filter(|amount| *amount > Amount::ZERO)?;
            Some((resource.as_str().into(), amount))
        });
        (pool.pool.as_str().into(), usage.take(MOST_RESOURCES).collect())
    };
    Some(PastUsage {
        team: object.name_any().as_str().into(),
        pools: status.pools.iter().map(read).collect(),
        at,
    })
}

/// What a status says was used of the budget. What cannot be read there counts as nothing.
fn budget_used(object: &team::Team, status: &team::TeamStatus) -> Option<BudgetUsed> {
    let budget = status.budget.as_ref()?;
    Some(BudgetUsed {
        team: object.name_any().as_str().into(),
        used: Amount::parse(&budget.used.0).ok()?.max(Amount::ZERO),
        since: budget.period_start.as_ref().map(instant),
        at: instant(budget.at.as_ref()?),
    })
}

/// The queue and its longest termination grace period, if it has its own.
fn grace(queue: &team::TeamQueue) -> Result<Option<(Name, Duration)>, String> {
    let Some(text) = &queue.max_grace else { return Ok(None) };
    let read =
        duration(text).map_err(|problem| format!("spec.queues[{}].maxGrace: {problem}", queue.name))?;
    Ok(Some((queue.name.as_str().into(), read)))
}

/// Converts a node pool.
///
/// # Errors
/// A sentence that names the field.
pub fn pool(object: &NodePool) -> Result<PoolSeen, String> {
    Ok(PoolSeen {
        pool: Pool::try_from(object).map_err(|error| error.to_string())?,
        shares: shares(&object.spec.shares)
            .map_err(|problem| problem.of(format!("NodePool {}", object.name_any())).to_string())?,
        generation: object.metadata.generation,
    })
}

/// Converts a namespace.
#[must_use]
pub fn namespace(object: &PartialObjectMeta<Namespace>) -> NamespaceSeen {
    let metadata = &object.metadata;
    let membership =
        label(metadata, names::TEAM).map(|team| Membership { team, queue: label(metadata, names::QUEUE) });
    let since = membership.as_ref().and_then(|_| labelled_since(metadata));
    NamespaceSeen { name: name(metadata.name.as_ref()), membership, since }
}

/// Since when a namespace has its team label: the time of the field manager that owns the label, the earliest if there
/// are several. A manager's time moves on when it changes other fields, so this may be later than the label, but never
/// earlier.
fn labelled_since(metadata: &ObjectMeta) -> Option<Time> {
    let label = format!("f:{}", names::TEAM);
    let entries = metadata.managed_fields.iter().flatten();
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| !fields["f:metadata"]["f:labels"][&label].is_null())
    };
    entries.filter(owns).filter_map(|entry| entry.time.as_ref()).map(instant).min()
}
