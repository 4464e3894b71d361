//! Hostile objects as the watches bring them, through the cache into the engine; what it decides is carried out.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Resource;
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice::api::node_pool::NodePool;
use sluice::api::priority::Class;
use sluice::api::record::{Eviction, Record, timestamp};
use sluice::api::team::Team;
use sluice::cluster::dra::{News, key};
use sluice::cluster::guarded::Guarded;
use sluice::cluster::mirror::{Change as Message, Mirror};
use sluice::cluster::place;
use sluice::cluster::reduce::{claims, node, team, uid};
use sluice::cluster::table::{Flaw, Seen};
use sluice::cluster::target::custom::custom;
use sluice::cluster::target::job::job;
use sluice::cluster::target::pod::pod;
use sluice::cluster::target::{Failure, Grant, Managed, Operation};
use sluice::cluster::wire;
use sluice::engine::Engine;
use sluice::engine::types::amount::{Amount, ResourceList};
use sluice::engine::types::{Action, Event, Name, Time, WorkloadId, WorkloadKind};
use sluice::kinds::Kinds;

use super::mangle::{Change, changes, mangle, text};
use super::objects::{self, Sample};

/// The start of every case: 2026-11-21T08:00:00Z.
const START: Time = Time(1_795_248_000_000);
/// Plans in a row, while one leaves work for the next.
const PLANS: usize = 8;

/// One message, and how long after the one before.
#[derive(Clone, Debug)]
struct Step {
    sample: usize,
    /// Which of the few identities it has.
    identity: u8,
    changes: Vec<Change>,
    what: What,
    /// Milliseconds, as a power of two.
    after: u8,
    plan: bool,
    /// Whether the API server refuses the writes that follow.
    refused: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Put,
    Delete,
    /// The answer to a write, not a message of the watch.
    Own,
    ListBegins,
    ListEnds,
}

/// A sequence of messages.
#[derive(Clone, Debug)]
pub struct Case {
    steps: Vec<Step>,
    pods_first: bool,
}

/// Any sequence.
pub fn cases() -> impl Strategy<Value = Case> {
    let samples = objects::all().len();
    let what = prop_oneof![
        14 => Just(What::Put), 2 => Just(What::Delete), 1 => Just(What::Own), 1 => Just(What::ListBegins), 1 => Just(What::ListEnds),
    ];
    let sample = prop_oneof![4 => objects::REVIEWED, 1 => 0..samples];
    let bits = (0..3_u8, 0..33_u8, prop::bool::weighted(0.6), prop::bool::weighted(0.2));
    let step = (sample, changes(4), what, bits).prop_map(
        |(sample, changes, what, (identity, after, plan, refused))| Step {
            sample,
            identity,
            changes,
            what,
            after,
            plan,
            refused,
        },
    );
    (prop::collection::vec(step, 1..14), any::<bool>())
        .prop_map(|(steps, pods_first)| Case { steps, pods_first })
}

/// The objects that are there, the cache and the engine.
struct World {
    samples: Vec<Sample>,
    kinds: Kinds,
    mirror: Mirror,
    engine: Engine,
    now: Time,
    version: u64,
    /// The objects, by sample of their kind and key of their watch.
    live: BTreeMap<(usize, Name), Value>,
}

/// Sends the messages, and checks that nothing remains when the workloads are gone.
pub fn check(case: &Case) -> TestCaseResult {
    let mut world = World::new();
    for step in &case.steps {
        world.step(step)?;
    }
    world.drain(case.pods_first)
}

impl World {
    fn new() -> Self {
        let kinds = Kinds::default();
        let mut world = Self {
            samples: objects::all(),
            mirror: Mirror::new(kinds.clone(), sluice::directory::Places::default()),
            kinds,
            engine: Engine::new(),
            now: START,
            version: 10,
            live: BTreeMap::new(),
        };
        world.settle();
        world
    }

    /// The objects that administrators make, as they should be.
    fn settle(&mut self) {
        let team = |name: &str, gpus: &str| objects::team(name, &json!({"nvidia.com/gpu": gpus}));
        let mut research = team("research", "8");
        research["spec"] = json!({"quotas": [{"guaranteed": {"nvidia.com/gpu": "8", "cpu": "100"}}]});
        let good = [
            ("Namespace", objects::namespace()),
            ("Team", research),
            ("Team", team("vision", "3")),
            ("Team", team("speech", "3")),
            ("PriorityClass", objects::class()),
            ("Node", objects::node("n0")),
            ("Node", objects::node("n1")),
        ];
        for (kind, object) in good {
            let sample =
                self.samples.iter().position(|sample| sample.kind == kind).expect("a sample of the kind");
            self.put(sample, object, false);
        }
    }

    fn step(&mut self, step: &Step) -> TestCaseResult {
        self.now = Time(self.now.0 + (1_i64 << step.after));
        match step.what {
            What::Put | What::Own => {
                let mut object = self.samples[step.sample].object.clone();
                if step.identity > 0 {
                    let name = format!(
                        "{}-{}",
                        object["metadata"]["name"].as_str().unwrap_or_default(),
                        step.identity
                    );
                    object["metadata"]["name"] = json!(name);
                    object["metadata"]["uid"] = json!(name);
                }
                self.version += 1;
                object["metadata"]["resourceVersion"] = json!(self.version.to_string());
                mangle(&mut object, &step.changes);
                self.put(step.sample, object, matches!(step.what, What::Own));
            }
            What::Delete => {
                let mut of_kind = self.live.keys().filter(|(sample, _)| *sample == step.sample);
                if let Some(key) = of_kind.next_back().cloned() {
                    self.delete(&key);
                }
            }
            What::ListBegins => self.send(step.sample, Seen::ListBegins),
            What::ListEnds => {
                // What the list did not have is deleted; it comes back with the next one.
                self.send(step.sample, Seen::ListEnds);
            }
        }
        if step.plan {
            self.plan(step.refused)?;
        }
        self.look();
        Ok(())
    }

    /// Sees an object; one that has no readable metadata is stored by no API server.
    fn put(&mut self, sample: usize, object: Value, own: bool) {
        let text = text(&object);
        let Some((key, message)) = self.read(sample, &text) else { return };
        let of_kind = self.first_of_kind(sample);
        self.live.insert((of_kind, key), object);
        let events = match message {
            Message::Job(Seen::Object(_, seen)) if own => self.mirror.take_own_job(seen),
            Message::Pod(Seen::Object(_, seen)) if own => self.mirror.take_own_pod(seen),
            message => self.mirror.take(message),
        };
        self.apply(events);
    }

    fn delete(&mut self, key: &(usize, Name)) {
        self.live.remove(key);
        self.send(key.0, Seen::Deleted(key.1.clone()));
    }

    /// The first sample of a kind stands for the kind.
    fn first_of_kind(&self, sample: usize) -> usize {
        let Sample { group, kind, .. } = self.samples[sample];
        self.samples.iter().position(|other| (other.group, other.kind) == (group, kind)).unwrap_or(sample)
    }

    fn apply(&mut self, events: Vec<Event>) {
        for event in events {
            self.engine.apply(event, self.now);
        }
    }

    /// Sends a message that has no object.
    fn send(&mut self, sample: usize, seen: Seen<()>) {
        fn of<T>(seen: Seen<()>) -> Seen<T> {
            match seen {
                Seen::ListBegins => Seen::ListBegins,
                Seen::Deleted(key) => Seen::Deleted(key),
                _ => Seen::ListEnds,
            }
        }
        let message = match self.samples[sample].kind {
            "Job" => Message::Job(of(seen)),
            "Pod" => Message::Pod(of(seen)),
            "Node" => Message::Node(of(seen)),
            "Namespace" => Message::Namespace(of(seen)),
            "Team" => Message::Team(of(seen)),
            "NodePool" => Message::Pool(of(seen)),
            "PriorityClass" => Message::Class(of(seen)),
            "ResourceSlice" => Message::Devices(News::Slice(of(seen))),
            "DeviceClass" => Message::Devices(News::Class(of(seen))),
            "ResourceClaim" => Message::Devices(News::Claim(of(seen))),
            "ResourceClaimTemplate" => Message::Devices(News::Template(of(seen))),
            _ => Message::Custom(self.place(sample), of(seen)),
        };
        let events = self.mirror.take(message);
        self.apply(events);
    }

    fn place(&self, sample: usize) -> usize {
        let Sample { group, kind, .. } = self.samples[sample];
        let watched = self.kinds.watched().iter();
        let found =
            watched.map(|watched| &watched.resource).position(|it| it.kind == kind && it.group == group);
        found.expect("the kind is watched")
    }

    /// Reads an object as its watch does.
    fn read(&self, sample: usize, text: &str) -> Option<(Name, Message)> {
        let named = |metadata: &ObjectMeta| -> Name { metadata.name.as_deref().unwrap_or_default().into() };
        let within = |metadata: &ObjectMeta| {
            key(
                metadata.namespace.as_deref().unwrap_or_default(),
                metadata.name.as_deref().unwrap_or_default(),
            )
        };
        let flawed = |problem| Flaw { generation: None, version: 0, problem };
        let now = self.now;
        match self.samples[sample].kind {
            "Job" => read(text, uid, |object: &wire::Job| Ok(job(object, now)), Message::Job),
            "Pod" => read(text, uid, |object: &wire::Pod| Ok(pod(object)), Message::Pod),
            "Node" => read(text, named, |object: &wire::Node| Ok(node::node(object)), Message::Node),
            "Namespace" => read(
                text,
                named,
                |object: &PartialObjectMeta<Namespace>| Ok(team::namespace(object)),
                Message::Namespace,
            ),
            "Team" => read(text, named, |object: &Team| team::team(object).map_err(flawed), Message::Team),
            "NodePool" => {
                read(text, named, |object: &NodePool| team::pool(object).map_err(flawed), Message::Pool)
            }
            "PriorityClass" => {
                read(text, named, |object: &PriorityClass| Ok(Class::of(object)), Message::Class)
            }
            "ResourceSlice" => read(
                text,
                named,
                |object: &ResourceSlice| Ok(claims::slice(object)),
                |seen| Message::Devices(News::Slice(seen)),
            ),
            "DeviceClass" => read(
                text,
                named,
                |object: &DeviceClass| Ok(claims::device_class(object)),
                |seen| Message::Devices(News::Class(seen)),
            ),
            "ResourceClaim" => read(
                text,
                within,
                |object: &ResourceClaim| Ok(claims::claim(object)),
                |seen| Message::Devices(News::Claim(seen)),
            ),
            "ResourceClaimTemplate" => read(
                text,
                within,
                |object: &ResourceClaimTemplate| Ok(claims::template(object)),
                |seen| Message::Devices(News::Template(seen)),
            ),
            _ => {
                let place = self.place(sample);
                let watched = &self.kinds.watched()[place];
                let Guarded(object) = serde_json::from_str::<Guarded<DynamicObject>>(text).ok()?;
                let (key, seen) = match object {
                    Ok(object) => (uid(&object.metadata), Ok(custom(watched, &object, now))),
                    Err(unread) => (uid(&unread.metadata), Err(flawed(unread.problem.clone()))),
                };
                let seen = seen.map_or_else(
                    |flaw| Seen::Unreadable(key.clone(), flaw),
                    |seen| Seen::Object(key.clone(), seen),
                );
                Some((key, Message::Custom(place, seen)))
            }
        }
    }

    /// Decides, and carries the decisions out unless they are refused.
    fn plan(&mut self, refused: bool) -> TestCaseResult {
        for _ in 0..PLANS {
            let actions = self.engine.plan(self.now).actions;
            prop_assert!(actions.len() <= 4 * (self.live.len() + 1), "{} actions", actions.len());
            for action in &actions {
                let done = !refused && self.carry_out(action);
                if !done {
                    let workload = action.workload().clone();
                    self.apply(vec![Event::WriteFailed { workload, message: "no".into() }]);
                }
            }
            if !self.engine.has_more() {
                break;
            }
        }
        let restorable: Vec<WorkloadId> = self.mirror.restorable(self.now).cloned().collect();
        for id in restorable {
            if let Some(restore) =
                self.mirror.workload(&id).map(|(managed, version)| managed.restore(version))
            {
                self.patch(&id.0, &restore);
            }
        }
        Ok(())
    }

    /// Writes a decision; false if the API server would refuse it.
    fn carry_out(&mut self, action: &Action) -> bool {
        let Some((managed, version)) = self.mirror.subject(action.workload()) else { return false };
        let managed: Managed = managed.into_owned();
        let note = Eviction::new(timestamp(self.now), "Reclaimed");
        let writes: Vec<(Name, Operation)> = if managed.workload.kind == WorkloadKind::PodGroup {
            let members: Vec<(Managed, u64)> = self
                .mirror
                .members(&managed.workload.id)
                .map(|(one, version)| (one.clone(), version))
                .collect();
            let uids = members.iter().map(|(one, _)| &*one.facts.uid);
            let record = match action {
                Action::Admit { admission, .. } => {
                    Some(Record::of_group(&managed.workload.id.0, admission, uids))
                }
                _ => None,
            };
            let write = |(one, version): &(Managed, u64)| {
                let operation = record.as_ref().map_or(Operation::Evict, |record| {
                    Operation::Patch(one.admit(
                        *version,
                        record,
                        Grant::All,
                        sluice::cluster::target::Pin::Template,
                    ))
                });
                (one.facts.uid.clone(), operation)
            };
            members.iter().map(write).collect()
        } else {
            let operation = match action {
                Action::Admit { admission, .. } => {
                    let grant = if admission.pods < managed.workload.pods { Grant::Part } else { Grant::All };
                    let pin = place::pin(&self.mirror, &managed, admission);
                    drop(managed.seats_by(admission.into(), pin));
                    Operation::Patch(managed.admit(version, &Record::from(admission), grant, pin))
                }
                Action::Resize { admission, .. } => {
                    Operation::Patch(managed.resize(version, &Record::from(admission), Grant::Part))
                }
                Action::Evict { .. } => managed.evict(version, &note),
                Action::EndPod { pod, .. } => {
                    let there = self.live.keys().find(|(_, uid)| *uid == pod.0).cloned();
                    return there.inspect(|key| self.delete(key)).is_some();
                }
                Action::Fail { reason, message, .. } => managed
                    .fail(version, &Failure { reason: reason.code(), message, at: timestamp(self.now) }),
            };
            vec![(managed.facts.uid.clone(), operation)]
        };
        let mut done = true;
        for (uid, operation) in writes {
            done &= match operation {
                Operation::Patch(patch) | Operation::PatchStatus(patch) => self.patch(&uid, &patch),
                Operation::Evict | Operation::Delete => {
                    let there = self.live.keys().find(|(_, key)| *key == uid).cloned();
                    there.inspect(|key| self.delete(key)).is_some()
                }
            };
        }
        done
    }

    fn patch(&mut self, uid: &Name, patch: &json_patch::Patch) -> bool {
        let Some((key, object)) = self.live.iter().find(|((_, key), _)| key == uid) else { return false };
        let (sample, mut object) = (key.0, object.clone());
        if json_patch::patch(&mut object, patch).is_err() {
            return false;
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = json!(generation.wrapping_add(1));
        self.put(sample, object, false);
        true
    }

    /// Asks everything that users and metrics ask.
    fn look(&mut self) {
        let placing = BTreeMap::new();
        for id in self.mirror.take_dirty_jobs() {
            let duties = place::duties(&self.mirror, &id, &placing, true);
            if let Some((pods, _)) = duties.trouble {
                self.engine.apply(Event::PodsMisplaced(pods), self.now);
            }
        }
        let ids: Vec<WorkloadId> = self.engine.workloads().map(|workload| workload.id.clone()).collect();
        for id in &ids {
            drop(self.engine.verdict(id));
            drop((self.mirror.rollout(id), self.mirror.pods_by_node(id), self.mirror.pods_of(id)));
            if let Some(workload) = self.engine.workload(id) {
                drop((self.mirror.references(workload), self.mirror.queue_of(workload)));
            }
        }
        drop((
            self.engine.queues(),
            self.engine.reservations(),
            self.engine.overcommitments(),
            self.engine.unadmitted(),
        ));
        drop((self.engine.teams(), self.engine.nodes(), self.engine.oldest_within_guarantee()));
        drop((self.engine.next_deadline(), self.mirror.directory(), self.mirror.teams().count()));
    }

    /// Deletes every workload and pod, after which no capacity is held.
    fn drain(&mut self, pods_first: bool) -> TestCaseResult {
        let mut keys: Vec<(usize, Name)> = self.live.keys().cloned().collect();
        keys.retain(|(sample, _)| objects::REVIEWED.contains(sample));
        keys.sort_by_key(|(sample, _)| (self.samples[*sample].kind == "Pod") != pods_first);
        for key in keys {
            self.delete(&key);
        }
        // A list that began and has not ended has missed the deletions.
        for sample in objects::REVIEWED {
            self.send(sample, Seen::ListBegins);
            self.send(sample, Seen::ListEnds);
        }
        self.plan(false)?;
        self.look();
        prop_assert_eq!(
            self.engine.workloads().map(|workload| &workload.id).next(),
            None,
            "a deleted workload is known"
        );
        prop_assert!(self.engine.unadmitted().is_empty(), "{:?}", self.engine.unadmitted());
        for team in self.engine.teams() {
            let used = team.used.iter().find(|(_, amount)| amount.as_milli() != 0);
            prop_assert!(used.is_none(), "{} holds {:?} of pool {}", team.team, used, team.pool);
        }
        for node in self.engine.nodes() {
            prop_assert!(node.workloads.is_empty() && node.shared.is_empty(), "{:?}", node);
            // A node may say that it has less than nothing.
            let offered =
                node.allocatable.iter().map(|(name, amount)| (name.clone(), (*amount).max(Amount::ZERO)));
            let zero = |(_, amount): &(_, Amount)| *amount != Amount::ZERO;
            let free = node.free.clone().into_iter().filter(zero);
            prop_assert_eq!(
                free.collect::<ResourceList>(),
                offered.filter(zero).collect(),
                "on {}",
                node.name
            );
        }
        Ok(())
    }
}

/// Reads an object as its watch does: one that cannot be read is a message too.
fn read<K: Resource + DeserializeOwned + Debug, T>(
    text: &str,
    key: impl Fn(&ObjectMeta) -> Name,
    convert: impl Fn(&K) -> Result<T, Flaw>,
    wrap: impl Fn(Seen<T>) -> Message,
) -> Option<(Name, Message)> {
    let object = serde_json::from_str::<Guarded<K>>(text).ok()?;
    let (key, seen) = match &object.0 {
        Ok(object) => (key(object.meta()), convert(object)),
        Err(unread) => (key(&unread.metadata), Err(unread.as_ref().into())),
    };
    let seen =
        seen.map_or_else(|flaw| Seen::Unreadable(key.clone(), flaw), |seen| Seen::Object(key.clone(), seen));
    Some((key, wrap(seen)))
}
