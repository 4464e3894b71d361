//! Books of the observer's own, from objects of the API server alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use sluice::api::names;
use sluice::api::record::{Eviction, Record};
use sluice_harness::{JobView, Kubectl, PodView, View};

/// The longest time for a list.
const READ: Duration = Duration::from_secs(5);

/// Guarantee, limit and parent of a team, in GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Team {
    pub parent: Option<String>,
    pub guarantee: i64,
    pub limit: Option<i64>,
    /// Whether a queue of the team has a limit of its own.
    pub capped: bool,
}

/// What holds room on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The workload or pod, by namespace/name.
    pub who: String,
    pub gpus: i64,
    /// When it was admitted, or its pod bound, in milliseconds since 1970.
    pub since: i64,
    /// Whether an admission gave it this room. The rest are pods of other namespaces, and pods that are not admitted.
    pub admitted: bool,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub gpus: i64,
    pub claims: Vec<Claim>,
    /// Whether it takes new pods.
    pub open: bool,
}

/// How long before a decision something must have happened to count as known, in milliseconds: a pod of others that was bound,
/// or an edit of a guarantee. Its news may still have been on its way, because watches are cut, replicas are frozen, and
/// their clocks are wrong by up to 8 s.
pub const NEWS: i64 = 20_000;

impl Node {
    /// GPUs that admitted work claims, with the other pods that were bound well before the newest admission here. A
    /// pod that kube-scheduler binds into room that was just given away is no decision of Sluice.
    pub fn decided(&self) -> i64 {
        let newest = self.claims.iter().filter(|claim| claim.admitted).map(|claim| claim.since).max();
        let counts =
            |claim: &&Claim| claim.admitted || newest.is_some_and(|newest| claim.since + NEWS <= newest);
        self.claims.iter().filter(counts).map(|claim| claim.gpus).sum()
    }

    pub fn details(&self) -> String {
        let one = |claim: &Claim| {
            let how = if claim.admitted { "admitted" } else { "bound" };
            format!("{} {} {how} at {}", claim.who, claim.gpus, claim.since)
        };
        self.claims.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// What one snapshot shows. Namespaces have the name of their team in it.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// When it was taken, in milliseconds since 1970.
    pub taken: i64,
    /// The team of each namespace.
    pub homes: BTreeMap<String, String>,
    /// GPUs in use by team, as the Team's status says.
    pub said: BTreeMap<String, i64>,
    pub teams: BTreeMap<String, Team>,
    /// GPUs of admitted work by team, without the teams below it.
    pub admitted: BTreeMap<String, i64>,
    /// GPUs of bound pods of no admitted work, by team.
    pub unadmitted: BTreeMap<String, i64>,
    /// What records and pods claim on each node.
    pub nodes: BTreeMap<String, Node>,
    /// The last eviction of each Job, by namespace/name, with its team.
    pub evictions: BTreeMap<String, (String, Eviction)>,
    /// The admission of each Job that is admitted, by namespace/name, in milliseconds since 1970.
    pub admissions: BTreeMap<String, i64>,
    /// The GPUs that each Job, bare pod or group of pods asks for, by namespace/name.
    pub sizes: BTreeMap<String, i64>,
    /// What Sluice has touched though it must not.
    pub touched: BTreeSet<String>,
    /// Jobs of one pod that wait within their team's guarantee, though a Job of a borrowing team holds their room.
    pub starved: BTreeSet<String>,
    /// Jobs with more live pods than their record grants and their parallelism wants.
    pub doubled: BTreeSet<String>,
}

/// The namespace of no team.
const FREE: &str = "free";

impl Books {
    /// What a snapshot shows. The namespace of each team has the team's name.
    pub fn of(view: &View, teams: BTreeMap<String, Team>) -> Self {
        let mut books = Self { teams, ..Self::default() };
        for (node, offers) in &view.nodes {
            // A node that does not answer offers nothing, and its pods are held nowhere.
            if offers.ready {
                books.nodes.insert(
                    node.clone(),
                    Node { gpus: offers.gpus, claims: Vec::new(), open: !offers.cordoned },
                );
            }
        }
        let mut counted: BTreeSet<&str> = BTreeSet::new();
        for job in &view.jobs {
            let pods: Vec<&PodView> = pods_of(view, job).collect();
            if job.namespace == FREE {
                books.note_free_job(job);
                continue;
            }
            let name = format!("{}/{}", job.namespace, job.name);
            books.sizes.insert(name.clone(), job.gpus * i64::from(job.parallelism));
            if let Some(eviction) = &job.eviction {
                books.evictions.insert(name, (job.namespace.clone(), eviction.clone()));
            }
            let Some(record) = job.admission.as_ref().filter(|_| !job.deleting) else { continue };
            counted.extend(pods.iter().map(|pod| pod.uid.as_str()));
            books.admissions.insert(format!("{}/{}", job.namespace, job.name), record.at.as_millisecond());
            let runs = job.admitted() && !job.ending;
            books.charge(&job.namespace, &job.name, job.gpus, record, runs, &pods);
            let live = pods.iter().filter(|pod| pod.running()).count();
            if job.admitted() && live > usize::try_from(record.pods).unwrap_or(usize::MAX) {
                books
                    .doubled
                    .insert(format!("{}/{} runs {live} pods of {}", job.namespace, job.name, record.pods));
            }
        }
        books.charge_bare_pods(view, &mut counted);
        for pod in view.pods.iter().filter(|pod| pod.holds() && !counted.contains(pod.uid.as_str())) {
            if pod.namespace == FREE {
                if pod.gated || pod.team.is_some() {
                    books.touched.insert(format!("pod free/{}", pod.name));
                }
            } else if books.teams.contains_key(&pod.namespace) {
                *books.unadmitted.entry(pod.namespace.clone()).or_default() += pod.gpus;
            }
            books.claim_bound(pod);
        }
        for pod in view.pods.iter().filter(|pod| pod.job.is_none() && pod.namespace != FREE) {
            let name = pod.group.as_ref().map_or(&pod.name, |(group, _)| group);
            *books.sizes.entry(format!("{}/{name}", pod.namespace)).or_default() += pod.gpus;
        }
        books.note_starved(view);
        books
    }

    /// Law 2: notes the Jobs that could start if a Job of a borrowing team went.
    ///
    /// Only what is certain counts: Jobs of one pod before which no work of their team waits, because that may have a
    /// reservation of the team's quota (law 7); and as victims Jobs that are neither elastic nor of a queue that is never
    /// preempted, of teams without work that is larger than their guarantees.
    fn note_starved(&mut self, view: &View) {
        let waits = |job: &&JobView| job.queued() && job.parallelism == 1 && !job.deleting;
        for job in view.jobs.iter().filter(waits) {
            let team = &job.namespace;
            let fits = |at: &str| {
                let Some(team) = self.teams.get(at) else { return false };
                self.charged(at) + job.gpus <= team.guarantee
            };
            let known = self.teams.get(team).is_some_and(|team| !team.capped);
            let path: Vec<&str> = self.path(team).collect();
            let before = |other: &JobView| {
                let other_waits = other.queued() && other.namespace == *team && other.name != job.name;
                other_waits && (other.created <= job.created || other.queue.as_deref() == Some("fixed"))
            };
            let groups = |pod: &PodView| pod.gated && pod.namespace == *team;
            let is_first = !view.jobs.iter().any(before) && !view.pods.iter().any(groups);
            if known
                && is_first
                && path.iter().all(|at| fits(at))
                && view.jobs.iter().any(|other| self.borrows(other, &path, job.gpus, view))
            {
                self.starved.insert(format!("{team}/{} waits within the guarantee of team {team}", job.name));
            }
        }
    }

    /// Whether a Job is admitted in a team that borrows, apart from the teams in `path`, and holds that many GPUs on one
    /// node that takes pods.
    fn borrows(&self, job: &JobView, path: &[&str], gpus: i64, view: &View) -> bool {
        let team = job.namespace.as_str();
        let apart: Vec<&str> = self.path(team).filter(|at| !path.contains(at)).collect();
        let beyond = |at: &&str| self.teams.get(*at).is_some_and(|team| self.charged(at) > team.guarantee);
        let size = |job: &JobView| {
            job.gpus
                * job
                    .admission
                    .as_ref()
                    .map_or(0, |record| i64::from(record.pods.max(record.wanted.unwrap_or(0))))
        };
        let largest = view.jobs.iter().filter(|other| other.namespace == team).map(size).max().unwrap_or(0);
        let who = format!("{team}/{}", job.name);
        let holds = |node: &Node| {
            let own = node.claims.iter().filter(|claim| claim.admitted && claim.who == who);
            node.open && own.map(|claim| claim.gpus).sum::<i64>() >= gpus
        };
        job.admitted()
            && !job.elastic
            && job.queue.as_deref() != Some("fixed")
            && apart.iter().any(beyond)
            && largest <= self.least_guarantee(team)
            && self.nodes.values().any(holds)
    }

    fn note_free_job(&mut self, job: &JobView) {
        if job.held || job.admission.is_some() || job.team.is_some() {
            self.touched.insert(format!("job free/{}", job.name));
        }
    }

    /// Charges a record, or the live pods where they are more.
    fn charge(&mut self, team: &str, name: &str, gpus: i64, record: &Record, runs: bool, pods: &[&PodView]) {
        let live: Vec<&&PodView> = pods.iter().filter(|pod| pod.holds()).collect();
        let count = |pods: usize| i64::try_from(pods).unwrap_or(i64::MAX);
        let granted = if runs { i64::from(record.pods) } else { 0 };
        *self.admitted.entry(team.to_owned()).or_default() += gpus * granted.max(count(live.len()));
        for (node, books) in &mut self.nodes {
            let there = count(live.iter().filter(|pod| pod.node.as_ref() == Some(node)).count());
            let planned = record.nodes.get(node).map_or(0, |pods| i64::from(*pods));
            // Pods beyond the plan of other nodes may still come here only if their own places are free.
            let held = if runs && count(live.len()) < granted { planned } else { there.min(planned) };
            if held > 0 {
                let (who, since) = (format!("{team}/{name}"), record.at.as_millisecond());
                books.claims.push(Claim { who, gpus: gpus * held, since, admitted: true });
            }
        }
        // Pods on a node that the record does not name came there without an admission.
        let mut seats = record.nodes.clone();
        for pod in live {
            match pod.node.as_ref().and_then(|node| seats.get_mut(node)).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => self.claim_bound(pod),
            }
        }
    }

    /// Room of a pod that no admission gave it.
    fn claim_bound(&mut self, pod: &PodView) {
        if let Some(node) = pod.node.as_ref().and_then(|node| self.nodes.get_mut(node)) {
            let since = pod.bound_at.map_or(0, Timestamp::as_millisecond);
            let who = format!("{}/{}", pod.namespace, pod.name);
            // Sluice has placed the pods of a team's Jobs itself, so it knows of them until they have gone.
            let admitted = pod.job.is_some() && self.teams.contains_key(&pod.namespace);
            node.claims.push(Claim { who, gpus: pod.gpus, since, admitted });
        }
    }

    /// Charges pods without a Job: each group once.
    fn charge_bare_pods<'v>(&mut self, view: &'v View, counted: &mut BTreeSet<&'v str>) {
        let mut groups: BTreeMap<String, (&PodView, &Record, Vec<&'v PodView>)> = BTreeMap::new();
        for pod in view.pods.iter().filter(|pod| pod.job.is_none() && pod.namespace != FREE) {
            let Some(record) = &pod.admission else { continue };
            let group = record.group.as_ref().map_or(&pod.uid, |group| &group.id).clone();
            groups.entry(group).or_insert((pod, record, Vec::new())).2.push(pod);
            counted.insert(&pod.uid);
        }
        for (first, record, pods) in groups.into_values() {
            let left = pods.iter().filter(|pod| pod.phase != "Succeeded" && pod.phase != "Failed").count();
            let pods_left = u32::try_from(left).unwrap_or(u32::MAX).min(record.pods);
            self.charge(
                &first.namespace,
                &first.name,
                first.gpus,
                &Record { pods: pods_left, ..record.clone() },
                left > 0,
                &pods,
            );
        }
    }

    /// A team with those below it.
    fn with_below(&self, of: &BTreeMap<String, i64>, team: &str) -> i64 {
        of.iter().filter(|(name, _)| self.path(name).any(|at| at == team)).map(|(_, gpus)| gpus).sum()
    }

    fn path<'b>(&'b self, team: &'b str) -> impl Iterator<Item = &'b str> {
        let parent = |at: &&'b str| self.teams.get(*at).and_then(|team| team.parent.as_deref());
        std::iter::successors(Some(team), parent).take(8)
    }

    /// The smallest guarantee of a team and those above it, in GPUs.
    pub fn least_guarantee(&self, team: &str) -> i64 {
        let each = self.path(team).map(|at| self.teams.get(at).map_or(0, |team| team.guarantee));
        each.min().unwrap_or(0)
    }

    /// The admitted usage of a team with those below it.
    pub fn used(&self, team: &str) -> i64 {
        self.with_below(&self.admitted, team)
    }

    /// All that is charged to a team with those below it: admitted and unadmitted.
    pub fn charged(&self, team: &str) -> i64 {
        self.used(team) + self.with_below(&self.unadmitted, team)
    }
}

/// How long before an eviction another one must have been for the same preemptor to wait for both.
const NOMINATED: i64 = 20_000;

impl Books {
    /// GPUs that are kept for work of a team until its victims of about that time have gone: they count as used (law 3).
    pub fn nominated(&self, team: &str, eviction: &Eviction) -> i64 {
        let about =
            |other: &Eviction| (other.at.as_millisecond() - eviction.at.as_millisecond()).abs() <= NOMINATED;
        let recent = self.evictions.values().filter(|(_, other)| about(other));
        let preemptors: BTreeSet<&str> = recent.map(|(_, other)| other.preemptor.as_str()).collect();
        let own = |name: &&str| name.split('/').next() == Some(team) && !self.admissions.contains_key(*name);
        preemptors.into_iter().filter(own).filter_map(|name| self.sizes.get(name)).sum()
    }
}

/// Reads the API server.
pub struct Observer {
    pub kubectl: Kubectl,
    pub client: kube::Client,
}

impl Observer {
    /// A snapshot, and what it shows.
    pub async fn look(&self) -> Result<(View, Books)> {
        let view = tokio::time::timeout(READ, View::take(&self.client)).await??;
        let teams = self.kubectl.run(&["get", "teams", "-o", "json", "--request-timeout=5s"], None).await?;
        let teams: Value = serde_json::from_str(&teams.stdout)?;
        let homes = self.homes().await?;
        let books = Books::of(&at_home(view.clone(), &homes), teams_of(&teams));
        let (said, taken) = (statuses_of(&teams), Timestamp::now().as_millisecond());
        Ok((view, Books { taken, homes, said, ..books }))
    }

    /// The Events of the workloads that a breach names, a line each.
    pub async fn events(&self, breach: &str) -> String {
        let mut lines = String::new();
        for name in crate::trace::named(breach) {
            let of = format!("--field-selector=involvedObject.name={name}");
            let columns =
                "-o=custom-columns=AT:.lastTimestamp,NAME:.involvedObject.name,WHY:.reason,TEXT:.message";
            let events = self.kubectl.run(&["get", "events", "-A", &of, columns, "--no-headers"], None).await;
            lines.extend(
                events.iter().flat_map(|events| events.stdout.lines()).map(|line| format!("\n  {line}")),
            );
        }
        lines
    }

    /// The team of each namespace of a team.
    async fn homes(&self) -> Result<BTreeMap<String, String>> {
        let labelled = ListParams::default().labels(names::TEAM);
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let namespaces = tokio::time::timeout(READ, namespaces.list(&labelled)).await??;
        let team = |one: &Namespace| Some((one.name_any(), one.labels().get(names::TEAM)?.clone()));
        Ok(namespaces.items.iter().filter_map(team).collect())
    }
}

/// A view in which namespaces have the name of their team.
fn at_home(mut view: View, homes: &BTreeMap<String, String>) -> View {
    let home = |namespace: &str| homes.get(namespace).map_or_else(|| namespace.to_owned(), Clone::clone);
    for job in &mut view.jobs {
        job.namespace = home(&job.namespace);
        if let Some(eviction) = &mut job.eviction
            && let Some((namespace, name)) = eviction.preemptor.split_once('/')
        {
            eviction.preemptor = format!("{}/{name}", home(namespace));
        }
    }
    for pod in &mut view.pods {
        pod.namespace = home(&pod.namespace);
    }
    view
}

/// GPUs in use by team, as the statuses of the Teams say.
fn statuses_of(list: &Value) -> BTreeMap<String, i64> {
    let said = |item: &Value| {
        let used = &item["status"]["pools"][0]["used"]["nvidia.com/gpu"];
        let used = used.as_str().map_or(Some(0), |text| text.parse().ok())?;
        Some((item["metadata"]["name"].as_str()?.to_owned(), used))
    };
    list["items"].as_array().into_iter().flatten().filter_map(said).collect()
}

/// The teams as their objects are at present.
fn teams_of(list: &Value) -> BTreeMap<String, Team> {
    let gpus = |amounts: &Value| {
        let gpus = &amounts["nvidia.com/gpu"];
        gpus.as_str().and_then(|text| text.parse().ok()).or_else(|| gpus.as_i64())
    };
    let team = |item: &Value| {
        let quota = &item["spec"]["quotas"][0];
        let parent = item["spec"]["parent"].as_str().map(Into::into);
        let (guarantee, limit) = (gpus(&quota["guaranteed"]).unwrap_or(0), gpus(&quota["limit"]));
        let mut queues = item["spec"]["queues"].as_array().into_iter().flatten();
        let capped = queues.any(|queue| !queue["limit"].is_null());
        Some((item["metadata"]["name"].as_str()?.to_owned(), Team { parent, guarantee, limit, capped }))
    };
    list["items"].as_array().into_iter().flatten().filter_map(team).collect()
}

fn pods_of<'v>(view: &'v View, job: &'v JobView) -> impl Iterator<Item = &'v PodView> {
    let own = |pod: &&PodView| pod.namespace == job.namespace && pod.job.as_ref() == Some(&job.name);
    view.pods.iter().filter(own)
}
