//! Carries out the faults of a plan.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{JobView, Kubectl, Options, PodView, Service, Sluice, User, View, World};

use crate::books::Observer;
use crate::load;
use crate::plan::Fault;
use crate::take_over::TakeOvers;

/// How long the two ends of a fault are apart.
const APART: Duration = Duration::from_millis(1_500);

/// The namespaces that change their team; each has the name of its first team.
const TEAMS: [&str; 3] = ["a", "b", "c"];

/// The library that gives a process another time of day, of the package faketime.
fn faketime() -> String {
    format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH)
}

/// The environment that makes the clock of a replica up to 8 s wrong. Its timers stay right.
fn skewed(pick: u64) -> Vec<(String, String)> {
    let seconds = ["-8s", "-2s", "+2s", "+8s"][chosen(pick >> 8, 4)];
    let library = faketime();
    let variables = [("LD_PRELOAD", &*library), ("FAKETIME", seconds), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// The cluster under faults.
pub struct Faults<'w> {
    pub world: &'w mut World,
    /// Between the replicas and the API server.
    pub api_server: Service,
    pub alice: Kubectl,
    pub take_overs: TakeOvers,
    /// Nodes that are down, cordoned or deleted.
    lost: Vec<String>,
}

impl<'w> Faults<'w> {
    /// Starts two replicas that reach the API server by a connection which can be cut.
    pub async fn new(world: &'w mut World) -> Result<Self> {
        ensure!(Path::new(&faketime()).exists(), "{} is missing: install faketime", faketime());
        let api_server = Service::start().await?;
        let kubeconfig = std::fs::read_to_string(world.cluster.kubeconfig(User::Sluice))?;
        let (_, server) = kubeconfig.split_once("https://").context("a server in the kubeconfig")?;
        let server: String =
            server.chars().take_while(|one| one.is_ascii_digit() || ".:".contains(*one)).collect();
        api_server.add(server.parse::<SocketAddr>()?);
        let kubeconfig = kubeconfig.replace(&format!("https://{server}"), &api_server.url());
        let path = world.cluster.scratch()?.join("cut.kubeconfig");
        std::fs::write(&path, kubeconfig)?;
        world.options.kubeconfig = Some(path);
        for _ in 0..2 {
            world.start_replica().await?;
        }
        sluice_harness::webhook_answers(&world.cluster).await?;
        let alice = world.cluster.kubectl(User::Alice);
        let take_overs = TakeOvers::new(world.client.clone());
        Ok(Self { world, api_server, alice, take_overs, lost: Vec::new() })
    }

    /// A reader of the API server's objects.
    pub fn observer(&self) -> Observer {
        Observer { kubectl: self.world.kubectl.clone(), client: self.world.client.clone() }
    }

    /// Carries out one fault. A step that Sluice or the API server refuses is no error.
    pub async fn inject(&mut self, fault: Fault, pick: u64) -> Result<()> {
        match fault {
            Fault::KillLeader
            | Fault::KillStandby
            | Fault::StopReplica
            | Fault::FreezeReplica
            | Fault::SkewClock => self.disturb_replica(fault, pick).await,
            Fault::MoveNamespace => {
                let [namespace, team] = [pick, pick >> 8].map(|pick| TEAMS[chosen(pick, TEAMS.len())]);
                self.move_namespace(namespace, team).await
            }
            Fault::RestartApiServer => self.world.cluster.restart("kube-apiserver").await,
            Fault::RestartEtcd => self.world.cluster.restart("etcd").await,
            Fault::RestartControllers => self.world.cluster.restart("kube-controller-manager").await,
            Fault::RestartScheduler => self.world.cluster.restart("kube-scheduler").await,
            Fault::CutWatches => {
                self.api_server.cut();
                Ok(())
            }
            Fault::WebhookUnreachable => {
                let replicas = self.world.service.replace(Vec::new());
                self.world.service.cut();
                tokio::time::sleep(APART).await;
                self.world.service.replace(replicas);
                Ok(())
            }
            Fault::NodeDies | Fault::NodeIsDeleted | Fault::Cordon if self.lost.len() >= 2 => {
                self.heal_node().await
            }
            Fault::NodeDies | Fault::NodeIsDeleted | Fault::Cordon => self.lose_node(fault, pick).await,
            Fault::NodeComesBack => self.heal_node().await,
            Fault::EditGuarantee | Fault::EditLimit | Fault::EditQueue | Fault::DeleteTeam => {
                self.edit_team(fault, pick).await
            }
            _ => self.act_as_user(fault, pick).await,
        }
    }

    async fn disturb_replica(&mut self, fault: Fault, pick: u64) -> Result<()> {
        let leader = self.take_overs.leader().await;
        let leads = |replica: &Sluice| Some(replica.identity()) == leader.as_deref();
        let leader = self.world.replicas.iter().position(leads).unwrap_or(0);
        let index = match fault {
            Fault::KillLeader => leader,
            Fault::KillStandby => 1 - leader,
            _ => usize::from(pick % 2 == 1),
        };
        if index == leader {
            self.take_overs.watch();
        }
        match fault {
            Fault::FreezeReplica => {
                self.world.replicas[index].signal("STOP").await?;
                tokio::time::sleep(Duration::from_millis(500 + pick % 8_000)).await;
                return self.world.replicas[index].signal("CONT").await;
            }
            Fault::StopReplica => self.world.replicas[index].stop().await?,
            _ => self.world.replicas[index].kill().await?,
        }
        tokio::time::sleep(Duration::from_millis(pick % 1_500)).await;
        let clock = if fault == Fault::SkewClock { skewed(pick) } else { Vec::new() };
        self.start_again(index, clock)
    }

    /// Starts a replica again at its addresses, without waiting for it.
    fn start_again(&mut self, index: usize, environment: Vec<(String, String)>) -> Result<()> {
        let old = &self.world.replicas[index];
        let addresses = Some([old.https(), old.http()]);
        let identity = old.identity().to_owned();
        let options = Options { identity, addresses, environment, ..self.world.options.clone() };
        self.world.replicas[index] = Sluice::spawn(&self.world.cluster, &options)?;
        Ok(())
    }

    async fn move_namespace(&self, namespace: &str, team: &str) -> Result<()> {
        let label = format!("{}={team}", names::TEAM);
        self.admin(&["label", "namespace", namespace, &label, "--overwrite"]).await
    }

    async fn lose_node(&mut self, fault: Fault, pick: u64) -> Result<()> {
        let name = format!("gpu-{}", chosen(pick, load::NODES));
        if self.lost.contains(&name) {
            return Ok(());
        }
        self.lost.push(name.clone());
        match fault {
            Fault::NodeDies => {
                self.admin(&["annotate", "node", &name, "simulate.sluice.dev/down=true"]).await
            }
            Fault::NodeIsDeleted => self.admin(&["delete", "node", &name]).await,
            _ => self.admin(&["cordon", &name]).await,
        }
    }

    /// The node that was lost first comes back.
    async fn heal_node(&mut self) -> Result<()> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let name = self.lost.remove(0);
        let node = load::node(&name).to_string();
        let _ = self.world.kubectl.run(&["create", "-f", "-"], Some(&node)).await?;
        self.admin(&["annotate", "node", &name, "simulate.sluice.dev/down-"]).await?;
        self.admin(&["uncordon", &name]).await
    }

    async fn edit_team(&mut self, fault: Fault, pick: u64) -> Result<()> {
        let teams = load::teams();
        let (name, mut team) = teams.into_iter().nth(chosen(pick, 4)).context("a team")?;
        let change = i64::try_from(pick >> 8 & 7)? - 3;
        match fault {
            Fault::EditGuarantee => team.guarantee = (team.guarantee + change).max(0),
            Fault::EditLimit => team.limit = Some((team.limit.unwrap_or(12) + change).max(team.guarantee)),
            Fault::DeleteTeam => {
                self.admin(&["delete", "team", &name, "--wait=false"]).await?;
                tokio::time::sleep(APART).await;
            }
            _ => {}
        }
        let mut object = load::team(&name, &team);
        if fault == Fault::EditQueue {
            let limit = json!({"nvidia.com/gpu": 2 + (pick >> 8 & 3)});
            object["spec"]["queues"][0]["limit"] = limit;
        }
        self.apply(&object).await
    }

    async fn act_as_user(&self, fault: Fault, pick: u64) -> Result<()> {
        let Ok(view) = View::take(&self.world.client).await else { return Ok(()) };
        let of_pods = matches!(
            fault,
            Fault::UserDeletesPod | Fault::UserForcesPod | Fault::UserRemovesGates | Fault::UserDetachesPod
        );
        let (kind, namespace, name) = if of_pods {
            let pods: Vec<&PodView> = view.pods.iter().filter(|pod| managed(&pod.namespace)).collect();
            let Some(pod) = pods.get(chosen(pick, pods.len())) else { return Ok(()) };
            ("pod", pod.namespace.clone(), pod.name.clone())
        } else {
            let open = |job: &&JobView| managed(&job.namespace) && !job.complete && !job.failed;
            let fits = |job: &&JobView| match fault {
                Fault::UserResumes => job.suspended && !job.held,
                Fault::UserResumesWhileStopping => job.state() == "leaving",
                _ => true,
            };
            let jobs: Vec<&JobView> = view.jobs.iter().filter(open).filter(fits).collect();
            let Some(job) = jobs.get(chosen(pick, jobs.len())) else { return Ok(()) };
            ("job", job.namespace.clone(), job.name.clone())
        };
        let merge = |patch: Value| vec!["--type=merge".to_owned(), "-p".to_owned(), patch.to_string()];
        let spec = |field: &str, value: Value| ("patch", merge(json!({"spec": {field: value}})));
        let meta =
            |part: &str, key: &str, value: Value| ("patch", merge(json!({"metadata": {part: {key: value}}})));
        let (verb, rest) = match fault {
            Fault::UserDeletes | Fault::UserDeletesPod => ("delete", vec!["--wait=false".to_owned()]),
            Fault::UserOrphans => ("delete", vec!["--cascade=orphan".to_owned(), "--wait=false".to_owned()]),
            Fault::UserForcesPod => ("delete", vec!["--force".to_owned(), "--grace-period=0".to_owned()]),
            Fault::UserSuspends => spec("suspend", json!(true)),
            Fault::UserResumes | Fault::UserResumesWhileStopping => spec("suspend", json!(false)),
            Fault::UserEditsParallelism => spec("parallelism", json!(pick >> 8 & 3)),
            Fault::UserEditsRecord => meta("annotations", "sluice.dev/admission", Value::Null),
            Fault::UserEditsTeamLabel => meta("labels", "sluice.dev/team", json!("c")),
            Fault::UserRemovesGates => spec("schedulingGates", Value::Null),
            Fault::UserDetachesPod => (
                "patch",
                merge(json!({"metadata": {"ownerReferences": Value::Null,
                "labels": {"batch.kubernetes.io/job-name": "other", "controller-uid": "0",
                    "batch.kubernetes.io/controller-uid": "0", "job-name": "other"}}})),
            ),
            Fault::UserSetsDeadline => spec("activeDeadlineSeconds", json!(1 + (pick >> 8 & 15))),
            Fault::UserAddsFinalizer => {
                ("patch", merge(json!({"metadata": {"finalizers": ["example.com/keep"]}})))
            }
            Fault::UserBindsPod => return self.bind_pod(&namespace, pick).await,
            other => bail!("{other:?} is no act of a user"),
        };
        let mut arguments = vec![verb, kind, &name, "-n", &namespace];
        arguments.extend(rest.iter().map(String::as_str));
        // Policies refuse many of these; what they let through, the laws must bear.
        let _ = self.alice.run(&arguments, None).await?;
        if fault == Fault::UserAddsFinalizer {
            tokio::time::sleep(APART).await;
            self.admin(&[
                "patch",
                "job",
                &name,
                "-n",
                &namespace,
                "--type=merge",
                "-p",
                r#"{"metadata":{"finalizers":null}}"#,
            ])
            .await?;
        }
        Ok(())
    }

    /// A pod of the user's own with a node in it.
    async fn bind_pod(&self, namespace: &str, pick: u64) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "bound-", "namespace": namespace},
            "spec": {"nodeName": format!("gpu-{}", chosen(pick, load::NODES)), "containers": [
                {"name": "main", "image": "registry.example/x", "resources": {"limits": {"nvidia.com/gpu": 4}}},
            ]},
        });
        self.alice.run(&["create", "-f", "-"], Some(&pod.to_string())).await.map(drop)
    }

    /// All is as it was: every component, replica, node and team.
    pub async fn heal(&mut self) -> Result<()> {
        while !self.lost.is_empty() {
            self.heal_node().await?;
        }
        for (name, team) in load::teams() {
            self.apply(&load::team(&name, &team)).await?;
        }
        for namespace in TEAMS {
            self.move_namespace(namespace, namespace).await?;
        }
        for index in 0..self.world.replicas.len() {
            if !self.world.replicas[index].runs() {
                self.start_again(index, Vec::new())?;
            }
            self.world.replicas[index].ready().await?;
        }
        Ok(())
    }

    /// Applies an object as the admin. While the API server restarts, again until it answers.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        let text = object.to_string();
        sluice_harness::eventually("the API server takes an object", Duration::from_secs(60), async || {
            self.world.kubectl.apply(&text).await.map(drop).map_err(|error| format!("{error:#}"))
        })
        .await
    }

    async fn admin(&self, arguments: &[&str]) -> Result<()> {
        // An object may have gone meanwhile.
        self.world.kubectl.run(arguments, None).await.map(drop)
    }
}

/// Whether a namespace is a team's.
fn managed(namespace: &str) -> bool {
    matches!(namespace, "a" | "b" | "c")
}

/// An index below `count`; 0 if there is none.
fn chosen(pick: u64, count: usize) -> usize {
    usize::try_from(pick % u64::try_from(count.max(1)).unwrap_or(1)).unwrap_or(0)
}
