//! The workload argument of `explain`, written as for kubectl or as Sluice prints it.

use super::Invalid;

/// A workload named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its kind as written, if given: `job`, `po`, `jobsets.jobset.x-k8s.io`.
    kind: Option<String>,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Target {
    /// Reads `NAMESPACE/NAME`, or with a namespace beside it `NAME`, `KIND/NAME` or `KIND NAME`.
    ///
    /// # Errors
    /// [`Invalid`] when it is none of these.
    pub fn read(words: &[String], namespace: Option<&str>) -> Result<Self, Invalid> {
        let written = words.join(" ");
        let wrong = |problem: &str| Err(Invalid(format!("{written}: {problem}")));
        let (first, name) = match words {
            [one] => match one.split_once('/') {
                Some((first, name)) => (Some(first), name),
                None => (None, one.as_str()),
            },
            [kind, name] if !kind.contains('/') => (Some(kind.as_str()), name.as_str()),
            _ => return wrong(FORMS),
        };
        if name.is_empty() || name.contains('/') || first == Some("") || namespace == Some("") {
            return wrong(FORMS);
        }
        let (kind, namespace) = match (first, namespace) {
            (kind, Some(namespace)) => (kind, namespace),
            // Sluice reads no kubeconfig, so there is no default namespace.
            (Some(first), None) if words.len() == 2 || KINDS.iter().any(|kind| is(first, kind)) => {
                return wrong("the namespace is missing: add --namespace");
            }
            (Some(namespace), None) => (None, namespace),
            (None, None) => {
                return wrong(&format!(
                    "the namespace is missing: write NAMESPACE/{name} or add --namespace"
                ));
            }
        };
        Ok(Self { kind: kind.map(ToOwned::to_owned), namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Whether the argument matches an object of this kind; a pod's name matches its PodGroup too.
    #[must_use]
    pub fn may_be(&self, kind: &str) -> bool {
        let matches = |written| is(written, kind) || (kind == "PodGroup" && is(written, "Pod"));
        self.kind.as_deref().is_none_or(matches)
    }

    /// The argument for error messages: `job a/x`.
    #[must_use]
    pub fn label(&self) -> String {
        let (namespace, name) = (&self.namespace, &self.name);
        self.kind.as_ref().map_or(format!("{namespace}/{name}"), |kind| format!("{kind} {namespace}/{name}"))
    }
}

/// The accepted forms.
const FORMS: &str = "expected NAMESPACE/NAME, or NAME or KIND/NAME with --namespace";

/// Kinds of every cluster.
const KINDS: [&str; 2] = ["Job", "Pod"];

/// Whether a kind is written as kubectl accepts it: any case, singular or plural, short, or with its group.
fn is(written: &str, kind: &str) -> bool {
    let resource = written.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let kind = kind.to_ascii_lowercase();
    resource == kind || resource.strip_suffix('s') == Some(&kind) || (resource == "po" && kind == "pod")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(written: &str, namespace: Option<&str>) -> Result<Target, String> {
        let words: Vec<String> = written.split(' ').map(ToOwned::to_owned).collect();
        Target::read(&words, namespace).map_err(|error| error.to_string())
    }

    #[test]
    fn a_workload_is_written_as_sluice_prints_it_or_as_for_kubectl() {
        for (written, namespace) in [
            ("a/b", None),
            ("b", Some("a")),
            ("job/b", Some("a")),
            ("job b", Some("a")),
            ("jobs.batch/b", Some("a")),
            ("JobSet/b", Some("a")),
        ] {
            let target = read(written, namespace).expect(written);
            assert_eq!((target.namespace.as_str(), target.name.as_str()), ("a", "b"), "{written}");
        }
    }

    #[test]
    fn a_kind_is_written_as_kubectl_accepts_it() {
        for (kind, written) in [
            ("Job", ["job/b", "jobs/b", "Job/b", "jobs.batch/b", "job.v1.batch/b"]),
            ("Pod", ["pod/b", "pods/b", "po/b", "PO/b", "pods.v1./b"]),
            ("RayJob", ["rayjob/b", "rayjobs/b", "RayJob/b", "rayjobs.ray.io/b", "rayjob b"]),
        ] {
            for written in written {
                let target = read(written, Some("a")).expect(written);
                let kinds = ["Job", "Pod", "RayJob"];
                assert_eq!(
                    kinds.map(|other| target.may_be(other)),
                    kinds.map(|other| other == kind),
                    "{written}"
                );
            }
        }
        assert!(read("po/b", Some("a")).is_ok_and(|pod| pod.may_be("PodGroup")));
        let any = read("a/b", None).expect("a workload");
        assert!(any.may_be("Job") && any.may_be("Pod"));
    }

    #[test]
    fn a_malformed_argument_is_one_line() {
        for (written, namespace, problem) in [
            ("b", None, "b: the namespace is missing: write NAMESPACE/b or add --namespace"),
            ("job/b", None, "job/b: the namespace is missing: add --namespace"),
            ("po/b", None, "po/b: the namespace is missing: add --namespace"),
            ("jobset b", None, "jobset b: the namespace is missing: add --namespace"),
            ("/b", None, "/b: expected NAMESPACE/NAME"),
            ("a/", None, "a/: expected NAMESPACE/NAME"),
            ("a/b/c", None, "a/b/c: expected NAMESPACE/NAME"),
            ("a/b c", Some("a"), "a/b c: expected NAMESPACE/NAME"),
            ("b", Some(""), "b: expected NAMESPACE/NAME"),
        ] {
            let error = read(written, namespace).expect_err(written);
            assert!(error.starts_with(problem), "{written}: {error}");
        }
    }
}
