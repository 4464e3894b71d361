//! The schema: one for both databases, in the SQL that they share.
//!
//! Times are milliseconds since the Unix epoch, amounts thousandths of a unit, flags 0 or 1. `runs` and `segments` follow from
//! `sightings`; they are made again whenever one of a run's sightings changes. The sums follow from `runs` and `segments`.

/// The steps from an empty database to the present schema. One that was released is never changed.
pub const MIGRATIONS: &[&str] = &[
    "CREATE TABLE runs (
       uid TEXT NOT NULL, admitted_at BIGINT NOT NULL,
       namespace TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
       team TEXT NOT NULL, queue TEXT NOT NULL, pool TEXT NOT NULL, username TEXT NOT NULL,
       submitted_at BIGINT NOT NULL, queued_at BIGINT,
       until_at BIGINT NOT NULL, ended_at BIGINT,
       ending TEXT NOT NULL, reason TEXT NOT NULL, for_workload TEXT NOT NULL,
       stopped_at BIGINT, saved_at BIGINT,
       pods BIGINT NOT NULL, nodes TEXT NOT NULL, devices BIGINT NOT NULL, borrowed BIGINT NOT NULL,
       used BIGINT NOT NULL, lost BIGINT NOT NULL,
       PRIMARY KEY (uid, admitted_at));
     CREATE INDEX runs_by_name ON runs (namespace, name);
     CREATE INDEX runs_by_time ON runs (until_at);
     CREATE TABLE segments (
       uid TEXT NOT NULL, admitted_at BIGINT NOT NULL, resource TEXT NOT NULL, from_at BIGINT NOT NULL, to_at BIGINT NOT NULL,
       amount BIGINT NOT NULL,
       team TEXT NOT NULL, queue TEXT NOT NULL, pool TEXT NOT NULL, username TEXT NOT NULL, borrowed BIGINT NOT NULL,
       PRIMARY KEY (uid, admitted_at, resource, from_at));
     CREATE INDEX segments_by_time ON segments (to_at);
     CREATE TABLE transitions (
       uid TEXT NOT NULL, admitted_at BIGINT NOT NULL, transition TEXT NOT NULL, occasion BIGINT NOT NULL, at BIGINT NOT NULL,
       namespace TEXT NOT NULL, name TEXT NOT NULL, team TEXT NOT NULL,
       reason TEXT NOT NULL, for_workload TEXT NOT NULL, message TEXT NOT NULL, grade BIGINT NOT NULL,
       PRIMARY KEY (uid, admitted_at, transition, occasion));
     CREATE INDEX transitions_by_name ON transitions (namespace, name);
     CREATE INDEX transitions_by_time ON transitions (at);
     CREATE TABLE samples (
       at BIGINT NOT NULL, team TEXT NOT NULL, pool TEXT NOT NULL, resource TEXT NOT NULL,
       guaranteed BIGINT NOT NULL, used BIGINT NOT NULL, borrowed BIGINT NOT NULL, lent BIGINT NOT NULL,
       waiting BIGINT NOT NULL, capacity BIGINT NOT NULL,
       PRIMARY KEY (at, team, pool, resource));
     CREATE TABLE sightings (
       uid TEXT NOT NULL, admitted_at BIGINT NOT NULL, session BIGINT NOT NULL, grade BIGINT NOT NULL, body TEXT NOT NULL,
       PRIMARY KEY (uid, admitted_at, session));",
    "CREATE TABLE sums_by_queue (
       at BIGINT NOT NULL, team TEXT NOT NULL, queue TEXT NOT NULL, pool TEXT NOT NULL,
       used BIGINT NOT NULL, used_at BIGINT NOT NULL, borrowed BIGINT NOT NULL, borrowed_at BIGINT NOT NULL,
       waiting BIGINT NOT NULL, waiting_at BIGINT NOT NULL, started BIGINT NOT NULL, ended BIGINT NOT NULL, lost BIGINT NOT NULL,
       PRIMARY KEY (at, team, queue, pool));
     CREATE TABLE sums_by_user (
       at BIGINT NOT NULL, team TEXT NOT NULL, username TEXT NOT NULL,
       used BIGINT NOT NULL, used_at BIGINT NOT NULL, borrowed BIGINT NOT NULL, borrowed_at BIGINT NOT NULL,
       waiting BIGINT NOT NULL, waiting_at BIGINT NOT NULL, started BIGINT NOT NULL, ended BIGINT NOT NULL, lost BIGINT NOT NULL,
       PRIMARY KEY (at, team, username));
     CREATE INDEX runs_by_start ON runs (team, admitted_at, queue, queued_at);",
    // The second has all that a report about evictions asks for. PostgreSQL reads nothing else only if the index has the columns
    // of its expression too.
    "CREATE INDEX runs_by_namespace ON runs (namespace, admitted_at, uid);
     CREATE INDEX runs_by_eviction ON runs (COALESCE(stopped_at, ended_at), stopped_at, ended_at, ending, team, namespace,
       reason, for_workload, lost) WHERE ending = 'Evicted';",
];

/// The version since which the sums are as they are; in an older store they are made again.
pub const SUMS_SINCE: usize = 2;

/// The table that says how far a database has come.
pub const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL PRIMARY KEY)";

/// A table as it is written.
#[derive(Debug)]
pub struct Table {
    /// The name.
    pub name: &'static str,
    /// The columns, the key first.
    pub columns: &'static [&'static str],
    /// How many of them are the key.
    pub key: usize,
    /// Whether a row with a key that is there replaces the other, as a condition on both.
    pub replace: Option<&'static str>,
}

/// The runs.
pub const RUNS: Table = Table {
    name: "runs",
    columns: &[
        "uid",
        "admitted_at",
        "namespace",
        "name",
        "kind",
        "team",
        "queue",
        "pool",
        "username",
        "submitted_at",
        "queued_at",
        "until_at",
        "ended_at",
        "ending",
        "reason",
        "for_workload",
        "stopped_at",
        "saved_at",
        "pods",
        "nodes",
        "devices",
        "borrowed",
        "used",
        "lost",
    ],
    key: 2,
    replace: Some("1 = 1"),
};

/// What runs were charged, by resource and time.
pub const SEGMENTS: Table = Table {
    name: "segments",
    columns: &[
        "uid",
        "admitted_at",
        "resource",
        "from_at",
        "to_at",
        "amount",
        "team",
        "queue",
        "pool",
        "username",
        "borrowed",
    ],
    key: 4,
    replace: None,
};

/// What happened. The writer that knew most counts; of equal ones the earlier.
pub const TRANSITIONS: Table = Table {
    name: "transitions",
    columns: &[
        "uid",
        "admitted_at",
        "transition",
        "occasion",
        "at",
        "namespace",
        "name",
        "team",
        "reason",
        "for_workload",
        "message",
        "grade",
    ],
    key: 4,
    replace: Some(
        "excluded.grade > transitions.grade OR excluded.grade = transitions.grade AND (excluded.at < transitions.at \
         OR excluded.at = transitions.at AND (excluded.reason || excluded.message) > (transitions.reason || transitions.message))",
    ),
};

/// The figures of teams. The first counts.
pub const SAMPLES: Table = Table {
    name: "samples",
    columns: &[
        "at",
        "team",
        "pool",
        "resource",
        "guaranteed",
        "used",
        "borrowed",
        "lent",
        "waiting",
        "capacity",
    ],
    key: 4,
    replace: None,
};

/// What each process saw of each run. The latest of a process counts.
pub const SIGHTINGS: Table = Table {
    name: "sightings",
    columns: &["uid", "admitted_at", "session", "grade", "body"],
    key: 3,
    replace: Some(
        "excluded.grade > sightings.grade OR excluded.grade = sightings.grade AND excluded.body > sightings.body",
    ),
};

/// The columns with texts; the others have numbers.
pub const TEXTS: [&str; 15] = [
    "uid",
    "namespace",
    "name",
    "kind",
    "team",
    "queue",
    "pool",
    "username",
    "ending",
    "reason",
    "for_workload",
    "nodes",
    "resource",
    "transition",
    "message",
];

/// The columns that may have no value.
pub const OPTIONAL: [&str; 4] = ["queued_at", "ended_at", "stopped_at", "saved_at"];

/// The tables that people read.
pub const PUBLISHED: [&Table; 4] = [&RUNS, &SEGMENTS, &TRANSITIONS, &SAMPLES];
