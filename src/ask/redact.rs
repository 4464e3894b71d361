//! What a Question about one namespace shows of other namespaces: teams and numbers, never names of workloads.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::directory::Directory;
use crate::engine::types::amount::Amount;
use crate::engine::types::units::together;
use crate::sentences;
use crate::view::accounts::HistoryRow;
use crate::view::{Amounts, EtaRow, NodeRow, NodeWorkload, UnadmittedRow, WhatIfRow, WorkloadRow};

/// What one namespace may see.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The namespace.
    pub own: &'a str,
    /// The teams of the other namespaces.
    pub directory: &'a Directory,
}

impl Sight<'_> {
    /// Hides the names in a workload of the own namespace.
    pub fn workload(&self, row: &mut WorkloadRow) {
        row.head.message = self.sentence(&row.head.message, &row.requests);
        if let Some(eta) = &mut row.eta {
            self.eta(Arc::make_mut(eta), &row.requests);
        }
    }

    /// Hides the names in a run of the own namespace.
    pub fn run(&self, row: &mut HistoryRow) {
        let none = Amounts::new();
        row.evicted_for = self.sentence(&row.evicted_for, &none);
        row.message = self.sentence(&row.message, &none);
    }

    /// Hides the names in a what-if result.
    pub fn what_if(&self, row: &mut WhatIfRow) {
        let none = Amounts::new();
        row.head.message = self.sentence(&row.head.message, &none);
        self.eta(&mut row.eta, &none);
        for name in row.displaced.iter_mut().chain(row.victims.iter_mut().map(|victim| &mut victim.workload))
        {
            *name = self.sentence(name, &none);
        }
    }

    fn eta(&self, eta: &mut EtaRow, requests: &Amounts) {
        eta.message = self.sentence(&eta.message, requests);
        for name in eta.place.iter_mut().flat_map(|place| &mut place.in_front) {
            *name = self.sentence(name, requests);
        }
    }

    /// Sums the workloads of other namespaces on a node.
    pub fn node(&self, row: &mut NodeRow) {
        for workloads in [&mut row.workloads, &mut row.reserved] {
            *workloads = self.summed(std::mem::take(workloads));
        }
    }

    /// Workloads with those of other namespaces summed by team, by whether they borrow, and by when they end.
    fn summed(&self, workloads: Vec<NodeWorkload>) -> Vec<NodeWorkload> {
        let (mut own, others): (Vec<NodeWorkload>, Vec<NodeWorkload>) =
            workloads.into_iter().partition(|workload| {
                workload.workload.split_once('/').is_some_and(|(namespace, _)| namespace == self.own)
            });
        let mut sums: BTreeMap<_, (u32, f64)> = BTreeMap::new();
        for NodeWorkload { workload: _, team, pods, gpus, borrowed, until } in others {
            let sum = sums.entry((team, borrowed, until)).or_default();
            *sum = (sum.0.saturating_add(pods), sum.1 + gpus);
        }
        own.extend(sums.into_iter().map(|((team, borrowed, until), (pods, gpus))| NodeWorkload {
            workload: String::new(),
            team,
            pods,
            gpus,
            borrowed,
            until,
        }));
        own
    }

    /// Hides the owner of pods of another namespace.
    pub fn unadmitted(&self, row: &mut UnadmittedRow) {
        if row.namespace == self.own {
            return;
        }
        row.namespace.clear();
        row.owner.clear();
        let pods = if row.pods == 1 { "1 pod" } else { "Pods" };
        let count = if row.pods == 1 { String::new() } else { format!(" ({})", row.pods) };
        let held = row.resources.iter().filter_map(|(name, text)| Some((&**name, Amount::parse(text).ok()?)));
        let held = together(held).join(", ");
        row.message = format!("{pods} of another namespace{count}: {held}");
    }

    /// The sentence without names of workloads of other namespaces. `requests` have names of resources, which look alike.
    pub fn sentence(&self, text: &str, requests: &Amounts) -> String {
        let team_of = |namespace: &str| {
            self.directory.namespaces.get(namespace).map(|membership| membership.team.clone())
        };
        sentences::shown_in(self.own, text, |word| requests.contains_key(word), team_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Membership;

    fn directory() -> Directory {
        let member = |team: &str| Membership { team: team.into(), queue: None };
        let namespaces =
            [("a".into(), member("red")), ("b".into(), member("blue")), ("7".into(), member("seven"))].into();
        Directory { namespaces, ..Directory::default() }
    }

    #[test]
    fn sentences_name_only_the_workloads_of_the_own_namespace() {
        let directory = directory();
        let sight = Sight { own: "a", directory: &directory };
        let requests = Amounts::from([("rdma/hca".to_owned(), "1".to_owned())]);
        for (text, shown) in [
            (
                "Waits for b/train-1.0, which has a reservation on n1.",
                "Waits for a workload of team blue, which has a reservation on n1.",
            ),
            ("Waits for b/x. Then a/y.", "Waits for a workload of team blue. Then a/y."),
            (
                "Starts on n1 once b/x, c/y and a/z have stopped.",
                "Starts on n1 once a workload of team blue, a workload of another namespace and a/z have stopped.",
            ),
            ("Needs 4 google.com/tpu; 2 rdma/hca are free.", "Needs 4 google.com/tpu; 2 rdma/hca are free."),
            ("Größe b/x", "Größe a workload of team blue"),
            ("b/x goes first. b/y too.", "A workload of team blue goes first. A workload of team blue too."),
            ("b/x", "a workload of team blue"),
            ("b/", "b/"),
            ("", ""),
            (
                "Pods could not be started on n1 (0/5 nodes are available: 3 Insufficient nvidia.com/gpu, 2 node(s) \
                 didn't match Pod's node affinity/selector. preemption: 0/5 nodes are available).",
                "Pods could not be started on n1 (0/5 nodes are available: 3 Insufficient nvidia.com/gpu, 2 node(s) \
                 didn't match Pod's node affinity/selector. preemption: 0/5 nodes are available).",
            ),
            (
                "N/A, and I/O on TCP/UDP, of https://registry.example/v2",
                "N/A, and I/O on TCP/UDP, of https://registry.example/v2",
            ),
            // What may be a name is hidden, also where its namespace is not known or looks like a count.
            (
                "For gone/secret, 0/train, 7/8",
                "For a workload of another namespace, a workload of another namespace, a workload of team seven",
            ),
            ("Of b/x: it runs", "Of a workload of team blue: it runs"),
            ("As for:b/x, for_b/x:main", "As a workload of team blue, a workload of team blue"),
        ] {
            assert_eq!(sight.sentence(text, &requests), shown);
        }
    }

    #[test]
    fn workloads_of_others_on_a_node_are_numbers() {
        let directory = directory();
        let sight = Sight { own: "a", directory: &directory };
        let workload = |workload: &str, team: &str, pods| NodeWorkload {
            workload: workload.to_owned(),
            team: team.to_owned(),
            pods,
            gpus: f64::from(pods),
            ..NodeWorkload::default()
        };
        let mut row = NodeRow {
            name: "n1".to_owned(),
            pool: "default".to_owned(),
            schedulable: true,
            not_ready: false,
            allocatable: Amounts::new(),
            free: Amounts::new(),
            gpus: 8,
            gpus_free: 0,
            gpu_parts: None,
            workloads: vec![
                workload("b/x", "blue", 2),
                workload("a/y", "red", 1),
                workload("b/z", "blue", 3),
            ],
            reserved: vec![workload("b/w", "blue", 4)],
        };
        sight.node(&mut row);
        assert_eq!(row.workloads, [workload("a/y", "red", 1), workload("", "blue", 5)]);
        assert_eq!(row.reserved, [workload("", "blue", 4)]);
    }
}
