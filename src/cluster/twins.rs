//! Keeps the twins of PriorityClasses: what is missing or out of date, and the writes for it.
//!
//! The value of a class is immutable, so a twin of an old value is deleted, and made again once the watch has shown
//! that it is gone. Pods that are created in between are refused, and their controllers try again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource};
use serde::de::IgnoredAny;
use tokio::task::JoinSet;

use super::call::{Caller, Failure, Pace, unsendable};
use super::leader::Leadership;
use super::mirror::Mirror;
use crate::api::names;
use crate::api::priority::{Class, twin, twin_of};
use crate::engine::types::{Name, Time};
use crate::metrics::Metrics;

/// The purpose of these writes in the metrics.
const LABEL: &str = "twin";
/// The wait until twins are compared again: a write may have failed, and a twin without its class may be in use.
const AGAIN: Duration = Duration::from_secs(10);

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Make the twin of a class; an empty class stands for none.
    Make { name: String, class: Name, value: i32 },
    /// Delete a twin that is out of date or no longer needed.
    Delete { name: Name, uid: Name },
}

/// The writes that are needed, and whether a twin without its class waits for workloads that name it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Work {
    steps: Vec<Step>,
    waits: bool,
}

/// Compares classes and twins. `in_use` says whether a workload names a class.
fn compare(classes: &BTreeMap<&str, &Class>, in_use: impl Fn(&str) -> bool) -> Work {
    let mut work = Work::default();
    let sources = classes.iter().filter(|(_, class)| class.needs_twin());
    let sources = sources.map(|(name, class)| (twin_of(name), *name, class.value));
    for (name, class, value) in sources.chain([(names::CLASS.to_owned(), "", 0)]) {
        match classes.get(&*name) {
            None => work.steps.push(Step::Make { name, class: class.into(), value }),
            Some(there) if there.is_twin_of(class, value) => {}
            Some(there) if there.stands_for.is_some() => {
                work.steps.push(Step::Delete { name: name.into(), uid: there.uid.clone() });
            }
            // It can be used under its own name only if an administrator removes the other class.
            Some(_) => tracing::warn!(
                class,
                name,
                "cannot make the twin of a PriorityClass: another class has its name"
            ),
        }
    }
    for (name, there) in classes {
        let Some(class) = there.stands_for.as_deref().filter(|class| !class.is_empty()) else { continue };
        if classes.get(class).is_some_and(|class| class.needs_twin()) {
            continue;
        }
        // Templates that name it cannot be changed.
        if in_use(name) {
            work.waits = true;
        } else {
            work.steps.push(Step::Delete { name: (*name).into(), uid: there.uid.clone() });
        }
    }
    work
}

/// Makes and deletes twins while leading.
pub struct Twins {
    caller: Caller,
    writes: JoinSet<()>,
    due: Option<Time>,
}

impl Twins {
    /// Without a write under way. The first comparison follows at once.
    #[must_use]
    pub fn new(client: Client, claim: Leadership, metrics: Arc<Metrics>) -> Self {
        let caller = Caller::new(client, claim, metrics, Pace::default());
        Self { caller, writes: JoinSet::new(), due: Some(Time(0)) }
    }

    /// When to compare again although no class changes.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.due
    }

    /// Compares the classes if some have changed or it is due, and starts the writes.
    pub fn follow(&mut self, mirror: &mut Mirror, now: Time) {
        if mirror.take_changed_classes() {
            self.due = Some(now);
        }
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        while self.writes.try_join_next().is_some() {}
        if !self.writes.is_empty() {
            self.due = Some(now.after(PAUSE));
            return;
        }
        let classes = mirror.classes().map(|(name, class)| (&**name, class)).collect();
        let Work { steps, waits } = compare(&classes, |name| mirror.names_class(name));
        self.due = (waits || !steps.is_empty()).then(|| now.after(AGAIN));
        if steps.is_empty() {
            return;
        }
        let caller = self.caller.clone();
        self.writes.spawn(async move {
            for step in steps {
                let outcome = carry_out(&caller, &step).await;
                match outcome {
                    Ok(()) => tracing::info!(?step, "changed the twin of a PriorityClass"),
                    // It was made or deleted before; the watch shows it.
                    Err(Failure::Moved | Failure::Gone) => {}
                    Err(Failure::NotLeading) => return,
                    Err(
                        Failure::Refused(problem) | Failure::Immutable(problem) | Failure::NotNow(problem),
                    ) => {
                        tracing::warn!(
                            ?step,
                            problem,
                            "the API server refused a change of the twin of a PriorityClass"
                        );
                    }
                }
            }
        });
    }
}

/// The wait while writes are under way.
const PAUSE: Duration = Duration::from_millis(200);

async fn carry_out(caller: &Caller, step: &Step) -> Result<(), Failure> {
    let requests = Request::new(PriorityClass::url_path(&(), None));
    let request = match step {
        Step::Make { name, class, value } => {
            let params =
                PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
            let body = serde_json::to_vec(&twin(name, class, *value));
            let body = body.map_err(|error| Failure::Refused(error.to_string()))?;
            requests.create(&params, body)
        }
        Step::Delete { name, uid } => {
            let preconditions = Some(Preconditions { uid: Some(uid.to_string()), resource_version: None });
            requests.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() })
        }
    };
    let request = request.map_err(unsendable)?;
    caller.until_known::<IgnoredAny>(Some(LABEL), true, request).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(value: i32, preempts: bool, stands_for: Option<&str>) -> Class {
        let stands_for = stands_for.map(Name::from);
        Class { uid: "uid".into(), value, global_default: false, preempts, stands_for }
    }

    /// The steps for these classes, besides the class of pods without one.
    fn steps(classes: &[(&str, Class)], in_use: bool) -> Vec<Step> {
        let own = class(0, false, Some(""));
        let all = classes.iter().map(|(name, class)| (*name, class)).chain([(names::CLASS, &own)]);
        let work = compare(&all.collect(), |_| in_use);
        assert!(!work.waits || in_use);
        work.steps
    }

    fn make(name: &str, class: &str, value: i32) -> Step {
        Step::Make { name: name.into(), class: class.into(), value }
    }

    fn delete(name: &str) -> Step {
        Step::Delete { name: name.into(), uid: "uid".into() }
    }

    #[test]
    fn each_class_that_preempts_gets_a_twin_of_its_value() {
        let high = || ("high", class(900, true, None));
        assert_eq!(steps(&[high()], false), [make("sluice-high", "high", 900)]);
        assert_eq!(steps(&[high(), ("sluice-high", class(900, false, Some("high")))], false), []);
        let others =
            [("calm", class(5, false, None)), ("system-node-critical", class(2_000_001_000, true, None))];
        assert_eq!(steps(&others, false), []);
        assert_eq!(compare(&BTreeMap::new(), |_| false).steps, [make(names::CLASS, "", 0)]);
    }

    #[test]
    fn a_twin_of_another_value_is_deleted_and_then_made_again() {
        let old = ("sluice-high", class(900, false, Some("high")));
        let remade = ("high", class(500, true, None));
        assert_eq!(steps(&[remade.clone(), old], true), [delete("sluice-high")]);
        assert_eq!(steps(&[remade], true), [make("sluice-high", "high", 500)]);
        let wrong = class(7, false, Some(""));
        let work = compare(&[(names::CLASS, &wrong)].into(), |_| true);
        assert_eq!(work.steps, [delete(names::CLASS)]);
    }

    #[test]
    fn the_twin_of_a_deleted_class_stays_while_a_workload_names_it() {
        let twin = || ("sluice-high", class(900, false, Some("high")));
        assert_eq!(steps(&[twin()], true), []);
        assert!(compare(&[("sluice-high", &twin().1)].into(), |_| true).waits);
        assert_eq!(steps(&[twin()], false), [delete("sluice-high")]);
        let calm = || ("high", class(5, false, None));
        assert_eq!(steps(&[twin(), calm()], true), [], "the class no longer preempts");
        assert_eq!(steps(&[twin(), calm()], false), [delete("sluice-high")]);
    }

    #[test]
    fn a_class_without_the_marks_is_left_alone() {
        let foreign = ("sluice-high", class(3, false, None));
        assert_eq!(steps(&[("high", class(900, true, None)), foreign], false), []);
    }
}
