//! The commands that act. Each writes an ordinary object as the user of the kubeconfig, so the rights, the audit log and the
//! checks of the API server are those of `kubectl`; with `--verbose` it prints the same step for `kubectl`.

mod call;
mod meaning;
mod object;
mod queues;
mod report;

use std::io::{IsTerminal as _, Write as _, stderr, stdin};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;
use jiff::Timestamp;

pub use self::call::Options;
use self::meaning::Meaning;
use self::object::Object;
pub use self::queues::{Paused, QueueArgument, pause, resume};
use self::report::Report;
use super::cluster::{self, Cluster, Page};
use super::complete;
use super::queue::{Filter, why_none};
use super::target::Target;
use super::{Invalid, ask};
use crate::api::names;
use crate::api::question::{ExplainFilter, QuestionSpec};
use crate::view::WorkloadRow;

/// The time between two looks at a workload that is waited for.
const LOOK: Duration = Duration::from_secs(2);

/// The workloads of a command.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Workloads {
    /// The workloads: NAME, KIND/NAME or NAMESPACE/NAME; or one as KIND NAME.
    #[arg(value_name = "WORKLOAD", required = true, add = complete::workloads())]
    workloads: Vec<String>,
}

/// The workloads to delete: those that are named, or those that the filter finds.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Chosen {
    /// The workloads: NAME, KIND/NAME or NAMESPACE/NAME; or one as KIND NAME.
    #[arg(value_name = "WORKLOAD", add = complete::workloads())]
    workloads: Vec<String>,
    /// The workloads to find where none is named.
    #[command(flatten)]
    filter: Filter,
    /// Only list the workloads.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before the deletion.
    #[arg(long, short)]
    yes: bool,
}

/// What `sluice wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// The workload runs, or has ended.
    Start,
    /// The workload has ended.
    End,
}

/// What Sluice says of a workload, and when.
struct Found {
    row: WorkloadRow,
    at: Timestamp,
}

/// What Sluice says of each workload that is named.
async fn find(options: &Options, cluster: &Cluster, words: &[String]) -> anyhow::Result<Vec<WorkloadRow>> {
    let mut rows = Vec::new();
    for target in ask::targets(&options.cluster, cluster, words).await? {
        rows.push(found(cluster, &target).await?.row);
    }
    Ok(rows)
}

/// The one workload of this name.
async fn found(cluster: &Cluster, target: &Target) -> anyhow::Result<Found> {
    let Page { mut rows, at, note, .. } = rows_of(cluster, target).await?;
    rows.retain(|row| target.may_be(&row.kind));
    let label = target.label();
    match (rows.pop(), rows.is_empty()) {
        (Some(row), true) => Ok(Found { row, at: at.unwrap_or_else(Timestamp::now) }),
        (None, _) => anyhow::bail!(note.unwrap_or_else(|| format!("Sluice manages no workload {label}"))),
        _ => anyhow::bail!(
            "{label} may be several objects; write the kind before the name, as in job/{}",
            target.name
        ),
    }
}

async fn rows_of(cluster: &Cluster, target: &Target) -> anyhow::Result<Page<WorkloadRow>> {
    let mut cluster = cluster.clone();
    (cluster.namespace, cluster.all) = (target.namespace.clone(), false);
    let explain = ExplainFilter { name: target.name.clone(), namespace: None };
    let spec = QuestionSpec { explain: Some(explain), ..QuestionSpec::default() };
    cluster.page(&spec).await?.context("unexpected answer of Sluice")
}

/// Writes one annotation of each workload, or removes it; then prints what that means.
fn annotate(
    (options, action): (&Options, &'static str),
    Workloads { workloads }: &Workloads,
    (key, value): (&str, &str),
    meaning: &str,
) -> anyhow::Result<()> {
    acting(options, action, async |cluster, report| {
        for row in find(options, cluster, workloads).await? {
            let object = Object::of(&row)?;
            object.annotate(cluster, options, key, Some(value)).await?;
            report.workload(&object, true, meaning)?;
        }
        Ok(())
    })
}

/// Runs a command that acts.
fn acting(
    options: &Options,
    action: &'static str,
    act: impl AsyncFnOnce(&Cluster, &mut Report) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    cluster::with(&options.cluster, async |cluster| {
        Report::of(options, action, async |report| act(&cluster, report).await).await
    })
}

/// `sluice hold`.
pub fn hold(options: &Options, Workloads { workloads }: &Workloads) -> anyhow::Result<()> {
    acting(options, "hold", async |cluster, report| {
        for row in find(options, cluster, workloads).await? {
            let object = Object::of(&row)?;
            match meaning::hold(&row.kind, &row.head.state) {
                Meaning::Writes(meaning) => {
                    object.annotate(cluster, options, names::HOLD, Some("true")).await?;
                    report.workload(&object, true, meaning)?;
                }
                Meaning::Nothing(why) => report.workload(&object, false, why)?,
            }
        }
        Ok(())
    })
}

/// `sluice release`.
pub fn release(options: &Options, Workloads { workloads }: &Workloads) -> anyhow::Result<()> {
    acting(options, "release", async |cluster, report| {
        for row in find(options, cluster, workloads).await? {
            let object = Object::of(&row)?;
            let label = object.label();
            let annotated = object.has_annotation(cluster, names::HOLD).await?;
            if annotated {
                object.annotate(cluster, options, names::HOLD, None).await?;
            }
            match row.head.reason.as_str() {
                "HeldByUser" if row.pods == 0 => {
                    anyhow::bail!("{label} asks for no pods, so there is nothing to release; scale it up")
                }
                "HeldByUser" => object.resume(cluster, options).await?,
                _ if !annotated => {
                    report.workload(&object, false, "is not on hold")?;
                    continue;
                }
                _ => {}
            }
            report.workload(&object, true, "is released")?;
        }
        Ok(())
    })
}

/// `sluice order`.
pub fn order(options: &Options, order: i32, across_users: bool, workloads: &Workloads) -> anyhow::Result<()> {
    let (key, of) = if across_users { (names::TEAM_ORDER, "team") } else { (names::ORDER, "user") };
    let meaning = format!("has order {order} among the waiting work of its {of}");
    annotate((options, "order"), workloads, (key, &order.to_string()), &meaning)
}

/// `sluice top`: the order that is one above the highest of the same user's objects of that kind in the namespace.
pub fn top(options: &Options, Workloads { workloads }: &Workloads) -> anyhow::Result<()> {
    acting(options, "top", async |cluster, report| {
        for row in find(options, cluster, workloads).await? {
            let object = Object::of(&row)?;
            let order = object.highest_order(cluster, row.user.as_deref()).await?.saturating_add(1);
            object.annotate(cluster, options, names::ORDER, Some(&order.to_string())).await?;
            let meaning = format!("comes first of the waiting work of its user (order {order})");
            report.workload(&object, true, &meaning)?;
        }
        Ok(())
    })
}

/// `sluice requeue`: at the time of Sluice's clock, since that of the caller may be wrong.
pub fn requeue(options: &Options, Workloads { workloads }: &Workloads) -> anyhow::Result<()> {
    acting(options, "requeue", async |cluster, report| {
        for target in ask::targets(&options.cluster, cluster, workloads).await? {
            let Found { row, at } = found(cluster, &target).await?;
            let object = Object::of(&row)?;
            match meaning::requeue(&row.head.state) {
                Meaning::Writes(meaning) => {
                    object.annotate(cluster, options, names::REQUEUE, Some(&at.to_string())).await?;
                    report.workload(&object, true, meaning)?;
                }
                Meaning::Nothing(why) => report.workload(&object, false, why)?,
            }
        }
        Ok(())
    })
}

/// `sluice cancel`.
pub fn cancel(options: &Options, chosen: Chosen) -> anyhow::Result<()> {
    let Chosen { workloads, filter, dry_run, yes } = chosen;
    if workloads.is_empty() && !filter.chooses() {
        let line = "name the workloads to delete, or choose them with --me, --user, --team, --queue, --state or --selector";
        return Err(Invalid(line.to_owned()).into());
    }
    acting(options, "cancel", async |cluster, report| {
        let rows = if workloads.is_empty() {
            let rows = filter.selected(cluster, cluster.ask(filter.question(false)).await?).await?;
            if rows.is_empty() {
                why_none(cluster, &filter).await?;
            }
            rows
        } else {
            find(options, cluster, &workloads).await?
        };
        let objects: Vec<Object> = rows.iter().map(Object::of).collect::<Result<_, _>>()?;
        let states = rows.iter().map(|row| format!("({})", row.head.state.to_ascii_lowercase()));
        let mut chosen = objects.iter().zip(states);
        if objects.is_empty() {
            return report.note("no workload is chosen");
        }
        if dry_run {
            return chosen.try_for_each(|(object, state)| report.workload(object, false, &state));
        }
        if !yes {
            if !stdin().is_terminal() {
                return Err(
                    Invalid("there is no terminal to ask before the deletion; add --yes".to_owned()).into()
                );
            }
            let lines: String =
                chosen.map(|(object, state)| format!("{} {state}\n", object.label())).collect();
            write!(stderr(), "{lines}Delete {}? [y/N] ", counted(objects.len()))?;
            let mut answer = String::new();
            stdin().read_line(&mut answer)?;
            if !matches!(answer.trim(), "y" | "Y" | "yes") {
                return report.note("nothing is deleted");
            }
        }
        for object in &objects {
            object.delete(cluster, options).await?;
            report.workload(object, true, "is deleted")?;
        }
        Ok(())
    })
}

fn counted(workloads: usize) -> String {
    if workloads == 1 { "this workload".to_owned() } else { format!("these {workloads} workloads") }
}

/// `sluice wait`.
pub fn wait(
    options: &Options,
    Workloads { workloads }: &Workloads,
    until: Until,
    timeout: Option<Duration>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    acting(options, "wait", async |cluster, report| {
        for row in find(options, cluster, workloads).await? {
            let object = Object::of(&row)?;
            let label = object.label();
            let target = Target::read(
                &[format!("{}/{}", row.kind, row.head.name)],
                Some(&row.head.namespace),
                &cluster.namespace,
            )?;
            let mut said = String::new();
            loop {
                let now = rows_of(cluster, &target).await?.rows.into_iter().find(|one| one.kind == row.kind);
                let state = now.as_ref().map_or("Finished", |now| &now.head.state);
                if state == "Finished" || until == Until::Start && state == "Running" {
                    let done = if state == "Finished" { "has ended" } else { "runs" };
                    report.workload(&object, true, done)?;
                    break;
                }
                let still = meaning::still(state);
                if let Some(now) = now.filter(|now| now.head.message != said) {
                    writeln!(stderr(), "{label}: {}: {}", now.head.reason, now.head.message)?;
                    said = now.head.message;
                }
                let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
                if left == Some(Duration::ZERO) {
                    anyhow::bail!("{label} {still} after {:.0?}", began.elapsed());
                }
                tokio::time::sleep(left.map_or(LOOK, |left| left.min(LOOK))).await;
            }
        }
        Ok(())
    })
}

/// Parses `--timeout`.
///
/// # Errors
/// When it is no duration such as `10m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 90s, 10m or 24h");
    let span: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(span).map_err(|_| wrong())
}
