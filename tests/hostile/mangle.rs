//! Changes that make a real object a hostile one: other values and types, absurd numbers, texts in every form that some
//! reader parses, fields that are gone, twice or elsewhere, and Sluice's own marks with anything in them.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::forms::{FIELDS, MARKER, MARKS, NUMBERS, POISONS, RAW, TEXTS, suitable};

/// No change is made to an object that has more values than this.
const LARGEST: usize = 4_000;

/// One change of an object. The numbers select from lists, or from the values of the object.
#[derive(Clone, Debug)]
pub enum Change {
    /// Another value, of any type.
    Poison { at: u32, value: u32 },
    /// Another value of the same type.
    Alike { at: u32, value: u32 },
    /// A field or list entry less.
    Without { at: u32 },
    /// A list or map with its last entry many times.
    Many { at: u32, times: u16 },
    /// A value that stands elsewhere in the object.
    Graft { at: u32, from: u32 },
    /// An annotation or label that Sluice reads.
    Mark { key: u32, text: u32 },
    /// A field that Sluice reads, with a value that suits it or with any.
    Field { field: u32, value: u32 },
}

/// A few changes.
pub fn changes(most: usize) -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        2 => (any::<u32>(), any::<u32>()).prop_map(|(at, value)| Change::Poison { at, value }),
        3 => (any::<u32>(), any::<u32>()).prop_map(|(at, value)| Change::Alike { at, value }),
        1 => any::<u32>().prop_map(|at| Change::Without { at }),
        1 => (any::<u32>(), prop_oneof![9 => 2..40_u16, 1 => 40..1500_u16]).prop_map(|(at, times)| Change::Many { at, times }),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(at, from)| Change::Graft { at, from }),
        4 => (any::<u32>(), any::<u32>()).prop_map(|(key, text)| Change::Mark { key, text }),
        4 => (any::<u32>(), any::<u32>()).prop_map(|(field, value)| Change::Field { field, value }),
    ];
    prop::collection::vec(change, 0..=most)
}

/// Makes the changes.
pub fn mangle(object: &mut Value, changes: &[Change]) {
    for change in changes {
        if size(object) <= LARGEST {
            apply(object, change);
        }
    }
}

/// The JSON text, in which each marker of [`RAW`] is text that a [`Value`] cannot hold.
pub fn text(object: &Value) -> String {
    let mut text = object.to_string();
    if text.contains(MARKER) {
        for (index, raw) in RAW.iter().enumerate() {
            text = text.replace(&format!("\"{MARKER}{index}\""), raw);
        }
    }
    text
}

fn apply(object: &mut Value, change: &Change) {
    let pick = |list: &[Value], index: u32| list[index as usize % list.len()].clone();
    match *change {
        Change::Poison { at, value } => *nth(object, at) = pick(&POISONS, value),
        Change::Alike { at, value } => {
            let here = nth(object, at);
            match here {
                Value::String(_) => *here = json!(TEXTS[value as usize % TEXTS.len()]),
                Value::Number(_) => *here = pick(&NUMBERS, value),
                Value::Bool(flag) => *flag = !*flag,
                Value::Array(list) if !list.is_empty() => list.rotate_left(1),
                Value::Object(map) => {
                    map.insert(TEXTS[value as usize % TEXTS.len()].to_owned(), pick(&POISONS, value / 7));
                }
                _ => {}
            }
        }
        Change::Without { at } => match nth(object, at) {
            Value::Array(list) => drop(list.pop()),
            Value::Object(map) => {
                let key = map.keys().nth(at as usize % map.len().max(1)).cloned();
                key.and_then(|key| map.remove(&key));
            }
            other => *other = Value::Null,
        },
        Change::Many { at, times } => match nth(object, at) {
            Value::Array(list) => {
                let last = list.last().cloned().unwrap_or_default();
                let times = usize::from(times).min(LARGEST / size(&last)).max(1);
                list.extend(std::iter::repeat_n(last, times));
            }
            Value::Object(map) => {
                let last = map.values().next_back().cloned().unwrap_or_default();
                let times = usize::from(times).min(LARGEST / size(&last)).max(1);
                map.extend((0..times).map(|index| (format!("x{index}"), last.clone())));
            }
            Value::String(text) => *text = text.repeat(usize::from(times)),
            _ => {}
        },
        Change::Graft { at, from } => {
            let value = nth(object, from).clone();
            if size(&value) < LARGEST / 4 {
                *nth(object, at) = value;
            }
        }
        Change::Mark { key, text } => {
            let (place, name) = MARKS[key as usize % MARKS.len()];
            let suitable = suitable(name);
            let text = match text % 4 {
                0..=2 if !suitable.is_empty() => suitable[text as usize / 4 % suitable.len()],
                _ => TEXTS[text as usize / 4 % TEXTS.len()],
            };
            set(object, &["metadata", place, name], json!(text));
        }
        Change::Field { field, value } => {
            let (path, values) = &FIELDS[field as usize % FIELDS.len()];
            let chosen = if value % 4 == 0 { pick(&POISONS, value / 4) } else { pick(values, value / 4) };
            let base = templates(object);
            let path: Vec<&str> = path.split('/').collect();
            match (path.split_first(), base.as_slice()) {
                (Some((&"template", rest)), [_, ..]) => {
                    let base = &base[field as usize / FIELDS.len() % base.len()];
                    let whole: Vec<&str> = base.split('/').skip(1).chain(rest.iter().copied()).collect();
                    set(object, &whole, chosen);
                }
                (Some((&"template", rest)), []) => set(object, rest, chosen),
                _ => set(object, &path, chosen),
            }
        }
    }
}

/// Pointers to whatever looks like a pod template, the object of a pod itself included.
fn templates(object: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        let Some(map) = value.as_object() else {
            for (index, one) in value.as_array().into_iter().flatten().enumerate().take(4) {
                walk(one, &format!("{at}/{index}"), found);
            }
            return;
        };
        if value["spec"]["containers"].is_array() {
            found.push(at.to_owned());
        }
        for (key, one) in map.iter().take(16).filter(|(key, _)| !key.contains(['/', '~'])) {
            walk(one, &format!("{at}/{key}"), found);
        }
    }
    let mut found = Vec::new();
    walk(object, "", &mut found);
    found
}

fn set(object: &mut Value, path: &[&str], value: Value) {
    let mut here = object;
    for token in path {
        let token = token.replace("~1", "/");
        let index = token.parse::<usize>().ok();
        let index = index.filter(|index| here.as_array().is_some_and(|list| *index < list.len()));
        if let Some(index) = index {
            here = &mut here[index];
            continue;
        }
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[token];
    }
    *here = value;
}

/// The number of values in a tree.
pub fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(map) => map.values().map(size).sum(),
        _ => 0,
    }
}

/// A value of the tree, in the order of the text.
fn nth(value: &mut Value, number: u32) -> &mut Value {
    fn find<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
        if *left == 0 {
            return Some(value);
        }
        *left -= 1;
        match value {
            Value::Array(list) => list.iter_mut().find_map(|one| find(one, left)),
            Value::Object(map) => map.values_mut().find_map(|one| find(one, left)),
            _ => None,
        }
    }
    // The object as a whole is replaced rarely.
    let mut left = 1 + number as usize % size(value).saturating_sub(1).max(1);
    if size(value) == 1 || number.is_multiple_of(997) {
        left = 0;
    }
    find(value, &mut left).expect("the tree has as many values")
}
