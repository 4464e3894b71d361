//! Names of Kueue's objects as names in Sluice, which are DNS labels.

use super::super::note::ImportError;
use crate::api::values::is_dns_label;

/// The name as a DNS label: dots become dashes, and a name that is taken gets the kind at its end.
///
/// # Errors
/// When the name is longer than a label or has other characters.
pub fn label(name: &str, kind: &str, taken: &dyn Fn(&str) -> bool) -> Result<String, ImportError> {
    let mut label = name.replace('.', "-");
    if taken(&label) {
        label = format!("{label}-{}", kind.to_ascii_lowercase());
    }
    match is_dns_label(&label) && !taken(&label) {
        true => Ok(label),
        false => {
            let problem =
                format!("{label:?} is not free or no DNS label of at most 63 characters; rename it first");
            Err(ImportError::new(format!("{kind} {name}"), "metadata.name", problem))
        }
    }
}
