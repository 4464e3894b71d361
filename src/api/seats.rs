//! Which pod of an Indexed Job goes to which node of its admission.
//!
//! The indexes that have not ended take the places in order: as many as the first node has, then those of
//! the next. So every replica says the same of an index, whenever it is asked, and a pod that is made again
//! goes where the one before it was. That holds until the admission changes; from then on, and for indexes
//! beyond the granted pods, a place is given to each pod as it comes.

use super::record::Record;
use crate::engine::types::Name;

/// The places of an admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// How many places there are on which node, in order.
    nodes: Vec<(Name, u32)>,
    /// The indexes that had ended, as ranges with both ends.
    done: Vec<(u32, u32)>,
}

impl Seats {
    /// The places of a record. There are none to be had by index where the record does not say so.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let Some(done) = &record.done else { return Self::default() };
        let nodes = record.nodes.iter().map(|(node, pods)| (node.as_str().into(), *pods));
        Self { nodes: nodes.collect(), done: done.split(',').filter_map(range).collect() }
    }

    /// The node of an index; nothing if its place is not told by the index.
    #[must_use]
    pub fn node_of(&self, index: u32) -> Option<&Name> {
        let ended = |(first, last): &(u32, u32)| if index > *first { index.min(last + 1) - first } else { 0 };
        let mut place = index.checked_sub(self.done.iter().map(ended).sum())?;
        for (node, places) in &self.nodes {
            match place.checked_sub(*places) {
                Some(beyond) => place = beyond,
                None => return Some(node),
            }
        }
        None
    }
}

/// Reads `3` or `3-5`.
fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.trim().split_once('-').unwrap_or((text.trim(), text.trim()));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < u32::MAX).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(done: Option<&str>) -> Seats {
        Seats::of(&Record {
            pool: "p".into(),
            nodes: [("b".into(), 2), ("a".into(), 1), ("c".into(), 1)].into(),
            pods: 4,
            borrowed: false,
            at: "2026-11-21T08:00:00Z".parse().expect("a time"),
            wanted: None,
            share: None,
            group: None,
            done: done.map(Into::into),
        })
    }

    fn nodes(done: Option<&str>) -> String {
        let seats = seats(done);
        (0..9).map(|index| seats.node_of(index).map_or("-", |node| &**node)).collect()
    }

    #[test]
    fn indexes_take_the_places_in_order_and_those_that_have_ended_take_none() {
        // An index that has ended is never asked for; it shares the place of the next.
        for (done, expected) in [
            (None, "---------"),
            (Some(""), "abbc-----"),
            (Some("0"), "aabbc----"),
            (Some("0-2"), "aaaabbc--"),
            (Some("1,3-4"), "abbbbbc--"),
            (Some("5"), "abbc-----"),
            (Some("x,7-2"), "abbc-----"),
        ] {
            assert_eq!(nodes(done), expected, "{done:?}");
        }
    }
}
