//! The API server's audit log of writes.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// One requested write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The user of the request.
    pub user: String,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The resource, with its subresource: `pods/status`.
    pub resource: String,
    /// The object's namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name; empty for a generated name.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
}

impl Write {
    /// Whether the write succeeded.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// The log of all writes.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
}

impl Audit {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// All writes so far, in order.
    pub fn writes(&self) -> Result<Vec<Write>> {
        let text = std::fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        // The last line may be incomplete.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(|line| Ok(serde_json::from_str::<Entry>(line)?.into())).collect()
    }

    /// The successful writes of one user so far.
    pub fn by(&self, user: &str) -> Result<Vec<Write>> {
        let mut writes = self.writes()?;
        writes.retain(|write| write.user == user && write.succeeded());
        Ok(writes)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    user: UserInfo,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl From<Entry> for Write {
    fn from(entry: Entry) -> Self {
        let object = entry.object_ref;
        let resource = match object.subresource.as_str() {
            "" => object.resource,
            subresource => format!("{}/{subresource}", object.resource),
        };
        Self {
            user: entry.user.username,
            verb: entry.verb,
            resource,
            namespace: object.namespace,
            name: object.name,
            code: entry.response_status.code,
        }
    }
}
