//! A cluster in which users try to hold more than the limit of their team, with a ledger of its own: what the pods on the nodes
//! hold, no matter what Sluice believes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    Action, Event, EvictReason, Name, Node, Observed, Pod, PodId, PodOwner, PodShape, Quota, Replacement,
    ResizeCause, Team, Time, Unadmitted, Workload, WorkloadId,
};

use super::world::{GPU, gpus, team};

pub const TEAMS: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
pub enum Op {
    Submit {
        team: usize,
        pods: u32,
        gpus: i64,
    },
    /// The user of a running Job asks for other parallelism; a guard allows at most the record.
    Scale {
        which: usize,
        pods: u32,
    },
    /// The Job is deleted, and its pods run on without an owner.
    Orphan(usize),
    /// A pod of a running Job loses its owner, and its controller makes another one.
    Detach(usize),
    /// A pod that was never admitted is bound to a node.
    Stray {
        team: usize,
        node: usize,
        gpus: i64,
        kind: Kind,
    },
    StrayEnds(usize),
    Finish(usize),
    /// Ending pods are gone.
    PodsGone,
    Limit {
        team: usize,
        limit: i64,
    },
    Wait(i64),
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Orphan,
    Adopted,
    Fixed,
}

pub fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![Just(Kind::Orphan), Just(Kind::Adopted), Just(Kind::Fixed)];
    prop_oneof![
        6 => (0..2_usize, 1..4_u32, 1..3_i64).prop_map(|(team, pods, gpus)| Op::Submit { team, pods, gpus }),
        4 => (0..8_usize, 0..4_u32).prop_map(|(which, pods)| Op::Scale { which, pods }),
        2 => (0..8_usize).prop_map(Op::Orphan),
        2 => (0..8_usize).prop_map(Op::Detach),
        2 => (0..2_usize, 0..3_usize, 1..3_i64, kind)
            .prop_map(|(team, node, gpus, kind)| Op::Stray { team, node, gpus, kind }),
        1 => (0..8_usize).prop_map(Op::StrayEnds),
        2 => (0..8_usize).prop_map(Op::Finish),
        3 => Just(Op::PodsGone),
        1 => (0..2_usize, 1..9_i64).prop_map(|(team, limit)| Op::Limit { team, limit }),
        2 => (1..5_000_i64).prop_map(Op::Wait),
        1 => Just(Op::Restart),
    ]
}

#[derive(Clone, Debug)]
pub struct Job {
    pub workload: Workload,
    pub gpus: i64,
    /// Its pods by node, those that end included.
    pub pods: BTreeMap<PodId, Name>,
    pub ending: bool,
}

impl Job {
    pub fn record(&self) -> u32 {
        match &self.workload.state {
            Observed::Admitted(admission) => admission.pods,
            _ => 0,
        }
    }

    /// The larger of record and pods, in GPUs.
    pub fn charge(&self) -> i64 {
        let pods = u32::try_from(self.pods.len()).expect("few pods");
        i64::from(self.record().max(pods)) * self.gpus
    }
}

#[derive(Clone, Debug)]
pub struct Stray {
    pub team: usize,
    pub node: Name,
    pub gpus: i64,
    pub kind: Kind,
    pub created: Time,
    pub ending: bool,
}

/// The cluster of the attack, with its own account of what runs.
pub struct Ledger {
    pub engine: Engine,
    pub now: Time,
    pub nodes: BTreeMap<Name, i64>,
    pub teams: [Team; 2],
    pub jobs: BTreeMap<WorkloadId, Job>,
    pub strays: BTreeMap<PodId, Stray>,
    pub made: usize,
}

pub fn listed(limit: i64, guaranteed: i64) -> Quota {
    Quota { guaranteed: gpus(guaranteed), limit: gpus(limit), lendable: ResourceList::new() }
}

impl Ledger {
    pub fn new(nodes: &[i64], limits: [i64; 2]) -> Self {
        let of = |i: usize| Team {
            quotas: BTreeMap::from([("default".into(), listed(limits[i], limits[i].min(3)))]),
            ..team(TEAMS[i], None, 0, None)
        };
        let nodes = nodes.iter().enumerate().map(|(i, n)| (format!("n{i}").into(), *n)).collect();
        let mut ledger = Self {
            engine: Engine::new(),
            now: Time(0),
            nodes,
            teams: [of(0), of(1)],
            jobs: BTreeMap::new(),
            strays: BTreeMap::new(),
            made: 0,
        };
        ledger.restart();
        ledger
    }

    pub fn restart(&mut self) {
        self.engine = Engine::new();
        let mut events: Vec<Event> = self.teams.iter().cloned().map(Event::TeamApplied).collect();
        events.extend(self.nodes.iter().map(|(name, count)| {
            Event::NodeApplied(Node {
                name: name.clone(),
                labels: BTreeMap::new(),
                allocatable: gpus(*count),
                taints: Vec::new(),
                schedulable: true,
                unreachable: None,
            })
        }));
        for (id, job) in &self.jobs {
            events.push(Event::workload(job.workload.clone()));
            events.extend(job.pods.iter().map(|(pod, node)| self.pod_of(id, pod, node)));
        }
        events.extend(self.strays.iter().map(|(id, stray)| self.stray_of(id, stray)));
        for event in events {
            self.engine.apply(event, self.now);
        }
    }

    pub fn pod_of(&self, id: &WorkloadId, pod: &PodId, node: &Name) -> Event {
        Event::PodApplied(Pod {
            id: pod.clone(),
            workload: Some(id.clone()),
            node: Some(node.clone()),
            requests: gpus(self.jobs[id].gpus),
            profile: None,
            unadmitted: None,
        })
    }

    pub fn stray_of(&self, id: &PodId, stray: &Stray) -> Event {
        let owner = PodOwner { uid: "set".into(), label: "DaemonSet/set".into() };
        let unadmitted = Unadmitted {
            team: TEAMS[stray.team].into(),
            namespace: TEAMS[stray.team].into(),
            name: (&*id.0).into(),
            created: stray.created,
            owner: (stray.kind == Kind::Fixed).then_some(owner),
            replacement: if stray.kind == Kind::Fixed { Replacement::AtOnce } else { Replacement::Held },
            adopted: stray.kind == Kind::Adopted,
            ending: stray.ending,
        };
        Event::PodApplied(Pod {
            id: id.clone(),
            workload: None,
            node: Some(stray.node.clone()),
            requests: gpus(stray.gpus),
            profile: None,
            unadmitted: Some(Box::new(unadmitted)),
        })
    }

    pub fn tell(&mut self, event: Event) {
        self.engine.apply(event, self.now);
    }

    pub fn add_stray(&mut self, id: PodId, stray: Stray) {
        let event = self.stray_of(&id, &stray);
        self.strays.insert(id, stray);
        self.tell(event);
    }

    pub fn nth_running(&self, n: usize) -> Option<WorkloadId> {
        let running: Vec<&WorkloadId> =
            self.jobs.iter().filter(|(_, job)| job.record() > 0 && !job.ending).map(|(id, _)| id).collect();
        (!running.is_empty()).then(|| running[n % running.len()].clone())
    }

    pub fn free(&self, node: &Name) -> i64 {
        let jobs = self.jobs.values().map(|job| {
            let there = job.pods.values().filter(|at| *at == node).count();
            let planned = match &job.workload.state {
                Observed::Admitted(admission) => admission.nodes.get(node).copied().unwrap_or(0),
                _ => 0,
            };
            job.gpus * i64::try_from(there).expect("few pods").max(i64::from(planned))
        });
        let strays = self.strays.values().filter(|stray| stray.node == *node).map(|stray| stray.gpus);
        self.nodes[node] - jobs.sum::<i64>() - strays.sum::<i64>()
    }

    /// What a team is to be charged, and the part of it that was never admitted.
    pub fn account(&self, team: usize) -> (i64, i64) {
        let jobs = self.jobs.values().filter(|job| &*job.workload.team == TEAMS[team]);
        let strays: i64 =
            self.strays.values().filter(|stray| stray.team == team).map(|stray| stray.gpus).sum();
        (jobs.map(Job::charge).sum::<i64>() + strays, strays)
    }

    pub fn limit(&self, team: usize) -> i64 {
        self.teams[team].quotas[&Name::from("default")].limit[&Name::from(GPU)].as_milli() / 1000
    }

    /// The Job controller makes the pods that a running Job still wants, on the nodes of its admission.
    pub fn make_pods(&mut self, id: &WorkloadId) {
        let Some(job) = self.jobs.get(id) else { return };
        let Observed::Admitted(admission) = job.workload.state.clone() else { return };
        let mut wanted = usize::try_from(job.workload.pods.min(admission.pods)).expect("few pods");
        wanted = wanted.saturating_sub(job.pods.len());
        for (node, places) in admission.nodes {
            let there = |job: &Job| job.pods.values().filter(|at| **at == node).count();
            while wanted > 0 && there(&self.jobs[id]) < places as usize {
                self.made += 1;
                let pod = PodId(format!("pod{}", self.made).into());
                let event = self.pod_of(id, &pod, &node);
                self.jobs.get_mut(id).expect("a job").pods.insert(pod, node.clone());
                self.tell(event);
                wanted -= 1;
            }
        }
    }

    pub fn apply(&mut self, op: &Op) {
        match op.clone() {
            Op::Submit { team, pods, gpus: each } => {
                self.made += 1;
                let shape = PodShape { requests: gpus(each), ..PodShape::default() };
                let name: Name = format!("w{}", self.made).into();
                let workload = Workload::job(&TEAMS[team].into(), &name, pods, shape, self.now);
                let id = workload.id.clone();
                self.tell(Event::workload(workload.clone()));
                self.jobs.insert(id, Job { workload, gpus: each, pods: BTreeMap::new(), ending: false });
            }
            Op::Scale { which, pods } => {
                let Some(id) = self.nth_running(which) else { return };
                let job = self.jobs.get_mut(&id).expect("a job");
                job.workload.pods = pods.min(job.record());
                let gone: Vec<PodId> = job.pods.keys().skip(job.workload.pods as usize).cloned().collect();
                gone.iter().for_each(|pod| _ = job.pods.remove(pod));
                let workload = job.workload.clone();
                self.tell(Event::workload(workload));
                gone.into_iter().for_each(|pod| self.tell(Event::PodRemoved(pod)));
                self.make_pods(&id);
            }
            Op::Orphan(which) => {
                let Some(id) = self.nth_running(which) else { return };
                let job = self.jobs.remove(&id).expect("a job");
                self.tell(Event::WorkloadRemoved(id));
                let team = TEAMS.iter().position(|name| **name == *job.workload.team).expect("a team");
                for (pod, node) in job.pods {
                    let (gpus, created) = (job.gpus, self.now);
                    let kind = Kind::Orphan;
                    self.add_stray(pod, Stray { team, node, gpus, kind, created, ending: false });
                }
            }
            Op::Detach(which) => {
                let Some(id) = self.nth_running(which) else { return };
                let job = self.jobs.get_mut(&id).expect("a job");
                let Some((pod, node)) = job.pods.pop_first() else { return };
                let team = TEAMS.iter().position(|name| **name == *job.workload.team).expect("a team");
                let (gpus, created) = (job.gpus, self.now);
                let stray = Stray { team, node, gpus, kind: Kind::Orphan, created, ending: false };
                self.add_stray(pod, stray);
            }
            Op::Stray { team, node, gpus, kind } => {
                let node: Name = format!("n{}", node % self.nodes.len()).into();
                if self.free(&node) < gpus {
                    return;
                }
                self.made += 1;
                let created = self.now;
                let pod = PodId(format!("stray{}", self.made).into());
                self.add_stray(pod, Stray { team, node, gpus, kind, created, ending: false });
            }
            Op::StrayEnds(n) => {
                let ids: Vec<PodId> = self.strays.keys().cloned().collect();
                if let Some(id) = ids.get(n % ids.len().max(1)) {
                    self.strays.remove(id);
                    self.tell(Event::PodRemoved(id.clone()));
                }
            }
            Op::Finish(which) => {
                let Some(id) = self.nth_running(which) else { return };
                let mut job = self.jobs.remove(&id).expect("a job");
                job.workload.state = Observed::Finished;
                self.tell(Event::workload(job.workload));
                job.pods.into_keys().for_each(|pod| self.tell(Event::PodRemoved(pod)));
                self.tell(Event::WorkloadRemoved(id));
            }
            Op::PodsGone => self.end_pods(),
            Op::Limit { team, limit } => {
                self.teams[team].quotas.insert("default".into(), listed(limit, limit.min(3)));
                self.tell(Event::TeamApplied(self.teams[team].clone()));
            }
            Op::Wait(milliseconds) => self.now = Time(self.now.0 + milliseconds),
            Op::Restart => self.restart(),
        }
    }

    pub fn end_pods(&mut self) {
        let ended: Vec<PodId> =
            self.strays.iter().filter(|(_, stray)| stray.ending).map(|(id, _)| id.clone()).collect();
        for pod in ended {
            self.strays.remove(&pod);
            self.tell(Event::PodRemoved(pod));
        }
        let ended: Vec<WorkloadId> =
            self.jobs.iter().filter(|(_, job)| job.ending).map(|(id, _)| id.clone()).collect();
        for id in ended {
            let job = self.jobs.get_mut(&id).expect("a job");
            job.ending = false;
            job.workload.state = Observed::Queued;
            let (pods, workload) = (std::mem::take(&mut job.pods), job.workload.clone());
            pods.into_keys().for_each(|pod| self.tell(Event::PodRemoved(pod)));
            self.tell(Event::workload(workload));
        }
    }

    /// Plans once, judges each action, and carries it out; false if there was none.
    pub fn plan(&mut self) -> Result<bool, TestCaseError> {
        let mut used: Vec<i64> = (0..2).map(|team| self.account(team).0).collect();
        let actions = self.engine.plan(self.now).actions;
        for action in &actions {
            let id = action.workload().clone();
            match action {
                Action::Admit { admission, .. } => {
                    let job = self.jobs.get_mut(&id).expect("it was submitted");
                    let team = TEAMS.iter().position(|name| **name == *job.workload.team).expect("a team");
                    used[team] += i64::from(admission.pods) * job.gpus;
                    job.workload.state = Observed::Admitted(admission.clone());
                    let workload = job.workload.clone();
                    prop_assert!(
                        used[team] <= self.limit(team),
                        "{id} takes team {} to {} of {}",
                        TEAMS[team],
                        used[team],
                        self.limit(team)
                    );
                    self.tell(Event::workload(workload));
                    self.make_pods(&id);
                }
                Action::Resize { admission, cause, .. } => {
                    prop_assert_eq!(*cause, ResizeCause::Released);
                    let job = self.jobs.get_mut(&id).expect("it runs");
                    prop_assert!(
                        admission.pods >= job.workload.pods,
                        "{id} loses pods that it may still run"
                    );
                    job.workload.state = Observed::Admitted(admission.clone());
                    let workload = job.workload.clone();
                    self.tell(Event::workload(workload));
                }
                Action::Evict { reason, .. } => match id.unadmitted_pod() {
                    Some(pod) => {
                        let stray = self.strays.get_mut(&pod).expect("it runs");
                        prop_assert!(stray.kind != Kind::Fixed, "{id} would come back at once");
                        prop_assert!(!stray.ending, "{id} is evicted twice");
                        if *reason == EvictReason::OverLimit {
                            prop_assert_eq!(stray.kind, Kind::Orphan);
                        }
                        stray.ending = true;
                    }
                    None => {
                        prop_assert!(*reason != EvictReason::OverLimit, "{id} was admitted");
                        let job = self.jobs.get_mut(&id).expect("it runs");
                        let Observed::Admitted(admission) = job.workload.state.clone() else {
                            return Err(TestCaseError::fail("it does not run"));
                        };
                        job.ending = true;
                        let since = self.now;
                        job.workload.state = Observed::Leaving { admission, since, stopped: true };
                        let workload = job.workload.clone();
                        self.tell(Event::workload(workload));
                    }
                },
                Action::EndPod { .. } => prop_assert!(false, "every node answers"),
                Action::Fail { .. } => prop_assert!(false, "no limit of time is set"),
            }
        }
        Ok(!actions.is_empty())
    }

    /// Law 16 and the first half of law 15: the engine charges what the ledger says.
    pub fn check_charges(&self) -> Result<(), TestCaseError> {
        let views = self.engine.teams();
        for (index, name) in TEAMS.iter().enumerate() {
            let view = views.iter().find(|view| &*view.team == *name && &*view.pool == "default");
            let of =
                |list: &ResourceList| list.get(GPU).map_or(0, |amount: &Amount| amount.as_milli() / 1000);
            let charged = view.map_or((0, 0), |view| (of(&view.used), of(&view.unadmitted)));
            prop_assert_eq!(charged, self.account(index), "team {}", name);
        }
        Ok(())
    }

    /// Decides, lets pods end and waits for what is due, until nothing changes any more.
    pub fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..100 {
            while self.plan()? {
                self.check_charges()?;
            }
            let before = self.strays.len() + self.jobs.values().filter(|job| job.ending).count();
            self.end_pods();
            let after = self.strays.len() + self.jobs.values().filter(|job| job.ending).count();
            match self.engine.next_deadline() {
                _ if before != after => {}
                Some(due) => self.now = due.max(self.now),
                None => return Ok(()),
            }
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }
}
