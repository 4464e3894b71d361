//! Several sizes that a workload would accept: which it gets, when, and who keeps the full one.

use std::collections::BTreeMap;
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
    })
}

fn queue(name: &str, priority: i32, preemptible: bool) -> Queue {
    Queue { name: name.into(), priority, preemptible, ..Queue::fallback() }
}

/// A team that owns so many GPUs, with a queue for ordinary work, one that goes first, and one for what stays.
fn team(name: &str, guaranteed: i64) -> Event {
    let quota = Quota { guaranteed: gpus(guaranteed * 1000), ..Quota::default() };
    Event::TeamApplied(Team {
        name: name.into(),
        parent: None,
        quotas: [(DEFAULT_POOL.into(), quota)].into(),
        weight: 1,
        queues: vec![queue("train", 0, true), queue("first", 10, true), queue("stay", 0, false)],
        fair_users: false,
    })
}

/// A Job of one pod that would make do with any of these, in thousandths of a GPU.
fn job(team: &str, name: &str, milli: &[i64]) -> Workload {
    let size = |milli: &i64| Size { share: Amount::milli(*milli), requests: gpus(*milli) };
    let shape = PodShape { requests: gpus(milli[0]), ..PodShape::default() };
    let sizes = if milli.len() > 1 { milli.iter().map(size).collect() } else { Vec::new() };
    Workload { sizes, ..Workload::job(&team.into(), &name.into(), 1, shape, Time(0)) }
}

struct Yard(Run);

impl Yard {
    fn new(events: impl IntoIterator<Item = Event>) -> Self {
        let mut engine = Engine::new();
        events.into_iter().for_each(|event| engine.apply(event, Time(0)));
        Self(Run::new(engine, Time(0)))
    }

    /// Submits a Job a second later and lets everything happen that follows at once.
    fn submit(&mut self, job: Workload, run: Option<Duration>) -> Vec<Happening> {
        let now = self.0.now().after(Duration::from_secs(1));
        let mut told = Vec::new();
        self.0.reach(now, &mut |_, happening| told.push(happening.clone())).expect("comes to rest");
        self.0.submit(Workload { submitted: now, ..job }, Life { run, ..Life::default() });
        self.0.settle(&mut |_, happening| told.push(happening.clone())).expect("comes to rest");
        told
    }

    fn wait(&mut self, seconds: u64) {
        let until = self.0.now().after(Duration::from_secs(seconds));
        self.0.advance(until, &mut |_, _| {}).expect("comes to rest");
    }

    fn admission(&self, id: &str) -> Option<Admission> {
        match &self.0.workload(&WorkloadId(id.into()))?.state {
            Observed::Admitted(admission) => Some(admission.clone()),
            _ => None,
        }
    }

    /// How much a Job was granted, in thousandths; nothing while it waits.
    fn granted(&self, id: &str) -> Option<i64> {
        let admission = self.admission(id)?;
        let job = self.0.workload(&WorkloadId(id.into()))?;
        Some(job.requests_at(admission.share)[GPU].as_milli())
    }

    /// What is free on each node, in thousandths of a GPU.
    fn free(&self) -> Vec<i64> {
        let free = |list: &ResourceList| list.get(GPU).map_or(0, |amount| amount.as_milli());
        self.0.engine().nodes().iter().map(|node| free(&node.free)).collect()
    }
}

#[test]
fn the_first_size_that_fits_is_taken() {
    let mut yard = Yard::new([node(0, 2), team("a", 2)]);
    yard.submit(job("a", "whole", &[1000, 700, 400]), None);
    assert_eq!(yard.granted("a/whole"), Some(1000), "without load it gets what it wants most");
    yard.submit(job("a", "half", &[500]), None);
    let told = yard.submit(job("a", "less", &[1000, 700, 400]), None);
    assert_eq!(yard.granted("a/less"), Some(400));
    let message = told.iter().find_map(|happening| match happening {
        Happening::Admitted { message, .. } => Some(message.clone()),
        _ => None,
    });
    let message = message.expect("it was admitted");
    assert!(message.contains("0.4 of a GPU instead of 1"), "{message}");
    let verdict = yard.0.engine().verdict(&WorkloadId("a/less".into())).expect("it is known").message;
    assert!(verdict.contains("0.4 of a GPU instead of 1"), "{verdict}");
    assert_eq!(yard.free(), [100]);
    yard.submit(job("a", "tenth", &[100]), None);
    assert_eq!(yard.granted("a/tenth"), Some(100), "only what was granted is held");
}

#[test]
fn a_limit_is_load_too() {
    let limited = |limit: i64| {
        let Event::TeamApplied(mut team) = team("a", 2) else { unreachable!("it is a team") };
        team.quotas.get_mut(DEFAULT_POOL).expect("its quota").limit = gpus(limit);
        Event::TeamApplied(team)
    };
    let mut yard = Yard::new([node(0, 2), limited(1500)]);
    yard.submit(job("a", "first", &[1000]), None);
    yard.submit(job("a", "second", &[1000, 400]), None);
    assert_eq!(yard.granted("a/second"), Some(400));
}

#[test]
fn high_classes_keep_the_full_size() {
    let load = [node(0, 1), team("a", 1)];
    let choice = || job("a", "choosy", &[1000, 400]);
    for (why, high, expected) in [
        ("ordinary work makes do with less", choice(), Some(400)),
        ("who may not be evicted waits", Workload { queue: Some("stay".into()), ..choice() }, None),
        ("who goes first waits", Workload { queue: Some("first".into()), ..choice() }, None),
        ("so does who has a class", Workload { priority: 5, ..choice() }, None),
        ("a class below the usual is not high", Workload { priority: -5, ..choice() }, Some(400)),
    ] {
        let mut yard = Yard::new(load.clone());
        // It may not be evicted, so nobody can take its place.
        let load = Workload { queue: Some("stay".into()), ..job("a", "load", &[500]) };
        yard.submit(load, Some(Duration::from_secs(60)));
        yard.submit(high, None);
        assert_eq!(yard.granted("a/choosy"), expected, "{why}");
        yard.wait(100);
        assert_eq!(yard.granted("a/choosy"), expected.or(Some(1000)), "{why}, and gets it in the end");
    }
}

#[test]
fn after_an_eviction_the_size_is_chosen_anew() {
    let mut yard = Yard::new([node(0, 2), team("a", 1), team("b", 1)]);
    yard.submit(job("a", "own", &[1000]), Some(Duration::from_secs(60)));
    yard.submit(job("b", "small", &[400]), Some(Duration::from_secs(5)));
    yard.submit(job("a", "borrows", &[1000, 500]), None);
    assert_eq!(yard.granted("a/borrows"), Some(500));
    yard.wait(10);
    assert_eq!(yard.granted("a/borrows"), Some(500), "what runs stays as it is");
    let told = yard.submit(job("b", "owner", &[1000]), None);
    let evicted = |happening: &Happening| matches!(happening, Happening::Evicted { id, .. } if *id == WorkloadId("a/borrows".into()));
    assert!(told.iter().any(evicted), "{told:?}");
    assert_eq!(yard.granted("a/borrows"), None);
    yard.wait(100);
    assert_eq!(yard.granted("a/borrows"), Some(1000));
}

#[test]
fn nobody_is_evicted_for_less_than_the_full_size_where_less_fits() {
    let mut yard = Yard::new([node(0, 2), team("a", 0), team("b", 2)]);
    yard.submit(job("a", "borrows", &[1000]), None);
    yard.submit(job("b", "half", &[500]), None);
    yard.submit(job("b", "owed", &[1000, 500]), None);
    assert_eq!((yard.granted("a/borrows"), yard.granted("b/owed")), (Some(1000), Some(500)));
    // Where nothing fits, what is made room for is the full size.
    yard.submit(job("b", "next", &[1000, 500]), None);
    assert_eq!((yard.granted("a/borrows"), yard.granted("b/next")), (None, Some(1000)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// At every admission no larger size would have fitted; at rest nobody who may accept less waits while its
    /// least fits; and a node never holds more than it has. Sizes are whole GPUs, so that room is one number.
    #[test]
    fn less_is_taken_exactly_under_load(
        nodes in prop::collection::vec(1_i64..6, 1..4),
        jobs in prop::collection::vec(
            (prop::collection::btree_set(1_i64..6, 1..4), 0_usize..3, prop::option::of(5_u64..60)),
            1..25,
        ),
    ) {
        let teams = [team("a", 4), team("b", 2)];
        let offered: Vec<i64> = nodes.iter().map(|count| count * 1000).collect();
        let nodes = nodes.iter().enumerate().map(|(number, count)| node(number, *count));
        let mut yard = Yard::new(nodes.chain(teams));
        for (number, (sizes, queue, run)) in jobs.into_iter().enumerate() {
            let sizes: Vec<i64> = sizes.into_iter().rev().map(|count| count * 1000).collect();
            let queue = ["train", "first", "stay"][queue];
            let team = ["a", "b"][number % 2];
            let name = format!("j{number}");
            let before = yard.free();
            let job = Workload { queue: Some(queue.into()), ..job(team, &name, &sizes) };
            let told = yard.submit(job, run.map(Duration::from_secs));
            let id = format!("{team}/{name}");
            let alone = told.iter().all(|happening| *happening.workload() == WorkloadId(id.as_str().into()));
            if let Some(granted) = yard.granted(&id).filter(|_| alone && told.len() == 1) {
                if queue != "train" {
                    prop_assert_eq!(granted, sizes[0], "high classes keep the full size");
                }
                for larger in sizes.iter().filter(|size| **size > granted) {
                    // Nobody has a reservation whose room might be kept while all of this is idle.
                    prop_assert!(
                        !yard.0.engine().reservations().is_empty()
                            || before.iter().all(|free| free < larger),
                        "{} was granted {} of {:?} with {:?} free", id, granted, sizes, before
                    );
                }
            }
            let held: Vec<i64> = yard.free().iter().zip(&offered).map(|(free, all)| all - free).collect();
            let mut counted = vec![0_i64; offered.len()];
            let ids: Vec<WorkloadId> =
                yard.0.engine().workloads().map(|workload| workload.id.clone()).collect();
            let mut waiting = Vec::new();
            for id in &ids {
                match (yard.granted(&id.0), yard.admission(&id.0)) {
                    (Some(granted), Some(admission)) => {
                        for (node, pods) in &admission.nodes {
                            let number: usize = node[1..].parse().expect("a number");
                            counted[number] += granted * i64::from(*pods);
                        }
                    }
                    _ => waiting.push(id),
                }
            }
            prop_assert_eq!(&held, &counted);
            prop_assert!(yard.free().iter().all(|free| *free >= 0));
            if yard.0.engine().reservations().is_empty() {
                for id in waiting {
                    let job = yard.0.workload(id).expect("it waits");
                    let high = job.queue.as_deref() != Some("train");
                    let least = job.sizes.last().filter(|_| !high);
                    let least = least.map_or(&job.shape.requests, |size| &size.requests)[GPU].as_milli();
                    // Who may not be evicted must fit its team's guarantee besides.
                    let stays = job.queue.as_deref() == Some("stay");
                    prop_assert!(
                        stays || yard.free().iter().all(|free| *free < least),
                        "{} waits for {} with {:?} free", id, least, yard.free()
                    );
                }
            }
        }
    }
}
