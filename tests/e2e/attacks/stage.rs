//! The cluster of the attacks: two teams, the attackers' rights, and an observer that samples what runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};
use sluice_harness::{Kubectl, User, View, World, eventually, patience, until};
use tokio::task::JoinHandle;

use crate::support::{Job, nodes, quota, team, team_of};

/// The guarantee of team a, and its limit.
pub const LIMIT: i64 = 2;

/// The GPUs of the cluster, which are the guarantee of team b.
pub const CAPACITY: usize = 64;

/// The longest time that evictable pods may hold more than the limit: their grace period, and time to be noticed.
const LONGEST_ABOVE: Duration = Duration::from_secs(2 + 15);

/// Time for the charge to agree with what runs.
const SETTLING: Duration = Duration::from_secs(30);

/// Time for which they must agree.
const SETTLED: Duration = Duration::from_secs(1);

/// The longest time of a route.
const LONGEST_ROUTE: Duration = Duration::from_secs(120);

/// The kinds of objects that routes create.
const MADE: &str = "daemonsets,deployments,jobs,pods,configmaps";

/// Alice has the ClusterRole `edit` in the team's namespace, and may write the custom kinds there. Nora has every right
/// there, as owners of a namespace often have. Both have no right elsewhere.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice-edits, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: custom-kinds, namespace: a}
rules: [{apiGroups: [ray.io, kubeflow.org, trainer.kubeflow.org, jobset.x-k8s.io], resources: ['*'], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice-custom-kinds, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: custom-kinds}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: everything, namespace: a}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: nora-owns, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: everything}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: nora}]
";

/// The attack as one user: kubectl with these first arguments.
#[derive(Clone, Debug)]
pub struct Attacker {
    kubectl: Kubectl,
    acts_as: Option<String>,
}

impl Attacker {
    /// Runs kubectl in the namespace of team a.
    pub async fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<sluice_harness::Outcome> {
        let acts_as = self.acts_as.as_deref();
        let arguments: Vec<&str> =
            arguments.iter().copied().chain(["--namespace=a"]).chain(acts_as).collect();
        self.kubectl.run(&arguments, input).await
    }

    /// Creates an object, and returns it as stored.
    pub async fn create(&self, manifest: &str) -> Result<Value> {
        let made = self.kubectl(&["create", "-o", "json", "-f", "-"], Some(manifest)).await?;
        ensure!(made.success, "the object cannot be created: {}", made.stderr.trim());
        Ok(serde_json::from_str(&made.stdout)?)
    }

    /// Carries out a step that Sluice may refuse with a sentence. Returns whether the API server did it.
    pub async fn tries(&self, arguments: &[&str], input: Option<&str>) -> Result<bool> {
        let outcome = self.kubectl(arguments, input).await?;
        if outcome.success {
            return Ok(true);
        }
        let words = outcome.stderr.split_whitespace().count();
        ensure!(
            outcome.stderr.contains("denied") && outcome.stderr.contains("sluice") && words > 8,
            "kubectl {arguments:?} fails without a sentence of Sluice: {}",
            outcome.stderr.trim()
        );
        Ok(false)
    }

    /// Like [`Self::tries`], for a manifest to create.
    pub async fn tries_to_create(&self, manifest: &str) -> Result<bool> {
        self.tries(&["create", "-f", "-"], Some(manifest)).await
    }

    /// Carries out a step that Sluice must refuse with a sentence.
    pub async fn refused(&self, what: &str, arguments: &[&str], input: Option<&str>) -> Result<()> {
        ensure!(!self.tries(arguments, input).await?, "{what} is not refused");
        Ok(())
    }

    /// Creates an object that Sluice must refuse with a sentence.
    pub async fn refused_to_create(&self, what: &str, manifest: &str) -> Result<()> {
        self.refused(what, &["create", "-f", "-"], Some(manifest)).await
    }
}

/// What a team is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// GPUs used by its pods.
    pub used: i64,
    /// The part of them that was never admitted.
    pub unadmitted: i64,
}

/// What the pods of team a held since the begin of a route.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    held: i64,
    peak: i64,
    above_since: Option<Instant>,
    longest_above: Duration,
}

impl Samples {
    fn add(&mut self, held: i64) {
        self.held = held;
        self.peak = self.peak.max(held);
        if held <= LIMIT {
            self.above_since = None;
            return;
        }
        let since = *self.above_since.get_or_insert_with(Instant::now);
        self.longest_above = self.longest_above.max(since.elapsed());
    }
}

/// Lists the pods of team a from the API server, all the time.
struct Observer {
    samples: Arc<Mutex<Samples>>,
    task: JoinHandle<()>,
}

impl Observer {
    fn start(client: Client) -> Self {
        let samples = Arc::new(Mutex::new(Samples::default()));
        let shared = Arc::clone(&samples);
        let task = tokio::spawn(async move {
            loop {
                if let Ok(view) = View::take(&client).await {
                    lock(&shared).add(held(&view, "a"));
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Self { samples, task }
    }

    fn seen(&self) -> Samples {
        *lock(&self.samples)
    }

    fn begin(&self) {
        *lock(&self.samples) = Samples::default();
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(samples: &Mutex<Samples>) -> MutexGuard<'_, Samples> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The GPUs that the bound pods of a namespace hold, also while they end.
pub fn held(view: &View, namespace: &str) -> i64 {
    view.pods.iter().filter(|pod| pod.namespace == namespace && pod.holds()).map(|pod| pod.gpus).sum()
}

/// The result of a route.
struct Row {
    route: String,
    seconds: u64,
    peak: i64,
    above: Duration,
    held: i64,
    books: Books,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { route, seconds, peak, above, held, books } = self;
        write!(
            f,
            "{route}: at most {peak} GPUs held, above the limit for {:.1} s; in the end {held} held, {} charged, {} of them \
             unadmitted ({seconds} s)",
            above.as_secs_f64(),
            books.used,
            books.unadmitted
        )
    }
}

/// The cluster, the attackers, and what the routes have shown so far.
pub struct Stage<'a> {
    /// The cluster.
    pub world: &'a mut World,
    /// Has `edit`.
    pub alice: Attacker,
    /// Has every right in the namespace.
    pub nora: Attacker,
    observer: Observer,
    faults: Vec<String>,
}

impl<'a> Stage<'a> {
    /// Team a with its limit, and team b, which owns the whole cluster.
    pub async fn set(world: &'a mut World) -> Result<Self> {
        let limit = format!(
            "quotas: [{{guaranteed: {{nvidia.com/gpu: {LIMIT}}}, limit: {{nvidia.com/gpu: {LIMIT}}}}}]"
        );
        let teams = format!("{}{}", team_of("a", &[&limit]), team("b", CAPACITY));
        // Team c borrows all that it runs.
        let borrows = "quotas: [{guaranteed: {nvidia.com/gpu: 0}, limit: {nvidia.com/gpu: 10}}]";
        let teams = format!("{teams}{}{}", team_of("c", &[borrows]), team_of("d", &[&quota(2)]));
        world.apply(&format!("{}{teams}", nodes(2, CAPACITY / 2))).await?;
        world.kubectl.apply(RIGHTS).await?;
        let alice = Attacker { kubectl: world.cluster.kubectl(User::Alice), acts_as: None };
        let observer = Observer::start(world.client.clone());
        let admin = world.kubectl.clone();
        let nora = Attacker { kubectl: admin, acts_as: Some("--as=nora".to_owned()) };
        Ok(Self { world, alice, nora, observer, faults: Vec::new() })
    }

    /// Kubectl with the rights of another account, which the admin impersonates.
    pub fn account(&self, account: &str) -> Attacker {
        Attacker { kubectl: self.world.kubectl.clone(), acts_as: Some(format!("--as={account}")) }
    }

    /// Plays one route, compares what runs with the charge, and deletes what the route made.
    pub async fn route(
        &mut self,
        name: &str,
        route: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.observer.begin();
        let began = Instant::now();
        let outcome = match tokio::time::timeout(LONGEST_ROUTE, route(self)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("takes longer than {LONGEST_ROUTE:?}")),
        };
        let (books, settled) = self.settles().await;
        let Samples { held, peak, longest_above, .. } = self.observer.seen();
        let row = Row {
            route: name.to_owned(),
            seconds: began.elapsed().as_secs(),
            peak,
            above: longest_above,
            held,
            books,
        };
        println!("{row}");
        let short = if longest_above <= LONGEST_ABOVE {
            Ok(())
        } else {
            Err(anyhow::anyhow!("pods of team a hold more than its limit for {longest_above:.1?}"))
        };
        for fault in [outcome, settled, short].into_iter().filter_map(Result::err) {
            self.faults.push(format!("{name}: {fault:#}"));
        }
        if let Err(fault) = self.clear().await {
            self.faults.push(format!("{name}, after its objects were deleted: {fault:#}"));
            // The next route must not suffer from charges that this one left.
            self.restart().await?;
            self.clear().await?;
        }
        Ok(())
    }

    /// Fails with what all routes have shown.
    pub fn verdict(self) -> Result<()> {
        ensure!(self.faults.is_empty(), "{} faults:\n- {}", self.faults.len(), self.faults.join("\n- "));
        Ok(())
    }

    /// The most GPUs that team a held in this route.
    pub fn peak(&self) -> i64 {
        self.observer.seen().peak
    }

    /// Waits until the charge of team a has agreed with what runs for a second, and is within its limit.
    async fn settles(&self) -> (Books, Result<()>) {
        let mut last = Books::default();
        let mut agree_since = None;
        let outcome = eventually("the charge is what runs, and within the limit", SETTLING, async || {
            last = self.books("a").await.map_err(|error| format!("{error:#}"))?;
            let view = View::take(&self.world.client).await.map_err(|error| format!("{error:#}"))?;
            let held = held(&view, "a");
            lock(&self.observer.samples).add(held);
            if last.used != held || held > LIMIT {
                agree_since = None;
                return Err(format!("{held} GPUs held, {last:?}"));
            }
            let agreed = agree_since.get_or_insert_with(Instant::now).elapsed();
            if agreed >= SETTLED { Ok(()) } else { Err(format!("agreed for {agreed:.1?}")) }
        });
        let outcome = outcome.await;
        (last, outcome)
    }

    /// Waits until what runs is charged, and within the limit.
    pub async fn within_limit(&self) -> Result<()> {
        self.settles().await.1
    }

    async fn clear(&self) -> Result<()> {
        for namespace in ["a", "b", "c", "d"] {
            let all = ["delete", MADE, "--all", "--wait=false", "--namespace", namespace];
            self.world.kubectl.ok(&all).await?;
        }
        eventually("nothing runs and nothing is charged", SETTLING, async || {
            let view = View::take(&self.world.client).await.map_err(|error| format!("{error:#}"))?;
            for team in ["a", "b", "c", "d"] {
                let pods = view.pods.iter().filter(|pod| pod.namespace == team).count();
                let books = self.books(team).await.map_err(|error| format!("{error:#}"))?;
                if pods > 0 || books != Books::default() || view.jobs_in(team).next().is_some() {
                    return Err(format!("team {team}: {pods} pods, {books:?}; {}", view.summary(team)));
                }
            }
            Ok(())
        })
        .await
    }

    /// Kills Sluice.
    pub async fn kill(&mut self) -> Result<()> {
        self.world.replicas.last_mut().context("Sluice has no replica")?.kill().await
    }

    /// Kills Sluice and starts it again.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        self.world.start_replica().await
    }

    /// The rows of Sluice's answer to a question.
    pub async fn ask(&self, spec: Value) -> Result<Value> {
        self.world.replicas.last().context("Sluice has no replica")?.ask(spec).await
    }

    /// What a team is charged.
    pub async fn books(&self, team: &str) -> Result<Books> {
        let answer = self.ask(json!({"teams": {"team": team}})).await?;
        let rows = answer.as_array().context("the answer has no rows")?;
        let row = rows
            .iter()
            .find(|row| row["about"] == "Team")
            .with_context(|| format!("team {team} has no row"))?;
        let gpus = |field: &str| row[field]["nvidia.com/gpu"].as_str().unwrap_or("0").parse::<i64>();
        Ok(Books { used: gpus("used")?, unadmitted: gpus("unadmitted")? })
    }

    /// Waits until the charge of a team is this.
    pub async fn charged(&self, team: &str, expected: Books) -> Result<()> {
        eventually(&format!("team {team} is charged {expected:?}"), SETTLING, async || {
            let books = self.books(team).await.map_err(|error| format!("{error:#}"))?;
            if books == expected { Ok(()) } else { Err(format!("{books:?}")) }
        })
        .await
    }

    /// Waits until this many pods of a Job run.
    pub async fn runs(&self, namespace: &str, job: &str, pods: usize) -> Result<View> {
        let what = format!("{pods} pods of Job {namespace}/{job} run");
        until(&self.world.client, &what, Duration::from_secs(30), |view| {
            let of_job = view.running(namespace).filter(|pod| pod.job.as_deref() == Some(job)).count();
            if of_job == pods { Ok(()) } else { Err(view.summary(namespace)) }
        })
        .await
    }

    /// Waits until a Job that waits has a reason other than that it was not considered yet, and returns its sentence.
    pub async fn waits(&self, namespace: &str, job: &str) -> Result<String> {
        eventually(&format!("{namespace}/{job} waits with a reason"), patience(), async || {
            let question = json!({"explain": {"namespace": namespace, "name": job}});
            let rows = self.ask(question).await.map_err(|error| format!("{error:#}"))?;
            let row = &rows[0];
            let said = row["message"].as_str().filter(|said| said.split_whitespace().count() > 4);
            match said {
                Some(said) if row["state"] == "Pending" && row["reason"] != "NotYetConsidered" => {
                    Ok(said.to_owned())
                }
                _ => Err(rows.to_string()),
            }
        })
        .await
    }

    /// Deletes a Job but not its pods, and waits until they have no owner.
    pub async fn orphans(&self, attacker: &Attacker, job: &str) -> Result<()> {
        let delete = ["delete", "job", job, "--cascade=orphan", "--wait=false"];
        let deleted = attacker.kubectl(&delete, None).await?;
        ensure!(deleted.success, "the Job cannot be deleted: {}", deleted.stderr);
        self.world
            .until(&format!("Job {job} is gone, and its pods have no owner"), |view| {
                let pods = view.pods.iter().filter(|pod| pod.job.as_deref() == Some(job)).count();
                match view.job("a", job) {
                    None if pods == 0 => Ok(()),
                    other => Err(format!("{other:?}, {pods} pods")),
                }
            })
            .await
            .map(drop)
    }

    /// The names of the running pods of a namespace.
    pub async fn running(&self, namespace: &str) -> Result<Vec<String>> {
        let view = self.world.view().await?;
        Ok(view.running(namespace).map(|pod| pod.name.clone()).collect())
    }
}

/// A Job of team a with pods that end within a second.
pub fn job(name: &str, gpus: usize) -> Job {
    Job::new("a", name).gpus(gpus).pod_spec("terminationGracePeriodSeconds: 2")
}

/// A Job of team b that takes the whole cluster.
pub fn whole(name: &str) -> Job {
    Job::new("b", name).gpus(CAPACITY / 2).spec("parallelism: 2").spec("completions: 2")
}

/// A bare pod with these owners.
pub fn owned_pod(name: &str, gpus: i64, owners: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "ownerReferences": owners},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [{
            "name": "main", "image": "registry.example/train",
            "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": gpus}},
        }]},
    })
    .to_string()
}

/// A reference to an owner that controls the object.
pub fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// The UID of an object as stored.
pub fn uid(object: &Value) -> Result<&str> {
    let Some(uid) = object["metadata"]["uid"].as_str() else { bail!("the object has no UID: {object}") };
    Ok(uid)
}
