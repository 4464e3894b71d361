//! The rows of workloads, teams, nodes and what-if results.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::page::{About, Keyed, Listing, Parts};
use super::scope::{Refusal, Scope, stopping};
use super::shared::Made;
use super::state::{AskState, away, in_turn, key, made, shared};
use crate::api::question::{
    ExplainFilter, MOST_ROWS, NodesFilter, Phase, QuestionSpec, QueueFilter, TeamsFilter, WhatIfFilter,
};
use crate::api::schema::MOST_OBJECTS;
use crate::controller::{Choice, Question, WorkloadsPart};
use crate::directory::Names;
use crate::forecast::{Starts, Unanswered};
use crate::view::{TeamsRow, WorkloadHead, WorkloadRow};

pub(super) async fn workloads(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    filter: QueueFilter,
    caller: &str,
) -> Result<Value, Refusal> {
    let own = scope.namespace(filter.namespace.as_deref())?;
    let asked = own.clone();
    let by_state = QueueFilter { states: filter.states.clone(), ..QueueFilter::default() } == filter;
    let wide = if filter == QueueFilter::default() || filter.states.contains(&Phase::Finished) {
        None
    } else if by_state && state.shared.fresh(&key((scope, ""), spec)).is_none() {
        Some(unfinished(state, scope).await?)
    } else {
        // The Question about all workloads, which every page of the queue asks, has the rows of this narrower one.
        state.shared.fresh(&key((scope, ""), &every()))
    };
    let QueueFilter { namespace: _, team, queue, user, me, states } = filter;
    let named = (team.clone(), queue.clone());
    let user = if me { Some(caller.to_owned()) } else { user };
    let choice = Choice { namespace: own, team, queue, user };
    let states: Vec<&str> = states.into_iter().map(Phase::code).collect();
    let wanted = move |state: &str| match &states[..] {
        [] => state != Phase::Finished.code(),
        states => states.contains(&state),
    };
    let answer = shared(state, (scope, if me { caller } else { "" }), spec, |before| async {
        if let Some(wide) = wide {
            return made(move || Ok(wide.narrowed(|row| wanted(&row.state) && has(&choice, row)))).await;
        }
        chosen(state, scope, (choice, wanted), before).await
    });
    let names = Names { team: named.0.as_deref(), queue: named.1.as_deref(), pool: None };
    let mut answer = noted(state, asked.as_deref(), &names, answer.await?);
    if answer.get("unchanged").is_none() {
        answer["caller"] = caller.into();
    }
    Ok(answer)
}

/// An answer; without rows it says why, where Sluice does not manage the namespace or a name in the filter is none.
pub(super) fn noted(
    state: &AskState,
    namespace: Option<&str>,
    names: &Names<'_>,
    mut answer: Value,
) -> Value {
    if answer["total"] == 0 {
        let directory = state.directory.load();
        let unmanaged = namespace.and_then(|namespace| directory.unmanaged(namespace));
        if let Some(why) = unmanaged.or_else(|| directory.unknown(names)) {
            answer["note"] = why.into();
        }
    }
    answer
}

/// The Question about all workloads that have not ended.
fn every() -> QuestionSpec {
    QuestionSpec { queue: Some(QueueFilter::default()), ..QuestionSpec::default() }
}

/// The rows of all workloads that have not ended, of which Questions about states take theirs: made once for all of them.
async fn unfinished(state: &AskState, scope: &Scope) -> Result<Arc<Listing>, Refusal> {
    let choice = Choice { namespace: scope.namespace(None)?, ..Choice::default() };
    let wanted = |state: &str| state != Phase::Finished.code();
    let make = |before| in_turn(state, chosen(state, scope, (choice, wanted), before));
    state.shared.get(key((scope, ""), &every()), make).await
}

/// The rows of chosen workloads in the wanted states; `before` is the last listing of the same. The loop gives them part by part, so
/// that decisions need not wait for all of them.
async fn chosen(
    state: &AskState,
    scope: &Scope,
    (choice, wanted): (Choice, impl Fn(&str) -> bool),
    before: Option<Arc<Listing>>,
) -> Result<Made, Refusal> {
    let part = async |after| {
        let (choice, accelerators, began) = (choice.clone(), state.accelerators.clone(), Instant::now());
        let part = state.asker.ask(|to| Question::Workloads(choice, after, accelerators, to)).await;
        part.map(|part| (part, began.elapsed())).ok_or_else(stopping)
    };
    let mut writing = Writing::new(state, scope, before);
    let (mut next, cost) = part(None).await?;
    writing.cost += cost;
    // The loop stops early where it has found few among very many too.
    writing.many = next.more_after.is_some() && next.rows.len() >= MOST_ROWS;
    loop {
        let WorkloadsPart { mut rows, more_after } = next;
        rows.retain(|row| wanted(&row.head.state));
        // The next rows come while these are written.
        let Some(after) = more_after else {
            writing.add(rows).await?;
            return writing.made().await;
        };
        let (following, ()) = tokio::try_join!(part(Some(after)), writing.add(rows))?;
        writing.cost += following.1;
        next = following.0;
    }
}

/// When the forecast in a row was made.
fn foretold(row: &WorkloadRow) -> Option<Timestamp> {
    row.eta.as_ref().map(|eta| eta.foretold)
}

/// What filters choose a workload by.
fn about(row: &WorkloadRow) -> About {
    let WorkloadHead { namespace, team, queue, state, .. } = &row.head;
    let [namespace, team, queue, state] = [namespace, team, queue, state].map(String::clone);
    About { namespace, team, queue, user: row.user.clone(), state }
}

/// Whether a workload is asked for.
fn has(choice: &Choice, row: &About) -> bool {
    let Choice { namespace, team, queue, user } = choice;
    let is = |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
    is(namespace, &row.namespace)
        && is(team, &row.team)
        && is(queue, &row.queue)
        && user.as_ref().is_none_or(|user| row.user.as_ref() == Some(user))
}

pub(super) async fn explained(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    filter: ExplainFilter,
) -> Result<Value, Refusal> {
    let ExplainFilter { name, namespace } = filter;
    let namespace = scope.namespace(namespace.as_deref())?;
    let namespace = namespace
        .ok_or_else(|| Refusal::invalid("spec.explain.namespace: a ClusterQuestion must name it"))?;
    let (accelerators, asked) = (state.accelerators.clone(), namespace.clone());
    let rows = state
        .asker
        .ask(|to| Question::Workload((namespace, name), accelerators, to))
        .await
        .ok_or_else(stopping)?;
    let mut writing = Writing::new(state, scope, None);
    writing.add(rows).await?;
    let Made { listing, .. } = writing.made().await?;
    let spec = spec.clone();
    Ok(noted(state, Some(&asked), &Names::default(), away(move || listing.page(&spec)).await?))
}

/// An answer about workloads that is being written.
struct Writing<'a> {
    state: &'a AskState,
    scope: &'a Scope,
    parts: Parts,
    /// Whether the rows of the first part alone are more than a page, and more follow.
    many: bool,
    /// The expected starts, once a row needs them.
    starts: Option<Starts>,
    /// The time of loop and threads for it so far.
    cost: Duration,
}

impl<'a> Writing<'a> {
    fn new(state: &'a AskState, scope: &'a Scope, before: Option<Arc<Listing>>) -> Self {
        Self { state, scope, parts: Parts::new(before), many: false, starts: None, cost: Duration::ZERO }
    }

    /// Adds workloads with their expected starts.
    async fn add(&mut self, mut rows: Vec<WorkloadRow>) -> Result<(), Refusal> {
        if self.starts.is_none() && rows.iter().any(WorkloadRow::waits) {
            self.starts = Some(self.state.forecaster.starts(self.many).await);
        }
        let (starts, parts) = (self.starts.clone(), take(&mut self.parts));
        let (directory, scope, began) = (self.state.directory.load(), self.scope.clone(), Instant::now());
        self.parts = away(move || {
            if let Some(starts) = starts {
                starts.fill_in(&mut rows);
            }
            if let Some(sight) = scope.sight(&directory) {
                rows.iter_mut().for_each(|row| sight.workload(row));
            }
            let keyed = |row: WorkloadRow| {
                let submitted = row.submitted.as_millisecond().max(0);
                let key = format!("{submitted:020}/{}/{}/{}", row.head.namespace, row.head.name, row.kind);
                Keyed { key, row }
            };
            parts.with(rows.into_iter().map(keyed), foretold, about)
        })
        .await?;
        self.cost += began.elapsed();
        Ok(())
    }

    /// All of them, in order.
    async fn made(self) -> Result<Made, Refusal> {
        let Self { parts, cost, .. } = self;
        let Made { listing, cost: ordered } = made(move || Ok(parts.listing())).await?;
        Ok(Made { listing, cost: cost + ordered })
    }
}

pub(super) async fn team_rows(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    filter: TeamsFilter,
) -> Result<Value, Refusal> {
    let team = filter.team.clone();
    let answer = shared(state, (scope, ""), spec, |_| async {
        let teams = state.asker.ask(Question::Teams).await.ok_or_else(stopping)?;
        let (directory, scope) = (state.directory.load(), scope.clone());
        made(move || {
            let mut rows = teams.into_rows();
            if let Some(team) = filter.team {
                rows.retain(|row| match row {
                    TeamsRow::Team(row) => row.team == team,
                    TeamsRow::Queue(row) => row.team == team,
                    TeamsRow::Unadmitted(row) => row.team == team,
                    TeamsRow::Budget(row) => row.team == team,
                    TeamsRow::Overcommitment { .. } => false,
                });
            }
            if let Some(sight) = scope.sight(&directory) {
                for row in &mut rows {
                    if let TeamsRow::Unadmitted(row) = row {
                        sight.unadmitted(row);
                    }
                }
            }
            // Built of what is shown: a cursor must not name what the rows do not.
            let keyed = rows.into_iter().enumerate().map(|(at, row)| Keyed {
                key: match &row {
                    TeamsRow::Team(row) => format!("1/{}/{}", row.team, row.pool),
                    TeamsRow::Queue(row) => format!("2/{}/{}", row.team, row.queue),
                    TeamsRow::Overcommitment { .. } => format!("3/{at:08}"),
                    TeamsRow::Unadmitted(_) => format!("4/{at:08}"),
                    TeamsRow::Budget(row) => format!("5/{}", row.team),
                },
                row,
            });
            Listing::new(keyed.collect())
        })
        .await
    });
    let names = Names { team: team.as_deref(), ..Names::default() };
    Ok(noted(state, None, &names, answer.await?))
}

pub(super) async fn node_rows(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    filter: NodesFilter,
) -> Result<Value, Refusal> {
    let (accelerators, pool) = (state.accelerators.clone(), filter.pool.clone());
    let answer = shared(state, (scope, ""), spec, |_| async {
        let rows = state.asker.ask(|to| Question::Nodes(accelerators, to)).await.ok_or_else(stopping)?;
        let (directory, scope) = (state.directory.load(), scope.clone());
        made(move || {
            let mut rows = rows;
            rows.retain(|row| filter.pool.as_ref().is_none_or(|pool| *pool == row.pool));
            if let Some(sight) = scope.sight(&directory) {
                rows.iter_mut().for_each(|row| sight.node(row));
            }
            let keyed = rows.into_iter().map(|row| Keyed { key: row.name.clone(), row });
            Listing::new(keyed.collect())
        })
        .await
    });
    let names = Names { pool: pool.as_deref(), ..Names::default() };
    Ok(noted(state, None, &names, answer.await?))
}

pub(super) async fn what_if(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    (filter, user): (WhatIfFilter, &str),
) -> Result<Value, Refusal> {
    let WhatIfFilter { job, then } = filter;
    let mut workloads = vec![job];
    workloads.extend(then);
    if workloads.len() > MOST_OBJECTS {
        let problem = format!("spec.whatIf: at most {MOST_OBJECTS} objects are judged together");
        return Err(Refusal::invalid(problem));
    }
    for workload in &mut workloads {
        let named = workload.pointer("/metadata/namespace").and_then(Value::as_str);
        if let Some(namespace) = scope.namespace(named.filter(|name| !name.is_empty()))? {
            json_patch::merge(workload, &json!({"metadata": {"namespace": namespace}}));
        }
    }
    let directory = state.directory.load();
    let mut rows = state.forecaster.what_if(&directory, user, workloads).await.map_err(|error| {
        let message = error.to_string();
        match error {
            Unanswered::Refused(_) => Refusal::invalid(message),
            Unanswered::Busy => Refusal::busy(message),
            Unanswered::Unknown => Refusal::unavailable(message),
        }
    })?;
    if let Some(sight) = scope.sight(&directory) {
        rows.iter_mut().for_each(|row| sight.what_if(row));
    }
    let keyed = rows.into_iter().enumerate().map(|(at, row)| Keyed { key: format!("{at:02}"), row });
    // They are few, so no cursor leaves one out.
    let spec = QuestionSpec { cursor: None, since: None, limit: None, ..spec.clone() };
    let answer = Listing::new(keyed.collect()).and_then(|listing| listing.page(&spec));
    answer.map_err(|error| Refusal::unavailable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_a_newer_forecast_is_written_again_though_it_foretells_the_same() {
        let row = |foretold: &str| -> WorkloadRow {
            serde_json::from_value(json!({
                "kind": "Job", "namespace": "n", "name": "j", "team": "t", "queue": "q", "state": "Pending", "reason": "NoRoom",
                "message": "", "priority": 0, "pods": 1, "requests": {}, "nodes": {}, "borrowed": false,
                "submitted": "2026-01-01T00:00:00Z", "eta": {"foretold": foretold}
            }))
            .expect("a row")
        };
        let listing = |at: &str, before: Option<Arc<Listing>>| {
            let keyed = [Keyed { key: "1".to_owned(), row: row(at) }];
            let listing = Parts::new(before).with(keyed, foretold, about).expect("JSON").listing();
            let page = listing.page(&QuestionSpec::default()).expect("JSON");
            (Arc::new(listing), page)
        };
        let (first, one) = listing("2026-01-01T00:00:00Z", None);
        let (_, other) = listing("2026-01-02T00:00:00Z", Some(first));
        assert_eq!(other["rows"][0]["eta"]["foretold"], "2026-01-02T00:00:00Z");
        assert_eq!(one["version"], other["version"], "nothing has changed for its reader");
    }
}
