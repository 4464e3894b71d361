//! The limits of a user's rights in a team's namespace, and proof that nothing changes elsewhere.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_harness::{User, World};

use crate::support::{Job, SLUICE, complete, nodes, queued, running, team};

/// Alice may edit every object in the team's namespace, and resize its pods.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice-edits, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: resize, namespace: a}
rules: [{apiGroups: [''], resources: [pods/resize], verbs: [get, patch, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice-resizes, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: resize}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
";

const GATED: &str = "
apiVersion: v1
kind: Pod
metadata: {name: gated, namespace: a}
spec:
  containers:
  - name: main
    image: registry.example/train
    resources: {requests: {cpu: '1'}, limits: {nvidia.com/gpu: 2}}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_edit_rights_cannot_bypass_the_queue() {
    World::run("bypass", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 2), team("a", 2))).await?;
        world.kubectl.apply(RIGHTS).await?;
        let alice = world.cluster.kubectl(User::Alice);
        alice.apply(&Job::new("a", "first").gpus(2).manifest()).await?;
        running(world, "a", 1).await?;
        alice.apply(&Job::new("a", "second").gpus(2).manifest()).await?;
        // The pod is held by its gate. It requests CPU, or the API server itself would refuse the resize.
        alice.apply(GATED).await?;
        queued(world, "a", 1).await?;

        let forged = r#"{"metadata":{"annotations":{"sluice.dev/admission":"{}"}}}"#;
        let unsuspend = r#"{"spec":{"suspend":false}}"#;
        let release = r#"{"metadata":{"annotations":{"sluice.dev/held":null}}}"#;
        let other_team = r#"{"metadata":{"labels":{"sluice.dev/team":"b"}}}"#;
        let resize = r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"4"}}}]}}"#;
        let job = |patch: &'static str| vec!["patch", "job", "second", "--type=merge", "-p", patch];
        for (what, mut arguments) in [
            ("unsuspends", job(unsuspend)),
            ("forges the record", job(forged)),
            ("removes the mark", job(release)),
            ("takes another team", job(other_team)),
            ("resizes a pod", vec!["patch", "pod", "gated", "--subresource=resize", "-p", resize]),
        ] {
            arguments.extend(["--namespace", "a"]);
            refused(&alice.refused(&arguments).await?, what)?;
        }

        let bound = "
apiVersion: v1
kind: Pod
metadata: {name: bound, namespace: a}
spec:
  nodeName: gpu-0
  containers: [{name: main, image: registry.example/train, resources: {limits: {nvidia.com/gpu: 2}}}]
";
        let forged = Job::new("a", "forged").manifest().replacen(
            "annotations: {}",
            r#"annotations: {sluice.dev/admission: "{}"}"#,
            1,
        );
        for (what, manifest) in [("names a node", bound), ("submits a forged record", forged.as_str())] {
            let outcome = alice.run(&["create", "-f", "-"], Some(manifest)).await?;
            ensure!(!outcome.success, "alice {what} without a refusal: {}", outcome.stdout);
            refused(&outcome.stderr, what)?;
        }

        let view = queued(world, "a", 1).await?;
        ensure!(view.running("a").count() == 1, "{}", view.summary("a"));
        Ok(())
    })
    .await;
}

/// The refusal comes from Sluice and is a full sentence.
fn refused(answer: &str, what: &str) -> Result<()> {
    let words = answer.split_whitespace().count();
    ensure!(
        answer.contains("denied") && answer.to_lowercase().contains("sluice") && words > 8,
        "alice {what} and only reads: {answer}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_without_the_label_sees_no_difference() {
    World::run("unlabelled", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 4), team("a", 4))).await?;
        world.kubectl.ok(&["create", "namespace", "free"]).await?;
        let job = Job::new("free", "plain").lasts(Duration::from_secs(1));
        world.kubectl.apply(&job.manifest()).await?;
        let view = complete(world, "free", 1).await?;
        let job = view.job("free", "plain").context("the Job does not exist")?;
        ensure!(job.state() == "complete" && job.failed_pods == 0, "{job:?}");

        // A pod that names its node is accepted too, and every user may resume a suspended Job.
        let bound = "
apiVersion: v1
kind: Pod
metadata: {name: bound, namespace: free}
spec:
  nodeName: gpu-0
  containers: [{name: main, image: registry.example/train}]
";
        world.kubectl.create(bound).await?;
        world.kubectl.apply(&Job::new("free", "own").spec("suspend: true").manifest()).await?;
        let release = ["patch", "job", "own", "--namespace=free", "-p", r#"{"spec":{"suspend":false}}"#];
        world.kubectl.ok(&release).await?;
        running(world, "free", 2).await?;

        let stored = world.kubectl.ok(&["get", "jobs,pods", "--namespace=free", "-o", "json"]).await?;
        let stored: serde_json::Value = serde_json::from_str(&stored)?;
        for object in stored["items"].as_array().into_iter().flatten() {
            let marks = [
                object["metadata"]["labels"].to_string(),
                object["spec"].to_string(),
                // The record of the last apply exists as well; it holds only the test's own text.
                object["metadata"]["annotations"].to_string().replace("simulate.sluice.dev", ""),
            ];
            let touched =
                marks.iter().any(|mark| mark.replace("simulate.sluice.dev", "").contains("sluice.dev"));
            ensure!(!touched, "Sluice has touched {}", object["metadata"]["name"]);
        }
        Ok(())
    })
    .await;
}
