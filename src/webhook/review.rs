//! The wire format of admission reviews.
//!
//! The object stays raw JSON and the answer is a patch, so unknown fields survive.

use json_patch::Patch;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// The most warnings of an answer: the API server cuts longer answers.
pub const MOST_WARNINGS: usize = 8;
/// The most characters of one, for the same reason.
const LONGEST_WARNING: usize = 240;

/// The body that the API server posts.
#[derive(Debug, Deserialize)]
pub struct ReviewRequest {
    /// The request to review.
    pub request: Request,
}

/// One admission request.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// The identifier that the answer repeats.
    pub uid: String,
    /// The object's kind.
    pub kind: GroupKind,
    /// The subresource, such as `status`; empty for the object itself.
    pub sub_resource: String,
    /// The object's name; empty if the API server generates it.
    pub name: String,
    /// The object's namespace.
    pub namespace: String,
    /// `CREATE`, `UPDATE`, …
    pub operation: String,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// The user that sends the request.
    pub user_info: UserInfo,
    /// The object as it would be stored.
    pub object: Value,
    /// The object as it is stored; null on create.
    pub old_object: Value,
    /// The options of the request, among them the field manager.
    pub options: Value,
}

/// A kind and its group.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupKind {
    /// The group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// The user of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The user name.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

impl Request {
    /// Whether Sluice itself sends the request.
    #[must_use]
    pub fn by_sluice(&self) -> bool {
        self.user_info.username == crate::api::names::ACCOUNT
    }

    /// The object as messages name it: `Job vision/train`, or `Job vision/train-*` if the name is generated.
    #[must_use]
    pub fn object_name(&self) -> String {
        let metadata = &self.object["metadata"];
        let given = [Some(self.name.as_str()), metadata["name"].as_str()]
            .into_iter()
            .flatten()
            .find(|name| !name.is_empty())
            .map(ToOwned::to_owned);
        let name =
            given.unwrap_or_else(|| format!("{}*", metadata["generateName"].as_str().unwrap_or_default()));
        format!("{} {}/{name}", self.kind.kind, self.namespace)
    }
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The request is accepted.
    Allow {
        /// The change to the object; empty if there is none.
        patch: Patch,
        /// Warnings for the user.
        warnings: Vec<String>,
    },
    /// The request is refused, with one sentence for the user.
    Deny(String),
}

impl Verdict {
    /// Accepts the request unchanged.
    #[must_use]
    pub fn pass() -> Self {
        Self::Allow { patch: Patch(Vec::new()), warnings: Vec::new() }
    }

    /// Accepts the request unchanged with these sentences as warnings, as many and as much of each as the API server shows.
    #[must_use]
    pub fn warn(messages: impl IntoIterator<Item = String>) -> Self {
        let warning = |message: String| {
            let text: String = message.chars().take(LONGEST_WARNING).collect();
            format!("sluice: {text}")
        };
        let warnings = messages.into_iter().take(MOST_WARNINGS).map(warning).collect();
        Self::Allow { patch: Patch(Vec::new()), warnings }
    }

    /// The label in the metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Allow { patch, .. } if patch.is_empty() => "allowed",
            Self::Allow { .. } => "patched",
            Self::Deny(_) => "denied",
        }
    }
}

/// The answer to the API server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewResponse {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

impl ReviewResponse {
    /// The answer to the request `uid`.
    #[must_use]
    pub fn new(uid: String, verdict: Verdict) -> Self {
        match verdict {
            Verdict::Deny(message) => Self::refuse(uid, 403, "Forbidden", message),
            Verdict::Allow { patch, warnings } => {
                let patch =
                    if patch.is_empty() { None } else { serde_json::to_vec(&patch).ok().map(ByteString) };
                let patch_type = patch.as_ref().map(|_| "JSONPatch");
                Self::wrap(Response { uid, allowed: true, status: None, patch_type, patch, warnings })
            }
        }
    }

    /// The answer to what is no admission review.
    #[must_use]
    pub fn malformed(uid: String, problem: String) -> Self {
        Self::refuse(uid, 400, "BadRequest", problem)
    }

    /// A refusal with this HTTP status and its reason.
    #[must_use]
    pub fn refuse(uid: String, code: u16, reason: &'static str, message: String) -> Self {
        let status = Some(Status { code, reason, message });
        Self::wrap(Response {
            uid,
            allowed: false,
            status,
            patch_type: None,
            patch: None,
            warnings: Vec::new(),
        })
    }

    fn wrap(response: Response) -> Self {
        Self { api_version: API_VERSION, kind: KIND, response }
    }
}
