//! Shares of a GPU where the nodes offer something for them that kube-scheduler counts.

use std::time::Duration;

use anyhow::ensure;
use sluice::view::Teams;
use sluice_harness::World;

use crate::pods::explained;
use crate::support::{Job, SLUICE, complete, nodes, running};

/// One device that is sliced in two, and a team that owns it.
const TEAM: &str = "
apiVersion: sluice.dev/v1alpha1
kind: NodePool
metadata: {name: sliced}
spec:
  nodeSelector: {example.com/sliced: \"true\"}
  shares: {nvidia.com/gpu.shared: \"0.5\"}
---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: a}
spec:
  quotas:
  - pool: sliced
    guaranteed: {sluice.dev/gpu: 1}
---
apiVersion: v1
kind: Namespace
metadata:
  name: a
  labels: {sluice.dev/team: a}
---";

#[tokio::test(flavor = "multi_thread")]
async fn two_halves_share_a_device_and_count_as_one() {
    World::run("shares", SLUICE, 1, async |world| {
        let node = nodes(1, 2)
            .replace("nvidia.com/gpu:", "nvidia.com/gpu.shared:")
            .replace("  annotations:", "  labels: {example.com/sliced: \"true\"}\n  annotations:");
        world.apply(&format!("{node}{TEAM}")).await?;
        let half =
            |name: &str| Job::new("a", name).gpus(0).wishes("gpu-fraction", "0.5").wishes("pool", "sliced");
        world.kubectl.apply(&half("first").lasts(Duration::from_secs(12)).manifest()).await?;
        world.kubectl.apply(&half("second").manifest()).await?;
        running(world, "a", 2).await?;
        let asks = "jsonpath={.items[*].spec.containers[0].resources.limits.nvidia\\.com/gpu\\.shared}";
        let asked = world.kubectl.ok(&["get", "pods", "--namespace=a", "-o", asks]).await?;
        ensure!(asked == "1 1", "the pods ask for {asked:?}");
        let teams: Teams = serde_json::from_str(&world.replicas[0].get("/api/v1/teams").await?)?;
        let used = teams
            .teams
            .iter()
            .find(|row| row.pool == "sliced")
            .and_then(|row| row.used.get("sluice.dev/gpu"));
        ensure!(used.is_some_and(|used| used == "1"), "{teams:?}");
        // Asked for directly, a slice is the same half, and there is no third one.
        let direct = half("direct").manifest().replace("gpu-fraction: \"0.5\"", "time-limit: \"1h\"");
        let direct = direct.replace("limits: {}", "limits: {nvidia.com/gpu.shared: 1}");
        world.kubectl.apply(&direct).await?;
        explained(world, "a", "direct", "NoRoom").await?;
        // More than a slice is nothing that the pool offers.
        let large = half("large").manifest().replace("\"0.5\"", "\"0.7\"");
        let refused = world.kubectl.apply(&large).await;
        ensure!(
            refused.as_ref().is_err_and(
                |error| format!("{error:#}").contains("more than any share that pool sliced offers")
            ),
            "{refused:?}"
        );
        complete(world, "a", 1).await?;
        let what = "the slice asked for directly runs on the first one's place";
        let admitted = |view: &sluice_harness::View| match view.job("a", "direct") {
            Some(job) if job.admission.is_some() => Ok(()),
            _ => Err(view.summary("a")),
        };
        world.until(what, admitted).await?;
        running(world, "a", 2).await?;
        Ok(())
    })
    .await;
}
