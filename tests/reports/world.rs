//! Random runs with their store, and the computation that reports are held against.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sluice::api::accounts::{ReportFilter, ReportKind};
use sluice::history::generate::{Past, facts};
use sluice::history::merge;
use sluice::history::query::{Choice, Periods};
use sluice::history::record::{DEVICES, Ending, Fact, OF_TEAM, Run, Sample};
use sluice::history::store::{Location, Store};
use sluice::view::accounts::{EvictionsRow, GpuTime, ReportRow, UsageRow, WaitsRow};

pub const KINDS: [ReportKind; 4] =
    [ReportKind::Teams, ReportKind::Users, ReportKind::Pools, ReportKind::Queues];
pub const HOUR: i64 = 3_600_000;
pub const HALF: i64 = HOUR / 2;
/// 2026-11-01 00:00 UTC.
pub const BEGIN: i64 = 1_793_491_200_000;
pub const GPU: &str = "nvidia.com/gpu";

/// Runs with their store: some still run, of some nothing says since when they waited.
pub struct World {
    pub runs: Vec<Run>,
    pub samples: Vec<Sample>,
    pub store: Store,
}

/// A world in a file, which goes with the folder.
pub fn world(seed: u64, count: usize) -> (World, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let location = Location::File(folder.path().join("history.db"));
    (filled(seed, count, Store::open(&location).expect("a store")), folder)
}

pub fn filled(seed: u64, count: usize, mut store: Store) -> World {
    let past = Past { seed, runs: count, from: BEGIN, millis: 72 * HOUR };
    let (mut all, mut runs) = (Vec::new(), Vec::new());
    for (at, mut fact) in facts(past).enumerate() {
        if let Fact::Sighting(key, sighting) = &mut fact {
            if at % 7 == 0 {
                sighting.end = None;
            }
            if at % 5 == 0 {
                sighting.head.queued_at = None;
            }
            sighting.head.team = format!("team-{}", at % 3);
            sighting.head.namespace = format!("ns-{}", at % 4);
            if let Some(end) = sighting.end.as_mut().filter(|end| !end.for_workload.is_empty()) {
                end.for_workload = match at % 5 {
                    4 => format!("{OF_TEAM}team-1"),
                    namespace => format!("ns-{namespace}/other"),
                };
            }
            runs.extend(merge(key, std::slice::from_ref(sighting)));
        }
        all.push(fact);
    }
    let samples: Vec<Sample> = (0..40)
        .flat_map(|at| ["team-0", "team-1"].map(|team| (at, team)))
        .map(|(at, team)| Sample {
            at: BEGIN + at * 2 * HOUR,
            team: team.to_owned(),
            pool: "default".to_owned(),
            resource: if at % 9 == 0 { "memory" } else { DEVICES }.to_owned(),
            // The sum of bytes is beyond an integer of 64 bits.
            guaranteed: if at % 9 == 0 { i64::MAX / 2 } else { 4_000 + at * 500 },
            lent: at * 250,
            capacity: if at % 9 == 0 { i64::MAX / 2 } else { 64_000 },
            ..Sample::default()
        })
        .collect();
    all.extend(samples.iter().cloned().map(Fact::Sample));
    store.write(&all).expect("facts are written");
    World { runs, samples, store }
}

pub fn time(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).expect("a time")
}

pub fn overlap(from: i64, to: i64, (begin, end): (i64, i64)) -> i64 {
    (to.min(end) - from.max(begin)).max(0)
}

/// Whether a report is about a run.
fn is_about(choice: &Choice, run: &Run) -> bool {
    choice.namespace.as_ref().is_none_or(|own| *own == run.head.namespace)
        && choice.team.as_ref().is_none_or(|team| *team == run.head.team)
}

/// The name of the group of a run.
pub fn group(kind: ReportKind, run: &Run) -> UsageRow {
    let head = &run.head;
    let mut row = UsageRow::default();
    match kind {
        ReportKind::Users => {
            row.user.clone_from(&head.username);
            row.team.clone_from(&head.team);
        }
        ReportKind::Pools => row.pool.clone_from(&head.pool),
        ReportKind::Queues => {
            row.queue.clone_from(&head.queue);
            row.team.clone_from(&head.team);
        }
        _ => row.team.clone_from(&head.team),
    }
    row
}

pub fn key(row: &UsageRow) -> (i64, String, String, String, String) {
    (row.from.as_millisecond(), row.user.clone(), row.team.clone(), row.pool.clone(), row.queue.clone())
}

pub fn plus(time: &mut GpuTime, micro: i64) {
    *time = time.plus(GpuTime::of_micro(micro.into()));
}

/// The report about usage, the plain way.
pub fn expected(world: &World, choice: &Choice) -> BTreeMap<(i64, String, String, String, String), UsageRow> {
    let mut rows = BTreeMap::new();
    for period in choice.periods.each() {
        for run in world.runs.iter().filter(|run| is_about(choice, run)) {
            let head = &run.head;
            let mut row = UsageRow { from: time(period.0), to: time(period.1), ..group(choice.kind, run) };
            for segment in &run.segments {
                let used = segment.amounts[DEVICES] * overlap(segment.from, segment.to, period);
                plus(&mut row.used_gpu_seconds, used);
                let part = if head.borrowed {
                    &mut row.borrowed_gpu_seconds
                } else {
                    &mut row.guaranteed_gpu_seconds
                };
                plus(part, used);
            }
            let admitted = run.key.admitted_at;
            let began = period.0 <= admitted && admitted < period.1;
            row.runs = u64::from(began || overlap(admitted, run.until, period) > 0);
            let queued = head.queued_at.unwrap_or(admitted);
            plus(&mut row.waited_gpu_seconds, head.devices * overlap(queued, admitted, period));
            let stopped = run.end.as_ref().map_or(0, |end| end.stopped_at.unwrap_or(end.at));
            if (period.0..period.1).contains(&stopped) {
                plus(&mut row.lost_gpu_seconds, run.lost * 1_000);
            }
            if row.runs
                + u64::from(row.waited_gpu_seconds > GpuTime::ZERO || row.lost_gpu_seconds > GpuTime::ZERO)
                == 0
            {
                continue;
            }
            let sum: &mut UsageRow = rows.entry(key(&row)).or_insert_with(|| UsageRow {
                from: row.from,
                to: row.to,
                ..group(choice.kind, run)
            });
            sum.runs += row.runs;
            for (sum, part) in [
                (&mut sum.used_gpu_seconds, row.used_gpu_seconds),
                (&mut sum.guaranteed_gpu_seconds, row.guaranteed_gpu_seconds),
                (&mut sum.borrowed_gpu_seconds, row.borrowed_gpu_seconds),
                (&mut sum.waited_gpu_seconds, row.waited_gpu_seconds),
                (&mut sum.lost_gpu_seconds, row.lost_gpu_seconds),
            ] {
                *sum = sum.plus(part);
            }
        }
        if choice.kind == ReportKind::Teams && choice.namespace.is_none() {
            for sample in world.samples.iter().filter(|sample| sample.resource == DEVICES) {
                let others = choice.team.as_ref().is_some_and(|team| *team != sample.team);
                if others || !(period.0..period.1).contains(&sample.at) {
                    continue;
                }
                let row = UsageRow {
                    from: time(period.0),
                    to: time(period.1),
                    team: sample.team.clone(),
                    ..UsageRow::default()
                };
                let row = rows.entry(key(&row)).or_insert(row);
                plus(row.lent_gpu_seconds.get_or_insert_default(), sample.lent * 300_000);
                plus(row.available_gpu_seconds.get_or_insert_default(), sample.guaranteed * 300_000);
            }
        }
    }
    rows
}

pub fn used(rows: &[ReportRow]) -> BTreeMap<(i64, String, String, String, String), UsageRow> {
    let usage =
        |row: &ReportRow| if let ReportRow::Usage(row) = row { Some((key(row), row.clone())) } else { None };
    rows.iter().filter_map(usage).collect()
}

pub fn choice(kind: ReportKind, from: i64, hours: i64, cuts: &[i64]) -> Choice {
    choice_until(kind, from, hours * HOUR, cuts)
}

pub fn choice_until(kind: ReportKind, from: i64, millis: i64, cuts: &[i64]) -> Choice {
    let filter = ReportFilter {
        kind,
        from: time(from),
        to: Some(time(from + millis)),
        by: None,
        cuts: cuts.iter().map(|cut| time(from + cut)).collect::<BTreeSet<_>>().into_iter().collect(),
        team: None,
        prices: BTreeMap::new(),
    };
    let periods = Periods::of(&filter, time(BEGIN)).expect("periods");
    Choice { kind, periods, namespace: None, team: None, prices: BTreeMap::new() }
}

pub fn waits_of(world: &World, choice: &Choice) -> Vec<WaitsRow> {
    let mut rows = Vec::new();
    for period in choice.periods.each() {
        let mut groups: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
        for run in world.runs.iter().filter(|run| is_about(choice, run)) {
            let admitted = run.key.admitted_at;
            let Some(queued) = run.head.queued_at.filter(|_| (period.0..period.1).contains(&admitted)) else {
                continue;
            };
            let waits = groups.entry((&run.head.team, &run.head.queue)).or_default();
            waits.push(u64::try_from((admitted - queued).max(0) / 1_000).expect("a wait"));
        }
        for ((team, queue), mut waits) in groups {
            waits.sort_unstable();
            let at = |part: usize| waits[(waits.len() * part).div_ceil(10) - 1];
            rows.push(WaitsRow {
                from: time(period.0),
                to: time(period.1),
                team: team.to_owned(),
                queue: queue.to_owned(),
                started: waits.len() as u64,
                median_seconds: at(5),
                p90_seconds: at(9),
                max_seconds: at(10),
            });
        }
    }
    rows
}

pub fn evictions_of(world: &World, choice: &Choice) -> Vec<EvictionsRow> {
    let mut latest: BTreeMap<&str, (i64, &str)> = BTreeMap::new();
    for run in &world.runs {
        let team = latest.entry(&run.head.namespace).or_default();
        *team = (*team).max((run.key.admitted_at, &run.head.team));
    }
    let mut rows = Vec::new();
    for period in choice.periods.each() {
        let mut groups: BTreeMap<(&str, &str), EvictionsRow> = BTreeMap::new();
        for run in world.runs.iter().filter(|run| is_about(choice, run)) {
            let Some(end) = &run.end else { continue };
            if end.how != Ending::Evicted || !(period.0..period.1).contains(&end.stopped_at.unwrap_or(end.at))
            {
                continue;
            }
            let namespace = end.for_workload.split_once('/').map_or("", |(namespace, _)| namespace);
            let team = end.for_workload.strip_prefix(OF_TEAM);
            let team = team.unwrap_or_else(|| latest.get(namespace).map_or("", |(_, team)| team));
            let row = groups.entry((&end.reason, team)).or_default();
            (row.from, row.to) = (time(period.0), time(period.1));
            (row.rule, row.for_team) = (end.reason.clone(), team.to_owned());
            row.evictions += 1;
            plus(&mut row.lost_gpu_seconds, run.lost * 1_000);
        }
        rows.extend(groups.into_values());
    }
    rows
}
