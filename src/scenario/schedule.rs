//! The scenario's annotations: times, copies and placement of objects.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Kind;
use crate::api::values::duration;

/// The prefix of a scenario's annotations.
pub const PREFIX: &str = "simulate.sluice.dev/";

/// The most copies of a document; more is a typing error.
const MAX_COPIES: usize = 100_000;

/// The nodes on which a workload runs when the scenario starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunningOn {
    /// All of its pods on one node.
    Node(String),
    /// Pods by node.
    Pods(BTreeMap<String, u32>),
}

impl RunningOn {
    /// The nodes it names.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        let (one, many) = match self {
            Self::Node(node) => (Some(node), None),
            Self::Pods(pods) => (None, Some(pods.keys())),
        };
        one.into_iter().chain(many.into_iter().flatten()).map(String::as_str)
    }
}

/// The schedule of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    pub copies: Option<usize>,
    pub at: Option<Duration>,
    pub duration: Option<Duration>,
    pub running_on: Option<RunningOn>,
    pub delete_at: Option<Duration>,
    pub cordon_at: Option<Duration>,
    pub fail_at: Option<Duration>,
}

impl Schedule {
    /// Reads one annotation of an object of this kind; the error is the problem.
    pub fn read(&mut self, kind: Kind, key: &str, value: &str) -> Result<(), String> {
        let workload = kind.is_workload();
        let applies = match key {
            "at" | "delete-at" => true,
            "count" => workload || kind == Kind::Node,
            "duration" | "running-on" => workload,
            "cordon-at" | "fail-at" => kind == Kind::Node,
            _ => {
                return Err("unknown annotation; known are count, at, duration, running-on, delete-at, \
                            cordon-at and fail-at"
                    .to_owned());
            }
        };
        if !applies {
            return Err(format!("does not apply to a {kind}"));
        }
        match key {
            "at" => self.at = Some(duration(value)?),
            "delete-at" => self.delete_at = Some(duration(value)?),
            "count" => self.copies = Some(copies(value)?),
            "duration" => self.duration = Some(duration(value)?),
            "running-on" => self.running_on = Some(running_on(value)?),
            "cordon-at" => self.cordon_at = Some(duration(value)?),
            _ => self.fail_at = Some(duration(value)?),
        }
        Ok(())
    }

    /// Checks annotations against each other; the error is the annotation and its problem.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let at = self.at.unwrap_or_default();
        for (key, later) in
            [("delete-at", self.delete_at), ("cordon-at", self.cordon_at), ("fail-at", self.fail_at)]
        {
            if later.is_some_and(|later| later < at) {
                return Err((key, "is before the object is applied".to_owned()));
            }
        }
        if self.running_on.is_some() && at > Duration::ZERO {
            return Err(("running-on", "cannot be combined with a later `at`".to_owned()));
        }
        Ok(())
    }
}

fn copies(value: &str) -> Result<usize, String> {
    value
        .parse()
        .ok()
        .filter(|copies| (1..=MAX_COPIES).contains(copies))
        .ok_or_else(|| format!("{value:?} is not a number from 1 to {MAX_COPIES}"))
}

fn running_on(value: &str) -> Result<RunningOn, String> {
    let wrong = || format!("{value:?} is not a node such as n0, or pods per node such as n0=2,n1=1");
    if !value.contains([',', '=']) {
        let node = value.trim();
        return if node.is_empty() { Err(wrong()) } else { Ok(RunningOn::Node(node.to_owned())) };
    }
    let mut pods = BTreeMap::new();
    for part in value.split(',') {
        let (node, count) = part.split_once('=').ok_or_else(wrong)?;
        let (node, count) = (node.trim(), count.trim().parse::<u32>().map_err(|_| wrong())?);
        if node.is_empty() || count == 0 {
            return Err(wrong());
        }
        if pods.insert(node.to_owned(), count).is_some() {
            return Err(format!("{value:?} names {node} twice"));
        }
    }
    Ok(RunningOn::Pods(pods))
}
