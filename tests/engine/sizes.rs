//! Workloads that accept several sizes: the size they start with, and the workloads that keep the full size.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::replay::{Happening, Life, Run};
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    Admission, DEFAULT_POOL, Event, Name, Node, Observed, PodShape, Queue, Quota, Size, Team, Time, Workload,
    WorkloadId,
};

use super::world::GPU;

fn gpus(milli: i64) -> ResourceList {
    [(Name::from(GPU), Amount::milli(milli))].into()
}

fn node(number: usize, count: i64) -> Event {
    let offers = [(Name::from(GPU), Amount::units(count)), ("pods".into(), Amount::units(110))];
    Event::NodeApplied(Node {
        name: format!("n{number}").into(),
        labels: BTreeMap::new(),
        allocatable: offers.into(),
        taints: Vec::new(),
        schedulable: true,
        unreachable: None,
    })
}

fn queue(name: &str, priority: i32, preemptible: bool) -> Queue {
    Queue { name: name.into(), priority, preemptible, ..Queue::fallback() }
}

/// A team with so many guaranteed GPUs and three queues: `train`, `first` (priority 10) and `stay` (not
/// preemptible).
fn team(name: &str, guaranteed: i64) -> Event {
    let quota = Quota { guaranteed: gpus(guaranteed * 1000), ..Quota::default() };
    Event::TeamApplied(Team {
        name: name.into(),
        parent: None,
        quotas: [(DEFAULT_POOL.into(), quota)].into(),
        weight: 1,
        queues: vec![queue("train", 0, true), queue("first", 10, true), queue("stay", 0, false)],
        fair_users: false,
        budget: None,
    })
}

/// A job of one pod that accepts any of these sizes, in thousandths of a GPU, the largest first.
fn job(team: &str, name: &str, milli: &[i64]) -> Workload {
    let size = |milli: &i64| Size { share: Amount::milli(*milli), requests: gpus(*milli) };
    let shape = PodShape { requests: gpus(milli[0]), ..PodShape::default() };
    let sizes = if milli.len() > 1 { milli.iter().map(size).collect() } else { Vec::new() };
    Workload { sizes, ..Workload::job(&team.into(), &name.into(), 1, shape, Time(0)) }
}

struct Cluster(Run);

impl Cluster {
    fn new(events: impl IntoIterator<Item = Event>) -> Self {
        let mut engine = Engine::new();
        events.into_iter().for_each(|event| engine.apply(event, Time(0)));
        Self(Run::new(engine, Time(0)))
    }

    /// Submits a job a second later and carries out every decision at once; returns all that happened.
    fn submit(&mut self, job: Workload, run: Option<Duration>) -> Vec<Happening> {
        let now = self.0.now().after(Duration::from_secs(1));
        let mut happened = Vec::new();
        self.0
            .reach(now, &mut |_, happening| happened.push(happening.clone()))
            .expect("decisions come to rest");
        self.0.submit(Workload { submitted: now, ..job }, Life { run, ..Life::default() });
        self.0.settle(&mut |_, happening| happened.push(happening.clone())).expect("decisions come to rest");
        happened
    }

    fn wait(&mut self, seconds: u64) {
        let until = self.0.now().after(Duration::from_secs(seconds));
        self.0.advance(until, &mut |_, _| {}).expect("decisions come to rest");
    }

    fn admission(&self, id: &str) -> Option<Admission> {
        match &self.0.workload(&WorkloadId(id.into()))?.state {
            Observed::Admitted(admission) => Some(admission.clone()),
            _ => None,
        }
    }

    /// The size of a running job in thousandths.
    fn granted(&self, id: &str) -> Option<i64> {
        let admission = self.admission(id)?;
        let job = self.0.workload(&WorkloadId(id.into()))?;
        Some(job.requests_at(admission.share)[GPU].as_milli())
    }

    /// The free capacity of each node, in thousandths of a GPU.
    fn free(&self) -> Vec<i64> {
        let free = |list: &ResourceList| list.get(GPU).map_or(0, |amount| amount.as_milli());
        self.0.engine().nodes().iter().map(|node| free(&node.free)).collect()
    }
}

#[test]
fn the_first_size_that_fits_is_taken() {
    let mut cluster = Cluster::new([node(0, 2), team("a", 2)]);
    cluster.submit(job("a", "whole", &[1000, 700, 400]), None);
    assert_eq!(cluster.granted("a/whole"), Some(1000), "an idle cluster grants the largest size");
    cluster.submit(job("a", "half", &[500]), None);
    let happened = cluster.submit(job("a", "less", &[1000, 700, 400]), None);
    assert_eq!(cluster.granted("a/less"), Some(400));
    let message = happened.iter().find_map(|happening| match happening {
        Happening::Admitted { message, .. } => Some(message.clone()),
        _ => None,
    });
    let message = message.expect("an admission");
    assert!(message.contains("0.4 of a GPU instead of 1"), "{message}");
    let verdict = cluster.0.engine().verdict(&WorkloadId("a/less".into())).expect("a verdict").message;
    assert!(verdict.contains("0.4 of a GPU instead of 1"), "{verdict}");
    assert_eq!(cluster.free(), [100]);
    cluster.submit(job("a", "tenth", &[100]), None);
    assert_eq!(cluster.granted("a/tenth"), Some(100), "usage is the granted size");
}

#[test]
fn a_limit_reduces_the_size_too() {
    let limited = |limit: i64| {
        let Event::TeamApplied(mut team) = team("a", 2) else { unreachable!("it is a team") };
        team.quotas.get_mut(DEFAULT_POOL).expect("its quota").limit = gpus(limit);
        Event::TeamApplied(team)
    };
    let mut cluster = Cluster::new([node(0, 2), limited(1500)]);
    cluster.submit(job("a", "first", &[1000]), None);
    cluster.submit(job("a", "second", &[1000, 400]), None);
    assert_eq!(cluster.granted("a/second"), Some(400));
}

#[test]
fn jobs_above_the_usual_priority_keep_the_full_size() {
    let load = [node(0, 1), team("a", 1)];
    let choice = || job("a", "choosy", &[1000, 400]);
    for (why, high, expected) in [
        ("a job of usual priority accepts less", choice(), Some(400)),
        ("a job that is not preemptible waits", Workload { queue: Some("stay".into()), ..choice() }, None),
        (
            "a job of a queue of higher priority waits",
            Workload { queue: Some("first".into()), ..choice() },
            None,
        ),
        ("a job of a higher class waits", Workload { priority: 5, ..choice() }, None),
        ("a job of a lower class accepts less", Workload { priority: -5, ..choice() }, Some(400)),
    ] {
        let mut cluster = Cluster::new(load.clone());
        // The load is not preemptible, so it keeps its capacity.
        let load = Workload { queue: Some("stay".into()), ..job("a", "load", &[500]) };
        cluster.submit(load, Some(Duration::from_secs(60)));
        cluster.submit(high, None);
        assert_eq!(cluster.granted("a/choosy"), expected, "{why}");
        cluster.wait(100);
        assert_eq!(
            cluster.granted("a/choosy"),
            expected.or(Some(1000)),
            "{why}, and the full size is granted in the end"
        );
    }
}

#[test]
fn after_an_eviction_the_size_is_chosen_again() {
    let mut cluster = Cluster::new([node(0, 2), team("a", 1), team("b", 1)]);
    cluster.submit(job("a", "own", &[1000]), Some(Duration::from_secs(60)));
    cluster.submit(job("b", "small", &[400]), Some(Duration::from_secs(5)));
    cluster.submit(job("a", "borrows", &[1000, 500]), None);
    assert_eq!(cluster.granted("a/borrows"), Some(500));
    cluster.wait(10);
    assert_eq!(cluster.granted("a/borrows"), Some(500), "a running job keeps its size");
    let happened = cluster.submit(job("b", "owner", &[1000]), None);
    let borrower = WorkloadId("a/borrows".into());
    let evicted =
        |happening: &Happening| matches!(happening, Happening::Evicted { id, .. } if *id == borrower);
    assert!(happened.iter().any(evicted), "{happened:?}");
    assert_eq!(cluster.granted("a/borrows"), None);
    cluster.wait(100);
    assert_eq!(cluster.granted("a/borrows"), Some(1000));
}

#[test]
fn no_job_is_evicted_for_the_full_size_where_a_smaller_one_fits() {
    let mut cluster = Cluster::new([node(0, 2), team("a", 0), team("b", 2)]);
    cluster.submit(job("a", "borrows", &[1000]), None);
    cluster.submit(job("b", "half", &[500]), None);
    cluster.submit(job("b", "guaranteed", &[1000, 500]), None);
    assert_eq!((cluster.granted("a/borrows"), cluster.granted("b/guaranteed")), (Some(1000), Some(500)));
    // Where no size fits, a job is evicted for the full size.
    cluster.submit(job("b", "next", &[1000, 500]), None);
    assert_eq!((cluster.granted("a/borrows"), cluster.granted("b/next")), (None, Some(1000)));
}

/// The nodes' free capacity agrees with the sizes of the jobs that run on them, and no node is overfilled.
fn usage_is_the_granted_size(cluster: &Cluster, offered: &[i64]) -> Result<(), TestCaseError> {
    let free = cluster.free();
    let mut granted = vec![0_i64; offered.len()];
    for workload in cluster.0.engine().workloads() {
        let id = &workload.id.0;
        let (Some(size), Some(admission)) = (cluster.granted(id), cluster.admission(id)) else { continue };
        for (node, pods) in &admission.nodes {
            let number: usize = node[1..].parse().expect("a number");
            granted[number] += size * i64::from(*pods);
        }
    }
    let used: Vec<i64> = free.iter().zip(offered).map(|(free, offered)| offered - free).collect();
    prop_assert_eq!(&used, &granted);
    prop_assert!(free.iter().all(|free| *free >= 0));
    Ok(())
}

/// No job waits while a node fits its smallest size. A job above the usual priority has one size only; one
/// that is not preemptible must fit its team's guarantee besides, and is not judged.
fn no_job_waits_while_its_smallest_size_fits(cluster: &Cluster) -> Result<(), TestCaseError> {
    let waits = |workload: &&Arc<Workload>| cluster.granted(&workload.id.0).is_none();
    for workload in cluster.0.engine().workloads().filter(waits) {
        let job = cluster.0.workload(&workload.id).expect("a waiting job");
        let queue = job.queue.as_deref();
        let smallest = job.sizes.last().filter(|_| queue == Some("train"));
        let smallest = smallest.map_or(&job.shape.requests, |size| &size.requests)[GPU].as_milli();
        prop_assert!(
            queue == Some("stay") || cluster.free().iter().all(|free| *free < smallest),
            "{} waits for {} with {:?} free",
            workload.id,
            smallest,
            cluster.free()
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Sizes are whole GPUs, so free capacity is one number a node.
    #[test]
    fn law_6_a_smaller_size_is_granted_only_where_no_larger_one_fits(
        nodes in prop::collection::vec(1_i64..6, 1..4),
        jobs in prop::collection::vec(
            (prop::collection::btree_set(1_i64..6, 1..4), 0_usize..3, prop::option::of(5_u64..60)),
            1..25,
        ),
    ) {
        let teams = [team("a", 4), team("b", 2)];
        let offered: Vec<i64> = nodes.iter().map(|count| count * 1000).collect();
        let nodes = nodes.iter().enumerate().map(|(number, count)| node(number, *count));
        let mut cluster = Cluster::new(nodes.chain(teams));
        for (number, (sizes, queue, run)) in jobs.into_iter().enumerate() {
            let sizes: Vec<i64> = sizes.into_iter().rev().map(|count| count * 1000).collect();
            let queue = ["train", "first", "stay"][queue];
            let (team, name) = (["a", "b"][number % 2], format!("j{number}"));
            let id = format!("{team}/{name}");
            let free_before = cluster.free();
            let job = Workload { queue: Some(queue.into()), ..job(team, &name, &sizes) };

            let happened = cluster.submit(job, run.map(Duration::from_secs));

            let is_only_event = happened.len() == 1 && *happened[0].workload().0 == *id;
            let is_reserved = !cluster.0.engine().reservations().is_empty();
            if let Some(granted) = cluster.granted(&id).filter(|_| is_only_event) {
                prop_assert!(queue == "train" || granted == sizes[0], "{id} of {queue} keeps the full size");
                // Reserved capacity may be free and still not fit a larger size.
                let larger_fits = |size: &i64| *size > granted && free_before.iter().any(|free| free >= size);
                prop_assert!(
                    is_reserved || !sizes.iter().any(larger_fits),
                    "{id} was granted {granted} of {sizes:?} with {free_before:?} free"
                );
            }
            usage_is_the_granted_size(&cluster, &offered)?;
            if !is_reserved {
                no_job_waits_while_its_smallest_size_fits(&cluster)?;
            }
        }
    }
}
