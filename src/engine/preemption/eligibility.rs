//! Whether a single running workload may be a victim (laws 3, 4 and 5).

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use crate::preemption::borrowers::Borrower;
use crate::preemption::candidate::{Candidate, Eligibility, Excluded};
use crate::preemption::search::{Basis, Search};
use crate::state::quotas::Protection;
use crate::state::rules::{eviction_cost, in_fair_share_window, min_runtime_end};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::TeamId;
use crate::types::{Admission, Standing, Time};

impl<'a> Search<'a> {
    /// The admission by which a workload runs; `None` if the workload is no possible victim at all.
    pub fn victim_admission(
        &self,
        info: &'a WorkloadInfo,
        excluded: &mut Excluded<'_>,
    ) -> Option<&'a Admission> {
        self.examined.set(self.examined.get() + 1);
        let id = &info.workload.id;
        if !self.cluster.preemptible(info) || (excluded.by_caller)(id) || self.assumptions.gone.contains(id) {
            return None;
        }
        if self.basis == Basis::Borrowing
            && self.preemptor.preempted_before.is_some_and(|before| before.contains(id))
        {
            return None;
        }
        match &info.phase {
            Phase::Running(admission) => Some(admission),
            // It will run by the time that a victim of this decision preempts in turn.
            Phase::Starting(admission) if self.follow_up => Some(admission),
            Phase::Starting(_) | Phase::Resizing { .. } => {
                excluded.unconfirmed = true;
                None
            }
            _ => None,
        }
    }

    /// A workload as a candidate, if it may be evicted, shrunk or moved.
    pub fn candidate(
        &self,
        borrower: &Borrower,
        info: &'a WorkloadInfo,
        excluded: &mut Excluded<'_>,
    ) -> Option<Candidate<'a>> {
        let admission = self.victim_admission(info, excluded)?;
        let Eligibility { evictable, under_min_runtime } =
            self.eligibility(borrower, info, admission, excluded);
        // What is kept back would not start on the nodes it moves to.
        let may_move = self.moves && info.unadmitted.is_none() && !self.cluster.is_kept_back(info);
        if !evictable && !may_move {
            return None;
        }
        let first = info.unadmitted == Some(Standing::First);
        // A pod that was never admitted should not run, so its work does not count.
        let cost =
            |pods| if first { 0 } else { eviction_cost(self.cluster, info, pods, admission.at, self.now) };
        Some(Candidate {
            info,
            own: info.team == self.preemptor.team,
            evictable,
            first,
            levels: Rc::clone(&borrower.levels),
            from_borrower: self.basis == Basis::Borrowing,
            amount: info.staying_total(),
            priority: self.cluster.priority_of(info),
            started: admission.at,
            under_min_runtime,
            cost: cost(info.usage.staying_pods()),
            cost_of_one_pod: if info.extra_pods() > 0 { cost(1) } else { 0 },
            covered: OnceCell::new(),
            extra_pods: info.extra_pods(),
        })
    }

    /// How guarantees on these levels protect a workload from the preemptor.
    pub fn protection_of<'i>(&self, levels: &'i [TeamId], info: &'i WorkloadInfo) -> Protection<'i> {
        Protection { levels, oversize: &info.oversize, from_borrower: self.basis == Basis::Borrowing }
    }

    /// Whether a running workload may be evicted or shrunk, and whether its minimum run time still protects it.
    pub fn eligibility(
        &self,
        borrower: &Borrower,
        info: &WorkloadInfo,
        admission: &Admission,
        excluded: &mut Excluded<'_>,
    ) -> Eligibility {
        let (cluster, preemptor) = (self.cluster, &self.preemptor);
        let hypothetical = &self.assumptions.hypothetical;
        let started = admission.at;
        let own = info.team == preemptor.team;
        let mut evictable = borrower.evictable
            && if own {
                cluster.priority_of(info) < preemptor.priority
            } else {
                let protection = self.protection_of(&borrower.levels, info);
                cluster.quotas.beyond_guarantee(preemptor.pool, protection, &info.need, hypothetical)
            };
        let min_runtime_end = min_runtime_end(cluster, info, started);
        let under_min_runtime = self.now < min_runtime_end
            && !(self.follow_up && self.may_run_until(info, started, min_runtime_end));
        // The minimum run time holds within a team and against a borrowing preemptor (law 5).
        if evictable && under_min_runtime && (own || self.basis == Basis::Borrowing) {
            excluded.retry_at = [excluded.retry_at, Some(min_runtime_end)].into_iter().flatten().min();
            evictable = false;
        }
        // Fair shares of teams are settled among the new.
        evictable &= own
            || self.basis == Basis::WithinGuarantee
            || in_fair_share_window(cluster, info, admission, self.now);
        Eligibility { evictable, under_min_runtime }
    }

    /// Whether a workload may still run at that time: it may unless nine of ten runs like it end before. A workload
    /// of unknown length may.
    fn may_run_until(&self, info: &WorkloadInfo, started: Time, then: Time) -> bool {
        let length = self.run_times.length(self.cluster, info, Duration::ZERO);
        length.is_none_or(|length| started.after(length.late) >= then)
    }
}
