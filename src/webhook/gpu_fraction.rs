//! Turns a requested GPU fraction into a resource that kube-scheduler counts.
//!
//! A pool may list the devices that its nodes offer for a fraction (`spec.shares`). A pod with a GPU fraction then
//! requests one unit of the smallest sufficient device. Where units are hundredths of a GPU, it requests as many units
//! of each device as the fraction needs. The engine and kube-scheduler count the same devices from then on. Where no named
//! pool lists any, the pods would request nothing and get no GPU, so the fraction is refused, unless the nodes are known to
//! share GPUs by themselves.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::context::Context;
use super::object::{annotation, annotation_at, same_annotation};
use super::requests::whole_gpus;
use crate::api::convert::{WHOLE, is_fine};
use crate::api::names;
use crate::api::sizes::{Choice, are_at, limits_at, speaks_of, written};
use crate::api::values::fractions;
use crate::engine::types::DEFAULT_POOL;
use crate::engine::types::amount::{Amount, ResourceList, ResourceName};
use crate::kinds::Pointer;

/// Adds the devices for the first requested fraction to the first container of the pod spec at `spec`.
///
/// If the fraction `may_shrink` later, the devices of every listed fraction are noted in an annotation.
///
/// # Errors
/// A sentence if no pool offers devices, if they offer different ones, or if no device is large enough.
pub fn request_devices(context: &mut Context<'_>, spec: &Pointer, may_shrink: bool) -> Result<(), String> {
    let object = context.object();
    // A malformed fraction, or one without effect beside whole GPUs, is reported by other rules.
    let Some(wanted) = annotation(object, names::GPU_FRACTION).and_then(|text| fractions(text).ok()) else {
        return Ok(());
    };
    let path = spec.under("containers");
    let Some(mut containers) = path.read(object).and_then(Value::as_array).cloned() else { return Ok(()) };
    let Some(first) = containers.first_mut().and_then(Value::as_object_mut) else { return Ok(()) };
    let Some(whole) = whole_gpu(object, &wanted, first) else { return Ok(()) };
    let (pools, offered) = offered_devices(context)?;
    let devices_of = |fraction: &Amount| match &whole {
        Some(device) if *fraction == Amount::units(1) => [(device.clone(), 1)].into(),
        _ => devices_for(&offered, *fraction),
    };
    let sizes: Vec<BTreeMap<ResourceName, i64>> = wanted.iter().map(devices_of).collect();
    // A pod that cannot shrink always gets the first fraction.
    let possible = sizes.iter().take(if may_shrink { sizes.len() } else { 1 });
    let for_nothing = offered.is_empty() && possible.into_iter().any(BTreeMap::is_empty);
    if for_nothing && !may_be_assumed(context, &pools) {
        return Err(format!(
            "annotation {}: no NodePool of {pools} lists shares of a GPU, so the pods would get none; name another pool \
             or request whole GPUs",
            names::GPU_FRACTION
        ));
    }
    let too_large = sizes.iter().position(BTreeMap::is_empty).filter(|_| !offered.is_empty());
    if let Some(index) = too_large {
        return Err(format!(
            "annotation {}: {} of a GPU is more than any fraction that pool {pools} offers: {}",
            names::GPU_FRACTION,
            written(wanted[index]),
            listed(&offered)
        ));
    }
    let choices: Vec<Choice> = wanted
        .iter()
        .zip(&sizes)
        .map(|(fraction, devices)| Choice {
            share: written(*fraction),
            limits: devices.iter().map(|(device, units)| (device.to_string(), units.to_string())).collect(),
        })
        .collect();
    let Some(devices) = sizes.first() else { return Ok(()) };
    for (device, units) in devices {
        set_limit(first, device, *units);
    }
    if may_shrink && wanted.len() > 1 {
        // The devices depend on the granted fraction, so only the limits name them.
        if let Some(requests) = first.get_mut("resources").and_then(|r| r["requests"].as_object_mut()) {
            requests.retain(|resource, _| !speaks_of(&choices, resource));
        }
        context.draft.set(&annotation_at(names::GPU_SIZES), json!(choices).to_string());
    }
    if !devices.is_empty() {
        let listed: Vec<&str> = devices.keys().map(|device| &**device).collect();
        context.draft.set(&path, Value::Array(containers));
        context.draft.set(&annotation_at(names::GPU_OFFER), listed.join(","));
    }
    Ok(())
}

/// Whether a fraction may stand without a device: the nodes share GPUs by themselves, or not all pools are known yet. Then
/// the workload waits, and says why.
fn may_be_assumed(context: &Context<'_>, pools: &str) -> bool {
    let known = || context.view.complete() && pools.split(',').all(|pool| context.view.pool(pool.trim()));
    context.view.caps().assumed_fractions || !known()
}

/// The pools of the object as text, and the devices for GPU fractions that those offer which offer any.
fn offered_devices(context: &Context<'_>) -> Result<(String, ResourceList), String> {
    let pools = annotation(context.object(), names::POOL).unwrap_or(DEFAULT_POOL);
    let offers = pools.split(',').map(|pool| context.view.fraction_devices(pool.trim()));
    let mut offers = offers.filter(|offered| !offered.is_empty());
    let offered = offers.next().unwrap_or_default();
    if offers.any(|other| other != offered) {
        return Err(format!(
            "annotation {}: pools {pools} offer different devices for a GPU fraction; name one of them",
            names::GPU_FRACTION
        ));
    }
    Ok((pools.to_owned(), offered))
}

/// The whole GPU that the first container requests as the first of several fractions, if any.
///
/// `None` if the containers request GPUs beside which a fraction has no effect.
fn whole_gpu(object: &Value, wanted: &[Amount], first: &Map<String, Value>) -> Option<Option<ResourceName>> {
    let requested = whole_gpus(object);
    let Some((device, amount)) = requested.first_key_value() else { return Some(None) };
    let one = Amount::units(1);
    let only_one = requested.len() == 1 && *amount == one && wanted.first() == Some(&one);
    let in_first = first.get("resources").is_some_and(|r| r["limits"].get(&**device).is_some());
    (only_one && in_first).then(|| Some(device.clone()))
}

/// Whether a Job lists several GPU fractions and they have an effect.
#[must_use]
pub fn has_choice(job: &Value) -> bool {
    let Some(wanted) = annotation(job, names::GPU_FRACTION).and_then(|text| fractions(text).ok()) else {
        return false;
    };
    let first = job["spec"]["template"]["spec"]["containers"][0].as_object();
    wanted.len() > 1 && first.is_some_and(|first| whole_gpu(job, &wanted, first).is_some())
}

/// Restores the granted size of an admitted Job if an unchanged manifest resets it to the first size.
pub fn keep_granted(context: &mut Context<'_>) {
    let Some(choices) = annotation(context.old, names::GPU_SIZES)
        .and_then(|text| serde_json::from_str::<Vec<Choice>>(text).ok())
        .filter(|choices| !choices.is_empty())
    else {
        return;
    };
    let containers = |object: &Value| object["spec"]["template"]["spec"]["containers"].clone();
    let (old, mut new) = (containers(context.old), containers(context.object()));
    let limits = |containers: &Value| {
        let limits = containers[0]["resources"]["limits"].as_object();
        limits.map(|limits| limits.iter().map(|(r, v)| (r.clone(), v.clone())).collect::<BTreeMap<_, _>>())
    };
    let (held, wanted) = (limits(&old).unwrap_or_default(), limits(&new).unwrap_or_default());
    let granted = choices.iter().find(|choice| are_at(&held, &choices, choice));
    let Some(granted) = granted.filter(|_| are_at(&wanted, &choices, &choices[0])) else { return };
    new[0]["resources"]["limits"] = json!(limits_at(&wanted, &choices, granted));
    context.draft.set(&Pointer::to(["spec", "template", "spec", "containers"]), new);
}

/// The devices for a fraction, with the units of each; empty if no device is large enough.
fn devices_for(offered: &ResourceList, fraction: Amount) -> BTreeMap<ResourceName, i64> {
    let fine: BTreeMap<ResourceName, i64> = offered
        .iter()
        .filter(|(_, part)| is_fine(**part))
        .map(|(device, part)| {
            let part = part.as_milli();
            (device.clone(), (fraction.as_milli() + part - 1) / part)
        })
        .collect();
    if !fine.is_empty() {
        return fine;
    }
    if fraction == Amount::units(1) {
        return [(WHOLE.into(), 1)].into();
    }
    let sufficient = offered.iter().filter(|(_, part)| **part >= fraction);
    let smallest = sufficient.min_by_key(|(_, part)| **part);
    smallest.map(|(device, _)| (device.clone(), 1)).into_iter().collect()
}

/// The first changed annotation on which the requested devices depend. Containers are immutable, so such a change
/// cannot take effect.
#[must_use]
pub fn changed(old: &Value, new: &Value) -> Option<&'static str> {
    annotation(old, names::GPU_OFFER).or(annotation(old, names::GPU_SIZES))?;
    [names::GPU_FRACTION, names::GPU_OFFER, names::GPU_SIZES, names::POOL]
        .into_iter()
        .find(|key| !same_annotation(old, new, key))
}

fn set_limit(container: &mut Map<String, Value>, device: &str, units: i64) {
    let resources = container.entry("resources").or_insert_with(|| json!({}));
    if !resources.is_object() {
        *resources = json!({});
    }
    if !resources["limits"].is_object() {
        resources["limits"] = json!({});
    }
    resources["limits"][device] = json!(units.to_string());
}

fn listed(offered: &ResourceList) -> String {
    offered.iter().map(|(device, part)| format!("{device} ({part})")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::api::caps::Caps;
    use crate::api::names;
    use crate::directory::Directory;
    use crate::engine::types::amount::Amount;
    use crate::webhook::test_client::{Ask, ask, directory, with};

    /// Pool `a100` offers two MIG profiles, `t4` quarters of a GPU, `fine` and `hami` hundredths. The default pool offers no
    /// devices for a fraction.
    fn offering() -> Directory {
        let mig = [("nvidia.com/mig-1g.5gb", 143), ("nvidia.com/mig-3g.20gb", 429)];
        let sliced = [("nvidia.com/gpu.shared", 250)];
        let fine = [("example.com/gpu-cores", 10), ("example.com/gpu-memory", 5)];
        let hami = [("nvidia.com/gpucores", 10), ("nvidia.com/gpumem-percentage", 10)];
        let list = |offers: &[(&str, i64)]| {
            offers.iter().map(|(resource, share)| ((*resource).into(), Amount::milli(*share))).collect()
        };
        Directory {
            caps: Caps { assumed_fractions: true, ..Caps::default() },
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
    async fn a_fraction_becomes_the_smallest_sufficient_device() {
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
            assert!(again.allowed && !again.patched, "{fraction} of {pool}: a second review");
        }
    }

    #[tokio::test]
    async fn a_fraction_is_refused_where_no_named_pool_offers_any() {
        let strict = || Directory { caps: Caps::default(), ..offering() };
        let refused = "annotation sluice.dev/gpu-fraction: no NodePool of";
        for (fraction, pool, accepted) in [
            ("0.4", "default", false),
            ("0.4", "plain", false),
            ("0.4", "plain, default", false),
            ("1,0.4", "default", false),
            ("0.4", "plain, a100", true),
            ("0.4", "a100, default", true),
        ] {
            let mut directory = strict();
            directory.pools.insert("plain".into());
            let answer = ask(Ask { directory, ..Ask::create(job(fraction, pool)) }).await;
            assert_eq!(answer.allowed, accepted, "{fraction} of {pool}: {}", answer.message);
            assert!(accepted || answer.message.contains(refused), "{}", answer.message);
            assert!(!accepted || limits(&answer.object).is_object(), "{fraction} of {pool}");
        }
        // Its pods request the whole GPU themselves, and are charged for it.
        let mut whole = job("0.4", "default");
        whole["spec"]["template"]["spec"]["containers"][0]["resources"] =
            json!({"limits": {"nvidia.com/gpu": 1}});
        assert!(ask(Ask { directory: strict(), ..Ask::create(whole) }).await.allowed);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "annotations": {names::GPU_FRACTION: "0.4"}},
            "spec": {"containers": [{"name": "main"}]},
        });
        let answer = ask(Ask { group: "", directory: strict(), ..Ask::create(pod) }).await;
        assert!(!answer.allowed && answer.message.contains(refused), "{}", answer.message);
        // Before the lists are complete nothing is known of the pools: the Job is accepted, and waits.
        let unknown = Directory { complete: false, ..strict() };
        let answer = ask(Ask { directory: unknown, ..Ask::create(job("0.4", "default")) }).await;
        assert!(answer.allowed, "{}", answer.message);
    }

    #[tokio::test]
    async fn the_devices_of_each_listed_fraction_are_noted() {
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
            assert_eq!(first, expected[0]["limits"], "the pods request the first fraction");
            let again = ask(Ask { directory: offering(), ..Ask::create(answer.object) }).await;
            assert!(again.allowed && !again.patched, "{fraction} of {pool}: a second review");
        }
    }

    #[tokio::test]
    async fn the_container_may_request_the_whole_gpu_too() {
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
    async fn a_list_of_fractions_without_effect_is_refused_or_warned_of() {
        let twice = ask(Ask::create(job("1,0.4,0.40", "default"))).await;
        assert!(!twice.allowed && twice.message.contains("names 0.4 twice"), "{}", twice.message);
        let mut forged = job("0.4", "default");
        forged["metadata"]["annotations"][names::GPU_SIZES] = "[]".into();
        let forged = ask(Ask { directory: offering(), ..Ask::create(forged) }).await;
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
    async fn an_unchanged_manifest_keeps_the_granted_size() {
        let mut made =
            ask(Ask { directory: offering(), ..Ask::create(job("1,0.4", "default")) }).await.object;
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
    async fn a_fraction_without_a_device_is_refused() {
        for (fraction, pool, expected) in [
            (
                "0.5",
                "a100",
                "0.5 of a GPU is more than any fraction that pool a100 offers: nvidia.com/mig-1g.5gb",
            ),
            ("0.1", "a100,t4", "pools a100,t4 offer different devices for a GPU fraction; name one"),
        ] {
            let answer = ask(Ask { directory: offering(), ..Ask::create(job(fraction, pool)) }).await;
            assert!(!answer.allowed && answer.message.contains(expected), "{}", answer.message);
        }
    }

    #[tokio::test]
    async fn a_fraction_with_devices_cannot_be_changed() {
        let made = ask(Ask { directory: offering(), ..Ask::create(job("0.1", "a100")) }).await.object;
        let other = with(made.clone(), json!({"metadata": {"annotations": {names::GPU_FRACTION: "0.4"}}}));
        let answer = ask(Ask { directory: offering(), ..Ask::update(made.clone(), other) }).await;
        assert!(!answer.allowed && answer.message.contains("create it again"), "{}", answer.message);
        let moved = with(made.clone(), json!({"metadata": {"annotations": {names::POOL: "t4"}}}));
        assert!(!ask(Ask { directory: offering(), ..Ask::update(made, moved) }).await.allowed);
    }

    #[tokio::test]
    async fn a_pod_without_a_job_gets_the_same_devices() {
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
