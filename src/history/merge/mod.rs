//! What all sightings of a run say together.
//!
//! It is a function of the set of sightings: their order, and how often each was written, do not matter. At each time the
//! best witness counts: one that watched then. Between and before them the next witness is asked, because what a record says
//! holds until it is changed.

use std::collections::BTreeSet;

use super::record::{DEVICES, End, Run, RunKey, Segment, Sighting};

/// The run, as its sightings say; `None` if there are none.
#[must_use]
pub fn merge(key: &RunKey, sightings: &[Sighting]) -> Option<Run> {
    let mut witnesses: Vec<&Sighting> = sightings.iter().collect();
    witnesses.sort_by_key(|seen| rank(key, seen));
    let best = witnesses.first()?;
    let end = witnesses
        .iter()
        .filter(|seen| seen.end.is_some())
        .min_by_key(|seen| (saw_the_end(seen), rank(key, seen)));
    let end = end.and_then(|seen| seen.end.clone());
    let latest = witnesses.iter().map(|seen| seen.seen_until).max().unwrap_or(key.admitted_at);
    let until = end.as_ref().map_or(latest, |end| end.at).max(key.admitted_at);
    let segments = timeline(key.admitted_at, until, &witnesses);
    let used = integral(&segments, key.admitted_at, until);
    let lost = end.as_ref().map_or(0, |end| lost(&segments, end));
    let queued_at = witnesses.iter().find_map(|seen| seen.head.queued_at);
    let mut head = best.head.clone();
    head.queued_at = queued_at;
    Some(Run { key: key.clone(), head, until, end, used, lost, segments })
}

/// The order of witnesses: those that watched from the beginning first, then those that watched at all.
fn rank<'a>(key: &RunKey, seen: &'a Sighting) -> (bool, bool, i64, &'a Sighting) {
    let whole = seen.seen_from == Some(key.admitted_at);
    (!whole, seen.seen_from.is_none(), seen.session, seen)
}

/// Whether a witness has the end from an object only, after the fact.
fn saw_the_end(seen: &Sighting) -> bool {
    seen.seen_from.is_none()
}

/// The amounts from the admission until the end.
fn timeline(from: i64, until: i64, witnesses: &[&Sighting]) -> Vec<Segment> {
    let mut edges = BTreeSet::from([from, until]);
    for seen in witnesses {
        edges.extend(seen.seen_from.into_iter().chain([seen.seen_until]));
        edges.extend(seen.segments.iter().flat_map(|segment| [segment.from, segment.to]));
    }
    let edges: Vec<i64> = edges.range(from..=until).copied().collect();
    let mut segments: Vec<Segment> = Vec::new();
    for (start, stop) in edges.iter().zip(edges.iter().skip(1)) {
        let Some(segment) = witness_at(*start, witnesses) else { continue };
        if segment.amounts.values().all(|amount| *amount == 0) {
            continue;
        }
        match segments.last_mut() {
            Some(last) if last.to == *start && last.amounts == segment.amounts => last.to = *stop,
            _ => segments.push(Segment { from: *start, to: *stop, amounts: segment.amounts.clone() }),
        }
    }
    segments
}

/// The segment that counts from a time on: of the best witness that watched then; else the first of the one that came next;
/// else the last of the one that watched last.
fn witness_at<'a>(at: i64, witnesses: &[&'a Sighting]) -> Option<&'a Segment> {
    let watched = |seen: &&&Sighting| seen.seen_from.is_some_and(|from| from <= at && at < seen.seen_until);
    if let Some(seen) = witnesses.iter().find(watched) {
        let then = seen.segments.iter().find(|segment| segment.from <= at && at < segment.to);
        return then.or(Some(&NOTHING));
    }
    let next = witnesses.iter().filter(|seen| seen.seen_from.is_some_and(|from| from > at));
    let next = next.min_by_key(|seen| seen.seen_from).and_then(|seen| seen.segments.first());
    let last = witnesses.iter().filter(|seen| seen.seen_from.is_some() && seen.seen_until <= at);
    let last = last.max_by_key(|seen| seen.seen_until).and_then(|seen| seen.segments.last());
    let told = || witnesses.iter().find_map(|seen| seen.segments.first());
    next.or(last).or_else(told)
}

static NOTHING: Segment = Segment { from: 0, to: 0, amounts: std::collections::BTreeMap::new() };

/// Device-milliseconds between two times.
fn integral(segments: &[Segment], from: i64, to: i64) -> i64 {
    let one = |segment: &Segment| {
        let time = segment.to.min(to).saturating_sub(segment.from.max(from)).max(0);
        i128::from(segment.amounts.get(DEVICES).copied().unwrap_or(0)) * i128::from(time)
    };
    let sum = segments.iter().map(one).sum::<i128>() / 1000;
    i64::try_from(sum).unwrap_or(i64::MAX)
}

/// Device-milliseconds that were used since the work was saved last and until the eviction, and those of the stop itself.
fn lost(segments: &[Segment], end: &End) -> i64 {
    end.saved_at.map_or(0, |saved| integral(segments, saved, end.at))
}

#[cfg(test)]
mod tests;
