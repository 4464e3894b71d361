//! The objects of a workload, and the writes to them.

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::call::{Options, tell};
use crate::api::names;
use crate::cli::cluster::Cluster;
use crate::cli::resources;
use crate::view::WorkloadRow;

/// A Job, a Pod, the pods of a group, or an object of a custom kind.
#[derive(Clone, Debug)]
pub struct Object {
    resource: ApiResource,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether the name is that of a group of pods.
    group: bool,
}

impl Object {
    /// The object of a row.
    ///
    /// # Errors
    /// For a kind that this command does not know.
    pub fn of(row: &WorkloadRow) -> anyhow::Result<Self> {
        let resource = resources::of(&row.kind)?;
        let (namespace, name) = (row.head.namespace.clone(), row.head.name.clone());
        Ok(Self { resource, namespace, name, group: row.kind == "PodGroup" })
    }

    /// How messages name it: `job a/x`.
    pub fn label(&self) -> String {
        let kind = if self.group { "pod group".to_owned() } else { self.resource.kind.to_ascii_lowercase() };
        format!("{kind} {}/{}", self.namespace, self.name)
    }

    /// Its kind, `PodGroup` for the pods of a group.
    pub fn kind(&self) -> String {
        if self.group { "PodGroup".to_owned() } else { self.resource.kind.clone() }
    }

    fn api(&self, cluster: &Cluster) -> Api<DynamicObject> {
        Api::namespaced_with(cluster.client(), &self.namespace, &self.resource)
    }

    fn word(&self) -> String {
        self.resource.kind.to_ascii_lowercase()
    }

    /// The names of its objects: one, or those of the pods of the group.
    async fn names(&self, cluster: &Cluster, api: &Api<DynamicObject>) -> anyhow::Result<Vec<String>> {
        if !self.group {
            return Ok(vec![self.name.clone()]);
        }
        let members = ListParams::default().labels(&format!("{}={}", names::GROUP, self.name));
        let listed =
            api.list_metadata(&members).await.map_err(|error| cluster.refused(&self.label(), error))?;
        Ok(listed.items.into_iter().filter_map(|member| member.metadata.name).collect())
    }

    async fn patch(&self, cluster: &Cluster, patch: &Value) -> anyhow::Result<()> {
        let api = self.api(cluster);
        for name in self.names(cluster, &api).await? {
            let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
            patched.map_err(|error| cluster.refused(&self.label(), error))?;
        }
        Ok(())
    }

    /// Writes an annotation, or removes it.
    pub async fn annotate(
        &self,
        cluster: &Cluster,
        options: &Options,
        key: &str,
        value: Option<&str>,
    ) -> anyhow::Result<()> {
        let change = value.map_or_else(|| format!("{key}-"), |value| format!("{key}={value}"));
        let select = format!("--selector={}={}", names::GROUP, self.name);
        let which = if self.group { &select } else { &self.name };
        tell(options, &["-n", &self.namespace, "annotate", "--overwrite", &self.word(), which, &change]);
        self.patch(cluster, &json!({"metadata": {"annotations": {key: value}}})).await
    }

    /// Whether it has an annotation; of a group, any of its pods.
    pub async fn has_annotation(&self, cluster: &Cluster, key: &str) -> anyhow::Result<bool> {
        let api = self.api(cluster);
        for name in self.names(cluster, &api).await? {
            let object =
                api.get_metadata(&name).await.map_err(|error| cluster.refused(&self.label(), error))?;
            if object.metadata.annotations.is_some_and(|notes| notes.contains_key(key)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes back the suspension by its user.
    pub async fn resume(&self, cluster: &Cluster, options: &Options) -> anyhow::Result<()> {
        if self.resource.kind != "Job" {
            let line = "it is suspended in its own spec, where only its user resumes it";
            anyhow::bail!("{}: {line}", self.label());
        }
        let patch = json!({"spec": {"suspend": false}});
        let text = patch.to_string();
        tell(options, &["-n", &self.namespace, "patch", "job", &self.name, "--type=merge", "-p", &text]);
        self.patch(cluster, &patch).await
    }

    /// The highest order of the objects of this kind and user in the namespace; 0 if there is none.
    pub async fn highest_order(&self, cluster: &Cluster, user: Option<&str>) -> anyhow::Result<i32> {
        let listed = self.api(cluster).list_metadata(&ListParams::default()).await;
        let listed = listed.map_err(|error| cluster.refused(&self.label(), error))?;
        let annotated = listed.items.into_iter().filter_map(|one| one.metadata.annotations);
        let own = annotated.filter(|notes| notes.get(names::USER).map(String::as_str) == user);
        Ok(own.filter_map(|notes| notes.get(names::ORDER)?.parse().ok()).max().unwrap_or(0).max(0))
    }

    /// Deletes it, and with it its pods.
    pub async fn delete(&self, cluster: &Cluster, options: &Options) -> anyhow::Result<()> {
        let select = format!("--selector={}={}", names::GROUP, self.name);
        let which = if self.group { &select } else { &self.name };
        tell(options, &["-n", &self.namespace, "delete", &self.word(), which]);
        let api = self.api(cluster);
        for name in self.names(cluster, &api).await? {
            match api.delete(&name, &DeleteParams::background()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => drop(deleted.map_err(|error| cluster.refused(&self.label(), error))?),
            }
        }
        Ok(())
    }
}
