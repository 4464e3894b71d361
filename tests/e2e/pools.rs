//! Pools by label, racks within them, and nodes that come and go.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use sluice_harness::{View, World};

use crate::pods::explained;
use crate::support::{Job, SLUICE, node, pool, queued, running, team_of};

/// A node of four GPUs.
fn gpu_node(name: &str, gpu: &str, rack: &str) -> String {
    node(name, &format!("example.com/gpu: {gpu}, example.com/rack: {rack}"), "nvidia.com/gpu: \"4\"")
}

/// Two racks of two large nodes each, one small node, and a team that owns all of it.
fn cluster() -> String {
    let large = [("r0-0", "r0"), ("r0-1", "r0"), ("r1-0", "r1"), ("r1-1", "r1")];
    let large = large.map(|(name, rack)| gpu_node(name, "large", rack)).concat();
    let quotas = "quotas: [{pool: large, guaranteed: {nvidia.com/gpu: 20}}, {pool: small, guaranteed: {nvidia.com/gpu: 4}}]";
    [
        large,
        gpu_node("small", "small", "r0"),
        pool("large", &["nodeSelector: {example.com/gpu: large}", "topology: [example.com/rack]"]),
        pool("small", &["nodeSelector: {example.com/gpu: small}"]),
        team_of("a", &[quotas]),
    ]
    .concat()
}

/// A Job with this many pods that fill a node each.
fn job(name: &str, pods: usize, pools: &str) -> Job {
    Job::new("a", name)
        .gpus(4)
        .spec(&format!("parallelism: {pods}"))
        .spec(&format!("completions: {pods}"))
        .annotated("pool", pools)
}

async fn submit(world: &World, job: &Job) -> Result<()> {
    world.kubectl.apply(&job.manifest()).await.map(drop)
}

async fn delete(world: &World, jobs: &[&str]) -> Result<()> {
    let arguments = [&["delete", "job", "--namespace=a", "--wait=false"], jobs].concat();
    world.kubectl.ok(&arguments).await.map(drop)
}

/// The nodes on which the pods of a Job run.
fn nodes_of(view: &View, job: &str) -> BTreeSet<String> {
    let pods = view.running("a").filter(|pod| pod.job.as_deref() == Some(job));
    pods.filter_map(|pod| pod.node.clone()).collect()
}

/// Waits until all pods of the Jobs run, and returns the nodes of one of them.
async fn runs(world: &World, pods: usize, job: &str) -> Result<Vec<String>> {
    Ok(nodes_of(&running(world, "a", pods).await?, job).into_iter().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_tried_in_order_gangs_keep_to_a_rack_and_capacity_follows_the_nodes() {
    World::run("pools", SLUICE, 1, async |world| {
        world.apply(&cluster()).await?;
        falls_back(world).await?;
        let rack = keeps_to_a_rack(world).await?;
        follows(world, &rack).await
    })
    .await;
}

/// A Job takes the first pool with capacity, and only pools that it names.
async fn falls_back(world: &World) -> Result<()> {
    submit(world, &job("most", 3, "large,small")).await?;
    ensure!(!runs(world, 3, "most").await?.contains(&"small".to_owned()), "the first pool has capacity");
    submit(world, &job("next", 1, "large,small")).await?;
    ensure!(
        !runs(world, 4, "next").await?.contains(&"small".to_owned()),
        "the first pool still has capacity"
    );
    submit(world, &job("last", 1, "large,small")).await?;
    ensure!(runs(world, 5, "last").await? == ["small"], "only the second pool has capacity");
    delete(world, &["last"]).await?;
    running(world, "a", 4).await?;
    submit(world, &job("choosy", 1, "large")).await?;
    explained(world, "a", "choosy", "NoRoom").await?;
    let view = queued(world, "a", 1).await?;
    ensure!(nodes_of(&view, "choosy").is_empty(), "the only free pool is not among its own");
    delete(world, &["most", "next", "choosy"]).await?;
    running(world, "a", 0).await.map(drop)
}

/// A gang that requires one rack waits until a rack fits all of it. Returns the nodes of that rack.
async fn keeps_to_a_rack(world: &World) -> Result<Vec<String>> {
    let rack_of = |node: &String| node.split('-').next().map(ToOwned::to_owned);
    let together = |name: &str| job(name, 2, "large").annotated("topology-required", "example.com/rack");
    submit(world, &job("one", 1, "large")).await?;
    let one = runs(world, 1, "one").await?;
    submit(world, &together("first")).await?;
    let first = runs(world, 3, "first").await?;
    let racks: BTreeSet<_> = first.iter().map(rack_of).collect();
    ensure!(first.len() == 2 && racks.len() == 1, "not in one rack: {first:?}");
    ensure!(!racks.contains(&rack_of(&one[0])), "{one:?} leaves too little capacity there: {first:?}");
    submit(world, &together("second")).await?;
    explained(world, "a", "second", "NoRoom").await?;
    delete(world, &["one"]).await?;
    let second = runs(world, 4, "second").await?;
    let racks: BTreeSet<_> = second.iter().map(rack_of).collect();
    ensure!(
        second.len() == 2 && racks == BTreeSet::from([rack_of(&one[0])]),
        "not in the other rack: {second:?}"
    );
    delete(world, &["second"]).await?;
    running(world, "a", 2).await?;
    Ok(second)
}

/// Closed nodes take no pods; waiting Jobs start once a node opens or joins.
async fn follows(world: &World, rack: &[String]) -> Result<()> {
    let [left, right] = rack else { anyhow::bail!("not exactly two nodes: {rack:?}") };
    let annotate = |change: &'static str| ["annotate", "node", left, change];
    world.kubectl.ok(&["cordon", left]).await?;
    world.kubectl.ok(&["taint", "node", right, "example.com/broken=yes:NoSchedule"]).await?;
    submit(world, &job("one", 1, "large")).await?;
    explained(world, "a", "one", "NoRoom").await?;
    world.kubectl.ok(&["uncordon", left]).await?;
    ensure!(runs(world, 3, "one").await? == [left.clone()], "{left} is open again");
    submit(world, &job("two", 1, "large")).await?;
    explained(world, "a", "two", "NoRoom").await?;
    world.kubectl.ok(&["taint", "node", right, "example.com/broken-"]).await?;
    ensure!(runs(world, 4, "two").await? == [right.clone()], "{right} is open again");

    delete(world, &["one"]).await?;
    running(world, "a", 3).await?;
    world.kubectl.ok(&annotate("simulate.sluice.dev/down=true")).await?;
    not_ready(world, left).await?;
    submit(world, &job("one", 1, "large")).await?;
    explained(world, "a", "one", "NoRoom").await?;
    world.kubectl.ok(&annotate("simulate.sluice.dev/down-")).await?;
    ensure!(runs(world, 4, "one").await? == [left.clone()], "{left} is ready again");

    submit(world, &job("three", 1, "large")).await?;
    explained(world, "a", "three", "NoRoom").await?;
    world.apply(&gpu_node("r2-0", "large", "r2")).await?;
    ensure!(runs(world, 5, "three").await? == ["r2-0"], "the new node has capacity");
    Ok(())
}

/// Waits until the cluster has noticed the loss of a node.
async fn not_ready(world: &World, node: &str) -> Result<()> {
    let until = ["wait", "node", node, "--for=condition=Ready=Unknown", "--timeout=60s"];
    world.kubectl.ok(&until).await.map(drop)
}
