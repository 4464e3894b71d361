//! Sentences of the engine as the users of one namespace may read them: workloads of other namespaces are teams.
//!
//! Sentences name workloads as `namespace/name`. Every word of that form is replaced unless it is of the own namespace,
//! so a new sentence of the engine hides too much rather than too little.

use crate::engine::types::Name;

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
        // A dot at the end is the sentence's.
        let name = rest[..word].trim_end_matches('.');
        match other_namespace(own, name).filter(|_| !is_resource(name)) {
            Some(namespace) => {
                let begins = shown.ends_with(". ") || shown.is_empty() && rest.len() > word;
                shown.push_str(if begins { "A workload of " } else { "a workload of " });
                match team_of(namespace) {
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

/// The namespace of a word that names a workload of another namespace.
fn other_namespace<'a>(own: &str, word: &'a str) -> Option<&'a str> {
    let (namespace, name) = word.split_once('/')?;
    // A namespace has no dot in its name; the prefix of a resource or label mostly has.
    let other = !namespace.is_empty() && !name.is_empty() && namespace != own && !namespace.contains('.');
    other.then_some(namespace)
}

/// Whether a character may be part of `namespace/name`.
fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '/' | '_' | ':')
}
