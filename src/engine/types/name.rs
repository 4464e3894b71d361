//! Names of objects.

use std::sync::Arc;

/// The name of a team, queue, pool, node, label or namespace; cheap to clone.
pub type Name = Arc<str>;
