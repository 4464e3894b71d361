//! The names of the PodGroups that Sluice makes. A PodGroup tells kube-scheduler that the pods of a Job start all or
//! none.

/// The prefix of Sluice's PodGroups. A user makes the PodGroups with other names.
const OWN: &str = "sluice-";
/// The longest part of a Job's name in the name of its PodGroup, which has at most 253 characters.
const STEM: usize = 200;
/// The number of characters that distinguish PodGroups of Jobs with the same name.
const DISTINCTION: usize = 8;

/// The name of the PodGroup of a new Job.
///
/// `job` may be the prefix of a generated name, so the UID of the create request makes the name unique.
#[must_use]
pub fn name_of(job: &str, request: &str) -> String {
    let stem: String = job.chars().take(STEM).collect();
    let distinction: String = request.chars().take(DISTINCTION).collect();
    format!("{OWN}{}-{distinction}", stem.trim_end_matches(['-', '.']))
}

/// Whether Sluice chose this name and makes the PodGroup.
#[must_use]
pub fn is_own(name: &str) -> bool {
    name.starts_with(OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_subdomain_with_a_prefix() {
        let uid = "5f0c0f6e-2f38-4d51-9d55-0d6a7a4f2d11";
        assert_eq!(name_of("train", uid), "sluice-train-5f0c0f6e");
        assert_eq!(name_of("train-", uid), "sluice-train-5f0c0f6e", "a prefix of a generated name");
        let long = format!("{}.b", "a".repeat(STEM - 1));
        assert_eq!(name_of(&long, uid), format!("sluice-{}-5f0c0f6e", "a".repeat(STEM - 1)));
        assert!(is_own(&name_of("train", uid)) && !is_own("train"));
    }
}
