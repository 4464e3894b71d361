//! Sentences for decisions: every one names the rule, the numbers and the workloads involved (law 14).

mod events;
mod names;
mod verdicts;

pub use events::{astray, evicted, grown, lost_pods, not_ready, replaced, shifted, shrunk, stuck};
pub use names::label;
pub use verdicts::{
    admitted, crowding, expected, failed, lending_refusal, less, must_fit_guarantee, no_node, no_pool,
    no_room, pending, queue_limit, reserved, team_limit, unknown, waiting,
};
