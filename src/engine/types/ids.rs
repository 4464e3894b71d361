//! Small numbers that stand for objects inside the engine, each a type of its own.

use std::fmt;
use std::ops::{Index, IndexMut};

/// Defines a number that stands for one kind of object.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);

        impl $name {
            /// The smallest number, for ranges over all.
            pub const MIN: Self = Self(usize::MIN);
            /// The largest number, for ranges over all.
            pub const MAX: Self = Self(usize::MAX);

            /// The first `count` numbers.
            pub fn first(count: usize) -> impl DoubleEndedIterator<Item = Self> {
                (0..count).map(Self)
            }

            /// The number after this one.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl<T> Index<$name> for Vec<T> {
            type Output = T;

            fn index(&self, at: $name) -> &T {
                &self[at.0]
            }
        }

        impl<T> IndexMut<$name> for Vec<T> {
            fn index_mut(&mut self, at: $name) -> &mut T {
                &mut self[at.0]
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A team in the quota tree.
    TeamId
}
number! {
    /// A pool in the quota tree.
    PoolId
}
number! {
    /// A node in the node table; stays valid when the node is removed and added again.
    NodeId
}
number! {
    /// A place in the register of workloads.
    WorkloadIndex
}
number! {
    /// A class of waiting workloads that no decision can tell apart.
    ClassId
}
number! {
    /// A shape of pods in a pool whose headroom is counted.
    HeadroomId
}

/// The priority that orders the workloads of a team: the queue's, then the PriorityClass's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority {
    /// The priority of its queue.
    pub queue: i32,
    /// The value of its PriorityClass.
    pub class: i32,
}

impl Priority {
    /// Below every other: every workload of the team precedes it.
    pub const LOWEST: Self = Self { queue: i32::MIN, class: i32::MIN };
    /// Above every other: no workload of the team preempts it.
    pub const HIGHEST: Self = Self { queue: i32::MAX, class: i32::MAX };
}
