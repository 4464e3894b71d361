//! Sentences of the engine as the users of one namespace may read them: workloads of other namespaces are teams.
//!
//! Sentences name workloads as `namespace/name`. Every word that may be such a name is replaced unless it is of the own
//! namespace, so a new sentence of the engine hides too much rather than too little: a namespace that has been deleted,
//! or has lost its team, is still hidden. What cannot be a name, or is a known phrase of Kubernetes, stays as it is.

use crate::engine::types::Name;

/// What messages of kube-scheduler have in the form of a name: `didn't match Pod's node affinity/selector`.
const PHRASES: &[&str] = &["affinity/selector"];

/// The sentence without names of workloads of other namespaces. `is_resource` knows the resources that the workload
/// requests, because their names look alike; `team_of` gives the team of a namespace.
pub fn shown_in(
    own: &str,
    text: &str,
    is_resource: impl Fn(&str) -> bool,
    team_of: impl Fn(&str) -> Option<Name>,
) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if word == 0 {
            let next = rest.chars().next().map_or(rest.len(), char::len_utf8);
            shown.push_str(&rest[..next]);
            rest = &rest[next..];
            continue;
        }
        // A dot or colon at the end is the sentence's.
        let name = rest[..word].trim_end_matches(['.', ':']);
        let other = other_namespace(own, name).filter(|_| !is_resource(name));
        let other = other.map(|namespace| (namespace, team_of(namespace)));
        match other.filter(|(_, team)| team.is_some() || !is_no_name(name)) {
            Some((_, team)) => {
                let begins = shown.ends_with(". ") || shown.is_empty() && rest.len() > word;
                shown.push_str(if begins { "A workload of " } else { "a workload of " });
                match team {
                    Some(team) => shown.push_str(&format!("team {team}")),
                    None => shown.push_str("another namespace"),
                }
            }
            None => shown.push_str(name),
        }
        shown.push_str(&rest[name.len()..word]);
        rest = &rest[word..];
    }
    shown
}

/// The names of a list, as many as are hidden alike in one: `2 workloads of team blue, a/z`.
pub fn counted(names: &[String]) -> Vec<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let shown = |(name, count): (&str, usize)| match name.strip_prefix("a workload of") {
        Some(rest) if count > 1 => format!("{count} workloads of{rest}"),
        _ => name.to_owned(),
    };
    counts.into_iter().map(shown).collect()
}

/// The namespace of a word that may name a workload of another namespace.
fn other_namespace<'a>(own: &str, word: &'a str) -> Option<&'a str> {
    let (before, name) = word.split_once('/')?;
    // What a sentence writes in front of a name is no part of it.
    let namespace = before.rsplit([':', '_']).next().unwrap_or(before);
    let may = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    // A namespace has no dot in its name; the prefix of a resource or label mostly has.
    let is_namespace = !namespace.is_empty() && namespace.chars().all(may);
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    (is_namespace && is_name && namespace != own).then_some(namespace)
}

/// Whether a word in the form of a name is a count, as in `0/5 nodes are available`, or a phrase of Kubernetes. It still
/// is a name where a namespace of that name has a team.
fn is_no_name(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    PHRASES.contains(&word) || word.split('/').all(digits)
}

/// Whether a character may be part of `namespace/name`.
fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '/' | '_' | ':')
}
