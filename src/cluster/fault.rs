//! The fault of a team that cannot be read.

use super::reduce::team::TeamSeen;
use super::table::Table;
use crate::faults::Fault;

/// The fault of a team that cannot be read.
#[must_use]
pub fn unreadable(name: &str, teams: &Table<TeamSeen>) -> Option<Fault> {
    let flaw = teams.flaw(name)?;
    let instead = match teams.get(name) {
        Some(_) => "The last readable version stays in effect.",
        None => "The team has no quota.",
    };
    Some(Fault {
        reason: "Unreadable",
        message: format!("Cannot read the spec: {}. {instead}", flaw.problem),
    })
}

#[cfg(test)]
mod tests {
    use super::super::reduce::team::team;
    use super::super::table::{Flaw, Seen};
    use super::*;

    fn seen(name: &str) -> Seen<TeamSeen> {
        let object = serde_json::json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": name}, "spec": {}});
        let object = serde_json::from_value(object).expect("a Team");
        Seen::Object(name.into(), team(&object).expect("readable"))
    }

    #[test]
    fn a_spec_that_cannot_be_read_is_a_fault_until_it_is_mended() {
        let flaw =
            || Flaw { generation: Some(2), version: 0, problem: "spec.weight: must not be negative".into() };
        let mut teams = Table::default();
        for one in [
            seen("changed"),
            Seen::Unreadable("changed".into(), flaw()),
            Seen::Unreadable("broken".into(), flaw()),
            Seen::Unreadable("mended".into(), flaw()),
            seen("mended"),
        ] {
            teams.take(one);
        }
        let found = |name: &str| unreadable(name, &teams).map(|fault| fault.message);
        assert_eq!(found("mended"), None);
        for (name, message) in [
            (
                "changed",
                "Cannot read the spec: spec.weight: must not be negative. The last readable version stays in effect.",
            ),
            ("broken", "Cannot read the spec: spec.weight: must not be negative. The team has no quota."),
        ] {
            assert_eq!(found(name).as_deref(), Some(message), "{name}");
        }
    }
}
