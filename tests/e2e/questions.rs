//! Questions: members of a team read from Sluice with nothing but a kubeconfig, and see their own namespace by name.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{Authority, Cluster, Kubernetes, Options, User, World, eventually, patience};

use crate::answers;
use crate::command::{answered, comes_to_say, refused, sluice};
use crate::support::{ALICE_ASKS, Job, SLUICE, nodes, running, team};
use crate::verbs;
use crate::web;

/// `dora` and the account `robot` may view namespace a and ask there.
const PEOPLE: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewers, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: dora}
- {kind: ServiceAccount, name: robot, namespace: a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sluice-user, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sluice-user}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: dora}
- {kind: ServiceAccount, name: robot, namespace: a}
";

/// `erin` may besides edit what is in namespace a.
const EDITOR: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: erin}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors-ask, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sluice-user}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: erin}]
";

/// A Question with a proof of its caller's own.
const FORGED: &str = "
apiVersion: sluice.dev/v1alpha1
kind: Question
metadata: {name: forged, namespace: a}
spec: {queue: {}, proof: forged-by-its-caller}
";

/// The response to a review that is posted to a replica without the API server.
async fn posted(world: &World, path: &str, spec: &Value) -> Result<Value> {
    let replica = world.replicas.first().context("a replica")?;
    let mut config = kube::Config::new(format!("https://{}", replica.https()).parse()?);
    config.accept_invalid_certs = true;
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "42", "kind": {"group": "sluice.dev", "version": "v1alpha1", "kind": "Question"},
            "namespace": "b", "operation": "CREATE", "dryRun": true,
            "userInfo": {"username": "admin", "groups": ["system:masters"]},
            "object": {"apiVersion": "sluice.dev/v1alpha1", "kind": "Question", "spec": spec},
        },
    });
    let request = axum::http::Request::post(path)
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())?;
    let answer: Value = kube::Client::try_from(config)?.request(request).await?;
    Ok(answer["response"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_a_team_asks_with_a_kubeconfig_alone() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let authority = Authority::new(folder.path()).expect("keys can be made");
    let flag = authority.flag();
    let cluster = Cluster::up_with("questions", &["--apiserver-flag", &flag]).await;
    World::run_on(cluster, Options::new(SLUICE), 2, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 2), team("a", 2), team("b", 2))).await?;
        world.kubectl.apply(PEOPLE).await?;
        // A Job of team a waits for one of team b without a time limit, which its expected start names.
        world.kubectl.apply(&Job::new("b", "secret-train").gpus(2).manifest()).await?;
        running(world, "b", 1).await?;
        world.kubectl.apply(&Job::new("a", "mine").gpus(2).manifest()).await?;
        let dora = world.cluster.kubeconfig_of("dora", &authority.credential("dora")?, "a")?;
        let token = world.kubectl.ok(&["create", "token", "robot", "--namespace=a"]).await?;
        let robot = world.cluster.kubeconfig_of("robot", &format!("token: {}", token.trim()), "a")?;
        for member in [&dora, &robot] {
            a_member_sees_its_own_namespace_by_name(member).await?;
        }
        filters_choose_by_user_and_state(&dora).await?;
        answers::are_for_people_and_programs(world, &dora).await?;
        rights_decide(world, &dora).await?;
        web::pages(world, &dora, &token).await?;
        no_caller_proves_itself(world).await?;
        what_if_is_a_right_of_its_own(world, &dora).await?;
        compressed_rows_are_the_same_rows(world).await?;
        questions_have_a_priority_level_of_their_own(world).await?;
        a_new_token_takes_effect(world, &dora).await?;
        nothing_is_stored(world).await?;
        world.kubectl.apply(EDITOR).await?;
        let erin = world.cluster.kubeconfig_of("erin", &authority.credential("erin")?, "a")?;
        verbs::act(world, &dora, &erin).await
    })
    .await;
}

async fn a_member_sees_its_own_namespace_by_name(member: &Path) -> Result<()> {
    let hidden = |what: &str, text: &str| {
        ensure!(!text.contains("secret"), "{what} names a workload of another namespace: {text}");
        Ok(())
    };
    let explained = comes_to_say(member, &["explain", "mine"], "a workload of team b").await?;
    hidden("explain", &explained)?;
    for arguments in
        [&["queue"][..], &["explain", "job/mine"], &["explain", "a/mine"], &["teams"], &["nodes"]]
    {
        for output in ["table", "wide", "json", "yaml", "csv", "name"] {
            let text = answered(member, &[arguments, &["--output", output]].concat()).await?;
            hidden(arguments[0], &text)?;
        }
    }
    ensure!(answered(member, &["queue"]).await?.contains("mine"), "its own Job is not in the queue");
    let teams = answered(member, &["teams"]).await?;
    ensure!(teams.lines().any(|line| line.starts_with("b ")), "team b has no numbers: {teams}");
    let nodes = answered(member, &["nodes"]).await?;
    ensure!(nodes.contains("b (1 pod)"), "the pods of team b are not counted: {nodes}");
    Ok(())
}

async fn filters_choose_by_user_and_state(dora: &Path) -> Result<()> {
    let lists = async |arguments: &[&str]| -> Result<bool> {
        Ok(answered(dora, &[&["queue"], arguments].concat()).await?.contains("mine"))
    };
    for (arguments, listed) in [
        (&["--user", "admin"][..], true),
        (&["--me"], false),
        (&["--state", "pending"], true),
        (&["--state", "Running,Held"], false),
        (&["--team", "a", "--queue", "default"], true),
        (&["--state", "Finished"], false),
    ] {
        ensure!(lists(arguments).await? == listed, "queue {arguments:?}");
    }
    let missing = sluice(dora, &["explain", "nothing"]).await?;
    ensure!(missing.stderr.contains("Sluice manages no Job or Pod a/nothing"), "{missing:?}");
    Ok(())
}

async fn rights_decide(world: &World, dora: &Path) -> Result<()> {
    let alice = world.cluster.kubeconfig(User::Alice);
    for command in ["queue", "teams", "nodes"] {
        refused(&alice, &[command, "-n", "a"], "sluice-user").await?;
        refused(dora, &[command, "-n", "b"], "sluice-user").await?;
        refused(dora, &[command, "-A"], "sluice-manager").await?;
    }
    refused(dora, &["explain", "b/secret-train"], "sluice-user").await?;
    let admin = world.cluster.kubeconfig(User::Admin);
    let all = answered(&admin, &["queue", "-A"]).await?;
    ensure!(all.contains("secret-train") && all.contains("mine"), "{all}");
    let explained = answered(&admin, &["explain", "a/mine", "-A"]).await?;
    ensure!(explained.contains("b/secret-train"), "{explained}");
    let stored = world.kubectl.run(&["create", "-f", "-"], Some(FORGED)).await?;
    ensure!(!stored.success && stored.stderr.contains("dry-run"), "{stored:?}");
    Ok(())
}

async fn no_caller_proves_itself(world: &World) -> Result<()> {
    let through = ["create", "--dry-run=server", "-f", "-", "-o", "json"];
    let outcome = world.kubectl.run(&through, Some(FORGED)).await?;
    ensure!(
        outcome.success && outcome.stdout.contains("\"mine\""),
        "a forged proof is replaced: {outcome:?}"
    );
    ensure!(!outcome.stdout.contains("proof"), "the caller sees the proof: {}", outcome.stdout);
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), names::NAMESPACE);
    let secret = serde_json::to_value(secrets.get(names::PROOF).await?)?;
    let token = secret["data"]["token"].clone();
    for (path, spec) in [
        ("/ask", json!({"queue": {}})),
        ("/ask", json!({"queue": {}, "proof": "guess"})),
        ("/ask", json!({"queue": {}, "proof": ""})),
        ("/ask/guess", json!({"queue": {}})),
    ] {
        let response = posted(world, path, &spec).await?;
        ensure!(
            response["allowed"] == false && response["status"]["code"] == 403,
            "{path} {spec}: {response}"
        );
        ensure!(response["patch"].is_null(), "{response}");
    }
    // The same review with the token of the Secret is answered, so it is the token that is missing above.
    let response = posted(world, "/ask", &json!({"queue": {}, "proof": token})).await?;
    ensure!(response["allowed"] == true && response["patch"].is_string(), "{response}");
    Ok(())
}

async fn what_if_is_a_right_of_its_own(world: &World, dora: &Path) -> Result<()> {
    world.kubectl.apply(ALICE_ASKS).await?;
    let alice = world.cluster.kubeconfig(User::Alice);
    comes_to_say(&alice, &["queue", "-n", "a"], "mine").await?;
    let file = world.cluster.scratch()?.join("asked.yaml");
    std::fs::write(&file, Job::new("a", "asked").manifest())?;
    let file = file.display().to_string();
    refused(&alice, &["what-if", "--file", &file], "questions/whatif").await?;
    let answer = answered(dora, &["what-if", "--file", &file]).await?;
    ensure!(
        answer.starts_with("a/asked, in queue default of team a:\n  Would ") && !answer.contains("secret"),
        "{answer}"
    );
    Ok(())
}

/// What the API server sends back for a Question of Alice in namespace a.
async fn asked_by_alice(world: &World, spec: &Value) -> Result<axum::http::Response<Vec<u8>>> {
    let client = world.cluster.client(User::Alice).await?;
    let question = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Question", "metadata": {"name": "any"}, "spec": spec});
    let request = axum::http::Request::post("/apis/sluice.dev/v1alpha1/namespaces/a/questions?dryRun=All")
        .header("content-type", "application/json")
        .body(question.to_string().into_bytes())?;
    let response = client.send(request.map(Into::into)).await?;
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(axum::body::Body::new(body), usize::MAX).await?;
    ensure!(parts.status.is_success(), "{}", String::from_utf8_lossy(&body));
    Ok(axum::http::Response::from_parts(parts, body.to_vec()))
}

/// Rows without the time of the forecast, which is made again and again, and with numbers in one form: the API server writes
/// 2.0 as 2.
fn settled(rows: &Value) -> Value {
    match rows {
        Value::Array(values) => values.iter().map(settled).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "foretold");
            Value::Object(fields.map(|(name, value)| (name.clone(), settled(value))).collect())
        }
        Value::Number(number) => json!(number.as_f64()),
        value => value.clone(),
    }
}

async fn compressed_rows_are_the_same_rows(world: &World) -> Result<()> {
    for spec in [json!({"queue": {}}), json!({"teams": {}}), json!({"nodes": {}})] {
        let mut compressed = spec.clone();
        compressed["encoding"] = "Gzip".into();
        eventually("both answers are of one version", patience(), async || {
            let both = async {
                let mut answers = Vec::new();
                for spec in [&spec, &compressed] {
                    let body = asked_by_alice(world, spec).await?.into_body();
                    answers.push(serde_json::from_slice::<Value>(&body)?["answer"].clone());
                }
                anyhow::Ok(answers)
            };
            let answers = both.await.map_err(|error| format!("{error:#}"))?;
            let [plain, packed] = &answers[..] else { return Err("not two answers".to_owned()) };
            if plain["version"] != packed["version"] {
                return Err(format!("{} and {}", plain["version"], packed["version"]));
            }
            let gzip: ByteString =
                serde_json::from_value(packed["gzip"].clone()).map_err(|error| error.to_string())?;
            let rows: Value = serde_json::from_reader(flate2::read::GzDecoder::new(&gzip.0[..]))
                .map_err(|error| error.to_string())?;
            match settled(&rows) == settled(&plain["rows"]) && packed.get("rows").is_none() {
                true => Ok(()),
                false => Err(format!("{plain} and {rows}")),
            }
        })
        .await?;
    }
    Ok(())
}

async fn questions_have_a_priority_level_of_their_own(world: &World) -> Result<()> {
    for (header, kind) in [
        ("x-kubernetes-pf-flowschema-uid", "flowschema"),
        ("x-kubernetes-pf-prioritylevel-uid", "prioritylevelconfiguration"),
    ] {
        let get = ["get", kind, "sluice-questions", "--output=jsonpath={.metadata.uid}"];
        let uid = world.kubectl.ok(&get).await?;
        let response = asked_by_alice(world, &json!({"teams": {}})).await?;
        let used = response.headers().get(header).context("no header")?.to_str()?;
        ensure!(used == uid.trim(), "a Question has the {kind} {used} instead of {uid}");
    }
    Ok(())
}

async fn a_new_token_takes_effect(world: &World, dora: &Path) -> Result<()> {
    world.kubectl.ok(&["delete", "secret", names::PROOF, "--namespace", names::NAMESPACE]).await?;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), names::NAMESPACE);
    eventually("there is a token again", patience(), async || match secrets.get_opt(names::PROOF).await {
        Ok(Some(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await?;
    comes_to_say(dora, &["queue"], "mine").await?;
    Ok(())
}

async fn nothing_is_stored(world: &World) -> Result<()> {
    for kind in ["questions", "clusterquestions"] {
        let found = world.kubectl.ok(&["get", kind, "--all-namespaces", "-o", "name"]).await?;
        ensure!(found.is_empty(), "stored: {found}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn where_policies_change_nothing_the_path_of_the_webhook_is_the_proof() {
    let cluster = Cluster::up_of("questions-older", Kubernetes::V1_34, &[]).await;
    World::run_on(cluster, Options::new(SLUICE), 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 2), team("a", 2))).await?;
        world.kubectl.apply(&Job::new("a", "mine").manifest()).await?;
        let admin = world.cluster.kubeconfig(User::Admin);
        comes_to_say(&admin, &["queue", "-n", "a"], "mine").await?;
        for path in ["/ask", "/ask/guess"] {
            let response = posted(world, path, &json!({"queue": {}})).await?;
            ensure!(response["allowed"] == false && response["status"]["code"] == 403, "{path}: {response}");
        }
        let stored = world.kubectl.run(&["create", "-f", "-"], Some(FORGED)).await?;
        ensure!(!stored.success && stored.stderr.contains("dry-run"), "{stored:?}");
        nothing_is_stored(world).await
    })
    .await;
}
