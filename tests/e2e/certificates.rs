//! The certificate and its authority are renewed while Jobs are submitted.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::batch::v1;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use sluice::api::names;
use sluice_harness::{Options, User, World};

use crate::support::{Job, SLUICE, nodes, team};

const LOAD: Duration = Duration::from_secs(45);

#[tokio::test(flavor = "multi_thread")]
async fn renewed_certificates_let_no_job_fail_or_slip_past_the_webhook() {
    let mut options = Options::new(SLUICE);
    options.flags = ["--cert-lifetime", "9s", "--ca-lifetime", "27s"].map(str::to_owned).to_vec();
    World::run_with("certificates", options, 2, async |world| {
        world.apply(&format!("{}{}", nodes(1, 1), team("a", 1))).await?;
        let before = authorities(world).await?;
        let job: v1::Job = serde_saphyr::from_str(Job::new("a", "tried").manifest().trim_end_matches("---"))?;
        let jobs: Api<v1::Job> = Api::namespaced(world.cluster.client(User::Raw).await?, "a");
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let began = Instant::now();
        let mut tried = 0;
        while began.elapsed() < LOAD {
            // The policies hold a Job even without the webhook; only the webhook stamps its team.
            let created = jobs.create(&dry, &job).await.with_context(|| format!("Job {tried}"))?;
            tried += 1;
            ensure!(
                created.labels().get(names::TEAM).is_some_and(|team| team == "a"),
                "Job {tried} has passed without the webhook, {:.1?} after the first",
                began.elapsed()
            );
        }
        ensure!(tried > 100, "only {tried} Jobs were tried");
        ensure!(authorities(world).await? != before, "the authority was not renewed");
        Ok(())
    })
    .await;
}

/// The authorities that the API server trusts for the webhook.
async fn authorities(world: &World) -> Result<Vec<u8>> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let configuration = configurations.get(names::NAME).await?;
    let webhook =
        configuration.webhooks.into_iter().flatten().next().context("no webhooks in the configuration")?;
    Ok(webhook.client_config.ca_bundle.context("no authorities in the webhook's configuration")?.0)
}
