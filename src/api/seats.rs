//! The node of each pod of an Indexed Job, by its index.
//!
//! The indexes that have not finished fill the nodes of the admission in order. So every replica finds the same node for
//! an index, and a replacement pod gets the node of its predecessor. Once the admission has changed, and for indexes beyond
//! the granted pods, the leader chooses the node of each pod.

use super::record::Record;
use crate::engine::types::Name;

/// The nodes of an admission by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// The nodes with their number of pods, in order.
    nodes: Vec<(Name, u32)>,
    /// The finished indexes, as inclusive ranges.
    done: Vec<(u32, u32)>,
}

impl Seats {
    /// The nodes of a record; empty if its pods do not get their nodes by index.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let Some(done) = &record.done else { return Self::default() };
        let nodes = record.nodes.iter().map(|(node, pods)| (node.as_str().into(), *pods));
        Self { nodes: nodes.collect(), done: done.split(',').filter_map(range).collect() }
    }

    /// The node of an index; `None` if the leader chooses it.
    #[must_use]
    pub fn node_of(&self, index: u32) -> Option<&Name> {
        let ended = |(first, last): &(u32, u32)| if index > *first { index.min(last + 1) - first } else { 0 };
        // Overlapping ranges of a record that is not Sluice's may add up to any number.
        let ended = self.done.iter().map(ended).fold(0, u32::saturating_add);
        let mut place = index.checked_sub(ended)?;
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
            spared: false,
            unfunded: false,
            group: None,
            done: done.map(Into::into),
            failed: 0,
            room: String::new(),
        })
    }

    fn nodes(done: Option<&str>) -> String {
        let seats = seats(done);
        (0..9).map(|index| seats.node_of(index).map_or("-", |node| &**node)).collect()
    }

    #[test]
    fn indexes_fill_the_nodes_in_order_without_the_finished_ones() {
        // The result for a finished index is not used.
        for (done, expected) in [
            (None, "---------"),
            (Some(""), "abbc-----"),
            (Some("0"), "aabbc----"),
            (Some("0-2"), "aaaabbc--"),
            (Some("1,3-4"), "abbbbbc--"),
            (Some("5"), "abbc-----"),
            (Some("x,7-2"), "abbc-----"),
            (Some("4294967295"), "abbc-----"),
            (Some("0-4294967294,0-4294967294"), "a--------"),
        ] {
            assert_eq!(nodes(done), expected, "{done:?}");
        }
    }
}
