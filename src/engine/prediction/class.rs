//! What runs have in common, and classes of runs in bounded memory.

use std::collections::BTreeMap;

use crate::prediction::sample::Sample;
use crate::types::Name;

/// What the runs of a class have in common. An absent property matches any value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The team.
    pub team: Name,
    /// The queue.
    pub queue: Option<Name>,
    /// Thousandths of devices, over all pods.
    pub devices: Option<i64>,
    /// The submitter.
    pub user: Option<Name>,
    /// The name without its numbers, see [`pattern`].
    pub pattern: Option<Name>,
}

/// The runs of a class.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// How long they were, in milliseconds.
    pub runs: Sample,
    /// Those with a limit, in millionths of it.
    pub fractions: Sample,
    /// When the last of them was added, as the number of that addition.
    added: u64,
}

/// A bounded number of classes. Beyond, the one that has had no run for longest is dropped.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    known: BTreeMap<Class, Known>,
    /// The classes by their last addition.
    order: BTreeMap<u64, Class>,
    additions: u64,
}

impl Classes {
    /// Adds a run, in milliseconds and in millionths of its limit; at most `most` classes are kept.
    pub fn add(&mut self, class: Class, run: u64, fraction: Option<u64>, most: usize) {
        self.additions += 1;
        let known = self.known.entry(class.clone()).or_default();
        self.order.remove(&std::mem::replace(&mut known.added, self.additions));
        known.runs.add(run);
        if let Some(fraction) = fraction {
            known.fractions.add(fraction);
        }
        self.order.insert(self.additions, class);
        self.bound(most);
    }

    /// Puts samples in the place of a class; at most `most` classes are kept.
    pub fn set(&mut self, class: Class, (runs, fractions): (Sample, Sample), most: usize) {
        self.additions += 1;
        let known = Known { runs, fractions, added: self.additions };
        if let Some(before) = self.known.insert(class.clone(), known) {
            self.order.remove(&before.added);
        }
        self.order.insert(self.additions, class);
        self.bound(most);
    }

    fn bound(&mut self, most: usize) {
        while self.known.len() > most {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.known.remove(&oldest);
        }
    }

    /// The runs of a class.
    pub fn get(&self, class: &Class) -> Option<&Known> {
        self.known.get(class)
    }

    /// Whether both hold the same runs.
    pub fn equals(&self, other: &Self) -> bool {
        let same = |((class, one), (its, two)): ((&Class, &Known), (&Class, &Known))| {
            class == its && (&one.runs, &one.fractions) == (&two.runs, &two.fractions)
        };
        self.known.len() == other.known.len() && self.known.iter().zip(&other.known).all(same)
    }

    /// The classes in the order of their last runs.
    pub fn in_order(&self) -> impl Iterator<Item = (&Class, &Known)> {
        self.order.values().filter_map(|class| self.known.get_key_value(class))
    }
}

/// A name without what differs from run to run: each number is a `*`, and so is a last part of five letters and digits
/// that an API server has made up.
#[must_use]
pub fn pattern(name: &str) -> String {
    /// The letters and digits of such a part.
    const MADE_UP: &str = "bcdfghjklmnpqrstvwxz2456789";
    let made_up = |part: &str| part.len() == 5 && part.chars().all(|letter| MADE_UP.contains(letter));
    let (base, end) = match name.rsplit_once('-') {
        Some((base, part)) if made_up(part) => (base, "-*"),
        _ => (name, ""),
    };
    let mut text = String::new();
    for letter in base.chars().chain(end.chars()) {
        let letter = if letter.is_ascii_digit() { '*' } else { letter };
        if letter != '*' || !text.ends_with('*') {
            text.push(letter);
        }
    }
    // `train-12-3` and `train-4` are runs of the same.
    while let Some(shorter) = text.strip_suffix("*-*") {
        text = format!("{shorter}*");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_no_numbers() {
        let patterns = [
            ("train-17", "train-*"),
            ("train-20261125-3", "train-*"),
            ("train-x7k2p", "train-*"),
            ("train-4-x7k2p", "train-*"),
            ("resnet50-eval", "resnet*-eval"),
            ("bert", "bert"),
            ("my-model", "my-model"),
        ];
        for (name, expected) in patterns {
            assert_eq!(pattern(name), expected, "{name}");
        }
    }

    #[test]
    fn the_class_without_runs_for_longest_is_dropped() {
        let class = |team: &str| Class { team: team.into(), ..Class::default() };
        let mut classes = Classes::default();
        for team in ["a", "b", "a", "c"] {
            classes.add(class(team), 1, None, 2);
        }
        let left: Vec<&str> = classes.in_order().map(|(class, _)| &*class.team).collect();
        assert_eq!(left, ["a", "c"]);
        assert_eq!(classes.get(&class("a")).map(|known| known.runs.len()), Some(2));
        assert!(classes.get(&class("b")).is_none());
    }
}
