//! Nodes that a workload avoids because pods of it could not be started there.

use std::collections::BTreeSet;

use crate::types::{Name, NodeTerm, Operator, PodShape, Requirement};

/// The nodes that a workload avoids, and the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvoidedNodes {
    /// The avoided nodes.
    pub nodes: BTreeSet<Name>,
    /// The last reported reason.
    pub message: String,
    /// How often pods could not be started.
    pub times: u32,
}

impl AvoidedNodes {
    /// The shape of a pod that avoids these nodes; `None` when there are none.
    #[must_use]
    pub fn narrowed(&self, shape: &PodShape) -> Option<PodShape> {
        if self.nodes.is_empty() {
            return None;
        }
        let avoided = Requirement {
            key: "metadata.name".into(),
            operator: Operator::NotIn,
            values: self.nodes.iter().cloned().collect(),
        };
        let mut shape = shape.clone();
        if shape.node_terms.is_empty() {
            shape.node_terms.push(NodeTerm::default());
            shape.node_terms[0].fields.push(avoided);
            return Some(shape);
        }
        // A term without requirements matches no node, and must stay so.
        let written = |term: &&mut NodeTerm| !(term.labels.is_empty() && term.fields.is_empty());
        for term in shape.node_terms.iter_mut().filter(written) {
            term.fields.push(avoided.clone());
        }
        Some(shape)
    }
}
