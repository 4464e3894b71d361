//! Finds the cheapest set of victims that lets a preemptor start on actual nodes (laws 2 to 5 and 8).
//!
//! A preemptor *within guarantee* (with it, and without the victims, its team and every team above stay within
//! their guarantees) may preempt borrowers of any team and lower priorities of its own team. If only
//! fragmentation is in its way, other workloads may be moved as well. A *borrowing* preemptor may preempt lower
//! priorities of its own team, and borrowers of other teams if the fair shares become fairer
//! ([`crate::types::ratio::fairer`]).
//!
//! Two rules prevent workloads from evicting each other in turn (law 8). A borrowing preemptor takes no capacity
//! for which a waiting workload within guarantee could evict it. A workload is not evicted below its team's
//! guarantee if that guarantee holds it again once lower priorities of the team are preempted.
//!
//! ```text
//!   candidates ─▶ sets ────────────▶ feasibility ──▶ cost ──▶ the set of least cost (select)
//!   which may     every set if few,  does quota      order of preference; whether a victim preempts
//!   be victims    else heuristics    allow it, do    in turn (follow_up) is a search of its own
//!                                    the pods fit
//! ```

mod amended;
mod backfill;
mod borrowers;
mod build_up;
mod cache;
mod candidate;
mod candidates;
mod confined;
mod cost;
mod counter;
mod eligibility;
mod feasibility;
mod follow_up;
mod needed;
mod orders;
mod preemptor;
mod search;
mod select;
mod sets;
mod single_node;

pub use cost::Cost;
pub use preemptor::{Masked, Nominated, Preemptor, SearchInput, Take, Victims};
pub use select::{Conditions, SearchResult, search};
