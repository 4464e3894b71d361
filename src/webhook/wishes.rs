//! The annotations by which people say what their workload needs, and what is wrong with them.

use jiff::Timestamp;
use serde_json::Value;

use super::gang::is_grouped;
use super::object::{annotation, label};
use super::view::View;
use crate::api::names;
use crate::api::values::{duration, fractions};
use crate::engine::types::amount::{Amount, ResourceList, describe, sum};
use crate::view::is_gpu;

/// Everything a person may write, in the order it is checked.
pub const ANNOTATIONS: [&str; 10] = [
    names::POOL,
    names::TIME_LIMIT,
    names::CHECKPOINT_INTERVAL,
    names::LAST_CHECKPOINT,
    names::MIN_PARALLELISM,
    names::TOPOLOGY_REQUIRED,
    names::TOPOLOGY_PREFERRED,
    names::GPU_FRACTION,
    names::GROUP_SIZE,
    names::PREEMPTIBLE,
];

/// Checks what a person wrote on a Job or a Pod.
///
/// # Errors
/// One sentence naming the annotation and what is wrong.
pub fn check(view: &View<'_>, object: &Value) -> Result<(), String> {
    for key in ANNOTATIONS {
        if let Some(text) = annotation(object, key) {
            check_one(view, object, key, text).map_err(|problem| format!("annotation {key}: {problem}"))?;
        }
    }
    if label(object, names::GROUP).is_some() && annotation(object, names::GROUP_SIZE).is_none() {
        return Err(format!(
            "label {} needs annotation {}: how many pods the group has",
            names::GROUP,
            names::GROUP_SIZE
        ));
    }
    Ok(())
}

fn check_one(view: &View<'_>, object: &Value, key: &str, text: &str) -> Result<(), String> {
    match key {
        names::POOL => pools(view, text),
        names::TIME_LIMIT | names::CHECKPOINT_INTERVAL => match duration(text)? {
            zero if zero.is_zero() => Err(format!("{text:?} must be longer than nothing")),
            _ => Ok(()),
        },
        names::LAST_CHECKPOINT => text
            .parse::<Timestamp>()
            .map(|_| ())
            .map_err(|_| format!("{text:?} is not an RFC 3339 time such as 2026-01-31T12:00:00Z")),
        names::MIN_PARALLELISM => {
            let fewest = positive(text)?;
            let parallelism = object["spec"]["parallelism"].as_u64().unwrap_or(1);
            if object["kind"] == "Job" && u64::from(fewest) > parallelism {
                return Err(format!("{fewest} is more than spec.parallelism {parallelism}"));
            }
            if object["kind"] == "Job" && is_grouped(object) {
                return Err(
                    "the parallelism of a Job whose pods are of a PodGroup cannot be changed".to_owned()
                );
            }
            Ok(())
        }
        names::GROUP_SIZE => positive(text).map(|_| ()),
        names::PREEMPTIBLE if object["kind"] == "Job" => {
            Err("is for pods that no Job owns; whether a Job may be evicted is its queue's to say".to_owned())
        }
        names::PREEMPTIBLE if !matches!(text, "true" | "false") => {
            Err(format!("{text:?} is neither \"true\" nor \"false\""))
        }
        names::PREEMPTIBLE => Ok(()),
        names::GPU_FRACTION => {
            fractions(text)?;
            match whole_devices(object) {
                several if several.values().any(|amount| *amount > Amount::units(1)) => {
                    Err(format!("a pod that asks for {} needs no share of one", describe(&several)))
                }
                _ => Ok(()),
            }
        }
        _ if is_label_key(text) => Ok(()),
        _ => Err(format!("{text:?} is not the key of a node label")),
    }
}

/// The GPUs that the containers of a pod ask for; of devices, requests and limits are the same.
pub fn whole_devices(object: &Value) -> ResourceList {
    let spec = if object["kind"] == "Job" { &object["spec"]["template"]["spec"] } else { &object["spec"] };
    let containers = spec["containers"].as_array().into_iter().flatten();
    containers.fold(ResourceList::new(), |asked, container| {
        let limits = container["resources"]["limits"].as_object().into_iter().flatten();
        let gpus = limits.filter(|(resource, _)| is_gpu(resource)).filter_map(|(resource, amount)| {
            let text = amount.as_str().map_or_else(|| amount.to_string(), ToOwned::to_owned);
            let amount = Amount::parse(&text).ok().filter(|amount| *amount > Amount::ZERO)?;
            Some((resource.as_str().into(), amount))
        });
        sum(&asked, &gpus.collect())
    })
}

/// What a person should know of wishes that are well-formed.
#[must_use]
pub fn warnings(object: &Value) -> Vec<String> {
    let mut warnings = without_effect(object);
    warnings.extend(of_shares(object));
    warnings
}

/// Labels and annotations that look like Sluice's and are not, such as one misspelt, or a label among the annotations.
#[must_use]
pub fn without_effect(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let places = [
        ("label", "labels", &names::LABELS[..], "an annotation"),
        ("annotation", "annotations", &names::ANNOTATIONS, "a label"),
    ];
    for (kind, place, known, other) in places {
        let keys = object["metadata"][place].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        for key in keys.filter(|key| key.starts_with(names::PREFIX) && !known.contains(key)) {
            let elsewhere = names::LABELS.contains(&key) || names::ANNOTATIONS.contains(&key);
            let why =
                if elsewhere { format!("it must be {other}") } else { format!("there is no such {kind}") };
            warnings.push(format!("sluice: {kind} {key} has no effect: {why}"));
        }
    }
    warnings
}

fn of_shares(object: &Value) -> Vec<String> {
    let whole = whole_devices(object);
    let Some(text) = annotation(object, names::GPU_FRACTION) else { return Vec::new() };
    let shares = fractions(text).unwrap_or_default();
    if shares.len() > 1 && object["kind"] != "Job" {
        return vec![format!(
            "sluice: of the shares {text} in annotation {} the first counts, because what a pod asks for cannot be \
             changed once it is there; a Job would get the first that fits",
            names::GPU_FRACTION
        )];
    }
    // One whole device is the most wanted of several shares, as the containers may say too.
    let one = Amount::units(1);
    if whole.is_empty() || shares.first() == Some(&one) && whole.values().eq([&one]) {
        return Vec::new();
    }
    vec![format!(
        "sluice: annotation {} has no effect, because each pod asks for {} itself and kube-scheduler counts that; \
         leave it out of the containers to share a GPU",
        names::GPU_FRACTION,
        describe(&whole)
    )]
}

fn pools(view: &View<'_>, text: &str) -> Result<(), String> {
    for pool in text.split(',').map(str::trim) {
        if pool.is_empty() {
            return Err(format!("{text:?} is not a comma-separated list of pools"));
        }
        if !view.pool(pool) && view.complete() {
            return Err(format!("NodePool {pool:?} does not exist"));
        }
    }
    Ok(())
}

fn positive(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("{text:?} is not a whole number above 0"))
}

fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').unwrap_or(("a", text));
    let ends_well = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let made_of =
        |part: &str, extra: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c));
    ends_well(prefix)
        && ends_well(name)
        && prefix.len() <= 253
        && name.len() <= 63
        && made_of(prefix, "-.")
        && made_of(name, "-._")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_no_effect_is_told() {
        let warned = |labels: Value, annotations: Value| {
            warnings(&json!({"kind": "Job", "metadata": {"labels": labels, "annotations": annotations}}))
        };
        let told = warned(
            json!({"sluice.dev/pool": "x"}),
            json!({"sluice.dev/queue": "x", "sluice.dev/limit": "1h"}),
        );
        assert_eq!(
            told,
            [
                "sluice: label sluice.dev/pool has no effect: it must be an annotation",
                "sluice: annotation sluice.dev/limit has no effect: there is no such annotation",
                "sluice: annotation sluice.dev/queue has no effect: it must be a label",
            ]
        );
        let known = warned(
            json!({"sluice.dev/queue": "x", "app": "y"}),
            json!({"sluice.dev/pool": "x", "example.com/z": "1"}),
        );
        assert!(known.is_empty(), "{known:?}");
        assert!(warnings(&json!({"kind": "Job"})).is_empty());
    }
}
