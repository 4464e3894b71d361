//! Checks that nodes offer what is said to run on them from the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::objects::RUNNING_ON;
use crate::engine::types::NodeView;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::scenario::{Object, ScenarioError};

/// The resource of pod slots. A node that does not list it has no limit.
const PODS: &str = "pods";

/// The pods of one object.
#[derive(Debug)]
struct Part {
    object: Arc<Object>,
    nodes: BTreeMap<String, u32>,
    /// The requests of each pod.
    requests: ResourceList,
}

/// All pods that run from the start.
#[derive(Debug, Default)]
pub struct FromStart {
    parts: Vec<Part>,
}

impl FromStart {
    /// Notes the pods of an object by node, with the requests of each.
    pub fn add(&mut self, object: &Arc<Object>, nodes: BTreeMap<String, u32>, requests: &ResourceList) {
        let mut requests = requests.clone();
        let slots = requests.entry(PODS.into()).or_default();
        *slots = *slots + Amount::units(1);
        self.parts.push(Part { object: Arc::clone(object), nodes, requests });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Checks the noted pods together against these nodes.
    ///
    /// # Errors
    /// The first object with which the pods on a node request more than the node offers.
    pub fn check(&self, nodes: &[NodeView]) -> Result<(), ScenarioError> {
        let offers: BTreeMap<&str, &ResourceList> =
            nodes.iter().map(|node| (&*node.name, &node.allocatable)).collect();
        let mut used: BTreeMap<(&str, &str), Amount> = BTreeMap::new();
        for Part { object, nodes, requests } in &self.parts {
            for (node, pods) in nodes {
                let Some(offered) = offers.get(node.as_str()) else { continue };
                for (resource, each) in requests {
                    let sum = used.entry((node.as_str(), &**resource)).or_default();
                    *sum = *sum + *each * *pods;
                    let most = match offered.get(resource) {
                        Some(most) => *most,
                        None if &**resource == PODS => continue,
                        None => Amount::ZERO,
                    };
                    if *sum > most {
                        let (sum, most) = (sum.quantity(resource), most.quantity(resource));
                        let message = format!(
                            "with it, what runs on node {node} requests {sum} {resource}, and the node offers {most}"
                        );
                        return Err(object.invalid(RUNNING_ON, message));
                    }
                }
            }
        }
        Ok(())
    }
}
