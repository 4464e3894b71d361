//! What can never start, by the sizes of nodes, quotas and queues alone: for the moment of a create, when no decision is
//! made. What these rule out no decision starts; the rest may still be unable to start, for its node selector for instance.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::amount::{Amount, ResourceList};
use crate::types::units::{together, with_unit};
use crate::types::{DEFAULT_POOL, Name, Node, Pool, Queue, Team, Workload};

/// The most sizes of nodes that are kept apart in a pool; further ones count as large as the largest of them in each
/// resource.
const MOST_SIZES: usize = 64;
/// The most teams on a path that are looked at.
const DEEPEST: usize = 64;

/// The sizes of the nodes, by pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    pools: BTreeMap<Name, Sizes>,
}

/// The nodes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sizes {
    /// How many nodes have each size.
    nodes: Vec<(ResourceList, u32)>,
    /// The keys of their labels.
    labels: BTreeSet<Name>,
}

impl Ceilings {
    /// The sizes of these nodes, closed ones included. `pools` are in the order of their names.
    pub fn new<'a>(pools: &[&Pool], nodes: impl Iterator<Item = &'a Node>) -> Self {
        let mut sizes: BTreeMap<Name, BTreeMap<&ResourceList, u32>> = BTreeMap::new();
        let mut found = Self::default();
        for node in nodes {
            let pool = pools.iter().find(|pool| pool.selects(node));
            let name = pool.map_or_else(|| DEFAULT_POOL.into(), |pool| pool.name.clone());
            *sizes.entry(name.clone()).or_default().entry(&node.allocatable).or_default() += 1;
            let labels = &mut found.pools.entry(name).or_default().labels;
            labels
                .extend(node.labels.keys().filter(|key| !labels.contains(*key)).cloned().collect::<Vec<_>>());
        }
        for (pool, sizes) in sizes {
            found.pools.entry(pool).or_default().nodes = few(sizes);
        }
        found
    }

    /// Why a new workload of this queue can never start while nodes, quotas and queues are as they are; `None` if that
    /// does not follow from their sizes. Cheap.
    #[must_use]
    pub fn never(&self, workload: &Workload, teams: &BTreeMap<Name, Team>) -> Option<String> {
        let pods = workload.min_pods.map_or(workload.pods, |fewest| fewest.min(workload.pods));
        // One that may start at several sizes may be smaller than it says.
        if pods == 0 || !workload.sizes.is_empty() {
            return None;
        }
        let asks = Asks { workload, pods };
        let team = teams.get(&workload.team)?;
        let queue = match &workload.queue {
            Some(name) => team.queues.iter().find(|queue| queue.name == *name),
            None => team.queues.first(),
        }?;
        if let Some(why) = asks.beyond_queue(queue) {
            return Some(why);
        }
        let default = [DEFAULT_POOL.into()];
        let pools = if workload.pools.is_empty() { &default[..] } else { &workload.pools };
        let mut first = None;
        for pool in pools {
            let why = self.in_pool(&asks, pool).or_else(|| asks.beyond_quota(pool, team, teams, queue))?;
            first = first.or(Some(why));
        }
        first
    }

    fn in_pool(&self, asks: &Asks<'_>, pool: &Name) -> Option<String> {
        let (requests, pods) = (&asks.workload.shape.requests, asks.pods);
        let Some(sizes) = self.pools.get(pool) else {
            return Some(format!("Can never start: no node is in pool {pool}."));
        };
        if let Some(label) =
            asks.workload.topology.required.as_ref().filter(|label| !sizes.labels.contains(*label))
        {
            return Some(format!("Can never start: no node of pool {pool} has the label {label}."));
        }
        let mut most = 0_u64;
        for (size, count) in &sizes.nodes {
            most = most.saturating_add(fits(requests, size).saturating_mul(u64::from(*count)));
        }
        if most == 0 {
            let offers = |resource: &Name| sizes.nodes.iter().any(|(size, _)| size.contains_key(resource));
            let missing = requests.iter().find(|(resource, each)| **each > Amount::ZERO && !offers(resource));
            if let Some((resource, _)) = missing {
                return Some(format!("Can never start: no node of pool {pool} offers {resource}."));
            }
            let needs = together(requests.iter().map(|(resource, each)| (&**resource, *each))).join(", ");
            let nodes = match sizes.nodes.iter().map(|(_, count)| u64::from(*count)).sum::<u64>() {
                1 => "the only node".to_owned(),
                several => format!("any of the {several} nodes"),
            };
            return Some(format!(
                "Can never start: a pod needs {needs}, more than {nodes} of pool {pool} has."
            ));
        }
        (most < u64::from(pods)).then(|| {
            format!("Can never start: the nodes of pool {pool} hold at most {most} of its {pods} pods.")
        })
    }
}

/// What a workload asks for.
struct Asks<'a> {
    workload: &'a Workload,
    /// How many pods it must have.
    pods: u32,
}

impl Asks<'_> {
    /// The first resource of a list of which it needs more, with that need and what is listed.
    fn beyond(&self, most: &ResourceList) -> Option<(Name, Amount, Amount)> {
        most.iter().find_map(|(resource, most)| {
            let needs = self.workload.shape.requests.get(resource).copied()? * self.pods;
            (needs > *most).then(|| (resource.clone(), needs, *most))
        })
    }

    fn beyond_queue(&self, queue: &Queue) -> Option<String> {
        let (resource, needs, limit) = self.beyond(&queue.limit)?;
        let (needs, limit) = (with_unit(&resource, needs), with_unit(&resource, limit));
        Some(format!("Can never start: it needs {needs}, and queue {} has a limit of {limit}.", queue.name))
    }

    /// A limit of its team or of one above it; and a guarantee, for work that may not borrow.
    fn beyond_quota(
        &self,
        pool: &Name,
        team: &Team,
        teams: &BTreeMap<Name, Team>,
        queue: &Queue,
    ) -> Option<String> {
        let borrows = queue.preemptible && (self.workload.resumable || self.workload.expendable);
        let path = std::iter::successors(Some(team), |team| teams.get(team.parent.as_ref()?));
        path.take(DEEPEST).find_map(|team| {
            let quota = team.quotas.get(pool)?;
            if let Some((resource, needs, limit)) = self.beyond(&quota.limit) {
                return Some(format!(
                    "Can never start: it needs {}, and team {} has a limit of {} in pool {pool}.",
                    with_unit(&resource, needs),
                    team.name,
                    with_unit(&resource, limit),
                ));
            }
            let (resource, needs, guaranteed) = self.beyond(&quota.guaranteed).filter(|_| !borrows)?;
            Some(format!(
                "Can never start: it is not preemptible and needs {}, and team {} is guaranteed {} in pool {pool}.",
                with_unit(&resource, needs),
                team.name,
                with_unit(&resource, guaranteed),
            ))
        })
    }
}

/// The sizes of nodes, at most [`MOST_SIZES`].
fn few(sizes: BTreeMap<&ResourceList, u32>) -> Vec<(ResourceList, u32)> {
    let mut few: Vec<(ResourceList, u32)> = Vec::new();
    for (size, count) in sizes {
        if few.len() < MOST_SIZES {
            few.push((size.clone(), count));
        } else if let Some((largest, counted)) = few.last_mut() {
            *counted = counted.saturating_add(count);
            for (resource, amount) in size {
                let most = largest.entry(resource.clone()).or_default();
                *most = (*most).max(*amount);
            }
        }
    }
    few
}

/// How many pods with these requests an empty node of this size holds.
fn fits(requests: &ResourceList, size: &ResourceList) -> u64 {
    let each = requests.iter().filter(|(_, each)| **each > Amount::ZERO).map(|(resource, each)| {
        let there = size.get(resource).copied().unwrap_or_default();
        u64::try_from(there.as_milli() / each.as_milli()).unwrap_or(0)
    });
    each.min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::types::{PodShape, Quota, Time};

    fn gpus(count: i64) -> ResourceList {
        [("nvidia.com/gpu".into(), Amount::units(count))].into()
    }

    fn node(name: &str, gpus_there: i64) -> Node {
        Node {
            name: name.into(),
            labels: [("zone".into(), "z".into())].into(),
            allocatable: gpus(gpus_there),
            taints: Vec::new(),
            schedulable: false,
            unreachable: None,
        }
    }

    fn team(name: &str, parent: Option<&str>, guaranteed: i64, limit: i64) -> (Name, Team) {
        let queue = |name: &str, preemptible, limit| Queue {
            name: name.into(),
            preemptible,
            limit,
            ..Queue::fallback()
        };
        let quota = Quota { guaranteed: gpus(guaranteed), limit: gpus(limit), ..Quota::default() };
        let team = Team {
            name: name.into(),
            parent: parent.map(Name::from),
            quotas: [(DEFAULT_POOL.into(), quota)].into(),
            weight: 1,
            queues: vec![
                queue("work", true, ResourceList::new()),
                queue("fixed", false, ResourceList::new()),
                queue("capped", true, gpus(2)),
            ],
            fair_users: false,
            budget: None,
        };
        (team.name.clone(), team)
    }

    fn job(queue: &str, pods: u32, each: i64) -> Workload {
        let shape = PodShape { requests: gpus(each), ..PodShape::default() };
        let job = Workload::job(&"a".into(), &"x".into(), pods, shape, Time(0));
        Workload { queue: Some(queue.into()), ..job }
    }

    #[test]
    fn what_is_larger_than_nodes_quotas_or_its_queue_never_starts() {
        let nodes: Vec<Node> = (0..4).map(|at| node(&format!("n{at}"), 10)).collect();
        let ceilings = Ceilings::new(&[], nodes.iter());
        let teams = BTreeMap::from([team("a", Some("all"), 8, 30), team("all", None, 16, 24)]);
        let never = |job: &Workload| ceilings.never(job, &teams);
        let mut far = job("work", 2, 1);
        far.topology.required = Some("rack".into());
        let mut other = job("work", 1, 0);
        Arc::make_mut(&mut other.shape).requests.insert("amd.com/gpu".into(), Amount::units(1));
        for (job, why) in [
            (job("work", 1, 11), "a pod needs 11 GPUs, more than any of the 4 nodes"),
            (other, "no node of pool default offers amd.com/gpu"),
            (job("work", 60, 1), "hold at most 40 of its 60 pods"),
            (job("work", 31, 1), "it needs 31 GPUs, and team a has a limit of 30 GPUs"),
            (job("work", 25, 1), "team all has a limit of 24"),
            (job("capped", 1, 3), "queue capped has a limit of 2"),
            (job("fixed", 9, 1), "not preemptible and needs 9 GPUs, and team a is guaranteed 8"),
            (far.clone(), "no node of pool default has the label rack"),
            (Workload { pools: vec!["gone".into()], ..job("work", 1, 1) }, "no node is in pool gone"),
        ] {
            let found = never(&job).unwrap_or_default();
            assert!(found.starts_with("Can never start: ") && found.contains(why), "{found}");
        }
        far.topology.required = Some("zone".into());
        for job in [
            job("work", 24, 1),
            job("work", 2, 10),
            job("fixed", 8, 1),
            job("capped", 2, 1),
            job("work", 0, 100),
            far,
            Workload { min_pods: Some(4), ..job("work", 60, 1) },
            Workload { pools: vec!["gone".into(), DEFAULT_POOL.into()], ..job("work", 1, 1) },
            Workload { team: "unknown".into(), ..job("work", 1, 100) },
        ] {
            assert_eq!(never(&job), None, "{job:?}");
        }
    }

    #[test]
    fn many_sizes_of_nodes_are_counted_as_larger_ones() {
        let nodes: Vec<Node> = (0..200).map(|at| node(&format!("n{at}"), at)).collect();
        let ceilings = Ceilings::new(&[], nodes.iter());
        assert_eq!(ceilings.pools["default"].nodes.len(), MOST_SIZES);
        let (_, lone) = team("a", None, 1, 100_000);
        let teams = BTreeMap::from([("a".into(), lone)]);
        assert_eq!(ceilings.never(&job("work", 1, 199), &teams), None);
        assert!(ceilings.never(&job("work", 1, 200), &teams).is_some());
    }
}
