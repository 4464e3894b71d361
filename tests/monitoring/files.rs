//! The rules and the objects generated from the files, without a cluster.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::boards::{BOARDS, text};
use crate::tools::{monitoring, promtool};

fn path(file: &str) -> String {
    monitoring().join(file).display().to_string()
}

fn yaml(file: &str) -> Result<Value> {
    let content = std::fs::read_to_string(path(file)).with_context(|| path(file))?;
    serde_saphyr::from_str(&content).with_context(|| path(file))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Every rule.
pub fn rules() -> Result<Vec<Value>> {
    let file = yaml("rules.yaml")?;
    Ok(list(&file["groups"]).flat_map(|group| list(&group["rules"])).cloned().collect())
}

#[tokio::test]
async fn promtool_accepts_the_rules_and_their_tests_pass() -> Result<()> {
    promtool(&["check", "rules", &path("rules.yaml")]).await?;
    promtool(&["test", "rules", &path("rules_test.yaml")]).await?;
    Ok(())
}

#[test]
fn each_alert_has_tests_that_fire_and_do_not_fire_and_a_section_in_the_readme() -> Result<()> {
    let tests = yaml("rules_test.yaml")?;
    let cases: Vec<&Value> = list(&tests["tests"]).flat_map(|test| list(&test["alert_rule_test"])).collect();
    let readme = std::fs::read_to_string(path("README.md"))?;
    let alerts: Vec<Value> = rules()?.into_iter().filter(|rule| rule["alert"].is_string()).collect();
    ensure!(!alerts.is_empty(), "there are no alerts");
    for rule in alerts {
        let alert = text(&rule["alert"]);
        let fires = |expected: bool| {
            let of_alert = cases.iter().filter(|case| case["alertname"] == alert);
            of_alert.filter(|case| list(&case["exp_alerts"]).next().is_some() == expected).count()
        };
        ensure!(fires(true) > 0, "no test in which {alert} fires");
        ensure!(fires(false) > 0, "no test in which {alert} does not fire");
        ensure!(readme.contains(&format!("### {alert}\n")), "the README has no section for {alert}");
        let runbook = text(&rule["annotations"]["runbook"]);
        ensure!(runbook.ends_with(&format!("README.md#{}", alert.to_lowercase())), "{alert}: {runbook}");
        ensure!(["critical", "warning"].contains(&text(&rule["labels"]["severity"])), "{alert}: severity");
    }
    Ok(())
}

#[tokio::test]
async fn the_operator_object_holds_the_same_rules() -> Result<()> {
    let output = Command::new(monitoring().join("operator/generate.sh")).output().await?;
    ensure!(output.status.success(), "generate.sh failed: {}", String::from_utf8_lossy(&output.stderr));
    let stored = std::fs::read_to_string(path("operator/prometheusrule.yaml"))?;
    ensure!(
        String::from_utf8_lossy(&output.stdout) == stored,
        "operator/prometheusrule.yaml is out of date: run operator/generate.sh > operator/prometheusrule.yaml"
    );
    let object: Value = serde_saphyr::from_str(&stored)?;
    ensure!(object["spec"]["groups"] == yaml("rules.yaml")?["groups"], "generate.sh changes the rules");
    Ok(())
}

#[test]
fn the_config_maps_hold_every_board() -> Result<()> {
    let made = yaml("kustomization.yaml")?;
    ensure!(made["generatorOptions"]["labels"]["grafana_dashboard"] == "1", "Grafana would not find them");
    let files: BTreeSet<&str> =
        list(&made["configMapGenerator"]).flat_map(|map| list(&map["files"])).map(text).collect();
    for board in BOARDS {
        ensure!(files.contains(format!("dashboards/{board}").as_str()), "{board} is missing");
    }
    ensure!(files.len() == BOARDS.len(), "the ConfigMaps hold more than the boards: {files:?}");
    Ok(())
}
