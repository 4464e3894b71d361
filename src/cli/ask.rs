//! The commands that ask a running Sluice about teams, nodes and single workloads.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cluster::{self, Cluster, Page};
use super::print::{self, Answer};
use super::screen::Screen;
use super::target::Target;
use super::{Invalid, columns, grid, standard_input_once, table};
use crate::api::question::{
    ExplainFilter, NodesFilter, Phase, QuestionSpec, QueueFilter, TeamsFilter, WhatIfFilter,
};
use crate::kinds::Kinds;
use crate::view::answers::Kind;
use crate::view::{Accelerators, NodeRow, Teams, TeamsRow, WhatIfRow, WorkloadRow};
use crate::yaml;

/// Cluster and output of a question.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Output.
    #[command(flatten)]
    pub print: print::Options,
    /// Cluster and namespace.
    #[command(flatten)]
    pub cluster: cluster::Options,
}

/// Everything about teams and their queues.
///
/// # Errors
/// When the question is not answered.
pub async fn team_rows(cluster: &Cluster) -> anyhow::Result<Vec<TeamsRow>> {
    let spec = QuestionSpec { teams: Some(TeamsFilter::default()), ..QuestionSpec::default() };
    cluster.ask(spec).await
}

/// `sluice teams`.
pub fn teams(options: &Options) -> anyhow::Result<()> {
    let rows = cluster::with(&options.cluster, async |cluster| team_rows(&cluster).await)?;
    let teams: Teams = rows.into_iter().collect();
    let listed = teams.teams.iter().flat_map(|team| team.guaranteed.keys().chain(team.limit.keys()));
    let accelerators = Accelerators::default().with_quotas(listed.map(String::as_str));
    let (screen, lines) = (Screen::new(), table::quota_lines(&teams, &accelerators));
    let answer = Answer {
        kind: Kind::Teams,
        document: &teams,
        rows: &lines,
        columns: &table::quota_columns(&teams),
        name: |line| format!("team/{}", line.team),
    };
    let headers = !options.print.no_headers;
    answer.print(&options.print, &screen, || table::teams(&teams, &lines, &screen, headers))
}

/// `sluice nodes`.
pub fn nodes(options: &Options) -> anyhow::Result<()> {
    let spec = QuestionSpec { nodes: Some(NodesFilter::default()), ..QuestionSpec::default() };
    let nodes: Vec<NodeRow> = cluster::with(&options.cluster, async |cluster| cluster.ask(spec).await)?;
    let columns: Vec<_> = const { &table::NODES }.iter().collect();
    let screen = Screen::new();
    let answer = Answer {
        kind: Kind::NodeList,
        document: &nodes,
        rows: &nodes,
        columns: &columns,
        name: |node| format!("node/{}", node.name),
    };
    let headers = !options.print.no_headers;
    answer.print(&options.print, &screen, || grid::table(&columns, &nodes, &screen, headers))
}

/// `sluice explain`. The workloads may be named without their namespace.
pub fn explain(options: &Options, words: &[String]) -> anyhow::Result<()> {
    let (found, problems) = cluster::with(&options.cluster, async |cluster| {
        let targets = targets(&options.cluster, &cluster, words).await?;
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for target in &targets {
            match explained(&cluster, target).await {
                Ok(rows) => found.extend(rows),
                Err(problem) => problems.push(problem),
            }
        }
        Ok((found, problems))
    })?;
    // What there is of several is printed, whatever there is not.
    if !found.is_empty() || problems.is_empty() {
        print_explained(options, &found)?;
    }
    all(problems)
}

/// The problems as one error; none is none. One that several workloads have, such as no connection, is said once.
fn all(mut problems: Vec<anyhow::Error>) -> anyhow::Result<()> {
    if problems.len() < 2 {
        return problems.pop().map_or(Ok(()), Err);
    }
    let mut lines: Vec<String> = problems.iter().map(|problem| format!("{problem:#}")).collect();
    lines.dedup();
    anyhow::bail!(lines.join("; "))
}

fn print_explained(options: &Options, found: &[WorkloadRow]) -> anyhow::Result<()> {
    let screen = Screen::new();
    let columns = columns::every();
    let answer = Answer {
        kind: Kind::WorkloadList,
        document: &found,
        rows: found,
        columns: &columns,
        name: columns::name_of,
    };
    answer.print(&options.print, &screen, || table::explain(found, &screen))
}

/// The workloads that the words of a command name: each word one, or two words one as KIND NAME.
///
/// # Errors
/// When a word is malformed, or the question is not answered.
pub async fn targets(
    options: &cluster::Options,
    cluster: &Cluster,
    words: &[String],
) -> anyhow::Result<Vec<Target>> {
    let read = |words: &[String]| Target::read(words, options.namespace(), &cluster.namespace);
    if let [kind, _] = words
        && !kind.contains('/')
    {
        let target = read(words)?;
        // Only objects tell whether the first word is the kind of the second, unless Sluice has such a kind itself.
        let known = target.has_known_kind();
        if known || named(cluster, &target).await?.0.iter().any(|row| target.may_be(&row.kind)) {
            return Ok(vec![target]);
        }
    }
    Ok(words.chunks(1).map(read).collect::<Result<_, _>>()?)
}

/// The workloads of the name and kind of a target.
///
/// # Errors
/// When there is none, or the question is not answered.
async fn explained(cluster: &Cluster, target: &Target) -> anyhow::Result<Vec<WorkloadRow>> {
    let (mut found, note) = named(cluster, target).await?;
    if found.is_empty() {
        let Target { namespace, name, .. } = target;
        anyhow::bail!(note.unwrap_or_else(|| match is_anywhere(cluster, target) {
            true => format!("Sluice manages no workload {name} in any namespace"),
            false => format!("Sluice manages no Job or Pod {namespace}/{name}"),
        }));
    }
    let kinds: Vec<String> = found.iter().map(|row| row.kind.clone()).collect();
    found.retain(|row| target.may_be(&row.kind));
    if found.is_empty() {
        anyhow::bail!("there is no {}, but a {} of that name", target.label(), kinds.join(" and "));
    }
    Ok(found)
}

/// Whether a workload is looked for in all namespaces: it is asked about all, and none is named.
fn is_anywhere(cluster: &Cluster, target: &Target) -> bool {
    cluster.all && !target.is_in_named_namespace
}

/// The workloads of the name of a target, of any kind; without one, why where Sluice does not manage the namespace.
async fn named(cluster: &Cluster, target: &Target) -> anyhow::Result<(Vec<WorkloadRow>, Option<String>)> {
    if is_anywhere(cluster, target) {
        let queue = QueueFilter { states: Phase::ALL.to_vec(), ..QueueFilter::default() };
        let spec = QuestionSpec { queue: Some(queue), ..QuestionSpec::default() };
        let mut rows: Vec<WorkloadRow> = cluster.ask(spec).await?;
        rows.retain(|row| row.head.name == target.name);
        return Ok((rows, None));
    }
    let mut cluster = cluster.clone();
    cluster.namespace.clone_from(&target.namespace);
    let namespace = cluster.all.then(|| target.namespace.clone());
    let explain = ExplainFilter { name: target.name.clone(), namespace };
    let spec = QuestionSpec { explain: Some(explain), ..QuestionSpec::default() };
    let page: Option<Page<WorkloadRow>> = cluster.page(&spec).await?;
    Ok(page.map_or_else(Default::default, |page| (page.rows, page.note)))
}

/// `sluice what-if`.
pub fn what_if(options: &Options, files: &[PathBuf]) -> anyhow::Result<()> {
    let rows = cluster::with(&options.cluster, async |cluster| {
        let workloads = read_workloads(files, options.cluster.namespace(), &cluster.namespace)?;
        let mut rows: Vec<WhatIfRow> = Vec::new();
        for (namespace, together) in together(workloads, cluster.all) {
            let mut cluster = cluster.clone();
            cluster.namespace = namespace;
            let mut workloads = together.into_iter();
            let Some(job) = workloads.next() else { continue };
            let what_if = WhatIfFilter { job, then: workloads.collect() };
            let spec = QuestionSpec { what_if: Some(what_if), ..QuestionSpec::default() };
            rows.extend(cluster.ask::<WhatIfRow>(spec).await?);
        }
        Ok(rows)
    })?;
    let screen = Screen::new();
    let columns: Vec<_> = const { &table::WHAT_IF }.iter().collect();
    let answer = Answer {
        kind: Kind::WhatIfList,
        document: &rows,
        rows: &rows,
        columns: &columns,
        name: |row| format!("job/{}", row.head.name),
    };
    answer.print(&options.print, &screen, || table::what_if(&rows, &screen))
}

/// The workloads that one question is about: all of them, or those of a namespace where only namespaces can be asked about.
fn together(workloads: Vec<Value>, all: bool) -> Vec<(String, Vec<Value>)> {
    let mut groups: Vec<(String, Vec<Value>)> = Vec::new();
    for workload in workloads {
        let namespace = workload.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        match groups.iter_mut().find(|(name, _)| all || name == namespace) {
            Some((_, group)) => group.push(workload),
            None => groups.push((namespace.to_owned(), vec![workload])),
        }
    }
    if groups.len() > 1 {
        eprintln!(
            "sluice: the workloads of each namespace are judged together; add -A to judge all of them together"
        );
    }
    groups
}

/// Reads the workloads of files; `-` is standard input. Other objects in them are left out with a note.
fn read_workloads(files: &[PathBuf], namespace: Option<&str>, default: &str) -> anyhow::Result<Vec<Value>> {
    standard_input_once(files)?;
    let mut workloads = Vec::new();
    for file in files {
        let wrong = |problem: String| Invalid(format!("{}: {problem}", file.display()));
        let text = if file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        } else {
            std::fs::read_to_string(file)
        };
        let text = text.map_err(|error| wrong(error.to_string()))?;
        let documents =
            yaml::documents(&text, yaml::Trust::Own).map_err(|problem| wrong(problem.to_string()))?;
        let before = workloads.len();
        for (number, document) in (1..).zip(documents) {
            if document.is_null() {
                continue;
            }
            let Some(kind) = document["kind"].as_str() else {
                return Err(wrong(format!("document {number}: expected an object with a kind")).into());
            };
            if !may_be_managed(kind) {
                eprintln!("sluice: {}: {}", file.display(), left_out(number, kind, &document));
                continue;
            }
            let object = in_namespace(document, namespace, default);
            workloads.push(object.map_err(|problem| wrong(format!("document {number}: {problem}")))?);
        }
        if workloads.len() == before {
            return Err(wrong("expected a Job or another workload".to_owned()).into());
        }
    }
    Ok(workloads)
}

/// The note on an object that is no workload.
fn left_out(number: usize, kind: &str, object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let label = name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}"));
    format!("document {number}: {label} is no workload; left out")
}

/// Whether objects of this kind may be workloads.
fn may_be_managed(kind: &str) -> bool {
    ["Job", "Pod"].contains(&kind) || Kinds::default().watched().iter().any(|one| one.resource.kind == kind)
}

/// The object in its own namespace, else in that of the command line, else in the default.
fn in_namespace(mut object: Value, given: Option<&str>, default: &str) -> Result<Value, String> {
    let own = match object.pointer("/metadata/namespace") {
        None | Some(Value::Null) => None,
        Some(Value::String(own)) => Some(own.clone()),
        Some(_) => return Err("metadata.namespace is no text".to_owned()),
    };
    match (own, given) {
        (Some(own), Some(given)) if own != given => {
            Err(format!("metadata.namespace is {own:?}, but --namespace is {given:?}"))
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

    #[test]
    fn the_problems_of_several_workloads_are_one_error() {
        let of = |lines: &[&'static str]| {
            let problems = lines.iter().map(|line| anyhow::Error::msg(*line)).collect();
            all(problems).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[]), Ok(()));
        assert_eq!(of(&["no a/x", "no a/y"]), Err("no a/x; no a/y".to_owned()));
        assert_eq!(of(&["unreachable", "unreachable"]), Err("unreachable".to_owned()));
        let invalid = all(vec![Invalid("wrong".to_owned()).into()]).expect_err("it is wrong");
        assert!(invalid.is::<Invalid>(), "the exit code stays");
    }

    fn read(text: &str, namespace: Option<&str>) -> Result<Vec<Value>, String> {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        std::fs::write(file.path(), text).expect("it can be written");
        read_workloads(&[file.path().to_owned()], namespace, "default").map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_workloads_each_in_one_namespace() {
        let job = "kind: Job\nmetadata: {name: x}\n---\n";
        let namespace = |text, given| {
            let jobs = read(text, given)?;
            Ok::<_, String>(jobs.iter().map(|job| job["metadata"]["namespace"].clone()).collect::<Vec<_>>())
        };
        assert_eq!(namespace(job, Some("a")), Ok(vec!["a".into()]));
        assert_eq!(namespace(job, None), Ok(vec!["default".into()]));
        let own = "kind: Pod\nmetadata: {name: x, namespace: b}\n";
        assert_eq!(namespace(own, None), Ok(vec!["b".into()]));
        let both = format!("{job}{own}");
        assert_eq!(namespace(&both, None), Ok(vec!["default".into(), "b".into()]));
        let with_others = format!("kind: ConfigMap\n---\n{job}");
        assert_eq!(namespace(&with_others, None), Ok(vec!["default".into()]));
        assert!(read(own, Some("a")).is_err_and(|error| error.contains("--namespace is \"a\"")));
        let unquoted = "kind: Pod\nmetadata: {name: n, namespace: on}\n";
        assert_eq!(namespace(unquoted, None), Ok(vec!["on".into()]));
        assert_eq!(namespace(&"kind: Pod\n---\n".repeat(1_100), None).map(|all| all.len()), Ok(1_100));
        let number = "kind: Pod\nmetadata: {name: n, namespace: 5}\n";
        assert!(
            read(number, None)
                .is_err_and(|error| error.ends_with("document 1: metadata.namespace is no text"))
        );
        for text in ["", "kind: ConfigMap\n", "- 1\n", "{"] {
            assert!(read(text, None).is_err(), "{text:?}");
        }
    }
    #[test]
    fn an_object_that_is_left_out_is_named_as_far_as_it_has_a_name() {
        let said = |object| left_out(3, "Node", &object);
        let named = serde_json::json!({"metadata": {"name": "n0"}});
        assert_eq!(said(named), "document 3: Node n0 is no workload; left out");
        assert_eq!(said(serde_json::json!({})), "document 3: Node is no workload; left out");
    }
}
