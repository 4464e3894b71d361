//! The CustomResourceDefinitions, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use crate::api::node_pool::NodePool;
use crate::api::question;
use crate::api::team::Team;

/// All CustomResourceDefinitions of Sluice.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vec![Team::crd(), NodePool::crd()];
    all.extend(question::definitions());
    for definition in &mut all {
        for version in &mut definition.spec.versions {
            let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
            schema.into_iter().for_each(describe_fields_once);
        }
    }
    all
}

/// Removes the descriptions of list entries: `kubectl explain` would add each to that of the list.
fn describe_fields_once(schema: &mut JSONSchemaProps) {
    if let Some(JSONSchemaPropsOrArray::Schema(entry)) = &mut schema.items {
        entry.description = None;
        describe_fields_once(entry);
    }
    schema.properties.iter_mut().flat_map(|fields| fields.values_mut()).for_each(describe_fields_once);
}

/// All CustomResourceDefinitions as one YAML stream for `kubectl apply`.
///
/// # Errors
/// When the definitions cannot be serialized.
pub fn crds_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let documents: Result<Vec<String>, _> = crds().iter().map(serde_saphyr::to_string).collect();
    Ok(documents?.iter().map(|document| format!("---\n{}\n", document.trim_end())).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_manifest_is_generated_from_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/base/crds.yaml");
        let generated = super::crds_yaml().expect("the types serialize");
        if std::env::var_os("UPDATE_MANIFESTS").is_some() {
            std::fs::write(path, &generated).expect("the manifest can be written");
        }
        let written = std::fs::read_to_string(path).expect("the manifest can be read");
        assert!(
            written == generated,
            "manifests/base/crds.yaml is stale: regenerate it with `sluice crds > manifests/base/crds.yaml`"
        );
    }
}
