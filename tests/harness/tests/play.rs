//! The harness on a control plane without Sluice.

use std::time::{Duration, Instant};

use anyhow::Result;
use sluice::scenario::Scenario;
use sluice_harness::{Cluster, Play, User, View, patience, until};

const SCENARIO: &str = "
apiVersion: v1
kind: Node
metadata: {name: n, annotations: {simulate.sluice.dev/count: '2', simulate.sluice.dev/cordon-at: 4s}}
status:
  capacity: {cpu: '4', nvidia.com/gpu: '2'}
  allocatable: {cpu: '4', nvidia.com/gpu: '2'}
---
apiVersion: batch/v1
kind: Job
metadata: {name: short, annotations: {simulate.sluice.dev/duration: 2s, simulate.sluice.dev/count: '3'}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: registry.example/x, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: long, annotations: {simulate.sluice.dev/delete-at: 6s}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: registry.example/x, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: late, annotations: {simulate.sluice.dev/at: 5s}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: registry.example/x, resources: {limits: {nvidia.com/gpu: 1}}}]
";

#[tokio::test(flavor = "multi_thread")]
async fn a_scenario_is_played_at_its_times() -> Result<()> {
    let cluster = Cluster::up("play").await?;
    let client = cluster.client(User::Admin).await?;
    let mut play = Play::new(&cluster, Scenario::parse([("test", SCENARIO)])?, 2.0).await?;
    let began = Instant::now();
    play.next().await?;
    let view =
        until(&client, "all four run, two on a node", patience(), |view| match view.load().as_slice() {
            [2, 2] => Ok(()),
            load => Err(format!("{load:?}; {}", view.summary("default"))),
        })
        .await?;
    assert_eq!(view.pods.iter().filter(|pod| pod.gpus == 1).count(), 4);
    play.all().await?;
    assert!(began.elapsed() >= Duration::from_secs(3), "the last step is due after 6 s at twice the speed");

    let ended = |view: &View| {
        let complete = view.jobs.iter().filter(|job| job.complete).count();
        let left = view.job("default", "long").is_some();
        let late = view.pods.iter().find(|pod| pod.job.as_deref() == Some("late"));
        match (complete, left, late) {
            (3, false, Some(pod)) if pod.node.is_none() => Ok(()),
            (complete, left, late) => Err(format!("{complete} Complete, long left: {left}, late: {late:?}")),
        }
    };
    until(
        &client,
        "the short Jobs end, the long one is deleted, the late one fits no node",
        patience(),
        ended,
    )
    .await?;

    let pods = cluster.audit().by("system:kube-scheduler")?;
    assert_eq!(pods.iter().filter(|write| write.resource == "pods/binding").count(), 4);
    Ok(())
}
