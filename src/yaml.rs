//! YAML of users as values, and what is wrong with it in their words.

use std::fmt;

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Error, MessageFormatter, Options, UserMessageFormatter};

/// How far a text is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A file named on the command line: it may be of any size, and only its aliases are bounded.
    Own,
    /// A text that came with a request: its size is bounded too.
    Foreign,
}

/// What aliases of one text may stand for, in bytes beyond the text itself.
const MOST_BYTES_OF_ALIASES: usize = 64 << 20;
/// How deep the parts of a text may be inside of each other; a CustomResourceDefinition has about 40 levels.
const MOST_LEVELS: usize = 64;

/// Why a text is not YAML, or not allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The number of the document, from 1; empty ones do not count.
    pub document: usize,
    /// The line and the column, from 1, where known.
    pub place: Option<(u64, u64)>,
    /// What is wrong there.
    pub message: String,
    /// The document, if all that is wrong is that a key is there twice.
    pub read: Option<Value>,
}

impl Problem {
    /// The place: `line 5, column 1`.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        self.place.map(|(line, column)| format!("line {line}, column {column}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The documents of a text, without empty ones. Only `true` and `false` are booleans, so `on` and `n` may be names.
///
/// # Errors
/// The first [`Problem`].
pub fn documents(text: &str, trust: Trust) -> Result<Vec<Value>, Problem> {
    read(text, trust, DuplicateKeyPolicy::Error).map_err(|error| {
        let location = error.location();
        let document = document_at(text, location.map_or(1, |location| location.line()));
        let message = message(error.without_snippet(), trust);
        let is_twice = matches!(error.without_snippet(), Error::DuplicateMappingKey { .. });
        let all = if is_twice { read(text, trust, DuplicateKeyPolicy::FirstWins).ok() } else { None };
        let place = location.map(|at| (at.line(), at.column()));
        Problem { document, place, message, read: all.and_then(|all| all.into_iter().nth(document - 1)) }
    })
}

fn read(text: &str, trust: Trust, duplicate_keys: DuplicateKeyPolicy) -> Result<Vec<Value>, Error> {
    serde_saphyr::from_multiple_with_options(text, options(text, trust, duplicate_keys))
}

/// The options of the parser. What aliases stand for counts as if it were written, up to a million values, so the memory that a text
/// takes is bounded by its own size and a constant.
fn options(text: &str, trust: Trust, duplicate_keys: DuplicateKeyPolicy) -> Options {
    let budget = match trust {
        Trust::Own => serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_documents: usize::MAX,
            max_aliases: usize::MAX,
            max_anchors: usize::MAX,
            max_merge_keys: usize::MAX,
            enforce_alias_anchor_ratio: false,
            // Two characters of an escape may stand for three bytes.
            max_total_scalar_bytes: text.len().saturating_mul(2).saturating_add(MOST_BYTES_OF_ALIASES),
            max_depth: MOST_LEVELS,
        },
        Trust::Foreign => serde_saphyr::budget! {},
    };
    serde_saphyr::options! {
        budget: budget, strict_booleans: true, with_snippet: false, duplicate_keys: duplicate_keys,
    }
}

/// The sentence about an error, without its place.
fn message(error: &Error, trust: Trust) -> String {
    match error {
        Error::AliasError { error, .. } => message(error, trust),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key {key} is there twice"),
        Error::DuplicateMappingKey { key: None, .. } => "a key is there twice".to_owned(),
        Error::NullIntoString { .. } => "a key is empty".to_owned(),
        Error::UnknownAnchor { .. } => "the alias stands for nothing".to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "the alias is a part of what it stands for".to_owned()
        }
        Error::Budget { breach: serde_saphyr::budget::BudgetBreach::Depth { .. }, .. } => {
            "it is nested too deeply".to_owned()
        }
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => "the aliases stand for too much".to_owned(),
        Error::Budget { .. } if trust == Trust::Own => "the aliases stand for too much".to_owned(),
        Error::Budget { .. } => "the text is too large".to_owned(),
        other => {
            let said = UserMessageFormatter.format_message(other);
            match said.lines().next() {
                Some("recursion limit exceeded") => "it is nested too deeply".to_owned(),
                Some(said) => said.to_owned(),
                None => "it is not YAML".to_owned(),
            }
        }
    }
}

/// The number of the document with this line, not counting empty ones.
fn document_at(text: &str, line: u64) -> usize {
    let mut documents = 0;
    let mut empty = true;
    for (_, line) in (0..line).zip(text.lines()) {
        if line.starts_with("---") {
            empty = true;
        } else if empty && !line.trim_start().starts_with('#') && !line.trim().is_empty() {
            empty = false;
            documents += 1;
        }
    }
    documents.max(1)
}

/// The field and the problem of an error of serde, from the path at which it stopped and what it says. The field is empty for the
/// whole value.
#[must_use]
pub fn fault(path: &str, message: &str) -> (String, String) {
    let path = if path == "." { "" } else { path };
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
    match missing {
        Some((field, _)) if path.is_empty() => (field.to_owned(), "is missing".to_owned()),
        Some((field, _)) => (format!("{path}.{field}"), "is missing".to_owned()),
        None => (path.to_owned(), plainly(message)),
    }
}

/// What serde says about a value of the wrong form, without the names of types in the program: `expected a whole number, not "2"`.
fn plainly(message: &str) -> String {
    // Errors of serde_json may end with a place in a text that the program has made.
    let message = message.split_once(" at line ").map_or(message, |(before, _)| before);
    if let Some((unknown, known)) =
        message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, expected "))
    {
        let known = known.trim_start_matches("one of ").replace('`', "").replace(" or ", ", ");
        return format!("{unknown:?} is none of {known}");
    }
    let faults = ["invalid type: ", "invalid value: "];
    let fault = faults.into_iter().find_map(|prefix| message.strip_prefix(prefix));
    // What is expected stands last; a text before it may have the same words.
    match fault.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => format!("expected {}, not {}", form(expected), value(found)),
        None => message.to_owned(),
    }
}

/// The form that a type of the program has in a document.
fn form(expected: &str) -> &str {
    match expected {
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "f32" | "f64" => "a number",
        "a string" | "string" | "string or map" | "borrowed string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "Quantity" => "an amount",
        "IntOrString" => "a whole number or a text",
        _ if expected.starts_with("struct ") => "a map",
        // The types of k8s-openapi name themselves alone.
        _ if expected.starts_with(|first: char| first.is_ascii_uppercase()) && !expected.contains(' ') => {
            "a map"
        }
        other => other,
    }
}

/// A value as serde names it, as it is written.
fn value(found: &str) -> &str {
    match found {
        "sequence" => "a list",
        "map" => "a map",
        "null" | "unit value" | "Option value" => "null",
        _ => match found.split_once(' ') {
            Some(("string", text)) => text,
            Some(("integer" | "boolean" | "character", text)) => text.trim_matches('`'),
            Some(("floating", text)) => text.trim_start_matches("point ").trim_matches('`'),
            _ => found,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn own(text: &str) -> Result<Vec<Value>, String> {
        documents(text, Trust::Own).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_file_of_the_user_may_have_any_number_of_values_and_documents() {
        let list = format!("items:\n{}", "- {a: 1}\n".repeat(100_000));
        assert_eq!(own(&list).map(|all| all[0]["items"].as_array().map(Vec::len)), Ok(Some(100_000)));
        assert_eq!(own(&"---\na: 1\n".repeat(2_000)).map(|all| all.len()), Ok(2_000));
        assert_eq!(
            documents(&list, Trust::Foreign).map_err(|problem| problem.message),
            Err("the text is too large".to_owned())
        );
    }

    #[test]
    fn words_that_were_booleans_once_are_texts() {
        assert_eq!(own("{a: on, b: n, c: true}"), Ok(vec![json!({"a": "on", "b": "n", "c": true})]));
    }

    #[test]
    fn aliases_that_stand_for_too_much_are_an_error() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let before = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![before; 10].join(", "));
        }
        // Few values, each of which is large.
        let large = format!("a: &a {}\nb:\n{}", "x".repeat(1 << 20), "- *a\n".repeat(200));
        for (text, trust) in
            [(&bomb, Trust::Own), (&large, Trust::Own), (&bomb, Trust::Foreign), (&large, Trust::Foreign)]
        {
            let problem = documents(text, trust).expect_err("it is a bomb");
            let said = ["the aliases stand for too much", "the text is too large"];
            assert!(said.contains(&problem.message.as_str()), "{problem}");
        }
        assert_eq!(own("a: &a {b: 1}\nc: *a\n"), Ok(vec![json!({"a": {"b": 1}, "c": {"b": 1}})]));
    }

    #[test]
    fn a_problem_is_said_with_its_place_and_without_words_of_the_parser() {
        for (text, said) in [
            (": : :", "line 1, column 1: a key is empty"),
            ("a: 1\n---\nb: 1\nb: 2", "line 4, column 1: the key b is there twice"),
            ("a: *b", "line 1, column 4: the alias stands for nothing"),
        ] {
            let found = own(text).expect_err(said);
            assert!(found.starts_with(said) && !found.contains("Option"), "{found}");
        }
        for levels in [100, 5_000] {
            let found =
                own(&format!("{}{}", "[".repeat(levels), "]".repeat(levels))).expect_err("it is deep");
            assert!(found.ends_with(": it is nested too deeply"), "{found}");
        }
        let twice = documents("a: 1\n---\nb: 1\nb: 2", Trust::Own).expect_err("b is there twice");
        assert_eq!((twice.document, twice.read), (2, Some(json!({"b": 1}))));
    }

    #[test]
    fn the_names_of_types_are_no_part_of_a_message() {
        #[derive(Debug, Deserialize)]
        enum Choice {
            One,
            Two,
        }
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only its form matters")]
        struct Form {
            number: i32,
            count: u32,
            flag: bool,
            text: String,
            list: Vec<i32>,
            choice: Choice,
        }
        let right = json!({"number": 1, "count": 1, "flag": true, "text": "", "list": [], "choice": "One"});
        for (field, wrong, said) in [
            ("number", json!("2"), "expected a whole number, not \"2\""),
            ("number", json!(2.5), "expected a whole number, not 2.5"),
            ("count", json!(-1), "expected a whole number that is not negative, not -1"),
            ("flag", json!("yes"), "expected true or false, not \"yes\""),
            ("text", json!(5), "expected a text, not 5"),
            ("text", json!(true), "expected a text, not true"),
            ("text", json!(null), "expected a text, not null"),
            ("list", json!({}), "expected a list, not a map"),
            ("choice", json!("Three"), "\"Three\" is none of One, Two"),
        ] {
            let mut value = right.clone();
            value[field] = wrong;
            let error = serde_json::from_value::<Form>(value).expect_err(said).to_string();
            assert_eq!(plainly(&error), said, "{error}");
        }
        let error =
            |value: Value| serde_json::from_value::<Form>(value).expect_err("it is wrong").to_string();
        assert_eq!(plainly(&error(json!(null))), "expected a map, not null");
        let missing = error(json!({}));
        for (path, field) in [(".", "number"), ("spec.list[0]", "spec.list[0].number")] {
            assert_eq!(fault(path, &missing), (field.to_owned(), "is missing".to_owned()));
        }
        assert_eq!(plainly("invalid type: sequence, expected JobSpec"), "expected a map, not a list");
        assert_eq!(plainly("a sentence of its own"), "a sentence of its own");
        assert!(matches!((Choice::One, Choice::Two), (Choice::One, Choice::Two)));
    }
}
