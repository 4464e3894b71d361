//! The expected outcome of a scenario, and its differences from the actual one.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use sluice::engine::types::amount::Amount;

use crate::outcome::{Outcome, Seconds, Workload};

/// The file beside a scenario. If it lists any state, every workload must be in exactly one of the lists;
/// otherwise states are not compared.
///
/// A name that ends in a range, as in `a/x-0..3`, means all of `a/x-0` to `a/x-3`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// Duration of the simulation; by default it ends when no further event is possible.
    pub until: Option<String>,
    /// The half-life of usage, if past usage counts.
    pub usage_half_life: Option<String>,
    /// Running workloads at the end, with their nodes.
    #[serde(default)]
    run: BTreeMap<String, Place>,
    /// Waiting workloads at the end, with the code of the reason.
    #[serde(default)]
    wait: BTreeMap<String, String>,
    /// Workloads suspended by their user.
    #[serde(default)]
    held: BTreeSet<String>,
    /// Workloads that succeeded.
    #[serde(default)]
    ended: BTreeSet<String>,
    /// Workloads that failed.
    #[serde(default)]
    failed: BTreeSet<String>,
    /// Deleted workloads.
    #[serde(default)]
    gone: BTreeSet<String>,
    /// All evictions in any order. Not compared if left out.
    evict: Option<Vec<Evicted>>,
    /// Admission times, with nodes and GPU fraction where they matter. Workloads that run from the beginning
    /// have no first admission here.
    #[serde(default)]
    admissions: BTreeMap<String, Vec<Admitted>>,
    /// The expected starts of workloads that wait at the end.
    #[serde(default)]
    expected_starts: BTreeMap<String, Seconds>,
    /// Each team's fair share of the pool at the end.
    #[serde(default)]
    fair_share: BTreeMap<String, Quantity>,
    /// Workloads that must alternate.
    alternate: Option<Alternation>,
    /// The reason why the laws require another outcome than the source of the case.
    #[serde(default)]
    pub difference: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Evicted {
    victim: String,
    /// Empty for an eviction without a preemptor.
    #[serde(rename = "for")]
    preemptor: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Alternation {
    between: BTreeSet<String>,
    at_least: usize,
}

/// An amount in thousandths.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "serde_json::Value")]
struct Quantity(i64);

impl TryFrom<serde_json::Value> for Quantity {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Amount::parse(&text).map(|amount| Self(amount.as_milli())).map_err(|error| error.to_string())
    }
}

/// Nodes of a workload: `n0` (all pods there), `n0=2,n1=1`, `3 pods` (anywhere) or `any`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Place {
    Any,
    Pods(u32),
    Node(String),
    Nodes(BTreeMap<String, u32>),
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().map_err(|_| format!("{text:?} is not a list of nodes"));
        if text == "any" {
            Ok(Self::Any)
        } else if let Some(pods) = text.strip_suffix(" pods") {
            Ok(Self::Pods(number(pods)?))
        } else if text.contains('=') {
            let parts = text.split(',').map(|part| part.split_once('=').ok_or("no ="));
            let nodes: Result<_, String> = parts
                .map(|part| {
                    part.map_or_else(
                        |e| Err(e.to_owned()),
                        |(node, pods)| Ok((node.to_owned(), number(pods)?)),
                    )
                })
                .collect();
            Ok(Self::Nodes(nodes?))
        } else {
            Ok(Self::Node(text))
        }
    }
}

impl Place {
    fn is(&self, nodes: &BTreeMap<String, u32>) -> bool {
        match self {
            Self::Any => true,
            Self::Pods(pods) => nodes.values().sum::<u32>() == *pods,
            Self::Node(node) => nodes.len() == 1 && nodes.contains_key(node),
            Self::Nodes(expected) => expected == nodes,
        }
    }
}

/// One admission: `40s`, or `40s` and nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Admitted {
    at: Seconds,
    place: Place,
    /// The GPU fraction it was admitted with; the full size if none is given.
    share: Option<String>,
}

impl TryFrom<String> for Admitted {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (text, share) = match text.split_once(" at ") {
            Some((text, share)) => (text.to_owned(), Some(share.to_owned())),
            None => (text, None),
        };
        let (at, place) = match text.split_once(' ') {
            Some((at, place)) => (at, Place::try_from(place.to_owned())?),
            None => (text.as_str(), Place::Any),
        };
        Ok(Self { at: Seconds::try_from(at.to_owned())?, place, share })
    }
}

/// The names that a name with a range stands for.
fn names(name: &str) -> Vec<String> {
    let ranged = name.rsplit_once('-').and_then(|(stem, range)| {
        let (from, to) = range.split_once("..")?;
        Some((stem, from.parse::<usize>().ok()?, to.parse::<usize>().ok()?))
    });
    match ranged {
        Some((stem, from, to)) => (from..=to).map(|copy| format!("{stem}-{copy}")).collect(),
        None => vec![name.to_owned()],
    }
}

/// Every difference between the expected and the actual outcome, a line each.
pub fn differences(
    expected: &Expectation,
    got: &Outcome,
    from_the_beginning: &BTreeSet<String>,
) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(states(expected, got));
    lines.extend(evictions(expected, got));
    lines.extend(admissions(expected, got, from_the_beginning));
    lines.extend(expected_starts(expected, got));
    lines.extend(shares(expected, got));
    lines.extend(alternation(expected, got));
    lines
}

/// The expected states by workload, for one state.
type Wanted<'a> = (&'a str, Option<&'a str>, Option<&'a Place>);

fn states(expected: &Expectation, got: &Outcome) -> Vec<String> {
    let mut wanted: BTreeMap<String, Wanted<'_>> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut want = |key: &str, what| {
        for name in names(key) {
            if wanted.insert(name.clone(), what).is_some() {
                lines.push(format!("the expectation names {name} twice"));
            }
        }
    };
    expected.run.iter().for_each(|(key, place)| want(key, ("Running", None, Some(place))));
    expected.wait.iter().for_each(|(key, reason)| want(key, ("Pending", Some(reason.as_str()), None)));
    expected.held.iter().for_each(|key| want(key, ("Held", None, None)));
    expected.ended.iter().for_each(|key| want(key, ("Succeeded", None, None)));
    expected.failed.iter().for_each(|key| want(key, ("Failed", None, None)));
    expected.gone.iter().for_each(|key| want(key, ("", None, None)));
    if wanted.is_empty() {
        return lines;
    }
    for workload in &got.workloads {
        let key = workload.key();
        let Some((state, reason, place)) = wanted.remove(&key) else {
            // An unmanaged pod.
            if workload.team.is_empty() {
                continue;
            }
            lines.push(format!("{key}: no expectation lists it; it {}", workload.state_in_words()));
            continue;
        };
        let wrong = !state.is_empty() && workload.state != state
            || reason.is_some_and(|reason| workload.reason.as_deref() != Some(reason))
            || place.is_some_and(|place| !workload.nodes().is_some_and(|nodes| place.is(nodes)));
        if wrong {
            let place = place.map(|place| format!(" at {place:?}")).unwrap_or_default();
            let reason = reason.map(|reason| format!(" with {reason}")).unwrap_or_default();
            lines.push(format!("{key}: expected {state}{place}{reason}; it {}", workload.state_in_words()));
        }
    }
    let absent = wanted.into_iter().filter(|(_, (state, ..))| !state.is_empty());
    lines.extend(absent.map(|(key, (state, ..))| format!("{key}: expected {state}; no such workload")));
    lines
}

fn evictions(expected: &Expectation, got: &Outcome) -> Vec<String> {
    let Some(list) = &expected.evict else { return Vec::new() };
    let mut wanted: Vec<(String, String, String)> = Vec::new();
    for one in list {
        wanted.extend(
            names(&one.victim).into_iter().map(|victim| (victim, one.preemptor.clone(), one.reason.clone())),
        );
    }
    let mut lines = Vec::new();
    for (victim, eviction) in got.evictions() {
        let seen = (victim.key(), eviction.preemptor.clone(), eviction.reason.clone());
        match wanted.iter().position(|one| *one == seen) {
            Some(position) => drop(wanted.remove(position)),
            None => lines.push(format!(
                "unexpected eviction: {} for {:?} ({}) at {}",
                seen.0, seen.1, seen.2, eviction.at
            )),
        }
    }
    lines.extend(wanted.iter().map(|(victim, preemptor, reason)| {
        format!("missing eviction: {victim} for {preemptor:?} ({reason})")
    }));
    lines
}

fn admissions(expected: &Expectation, got: &Outcome, from_the_beginning: &BTreeSet<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, wanted) in expected
        .admissions
        .iter()
        .flat_map(|(key, wanted)| names(key).into_iter().map(move |name| (name, wanted)))
    {
        let Some(workload) = got.workload(&key) else {
            lines.push(format!("{key}: no such workload"));
            continue;
        };
        let decided = &workload.admissions
            [usize::from(from_the_beginning.contains(&key)).min(workload.admissions.len())..];
        let same = decided.len() == wanted.len()
            && decided.iter().zip(wanted).all(|(got, wanted)| {
                got.at == wanted.at && wanted.place.is(&got.nodes) && got.share == wanted.share
            });
        if !same {
            lines.push(format!("{key}: expected admissions {wanted:?}; got {decided:?}"));
        }
    }
    lines
}

fn expected_starts(expected: &Expectation, got: &Outcome) -> Vec<String> {
    let wrong = expected.expected_starts.iter().filter_map(|(key, wanted)| {
        let eta = got.workload(key).and_then(|workload| workload.eta);
        let shown = eta.map_or_else(|| "none".to_owned(), |eta| eta.to_string());
        (eta != Some(*wanted)).then(|| format!("{key}: expected to start at {wanted}; got {shown}"))
    });
    wrong.collect()
}

/// Fair shares agree if they have the same sum and order, and none differs by a whole unit: rounding to whole
/// units is allowed.
fn shares(expected: &Expectation, got: &Outcome) -> Vec<String> {
    if expected.fair_share.is_empty() {
        return Vec::new();
    }
    let shares: BTreeMap<&str, i64> =
        expected.fair_share.keys().map(|team| (team.as_str(), got.fair_share(team))).collect();
    let pairs: Vec<(i64, i64)> =
        expected.fair_share.iter().map(|(team, wanted)| (wanted.0, shares[team.as_str()])).collect();
    let sum = |side: fn(&(i64, i64)) -> i64| pairs.iter().map(side).sum::<i64>();
    // A rounding error of a thousandth for each team.
    let same_sum = sum(|pair| pair.0).abs_diff(sum(|pair| pair.1)) <= pairs.len() as u64;
    let near = pairs.iter().all(|(wanted, got)| wanted.abs_diff(*got) < 1000);
    let ordered = pairs.iter().all(|a| pairs.iter().all(|b| a.0 <= b.0 || a.1 >= b.1));
    if same_sum && near && ordered {
        return Vec::new();
    }
    let wanted: BTreeMap<&String, i64> =
        expected.fair_share.iter().map(|(team, share)| (team, share.0)).collect();
    vec![format!("fair shares in thousandths: expected {wanted:?}; got {shares:?}")]
}

fn alternation(expected: &Expectation, got: &Outcome) -> Vec<String> {
    let Some(alternation) = &expected.alternate else { return Vec::new() };
    let mut starts: Vec<(Seconds, String)> = got
        .workloads
        .iter()
        .filter(|workload| alternation.between.contains(&workload.key()))
        .flat_map(|workload| workload.admissions.iter().map(|admission| (admission.at, workload.key())))
        .collect();
    starts.sort();
    let changes = starts.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    if changes >= alternation.at_least {
        return Vec::new();
    }
    vec![format!(
        "expected {} alternations between {:?}; got {changes}: {starts:?}",
        alternation.at_least, alternation.between
    )]
}

/// The state of a workload in words.
impl Workload {
    pub fn state_in_words(&self) -> String {
        let why =
            format!("{}: {}", self.reason.as_deref().unwrap_or("-"), self.message.as_deref().unwrap_or("-"));
        match self.nodes() {
            Some(nodes) if self.state == "Running" => format!("runs at {nodes:?}"),
            _ => format!("is {} ({why})", self.state),
        }
    }
}
