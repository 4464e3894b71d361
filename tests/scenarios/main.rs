//! Scenarios with known outcomes: each has a file with its expected outcome beside it, and runs through the
//! simulator.
//!
//! In every scenario the general laws must hold, the final state must stay, the same file must give the same
//! outcome twice, and names must not matter.

mod cluster;
mod expect;
mod golden;
mod laws;
mod outcome;
mod random;
mod rename;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice::engine::types::Settings;
use sluice::scenario::Scenario;
use sluice::simulate::Options;

use cluster::Cluster;
use expect::Expectation;
use outcome::Outcome;
use rename::Renamed;

/// Time for which a final state must stay.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// One scenario.
struct Case {
    name: String,
    text: String,
    expectation: Expectation,
}

impl Case {
    fn all() -> Vec<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/cases");
        let entries = std::fs::read_dir(&directory).expect("the scenarios exist");
        let files = entries.map(|entry| entry.expect("the directory can be read").file_name());
        let files: BTreeSet<String> =
            files.map(|file| file.into_string().expect("file names are plain text")).collect();
        let read = |file: &str| std::fs::read_to_string(directory.join(file)).expect("a file can be read");
        let mut cases = Vec::new();
        for file in files.iter().filter(|file| !file.ends_with(".expect.yaml")) {
            let name = file.strip_suffix(".yaml").expect("there are only YAML files").to_owned();
            let expected = format!("{name}.expect.yaml");
            assert!(files.contains(&expected), "{file} has no expectation");
            let expectation = parse(&expected, &read(&expected));
            cases.push(Self { text: read(file), expectation, name });
        }
        assert_eq!(files.len(), 2 * cases.len(), "every expectation has a scenario");
        cases
    }

    fn scenario(&self) -> Scenario {
        match Scenario::parse([(self.name.as_str(), self.text.as_str())]) {
            Ok(scenario) => scenario,
            Err(error) => panic!("{error}"),
        }
    }

    /// The simulator's output for a scenario under the options of this case.
    fn simulate(&self, scenario: &Scenario, until: Option<Duration>) -> Result<String, String> {
        let time = |text: &String| text.parse::<kube::core::Duration>().expect("a duration").into();
        let until = until.or_else(|| self.expectation.until.as_ref().map(time));
        let half_life = self.expectation.usage_half_life.as_ref().map(time);
        simulate(scenario, until, half_life)
    }

    fn run(&self) -> Result<(String, Outcome), String> {
        let printed = self.simulate(&self.scenario(), None)?;
        let outcome = parse("the simulator's output", &printed);
        Ok((printed, outcome))
    }
}

/// The simulator's output for a scenario.
fn simulate(
    scenario: &Scenario,
    until: Option<Duration>,
    half_life: Option<Duration>,
) -> Result<String, String> {
    let settings = Settings { usage_half_life: half_life, ..Settings::default() };
    let options = Options { until, settings, events: true, ..Options::default() };
    let outcome = sluice::simulate::run(scenario, &options).map_err(|error| error.to_string())?;
    Ok(serde_json::to_string(&outcome).expect("an outcome is plain data"))
}

/// Differences between the state at the end of a simulation and the state later.
fn changed(first: &Outcome, later: &Outcome) -> Vec<String> {
    let changed = later.workloads.iter().zip(&first.workloads).filter(|(later, first)| {
        later.admissions != first.admissions
            || later.evictions != first.evictions
            || later.state != first.state
    });
    changed
        .map(|(later, first)| {
            format!("{} {}, a day later it {}", first.key(), first.state_in_words(), later.state_in_words())
        })
        .collect()
}

fn parse<T: DeserializeOwned>(what: &str, text: &str) -> T {
    match serde_saphyr::from_str(text) {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Checks every case, and fails with all defects.
fn check_all(check: impl Fn(&Case) -> Result<(), String>) {
    let cases = Case::all();
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            check(case).err().map(|why| format!("{}\n  {}", case.name, why.replace('\n', "\n  ")))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} scenarios\n\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
}

/// Success, or the defects followed by the events of the simulation.
fn verdict(lines: &[String], outcome: &Outcome) -> Result<(), String> {
    if lines.is_empty() {
        return Ok(());
    }
    let story: Vec<String> = outcome.story().iter().take(40).map(|line| format!("  {line}")).collect();
    Err(format!("{}\nwhat happened:\n{}", lines.join("\n"), story.join("\n")))
}

#[test]
fn every_scenario_ends_as_expected() {
    check_all(|case| {
        let (_, outcome) = case.run()?;
        let scenario = case.scenario();
        let running = scenario.objects().filter(|object| object.running_on.is_some());
        let running = running
            .map(|object| format!("{}/{}", object.namespace.as_deref().unwrap_or_default(), object.name))
            .collect();
        let mut lines = expect::differences(&case.expectation, &outcome, &running);
        if let Some(difference) = case.expectation.difference.as_ref().filter(|_| !lines.is_empty()) {
            lines.push(format!("(the laws require another outcome than the source: {difference})"));
        }
        verdict(&lines, &outcome)
    });
}

/// Law 5: fair shares between teams are settled among the new. Where a borrowing workload that arrives ten seconds after
/// the others preempts another team, it waits when it arrives twenty minutes later.
#[test]
fn a_borrower_that_arrives_late_evicts_no_other_team() {
    const FAIR_SHARE: &str = "FairShare";
    check_all(|case| {
        let (_, soon) = case.run()?;
        let for_fair_shares = |outcome: &Outcome| {
            outcome.evictions().filter(|(_, eviction)| eviction.reason == FAIR_SHARE).count()
        };
        if for_fair_shares(&soon) == 0 {
            return Ok(());
        }
        let late = ["10s", "20s", "30s"].iter().fold(case.text.clone(), |text, at| {
            text.replace(
                &format!("simulate.sluice.dev/at: {at}"),
                &format!("simulate.sluice.dev/at: 20m{at}"),
            )
        });
        let scenario =
            Scenario::parse([(case.name.as_str(), late.as_str())]).map_err(|error| error.to_string())?;
        let outcome: Outcome = parse("the simulator's output", &case.simulate(&scenario, None)?);
        match for_fair_shares(&outcome) {
            0 => Ok(()),
            _ => verdict(&["a workload is evicted for a fair share after its window".to_owned()], &outcome),
        }
    });
}

#[test]
fn no_law_is_broken() {
    check_all(|case| {
        let (_, outcome) = case.run()?;
        let cluster = Cluster::of(&case.scenario());
        let mut lines = laws::breaches(&cluster, &outcome);
        lines.extend(laws::futile_starts(&cluster, &outcome));
        verdict(&lines, &outcome)
    });
}

#[test]
fn the_final_state_stays() {
    check_all(|case| {
        if case.expectation.until.is_some() {
            return Ok(());
        }
        let (_, first) = case.run()?;
        let later = case.simulate(&case.scenario(), Some(first.end.later(DAY)))?;
        let later: Outcome = parse("the simulator's output", &later);
        let lines = changed(&first, &later);
        verdict(&lines, &later)
    });
}

#[test]
fn the_same_scenario_gives_the_same_outcome_and_names_do_not_matter() {
    check_all(|case| {
        let (printed, outcome) = case.run()?;
        if case.run()?.0 != printed {
            return Err("the same scenario gave two different outcomes".to_owned());
        }
        let renamed = Renamed::of(&case.text);
        let scenario =
            Scenario::parse([(case.name.as_str(), renamed.text.as_str())]).map_err(|e| e.to_string())?;
        let back = renamed.back(&case.simulate(&scenario, None)?);
        let (mut got, mut expected): (Value, Value) = (parse("renamed", &back), parse("first", &printed));
        for outcome in [&mut got, &mut expected] {
            // Decisions of the same instant may be listed in another order.
            outcome["events"] = Value::Null;
            if let Some(workloads) = outcome["workloads"].as_array_mut() {
                workloads.sort_by_key(|workload| {
                    workload["name"].to_string() + &workload["namespace"].to_string()
                });
            }
        }
        if got == expected {
            return Ok(());
        }
        let other: Outcome = parse("renamed", &back);
        verdict(
            &[
                "with other names the outcome differs; first with its own names, then with the others:"
                    .to_owned(),
                outcome.story().join("\n"),
            ],
            &other,
        )
    });
}
