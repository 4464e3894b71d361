//! Keeps the webhook configurations up to date: the trusted certificates and the address of the webhook.

use std::fmt::Debug;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::call::{Error, within};
use super::proof::Proof;
use crate::api::names;

/// The path of the handler of Questions.
const ASK: &str = "/ask";
/// The path of the handler of verdicts, without its proof.
const VERDICT: &str = "/verdict";

/// The intended content of the webhook configurations.
#[derive(Clone, Default)]
pub struct Announcement {
    /// The certificates to trust, in PEM; `None` leaves the field to another tool.
    pub bundle: Option<String>,
    /// The URL of the webhook, without a path; `None` keeps the Service reference.
    pub url: Option<String>,
    /// The token that proves a Question, for a configuration with an annotation that asks for it in the path.
    pub proof: Option<String>,
    /// The end of the path that proves a review that is asked for a verdict.
    pub verdicts: Option<String>,
}

impl Announcement {
    /// The proofs as this replica knows them.
    pub fn of(proof: &Proof) -> Self {
        Self { proof: proof.token(), verdicts: proof.path(), ..Self::default() }
    }
}

/// Updates the configurations where they differ, and those of custom kinds where there are any; returns true if all were
/// up to date.
///
/// # Errors
/// If a configuration cannot be read or written.
pub async fn announce(client: &Client, announcement: &Announcement) -> Result<bool, Error> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let (mutating, validating) = tokio::join!(
        correct_both(&mutating, announcement, "/mutate"),
        correct_both(&validating, announcement, "/validate")
    );
    Ok(mutating? & validating?)
}

/// Updates the configuration of Sluice and the one of custom kinds.
async fn correct_both<K>(api: &Api<K>, announcement: &Announcement, path: &str) -> Result<bool, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let own = correct(api, within(api.get(names::NAME)).await?, announcement, path).await?;
    let of_kinds = match within(api.get_opt(names::KINDS)).await {
        // A role of an older version does not know this one.
        Err(Error::Api(kube::Error::Api(status))) if status.code == 403 => None,
        found => found?,
    };
    match of_kinds {
        Some(of_kinds) => Ok(correct(api, of_kinds, announcement, path).await? & own),
        None => Ok(own),
    }
}

async fn correct<K>(
    api: &Api<K>,
    configuration: K,
    announcement: &Announcement,
    path: &str,
) -> Result<bool, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let current = serde_json::to_value(&configuration).map_err(|error| Error::Secret(error.to_string()))?;
    let operations = corrections(&current, announcement, path);
    if operations.is_empty() {
        return Ok(true);
    }
    let patch: Patch<()> = Patch::Json(JsonPatch(operations));
    let params =
        PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let name = configuration.meta().name.as_deref().unwrap_or(names::NAME);
    within(api.patch(name, &params, &patch)).await?;
    tracing::info!(kind = %K::kind(&()), name, "webhook configuration updated");
    Ok(false)
}

/// The path of the webhook that answers Questions; `None` while there is no token for it. Where no policy can write the
/// token into a Question, the path has it, because only the API server and administrators read the configuration.
fn path_of_questions(configuration: &Value, announcement: &Announcement) -> Option<String> {
    if configuration["metadata"]["annotations"][names::PROOF_IN] == "path" {
        Some(format!("{ASK}/{}", announcement.proof.as_deref()?))
    } else {
        Some(ASK.to_owned())
    }
}

/// The path of a webhook, where it is one of its own; `None` inside while there is no token for it.
fn own_path(webhook: &Value, configuration: &Value, announcement: &Announcement) -> Option<Option<String>> {
    let name = webhook["name"].as_str()?;
    if name.starts_with("questions.") {
        Some(path_of_questions(configuration, announcement))
    } else if name.starts_with("verdicts.") {
        Some(announcement.verdicts.as_ref().map(|proof| format!("{VERDICT}/{proof}")))
    } else {
        None
    }
}

/// The operations that update a configuration. Each is guarded by a test of the webhook's name.
fn corrections(configuration: &Value, announcement: &Announcement, path: &str) -> Vec<PatchOperation> {
    let mut operations = Vec::new();
    for (index, webhook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let mut wanted = webhook["clientConfig"].clone();
        if let Some(bundle) = &announcement.bundle {
            wanted["caBundle"] = json!(ByteString(bundle.clone().into_bytes()));
        }
        let own = own_path(webhook, configuration, announcement);
        let has_own = own.is_some();
        let path = own.unwrap_or_else(|| Some(path.to_owned()));
        if let (Some(url), Some(path), Some(map)) = (&announcement.url, &path, wanted.as_object_mut()) {
            map.remove("service");
            map.insert("url".to_owned(), format!("{}{path}", url.trim_end_matches('/')).into());
        } else if let (Some(path), true) = (path, has_own)
            && let Some(service) = wanted.get_mut("service").and_then(Value::as_object_mut)
        {
            service.insert("path".to_owned(), path.into());
        }
        if wanted != webhook["clientConfig"] {
            let at = |field: &str| PointerBuf::from_tokens(["webhooks", &index.to_string(), field]);
            operations.push(PatchOperation::Test(TestOperation {
                path: at("name"),
                value: webhook["name"].clone(),
            }));
            operations.push(PatchOperation::Add(AddOperation { path: at("clientConfig"), value: wanted }));
        }
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_written() {
        let service = json!({"service": {"name": "sluice", "namespace": "sluice-system", "path": "/mutate"}});
        let mut configuration = json!({"webhooks": [{"name": "a", "clientConfig": service}]});
        let bundle = Announcement { bundle: Some("PEM".to_owned()), ..Announcement::default() };
        let outside = Announcement { url: Some("https://127.0.0.1:9443/".to_owned()), ..bundle.clone() };
        for (announcement, expected) in [
            (bundle, json!({"caBundle": "UEVN", "service": service["service"]})),
            (outside, json!({"caBundle": "UEVN", "url": "https://127.0.0.1:9443/mutate"})),
        ] {
            let patch = JsonPatch(corrections(&configuration, &announcement, "/mutate"));
            json_patch::patch(&mut configuration, &patch).expect("the patch applies");
            assert_eq!(configuration["webhooks"][0]["clientConfig"], expected);
            assert_eq!(corrections(&configuration, &announcement, "/mutate"), []);
        }
    }

    #[test]
    fn questions_have_a_path_of_their_own_which_may_be_the_proof() {
        let outside = Some("https://127.0.0.1:9443".to_owned());
        let token = Some("0123".to_owned());
        for (proof_in, url, proof, expected) in [
            ("", None, &token, json!({"service": {"name": "sluice", "path": "/ask"}})),
            ("path", None, &token, json!({"service": {"name": "sluice", "path": "/ask/0123"}})),
            ("path", None, &None, json!({"service": {"name": "sluice", "path": "/ask"}})),
            ("", outside.clone(), &token, json!({"url": "https://127.0.0.1:9443/ask"})),
            ("path", outside.clone(), &token, json!({"url": "https://127.0.0.1:9443/ask/0123"})),
        ] {
            let mut configuration = json!({
                "metadata": {"annotations": {"sluice.dev/proof": proof_in}},
                "webhooks": [{"name": "questions.mutate.sluice.dev",
                    "clientConfig": {"service": {"name": "sluice", "path": "/ask"}}}],
            });
            let announcement = Announcement { url, proof: proof.clone(), ..Announcement::default() };
            let patch = JsonPatch(corrections(&configuration, &announcement, "/mutate"));
            json_patch::patch(&mut configuration, &patch).expect("the patch applies");
            assert_eq!(configuration["webhooks"][0]["clientConfig"], expected);
            // A replica that does not lead announces no URL.
            let standby = Announcement { url: None, ..announcement };
            assert_eq!(corrections(&configuration, &standby, "/mutate"), []);
        }
    }

    #[test]
    fn the_proof_of_a_verdict_is_always_in_the_path() {
        let mut configuration = json!({"webhooks": [{"name": "verdicts.jobs.validate.sluice.dev",
            "clientConfig": {"service": {"name": "sluice", "path": "/verdict"}}}]});
        for (verdicts, expected) in [(None, "/verdict"), (Some("ab".to_owned()), "/verdict/ab")] {
            let announcement = Announcement { verdicts, ..Announcement::default() };
            let patch = JsonPatch(corrections(&configuration, &announcement, "/validate"));
            json_patch::patch(&mut configuration, &patch).expect("the patch applies");
            assert_eq!(configuration["webhooks"][0]["clientConfig"]["service"]["path"], expected);
        }
    }
}
