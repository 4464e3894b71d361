//! The times of a Question, in the forms that the commands take. Days and months are those of UTC, as the periods of a report are.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::scope::Refusal;
use crate::dates::When;

/// Writes out the times of a Question that is asked at `now`.
///
/// # Errors
/// The field that is wrong, with the forms that there are.
pub fn write_out(spec: &mut Value, now: Timestamp) -> Result<(), Refusal> {
    type Bound = fn(&When) -> Timestamp;
    let bounds: [(&str, &str, Bound); 5] = [
        ("history", "from", When::beginning),
        ("history", "to", When::end),
        ("report", "from", When::beginning_of_report),
        ("report", "to", When::end),
        ("report", "cuts", When::beginning),
    ];
    for (asked, field, bound) in bounds {
        let Some(value) = spec.get_mut(asked).and_then(|asked| asked.get_mut(field)) else { continue };
        let path = format!("spec.{asked}.{field}");
        match value {
            Value::Array(cuts) => {
                for cut in cuts {
                    write(cut, &path, bound, now)?;
                }
            }
            one => write(one, &path, bound, now)?,
        }
    }
    Ok(())
}

fn write(
    value: &mut Value,
    path: &str,
    bound: fn(&When) -> Timestamp,
    now: Timestamp,
) -> Result<(), Refusal> {
    let text = match &*value {
        Value::Null => return Ok(()),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.parse::<Timestamp>().is_ok() {
        return Ok(());
    }
    let when = When::read(&text, &now.to_zoned(TimeZone::UTC))
        .map_err(|problem| Refusal::invalid(format!("{path}: {problem}")))?;
    // What has not passed yet has no history.
    *value = bound(&when).min(now).to_string().into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(mut spec: Value) -> Result<Value, String> {
        let now = "2026-11-25T10:44:00Z".parse().expect("a time");
        write_out(&mut spec, now).map_err(|refusal| refusal.message)?;
        Ok(spec)
    }

    #[test]
    fn times_are_read_as_the_commands_read_them() {
        for (spec, expected) in [
            (
                json!({"report": {"kind": "Teams", "from": "2026-10", "to": "2026-10"}}),
                json!({"report": {"kind": "Teams", "from": "2026-10-01T00:00:00Z", "to": "2026-11-01T00:00:00Z"}}),
            ),
            (
                json!({"report": {"from": "7d", "to": "today", "cuts": ["2026-11-20", "2026-11-21T12:00:00+01:00"]}}),
                json!({"report": {"from": "2026-11-18T10:30:00Z", "to": "2026-11-25T10:44:00Z", "cuts": ["2026-11-20T00:00:00Z", "2026-11-21T12:00:00+01:00"]}}),
            ),
            (
                json!({"history": {"from": "12h", "to": "2026-11-25T08:00", "name": "2026-11"}}),
                json!({"history": {"from": "2026-11-24T22:44:00Z", "to": "2026-11-25T08:00:00Z", "name": "2026-11"}}),
            ),
            (
                json!({"history": {"from": null}, "queue": {}}),
                json!({"history": {"from": null}, "queue": {}}),
            ),
        ] {
            assert_eq!(written(spec), Ok(expected));
        }
    }

    #[test]
    fn a_time_in_another_form_is_refused_with_those_that_there_are() {
        for (spec, problem) in [
            (
                json!({"report": {"from": "2026-13"}}),
                "spec.report.from: \"2026-13\": expected a day (2026-11-01), a month (2026-11)",
            ),
            (json!({"history": {"to": 2026}}), "spec.history.to: \"2026\": expected a day"),
            (json!({"report": {"cuts": ["soon"]}}), "spec.report.cuts: \"soon\": expected a day"),
        ] {
            assert!(written(spec).is_err_and(|message| message.starts_with(problem)), "{problem}");
        }
    }
}
