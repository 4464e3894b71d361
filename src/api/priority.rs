//! PriorityClasses, and the twins of those that may preempt.
//!
//! kube-scheduler lets a pod preempt others unless its PriorityClass says `preemptionPolicy: Never`. It knows neither
//! teams nor guarantees, so no pod of a team may have a class that preempts. The twin of such a class has its value, and
//! with it its place in the team's order, but does not preempt.

use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::names;
use crate::engine::types::Name;

/// What the names of twins begin with. [`names::CLASS`] is no such name.
const PREFIX: &str = "sluice-";
/// The longest name of an object.
const LONGEST: usize = 253;
/// The largest value outside of the system's own classes.
pub const LARGEST: i32 = 1_000_000_000;
/// The policy that preempts nothing.
pub const NEVER: &str = "Never";

/// A PriorityClass as Sluice needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The UID.
    pub uid: Name,
    /// The priority of its pods.
    pub value: i32,
    /// Whether it is the class of pods that name none.
    pub global_default: bool,
    /// Whether its pods may preempt others.
    pub preempts: bool,
    /// The class that it stands for, if Sluice has made it; empty for [`names::CLASS`].
    pub stands_for: Option<Name>,
}

impl Class {
    /// The class of a PriorityClass.
    #[must_use]
    pub fn of(object: &PriorityClass) -> Self {
        let ObjectMeta { uid, annotations, labels, .. } = &object.metadata;
        let own = labels.as_ref().is_some_and(|labels| labels.contains_key(names::TWIN));
        let source = annotations.as_ref().and_then(|all| all.get(names::TWIN_OF));
        Self {
            uid: uid.as_deref().unwrap_or_default().into(),
            value: object.value.unwrap_or(0),
            global_default: object.global_default == Some(true),
            preempts: object.preemption_policy.as_deref() != Some(NEVER),
            stands_for: own.then(|| source.map_or("", String::as_str).into()),
        }
    }

    /// Whether its pods need the twin: they may preempt, and it is not one of the system's own classes.
    #[must_use]
    pub fn needs_twin(&self) -> bool {
        self.preempts && self.value <= LARGEST
    }

    /// Whether it can stand for a class of this name and value.
    #[must_use]
    pub fn is_twin_of(&self, class: &str, value: i32) -> bool {
        !self.preempts && self.value == value && self.stands_for.as_deref() == Some(class)
    }
}

/// The name of the twin of a class. A hash stands for what does not fit into it.
#[must_use]
pub fn twin_of(class: &str) -> String {
    if class.len() + PREFIX.len() <= LONGEST {
        return format!("{PREFIX}{class}");
    }
    // FNV-1a: the same in every version of Sluice.
    let hash = class.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let fits: String = class.chars().take(LONGEST - PREFIX.len() - 17).collect();
    format!("{PREFIX}{}-{hash:016x}", fits.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
}

/// The name of the class that a twin of this name would belong to.
#[must_use]
pub fn twin_from(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX).filter(|class| !class.is_empty())
}

/// The class that Sluice makes for another one; an empty name makes [`names::CLASS`], for pods without a class.
#[must_use]
pub fn twin(name: &str, class: &str, value: i32) -> PriorityClass {
    let description = if class.is_empty() {
        "Made by Sluice for pods in the namespaces of teams that name no class.".to_owned()
    } else {
        format!("Made by Sluice: like {class}, but kube-scheduler preempts nothing for its pods.")
    };
    PriorityClass {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(names::TWIN.to_owned(), "true".to_owned())].into()),
            annotations: Some([(names::TWIN_OF.to_owned(), class.to_owned())].into()),
            ..ObjectMeta::default()
        },
        value: Some(value),
        preemption_policy: Some(NEVER.to_owned()),
        description: Some(description),
        global_default: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_is_recognised_by_its_marks_value_and_policy() {
        let made = Class::of(&twin("sluice-high", "high", 900));
        assert!(made.is_twin_of("high", 900) && !made.needs_twin());
        assert!(!made.is_twin_of("high", 901) && !made.is_twin_of("higher", 900));
        let foreign = PriorityClass { metadata: ObjectMeta::default(), ..twin("sluice-high", "high", 900) };
        assert!(!Class::of(&foreign).is_twin_of("high", 900), "a class of the same name without the marks");
        let preempts = PriorityClass { preemption_policy: None, ..twin("sluice-high", "high", 900) };
        assert!(!Class::of(&preempts).is_twin_of("high", 900));
        assert!(Class::of(&twin(names::CLASS, "", 0)).is_twin_of("", 0));
    }

    #[test]
    fn only_classes_of_users_that_preempt_need_a_twin() {
        let of = |value, policy: Option<&str>| {
            Class::of(&PriorityClass {
                value: Some(value),
                preemption_policy: policy.map(str::to_owned),
                ..PriorityClass::default()
            })
        };
        assert!(of(5, None).needs_twin() && of(-5, Some("PreemptLowerPriority")).needs_twin());
        assert!(of(1_000_000_000, None).needs_twin(), "the largest value of a user's class");
        assert!(!of(5, Some("Never")).needs_twin());
        assert!(!of(2_000_000_000, None).needs_twin(), "system-cluster-critical");
    }

    #[test]
    fn names_of_twins_are_legal_and_lead_back() {
        assert_eq!(twin_of("high"), "sluice-high");
        assert_eq!(twin_from("sluice-high"), Some("high"));
        assert_eq!((twin_from("high"), twin_from(names::CLASS), twin_from("sluice-")), (None, None, None));
        assert_eq!(twin_of(&"x".repeat(246)), format!("sluice-{}", "x".repeat(246)));
        let long = ["a", "b"].map(|end| twin_of(&format!("{}{end}", "x".repeat(252))));
        assert!(long[0] != long[1] && long.iter().all(|name| name.len() == LONGEST), "{long:?}");
        let dotted = twin_of(&format!("{}.{}", "x".repeat(228), "y".repeat(24)));
        assert_eq!(dotted.find("x-"), Some(PREFIX.len() + 227), "no dot before the dash: {dotted}");
    }
}
