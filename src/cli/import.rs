//! `sluice import`: the set-up of another queue as objects of Sluice.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::cluster::{self, Cluster};
use super::table::rows;
use super::{Invalid, print, standard_input_once};
use crate::api::node_pool::NodePool;
use crate::api::team::Team;
use crate::import::{self, ImportError, Note, Plan, Source, Verdict, kueue, resource_quota};
use crate::scenario::{Kind, Scenario, ScenarioError};
use crate::simulate::Schemas;

/// What is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// ClusterQueues, Cohorts, LocalQueues, ResourceFlavors, Topologies and WorkloadPriorityClasses of Kueue, and the
    /// Jobs that wait there, with their Workloads.
    Kueue,
    /// ResourceQuotas: one Team for each namespace.
    #[value(name = "resourcequota")]
    ResourceQuota,
}

/// Options of `sluice import`.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// What is imported.
    #[arg(value_enum, value_name = "FROM")]
    from: From,
    /// Manifests (YAML or JSON), read as one set-up; `-` is standard input, and `live` alone the cluster of the kubeconfig.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print the table of what has no equivalent instead of the objects, and end with 1 if anything is lost.
    #[arg(long, conflicts_with = "steps")]
    check: bool,
    /// Print the steps of the switch as a script for a shell, with a line for each Job that waits.
    #[arg(long)]
    steps: bool,
    /// Leave the labels of namespaces out of the objects, because --steps sets them at the right moment.
    #[arg(long, conflicts_with_all = ["check", "steps"])]
    without_labels: bool,
    /// Fair sharing is turned on in Kueue's configuration, so borrowers preempt each other for it.
    #[arg(long)]
    fair_sharing: bool,
    /// Output format of --check.
    // What conflicts with --check would lift the requirement.
    #[arg(long, short, value_enum, default_value_t = print::Output::Table, requires = "check",
        conflicts_with_all = ["steps", "without_labels"])]
    output: print::Output,
    /// The cluster of `live`.
    #[command(flatten)]
    cluster: cluster::Options,
}

/// The word that stands for the cluster.
const LIVE: &str = "live";

/// Reads the set-up and prints what becomes of it. Whether nothing is lost is the answer of `--check`.
///
/// # Errors
/// [`Invalid`] when an object is wrong; other errors of the cluster.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let sources = match options.files.as_slice() {
        [one] if one.as_os_str() == LIVE => {
            cluster::with(&options.cluster, async |cluster| live(&cluster, options.from).await)?
        }
        files if files.iter().any(|file| file.as_os_str() == LIVE) => {
            let problem = "live: the cluster is read alone, without files; a file of that name is ./live";
            return Err(Invalid(problem.to_owned()).into());
        }
        files => read(files)?,
    };
    let plan = match options.from {
        From::Kueue => kueue::plan(&sources, kueue::Options { fair_sharing: options.fair_sharing }),
        From::ResourceQuota => resource_quota::plan(&sources),
    };
    let mut plan = plan.map_err(invalid)?;
    let is_read = |source: &Source| match options.from {
        From::Kueue => source.group == kueue::GROUP,
        From::ResourceQuota => source.kind == "ResourceQuota",
    };
    if !sources.iter().any(is_read) {
        return Err(Invalid(format!("there is no object of {} to import", name(options.from))).into());
    }
    plan.notes.splice(..0, refused(&plan)?);
    if options.check {
        print::answer(options.output, &document(&plan), |_: &Value| table(&plan.notes))?;
        return Ok(plan.notes.iter().all(|note| note.verdict != Verdict::Lost));
    }
    if options.steps {
        if options.from != From::Kueue {
            return Err(Invalid("--steps: only the switch from Kueue has steps of its own".to_owned()).into());
        }
        print::text(&plan.steps())?;
        return Ok(true);
    }
    print::text(&plan.yaml(!options.without_labels)?)?;
    anstream::eprintln!("{}", table(&plan.notes));
    Ok(true)
}

fn name(from: From) -> &'static str {
    match from {
        From::Kueue => "Kueue",
        From::ResourceQuota => "the kind ResourceQuota",
    }
}

fn invalid(error: ImportError) -> Invalid {
    Invalid(error.to_string())
}

fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    standard_input_once(files)?;
    let mut texts = Vec::new();
    for path in files {
        let name = path.display().to_string();
        let text = if name == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("standard input")?;
            text
        } else {
            std::fs::read_to_string(path).map_err(|error| Invalid(format!("{name}: {error}")))?
        };
        texts.push((name, text));
    }
    let texts = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    Ok(import::read(texts).map_err(invalid)?)
}

/// The objects of the cluster, as the user of the kubeconfig may see them.
async fn live(cluster: &Cluster, from: From) -> anyhow::Result<Vec<Source>> {
    let core = |version: &str, kind: &str, plural: &str| {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    };
    let mut found = Vec::new();
    if from == From::ResourceQuota {
        list(cluster, &core("v1", "ResourceQuota", "resourcequotas"), &mut found).await?;
        return Ok(found);
    }
    let mut served = Vec::new();
    for group in
        cluster.client().list_api_groups().await.map_err(|error| cluster.refused("API groups", error))?.groups
    {
        if group.name == kueue::GROUP {
            served = group.versions.into_iter().map(|version| version.version).collect();
        }
    }
    let version = kueue::VERSIONS.into_iter().find(|version| served.iter().any(|other| other == version));
    let version =
        version.context("the cluster serves none of the versions v1beta1 and v1beta2 of kueue.x-k8s.io")?;
    let group = format!("{}/{version}", kueue::GROUP);
    let kinds: Vec<String> = cluster
        .client()
        .list_api_group_resources(&group)
        .await
        .map_err(|error| cluster.refused(&group, error))?
        .resources
        .into_iter()
        .map(|resource| resource.name)
        .collect();
    for (kind, plural) in kueue::KINDS {
        if kinds.iter().any(|name| name == plural) {
            list(cluster, &core(&group, kind, plural), &mut found).await?;
        }
    }
    list(cluster, &core("v1", "Namespace", "namespaces"), &mut found).await?;
    list(cluster, &core("batch/v1", "Job", "jobs"), &mut found).await?;
    Ok(found)
}

/// Adds every object of a kind, a page at a time.
async fn list(cluster: &Cluster, resource: &ApiResource, found: &mut Vec<Source>) -> anyhow::Result<()> {
    const PAGE: u32 = 500;
    let api: Api<DynamicObject> = Api::all_with(cluster.client(), resource);
    let mut pages = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&pages).await.map_err(|error| cluster.refused(&resource.plural, error))?;
        for mut object in page.items {
            object.types = Some(kube::core::TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            object.metadata.managed_fields = None;
            let value = serde_json::to_value(object)?;
            found.push(import::source(value, &resource.kind).map_err(invalid)?);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => pages = pages.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// The objects that an API server would refuse, as with more queues than a Team may have.
fn refused(plan: &Plan) -> anyhow::Result<Vec<Note>> {
    // A set-up may have nothing that becomes an object, as ResourceQuotas of counts alone.
    if plan.objects.is_empty() {
        return Ok(Vec::new());
    }
    let text = plan.yaml(false)?;
    let objects = Scenario::parse([("the objects to print", text.as_str())])?;
    let schemas = Schemas::default();
    let mut notes = Vec::new();
    for object in objects.objects() {
        let checked = match object.kind {
            Kind::Team => object.decode::<Team>().and_then(|team| schemas.check(object, &team)),
            Kind::NodePool => object.decode::<NodePool>().and_then(|pool| schemas.check(object, &pool)),
            _ => Ok(()),
        };
        match checked {
            Ok(()) => {}
            Err(ScenarioError::Invalid { field, message, .. }) => notes.push(Note {
                verdict: Verdict::Lost,
                object: format!("{} {}", object.kind, object.name),
                field,
                text: format!("the API server refuses this object until it is changed: {message}"),
            }),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(notes)
}

/// The notes as programs read them.
fn document(plan: &Plan) -> Value {
    json!({"notes": plan.notes, "teams": plan.objects.iter().filter(|object| object["kind"] == "Team").count(),
        "namespaces": plan.namespaces.len(), "pendingJobs": plan.pending.len(), "runningJobs": plan.running})
}

fn table(notes: &[Note]) -> String {
    if notes.is_empty() {
        return "Everything is carried over.".to_owned();
    }
    let mut table = rows::with_text(["", "OBJECT", "FIELD", "WHAT BECOMES OF IT"]);
    for note in notes {
        table.add_row([note.verdict.word(), &note.object, &note.field, &note.text]);
    }
    rows::shown(&table)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn options(arguments: &[&str]) -> Result<Options, String> {
        let command = Options::augment_args(clap::Command::new("import"));
        let matches = command.try_get_matches_from([&["import"], arguments].concat());
        let matches = matches.map_err(|error| error.to_string())?;
        Options::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn an_object_that_an_api_server_refuses_is_named() {
        let local = |at: usize| {
            format!(
                "---\n{{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {{namespace: n{at}, name: q{at}}}, \
                 spec: {{clusterQueue: many}}}}\n"
            )
        };
        let planned = |count: usize, weight: i64| {
            let queue = format!(
                "{{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {{name: many}}, \
                 spec: {{cohortName: all, fairSharing: {{weight: {weight}}}}}}}\n"
            );
            let text: String = std::iter::once(queue).chain((0..count).map(local)).collect();
            let sources = import::read([("set-up", text.as_str())]).expect("it has objects");
            let plan = kueue::plan(&sources, kueue::Options::default()).expect("it can be planned");
            let notes = refused(&plan).expect("it can be read");
            notes.into_iter().map(|note| format!("{} {}", note.object, note.field)).collect::<Vec<_>>()
        };
        assert_eq!(planned(32, 2), Vec::<String>::new());
        assert_eq!(planned(33, 2), ["Team many spec.queues"]);
        assert_eq!(planned(2, 2_000_000), ["Team many spec.weight"]);
        assert_eq!(refused(&Plan::default()).expect("nothing is refused"), []);
    }

    #[test]
    fn a_format_is_that_of_a_check() {
        assert!(options(&["kueue", "a.yaml"]).is_ok());
        assert!(options(&["kueue", "a.yaml", "--check", "-o", "json"]).is_ok());
        for more in [&[][..], &["--steps"], &["--without-labels"]] {
            let arguments = [&["kueue", "a.yaml", "-o", "json"], more].concat();
            assert!(options(&arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn the_cluster_is_read_alone_and_standard_input_once() {
        let said = |arguments: &[&str]| {
            let error = run(&options(arguments)?).map_err(|error| {
                assert!(error.is::<Invalid>(), "{error}");
                error.to_string()
            });
            error.map(|_| ())
        };
        for files in [["a.yaml", "live"], ["live", "a.yaml"], ["live", "live"]] {
            let found = said(&["kueue", files[0], files[1]]);
            assert!(
                found.as_ref().is_err_and(|error| error.starts_with("live: the cluster is read alone")),
                "{found:?}"
            );
        }
        assert_eq!(said(&["kueue", "-", "-"]), Err("-: standard input is named twice".to_owned()));
    }
}
