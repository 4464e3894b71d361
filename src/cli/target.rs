//! The workload arguments of commands, written as for kubectl or as Sluice prints it.

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
    /// Reads `NAME`, `KIND/NAME` or `KIND NAME` in the namespace of the command line, else in `default`; or
    /// `NAMESPACE/NAME`. The word before the slash is a kind if the command line has a namespace, or it is one of
    /// [`KINDS`].
    ///
    /// # Errors
    /// [`Invalid`] when it is none of these.
    pub fn read(words: &[String], given: Option<&str>, default: &str) -> Result<Self, Invalid> {
        let written = words.join(" ");
        let wrong = || Err(Invalid(format!("{written}: {FORMS}")));
        let (first, name) = match words {
            [one] => match one.split_once('/') {
                Some((first, name)) => (Some(first), name),
                None => (None, one.as_str()),
            },
            [kind, name] if !kind.contains('/') => (Some(kind.as_str()), name.as_str()),
            _ => return wrong(),
        };
        let default = given.unwrap_or(default);
        if name.is_empty() || name.contains('/') || first == Some("") || default.is_empty() {
            return wrong();
        }
        let is_kind =
            |first: &&str| given.is_some() || words.len() == 2 || KINDS.iter().any(|kind| is(first, kind));
        let kind = first.filter(is_kind);
        let namespace = first.filter(|_| kind.is_none()).unwrap_or(default);
        Ok(Self { kind: kind.map(ToOwned::to_owned), namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Whether the argument matches an object of this kind; a pod's name matches its PodGroup too.
    #[must_use]
    pub fn may_be(&self, kind: &str) -> bool {
        let matches = |written| is(written, kind) || (kind == "PodGroup" && is(written, "Pod"));
        self.kind.as_deref().is_none_or(matches)
    }

    /// Whether its kind is written, and is one that Sluice knows by itself.
    #[must_use]
    pub fn has_known_kind(&self) -> bool {
        self.kind.as_deref().is_some_and(|written| KINDS.iter().any(|kind| is(written, kind)))
    }

    /// The argument for error messages: `job a/x`.
    #[must_use]
    pub fn label(&self) -> String {
        let (namespace, name) = (&self.namespace, &self.name);
        self.kind.as_ref().map_or(format!("{namespace}/{name}"), |kind| format!("{kind} {namespace}/{name}"))
    }
}

/// The accepted forms.
const FORMS: &str = "expected NAME, KIND/NAME or NAMESPACE/NAME";

/// The kinds that may stand before a slash. Others are written as `KIND NAME`.
const KINDS: [&str; 8] = ["Job", "Pod", "PodGroup", "JobSet", "TrainJob", "PyTorchJob", "RayJob", "MPIJob"];

/// Whether a kind is written as kubectl accepts it: any case, singular or plural, short, or with its group.
fn is(written: &str, kind: &str) -> bool {
    let resource = written.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let kind = kind.to_ascii_lowercase();
    resource == kind || resource.strip_suffix('s') == Some(&kind) || (resource == "po" && kind == "pod")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(written: &str) -> Result<Target, String> {
        let words: Vec<String> = written.split(' ').map(ToOwned::to_owned).collect();
        Target::read(&words, None, "here").map_err(|error| error.to_string())
    }

    #[test]
    fn a_workload_is_written_as_sluice_prints_it_or_as_for_kubectl() {
        for (written, namespace) in [
            ("a/b", "a"),
            ("b", "here"),
            ("job/b", "here"),
            ("job b", "here"),
            ("jobs.batch/b", "here"),
            ("JobSet/b", "here"),
            ("other-kind b", "here"),
        ] {
            let target = read(written).expect(written);
            assert_eq!((target.namespace.as_str(), target.name.as_str()), (namespace, "b"), "{written}");
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
                let target = read(written).expect(written);
                let kinds = ["Job", "Pod", "RayJob"];
                assert_eq!(
                    kinds.map(|other| target.may_be(other)),
                    kinds.map(|other| other == kind),
                    "{written}"
                );
            }
        }
        assert!(read("po/b").is_ok_and(|pod| pod.may_be("PodGroup")));
        let known = |written| read(written).expect(written).has_known_kind();
        assert!(known("job b") && known("jobs.batch b") && !known("a b") && !known("b"));
        let given = Target::read(&["sparkjob/b".to_owned()], Some("a"), "here").expect("a workload");
        assert!(given.namespace == "a" && given.may_be("SparkJob") && !given.may_be("Job"));
        let any = read("a/b").expect("a workload");
        assert!(any.may_be("Job") && any.may_be("Pod"));
    }

    #[test]
    fn a_malformed_argument_is_one_line() {
        for written in ["/b", "a/", "a/b/c", "a/b c", ""] {
            let error = read(written).expect_err(written);
            assert_eq!(error, format!("{written}: {FORMS}"));
        }
    }
}
