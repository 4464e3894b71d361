//! Random runs for tests and benchmarks, the same for a seed.

use std::collections::BTreeMap;

use super::record::{DEVICES, End, Ending, Fact, Head, RunKey, SEEN, Segment, Sighting, Transition};

/// Numbers that are drawn from a seed (splitmix64).
#[derive(Debug)]
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        i64::try_from((mixed ^ (mixed >> 31)) % u64::try_from(bound).unwrap_or(1).max(1)).unwrap_or(0)
    }
}

/// A cluster with a past.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// The seed.
    pub seed: u64,
    /// The number of runs.
    pub runs: usize,
    /// When the first was submitted.
    pub from: i64,
    /// The time over which they are spread.
    pub millis: i64,
}

/// The facts of a past: for each run a sighting and its transitions. A third of the runs ended with an eviction, and one in
/// eight was resized.
pub fn facts(past: Past) -> impl Iterator<Item = Fact> {
    let mut draw = Draw(past.seed);
    (0..past.runs).flat_map(move |number| run(&mut draw, past, number))
}

fn run(draw: &mut Draw, past: Past, number: usize) -> Vec<Fact> {
    const GPU: &str = "nvidia.com/gpu";
    let team = draw.below(40);
    let pool = ["default", "a100", "h100"][usize::try_from(draw.below(3)).unwrap_or(0)];
    let submitted_at = past.from + draw.below(past.millis.max(1));
    let admitted_at = submitted_at + draw.below(3_600_000);
    let lasts = 1_000 + draw.below(4 * 3_600_000);
    let until = admitted_at + lasts;
    let devices = 1000 << draw.below(5);
    let (namespace, name) = (format!("team-{team}"), format!("job-{number}"));
    let key = RunKey { uid: format!("00000000-0000-4000-8000-{number:012}"), admitted_at };
    let head = Head {
        namespace: namespace.clone(),
        name: name.clone(),
        kind: "Job".into(),
        team: namespace.clone(),
        queue: ["training", "interactive"][usize::try_from(draw.below(2)).unwrap_or(0)].into(),
        pool: pool.into(),
        username: format!("user-{}", team * 10 + draw.below(10)),
        submitted_at,
        queued_at: Some(submitted_at),
        pods: (devices / 1000).min(8),
        nodes: format!("{{\"gpu-{}\":{}}}", draw.below(500), (devices / 1000).min(8)),
        devices,
        borrowed: draw.below(3) == 0,
    };
    let how = Ending::ALL[usize::try_from(draw.below(3)).unwrap_or(0)];
    let evicted = how == Ending::Evicted;
    let reason = if evicted { "Reclaimed" } else { "" };
    let end = End {
        at: until,
        how,
        reason: reason.into(),
        for_workload: if evicted { format!("team-{}/other", draw.below(40)) } else { String::new() },
        stopped_at: evicted.then_some(until - 500),
        saved_at: evicted.then(|| admitted_at + draw.below(lasts)),
    };
    let amounts = |amount: i64| BTreeMap::from([(DEVICES.to_owned(), amount), (GPU.to_owned(), amount)]);
    let segments = if draw.below(8) == 0 {
        let middle = admitted_at + lasts / 2;
        vec![
            Segment { from: admitted_at, to: middle, amounts: amounts(devices) },
            Segment { from: middle, to: until, amounts: amounts(devices / 2) },
        ]
    } else {
        vec![Segment { from: admitted_at, to: until, amounts: amounts(devices) }]
    };
    let transition = |transition: &str, admitted_at: i64, at: i64| {
        Fact::Transition(Transition {
            uid: key.uid.clone(),
            admitted_at,
            transition: transition.into(),
            at,
            namespace: namespace.clone(),
            name: name.clone(),
            team: namespace.clone(),
            reason: reason.into(),
            grade: SEEN,
            ..Transition::default()
        })
    };
    let facts = vec![
        transition("Submitted", 0, submitted_at),
        transition("Admitted", admitted_at, admitted_at),
        transition("Ended", admitted_at, until),
    ];
    let sighting = Sighting {
        session: 1,
        head,
        seen_from: Some(admitted_at),
        seen_until: until,
        end: Some(end),
        segments,
    };
    facts.into_iter().chain([Fact::Sighting(key.clone(), sighting)]).collect()
}
