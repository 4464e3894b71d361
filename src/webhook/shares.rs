//! What a share of a GPU is on the nodes of a pool: a resource that kube-scheduler counts.
//!
//! Where a pool says what its nodes offer (`spec.shares`), a pod that wishes for a share is made to ask for a unit
//! of the smallest offer that is enough, or, where units are hundredths of a GPU, for as many as the share is of
//! each kind of them. From then on it asks for that as if its user had written it, so the
//! engine and kube-scheduler count the same. Elsewhere a share is a matter of the engine alone.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::object::annotation;
use super::patch::Editor;
use super::view::View;
use super::wishes::whole_devices;
use crate::api::convert::{is_fine, share};
use crate::api::names;
use crate::engine::amount::{Amount, ResourceList, ResourceName};
use crate::engine::model::DEFAULT_POOL;

/// Has the first container of the pod at `spec` ask for what its pool offers for the share it wishes for.
///
/// # Errors
/// A sentence when its pools offer shares in different ways, or none that is enough.
pub fn offer(view: &View<'_>, editor: &mut Editor, spec: &[&str]) -> Result<(), String> {
    let object = editor.object();
    let wish = annotation(object, names::GPU_FRACTION).and_then(|text| text.split(',').next());
    // What is malformed, or has no effect beside whole devices, is told elsewhere.
    let Some((text, wish)) = wish.and_then(|text| Some((text.trim(), share(text.trim()).ok()?))) else {
        return Ok(());
    };
    if !whole_devices(object).is_empty() {
        return Ok(());
    }
    let pools = annotation(object, names::POOL).unwrap_or(DEFAULT_POOL);
    let mut offers = pools.split(',').map(|pool| view.shares(pool.trim()));
    let offered = offers.next().unwrap_or_default();
    if offers.any(|others| others != offered) {
        return Err(format!(
            "annotation {}: pools {pools} offer shares of a GPU in different ways; name one of them",
            names::GPU_FRACTION
        ));
    }
    if offered.is_empty() {
        return Ok(());
    }
    let asked = asked(&offered, wish);
    if asked.is_empty() {
        return Err(format!(
            "annotation {}: {text} of a GPU is more than any share that pool {pools} offers: {}",
            names::GPU_FRACTION,
            listed(&offered)
        ));
    };
    let path: Vec<&str> = spec.iter().copied().chain(["containers"]).collect();
    let containers = path.iter().try_fold(editor.object(), |value, key| value.get(key));
    let Some(mut containers) = containers.and_then(Value::as_array).cloned() else { return Ok(()) };
    let Some(first) = containers.first_mut().and_then(Value::as_object_mut) else { return Ok(()) };
    for (resource, units) in &asked {
        ask(first, resource, *units);
    }
    let resources: Vec<&str> = asked.keys().map(|resource| &**resource).collect();
    editor.set(&path, Value::Array(containers));
    editor.set(&["metadata", "annotations", names::GPU_OFFER], resources.join(","));
    Ok(())
}

/// How many units of what is offered a share is; nothing when no offer is enough.
fn asked(offered: &ResourceList, wish: Amount) -> BTreeMap<ResourceName, i64> {
    let fine: BTreeMap<ResourceName, i64> = offered
        .iter()
        .filter(|(_, part)| is_fine(**part))
        .map(|(resource, part)| {
            let part = part.as_milli();
            (resource.clone(), (wish.as_milli() + part - 1) / part)
        })
        .collect();
    if !fine.is_empty() {
        return fine;
    }
    let enough = offered.iter().filter(|(_, share)| **share >= wish);
    enough.min_by_key(|(_, share)| **share).map(|(resource, _)| (resource.clone(), 1)).into_iter().collect()
}

/// Whether what was made of a wish would have to be made anew; a container is what it is once it is there.
#[must_use]
pub fn moved(old: &Value, new: &Value) -> Option<&'static str> {
    annotation(old, names::GPU_OFFER)?;
    [names::GPU_FRACTION, names::GPU_OFFER, names::POOL]
        .into_iter()
        .find(|key| annotation(old, key) != annotation(new, key))
}

fn ask(container: &mut Map<String, Value>, resource: &str, units: i64) {
    let resources = container.entry("resources").or_insert_with(|| json!({}));
    if !resources.is_object() {
        *resources = json!({});
    }
    if !resources["limits"].is_object() {
        resources["limits"] = json!({});
    }
    resources["limits"][resource] = json!(units.to_string());
}

fn listed(offered: &ResourceList) -> String {
    offered.iter().map(|(resource, share)| format!("{resource} ({share})")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::api::names;
    use crate::directory::Directory;
    use crate::engine::amount::Amount;
    use crate::webhook::testing::{Ask, ask, directory, with};

    /// Pool `a100` offers two profiles, `t4` a quarter, `fine` hundredths; the default pool offers nothing.
    fn offering() -> Directory {
        let mig = [("nvidia.com/mig-1g.5gb", 143), ("nvidia.com/mig-3g.20gb", 429)];
        let sliced = [("nvidia.com/gpu.shared", 250)];
        let fine = [("example.com/gpu-cores", 10), ("example.com/gpu-memory", 5)];
        let list = |offers: &[(&str, i64)]| {
            offers.iter().map(|(resource, share)| ((*resource).into(), Amount::milli(*share))).collect()
        };
        Directory {
            pools: ["a100".into(), "t4".into(), "fine".into()].into(),
            shares: [("a100".into(), list(&mig)), ("t4".into(), list(&sliced)), ("fine".into(), list(&fine))]
                .into(),
            ..directory()
        }
    }

    fn job(fraction: &str, pool: &str) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "namespace": "ns", "annotations": {names::GPU_FRACTION: fraction, names::POOL: pool}},
            "spec": {"template": {"spec": {"containers": [{"name": "main"}, {"name": "log"}]}}},
        })
    }

    fn limits(object: &Value) -> &Value {
        &object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    }

    #[tokio::test]
    async fn a_share_becomes_the_smallest_offer_that_is_enough() {
        for (fraction, pool, expected) in [
            ("0.1", "a100", json!({"nvidia.com/mig-1g.5gb": "1"})),
            ("0.4,0.1", "a100", json!({"nvidia.com/mig-3g.20gb": "1"})),
            ("0.25", "t4", json!({"nvidia.com/gpu.shared": "1"})),
            ("0.255", "fine", json!({"example.com/gpu-cores": "26", "example.com/gpu-memory": "51"})),
            ("0.25", "default", json!(null)),
        ] {
            let answer = ask(Ask { directory: offering(), ..Ask::create(job(fraction, pool)) }).await;
            assert!(answer.allowed, "{}", answer.message);
            assert_eq!(*limits(&answer.object), expected, "{fraction} of {pool}");
            assert!(answer.object["spec"]["template"]["spec"]["containers"][1]["resources"].is_null());
            let again = ask(Ask { directory: offering(), ..Ask::create(answer.object) }).await;
            assert!(again.allowed && !again.patched, "{fraction} of {pool}: once is enough");
        }
    }

    #[tokio::test]
    async fn what_no_pool_offers_is_refused() {
        for (fraction, pool, expected) in [
            (
                "0.5",
                "a100",
                "0.5 of a GPU is more than any share that pool a100 offers: nvidia.com/mig-1g.5gb",
            ),
            ("0.1", "a100,t4", "pools a100,t4 offer shares of a GPU in different ways"),
            ("0.1", "t4,default", "in different ways"),
        ] {
            let answer = ask(Ask { directory: offering(), ..Ask::create(job(fraction, pool)) }).await;
            assert!(!answer.allowed && answer.message.contains(expected), "{}", answer.message);
        }
    }

    #[tokio::test]
    async fn what_was_made_of_a_wish_stays() {
        let made = ask(Ask { directory: offering(), ..Ask::create(job("0.1", "a100")) }).await.object;
        let other = with(made.clone(), json!({"metadata": {"annotations": {names::GPU_FRACTION: "0.4"}}}));
        let answer = ask(Ask { directory: offering(), ..Ask::update(made.clone(), other) }).await;
        assert!(!answer.allowed && answer.message.contains("create it anew"), "{}", answer.message);
        let moved = with(made.clone(), json!({"metadata": {"annotations": {names::POOL: "t4"}}}));
        assert!(!ask(Ask { directory: offering(), ..Ask::update(made, moved) }).await.allowed);
    }

    #[tokio::test]
    async fn a_pod_of_its_own_is_offered_the_same() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "annotations": {names::GPU_FRACTION: "0.2", names::POOL: "t4"}},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
        });
        let answer = ask(Ask { directory: offering(), ..Ask::create(pod) }).await;
        let resources = &answer.object["spec"]["containers"][0]["resources"];
        assert_eq!(*resources, json!({"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu.shared": "1"}}));
    }
}
