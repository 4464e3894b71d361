//! The quota tree: the guarantee of each team in each pool, and the usage of the team and all teams below it.
//!
//! A guarantee covers the resources that it lists (it *governs* them); a team's other resources are limited
//! by the nodes alone. A team without a guarantee in a pool is guaranteed nothing there, and is skipped as a
//! parent.

mod budgets;
mod guarantees;
mod hypothetical;
mod past;
mod protection;
mod reserves;
mod shares;
mod tree;
mod usage;

pub use crate::state::quotas::budgets::{BudgetFigures, Cost, Funding, hours};
pub use crate::state::quotas::guarantees::Exchange;
pub use crate::state::quotas::hypothetical::{Account, Hypothetical, Protection};
pub use crate::state::quotas::tree::{QuotaTree, Share};
