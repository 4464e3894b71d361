//! What the account of Sluice may not do with its rights, and which accounts may put a namespace under a team.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_harness::{Kubectl, Outcome, User, World, eventually, patience};

use crate::support::{Job, SLUICE, nodes, running, team};

/// A namespace without a team, with a pod and a Job, and a Job that Sluice held before the label was taken off.
const FREE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: free}
---
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: free}
spec:
  containers: [{name: main, image: registry.example/serve}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: plain, namespace: free}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: registry.example/train}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: left, namespace: free, annotations: {sluice.dev/held: 'true'}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: registry.example/train}]
";

const EVICTION: &str =
    r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"plain","namespace":"free"}}"#;
const IMAGE: &str = r#"[{"op":"replace","path":"/spec/containers/0/image","value":"registry.example/evil"}]"#;
const RESUME: &str = r#"{"spec":{"suspend":false}}"#;
const NOTE: &str = r#"{"metadata":{"annotations":{"note":"x"}}}"#;

/// `carol` may edit namespaces; `dave` may besides use team a.
const PEOPLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: namespaces}
rules: [{apiGroups: [''], resources: [namespaces], verbs: [get, list, watch, create, update, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: namespaces}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: namespaces}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: carol}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: dave}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: team-a}
rules: [{apiGroups: [sluice.dev], resources: [teams], resourceNames: [a], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: team-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: team-a}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: dave}]
";

#[tokio::test(flavor = "multi_thread")]
async fn rights_end_where_the_policies_say() {
    World::run("confined", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 2), team("a", 1), team("b", 1))).await?;
        world.kubectl.apply(FREE).await?;
        world.kubectl.apply(PEOPLE).await?;
        world.kubectl.apply(&Job::new("a", "runs").manifest()).await?;
        // The replica itself works with these rights.
        running(world, "a", 1).await?;
        policies_apply(&world.kubectl).await?;
        the_account_of_sluice_is_confined(world).await?;
        only_who_may_use_a_team_moves_its_namespaces(&world.kubectl).await
    })
    .await;
}

/// The API server has loaded the policies.
async fn policies_apply(admin: &Kubectl) -> Result<()> {
    let label = ["label", "namespace", "free", "sluice.dev/team=b", "--dry-run=server", "--as=carol"];
    eventually("the policies apply", patience(), async || match admin.run(&label, None).await {
        Ok(outcome) if !outcome.success && outcome.stderr.contains("sluice-namespace-team") => Ok(()),
        Ok(outcome) => Err(format!("{}{}", outcome.stdout, outcome.stderr)),
        Err(error) => Err(format!("{error:#}")),
    })
    .await
}

fn denied(outcome: &Outcome, policy: &str, what: &str) -> Result<()> {
    ensure!(!outcome.success, "accepted: {what}: {}", outcome.stdout);
    let by = format!("ValidatingAdmissionPolicy '{policy}'");
    ensure!(outcome.stderr.contains(&by), "{what} is not refused by {policy}: {}", outcome.stderr);
    Ok(())
}

async fn the_account_of_sluice_is_confined(world: &World) -> Result<()> {
    let (admin, sluice) = (&world.kubectl, world.cluster.kubectl(User::Sluice));
    let evict = ["create", "--raw", "/api/v1/namespaces/free/pods/plain/eviction", "-f", "-"];
    for (what, arguments, input) in [
        ("an image", vec!["patch", "pod", "plain", "-n", "free", "--type=json", "-p", IMAGE], None),
        ("a deletion", vec!["delete", "pod", "plain", "-n", "free"], None),
        ("an eviction", evict.to_vec(), Some(EVICTION)),
        ("a start", vec!["patch", "job", "plain", "-n", "free", "-p", RESUME], None),
    ] {
        denied(&sluice.run(&arguments, input).await?, "sluice-confined", what)?;
    }
    // kubectl would read the status first, which the role does not allow.
    let pods: Api<Pod> = Api::namespaced(world.cluster.client(User::Sluice).await?, "free");
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let answer = pods.patch_status("plain", &PatchParams::default(), &failed).await;
    let refusal = answer.err().context("Sluice may fail a pod of a namespace without a team")?.to_string();
    ensure!(refusal.contains("'sluice-confined'"), "{refusal}");
    sluice.ok(&["patch", "job", "left", "-n", "free", "-p", NOTE]).await?;
    // No other account is judged.
    admin.ok(&["patch", "pod", "plain", "-n", "free", "-p", NOTE]).await?;
    admin.ok(&["patch", "pod", "plain", "-n", "free", "--type=json", "-p", IMAGE]).await?;

    let pod = admin.ok(&["get", "pods", "-n", "a", "-o", "jsonpath={.items[0].metadata.name}"]).await?;
    let outcome = sluice.run(&["patch", "pod", &pod, "-n", "a", "--type=json", "-p", IMAGE], None).await?;
    denied(&outcome, "sluice-confined-images", "an image in a team's namespace")?;
    sluice.ok(&["patch", "pod", &pod, "-n", "a", "-p", NOTE]).await?;

    // A Secret of the type of tokens would be a token that never expires.
    let token = r#"{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token","metadata":
        {"name":"token","namespace":"sluice-system","annotations":{"kubernetes.io/service-account.name":"sluice"}}}"#;
    let lease = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"other","namespace":"sluice-system"}}"#;
    for (what, object) in [("a Secret", token), ("a Lease", lease)] {
        let outcome = sluice.run(&["create", "-f", "-"], Some(object)).await?;
        denied(&outcome, "sluice-confined-names", what)?;
    }
    // Lost objects come back: the replica creates both again.
    for object in ["secret/sluice-certs", "lease/sluice"] {
        admin.ok(&["delete", object, "-n", "sluice-system"]).await?;
        eventually(&format!("{object} comes back"), patience(), async || {
            match admin.run(&["get", object, "-n", "sluice-system"], None).await {
                Ok(outcome) if outcome.success => Ok(()),
                Ok(outcome) => Err(outcome.stderr),
                Err(error) => Err(format!("{error:#}")),
            }
        })
        .await?;
    }
    // Of the webhook configurations, which no policy can guard, RBAC names those it may write.
    for (object, verb, may) in [
        ("mutatingwebhookconfigurations/sluice", "patch", true),
        ("mutatingwebhookconfigurations/sluice-kinds", "patch", true),
        ("validatingwebhookconfigurations/sluice-kinds", "patch", true),
        ("validatingwebhookconfigurations/sluice-kinds", "delete", false),
        ("mutatingwebhookconfigurations/other", "patch", false),
        ("mutatingwebhookconfigurations/sluice", "delete", false),
        ("validatingadmissionpolicies/sluice-confined", "patch", false),
        ("namespaces/free", "patch", false),
        ("secrets/other", "get", false),
        ("serviceaccounts/sluice", "impersonate", false),
    ] {
        let outcome = sluice.run(&["auth", "can-i", verb, object, "-n", "sluice-system"], None).await?;
        ensure!(outcome.success == may, "{verb} {object}: {}{}", outcome.stdout, outcome.stderr);
    }
    Ok(())
}

async fn only_who_may_use_a_team_moves_its_namespaces(admin: &Kubectl) -> Result<()> {
    const POLICY: &str = "sluice-namespace-team";
    let namespace = |team: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"mine","labels":{{{team}}}}}}}"#
        )
    };
    let under_a = namespace(r#""sluice.dev/team":"a""#);
    let create = async |user: &str, object: &str| admin.run(&["create", "-f", "-", user], Some(object)).await;
    let label = async |user: &str, label: &str| {
        admin.run(&["label", "namespace", "mine", "--overwrite", label, user], None).await
    };
    let (carol, dave) = ("--as=carol", "--as=dave");
    let fine = |outcome: Outcome, what: &str| -> Result<()> {
        ensure!(outcome.success, "{what}: {}", outcome.stderr);
        Ok(())
    };

    let refused = create(carol, &under_a).await?;
    denied(&refused, POLICY, "a new namespace of team a")?;
    ensure!(refused.stderr.contains("carol may not put namespace mine under team a"), "{}", refused.stderr);
    fine(create(carol, &namespace("")).await?, "a namespace without a team")?;
    denied(&label(carol, "sluice.dev/team=b").await?, POLICY, "team b")?;
    fine(label(carol, "sluice.dev/queue=x").await?, "a queue without a team means nothing")?;
    fine(label(carol, "colour=blue").await?, "another label")?;

    fine(label(dave, "sluice.dev/team=a").await?, "a team that dave may use")?;
    denied(&label(carol, "sluice.dev/queue=y").await?, POLICY, "the queue within the team")?;
    fine(label(dave, "sluice.dev/queue=y").await?, "the queue within dave's team")?;
    denied(&label(dave, "sluice.dev/team=b").await?, POLICY, "a move to a team that dave may not use")?;
    let refused = label(carol, "sluice.dev/team-").await?;
    denied(&refused, POLICY, "the way out of the quota")?;
    ensure!(
        refused.stderr.contains("carol may not take namespace mine away from team a"),
        "{}",
        refused.stderr
    );
    fine(label(carol, "colour=green").await?, "an update that leaves the team as it is")?;

    admin.ok(&["label", "namespace", "mine", "--overwrite", "sluice.dev/team=b"]).await?;
    denied(&label(dave, "sluice.dev/team=a").await?, POLICY, "a namespace of a team that dave may not use")?;
    // Deletion, and with it the removal of the finalizer, is no move.
    admin.ok(&["delete", "namespace", "mine", carol, "--timeout=60s"]).await?;

    fine(create(dave, &under_a).await?, "a new namespace of team a")?;
    fine(label(dave, "sluice.dev/team-").await?, "its owner takes it away again")
}
