//! Pods of Deployments and their versions.

use kube::core::ObjectMeta;

use crate::engine::types::Name;

/// The label with the version of a Deployment's pods.
const VERSION: &str = "pod-template-hash";

/// A pod of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The name of the Deployment.
    pub of: Name,
    /// The version of the pod.
    pub version: Name,
}

/// The Deployment of a pod by its owner, a ReplicaSet named after the Deployment and the version.
#[must_use]
pub fn replica(metadata: &ObjectMeta) -> Option<Box<Replica>> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true) && owner.kind == "ReplicaSet")?;
    let version = metadata.labels.as_ref()?.get(VERSION)?;
    let of = owner.name.strip_suffix(version.as_str())?.strip_suffix('-')?;
    Some(Box::new(Replica { of: of.into(), version: version.as_str().into() }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(owner: &Value, version: &str) -> Option<Replica> {
        let metadata = json!({"labels": {VERSION: version}, "ownerReferences": [owner]});
        replica(&serde_json::from_value(metadata).expect("metadata")).map(|replica| *replica)
    }

    fn owner(kind: &str, name: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true})
    }

    #[test]
    fn a_deployment_and_the_version_are_in_the_name_of_the_replica_set() {
        let found = read(&owner("ReplicaSet", "my-web-5d4f"), "5d4f").expect("a replica");
        assert_eq!((&*found.of, &*found.version), ("my-web", "5d4f"));
        assert_eq!(read(&owner("ReplicaSet", "by-hand"), "5d4f"), None);
        assert_eq!(read(&owner("StatefulSet", "my-web-5d4f"), "5d4f"), None);
    }
}
