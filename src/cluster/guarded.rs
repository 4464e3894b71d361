//! Objects of lists and watches, decoded one by one, so that one that cannot be read does not hide all others.
//!
//! kube's `DeserializeGuard` copies every object twice, and cannot step over JSON that is nested too deeply.

use std::borrow::Cow;

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::wire::slim_metadata;

/// The longest problem that is kept and logged.
const LONGEST_PROBLEM: usize = 300;

/// An object, or its metadata and why the rest cannot be read.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Box<Unread>>);

/// What is known of an object that cannot be read.
#[derive(Clone, Debug)]
pub struct Unread {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The problem.
    pub problem: String,
}

/// The metadata of any object; whatever else it has is skipped without being read.
#[derive(Deserialize)]
struct Named {
    #[serde(default, deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let problem = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(error) => error.to_string().chars().take(LONGEST_PROBLEM).collect(),
        };
        // Without metadata there is no telling which object this is; the API server stores none like that.
        let Named { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Self(Err(Box::new(Unread { metadata, problem }))))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;
    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }
    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }
    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }
    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }
    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unread| &unread.metadata, K::meta)
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unread| &mut unread.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{DynamicObject, ObjectList, WatchEvent};
    use serde_json::json;

    use super::*;
    use crate::cluster::wire::Job;

    fn list<K: DeserializeOwned + Clone>(items: &str) -> Vec<Guarded<K>> {
        let text = format!(
            r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#
        );
        serde_json::from_str::<ObjectList<Guarded<K>>>(&text).expect("the list is read").items
    }

    #[test]
    fn one_object_that_cannot_be_read_hides_no_other() {
        let good = |name: &str| json!({"metadata": {"name": name, "uid": name}, "spec": {"parallelism": 2}});
        let bad = json!({"metadata": {"name": "bad", "uid": "bad", "labels": {"a": "b"}}, "spec": {"parallelism": "many"}});
        let seen: Vec<Guarded<Job>> = list(&format!("{},{bad},{}", good("a"), good("z")));
        let names: Vec<&str> = seen.iter().filter_map(|one| one.meta().name.as_deref()).collect();
        assert_eq!(names, ["a", "bad", "z"]);
        let unread = seen[1].0.as_ref().expect_err("parallelism is no number");
        assert!(unread.problem.contains("invalid type"), "{}", unread.problem);
        assert!(seen[0].0.is_ok() && seen[2].0.is_ok());
    }

    #[test]
    fn json_of_any_depth_hides_no_other_object() {
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        let object = |name: &str, spec: &str| {
            format!(
                r#"{{"apiVersion":"a/v1","kind":"B","metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"3"}},"spec":{spec}}}"#
            )
        };
        let seen: Vec<Guarded<DynamicObject>> =
            list(&format!("{},{}", object("deep", &deep), object("a", "{}")));
        assert_eq!(seen[0].meta().name.as_deref(), Some("deep"));
        assert!(seen[0].0.as_ref().is_err_and(|unread| unread.problem.contains("recursion limit")));
        assert!(seen[1].0.is_ok());
        let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, object("deep", &deep));
        match serde_json::from_str::<WatchEvent<Guarded<DynamicObject>>>(&event).expect("the event is read") {
            WatchEvent::Modified(object) => assert_eq!(object.meta().resource_version.as_deref(), Some("3")),
            other => panic!("{other:?}"),
        }
    }
}
