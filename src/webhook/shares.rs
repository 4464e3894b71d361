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
use crate::api::convert::{WHOLE, is_fine};
use crate::api::names;
use crate::api::sizes::{Choice, are_at, limits_at, speaks_of, written};
use crate::api::values::fractions;
use crate::engine::types::DEFAULT_POOL;
use crate::engine::types::amount::{Amount, ResourceList, ResourceName};

/// Has the first container of the pod at `spec` ask for what its pool offers for the share it wishes for, the most
/// wanted of several. What it would ask for at each of them is noted where that can be `chosen` later.
///
/// # Errors
/// A sentence when its pools offer shares in different ways, or none that is enough.
pub fn offer(view: &View<'_>, editor: &mut Editor, spec: &[&str], chosen: bool) -> Result<(), String> {
    let object = editor.object();
    // What is malformed, or has no effect beside whole devices, is told elsewhere.
    let Some(wishes) = annotation(object, names::GPU_FRACTION).and_then(|text| fractions(text).ok()) else {
        return Ok(());
    };
    let path: Vec<&str> = spec.iter().copied().chain(["containers"]).collect();
    let containers = path.iter().try_fold(object, |value, key| value.get(key));
    let Some(mut containers) = containers.and_then(Value::as_array).cloned() else { return Ok(()) };
    let Some(first) = containers.first_mut().and_then(Value::as_object_mut) else { return Ok(()) };
    let Some(device) = whole(object, &wishes, first) else { return Ok(()) };
    let pools = annotation(object, names::POOL).unwrap_or(DEFAULT_POOL);
    let mut offers = pools.split(',').map(|pool| view.shares(pool.trim()));
    let offered = offers.next().unwrap_or_default();
    if offers.any(|others| others != offered) {
        return Err(format!(
            "annotation {}: pools {pools} offer shares of a GPU in different ways; name one of them",
            names::GPU_FRACTION
        ));
    }
    let mut sizes = Vec::new();
    for wish in &wishes {
        let asked = match &device {
            Some(device) if *wish == Amount::units(1) => [(device.clone(), 1)].into(),
            _ => asked(&offered, *wish),
        };
        if asked.is_empty() && !offered.is_empty() {
            return Err(format!(
                "annotation {}: {} of a GPU is more than any share that pool {pools} offers: {}",
                names::GPU_FRACTION,
                written(*wish),
                listed(&offered)
            ));
        }
        sizes.push(asked);
    }
    let choices: Vec<Choice> = wishes
        .iter()
        .zip(&sizes)
        .map(|(wish, asked)| Choice {
            share: written(*wish),
            limits: asked.iter().map(|(resource, units)| (resource.to_string(), units.to_string())).collect(),
        })
        .collect();
    let Some(most) = sizes.first() else { return Ok(()) };
    for (resource, units) in most {
        ask(first, resource, *units);
    }
    if chosen && wishes.len() > 1 {
        // What is asked for depends on the size, and so stands in the limits alone.
        if let Some(requests) = first.get_mut("resources").and_then(|r| r["requests"].as_object_mut()) {
            requests.retain(|resource, _| !speaks_of(&choices, resource));
        }
        editor.set(&["metadata", "annotations", names::GPU_SIZES], json!(choices).to_string());
    }
    if !most.is_empty() {
        let resources: Vec<&str> = most.keys().map(|resource| &**resource).collect();
        editor.set(&path, Value::Array(containers));
        editor.set(&["metadata", "annotations", names::GPU_OFFER], resources.join(","));
    }
    Ok(())
}

/// Which whole device the first container asks for where a share is wished for, if it does: one, as the most wanted
/// of several shares is. `None` when it asks for devices beside which a share has no effect.
fn whole(object: &Value, wishes: &[Amount], first: &Map<String, Value>) -> Option<Option<ResourceName>> {
    let asked = whole_devices(object);
    let Some((device, amount)) = asked.first_key_value() else { return Some(None) };
    let one = Amount::units(1);
    let alone = asked.len() == 1 && *amount == one && wishes.first() == Some(&one);
    let there = first.get("resources").is_some_and(|r| r["limits"].get(&**device).is_some());
    (alone && there).then(|| Some(device.clone()))
}

/// Whether a Job says several shares that it would make do with, and asks for nothing beside which they have no
/// effect.
#[must_use]
pub fn has_choice(job: &Value) -> bool {
    let wishes = annotation(job, names::GPU_FRACTION).and_then(|text| fractions(text).ok());
    let first = job["spec"]["template"]["spec"]["containers"][0].as_object();
    let effective = |wishes: &Vec<Amount>| first.is_some_and(|first| whole(job, wishes, first).is_some());
    wishes.is_some_and(|wishes| wishes.len() > 1 && effective(&wishes))
}

/// Keeps what the pods of an admitted Job have been granted of several sizes, where a manifest is applied again that
/// says what they asked for first.
pub fn keep(editor: &mut Editor, old: &Value) {
    let Some(choices) = annotation(old, names::GPU_SIZES)
        .and_then(|text| serde_json::from_str::<Vec<Choice>>(text).ok())
        .filter(|choices| !choices.is_empty())
    else {
        return;
    };
    let path = ["spec", "template", "spec", "containers"];
    let containers = |object: &Value| object["spec"]["template"]["spec"]["containers"].clone();
    let (before, mut now) = (containers(old), containers(editor.object()));
    let limits = |containers: &Value| {
        let limits = containers[0]["resources"]["limits"].as_object();
        limits.map(|limits| limits.iter().map(|(r, v)| (r.clone(), v.clone())).collect::<BTreeMap<_, _>>())
    };
    let (held, wanted) = (limits(&before).unwrap_or_default(), limits(&now).unwrap_or_default());
    let granted = choices.iter().find(|choice| are_at(&held, &choices, choice));
    let Some(granted) = granted.filter(|_| are_at(&wanted, &choices, &choices[0])) else { return };
    now[0]["resources"]["limits"] = json!(limits_at(&wanted, &choices, granted));
    editor.set(&path, now);
}

/// How many units of what is offered a share is; nothing when no offer is enough. A whole device is itself where
/// no units make it up.
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
    if wish == Amount::units(1) {
        return [(WHOLE.into(), 1)].into();
    }
    let enough = offered.iter().filter(|(_, share)| **share >= wish);
    enough.min_by_key(|(_, share)| **share).map(|(resource, _)| (resource.clone(), 1)).into_iter().collect()
}

/// Whether what was made of a wish would have to be made anew; a container is what it is once it is there.
#[must_use]
pub fn moved(old: &Value, new: &Value) -> Option<&'static str> {
    annotation(old, names::GPU_OFFER).or(annotation(old, names::GPU_SIZES))?;
    [names::GPU_FRACTION, names::GPU_OFFER, names::GPU_SIZES, names::POOL]
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
    use crate::engine::types::amount::Amount;
    use crate::webhook::testing::{Ask, ask, directory, with};

    /// Pool `a100` offers two profiles, `t4` a quarter, `fine` and `hami` hundredths; the default pool offers nothing.
    fn offering() -> Directory {
        let mig = [("nvidia.com/mig-1g.5gb", 143), ("nvidia.com/mig-3g.20gb", 429)];
        let sliced = [("nvidia.com/gpu.shared", 250)];
        let fine = [("example.com/gpu-cores", 10), ("example.com/gpu-memory", 5)];
        let hami = [("nvidia.com/gpucores", 10), ("nvidia.com/gpumem-percentage", 10)];
        let list = |offers: &[(&str, i64)]| {
            offers.iter().map(|(resource, share)| ((*resource).into(), Amount::milli(*share))).collect()
        };
        Directory {
            pools: ["a100".into(), "t4".into(), "fine".into(), "hami".into()].into(),
            shares: [
                ("a100".into(), list(&mig)),
                ("t4".into(), list(&sliced)),
                ("fine".into(), list(&fine)),
                ("hami".into(), list(&hami)),
            ]
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
            ("0.4", "hami", json!({"nvidia.com/gpucores": "40", "nvidia.com/gpumem-percentage": "40"})),
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
    async fn what_a_job_would_make_do_with_is_noted_for_each_share() {
        let choice = |share: &str, limits: Value| json!({"share": share, "limits": limits});
        for (fraction, pool, expected) in [
            ("1,0.4", "default", vec![choice("1", json!({"nvidia.com/gpu": "1"})), choice("0.4", json!({}))]),
            (
                "0.40, 0.1",
                "a100",
                vec![
                    choice("0.4", json!({"nvidia.com/mig-3g.20gb": "1"})),
                    choice("0.1", json!({"nvidia.com/mig-1g.5gb": "1"})),
                ],
            ),
            (
                "1,0.5",
                "fine",
                vec![
                    choice("1", json!({"example.com/gpu-cores": "100", "example.com/gpu-memory": "200"})),
                    choice("0.5", json!({"example.com/gpu-cores": "50", "example.com/gpu-memory": "100"})),
                ],
            ),
        ] {
            let answer = ask(Ask { directory: offering(), ..Ask::create(job(fraction, pool)) }).await;
            assert!(answer.allowed, "{}", answer.message);
            let noted =
                answer.object["metadata"]["annotations"][names::GPU_SIZES].as_str().unwrap_or_default();
            let noted: Vec<Value> = serde_json::from_str(noted).expect("a list");
            assert_eq!(noted, expected, "{fraction} of {pool}");
            let first = limits(&answer.object).clone();
            assert_eq!(first, expected[0]["limits"], "the pods ask for what is wanted most");
            let again = ask(Ask { directory: offering(), ..Ask::create(answer.object) }).await;
            assert!(again.allowed && !again.patched, "{fraction} of {pool}: once is enough");
        }
    }

    #[tokio::test]
    async fn the_whole_device_may_stand_in_the_container_too() {
        let resources = json!({"limits": {"nvidia.com/gpu": 1, "cpu": 2}, "requests": {"nvidia.com/gpu": 1}});
        let mut whole = job("1,0.4", "default");
        whole["spec"]["template"]["spec"]["containers"][0]["resources"] = resources;
        let answer = ask(Ask { directory: offering(), ..Ask::create(whole) }).await;
        assert!(answer.allowed && answer.warnings == 0, "{}", answer.message);
        assert!(answer.object["metadata"]["annotations"][names::GPU_SIZES].is_string());
        let resources = &answer.object["spec"]["template"]["spec"]["containers"][0]["resources"];
        assert_eq!(*resources, json!({"limits": {"nvidia.com/gpu": "1", "cpu": 2}, "requests": {}}));
    }

    #[tokio::test]
    async fn what_is_no_choice_is_told_or_refused() {
        let twice = ask(Ask::create(job("1,0.4,0.40", "default"))).await;
        assert!(!twice.allowed && twice.message.contains("names 0.4 twice"), "{}", twice.message);
        let mut forged = job("0.4", "default");
        forged["metadata"]["annotations"][names::GPU_SIZES] = "[]".into();
        let forged = ask(Ask::create(forged)).await;
        assert!(!forged.allowed && forged.message.contains("written by Sluice alone"), "{}", forged.message);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "annotations": {names::GPU_FRACTION: "1,0.4"}},
            "spec": {"containers": [{"name": "main"}]},
        });
        let answer = ask(Ask { group: "", ..Ask::create(pod) }).await;
        assert!(answer.allowed && answer.warnings == 1, "{}", answer.message);
        assert_eq!(answer.object["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "1");
        assert!(answer.object["metadata"]["annotations"][names::GPU_SIZES].is_null());
    }

    #[tokio::test]
    async fn an_unchanged_manifest_leaves_the_granted_size() {
        let mut made = ask(Ask::create(job("1,0.4", "default"))).await.object;
        let unchanged = made["spec"]["template"].clone();
        made["spec"]["suspend"] = false.into();
        made["metadata"]["annotations"][names::ADMISSION] = "{}".into();
        made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = json!({});
        let mut applied = made.clone();
        applied["spec"]["template"] = unchanged;
        let answer = ask(Ask::update(made.clone(), applied)).await;
        assert!(answer.allowed, "{}", answer.message);
        assert_eq!(answer.object["spec"]["template"], made["spec"]["template"]);
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
