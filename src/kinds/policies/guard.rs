//! The policies that refuse changes of objects of a kind, and of the objects between them and their pods.

use serde_json::{Value, json};

use super::cel::{
    BY_KUBERNETES, Effect, bound, controllers, forbid, has_parent, not_deleting, not_sluice, of_operator,
    optional, rule,
};
use crate::api::names;
use crate::kinds::{Child, Kind, Kinds, Role};

const CREATE: &str = "request.operation == 'CREATE'";

/// The policy that refuses changes that only Sluice may make. Objects that are being deleted are exempt.
pub fn guard(kinds: &Kinds, kind: &Kind) -> [Value; 2] {
    let name = &kind.kind;
    let own = [names::ADMISSION, names::EVICTION, names::USER_AFFINITY];
    let list = own.join(", ");
    let absent = own.map(|key| format!("!('{key}' in variables.new)")).join(" && ");
    let same = |key: &str| format!("variables.old[?'{key}'] == variables.new[?'{key}']");
    let kept = own.iter().chain([&names::USER]).map(|key| same(key)).collect::<Vec<_>>().join(" && ");
    let (held, user, team) = (names::HELD, names::USER, names::TEAM);
    let (admission, queue) = (names::ADMISSION, names::QUEUE);
    let unchanged: Vec<String> = kind
        .described_in()
        .iter()
        .map(|at| format!("{} == {}", optional("oldObject", at), optional("object", at)))
        .collect();
    let mut validations = vec![
        forbid(
            format!("!({CREATE}) || variables.ofOperator || variables.suspended"),
            format!(
                "Sluice does not answer, so it could not hold this {name}; try again in a moment, or create it with {}: true.",
                kind.suspend.dotted()
            ),
        ),
        forbid(
            format!("!({CREATE}) || ({absent})"),
            format!("The annotations {list} are written by Sluice alone; leave them out."),
        ),
        forbid(
            format!(
                "!({CREATE}) || (variables.new[?'{held}'].orValue('true') == 'true' && \
                 !(variables.ofOperator && '{held}' in variables.new) && \
                 variables.new[?'{user}'].orValue(request.userInfo.username) == request.userInfo.username)"
            ),
            format!("The annotations {held} and {user} are written by Sluice alone; leave them out."),
        ),
        forbid(
            "!variables.suspendedBefore || variables.suspended || variables.ofOperator",
            format!(
                "Only Sluice starts a {name} here. A hold of your own can be released while Sluice is up, \
                 which queues the {name}."
            ),
        ),
        forbid(
            kept,
            format!("The annotations {list} and {user} are written by Sluice alone; leave them as they are."),
        ),
        // The mark appears when a user releases an own hold, and goes when a user suspends an object that runs or stops.
        forbid(
            format!(
                "{} || (!('{held}' in variables.old) && variables.new[?'{held}'].orValue('') == 'true' && variables.suspended) || \
                 (!('{held}' in variables.new) && variables.suspended && (!variables.suspendedBefore || '{}' in variables.old))",
                same(held),
                names::ADMISSION
            ),
            format!("The annotation {held} is written by Sluice alone; leave it as it is."),
        ),
        forbid(
            format!("!variables.team.hasValue() || variables.team == variables.labels[?'{team}']"),
            format!("The label {team} is written by Sluice alone; leave it as it is."),
        ),
        // The queue says whether the object may be evicted, and for which others. On create `old` has no record.
        forbid(
            format!(
                "!('{admission}' in variables.old) || {CREATE} || \
                 variables.labels[?'{queue}'] == variables.labelsBefore[?'{queue}']"
            ),
            format!("The label {queue} can be changed only while the {name} waits."),
        ),
        forbid(
            "variables.suspendedBefore || variables.suspended || variables.unchanged",
            format!("A running {name} keeps the pods it was admitted with; suspend it first to change them."),
        ),
        // It starts with its parent, without a review of its own.
        forbid(
            "!variables.child || variables.unchanged",
            format!(
                "This {name} belongs to another workload and keeps the pods that were admitted with it; \
                 change its owner instead."
            ),
        ),
        forbid(
            format!(
                "!('{held}' in variables.old || '{}' in variables.old || variables.child) || {CREATE} || \
                 {} == {} || {BY_KUBERNETES}",
                names::ADMISSION,
                controllers("oldObject"),
                controllers("object"),
            ),
            format!(
                "The controlling owner of a {name} that Sluice manages is not changed in \
                 metadata.ownerReferences; delete the {name} and create it again."
            ),
        ),
    ];
    validations.extend(kind.elastic.iter().map(|at| {
        let (old, new) = (optional("oldObject", at), optional("object", at));
        forbid(
            format!(
                "{new}.orValue(dyn(false)) in [dyn(false), dyn(null)] || (!({CREATE}) && {old} == {new})"
            ),
            elastic(name, &at.dotted()),
        )
    }));
    validations.extend(of_metadata());
    validations.extend(of_templates());
    let templates: Vec<String> = kind.roles.iter().filter_map(templates).collect();
    let templates = if templates.is_empty() { "[]".to_owned() } else { templates.join(" + ") };
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule(&kind.api_version, &kind.plural, &["CREATE", "UPDATE"])]},
        "matchConditions": [
            not_sluice(),
            not_deleting(),
            // A new child is judged as well: its marks and its templates may come from an object that was not.
            {"name": "not-of-operator", "expression": format!("{CREATE} || !({})", of_operator(kinds, "object"))},
        ],
        "variables": [
            {"name": "new", "expression": "object.metadata.?annotations.orValue({})"},
            {"name": "old", "expression": format!("{CREATE} ? variables.new : oldObject.metadata.?annotations.orValue({{}})")},
            {"name": "ownNotes", "expression": bytes_of_notes("new")},
            {"name": "ownNotesBefore", "expression": bytes_of_notes("old")},
            {"name": "labels", "expression": "object.metadata.?labels.orValue({})"},
            {"name": "labelsBefore", "expression": before("labels", "{}")},
            {"name": "finalizers", "expression": "object.metadata.?finalizers.orValue([])"},
            {"name": "finalizersBefore", "expression": before("finalizers", "[]")},
            {"name": "owners", "expression": "object.metadata.?ownerReferences.orValue([])"},
            {"name": "ownersBefore", "expression": before("ownerReferences", "[]")},
            {"name": "suspended", "expression": format!("{}.orValue(false) == true", optional("object", &kind.suspend))},
            {"name": "suspendedBefore",
             "expression": format!("{CREATE} || {}.orValue(false) == true", optional("oldObject", &kind.suspend))},
            {"name": "team", "expression": format!("variables.labelsBefore[?'{team}']")},
            {"name": "ofOperator", "expression": of_operator(kinds, "object")},
            {"name": "child", "expression": format!("!({CREATE}) && {}", has_parent(kinds, "oldObject"))},
            {"name": "unchanged", "expression": format!("!({CREATE}) && {}", unchanged.join(" && "))},
            {"name": "templates", "expression": templates},
        ],
        "validations": validations,
    });
    let name = format!("sluice-guard-{}.{}", kind.plural, kind.group());
    bound(Effect::Deny, &name, &spec)
}

/// The refusal of a field with which the number of pods grows after the admission.
#[must_use]
pub fn elastic(kind: &str, field: &str) -> String {
    format!(
        "{field} lets the pods of a {kind} grow in number after Sluice has admitted it; \
         leave it out and set the numbers themselves."
    )
}

/// The pod templates of a role, as a list in CEL.
fn templates(role: &Role) -> Option<String> {
    let template = role.template.as_ref()?;
    let some = "filter(t, t.hasValue()).map(t, t.value())";
    if let Some(at) = &role.at {
        return Some(format!("[{}].{some}", optional("object", &at.join(template))));
    }
    let each = format!("{}.orValue(dyn([]))", optional("object", role.each.as_ref()?));
    let one = optional("r", template);
    Some(format!("(type({each}) == map ? {each}.map(k, {each}[k]) : {each}).map(r, {one}).{some}"))
}

/// A part of the metadata that was stored before, or nothing.
fn before(field: &str, nothing: &str) -> String {
    format!("{CREATE} ? {nothing} : oldObject.metadata.?{field}.orValue({nothing})")
}

/// The bytes of annotations, without the two that Sluice writes at each admission and eviction.
fn bytes_of_notes(which: &str) -> String {
    format!(
        "variables.{which}.map(k, !(k in ['{}', '{}']), size(bytes(k)) + size(bytes(variables.{which}[k]))).sum()",
        names::ADMISSION,
        names::EVICTION
    )
}

/// The caps on metadata. What Sluice adds must fit: the API server stores 256 KiB of annotations, and 1.5 MiB in all. What
/// stands above a cap already may become less.
fn of_metadata() -> Vec<Value> {
    let fewer = |what: &str| format!("variables.{what}.all(one, one in variables.{what}Before)");
    vec![
        forbid(
            format!(
                "({CREATE} ? variables.ofOperator : variables.new == variables.old) || (size(variables.new) <= 256 ? \
                 (variables.ownNotes <= 196608 || (!({CREATE}) && size(variables.old) <= 256 && \
                 variables.ownNotes <= variables.ownNotesBefore)) : \
                 (!({CREATE}) && variables.new.all(k, variables.old[?k] == optional.of(variables.new[k]))))"
            ),
            "The annotations may be at most 256, and 192 KiB in all, in a team's namespace, because Sluice adds its \
             own; leave some out.",
        ),
        forbid(
            format!(
                "({CREATE} && variables.ofOperator) || ((size(variables.labels) <= 256 || \
                 variables.labels == variables.labelsBefore || \
                 variables.labels.all(k, variables.labelsBefore[?k] == optional.of(variables.labels[k]))) && \
                 (size(variables.finalizers) <= 32 || {}) && (size(variables.owners) <= 32 && variables.owners.all(o, \
                 size(o.apiVersion) + size(o.kind) + size(o.name) + size(o.uid) <= 1024) || {}))",
                fewer("finalizers"),
                fewer("owners")
            ),
            "An object may have at most 256 labels, 32 finalizers and 32 owners with short names in a team's \
             namespace, because Sluice must still be able to write to it.",
        ),
    ]
}

/// The rules for the pod templates: the pods start without a review of their own.
fn of_templates() -> Vec<Value> {
    let each = |condition: &str| format!("variables.unchanged || variables.templates.all(t, {condition})");
    let own: Vec<String> = names::OWN_ANNOTATIONS.map(|key| format!("'{key}'")).into();
    let (group, size) = (names::GROUP, names::GROUP_SIZE);
    vec![
        forbid(
            each(&format!(
                "![{}, '{size}'].exists(key, key in t.?metadata.?annotations.orValue({{}})) && \
                 !('{group}' in t.?metadata.?labels.orValue({{}}))",
                own.join(", ")
            )),
            format!(
                "The pod templates must not carry marks of Sluice (the annotations {} and {size}, and the \
                 label {group}); leave them out.",
                names::OWN_ANNOTATIONS.join(", ")
            ),
        ),
        forbid(
            each("t.?spec.?nodeName.orValue('') == ''"),
            "The pod templates must not set spec.nodeName, because Sluice chooses the nodes; use node affinity.",
        ),
        forbid(
            each(
                "!t.?spec.?priorityClassName.orValue('').startsWith('system-') && t.?spec.?priority.orValue(0) <= 1000000000",
            ),
            "The priority classes of the system are not for the workloads of teams, because their pods evict \
             others past Sluice; use another class.",
        ),
        forbid(
            each(
                "t.?spec.?resourceClaims.orValue([]).all(c, has(c.resourceClaimName) || has(c.resourceClaimTemplateName))",
            ),
            "Each of resourceClaims must name a resourceClaimName or a resourceClaimTemplateName, because \
             Sluice counts no other claims.",
        ),
        forbid(
            each("size(t.?spec.?schedulingGates.orValue([])) <= 16"),
            "A pod template may have at most 16 scheduling gates in a team's namespace.",
        ),
        forbid(
            each(
                "size(t.?spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])) <= 64",
            ),
            "The required node affinity may have at most 64 terms in a team's namespace; name the nodes by a label.",
        ),
        forbid(
            each(
                "(t.?spec.?containers.orValue([]) + t.?spec.?initContainers.orValue([])).all(c, \
                 size(c.?resources.?requests.orValue({})) <= 32 && size(c.?resources.?limits.orValue({})) <= 32)",
            ),
            "A container may ask for at most 32 different resources in a team's namespace.",
        ),
        forbid(
            each("t.?spec.?terminationGracePeriodSeconds.orValue(0) <= 600"),
            "terminationGracePeriodSeconds may be at most 600 in a team's namespace, because a workload that is \
             evicted must end in time.",
        ),
    ]
}

/// The policy for a kind between a workload and its pods. Its pods start without a gate, so only the operator may make or
/// change such an object, and only below a workload that Sluice counts.
pub fn child(kinds: &Kinds, parent: &Kind, child: &Child) -> [Value; 2] {
    let (kind, of) = (&child.kind, &parent.kind);
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule(&child.api_version, &child.plural, &["CREATE", "UPDATE"])]},
        "matchConditions": [
            not_sluice(),
            not_deleting(),
            {"name": "not-of-operator", "expression": format!("!({})", of_operator(kinds, "object"))},
        ],
        "validations": [
            forbid(
                format!("!({CREATE})"),
                format!(
                    "The pods of a {kind} start without Sluice's queue, so a team's namespace has none by itself; \
                     submit a {of}, whose controller makes one."
                ),
            ),
            forbid(
                format!("{CREATE} || object.?spec == oldObject.?spec"),
                format!("This {kind} keeps the pods that were admitted with its {of}; change the {of} instead."),
            ),
            forbid(
                format!("{CREATE} || {} == {} || {BY_KUBERNETES}", controllers("oldObject"), controllers("object")),
                format!("This {kind} keeps its controlling owner, because Sluice counts its pods there; delete it instead."),
            ),
        ],
    });
    let name = format!("sluice-child-{}.{}", child.plural, child.group());
    bound(Effect::Deny, &name, &spec)
}

/// The policy that keeps the scale subresource from changing the number of pods. A kind without it never matches.
pub fn scale(kinds: &Kinds) -> [Value; 2] {
    let rules: Vec<Value> = resources(kinds, "/scale", "UPDATE");
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [not_sluice(), not_deleting()],
        "validations": [forbid(
            "object.?spec.?replicas == oldObject.?spec.?replicas",
            "Sluice admits all pods of this workload together, so it is not scaled while it exists; suspend it and \
             change its spec.",
        )],
    });
    bound(Effect::Deny, "sluice-kinds-scale", &spec)
}

/// The policy that warns of pods that stay when their workload goes. It refuses no deletion.
pub fn orphan(kinds: &Kinds) -> [Value; 2] {
    let spec = json!({
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": resources(kinds, "", "DELETE")},
        "matchConditions": [not_sluice()],
        "validations": [{
            "expression": "has(request.options.propagationPolicy) ? request.options.propagationPolicy != 'Orphan' : \
                           !(has(request.options.orphanDependents) && request.options.orphanDependents)",
            "message": "The pods of this workload run on without it. They stay charged to the team and may be ended; \
                        delete them too, or delete with --cascade=background.",
        }],
    });
    bound(Effect::Warn, "sluice-kinds-orphan", &spec)
}

/// Matches an operation on every watched kind, or on a subresource of each.
fn resources(kinds: &Kinds, subresource: &str, operation: &str) -> Vec<Value> {
    let each = kinds.watched().iter().map(|watched| &watched.resource);
    each.map(|one| rule(&one.api_version, &format!("{}{subresource}", one.plural), &[operation])).collect()
}
