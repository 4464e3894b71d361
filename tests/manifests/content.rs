//! The files fit together, and name what the program names.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice::api::names;

use super::{CRON_JOB, objects, of_kind};

#[test]
fn kustomizations_name_files_that_exist_and_patch_objects_that_exist() {
    let objects = objects();
    let known: BTreeSet<(String, String)> = objects
        .iter()
        .map(|(_, object)| (object["kind"].to_string(), object["metadata"]["name"].to_string()))
        .collect();
    for (path, object) in &objects {
        let folder = path.parent().expect("a folder");
        for field in ["resources", "components"] {
            for entry in object[field]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|_| path.ends_with("kustomization.yaml"))
            {
                let entry = entry.as_str().expect("a path");
                assert!(folder.join(entry).exists(), "{}: {entry}", path.display());
            }
        }
        for patch in object["patches"].as_array().into_iter().flatten() {
            let target = (patch["target"]["kind"].to_string(), patch["target"]["name"].to_string());
            assert!(known.contains(&target), "{}: {target:?}", path.display());
        }
    }
}

#[test]
fn the_policies_guard_every_mark() {
    let text: String = of_kind(&["ValidatingAdmissionPolicy"]).iter().map(Value::to_string).collect();
    for mark in names::OWN_ANNOTATIONS.iter().chain([&names::TEAM, &names::GATE_ADMISSION]) {
        assert!(text.contains(&format!("'{mark}'")), "no policy guards {mark}");
    }
}

#[test]
fn manifests_use_the_names_and_account_of_the_program() {
    for configuration in of_kind(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]) {
        assert_eq!(configuration["metadata"]["name"], names::NAME);
    }
    let accounts = of_kind(&["ServiceAccount"]);
    let users: Vec<String> = accounts
        .iter()
        .map(|account| {
            let part = |key: &str| account["metadata"][key].as_str().unwrap_or_default().to_owned();
            format!("system:serviceaccount:{}:{}", part("namespace"), part("name"))
        })
        .collect();
    assert_eq!(users, [names::ACCOUNT]);
}

#[test]
fn the_program_accepts_the_example_teams() {
    for team in of_kind(&["Team"]) {
        let team: sluice::api::team::Team = serde_json::from_value(team).expect("the example is a Team");
        sluice::engine::types::Team::try_from(&team).expect("the example is accepted");
    }
}

#[test]
fn a_cron_job_may_have_the_annotations_that_users_write_on_jobs() {
    let policy =
        of_kind(&["ValidatingAdmissionPolicy"]).into_iter().find(|one| one["metadata"]["name"] == CRON_JOB);
    let variables = policy.expect("the policy")["spec"]["variables"].clone();
    let known = variables.as_array().into_iter().flatten().find(|one| one["name"] == "ofJobs").cloned();
    let known = known.expect("the variable")["expression"].to_string();
    let known: BTreeSet<&str> = known.split('\'').filter(|text| text.starts_with(names::PREFIX)).collect();
    // Those of Sluice, and those of pods without a Job.
    let others = [
        names::WANTED_PARALLELISM,
        names::GPU_OFFER,
        names::GPU_SIZES,
        names::GROUP_SIZE,
        names::PREEMPTIBLE,
        names::NODES,
        names::TWIN_OF,
    ];
    let others: BTreeSet<&str> = others.into_iter().chain(names::OWN_ANNOTATIONS).collect();
    let expected: BTreeSet<&str> =
        names::ANNOTATIONS.into_iter().filter(|key| !others.contains(key)).collect();
    assert_eq!(known, expected);
}
