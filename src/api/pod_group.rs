//! The PodGroups that Sluice names: what tells kube-scheduler which pods of a Job start all or none.

/// How the names of Sluice's own PodGroups begin. A PodGroup of another name is its user's, who makes it.
const OWN: &str = "sluice-";
/// How much of a Job's name is in that of its PodGroup, which has 253 characters at most.
const STEM: usize = 200;
/// How many characters tell the PodGroups of Jobs of the same name apart.
const DISTINCTION: usize = 8;

/// The name of the PodGroup of a Job that is not there yet: it may get its own name only later, from a prefix
/// that ends in `-`, so the UID of the request to create it tells it from others.
#[must_use]
pub fn name_of(job: &str, request: &str) -> String {
    let stem: String = job.chars().take(STEM).collect();
    let distinction: String = request.chars().take(DISTINCTION).collect();
    format!("{OWN}{}-{distinction}", stem.trim_end_matches(['-', '.']))
}

/// Whether Sluice has given this name, and so makes the PodGroup.
#[must_use]
pub fn is_own(name: &str) -> bool {
    name.starts_with(OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_subdomain_that_tells_whose_it_is() {
        let uid = "5f0c0f6e-2f38-4d51-9d55-0d6a7a4f2d11";
        assert_eq!(name_of("train", uid), "sluice-train-5f0c0f6e");
        assert_eq!(name_of("train-", uid), "sluice-train-5f0c0f6e", "a name yet to be completed");
        let long = format!("{}.b", "a".repeat(STEM - 1));
        assert_eq!(name_of(&long, uid), format!("sluice-{}-5f0c0f6e", "a".repeat(STEM - 1)));
        assert!(is_own(&name_of("train", uid)) && !is_own("train"));
    }
}
