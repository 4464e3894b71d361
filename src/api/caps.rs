//! What one workload may consist of. Without these caps one object of one user could cost every replica any amount of
//! memory and time, at each of its starts.
//!
//! The webhook refuses an object above a cap when it is created. An object that is stored nevertheless (made while the
//! webhook was away, or before a cap was lowered) is kept as its counts alone and waits with the cap as its reason.

use std::time::Duration;

/// The most required node affinity terms that an admission may write, and so that a workload may have.
///
/// A term is repeated for each node of the admission. 2,000 terms are 200 KB; the API server accepts no more than 3 MiB.
pub const MOST_WRITTEN_TERMS: usize = 2_000;

/// Selectors, requirements, values and tolerations for each affinity term that is allowed.
const RULES_PER_TERM: u64 = 16;
/// The most pod templates of one object.
const MOST_TEMPLATES: u64 = 256;
/// The most pools that one workload may name.
const MOST_POOLS: u64 = 64;
/// The most bytes of affinity in a template: an admission keeps the user's affinity in an annotation, and the API server
/// accepts 256 KiB of annotations.
const MOST_AFFINITY_BYTES: u64 = 64 << 10;
/// The most bytes of annotations, with the affinity that an admission keeps in one. The rest of the 256 KiB that the API
/// server accepts is for the records of admissions and evictions: without room for them a workload could be neither
/// admitted nor evicted. The policies in the API server have the same number.
const MOST_NOTES: u64 = 192 << 10;
/// The most labels, as in the policies.
const MOST_LABELS: u64 = 256;
/// The most bytes of an object. The API server stores 1.5 MiB, and an admission adds some 200 KiB.
const MOST_BYTES: u64 = 1 << 20;
/// The most required affinity, anti-affinity and spread terms between pods in a template.
pub const MOST_POD_TERMS: usize = 32;
/// The most requirements, values and namespaces in these terms; of a pod's labels as many are kept.
pub const MOST_POD_RULES: usize = 1024;
/// The most JSON values in the spec of a custom kind, which is kept to be patched.
const MOST_VALUES: u64 = 20_000;

/// Why a workload with a GPU fraction waits if no pool offers any.
const WITHOUT_GPU: &str = "it has a GPU fraction for which its pods request nothing, so they would get no GPU; create it \
     again with a pool whose NodePool lists shares";

/// The caps that are flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Required node affinity terms of a pod template.
    pub terms: u32,
    /// Different resources, and claims of devices, of a pod.
    pub names: u32,
    /// Scheduling gates of a pod, without Sluice's own.
    pub gates: u32,
    /// Pods of one workload at once.
    pub pods: u32,
    /// The termination grace period of a pod.
    pub grace: Duration,
    /// Whether pods may have a GPU fraction for which they request nothing, because their nodes share GPUs by themselves.
    pub assumed_fractions: bool,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            terms: 64,
            names: 32,
            gates: 16,
            pods: 10_000,
            grace: Duration::from_secs(600),
            assumed_fractions: false,
        }
    }
}

/// What an object has of everything that is capped; of each the most in any of its pod templates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Required node affinity terms; with several templates, those of a pod that has to suit all of them.
    pub terms: u64,
    /// Node selectors, requirements of these terms, their values, and tolerations.
    pub rules: u64,
    /// Required affinity, anti-affinity and spread terms between pods.
    pub pod_terms: u64,
    /// Requirements, values and namespaces in these terms.
    pub pod_rules: u64,
    /// Bytes of affinity.
    pub affinity_bytes: u64,
    /// Different resources, and claims of devices.
    pub names: u64,
    /// Scheduling gates that are not Sluice's own.
    pub gates: u64,
    /// Pods at once.
    pub pods: u64,
    /// Pod templates.
    pub templates: u64,
    /// Pools that it names.
    pub pools: u64,
    /// JSON values in its spec, where all of it is kept.
    pub values: u64,
    /// Bytes of its annotations without the records of Sluice, and of the affinity that an admission replaces.
    pub notes: u64,
    /// Labels.
    pub labels: u64,
    /// Bytes of its spec and metadata. Not counted in what is stored.
    pub bytes: u64,
    /// The termination grace period in seconds.
    pub grace: u64,
    /// Whether its pods have a GPU fraction and request nothing for it.
    pub plain_fraction: bool,
}

impl Counts {
    /// The larger of each count.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            terms: self.terms.max(other.terms),
            rules: self.rules.max(other.rules),
            pod_terms: self.pod_terms.max(other.pod_terms),
            pod_rules: self.pod_rules.max(other.pod_rules),
            affinity_bytes: self.affinity_bytes.max(other.affinity_bytes),
            names: self.names.max(other.names),
            gates: self.gates.max(other.gates),
            pods: self.pods.max(other.pods),
            templates: self.templates.max(other.templates),
            pools: self.pools.max(other.pools),
            values: self.values.max(other.values),
            notes: self.notes.max(other.notes),
            labels: self.labels.max(other.labels),
            bytes: self.bytes.max(other.bytes),
            grace: self.grace.max(other.grace),
            plain_fraction: self.plain_fraction || other.plain_fraction,
        }
    }
}

/// One capped count.
struct Measure {
    count: u64,
    cap: u64,
    what: &'static str,
    /// Where the cap comes from.
    cap_of: &'static str,
}

impl Measure {
    fn sentence(&self) -> String {
        let Self { count, cap, what, cap_of } = self;
        format!("it has {count} {what}, more than the {cap} of {cap_of}")
    }
}

impl Caps {
    /// The first cap that an object exceeds, as a clause with cap and count, or why its pods would get no GPU. The grace
    /// period is no part of it: a stored object may keep its own.
    #[must_use]
    pub fn exceeded(&self, counts: &Counts) -> Option<String> {
        let over = |measure: &Measure| measure.count > measure.cap;
        let capped = self.measures(counts).iter().find(|measure| over(measure)).map(Measure::sentence);
        let without_gpu = counts.plain_fraction && !self.assumed_fractions;
        capped.or_else(|| without_gpu.then(|| WITHOUT_GPU.to_owned()))
    }

    /// The first cap that an object exceeds by more than the object before it, as a clause. An object that is stored
    /// already may be changed in everything else. `grace` is the cap of its queue, if that has one of its own.
    #[must_use]
    pub fn exceeded_anew(&self, before: &Counts, now: &Counts, grace: Option<Duration>) -> Option<String> {
        let (most, cap_of) = match grace {
            Some(own) => (own, "maxGrace of its queue"),
            None => (self.grace, "--max-grace"),
        };
        let grace = |counts: &Counts| Measure {
            count: counts.grace,
            cap: most.as_secs(),
            what: "seconds of terminationGracePeriodSeconds",
            cap_of,
        };
        let then = self.measures(before).into_iter().chain([grace(before)]);
        let mut pairs = then.zip(self.measures(now).into_iter().chain([grace(now)]));
        let over = |then: &Measure, now: &Measure| now.count > now.cap && now.count > then.count;
        pairs.find(|(then, now)| over(then, now)).map(|(_, now)| now.sentence())
    }

    fn measures(&self, counts: &Counts) -> [Measure; 14] {
        let of = |count, cap, what, cap_of| Measure { count, cap, what, cap_of };
        let terms = u64::from(self.terms);
        [
            of(counts.terms, terms, "required node affinity terms", "--max-affinity-terms"),
            of(
                counts.rules,
                terms.saturating_mul(RULES_PER_TERM),
                "node selectors, affinity requirements, values of them, and tolerations",
                "16 for each of --max-affinity-terms",
            ),
            of(
                counts.pod_terms,
                MOST_POD_TERMS as u64,
                "required affinity and spread terms between pods",
                "a pod template",
            ),
            of(
                counts.pod_rules,
                MOST_POD_RULES as u64,
                "requirements, values and namespaces in terms between pods",
                "a pod template",
            ),
            of(counts.affinity_bytes, MOST_AFFINITY_BYTES, "bytes of affinity", "a pod template"),
            of(counts.names, self.names.into(), "different resources and claims", "--max-resource-names"),
            of(counts.gates, self.gates.into(), "scheduling gates", "--max-scheduling-gates"),
            of(counts.pods, self.pods.into(), "pods", "--max-pods"),
            of(counts.templates, MOST_TEMPLATES, "pod templates", "one object"),
            of(counts.pools, MOST_POOLS, "pools", "one workload"),
            of(counts.values, MOST_VALUES, "values in its spec", "one object of a custom kind"),
            of(counts.notes, MOST_NOTES, "bytes of annotations and affinity", "one object"),
            of(counts.labels, MOST_LABELS, "labels", "one object"),
            of(counts.bytes, MOST_BYTES, "bytes of spec and metadata", "one object"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cap_is_named_with_the_number_found() {
        let caps = Caps::default();
        let at = Counts {
            terms: 64,
            rules: 1024,
            pod_terms: 32,
            pod_rules: 1024,
            affinity_bytes: 65_536,
            names: 32,
            gates: 16,
            pods: 10_000,
            templates: 256,
            pools: 64,
            values: 20_000,
            notes: 196_608,
            labels: 256,
            bytes: 1_048_576,
            grace: 600,
            plain_fraction: false,
        };
        assert_eq!(caps.exceeded(&at), None);
        assert_eq!(caps.exceeded_anew(&Counts::default(), &at, None), None);
        for (over, expected) in [
            (
                Counts { terms: 65, ..at },
                "it has 65 required node affinity terms, more than the 64 of --max-affinity-terms",
            ),
            (
                Counts { rules: 1025, ..at },
                "it has 1025 node selectors, affinity requirements, values of them, and tolerations, more than the 1024 of 16 for each of --max-affinity-terms",
            ),
            (
                Counts { pod_terms: 33, ..at },
                "it has 33 required affinity and spread terms between pods, more than the 32 of a pod template",
            ),
            (
                Counts { pod_rules: 1025, ..at },
                "it has 1025 requirements, values and namespaces in terms between pods, more than the 1024 of a pod template",
            ),
            (
                Counts { affinity_bytes: 65_537, ..at },
                "it has 65537 bytes of affinity, more than the 65536 of a pod template",
            ),
            (
                Counts { names: 33, ..at },
                "it has 33 different resources and claims, more than the 32 of --max-resource-names",
            ),
            (
                Counts { gates: 17, ..at },
                "it has 17 scheduling gates, more than the 16 of --max-scheduling-gates",
            ),
            (Counts { pods: 10_001, ..at }, "it has 10001 pods, more than the 10000 of --max-pods"),
            (Counts { templates: 257, ..at }, "it has 257 pod templates, more than the 256 of one object"),
            (Counts { pools: 65, ..at }, "it has 65 pools, more than the 64 of one workload"),
            (
                Counts { values: 20_001, ..at },
                "it has 20001 values in its spec, more than the 20000 of one object of a custom kind",
            ),
            (
                Counts { notes: 196_609, ..at },
                "it has 196609 bytes of annotations and affinity, more than the 196608 of one object",
            ),
            (Counts { labels: 257, ..at }, "it has 257 labels, more than the 256 of one object"),
            (
                Counts { bytes: 1_048_577, ..at },
                "it has 1048577 bytes of spec and metadata, more than the 1048576 of one object",
            ),
        ] {
            assert_eq!(caps.exceeded(&over).as_deref(), Some(expected));
            assert_eq!(caps.exceeded_anew(&Counts::default(), &over, None).as_deref(), Some(expected));
            assert_eq!(caps.exceeded_anew(&over, &over, None), None, "an old object stays editable");
        }
    }

    #[test]
    fn a_fraction_that_pods_do_not_request_is_accepted_only_where_nodes_share_gpus_themselves() {
        let (caps, plain) = (Caps::default(), Counts { plain_fraction: true, ..Counts::default() });
        assert_eq!(caps.exceeded(&plain).as_deref(), Some(WITHOUT_GPU));
        assert_eq!(Caps { assumed_fractions: true, ..caps }.exceeded(&plain), None);
    }

    #[test]
    fn the_grace_period_is_judged_where_it_is_written_only() {
        let (caps, own) = (Caps::default(), Some(Duration::from_secs(60)));
        let long = Counts { grace: 601, ..Counts::default() };
        assert_eq!(caps.exceeded(&long), None);
        assert_eq!(
            caps.exceeded_anew(&Counts::default(), &long, None).as_deref(),
            Some("it has 601 seconds of terminationGracePeriodSeconds, more than the 600 of --max-grace")
        );
        assert_eq!(
            caps.exceeded_anew(&Counts::default(), &Counts { grace: 61, ..long }, own).as_deref(),
            Some(
                "it has 61 seconds of terminationGracePeriodSeconds, more than the 60 of maxGrace of its queue"
            )
        );
        let longer = Some(Duration::from_secs(3600));
        assert_eq!(caps.exceeded_anew(&Counts::default(), &long, longer), None);
    }
}
