//! The outcome of an import: objects for `kubectl apply`, the steps of the switch, and notes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::note::Note;

/// A Job that waits, with what it needs to wait in Sluice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Labels to add.
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    pub annotations: BTreeMap<String, String>,
}

/// The outcome of an import.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// PriorityClasses, NodePools and Teams, parents before their children.
    pub objects: Vec<Value>,
    /// The labels of each namespace.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The Jobs that wait, in their order.
    pub pending: Vec<Pending>,
    /// How many Jobs run in these namespaces.
    pub running: usize,
    /// What is not carried over as it was.
    pub notes: Vec<Note>,
}

impl Plan {
    /// The namespaces with their labels, as objects for `kubectl apply`.
    #[must_use]
    pub fn labelled(&self) -> Vec<Value> {
        let object = |(name, labels): (&String, &BTreeMap<String, String>)| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.namespaces.iter().map(object).collect()
    }

    /// Everything to apply, as one YAML stream, with or without the labels of namespaces.
    ///
    /// # Errors
    /// The serializer's error; these objects cause none.
    pub fn yaml(&self, labels: bool) -> Result<String, serde_saphyr::ser::Error> {
        let mut text = String::new();
        let labelled = if labels { self.labelled() } else { Vec::new() };
        for object in self.objects.iter().chain(&labelled) {
            text += &format!("---\n{}\n", serde_saphyr::to_string(object)?.trim_end());
        }
        Ok(text)
    }

    /// The steps of a switch from Kueue, as a script for a shell.
    #[must_use]
    pub fn steps(&self) -> String {
        let mut text = String::from(HEAD);
        for (name, labels) in &self.namespaces {
            text += &format!("kubectl label namespace {name} --overwrite{}\n", pairs(labels));
        }
        text += REMOVE;
        if self.running > 0 {
            text += &format!("# Jobs that run on, their pods charged as adopted: {}.\n", self.running);
        }
        if self.pending.is_empty() {
            text += "# No Job waits.\n";
        }
        for job in &self.pending {
            let Pending { namespace, name, labels, annotations } = job;
            let mut commands = Vec::new();
            if !labels.is_empty() {
                commands
                    .push(format!("kubectl label job -n {namespace} {name} --overwrite{}", pairs(labels)));
            }
            if !annotations.is_empty() {
                commands.push(format!(
                    "kubectl annotate job -n {namespace} {name} --overwrite{}",
                    pairs(annotations)
                ));
            }
            commands.push(format!(
                "kubectl patch job -n {namespace} {name} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'"
            ));
            // A Job may have ended or started since the script was made.
            text += &format!("{} || left_out {namespace}/{name}\n", commands.join(" && \\\n  "));
        }
        text + CHECK
    }
}

/// The first steps.
const HEAD: &str = "\
# The switch from Kueue. Sluice runs, and the output of `sluice import kueue live --without-labels` is applied.
set -eu

# 1. Kueue decides nothing more. What runs goes on, and creates in its namespaces are refused until step 3.
kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=0
kubectl -n kueue-system wait --for=delete pod -l control-plane=controller-manager --timeout=120s

# 2. The namespaces become Sluice's: new work is queued, and pods that run are charged to their teams.
";

/// The steps that take Kueue's hooks away.
const REMOVE: &str = "
# 3. Kueue's hooks go, so that creates are answered again.
kubectl delete mutatingwebhookconfiguration kueue-mutating-webhook-configuration --ignore-not-found
kubectl delete validatingwebhookconfiguration kueue-validating-webhook-configuration --ignore-not-found

# 4. The Jobs that wait are queued here, in their order. The list is made again by
# `sluice import kueue live --steps`, which leaves out Jobs that Sluice holds already.
left_out() { echo \"left out: Job $1\" >&2; }
";

/// The last steps.
const CHECK: &str = "
# 5. Look, before Kueue is removed: its Workloads have a finalizer, which its controller no longer removes.
sluice queue --all-namespaces
sluice teams
";

/// Labels or annotations as `kubectl` takes them, with a space before each.
fn pairs(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!(" {key}={value}")).collect()
}
