//! The queries of the dashboards, as Grafana sends them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::tools::monitoring;

/// The dashboards' files.
pub const BOARDS: [&str; 2] = ["team.json", "cluster.json"];
/// Grafana's built-in variables, at the resolution of the scrapes.
const BUILT_IN: [(&str, &str); 2] = [("__rate_interval", "15s"), ("__range", "1h")];

/// A dashboard.
pub struct Board {
    pub file: &'static str,
    pub json: Value,
}

/// A query of a panel.
#[derive(Clone, Debug)]
pub struct Query {
    /// Dashboard, panel and reference, for error messages.
    pub name: String,
    /// The expression with all variables replaced.
    pub expression: String,
    /// Whether it is an instant query.
    pub instant: bool,
}

/// A variable with values from Prometheus.
#[derive(Clone, Debug)]
pub struct Choice {
    pub name: String,
    /// `label_values(series, label)` in parts, with all variables replaced.
    pub series: String,
    pub label: String,
}

impl Board {
    pub fn load(file: &'static str) -> Result<Self> {
        let path = monitoring().join("dashboards").join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Self { file, json: serde_json::from_str(&text).with_context(|| path.display().to_string())? })
    }

    /// The panels, without the headings.
    pub fn panels(&self) -> impl Iterator<Item = &Value> {
        list(&self.json["panels"]).filter(|panel| panel["type"] != "row")
    }

    /// The variables of one kind.
    fn variables(&self, kind: &str) -> impl Iterator<Item = &Value> {
        list(&self.json["templating"]["list"]).filter(move |variable| variable["type"] == kind)
    }

    /// The value of each variable: the chosen one, or all where several can be chosen.
    fn values<'a>(&'a self, chosen: &'a BTreeMap<&str, &str>) -> Result<BTreeMap<&'a str, &'a str>> {
        let mut values = BTreeMap::from(BUILT_IN);
        for variable in self.variables("query") {
            let name = text(&variable["name"]);
            let value = match variable["allValue"].as_str() {
                Some(all) if variable["includeAll"] == true => all,
                _ => chosen.get(name).with_context(|| format!("no value is chosen for ${name}"))?,
            };
            values.insert(name, value);
        }
        Ok(values)
    }

    /// Every query of every panel.
    pub fn queries(&self, chosen: &BTreeMap<&str, &str>) -> Result<Vec<Query>> {
        let values = self.values(chosen)?;
        let mut queries = Vec::new();
        for panel in self.panels() {
            ensure!(
                list(&panel["targets"]).next().is_some(),
                "{}: {} has no query",
                self.file,
                panel["title"]
            );
            for target in list(&panel["targets"]) {
                let name = format!("{}: {} {}", self.file, text(&panel["title"]), text(&target["refId"]));
                let expression = fill(text(&target["expr"]), &values).with_context(|| name.clone())?;
                queries.push(Query { name, expression, instant: target["instant"] == true });
            }
        }
        Ok(queries)
    }

    /// Every variable with queried values.
    pub fn choices(&self, chosen: &BTreeMap<&str, &str>) -> Result<Vec<Choice>> {
        let values = self.values(chosen)?;
        let choice = |variable: &Value| {
            let (name, query) = (text(&variable["name"]), text(&variable["query"]["query"]));
            let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (series, label) = inside
                .and_then(|inside| inside.rsplit_once(','))
                .with_context(|| format!("{}: ${name} is queried with {query}", self.file))?;
            let series = fill(series, &values)?;
            Ok(Choice { name: format!("{}: ${name}", self.file), series, label: label.trim().to_owned() })
        };
        self.variables("query").map(choice).collect()
    }

    /// Defects that make a dashboard hard to read or impossible to import.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |panel: &Value, what: &str| faults.push(format!("{}: {what}", panel["title"]));
        let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for panel in list(&self.json["panels"]) {
            if !ids.insert(panel["id"].as_u64()) {
                fault(panel, "has the id of another panel");
            }
            let at = |key: &str| panel["gridPos"][key].as_u64().unwrap_or(u64::MAX);
            if at("x").saturating_add(at("w")) > 24 || at("h") > 30 {
                fault(panel, "does not fit the width of 24");
                continue;
            }
            for field in (0..at("w")).flat_map(|x| (0..at("h")).map(move |y| (x, y))) {
                if !taken.insert((at("x") + field.0, at("y") + field.1)) {
                    fault(panel, "overlaps another panel");
                    break;
                }
            }
        }
        for panel in self.panels() {
            if text(&panel["description"]).split_whitespace().count() < 5 {
                fault(panel, "has no description");
            }
            if text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty() {
                fault(panel, "has no unit");
            }
            let sources = std::iter::once(panel).chain(list(&panel["targets"]));
            if sources.map(|one| &one["datasource"]["uid"]).any(|uid| uid != "${datasource}") {
                fault(panel, "does not query the chosen Prometheus");
            }
            if list(&panel["targets"]).any(|target| text(&target["legendFormat"]).is_empty()) {
                fault(panel, "has a series without a name");
            }
        }
        if self.variables("datasource").count() != 1 {
            faults.push("there is not exactly one variable for the Prometheus".to_owned());
        }
        faults
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Replaces `$name` and `${name}`.
fn fill(expression: &str, values: &BTreeMap<&str, &str>) -> Result<String> {
    let (mut filled, mut rest) = (String::new(), expression);
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        let braced = after.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let (name, tail) = braced.unwrap_or_else(|| {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
            after.split_at(end)
        });
        let Some(value) = values.get(name) else { bail!("there is no variable ${name} for {expression}") };
        filled.push_str(value);
        rest = tail;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// The names of the metrics in an expression: words that are neither functions nor labels.
pub fn metrics(expression: &str) -> BTreeSet<String> {
    const PREFIXES: [&str; 3] = ["sluice_", "apiserver_", "process_"];
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(|c| !word(c));
    words.filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix))).map(str::to_owned).collect()
}

#[test]
fn variables_are_filled_in_as_grafana_does() -> Result<()> {
    let values = BTreeMap::from([("team", "a"), ("__range", "1h")]);
    assert_eq!(fill(r#"x{team="$team"}[${__range}]"#, &values)?, r#"x{team="a"}[1h]"#);
    assert!(fill("x[$__rate]", &values).is_err());
    Ok(())
}

#[test]
fn every_panel_has_a_description_and_queries_the_chosen_prometheus() -> Result<()> {
    for file in BOARDS {
        let board = Board::load(file)?;
        let faults = board.faults();
        assert!(faults.is_empty(), "{file}: {}", faults.join("; "));
        let chosen = BTreeMap::from([("team", "a"), ("pool", "default"), ("resource", "nvidia.com/gpu")]);
        assert!(board.queries(&chosen)?.len() >= board.panels().count());
    }
    Ok(())
}
