//! Endpoints of Teams are notified of what happens to workloads: once each, past failures, and whatever other endpoints do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::post;
use axum_server::tls_rustls::RustlsConfig;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use sluice_harness::{Options, World, eventually, patience};

use crate::support::{Job, SLUICE, nodes, queued, running, team, team_of};
use crate::teams;

const TOKEN: &str = "token-of-the-events";
const CHAT: &str = "/chat/secret-of-the-chat";

/// A request that the receiver has got.
#[derive(Clone, Debug)]
struct Received {
    path: String,
    headers: HeaderMap,
    body: Value,
    answer: u16,
}

/// A receiver of notifications with a certificate of its own authority.
struct Receiver {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// Starts it, and writes its authority to a file. The first requests for events fail, and those to `/hang` get no answer.
    async fn start(authority: &Path) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(authority, params.self_signed(&key)?.pem())?;
        let own = KeyPair::generate()?;
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()])?
            .signed_by(&own, &Issuer::new(params, key))?;
        let tls = RustlsConfig::from_pem(leaf.pem().into_bytes(), own.serialize_pem().into_bytes()).await?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let routes = Router::new().fallback(post(take)).with_state(Arc::clone(&requests));
        let server = axum_server::from_tcp_rustls(listener, tls)?.serve(routes.into_make_service());
        tokio::spawn(server);
        Ok(Self { address, requests })
    }

    fn requests(&self) -> Vec<Received> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The accepted events, by transition and workload.
    fn events(&self) -> BTreeMap<(String, String), Vec<Value>> {
        let mut events: BTreeMap<_, Vec<Value>> = BTreeMap::new();
        for got in self.requests().into_iter().filter(|got| got.path == "/events" && got.answer == 204) {
            let text = |field: &str| got.body["data"][field].as_str().unwrap_or_default().to_owned();
            events.entry((text("transition"), text("name"))).or_default().push(got.body);
        }
        events
    }

    async fn until(&self, transition: &str, name: &str) -> Result<Value> {
        eventually(&format!("{transition} of {name}"), patience(), async || {
            let events = self.events();
            let found = events.get(&(transition.to_owned(), name.to_owned()));
            found.and_then(|events| events.first().cloned()).ok_or_else(|| format!("{:?}", events.keys()))
        })
        .await
    }
}

async fn take(
    State(requests): State<Arc<Mutex<Vec<Received>>>>,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    let path = uri.path().to_owned();
    let status = {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        let before = requests.iter().filter(|got: &&Received| got.path == path).count();
        let status = if path == "/events" && before < 2 { 503 } else { 204 };
        let body = serde_json::from_str(&body).unwrap_or_default();
        requests.push(Received { path: path.clone(), headers, body, answer: status });
        status
    };
    if path == "/hang" {
        std::future::pending::<()>().await;
    }
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_a_team_are_notified_once_of_each_transition() -> Result<()> {
    let files = tempfile::tempdir()?;
    let (authority, secrets) = (files.path().join("ca.pem"), files.path().join("secrets"));
    std::fs::create_dir(&secrets)?;
    let receiver = Receiver::start(&authority).await?;
    std::fs::write(secrets.join("a.events"), TOKEN)?;
    std::fs::write(secrets.join("a.chat"), format!("https://{}{CHAT}\n", receiver.address))?;
    let flags = [("--notify-ca", &authority), ("--notify-secrets", &secrets)];
    let flags = flags.iter().map(|(flag, path)| format!("{flag}={}", path.display())).collect();
    let options = Options { flags, ..Options::new(SLUICE) };
    World::run_with("notifications", options, 2, async |world| {
        let url = format!("https://{}", receiver.address);
        let notify = format!(
            "notify: [{{url: '{url}/events', secretRef: events, transitions: [Started, Evicted, Failed, WaitingTooLong], \
             waitingLongerThan: 3s}}, {{secretRef: chat, form: Slack, transitions: [Started, Evicted]}}, \
             {{url: '{url}/hang', transitions: [Started]}}, {{url: '{url}/none', transitions: [Started], users: [mallory]}}]"
        );
        let quota = "quotas: [{guaranteed: {nvidia.com/gpu: 1}}]";
        world.apply(&format!("{}{}{}", nodes(1, 2), team_of("a", &[quota, &notify]), team("b", 1))).await?;
        transitions(world, &receiver).await?;
        secrets_are_secret(world, &receiver)?;
        takeover(world, &receiver).await?;
        teams::say_what_cannot_be_right(world).await?;
        teams::show_usage(world).await
    })
    .await;
    Ok(())
}

/// Two Jobs of team a start, the second on what team b lends; a third waits, another can never start, and b reclaims.
async fn transitions(world: &World, receiver: &Receiver) -> Result<()> {
    world.kubectl.apply(&Job::new("a", "one").manifest()).await?;
    running(world, "a", 1).await?;
    world.kubectl.apply(&Job::new("a", "two").manifest()).await?;
    running(world, "a", 2).await?;
    world.kubectl.apply(&Job::new("a", "three").manifest()).await?;
    world.kubectl.apply(&Job::new("a", "never").gpus(50).manifest()).await?;
    let event = receiver.until("Started", "one").await?;
    for (attribute, value) in
        [("specversion", "1.0"), ("type", "dev.sluice.workload.started"), ("subject", "a/one")]
    {
        ensure!(event[attribute] == value, "{event}");
    }
    receiver.until("Started", "two").await?;
    let waits = receiver.until("WaitingTooLong", "three").await?;
    ensure!(waits["data"]["message"].as_str().is_some_and(|text| text.contains("longer than 3s")), "{waits}");
    let never = receiver.until("Failed", "never").await?;
    ensure!(never["data"]["reason"] == "NoNodeFits", "{never}");
    world.kubectl.apply(&Job::new("b", "owner").manifest()).await?;
    let evicted = receiver.until("Evicted", "two").await?;
    let text = evicted.to_string();
    ensure!(text.contains("team b") && !text.contains("b/owner"), "{text}");
    let list =
        ["get", "events", "-n", "a", "--field-selector=reason=Evicted", "-o", "jsonpath={.items[*].message}"];
    eventually("an Event that names the team and not the Job", patience(), async || {
        match world.kubectl.ok(&list).await {
            Ok(event) if event.contains("team b") && !event.contains("b/owner") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    eventually("three texts", patience(), async || {
        let texts = receiver.requests().into_iter().filter(|got| got.path == CHAT);
        let lines: Vec<String> = texts
            .flat_map(|got| {
                got.body["text"].as_str().unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        if lines.len() == 3 && lines[2].starts_with("Job a/two of ") {
            Ok(())
        } else {
            Err(format!("{lines:?}"))
        }
    })
    .await
}

/// The token goes to its endpoint alone, and no secret into the log.
fn secrets_are_secret(world: &World, receiver: &Receiver) -> Result<()> {
    let requests = receiver.requests();
    for got in &requests {
        let token = got.headers.get("authorization").and_then(|value| value.to_str().ok());
        let expected = (got.path == "/events").then(|| format!("Bearer {TOKEN}"));
        ensure!(token == expected.as_deref(), "{got:?}");
        ensure!(got.path != "/none", "a filter by user lets it through: {got:?}");
    }
    ensure!(
        requests.iter().any(|got| got.path == "/hang"),
        "nothing was sent to the endpoint without an answer"
    );
    for replica in &world.replicas {
        let log = std::fs::read_to_string(replica.log())?;
        ensure!(!log.contains(TOKEN) && !log.contains(CHAT), "a secret is in {}", replica.log().display());
    }
    Ok(())
}

/// The leader is killed: the next one notifies of what it decides, and repeats nothing of what was decided before.
async fn takeover(world: &mut World, receiver: &Receiver) -> Result<()> {
    let before = receiver.events();
    let leader = world.leader().await?;
    world.replicas[leader].kill().await?;
    eventually("the other replica leads", patience(), async || match world.leader().await {
        Ok(next) if next != leader => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await?;
    world.kubectl.ok(&["delete", "job", "owner", "-n", "b"]).await?;
    running(world, "a", 2).await?;
    queued(world, "a", 2).await?;
    eventually("another one started", patience(), async || {
        let starts = |events: &BTreeMap<(String, String), Vec<Value>>| -> usize {
            events
                .iter()
                .filter(|((transition, _), _)| transition == "Started")
                .map(|(_, all)| all.len())
                .sum()
        };
        let [was, is] = [starts(&before), starts(&receiver.events())];
        if is == was + 1 { Ok(()) } else { Err(format!("{was}, then {is}")) }
    })
    .await?;
    for ((transition, name), events) in receiver.events() {
        let ids: Vec<&str> = events.iter().filter_map(|event| event["id"].as_str()).collect();
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        // What happened just before the end of the leader may be sent again, with the same ID.
        let may_repeat = transition == "WaitingTooLong" || transition == "Failed";
        ensure!(
            ids.len() == distinct.len() || may_repeat && ids.len() <= 2,
            "{transition} of {name}: {ids:?}"
        );
    }
    let metrics = world.replicas[1 - leader].get("/metrics").await?;
    let delivered =
        metrics.lines().find(|line| line.contains(r#"sluice_notifications_total{outcome="delivered"}"#));
    let delivered = delivered.and_then(|line| line.rsplit(' ').next()).context("there is no such metric")?;
    ensure!(delivered.parse::<u64>()? >= 1, "{delivered}");
    Ok(())
}
