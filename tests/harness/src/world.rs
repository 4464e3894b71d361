//! A control plane with Sluice installed and running, for tests.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use sluice::api::names;
use sluice::scenario::Scenario;

use crate::{
    Cluster, Kubectl, Options, Play, Service, Sluice, User, View, end_if_this_test_hangs, eventually,
    patience,
};

/// Longest time of a test, on a machine with other load.
const LONGEST: Duration = Duration::from_secs(420);

/// A control plane with Sluice.
pub struct World {
    /// The replicas of Sluice. The first field, so that they end before the control plane.
    pub replicas: Vec<Sluice>,
    /// The common address of all replicas.
    pub service: Service,
    /// The admin's client.
    pub client: Client,
    /// The admin's kubectl.
    pub kubectl: Kubectl,
    /// The options of the next replica.
    pub options: Options,
    /// The control plane. The last field, so that it goes down after everything else.
    pub cluster: Cluster,
}

impl World {
    /// Starts a control plane, installs Sluice's objects, and starts replicas of this program.
    pub async fn up(name: &str, program: impl AsRef<Path>, replicas: usize) -> Result<Self> {
        Self::up_with(name, Options::new(program.as_ref()), replicas).await
    }

    /// Like [`Self::up`] with other options; identity and URL are set for each replica.
    pub async fn up_with(name: &str, options: Options, replicas: usize) -> Result<Self> {
        Self::up_on(Cluster::up(name).await?, options, replicas).await
    }

    /// Like [`Self::up_with`] on a running control plane.
    pub async fn up_on(cluster: Cluster, options: Options, replicas: usize) -> Result<Self> {
        let service = Service::start().await?;
        let client = cluster.client(User::Admin).await?;
        let kubectl = cluster.kubectl(User::Admin);
        let options = Options { webhook_url: Some(service.url()), ..options };
        let mut world = Self { replicas: Vec::new(), service, client, kubectl, options, cluster };
        install(&world.cluster).await?;
        for _ in 0..replicas {
            world.start_replica().await?;
        }
        if replicas > 0 {
            webhook_answers(&world.cluster).await?;
        }
        Ok(world)
    }

    /// Starts one more replica and waits until it is ready.
    pub async fn start_replica(&mut self) -> Result<()> {
        let identity = format!("sluice-{}", self.replicas.len());
        let options = Options { identity, ..self.options.clone() };
        let replica = Sluice::start(&self.cluster, &options).await?;
        self.service.add(replica.https());
        self.replicas.push(replica);
        Ok(())
    }

    /// Runs the test. A failure prints the location of the logs and panics.
    pub async fn run(
        name: &str,
        program: impl AsRef<Path>,
        replicas: usize,
        test: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) {
        Self::run_with(name, Options::new(program.as_ref()), replicas, test).await;
    }

    /// Like [`Self::run`] with other options for the replicas.
    pub async fn run_with(
        name: &str,
        options: Options,
        replicas: usize,
        test: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) {
        Self::run_on(Cluster::up(name).await, options, replicas, test).await;
    }

    /// Like [`Self::run_with`] on a running control plane.
    pub async fn run_on(
        cluster: Result<Cluster>,
        options: Options,
        replicas: usize,
        test: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) {
        end_if_this_test_hangs();
        let scene = async { Self::up_on(cluster?, options, replicas).await };
        let mut world = match tokio::time::timeout(LONGEST, scene).await {
            Ok(Ok(world)) => world,
            Ok(Err(error)) => panic!("cannot start the cluster: {error:?}"),
            Err(_) => panic!("the cluster did not start within {LONGEST:?}"),
        };
        let outcome = match tokio::time::timeout(LONGEST, test(&mut world)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("the test took longer than {LONGEST:?}")),
        };
        if let Err(error) = outcome {
            let logs: Vec<String> = world.replicas.iter().map(Sluice::log_tail).collect();
            panic!(
                "{error:?}\n\nThe control plane's logs are in {}.\n{}",
                world.cluster.directory().join("logs").display(),
                logs.join("\n\n")
            );
        }
    }

    /// A snapshot of the cluster. It is an error if a node's pods hold more than the node has.
    pub async fn view(&self) -> Result<View> {
        let view = View::take(&self.client).await?;
        match view.overcommitted() {
            Some(what) => bail!(what),
            None => Ok(view),
        }
    }

    /// Waits until the check passes, and returns the snapshot that passed.
    pub async fn until(&self, what: &str, check: impl Fn(&View) -> Result<(), String>) -> Result<View> {
        until(&self.client, what, patience(), check).await
    }

    /// Fails unless the check passes all the time for this long.
    pub async fn stays(
        &self,
        what: &str,
        time: Duration,
        check: impl Fn(&View) -> Result<(), String>,
    ) -> Result<()> {
        stays(&self.client, what, time, check).await
    }

    /// Prepares to play a scenario given as text.
    pub async fn play(&self, text: &str) -> Result<Play> {
        Play::new(&self.cluster, Scenario::parse([("test", text)])?, 1.0).await
    }

    /// Applies a scenario without times.
    pub async fn apply(&self, text: &str) -> Result<()> {
        self.play(text).await?.all().await
    }

    /// Index of the leader in `replicas`.
    pub async fn leader(&self) -> Result<usize> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        eventually("one of the replicas leads", patience(), async || {
            let lease = leases.get(names::NAME).await.map_err(|error| error.to_string())?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            let found = self.replicas.iter().position(|replica| replica.identity() == holder);
            found.ok_or_else(|| format!("the Lease is held by {holder:?}"))
        })
        .await
    }
}

/// Waits until the API server reaches the webhook: a Job with labels that only the webhook
/// can refuse is refused.
pub async fn webhook_answers(cluster: &Cluster) -> Result<()> {
    const PROBE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: probe, labels: {sluice.dev/team: there-is-no-such-team}}
";
    const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: probe, namespace: probe}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: registry.example/probe}]
";
    let kubectl = cluster.kubectl(User::Admin);
    kubectl.apply(PROBE).await?;
    eventually("the webhook refuses a Job of an unknown team", patience(), async || {
        let arguments = ["create", "--dry-run=server", "-f", "-"];
        match kubectl.run(&arguments, Some(JOB)).await {
            Ok(outcome) if !outcome.success && outcome.stderr.contains("there-is-no-such-team") => Ok(()),
            Ok(outcome) => Err(format!("{}{}", outcome.stdout.trim(), outcome.stderr.trim())),
            Err(error) => Err(format!("{error:#}")),
        }
    })
    .await?;
    kubectl.ok(&["delete", "namespace", "probe", "--wait=false"]).await?;
    Ok(())
}

/// Installs everything that Sluice needs in a cluster except the program: kinds, account, policies, webhook.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let kubectl = cluster.kubectl(User::Admin);
    let manifests = cluster.version().manifests();
    let manifests = manifests.to_str().context("the path of the sources is not UTF-8")?;
    kubectl.ok(&["apply", "-k", manifests]).await?;
    let crds =
        ["teams", "nodepools", "questions", "clusterquestions"].map(|kind| format!("crd/{kind}.sluice.dev"));
    let wait = ["wait", "--for=condition=Established", "--timeout=60s"];
    kubectl.ok(&wait.into_iter().chain(crds.iter().map(String::as_str)).collect::<Vec<_>>()).await?;
    Ok(())
}

/// Waits until the check passes, and returns the snapshot that passed.
pub async fn until(
    client: &Client,
    what: &str,
    timeout: Duration,
    check: impl Fn(&View) -> Result<(), String>,
) -> Result<View> {
    let outcome = eventually(what, timeout, async || {
        let view = View::take(client).await.map_err(|error| format!("{error:#}"))?;
        match view.overcommitted() {
            Some(fault) => Ok(Err(fault)),
            None => check(&view).map(|()| Ok(view)),
        }
    });
    match outcome.await? {
        Ok(view) => Ok(view),
        Err(fault) => bail!(fault),
    }
}

/// Fails unless the check passes all the time for this long.
pub async fn stays(
    client: &Client,
    what: &str,
    time: Duration,
    check: impl Fn(&View) -> Result<(), String>,
) -> Result<()> {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        let view = View::take(client).await?;
        if let Err(seen) = view.overcommitted().map_or_else(|| check(&view), Err) {
            bail!("no longer true: {what}. Seen: {seen}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// The UIDs of the running pods of a namespace.
#[must_use]
pub fn running_uids(view: &View, namespace: &str) -> BTreeSet<String> {
    view.running(namespace).map(|pod| pod.uid.clone()).collect()
}
