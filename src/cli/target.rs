//! The workload arguments of commands, written as for kubectl or as Sluice prints it.

use super::Invalid;

/// A workload named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its kind as written, if given: `job`, `po`, `jobsets.jobset.x-k8s.io`.
    kind: Option<String>,
    /// Its namespace.
    pub namespace: String,
    /// Whether the argument or an option names the namespace, so that it is not merely that of the context.
    pub is_in_named_namespace: bool,
    /// Its name.
    pub name: String,
}

impl Target {
    /// Reads `NAME`, `KIND/NAME` or `KIND NAME` in the namespace of the command line, else in `default`; or
    /// `NAMESPACE/NAME`. The word before the slash is a kind if the command line has a namespace, or it is one of
    /// [`KINDS`].
    ///
    /// # Errors
    /// [`Invalid`] when it is none of these, or its kind is known and never one of a workload.
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
        if let Some((kind, why)) = first.and_then(no_workload) {
            return Err(Invalid(format!("{written}: a {kind} is {why}")));
        }
        let is_given = given.is_some();
        let default = given.unwrap_or(default);
        if name.is_empty() || name.contains('/') || first == Some("") || default.is_empty() {
            return wrong();
        }
        let is_kind =
            |first: &&str| given.is_some() || words.len() == 2 || KINDS.iter().any(|kind| is(first, kind));
        let kind = first.filter(is_kind);
        let namespace = first.filter(|_| kind.is_none());
        Ok(Self {
            kind: kind.map(ToOwned::to_owned),
            is_in_named_namespace: is_given || namespace.is_some(),
            namespace: namespace.unwrap_or(default).to_owned(),
            name: name.to_owned(),
        })
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

/// Kinds that kubectl knows and that are no workloads, with their short names, and why not. A namespace of one of these names
/// is written as `-n NAMESPACE`.
const OTHERS: [(&str, &str, &str); 10] = [
    ("CronJob", "cj", THEIR_JOBS),
    ("Deployment", "deploy", THEIR_PODS),
    ("StatefulSet", "sts", THEIR_PODS),
    ("ReplicaSet", "rs", THEIR_PODS),
    ("DaemonSet", "ds", THEIR_PODS),
    ("ReplicationController", "rc", THEIR_PODS),
    ("Node", "no", "no workload"),
    ("Namespace", "ns", "no workload"),
    ("Service", "svc", "no workload"),
    ("Team", "team", "no workload; `sluice teams` shows it"),
];
const THEIR_JOBS: &str = "no workload itself: its Jobs are, and `sluice queue` has their names";
const THEIR_PODS: &str = "no workload itself: its pods are, and `sluice queue` has their names";

/// The kind that is written, if it is known and never one of a workload, and why it is none.
fn no_workload(written: &str) -> Option<(&'static str, &'static str)> {
    let resource = written.split('.').next().unwrap_or_default();
    let found =
        OTHERS.iter().find(|(kind, short, _)| is(written, kind) || resource.eq_ignore_ascii_case(short));
    found.map(|(kind, _, why)| (*kind, *why))
}

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
    fn a_kind_that_is_no_workload_is_not_taken_for_a_namespace() {
        for (written, expected) in [
            ("cronjob/nightly", "cronjob/nightly: a CronJob is no workload itself: its Jobs are"),
            ("cronjobs.batch/nightly", "cronjobs.batch/nightly: a CronJob is no workload itself"),
            ("cj nightly", "cj nightly: a CronJob is no workload itself"),
            ("deployment/serve", "deployment/serve: a Deployment is no workload itself: its pods are"),
            ("deploy/serve", "deploy/serve: a Deployment"),
            ("node/n1", "node/n1: a Node is no workload"),
        ] {
            let error = read(written).expect_err(written);
            assert!(error.starts_with(expected), "{error}");
        }
        let named = |written: &str| read(written).expect(written).is_in_named_namespace;
        assert!(named("a/b") && !named("b") && !named("job/b"));
        let given = Target::read(&["b".to_owned()], Some("deploy"), "here").expect("a workload");
        assert!(given.is_in_named_namespace && given.namespace == "deploy");
    }

    #[test]
    fn a_malformed_argument_is_one_line() {
        for written in ["/b", "a/", "a/b/c", "a/b c", ""] {
            let error = read(written).expect_err(written);
            assert_eq!(error, format!("{written}: {FORMS}"));
        }
    }
}
