//! The commands that ask a running Sluice.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use super::cluster::{self, Cluster};
use super::target::Target;
use super::{Invalid, print, table};
use crate::api::question::{
    ExplainFilter, NodesFilter, Phase, QuestionSpec, QueueFilter, TeamsFilter, WhatIfFilter,
};
use crate::client;
use crate::options::AcceleratorOptions;
use crate::view::{Accelerators, NodeRow, Teams, TeamsRow, WhatIfRow, WorkloadRow};

/// Cluster and output of a question.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Cluster and namespace.
    #[command(flatten)]
    cluster: cluster::Options,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = print::Output::Table)]
    output: print::Output,
    /// Resources that count as GPUs.
    #[command(flatten)]
    accelerators: AcceleratorOptions,
}

/// The workloads that `sluice queue` lists.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Filter {
    /// Show only this team's workloads.
    #[arg(long, short, value_name = "TEAM")]
    team: Option<String>,
    /// Show only this queue's workloads.
    #[arg(long, short, value_name = "QUEUE")]
    queue: Option<String>,
    /// Show only workloads that this user submitted.
    #[arg(long, short, value_name = "USER", conflicts_with = "me")]
    user: Option<String>,
    /// Show only workloads that you submitted.
    #[arg(long)]
    me: bool,
    /// Show only workloads in this state: Held, Pending, Running, Evicting or Finished; can be repeated.
    #[arg(long, short, value_name = "STATE", value_delimiter = ',', value_parser = phase, conflicts_with = "all")]
    state: Vec<Phase>,
    /// Include ended workloads.
    #[arg(long, short)]
    all: bool,
}

/// Every state.
const PHASES: [Phase; 5] = [Phase::Held, Phase::Pending, Phase::Running, Phase::Evicting, Phase::Finished];

/// Parses `--state`.
fn phase(text: &str) -> Result<Phase, String> {
    let found = PHASES.into_iter().find(|phase| phase.code().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "expected Held, Pending, Running, Evicting or Finished".to_owned())
}

impl Filter {
    /// Whether it leaves out anything but ended workloads.
    pub fn chooses(&self) -> bool {
        let Self { team, queue, user, me, state, all: _ } = self;
        *me || team.is_some() || queue.is_some() || user.is_some() || !state.is_empty()
    }

    /// The question for these workloads.
    pub fn question(self) -> QuestionSpec {
        let Self { team, queue, user, me, state, all } = self;
        let states = if all { PHASES.to_vec() } else { state };
        let queue = QueueFilter { namespace: None, team, queue, user, me, states };
        QuestionSpec { queue: Some(queue), ..QuestionSpec::default() }
    }
}

/// Teams and their queues.
async fn all_teams(cluster: &Cluster) -> anyhow::Result<Teams> {
    let spec = QuestionSpec { teams: Some(TeamsFilter::default()), ..QuestionSpec::default() };
    Ok(cluster.ask::<TeamsRow>(spec).await?.into_iter().collect())
}

/// `sluice teams`.
pub fn teams(options: &Options) -> anyhow::Result<()> {
    let teams = cluster::with(&options.cluster, async |cluster| all_teams(&cluster).await)?;
    let accelerators = in_quotas(options, &teams);
    print::answer(options.output, &teams, |teams| table::teams(teams, &accelerators))
}

/// `sluice nodes`.
pub fn nodes(options: &Options) -> anyhow::Result<()> {
    let spec = QuestionSpec { nodes: Some(NodesFilter::default()), ..QuestionSpec::default() };
    let nodes: Vec<NodeRow> = cluster::with(&options.cluster, async |cluster| cluster.ask(spec).await)?;
    print::answer(options.output, &nodes, |nodes| table::nodes(nodes))
}

/// `sluice queue`.
pub fn queue(options: &Options, filter: Filter) -> anyhow::Result<()> {
    let configured = options.accelerators.accelerators();
    let with_quotas = options.output == print::Output::Table && configured.depend_on_quotas();
    let (workloads, accelerators) = cluster::with(&options.cluster, async |cluster| {
        let workloads: Vec<WorkloadRow> = cluster.ask(filter.question()).await?;
        if with_quotas && !workloads.is_empty() {
            return Ok((workloads, in_quotas(options, &all_teams(&cluster).await?)));
        }
        Ok((workloads, configured))
    })?;
    print::answer(options.output, &workloads, |workloads| table::queue(workloads, &accelerators))
}

/// `sluice explain`. The workload may be named without its namespace.
pub fn explain(options: &Options, words: &[String]) -> anyhow::Result<()> {
    let (target, mut found) = cluster::with(&options.cluster, async |mut cluster| {
        let target = Target::read(words, options.cluster.namespace(), &cluster.namespace)?;
        cluster.namespace.clone_from(&target.namespace);
        let namespace = cluster.all.then(|| target.namespace.clone());
        let explain = ExplainFilter { name: target.name.clone(), namespace };
        let spec = QuestionSpec { explain: Some(explain), ..QuestionSpec::default() };
        let found: Vec<WorkloadRow> = cluster.ask(spec).await?;
        Ok((target, found))
    })?;
    if found.is_empty() {
        let Target { namespace, name, .. } = &target;
        return Err(Invalid(format!("Sluice manages no Job or Pod {namespace}/{name}")).into());
    }
    let kinds: Vec<String> = found.iter().map(|row| row.kind.clone()).collect();
    found.retain(|row| target.may_be(&row.kind));
    if found.is_empty() {
        let kinds = kinds.join(" and ");
        return Err(Invalid(format!("there is no {}, but a {kinds} of that name", target.label())).into());
    }
    print::answer(options.output, &found, |found| table::explain(found))
}

/// `sluice what-if`.
pub fn what_if(options: &Options, file: &Path) -> anyhow::Result<()> {
    let row = cluster::with(&options.cluster, async |mut cluster| {
        let given = options.cluster.namespace();
        let job = read_job(file, given, &cluster.namespace)?;
        if let Some(namespace) = job.pointer("/metadata/namespace").and_then(Value::as_str) {
            cluster.namespace = namespace.to_owned();
        }
        let spec = QuestionSpec { what_if: Some(WhatIfFilter { job }), ..QuestionSpec::default() };
        let rows: Vec<WhatIfRow> = cluster.ask(spec).await?;
        rows.into_iter().next().context("unexpected answer of Sluice")
    })?;
    print::answer(options.output, &row, table::what_if)
}

/// The resources that count as GPUs, with the device resources in these teams' quotas.
fn in_quotas(options: &Options, teams: &Teams) -> Accelerators {
    let listed = teams.teams.iter().flat_map(|team| team.guaranteed.keys().chain(team.limit.keys()));
    options.accelerators.accelerators().with_quotas(listed.map(String::as_str))
}

/// Reads the one Job of a file; without a namespace in it, that of the command line or the default applies.
fn read_job(file: &Path, namespace: Option<&str>, default: &str) -> anyhow::Result<Value> {
    let wrong = |problem: String| Invalid(format!("{}: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let mut object = client::one_job(&text).map_err(wrong)?;
    let own = object.pointer("/metadata/namespace").and_then(Value::as_str).map(ToOwned::to_owned);
    match (own, namespace) {
        (Some(own), Some(given)) if own != given => {
            Err(wrong(format!("metadata.namespace is {own:?}, but --namespace is {given:?}")).into())
        }
        (own, given) => {
            let namespace = own.as_deref().or(given).unwrap_or(default);
            json_patch::merge(&mut object, &serde_json::json!({"metadata": {"namespace": namespace}}));
            Ok(object)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, namespace: Option<&str>) -> Result<Value, String> {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        std::fs::write(file.path(), text).expect("it can be written");
        read_job(file.path(), namespace, "default").map_err(|error| {
            let text = error.to_string();
            text.split_once(": ").map_or(text.clone(), |(_, problem)| problem.to_owned())
        })
    }

    #[test]
    fn a_file_has_exactly_one_job_in_one_namespace() {
        let job = "kind: Job\nmetadata: {name: x}\n---\n";
        let namespace = |given| read(job, given).map(|job| job["metadata"]["namespace"].clone());
        assert_eq!(namespace(Some("a")), Ok("a".into()));
        assert_eq!(namespace(None), Ok("default".into()));
        let own = "kind: Job\nmetadata: {name: x, namespace: b}\n";
        assert_eq!(read(own, None).map(|job| job["metadata"]["namespace"].clone()), Ok("b".into()));
        assert!(read(own, Some("a")).is_err_and(|error| error.contains("--namespace is \"a\"")));
        for text in ["", "kind: Job\n---\nkind: Job\n", "- 1\n", "{"] {
            assert!(read(text, None).is_err(), "{text:?}");
        }
    }
}
