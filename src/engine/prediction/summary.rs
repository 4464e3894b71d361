//! The classes of one team's runs, and their summary for its status.

use std::sync::{Arc, OnceLock};

use crate::prediction::class::Classes;
use crate::types::{ClassLengths, Name, RunLengths};

/// The classes of a team's runs. Their summary is made when it is asked for, and again only after a change.
#[derive(Clone, Debug, Default)]
pub struct OfTeam {
    classes: Classes,
    summary: OnceLock<Arc<RunLengths>>,
}

impl From<Classes> for OfTeam {
    fn from(classes: Classes) -> Self {
        Self { classes, summary: OnceLock::new() }
    }
}

impl OfTeam {
    /// The classes.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// The classes, to be changed.
    pub fn change(&mut self) -> &mut Classes {
        self.summary.take();
        &mut self.classes
    }

    /// The summary under the name of the team, the class without runs for longest at the front.
    pub fn summary(&self, team: &Name) -> Arc<RunLengths> {
        let made = self.summary.get_or_init(|| {
            let classes = self.classes.in_order().map(|(class, known)| ClassLengths {
                queue: class.queue.clone(),
                devices: class.devices,
                runs: known.runs.len(),
                lengths: known.runs.quantiles(),
                limited: known.fractions.len(),
                fractions: known.fractions.quantiles(),
            });
            Arc::new(RunLengths { team: team.clone(), classes: classes.collect() })
        });
        Arc::clone(made)
    }
}
