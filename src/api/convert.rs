//! Converts Teams and NodePools to the engine's types. Every error names the object and the field.
//!
//! The CRD schema enforces most of these checks. They are repeated because scenario files do not pass through the API
//! server, and an older CRD may be installed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use thiserror::Error;

use super::node_pool::NodePool;
use super::team::{
    BudgetPeriod, OnExhausted, OnMaxWait, OnPodLoss, OnUnreachable, Paused, Quantities, Team, TeamBudget,
    TeamQueue, TeamQuota,
};
use super::values::{duration, is_dns_label};
use crate::engine::types;
use crate::engine::types::amount::{Amount, ResourceList, ResourceName};

/// An invalid value in an object.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{object}: {field}: {problem}")]
pub struct FieldError {
    /// The object, `Kind name` or `Kind namespace/name`.
    pub object: String,
    /// The path of the field.
    pub field: String,
    /// The problem.
    pub problem: String,
}

/// A problem at a path of a still unknown object.
pub(crate) struct Problem {
    pub(crate) field: String,
    pub(crate) problem: String,
}

impl Problem {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    pub(crate) fn of(self, object: impl Into<String>) -> FieldError {
        FieldError { object: object.into(), field: self.field, problem: self.problem }
    }
}

impl TryFrom<&Team> for types::Team {
    type Error = FieldError;

    fn try_from(team: &Team) -> Result<Self, FieldError> {
        let name = team.name_any();
        convert_team(&name, team).map_err(|problem| problem.of(format!("Team {name}")))
    }
}

fn convert_team(name: &str, team: &Team) -> Result<types::Team, Problem> {
    let spec = &team.spec;
    dns_label("metadata.name", name)?;
    if let Some(parent) = &spec.parent {
        dns_label("spec.parent", parent)?;
        if parent == name {
            return Err(Problem::new("spec.parent", "a team cannot be its own parent"));
        }
    }
    let mut quotas = BTreeMap::new();
    for (index, quota) in spec.quotas.iter().enumerate() {
        let path = format!("spec.quotas[{index}]");
        dns_label(&format!("{path}.pool"), &quota.pool)?;
        if quotas.insert(quota.pool.as_str().into(), convert_quota(&path, quota)?).is_some() {
            return Err(Problem::new(format!("{path}.pool"), format!("{:?} is listed twice", quota.pool)));
        }
    }
    let mut queues = Vec::new();
    let mut names = BTreeSet::new();
    for (index, queue) in spec.queues.iter().enumerate() {
        let path = format!("spec.queues[{index}]");
        dns_label(&format!("{path}.name"), &queue.name)?;
        if !names.insert(queue.name.as_str()) {
            return Err(Problem::new(format!("{path}.name"), format!("{:?} is listed twice", queue.name)));
        }
        queues.push(convert_queue(&path, queue)?);
    }
    if queues.is_empty() {
        queues.push(types::Queue::fallback());
    }
    for (index, endpoint) in spec.notify.iter().enumerate() {
        let problem = |problem| Problem::new(format!("spec.notify[{index}].waitingLongerThan"), problem);
        endpoint.mark().map_err(problem)?;
    }
    let weight =
        u32::try_from(spec.weight).map_err(|_| Problem::new("spec.weight", "must not be negative"))?;
    Ok(types::Team {
        name: name.into(),
        parent: spec.parent.as_deref().map(Into::into),
        quotas,
        weight,
        queues,
        fair_users: spec.fair_users,
        budget: spec.budget.as_ref().map(convert_budget).transpose()?,
    })
}

fn convert_budget(budget: &TeamBudget) -> Result<types::Budget, Problem> {
    let amount = Amount::parse(&budget.amount.0)
        .map_err(|error| Problem::new("spec.budget.amount", error.to_string()))?;
    if amount <= Amount::ZERO {
        return Err(Problem::new("spec.budget.amount", "the amount must be more than 0"));
    }
    let period = match budget.period {
        BudgetPeriod::Day => types::Period::Day,
        BudgetPeriod::Week => types::Period::Week,
        BudgetPeriod::Month => types::Period::Month,
        BudgetPeriod::Quarter => types::Period::Quarter,
        BudgetPeriod::Never => types::Period::Never,
    };
    let on_exhausted = match budget.on_exhausted {
        OnExhausted::Notify => types::OnExhausted::Notify,
        OnExhausted::BorrowOnly => types::OnExhausted::BorrowOnly,
        OnExhausted::Hold => types::OnExhausted::Hold,
    };
    Ok(types::Budget { amount, period, on_exhausted })
}

fn convert_quota(path: &str, quota: &TeamQuota) -> Result<types::Quota, Problem> {
    let guaranteed = amounts(&format!("{path}.guaranteed"), &quota.guaranteed)?;
    let limit = amounts(&format!("{path}.limit"), &quota.limit)?;
    let lendable = amounts(&format!("{path}.lendable"), &quota.lendable)?;
    for (resource, amount) in &guaranteed {
        if let Some(most) = limit.get(resource).filter(|most| amount > *most) {
            return Err(Problem::new(
                format!("{path}.guaranteed[{resource}]"),
                format!("{amount} exceeds the limit of {most}"),
            ));
        }
    }
    for (resource, amount) in &lendable {
        let own = guaranteed.get(resource).copied().unwrap_or_default();
        if *amount > own {
            return Err(Problem::new(
                format!("{path}.lendable[{resource}]"),
                format!("{amount} exceeds the guaranteed {own}"),
            ));
        }
    }
    Ok(types::Quota { guaranteed, limit, lendable })
}

fn convert_queue(path: &str, queue: &TeamQueue) -> Result<types::Queue, Problem> {
    let fallback = types::Queue::fallback();
    if queue.on_max_wait != OnMaxWait::Notify && queue.max_wait.is_none() {
        let problem = format!("{:?} needs maxWait, which is not set", queue.on_max_wait);
        return Err(Problem::new(format!("{path}.onMaxWait"), problem));
    }
    let parse = |field: &str, text: &Option<String>| -> Result<Option<Duration>, Problem> {
        text.as_deref()
            .map(|text| duration(text).map_err(|problem| Problem::new(format!("{path}.{field}"), problem)))
            .transpose()
    };
    let ready_timeout = parse("readyTimeout", &queue.ready_timeout)?;
    if ready_timeout == Some(Duration::ZERO) {
        let problem = "must be more than 0s; leave it out for no timeout";
        return Err(Problem::new(format!("{path}.readyTimeout"), problem));
    }
    Ok(types::Queue {
        name: queue.name.as_str().into(),
        priority: queue.priority,
        preemptible: queue.preemptible,
        limit: amounts(&format!("{path}.limit"), &queue.limit)?,
        min_runtime: parse("minRuntime", &queue.min_runtime)?.unwrap_or(fallback.min_runtime),
        fair_share_window: match queue.fair_share_window.as_deref() {
            Some("Never") => types::FairShareWindow::Never,
            Some("Always") => types::FairShareWindow::Always,
            _ => parse("fairShareWindow", &queue.fair_share_window)
                .map_err(|Problem { field, problem }| {
                    Problem::new(field, format!("{problem}, and neither Never nor Always"))
                })?
                .map_or(fallback.fair_share_window, types::FairShareWindow::For),
        },
        reserve_after: parse("reserveAfter", &queue.reserve_after)?.unwrap_or(fallback.reserve_after),
        default_time_limit: parse("defaultTimeLimit", &queue.default_time_limit)?,
        max_wait: parse("maxWait", &queue.max_wait)?,
        on_max_wait: match queue.on_max_wait {
            OnMaxWait::Notify => types::OnMaxWait::Notify,
            OnMaxWait::RaisePriority => types::OnMaxWait::RaisePriority,
            OnMaxWait::Fail => types::OnMaxWait::Fail,
        },
        max_runtime: parse("maxRuntime", &queue.max_runtime)?,
        on_unreachable: match queue.on_unreachable {
            OnUnreachable::End => types::OnUnreachable::End,
            OnUnreachable::Wait => types::OnUnreachable::Wait,
        },
        on_pod_loss: match queue.on_pod_loss {
            OnPodLoss::Replace => types::OnPodLoss::Replace,
            OnPodLoss::Restart => types::OnPodLoss::Restart,
        },
        ready_timeout,
        paused: match queue.paused {
            Paused::No => types::Paused::No,
            Paused::Hold => types::Paused::Hold,
            Paused::Drain => types::Paused::Drain,
        },
    })
}

impl TryFrom<&NodePool> for types::Pool {
    type Error = FieldError;

    fn try_from(pool: &NodePool) -> Result<Self, FieldError> {
        let name = pool.name_any();
        convert_pool(&name, pool).map_err(|problem| problem.of(format!("NodePool {name}")))
    }
}

fn convert_pool(name: &str, pool: &NodePool) -> Result<types::Pool, Problem> {
    dns_label("metadata.name", name)?;
    let spec = &pool.spec;
    match (name == types::DEFAULT_POOL, spec.node_selector.is_empty()) {
        (true, false) => {
            return Err(Problem::new(
                "spec.nodeSelector",
                "\"default\" is the pool of all nodes outside of every NodePool and has no nodeSelector; choose another name",
            ));
        }
        (false, true) => return Err(Problem::new("spec.nodeSelector", "must name at least one label")),
        (true, true) | (false, false) => {}
    }
    let levels: BTreeSet<&String> = spec.topology.iter().collect();
    if levels.len() < spec.topology.len() {
        return Err(Problem::new("spec.topology", "a topology level must be listed once"));
    }
    Ok(types::Pool {
        name: name.into(),
        node_selector: spec
            .node_selector
            .iter()
            .map(|(k, v)| (k.as_str().into(), v.as_str().into()))
            .collect(),
        topology: spec.topology.iter().map(|level| level.as_str().into()).collect(),
        weights: with_fractions(weights(&spec.weights)?, &shares(&spec.shares)?),
    })
}

/// The devices that a pool offers for GPU fractions, each with the part of a GPU that one unit is.
///
/// # Errors
/// The invalid field.
pub(crate) fn shares(written: &Quantities) -> Result<ResourceList, Problem> {
    let parts = amounts("spec.shares", written)?;
    for (resource, part) in &parts {
        let problem = |problem: &str| Problem::new(format!("spec.shares[{resource}]"), problem);
        if &**resource == types::CURRENCY {
            return Err(problem("the currency itself is not a part of a GPU"));
        }
        if *part == Amount::ZERO || *part >= Amount::units(1) {
            return Err(problem("must be above 0 and below 1"));
        }
    }
    Ok(parts)
}

/// Adds the weights of devices for GPU fractions: their part of the weight of a GPU, unless a weight is given.
fn with_fractions(mut weights: ResourceList, parts: &ResourceList) -> ResourceList {
    if parts.is_empty() {
        return weights;
    }
    if weights.is_empty() {
        weights.insert(WHOLE.into(), Amount::units(1));
    }
    let whole = weights.get(WHOLE).copied().unwrap_or(Amount::units(1)).as_milli();
    // Cores and memory of the same fraction count once.
    let counted = parts.iter().find(|(_, part)| is_fine(**part)).map(|(resource, _)| resource);
    let counts = |resource: &ResourceName, part: Amount| !is_fine(part) || counted == Some(resource);
    for (resource, part) in parts.iter().filter(|(resource, part)| counts(resource, **part)) {
        let weight = Amount::milli((part.as_milli().saturating_mul(whole) / 1000).max(1));
        weights.entry(resource.clone()).or_insert(weight);
    }
    weights
}

/// Whether a unit is at most a hundredth of a GPU, so that pods request many units.
pub(crate) fn is_fine(part: Amount) -> bool {
    part <= Amount::milli(10)
}

/// The device of which fractions are parts.
pub(crate) const WHOLE: &str = "nvidia.com/gpu";

fn weights(written: &Quantities) -> Result<ResourceList, Problem> {
    let weights = amounts("spec.weights", written)?;
    for (resource, weight) in &weights {
        let problem = |problem: &str| Problem::new(format!("spec.weights[{resource}]"), problem);
        if &**resource == types::CURRENCY {
            return Err(problem("the currency itself has no weight"));
        }
        if *weight == Amount::ZERO {
            return Err(problem("must be more than 0"));
        }
    }
    Ok(weights)
}

fn dns_label(field: &str, text: &str) -> Result<(), Problem> {
    if is_dns_label(text) {
        Ok(())
    } else {
        Err(Problem::new(field, format!("{text:?} must be 1 to 63 characters of a-z, 0-9 and -")))
    }
}

/// Parses quantities. Negative quantities are errors.
pub(crate) fn amounts(field: &str, quantities: &Quantities) -> Result<ResourceList, Problem> {
    quantities
        .iter()
        .map(|(resource, Quantity(text))| {
            let problem = |problem: String| Problem::new(format!("{field}[{resource}]"), problem);
            let amount = Amount::parse(text).map_err(|error| problem(error.to_string()))?;
            if amount < Amount::ZERO {
                return Err(problem(format!("{text} is negative")));
            }
            Ok((resource.as_str().into(), amount))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(spec: &str) -> Result<types::Team, String> {
        let team: Team = serde_saphyr::from_str(&format!(
            "apiVersion: sluice.dev/v1alpha1\nkind: Team\nmetadata: {{name: vision}}\nspec: {spec}"
        ))
        .map_err(|error| error.to_string())?;
        types::Team::try_from(&team).map_err(|error| error.to_string())
    }

    fn pool(name: &str, spec: &str) -> Result<types::Pool, String> {
        let pool: NodePool = serde_saphyr::from_str(&format!(
            "apiVersion: sluice.dev/v1alpha1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec: {spec}"
        ))
        .map_err(|error| error.to_string())?;
        types::Pool::try_from(&pool).map_err(|error| error.to_string())
    }

    #[test]
    fn a_team_is_converted_with_defaults() {
        let team = team(
            "{parent: research, quotas: [{guaranteed: {nvidia.com/gpu: 20}, limit: {nvidia.com/gpu: \"40\"}}], \
             queues: [{name: training, minRuntime: 10m, maxWait: 24h}]}",
        )
        .expect("the team is well-formed");
        assert_eq!(team.parent.as_deref(), Some("research"));
        assert_eq!(team.weight, 1);
        let quota = &team.quotas["default"];
        assert_eq!(quota.guaranteed["nvidia.com/gpu"], Amount::units(20));
        assert_eq!(quota.limit["nvidia.com/gpu"], Amount::units(40));
        let queue = &team.queues[0];
        assert!(queue.preemptible);
        assert_eq!(queue.min_runtime, Duration::from_secs(600));
        assert_eq!(queue.reserve_after, Duration::from_secs(600));
        assert_eq!(queue.max_wait, Some(Duration::from_secs(86400)));
    }

    #[test]
    fn a_fair_share_window_is_a_duration_or_an_extreme() {
        let window = |text: &str| {
            let team = team(&format!("{{queues: [{{name: q, fairShareWindow: {text}}}]}}"))?;
            Ok::<_, String>(team.queues[0].fair_share_window)
        };
        let minutes = |minutes: u64| types::FairShareWindow::For(Duration::from_secs(60 * minutes));
        assert_eq!(window("null"), Ok(minutes(10)));
        assert_eq!(window("1h"), Ok(minutes(60)));
        assert_eq!(window("Never"), Ok(types::FairShareWindow::Never));
        assert_eq!(window("Always"), Ok(types::FairShareWindow::Always));
        let problem = window("sometimes").expect_err("not a duration");
        let said = "spec.queues[0].fairShareWindow: \"sometimes\" is not a duration such as 90s, 10m or 24h, and neither Never nor \
                    Always";
        assert!(problem.ends_with(said), "{problem}");
    }

    #[test]
    fn a_team_without_queues_has_the_default_queue() {
        assert_eq!(team("{}").expect("an empty spec is a team").queues, [types::Queue::fallback()]);
    }

    #[test]
    fn invalid_values_are_refused_with_the_field() {
        for (spec, message) in [
            ("{parent: vision}", "Team vision: spec.parent: a team cannot be its own parent"),
            ("{weight: -1}", "Team vision: spec.weight: must not be negative"),
            (
                "{quotas: [{guaranteed: {cpu: -1}}]}",
                "Team vision: spec.quotas[0].guaranteed[cpu]: -1 is negative",
            ),
            (
                "{quotas: [{guaranteed: {cpu: 2}, limit: {cpu: 1}}]}",
                "Team vision: spec.quotas[0].guaranteed[cpu]: 2 exceeds the limit of 1",
            ),
            (
                "{quotas: [{lendable: {cpu: 1}}]}",
                "Team vision: spec.quotas[0].lendable[cpu]: 1 exceeds the guaranteed 0",
            ),
            ("{quotas: [{pool: a}, {pool: a}]}", "Team vision: spec.quotas[1].pool: \"a\" is listed twice"),
            ("{queues: [{name: q}, {name: q}]}", "Team vision: spec.queues[1].name: \"q\" is listed twice"),
            (
                "{queues: [{name: q, maxWait: soon}]}",
                "Team vision: spec.queues[0].maxWait: \"soon\" is not a duration such as 90s, 10m or 24h",
            ),
            (
                "{queues: [{name: Q.x}]}",
                "Team vision: spec.queues[0].name: \"Q.x\" must be 1 to 63 characters of a-z, 0-9 and -",
            ),
        ] {
            assert_eq!(team(spec), Err(message.to_owned()), "{spec}");
        }
    }

    #[test]
    fn a_pool_needs_a_selector_and_another_name_than_default() {
        assert!(pool("a100", "{nodeSelector: {gpu: a100}}").is_ok());
        assert_eq!(
            pool("a100", "{nodeSelector: {}}"),
            Err("NodePool a100: spec.nodeSelector: must name at least one label".to_owned())
        );
        let message =
            pool("default", "{nodeSelector: {gpu: a100}}").expect_err("a selector on the default pool");
        assert!(message.contains("choose another name"), "{message}");
        let default = pool("default", "{topology: [rack]}").expect("the topology of the remaining nodes");
        assert_eq!(default.topology, ["rack".into()]);
    }

    #[test]
    fn weights_make_a_currency() {
        let weighed =
            |weights: &str| pool("h100", &format!("{{nodeSelector: {{a: b}}, weights: {weights}}}"));
        let h100 = weighed("{nvidia.com/gpu: 2, amd.com/gpu: 1.5}").expect("the pool is well-formed");
        assert_eq!(h100.weights["nvidia.com/gpu"], Amount::units(2));
        assert_eq!(h100.weights["amd.com/gpu"], Amount::milli(1500));
        for (weights, problem) in [
            ("{nvidia.com/gpu: 0}", "[nvidia.com/gpu]: must be more than 0"),
            ("{nvidia.com/gpu: -1}", "[nvidia.com/gpu]: -1 is negative"),
            ("{sluice.dev/gpu: 1}", "[sluice.dev/gpu]: the currency itself has no weight"),
        ] {
            assert_eq!(weighed(weights), Err(format!("NodePool h100: spec.weights{problem}")));
        }
        let team = team("{quotas: [{pool: h100, guaranteed: {sluice.dev/gpu: 8}}]}").expect("a team");
        assert_eq!(team.quotas["h100"].guaranteed[types::CURRENCY], Amount::units(8));
    }

    #[test]
    fn parts_of_a_gpu_count_in_the_currency() {
        let sharing = |spec: &str| pool("a100", &format!("{{nodeSelector: {{a: b}}, {spec}}}"));
        let pool =
            sharing("shares: {nvidia.com/mig-1g.5gb: 0.143, nvidia.com/gpu.shared: 250m}").expect("a pool");
        assert_eq!(pool.weights["nvidia.com/gpu"], Amount::units(1));
        assert_eq!(pool.weights["nvidia.com/mig-1g.5gb"], Amount::milli(143));
        let pool =
            sharing("weights: {nvidia.com/gpu: 2, x/y: 1}, shares: {nvidia.com/gpu.shared: 0.25, x/y: 0.5}");
        let weights = pool.expect("a pool").weights;
        assert_eq!(weights["nvidia.com/gpu.shared"], Amount::milli(500), "a quarter of the weight of a GPU");
        assert_eq!(weights["x/y"], Amount::units(1), "a given weight counts");
        let pool = sharing("shares: {x.y/cores: 0.01, x.y/memory: 0.01}").expect("a pool");
        assert_eq!(
            pool.weights.keys().map(|name| &**name).collect::<Vec<_>>(),
            ["nvidia.com/gpu", "x.y/cores"]
        );
        for (shares, problem) in [
            ("{a/b: 1}", "[a/b]: must be above 0 and below 1"),
            ("{a/b: 0}", "[a/b]: must be above 0 and below 1"),
            ("{sluice.dev/gpu: 0.5}", "[sluice.dev/gpu]: the currency itself is not a part of a GPU"),
        ] {
            let refused = sharing(&format!("shares: {shares}"));
            assert_eq!(refused, Err(format!("NodePool a100: spec.shares{problem}")));
        }
    }

    #[test]
    fn the_actions_after_a_wait_and_a_lost_pod_are_converted() {
        let queue = |queue: &str| {
            let team = team(&format!("{{fairUsers: true, queues: [{{name: q, {queue}}}]}}"))?;
            assert!(team.fair_users);
            Ok::<_, String>((team.queues[0].on_max_wait, team.queues[0].on_pod_loss))
        };
        use types::{OnMaxWait, OnPodLoss};
        assert_eq!(queue("maxWait: 1h"), Ok((OnMaxWait::Notify, OnPodLoss::Replace)));
        assert_eq!(
            queue("maxWait: 1h, onMaxWait: RaisePriority, onPodLoss: Restart"),
            Ok((OnMaxWait::RaisePriority, OnPodLoss::Restart))
        );
        assert_eq!(queue("maxWait: 1h, onMaxWait: Fail"), Ok((OnMaxWait::Fail, OnPodLoss::Replace)));
        let message = "Team vision: spec.queues[0].onMaxWait: Fail needs maxWait, which is not set";
        assert_eq!(queue("onMaxWait: Fail"), Err(message.to_owned()));
    }

    #[test]
    fn the_ready_timeout_is_above_zero() {
        let timeout = |text: &str| {
            let team = team(&format!("{{queues: [{{name: q{text}}}]}}"))?;
            Ok::<_, String>(team.queues[0].ready_timeout)
        };
        assert_eq!(timeout(""), Ok(None));
        assert_eq!(timeout(", readyTimeout: 5m"), Ok(Some(Duration::from_secs(300))));
        let message = "Team vision: spec.queues[0].readyTimeout: must be more than 0s; leave it out for no \
                       timeout";
        assert_eq!(timeout(", readyTimeout: 0s"), Err(message.to_owned()));
    }
}
