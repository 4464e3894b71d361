//! Lists of objects, as `kubectl get -o yaml` prints them.

use serde_json::Value;

use super::{Fault, text};

/// The kind of a list and its version.
pub(super) const LIST: &str = "List";
const API_VERSION: &str = "v1";

/// The items of a List, each with its number from 1; any other document as it is.
pub(super) fn unpack(document: Value) -> Result<Vec<(Option<usize>, Value)>, Fault> {
    let Value::Object(mut list) = document else { return Ok(vec![(None, document)]) };
    if list.get("kind").and_then(Value::as_str) != Some(LIST) {
        return Ok(vec![(None, Value::Object(list))]);
    }
    let version = text(&list, "apiVersion")?;
    if version != API_VERSION {
        let fault = format!("{version} is not {API_VERSION}, the version of {LIST}");
        return Err(("apiVersion".to_owned(), fault));
    }
    match list.remove("items") {
        Some(Value::Array(items)) => {
            Ok(items.into_iter().enumerate().map(|(index, item)| (Some(index + 1), item)).collect())
        }
        Some(_) => Err(("items".to_owned(), "is not a list".to_owned())),
        None => Err(("items".to_owned(), "is missing".to_owned())),
    }
}
