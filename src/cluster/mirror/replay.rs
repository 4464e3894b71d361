//! All that is cached, as events for an engine that knows nothing.

use std::sync::Arc;

use super::Mirror;
use crate::engine::types::{Event, Observed, Workload};

impl Mirror {
    /// The events that tell an engine without objects everything that is cached.
    #[must_use]
    pub fn replay(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        events.extend(self.pools.iter().map(|(_, seen)| Event::PoolApplied(seen.pool.clone())));
        events.extend(self.teams.iter().map(|(_, seen)| Event::TeamApplied(seen.team.clone())));
        events.extend(self.teams.iter().filter_map(|(_, seen)| seen.past.clone()).map(Event::PastUsage));
        events.extend(self.teams.iter().filter_map(|(_, seen)| seen.budget.clone()).map(Event::BudgetUsed));
        let lengths = self.teams.iter().filter_map(|(_, seen)| seen.run_lengths.clone());
        events.extend(lengths.map(Event::RunLengths));
        events.extend(self.nodes.iter().map(|(_, node)| Event::NodeApplied(node.clone())));
        let workloads = self.workloads().filter(|workload| !workload.team.is_empty());
        events.extend(workloads.map(Arc::clone).map(Event::WorkloadApplied));
        let pods = self.pods.iter().filter_map(|(_, seen)| seen.holds.clone());
        events.extend(pods.map(Event::PodApplied));
        let gangs = self.workloads().filter(|workload| {
            let several =
                |state: &Observed| matches!(state, Observed::Admitted(admission) if admission.pods > 1);
            !workload.team.is_empty() && several(&workload.state)
        });
        events.extend(gangs.map(|workload| Event::PodsReady(self.ready_pods.of(&workload.id))));
        events
    }

    /// Every workload, of all namespaces. The pods of a group are workloads as the group sorts them.
    fn workloads(&self) -> impl Iterator<Item = &Arc<Workload>> {
        let jobs = self.jobs.iter().filter_map(|(_, seen)| seen.managed.as_deref());
        let pods = self.pods.iter().filter(|(_, seen)| seen.group.is_none());
        let pods = pods.filter_map(|(_, seen)| seen.managed.as_deref());
        let single = jobs.chain(self.ownership.managed()).chain(pods).map(|managed| &managed.workload);
        single.chain(self.groups.reported())
    }
}
