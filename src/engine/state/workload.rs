//! One workload on the books: where it stands, and what it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::devices::Holder;
use crate::state::avoided_nodes::AvoidedNodes;
use crate::state::nodes::NodeTable;
use crate::state::quotas::QuotaTree;
use crate::state::sizes::{SizedPod, granted};
use crate::types::ids::{NodeId, PoolId, TeamId, WorkloadIndex};
use crate::types::vector::Vector;
use crate::types::{Admission, Name, Observed, PodShape, SETTLE, Time, Workload};

/// Where a workload stands, decisions not yet confirmed included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Held by its user.
    Hold,
    /// In the queue.
    Pending,
    /// The engine decided to admit it; its object does not say so yet.
    Starting(Admission),
    /// Admitted.
    Running(Admission),
    /// Admitted; the engine decided to let it go on with other pods, its object does not say so yet.
    Resizing {
        /// What it was admitted with.
        from: Admission,
        /// What is to hold from now on.
        to: Admission,
    },
    /// The engine decided to evict it; its object does not say so yet.
    Stopping(Admission),
    /// Told to stop, pods not known to be gone.
    Leaving {
        /// What it was admitted with.
        admission: Admission,
        /// When it was told to stop.
        since: Time,
        /// Whether no more pods of it will be made.
        stopped: bool,
    },
    /// The engine decided to end it as failed; its object does not say so yet. With what it runs, or
    /// nothing when it waits.
    Failing(Option<Admission>),
    /// Ended; what its pods still hold is held.
    Finished,
}

impl Phase {
    /// The admission it runs, starts or ends with; while it is being resized, the one to come.
    #[must_use]
    pub fn admission(&self) -> Option<&Admission> {
        match self {
            Self::Starting(admission)
            | Self::Running(admission)
            | Self::Resizing { to: admission, .. }
            | Self::Stopping(admission) => Some(admission),
            Self::Leaving { admission, .. } => Some(admission),
            Self::Failing(admission) => admission.as_ref(),
            Self::Hold | Self::Pending | Self::Finished => None,
        }
    }
}

/// What a workload holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The pool whose accounts pay.
    pub pool: PoolId,
    /// Pods by node.
    pub nodes: BTreeMap<NodeId, u32>,
    /// All pods, those without a node included.
    pub pods: u32,
    /// Those of them, by node, that have been told to stop.
    pub going: BTreeMap<NodeId, u32>,
    /// All pods that have been told to stop, those without a node included.
    pub going_pods: u32,
    /// The others by node, if some have been told to stop.
    pub left: BTreeMap<NodeId, u32>,
}

impl Usage {
    /// The pods by node that have not been told to stop.
    #[must_use]
    pub fn staying(&self) -> &BTreeMap<NodeId, u32> {
        if self.going.is_empty() { &self.nodes } else { &self.left }
    }

    /// How many pods have not been told to stop, those without a node included.
    #[must_use]
    pub fn staying_pods(&self) -> u32 {
        self.pods.saturating_sub(self.going_pods)
    }
}

/// A workload with all that is known of it.
#[derive(Clone, Debug)]
pub struct WorkloadInfo {
    /// The workload as last seen.
    pub workload: Workload,
    /// Its team.
    pub team: TeamId,
    /// Where the books keep it.
    pub place: WorkloadIndex,
    /// What one pod needs, its slot included.
    pub need: Vector,
    /// What one pod demands of a node; alike for all that are. Nodes it has strayed from are left out.
    pub shape: Arc<PodShape>,
    /// The same at each of its sizes, the most wanted first; empty when there is no choice.
    pub sizes: Vec<SizedPod>,
    /// Where it stands.
    pub phase: Phase,
    /// What it holds.
    pub usage: Usage,
    /// Its object is gone; only its pods keep it here.
    pub removed: bool,
    /// Pods that exist and have not ended, by node.
    pub live: BTreeMap<Option<NodeId>, u32>,
    /// The queue whose limit it counts against.
    pub charged_queue: Name,
    /// Where pods of it could not be started, if that has happened.
    pub avoided_nodes: Option<Box<AvoidedNodes>>,
    /// It has waited for so long that it goes before the others of its team, and was let start for that.
    pub raised: bool,
}

impl WorkloadInfo {
    /// What all the pods it wants need together.
    #[must_use]
    pub fn total(&self) -> Vector {
        Vector::default().plus(&self.need, i64::from(self.workload.pods))
    }

    /// The fewest pods with which it may run: all, or the minimum of an elastic workload.
    #[must_use]
    pub fn least_pods(&self) -> u32 {
        let all = self.workload.pods;
        let min = self.workload.min_pods.filter(|_| self.workload.resizable);
        min.map_or(all, |min| min.clamp(1.min(all), all))
    }

    /// Brings what one pod needs in line with the size that it was granted, or waits for.
    pub fn settle_size(&mut self) {
        let size = match &self.phase {
            // What is left of it holds what it was granted.
            Phase::Finished | Phase::Failing(None) => return,
            phase => granted(&self.workload, phase.admission()),
        };
        if let Some(size) = self.sizes.get(size) {
            (self.shape, self.need) = (Arc::clone(&size.shape), size.need.clone());
        }
    }

    /// Whether it runs at a smaller size than it wants most.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        granted(&self.workload, self.phase.admission()) > 0
    }

    /// What one pod demands of a node and takes there at the size that it wants most.
    #[must_use]
    pub fn in_full(&self) -> (&PodShape, &Vector) {
        self.sizes.first().map_or((self.plain_shape(), &self.need), |size| (&size.shape, &size.need))
    }

    /// What one pod demands of a node, those that it has strayed from included where it has but one size.
    #[must_use]
    pub fn plain_shape(&self) -> &PodShape {
        if self.sizes.is_empty() { &self.workload.shape } else { &self.shape }
    }

    /// What it holds but for pods that have been told to stop, over all nodes: what there is to be had of it.
    #[must_use]
    pub fn keeps(&self) -> Vector {
        Vector::default().plus(&self.need, i64::from(self.usage.staying_pods()))
    }

    /// How many of the pods it keeps an elastic workload can lose and run on.
    #[must_use]
    pub fn extra_pods(&self) -> u32 {
        let elastic = self.workload.resizable && self.workload.min_pods.is_some();
        if elastic { self.usage.staying_pods().saturating_sub(self.least_pods()) } else { 0 }
    }

    /// What the pods that it must have need together.
    #[must_use]
    pub fn least_total(&self) -> Vector {
        Vector::default().plus(&self.need, i64::from(self.least_pods()))
    }

    /// Whether it runs by an admission to a node that is no more, or with fewer pods than it was granted or
    /// must have.
    #[must_use]
    pub fn has_lost_pods(&self, nodes: &NodeTable) -> bool {
        let Phase::Running(admission) = &self.phase else { return false };
        let granted =
            if self.workload.resizable { self.least_pods().max(admission.pods) } else { admission.pods };
        admission.nodes.values().sum::<u32>() < granted
            || admission.nodes.keys().any(|name| alive(nodes, name).is_none())
    }

    /// Whether it runs, or is about to, with fewer pods than it wants and may be given more.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        let elastic = self.workload.resizable && self.workload.min_pods.is_some();
        elastic
            && match &self.phase {
                Phase::Starting(admission) | Phase::Running(admission) => admission.pods < self.workload.pods,
                _ => false,
            }
    }

    /// What it holds, over all nodes.
    #[must_use]
    pub fn held(&self) -> Vector {
        Vector::default().plus(&self.need, i64::from(self.usage.pods))
    }

    /// How many pods of it exist and have not ended.
    #[must_use]
    pub fn pods(&self) -> u32 {
        self.live.values().sum()
    }
}

/// When a stop that nobody confirms is taken for done.
pub fn settle_time(info: &WorkloadInfo) -> Option<Time> {
    match info.phase {
        Phase::Leaving { since, stopped: false, .. } => Some(since.after(SETTLE)),
        _ => None,
    }
}

/// The phase after the object was seen in `state`: what the engine decided and the object does not
/// say yet stands until it does, or until the write is reported to have failed.
pub fn next_phase(phase: &Phase, state: &Observed) -> Phase {
    match (phase, state) {
        // What is being written stands also where an object of several has just gone.
        (Phase::Starting(admission), Observed::Queued | Observed::Unready(_)) => {
            Phase::Starting(admission.clone())
        }
        (Phase::Stopping(_), Observed::Admitted(admission)) => Phase::Stopping(admission.clone()),
        (Phase::Resizing { from, .. }, Observed::Admitted(admission)) if from == admission => phase.clone(),
        (Phase::Failing(None), Observed::Queued | Observed::Unready(_)) => phase.clone(),
        (Phase::Failing(Some(_)), Observed::Admitted(admission)) => Phase::Failing(Some(admission.clone())),
        (
            Phase::Leaving { admission, since, stopped: true },
            Observed::Leaving { admission: seen, since: s, .. },
        ) if admission == seen && since == s => phase.clone(),
        (_, Observed::OnHold | Observed::Unready(_)) => Phase::Hold,
        (_, Observed::Queued) => Phase::Pending,
        (_, Observed::Admitted(admission)) => Phase::Running(admission.clone()),
        (_, Observed::Leaving { admission, since, stopped }) => {
            Phase::Leaving { admission: admission.clone(), since: *since, stopped: *stopped }
        }
        (_, Observed::Finished) => Phase::Finished,
    }
}

/// What a workload holds: where its pods are, and for those it may still make, where they are to go.
pub fn usage_of(info: &WorkloadInfo, pool: PoolId, nodes: &NodeTable) -> Usage {
    let mut usage = Usage { pool, ..Usage::default() };
    for (node, pods) in &info.live {
        usage.pods += pods;
        if let Some(node) = node {
            usage.nodes.insert(*node, *pods);
        }
    }
    let wanted = |admission: &Admission| info.workload.pods.min(admission.pods);
    match &info.phase {
        Phase::Starting(admission)
        | Phase::Running(admission)
        | Phase::Stopping(admission)
        | Phase::Failing(Some(admission)) => {
            promise(&mut usage, admission, wanted(admission), nodes);
        }
        Phase::Resizing { from, to } => {
            promise(&mut usage, from, wanted(from), nodes);
            // Pods may move, so the new places are held besides the old ones.
            for (name, planned) in &to.nodes {
                let Some(node) = alive(nodes, name) else { continue };
                let there = usage.nodes.entry(node).or_default();
                *there = (*there).max(*planned);
            }
            usage.pods = usage.pods.max(usage.nodes.values().sum());
        }
        Phase::Leaving { admission, stopped: false, .. } => {
            promise(&mut usage, admission, admission.pods, nodes);
        }
        Phase::Leaving { .. } | Phase::Hold | Phase::Pending | Phase::Failing(None) | Phase::Finished => {}
    }
    match &info.phase {
        Phase::Starting(admission) | Phase::Running(admission) | Phase::Resizing { to: admission, .. } => {
            surplus_goes(&mut usage, admission, wanted(admission), nodes);
        }
        _ => {
            usage.going = usage.nodes.clone();
            usage.going_pods = usage.pods;
        }
    }
    let stays = |(node, pods): (&NodeId, &u32)| {
        let pods = pods.saturating_sub(usage.going.get(node).copied().unwrap_or(0));
        (pods > 0).then_some((*node, pods))
    };
    if !usage.going.is_empty() {
        usage.left = usage.nodes.iter().filter_map(stays).collect();
    }
    usage
}

/// Holds room for the pods of an admission that do not exist yet, where they are to go.
fn promise(usage: &mut Usage, admission: &Admission, promised: u32, nodes: &NodeTable) {
    usage.pods = usage.pods.max(promised);
    let mut missing = promised.saturating_sub(usage.nodes.values().sum());
    for (name, planned) in &admission.nodes {
        let Some(node) = alive(nodes, name) else { continue };
        let there = usage.nodes.get(&node).copied().unwrap_or(0);
        let more = planned.saturating_sub(there).min(missing);
        if more > 0 {
            usage.nodes.insert(node, there + more);
            missing -= more;
        }
    }
}

/// Of what is held beyond the admission, the pods where none is planned are those that end.
fn surplus_goes(usage: &mut Usage, admission: &Admission, promised: u32, nodes: &NodeTable) {
    usage.going_pods = usage.pods.saturating_sub(promised);
    let mut left = usage.going_pods;
    let planned: BTreeMap<NodeId, u32> = admission
        .nodes
        .iter()
        .filter_map(|(name, planned)| alive(nodes, name).map(|node| (node, *planned)))
        .collect();
    for (node, pods) in &usage.nodes {
        let more = pods.saturating_sub(planned.get(node).copied().unwrap_or(0)).min(left);
        if more > 0 {
            usage.going.insert(*node, more);
            left -= more;
        }
    }
}

fn alive(nodes: &NodeTable, name: &Name) -> Option<NodeId> {
    nodes.find(name).filter(|node| nodes.get(*node).node.is_some())
}

/// The name of the queue a workload is in; empty when there is none.
pub fn queue_name(quotas: &QuotaTree, info: &WorkloadInfo) -> Name {
    let queue = quotas.team(info.team).queue(info.workload.queue.as_ref());
    queue.map_or_else(|| "".into(), |queue| queue.name.clone())
}

/// Puts what a workload holds on its team's accounts, or with -1 takes it off.
pub fn charge_accounts(quotas: &mut QuotaTree, info: &WorkloadInfo, times: i64) {
    if info.usage.pods > 0 {
        let held = info.held();
        let going = Vector::default().plus(&info.need, i64::from(info.usage.going_pods));
        quotas.hold(info.usage.pool, info.team, &held, &going, times);
        quotas.hold_queue(info.team, &info.charged_queue, &held, times);
        if let Some(user) = quotas.user_of(info.team, info.workload.user.as_ref()) {
            quotas.users.hold(&user, info.usage.pool, &held.plus(&going, -1), times);
        }
    }
}

/// Puts what a workload holds on its nodes, in place of what it held on those of `before`.
pub fn charge_nodes(nodes: &mut NodeTable, info: &WorkloadInfo, before: &BTreeMap<NodeId, u32>) {
    let holder = Holder::Workload(info.workload.id.clone());
    for node in before.keys().filter(|node| !info.usage.nodes.contains_key(node)) {
        nodes.hold(*node, &holder, &info.need, 0, 0);
    }
    for (node, pods) in &info.usage.nodes {
        let going = info.usage.going.get(node).copied().unwrap_or(0);
        nodes.hold(*node, &holder, &info.need, *pods, going);
    }
}
