//! Sentences for decisions: every one names the rule, the numbers and the workloads involved (law 14).

mod budgets;
mod capacity;
mod ceilings;
mod events;
mod names;
mod verdicts;

pub use budgets::{UNFUNDED, budget_spent};
pub use capacity::{cleared_for, kept_on, no_node, no_room, unoffered};
pub use ceilings::Ceilings;

pub use events::{
    broken_plan, ended_pod, evicted, grown, lost_pod, lost_pods, misplaced, not_ready, released, replaced,
    shifted, shrunk, starts_larger, stuck,
};
pub use names::label;
pub use verdicts::{
    above_limit, above_queue_limit, admitted, failed, guarantee_left, lending_refusal, less,
    must_fit_guarantee, never_guaranteed, never_lent, no_pool, nodes_reserved, outside_quotas, pending,
    queue_limit, queue_paused, quota_kept, quota_reserved, reserved, team_limit, unknown, waiting,
};
