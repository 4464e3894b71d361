//! The annotations in which users request something for a workload, and their checks.

use std::num::IntErrorKind;

use jiff::Timestamp;
use serde_json::Value;

use super::gang::has_pod_group;
use super::object::{annotation, label, same_annotation};
use super::review::MOST_WARNINGS;
use super::template;
use super::view::View;
use crate::api::names;
use crate::api::values::{duration, fractions};
use crate::engine::types::amount::{Amount, ResourceList, describe};
use crate::view::is_gpu;

/// The annotations that users write, in the order of the checks.
const ANNOTATIONS: [&str; 15] = [
    names::POOL,
    names::TIME_LIMIT,
    names::CHECKPOINT_INTERVAL,
    names::LAST_CHECKPOINT,
    names::MIN_PARALLELISM,
    names::WANTED_PARALLELISM,
    names::TOPOLOGY_REQUIRED,
    names::TOPOLOGY_PREFERRED,
    names::GPU_FRACTION,
    names::GROUP_SIZE,
    names::PREEMPTIBLE,
    names::HOLD,
    names::ORDER,
    names::TEAM_ORDER,
    names::REQUEUE,
];

/// Checks the requests on a workload.
///
/// # Errors
/// One sentence with the annotation and the problem.
pub fn check(view: &View<'_>, object: &Value) -> Result<(), String> {
    for key in ANNOTATIONS {
        if let Some(text) = annotation(object, key) {
            check_one(view, object, key, text).map_err(|problem| format!("annotation {key}: {problem}"))?;
        }
    }
    if label(object, names::GROUP).is_some() && annotation(object, names::GROUP_SIZE).is_none() {
        return Err(format!(
            "label {} needs annotation {}: the number of pods in the group",
            names::GROUP,
            names::GROUP_SIZE
        ));
    }
    Ok(())
}

/// Whether any request differs between two objects.
#[must_use]
pub fn changed(old: &Value, new: &Value) -> bool {
    ANNOTATIONS.into_iter().any(|key| !same_annotation(old, new, key))
}

fn check_one(view: &View<'_>, object: &Value, key: &str, text: &str) -> Result<(), String> {
    match key {
        names::POOL => pools(view, text),
        names::TIME_LIMIT | names::CHECKPOINT_INTERVAL => match duration(text)? {
            zero if zero.is_zero() => Err(format!("{text:?} must be more than 0s")),
            _ => Ok(()),
        },
        names::LAST_CHECKPOINT => instant(text),
        names::REQUEUE if object["kind"] == "Pod" => {
            Err("a pod is not created again after an eviction; it is only for Jobs and custom kinds"
                .to_owned())
        }
        names::REQUEUE => instant(text),
        names::ORDER | names::TEAM_ORDER => order(text),
        names::MIN_PARALLELISM => {
            let fewest = positive(text)?;
            let parallelism = object["spec"]["parallelism"].as_u64().unwrap_or(1);
            if object["kind"] == "Job" && u64::from(fewest) > parallelism {
                return Err(format!("{fewest} is more than spec.parallelism {parallelism}"));
            }
            if object["kind"] == "Job" && has_pod_group(object) {
                return Err("the Job names a PodGroup, so its parallelism cannot be changed".to_owned());
            }
            Ok(())
        }
        names::GROUP_SIZE | names::WANTED_PARALLELISM => positive(text).map(|_| ()),
        names::PREEMPTIBLE if object["kind"] == "Job" => {
            Err("is only for pods without a Job; the queue of a Job decides whether it may be evicted"
                .to_owned())
        }
        names::PREEMPTIBLE | names::HOLD if !matches!(text, "true" | "false") => {
            Err(format!("{text:?} is neither \"true\" nor \"false\""))
        }
        names::PREEMPTIBLE | names::HOLD => Ok(()),
        names::GPU_FRACTION => {
            fractions(text)?;
            match whole_gpus(object) {
                several if several.values().any(|amount| *amount > Amount::units(1)) => {
                    Err(format!("a pod that requests {} cannot have a fraction of one", describe(&several)))
                }
                _ => Ok(()),
            }
        }
        _ if is_label_key(text) => Ok(()),
        _ => Err(format!("{text:?} is not the key of a node label")),
    }
}

/// Checks a place among other work.
fn order(text: &str) -> Result<(), String> {
    let wrong = |error: std::num::ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
            format!("{text:?} is not between {} and {}", i32::MIN, i32::MAX)
        }
        _ => format!("{text:?} is not a whole number such as 5 or -5; the highest comes first"),
    };
    text.parse::<i32>().map(|_| ()).map_err(wrong)
}

/// The whole GPUs that the containers of a pod request. For devices, requests and limits are equal.
pub fn whole_gpus(object: &Value) -> ResourceList {
    let spec = if object["kind"] == "Job" { &object["spec"]["template"]["spec"] } else { &object["spec"] };
    let containers = spec["containers"].as_array().into_iter().flatten();
    let mut total = ResourceList::new();
    for container in containers {
        let limits = container["resources"]["limits"].as_object().into_iter().flatten();
        for (resource, amount) in limits.filter(|(resource, _)| is_gpu(resource)) {
            let text = amount.as_str().map_or_else(|| amount.to_string(), ToOwned::to_owned);
            if let Some(amount) = Amount::parse(&text).ok().filter(|amount| *amount > Amount::ZERO) {
                // In place: a pod may have thousands of containers.
                let all = total.entry(resource.as_str().into()).or_default();
                *all = *all + amount;
            }
        }
    }
    total
}

/// Warnings about well-formed requests that have no effect.
#[must_use]
pub fn warnings(object: &Value) -> Vec<String> {
    let mut warnings = without_effect(object);
    warnings.extend(fraction_warning(object));
    warnings
}

/// Warnings about keys that only other kinds have.
fn of_other_kinds(object: &Value) -> Vec<String> {
    let of_pods = |place: &str, key: &str| {
        let found = object["kind"] != "Pod" && object["metadata"][place][key].is_string();
        let kind = place.trim_end_matches('s');
        found.then(|| {
            format!(
                "sluice: {kind} {key} has no effect: it is for pods that no Job owns; the pods of one object start together \
                 anyway"
            )
        })
    };
    let group = of_pods("labels", names::GROUP);
    group.into_iter().chain(of_pods("annotations", names::GROUP_SIZE)).collect()
}

/// The same warnings about keys that an update adds.
#[must_use]
pub fn newly_without_effect(old: &Value, new: &Value) -> Vec<String> {
    let before = without_effect(old);
    without_effect(new).into_iter().filter(|warning| !before.contains(warning)).take(MOST_WARNINGS).collect()
}

/// Warnings about unknown labels and annotations with Sluice's prefix, such as a misspelt key.
#[must_use]
pub fn without_effect(object: &Value) -> Vec<String> {
    let unknown = unknown_keys(object, "", &names::LABELS, &names::ANNOTATIONS);
    let mut warnings: Vec<String> = unknown.iter().map(|line| format!("sluice: {line}")).collect();
    warnings.extend(of_other_kinds(object));
    if object["kind"] == "Job" {
        warnings.extend(template::without_effect(object, &object["spec"]["template"], "spec.template"));
    }
    warnings
}

/// The labels and annotations with Sluice's prefix that are not among the known ones, each as a sentence. `of` names the kind of
/// object where only that has no such key.
#[must_use]
pub fn unknown_keys(object: &Value, of: &str, labels: &[&str], annotations: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let places = [
        ("label", "labels", labels, annotations, "an annotation"),
        ("annotation", "annotations", annotations, labels, "a label"),
    ];
    for (kind, place, known, elsewhere, other) in places {
        let keys = object["metadata"][place].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        for key in keys.filter(|key| key.starts_with(names::PREFIX) && !known.contains(key)) {
            let why = if elsewhere.contains(&key) {
                format!("it must be {other}")
            } else {
                format!("there is no such {kind}{of}")
            };
            found.push(format!("{kind} {key} has no effect: {why}"));
        }
    }
    found
}

fn fraction_warning(object: &Value) -> Option<String> {
    let text = annotation(object, names::GPU_FRACTION)?;
    let whole = whole_gpus(object);
    let fractions = fractions(text).unwrap_or_default();
    if fractions.len() > 1 && object["kind"] != "Job" {
        return Some(format!(
            "sluice: annotation {} lists {text}, but a pod without a Job always gets the first; a Job starts with the \
             first that fits",
            names::GPU_FRACTION
        ));
    }
    // The containers may request one whole GPU if that is the first of several fractions.
    let one = Amount::units(1);
    if whole.is_empty() || fractions.first() == Some(&one) && whole.values().eq([&one]) {
        return None;
    }
    Some(format!(
        "sluice: annotation {} has no effect, because each pod requests {} itself; leave that out of the containers to \
         use a fraction of a GPU",
        names::GPU_FRACTION,
        describe(&whole)
    ))
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

fn instant(text: &str) -> Result<(), String> {
    text.parse::<Timestamp>()
        .map(|_| ())
        .map_err(|_| format!("{text:?} is not an RFC 3339 time such as 2026-01-31T12:00:00Z"))
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
    fn a_key_without_effect_is_warned_of() {
        let warned = |labels: Value, annotations: Value| {
            warnings(&json!({"kind": "Job", "metadata": {"labels": labels, "annotations": annotations}}))
        };
        let found = warned(
            json!({"sluice.dev/pool": "x"}),
            json!({"sluice.dev/queue": "x", "sluice.dev/limit": "1h"}),
        );
        assert_eq!(
            found,
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

    #[test]
    fn a_key_of_pods_on_another_kind_is_warned_of() {
        let group =
            json!({"labels": {"sluice.dev/group": "g"}, "annotations": {"sluice.dev/group-size": "2"}});
        let found = warnings(&json!({"kind": "Job", "metadata": group}));
        let of = "has no effect: it is for pods that no Job owns";
        assert!(found[0].starts_with(&format!("sluice: label sluice.dev/group {of}")), "{found:?}");
        assert!(found[1].starts_with(&format!("sluice: annotation sluice.dev/group-size {of}")), "{found:?}");
        assert!(warnings(&json!({"kind": "Pod", "metadata": group})).is_empty());
    }
}
