//! Questions to one replica, chosen by the test.
//!
//! The API server sends each Question to any replica. Tests that compare replicas post the review themselves, with the
//! token that only administrators and the API server can read.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice::api::names;
use sluice::view::{Teams, TeamsRow};

use crate::Sluice;

/// The longest time of an answer.
const PATIENCE: Duration = Duration::from_secs(15);

impl Sluice {
    /// All rows of this replica's answer to a ClusterQuestion with this spec, as a JSON array.
    pub async fn ask(&self, mut spec: Value) -> Result<Value> {
        let path = format!("/ask/{}", token(self.admin()).await?);
        let mut config = kube::Config::new(format!("https://{}", self.https()).parse()?);
        config.accept_invalid_certs = true;
        let client = Client::try_from(config)?;
        let mut rows = Vec::new();
        loop {
            let review = json!({"request": {
                "uid": "1", "kind": {"group": "sluice.dev", "kind": "ClusterQuestion"}, "operation": "CREATE",
                "dryRun": true, "object": {"spec": spec},
            }});
            let request = http::Request::post(&path).body(review.to_string().into_bytes())?;
            let answer = tokio::time::timeout(PATIENCE, client.request::<Value>(request)).await;
            let response = answer.context("no answer in time")?.context("no answer")?["response"].take();
            if response["allowed"] != true {
                bail!("{spec} is not answered: {}", response["status"]);
            }
            let ByteString(patch) = serde_json::from_value(response["patch"].clone())?;
            let patch: Value = serde_json::from_slice(&patch)?;
            let operations = patch.as_array().into_iter().flatten();
            let answer = operations.filter(|one| one["path"] == "/answer").map(|one| &one["value"]).next();
            let answer = answer.context("the patch has no answer")?;
            rows.extend(answer["rows"].as_array().cloned().unwrap_or_default());
            match &answer["cursor"] {
                Value::String(cursor) => spec["cursor"] = cursor.clone().into(),
                _ => return Ok(Value::Array(rows)),
            }
        }
    }

    /// What this replica says of every workload.
    pub async fn workloads(&self) -> Result<Value> {
        self.ask(json!({"queue": {"states": ["Held", "Pending", "Running", "Evicting", "Finished"]}})).await
    }

    /// What this replica says of the workloads of a name; empty if it knows none.
    pub async fn workload(&self, namespace: &str, name: &str) -> Result<Value> {
        self.ask(json!({"explain": {"namespace": namespace, "name": name}})).await
    }

    /// What this replica says of the teams.
    pub async fn teams(&self) -> Result<Teams> {
        let rows: Vec<TeamsRow> = serde_json::from_value(self.ask(json!({"teams": {}})).await?)?;
        Ok(rows.into_iter().collect())
    }
}

/// The token of the Secret.
async fn token(admin: &Path) -> Result<String> {
    let kubeconfig = Kubeconfig::read_from(admin)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let secrets: Api<Secret> = Api::namespaced(Client::try_from(config)?, names::NAMESPACE);
    let mut data = secrets.get(names::PROOF).await?.data.context("the Secret is empty")?;
    let ByteString(token) = data.remove("token").context("the Secret has no token")?;
    Ok(String::from_utf8(token)?)
}
