//! Nodes that a workload avoids because pods of it could not be started there.

use std::collections::BTreeSet;

use crate::types::{Name, NodeTerm, Operator, PodShape, Requirement};

/// Where pods of a workload could not be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvoidedNodes {
    /// The nodes it keeps off.
    pub nodes: BTreeSet<Name>,
    /// What was said about it.
    pub message: String,
    /// How often it has happened.
    pub times: u32,
}

impl AvoidedNodes {
    /// What a pod demands of a node if it is to keep off these; nothing else than before if there are none.
    #[must_use]
    pub fn narrowed(&self, shape: &PodShape) -> Option<PodShape> {
        if self.nodes.is_empty() {
            return None;
        }
        let off = Requirement {
            key: "metadata.name".into(),
            operator: Operator::NotIn,
            values: self.nodes.iter().cloned().collect(),
        };
        let mut shape = shape.clone();
        if shape.node_terms.is_empty() {
            shape.node_terms.push(NodeTerm::default());
            shape.node_terms[0].fields.push(off);
            return Some(shape);
        }
        // A term without requirements matches no node, and is to go on doing so.
        let written = |term: &&mut NodeTerm| !(term.labels.is_empty() && term.fields.is_empty());
        for term in shape.node_terms.iter_mut().filter(written) {
            term.fields.push(off.clone());
        }
        Some(shape)
    }
}
