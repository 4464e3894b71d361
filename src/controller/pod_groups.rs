//! Writes for workloads made of several pods without a Job: one write per pod.

use jiff::Timestamp;

use super::decisions::{admission_by, failure_of, write_on};
use crate::api::record::Record;
use crate::cluster::actuator::{Purpose, Task, Write};
use crate::cluster::target::{Grant, Managed, Operation, Pin};
use crate::engine::types::Action;
use crate::engine::types::Observed;

/// A pod of the group, and the resource version its patch requires.
pub type Member<'a> = (&'a Managed, u64);

/// The write of a decision on a group; `members` are its pods.
pub fn write_of(managed: &Managed, action: &Action, members: &[Member<'_>], at: Timestamp) -> Write {
    let living = || members.iter().filter(|(member, _)| member.workload.state != Observed::Finished);
    match action {
        Action::Admit { admission, message, .. } => {
            let uids = members.iter().map(|(member, _)| &*member.facts.uid);
            let record = Record::of_group(&managed.workload.id.0, admission, uids);
            let placed = record.group.as_ref().map(|group| &group.members);
            let has_place = |member: &Managed| placed.is_some_and(|all| all.contains_key(&*member.facts.uid));
            let writes = members.iter().filter(|(member, _)| has_place(member)).map(|(member, version)| {
                admission_by(member, *version, Purpose::Admit, &record, (Grant::All, Pin::Template), message)
            });
            each(managed, Purpose::Admit, writes.collect(), message)
        }
        // A pod of a group is ended alone, and a group has a fixed size: Sluice neither creates nor moves its pods.
        Action::EndPod { message, .. } => each(managed, Purpose::EndPod, Vec::new(), message),
        Action::Resize { message, .. } => each(managed, Purpose::Resize, Vec::new(), message),
        Action::Evict { message, .. } => {
            let evict = || Task::Single(Operation::Evict);
            let writes =
                living().map(|(member, _)| write_on(member, Purpose::Evict, evict(), message.clone()));
            each(managed, Purpose::Evict, writes.collect(), message)
        }
        Action::Fail { reason, message, .. } => {
            let writes = living().map(|(member, version)| failure_of(member, *version, *reason, message, at));
            each(managed, Purpose::Fail, writes.collect(), message)
        }
    }
}

/// The write that ungates the remaining pods of an admitted group.
pub fn release_of(managed: &Managed, still_gated: &[Member<'_>], record: &Record) -> Write {
    let writes = still_gated.iter().map(|(member, version)| {
        admission_by(member, *version, Purpose::Release, record, (Grant::All, Pin::Template), "")
    });
    each(managed, Purpose::Release, writes.collect(), "")
}

fn each(managed: &Managed, purpose: Purpose, writes: Vec<Write>, message: &str) -> Write {
    write_on(managed, purpose, Task::Each(writes), message.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::names;
    use crate::cluster::target::pod::pod;
    use crate::engine::types::{Admission, Name, Time, WorkloadId};

    fn member(uid: &str) -> Managed {
        let object = json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid, "resourceVersion": "5", "annotations": {}},
            "spec": {"containers": [], "schedulingGates": [{"name": names::GATE_ADMISSION}]},
        });
        *pod(&serde_json::from_value(object).expect("a pod")).managed.expect("it is gated")
    }

    #[test]
    fn each_pod_is_pinned_to_its_node_and_records_the_nodes_of_its_group() {
        let pods = ["a", "b", "c"].map(member);
        let members: Vec<Member<'_>> = pods.iter().map(|member| (member, 5)).collect();
        let mut group = pods[0].clone();
        Arc::make_mut(&mut group.workload).id = WorkloadId("group/a".into());
        let nodes = BTreeMap::from([("n1".into(), 2), ("n2".into(), 1)]);
        let admission = Admission {
            pool: "p".into(),
            nodes,
            pods: 3,
            borrowed: false,
            share: None,
            spared: false,
            unfunded: false,
            at: Time(7),
        };
        let action = Action::Admit { workload: group.workload.id.clone(), admission, message: "why".into() };
        let write = write_of(&group, &action, &members, Timestamp::UNIX_EPOCH);
        let Task::Each(writes) = write.task else { panic!("not one for each: {write:?}") };
        let names: Vec<&Name> = writes.iter().map(|write| &write.name).collect();
        assert_eq!(names, [&"a".into(), &"b".into(), &"c".into()]);
        for (write, node) in writes.iter().zip(["n1", "n1", "n2"]) {
            let Task::Single(Operation::Patch(patch)) = &write.task else { panic!("not a patch: {write:?}") };
            let patch = serde_json::to_string(patch).expect("a patch");
            let pin =
                format!(r#""matchFields":[{{"key":"metadata.name","operator":"In","values":["{node}"]}}]"#);
            assert!(patch.contains(&pin) && patch.matches("matchFields").count() == 1, "{patch}");
            assert!(
                patch.contains(r#"\"id\":\"group/a\",\"members\":{\"a\":\"n1\",\"b\":\"n1\",\"c\":\"n2\"}"#),
                "{patch}"
            );
        }
    }
}
