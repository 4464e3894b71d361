//! The objects of one watch, and the objects that a new list no longer has.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::types::Name;

/// One message of a watch, in the order of the stream.
#[derive(Clone, Debug)]
pub enum Seen<T> {
    /// A list begins; objects that are not in it are gone.
    ListBegins,
    /// An object in a list, or a created or changed one.
    Object(Name, T),
    /// An object that exists but cannot be read; its last readable version stays.
    Unreadable(Name, Flaw),
    /// An object was deleted.
    Deleted(Name),
    /// The list is complete.
    ListEnds,
}

/// The reason why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The version of the object.
    pub version: u64,
    /// One sentence, with the field.
    pub problem: String,
}

/// The change by a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// The object under this key is new or changed; with the object before.
    Put(Name, Option<T>),
    /// The object is gone.
    Gone(Name, T),
}

/// A value of which the later of two versions is known.
pub trait Versioned {
    /// Whether messages about a later version may come first: the answer to a write of Sluice does.
    const OVERTAKEN: bool = true;
    /// The version; larger is later. 0 when it is not kept.
    fn version(&self) -> u64;
    /// Whether the object is to be kept.
    fn worth_keeping(&self) -> bool {
        true
    }
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Table<T> {
    live: BTreeMap<Name, T>,
    flaws: BTreeMap<Name, Flaw>,
    /// The versions of the objects that are not kept.
    passed_over: BTreeMap<Name, u64>,
    listing: Option<BTreeSet<Name>>,
    complete: bool,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            flaws: BTreeMap::new(),
            passed_over: BTreeMap::new(),
            listing: None,
            complete: false,
        }
    }
}

impl<T: Versioned> Table<T> {
    /// Applies one message.
    ///
    /// An object older than the known one is dropped: the answer to Sluice's own write arrives before the watch
    /// reports the changes that came before it.
    pub fn take(&mut self, seen: Seen<T>) -> Vec<Step<T>> {
        match seen {
            Seen::ListBegins => {
                self.listing = Some(BTreeSet::new());
                Vec::new()
            }
            Seen::ListEnds => {
                self.complete = true;
                let Some(listed) = self.listing.take() else { return Vec::new() };
                self.flaws.retain(|key, _| listed.contains(key));
                self.passed_over.retain(|key, _| listed.contains(key));
                let gone: Vec<Name> = self.live.keys().filter(|k| !listed.contains(*k)).cloned().collect();
                gone.into_iter().filter_map(|key| self.remove(key)).collect()
            }
            Seen::Unreadable(key, flaw) => {
                self.listed(&key);
                self.flaws.insert(key, flaw);
                Vec::new()
            }
            Seen::Deleted(key) => {
                self.flaws.remove(&key);
                self.passed_over.remove(&key);
                self.remove(key).into_iter().collect()
            }
            Seen::Object(key, object) => {
                self.listed(&key);
                self.flaws.remove(&key);
                self.put(key, object).into_iter().collect()
            }
        }
    }

    fn put(&mut self, key: Name, object: T) -> Option<Step<T>> {
        let known = self.live.get(&key).filter(|_| T::OVERTAKEN);
        if known.is_some_and(|known| object.version() != 0 && object.version() <= known.version()) {
            return None;
        }
        if !object.worth_keeping() {
            self.passed_over.insert(key.clone(), object.version());
            return self.remove(key);
        }
        self.passed_over.remove(&key);
        let before = self.live.insert(key.clone(), object);
        Some(Step::Put(key, before))
    }

    fn remove(&mut self, key: Name) -> Option<Step<T>> {
        let before = self.live.remove(&key)?;
        Some(Step::Gone(key, before))
    }

    fn listed(&mut self, key: &Name) {
        if let Some(listed) = &mut self.listing {
            listed.insert(key.clone());
        }
    }

    /// Applies the answer to a write of Sluice; without effect when the object has been deleted since.
    pub fn take_own(&mut self, key: Name, object: T) -> Vec<Step<T>> {
        if self.live.contains_key(&key) { self.put(key, object).into_iter().collect() } else { Vec::new() }
    }

    /// The newest version seen of an object, kept, passed over or unreadable; `None` for one that is not there.
    pub fn version(&self, key: &str) -> Option<u64> {
        let live = self.live.get(key).map(Versioned::version);
        let flawed = self.flaws.get(key).map(|flaw| flaw.version);
        live.max(flawed).max(self.passed_over.get(key).copied())
    }
}

impl<T> Table<T> {
    /// The object under a key.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.live.get(key)
    }

    /// The object under a key, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut T> {
        self.live.get_mut(key)
    }

    /// Why the object under a key cannot be read.
    pub fn flaw(&self, key: &str) -> Option<&Flaw> {
        self.flaws.get(key)
    }

    /// The objects that cannot be read, by key.
    pub fn flaws(&self) -> impl Iterator<Item = (&Name, &Flaw)> {
        self.flaws.iter()
    }

    /// All objects, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &T)> {
        self.live.iter()
    }

    /// All objects, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.live.values_mut()
    }

    /// Whether the first list has been read to its end.
    pub fn complete(&self) -> bool {
        self.complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thing of an odd version is not kept.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Odd(u64);
    impl Versioned for Odd {
        fn version(&self) -> u64 {
            self.0
        }
        fn worth_keeping(&self) -> bool {
            self.0.is_multiple_of(2)
        }
    }

    #[test]
    fn the_newest_version_is_known_of_objects_that_are_not_kept_too() {
        let mut table = Table::default();
        let object = |name: &str, version| Seen::Object(name.into(), Odd(version));
        let versions = |table: &Table<Odd>| ["a", "b"].map(|key| table.version(key));
        for (seen, known) in [
            (Seen::ListBegins, [None, None]),
            (object("a", 2), [Some(2), None]),
            (object("b", 3), [Some(2), Some(3)]),
            (Seen::ListEnds, [Some(2), Some(3)]),
            (object("a", 5), [Some(5), Some(3)]),
            (object("b", 6), [Some(5), Some(6)]),
            (Seen::Deleted("a".into()), [None, Some(6)]),
            (object("a", 7), [Some(7), Some(6)]),
            (Seen::ListBegins, [Some(7), Some(6)]),
            (Seen::ListEnds, [None, None]),
        ] {
            table.take(seen);
            assert_eq!(versions(&table), known);
        }
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Thing(u64);
    impl Versioned for Thing {
        fn version(&self) -> u64 {
            self.0
        }
    }

    fn object(name: &str, version: u64) -> Seen<Thing> {
        Seen::Object(name.into(), Thing(version))
    }

    #[test]
    fn objects_that_a_new_list_does_not_have_are_gone() {
        let mut table = Table::default();
        for seen in [Seen::ListBegins, object("a", 1), object("b", 2)] {
            table.take(seen);
            assert!(!table.complete());
        }
        assert_eq!(table.take(Seen::ListEnds), []);
        assert!(table.complete());
        table.take(Seen::ListBegins);
        assert_eq!(table.take(object("b", 2)), [], "nothing new");
        assert!(table.get("a").is_some(), "until the list is complete the old view stands");
        assert_eq!(table.take(Seen::ListEnds), [Step::Gone("a".into(), Thing(1))]);
    }

    #[test]
    fn an_object_that_cannot_be_read_stays_as_it_was() {
        let mut table = Table::default();
        table.take(object("a", 1));
        let flaw = Flaw { generation: Some(2), version: 2, problem: "p".into() };
        for seen in [Seen::ListBegins, Seen::Unreadable("a".into(), flaw.clone()), Seen::ListEnds] {
            assert_eq!(table.take(seen), []);
        }
        assert!(table.get("a").is_some());
        assert_eq!(table.flaw("a"), Some(&flaw));
        assert_eq!(table.version("a"), Some(2), "it has been seen");
        assert_eq!(table.take(Seen::ListBegins), []);
        assert_eq!(table.take(Seen::ListEnds).len(), 1, "deleted meanwhile");
        assert_eq!(table.flaw("a"), None);
    }

    #[test]
    fn objects_older_than_the_last_write_are_dropped() {
        let mut table = Table::default();
        table.take(object("a", 5));
        assert_eq!(table.take_own("a".into(), Thing(9)), [Step::Put("a".into(), Some(Thing(5)))]);
        assert_eq!(table.take(object("a", 7)), []);
        assert_eq!(table.take(object("a", 9)), []);
        assert_eq!(table.get("a"), Some(&Thing(9)));
        assert_eq!(table.take(object("a", 10)).len(), 1);
    }

    #[test]
    fn an_answer_does_not_bring_back_a_deleted_object() {
        let mut table = Table::default();
        table.take(object("a", 5));
        table.take(Seen::Deleted("a".into()));
        assert_eq!(table.take_own("a".into(), Thing(9)), []);
        assert!(table.get("a").is_none());
    }
}
