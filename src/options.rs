//! Command-line options shared by several commands.

use std::time::Duration;

use crate::api::caps::{Caps, MOST_WRITTEN_TERMS};
use crate::engine::types::{Defragmentation, Settings};
use crate::view::Accelerators;

/// Cluster-wide scheduling options of `serve` and `simulate`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SchedulingOptions {
    /// Half-life of past usage in fair share, e.g. 12h. Off by default: only current usage counts.
    #[arg(long, value_parser = half_life, value_name = "DURATION")]
    pub usage_half_life: Option<Duration>,
    /// Move at most one workload per interval, e.g. 15m, to reduce fragmentation. Off by default: workloads are
    /// moved only for a workload within its team's guarantee.
    #[arg(long, value_parser = interval, value_name = "DURATION")]
    pub defragment_every: Option<Duration>,
    /// For --defragment-every: never move a workload that would lose more run time than this.
    #[arg(long, value_parser = crate::api::values::duration, value_name = "DURATION", default_value = "10m",
        requires = "defragment_every")]
    pub defragment_loss: Duration,
    /// How long a node may give no answer until its pods count as lost: they are ended without their kubelet, and their
    /// workloads go on elsewhere, unless their queue says otherwise (`onUnreachable`). Counted from the taint
    /// node.kubernetes.io/unreachable, some 50 s after the last answer.
    #[arg(long, value_parser = crate::api::values::duration, value_name = "DURATION", default_value = "5m")]
    pub unreachable_after: Duration,
}

impl SchedulingOptions {
    /// The engine's settings.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let most_lost = self.defragment_loss;
        Settings {
            usage_half_life: self.usage_half_life,
            defragmentation: self.defragment_every.map(|every| Defragmentation { every, most_lost }),
            unreachable_after: self.unreachable_after,
            ..Settings::default()
        }
    }
}

/// What one workload may consist of, for `serve` and `simulate`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct CapOptions {
    /// Required node affinity terms of a pod template, and of all templates of an object together. Node selectors,
    /// affinity requirements with their values, and tolerations may be 16 times as many. A new object above a cap is
    /// refused; one that is stored already waits.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, help_heading = CAPS,
        value_parser = clap::value_parser!(u32).range(1..=MOST_WRITTEN_TERMS as i64))]
    pub max_affinity_terms: u32,
    /// Different resources that a pod requests, with its claims of devices.
    #[arg(long, value_name = "NUMBER", default_value_t = 32, help_heading = CAPS,
        value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub max_resource_names: u32,
    /// Scheduling gates of a pod, without Sluice's own.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, help_heading = CAPS,
        value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub max_scheduling_gates: u32,
    /// Pods of one workload at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, help_heading = CAPS,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_pods: u32,
    /// Longest terminationGracePeriodSeconds of a new workload; the field maxGrace of its queue replaces it.
    #[arg(long, value_name = "DURATION", default_value = "10m", help_heading = CAPS,
        value_parser = crate::api::values::duration)]
    pub max_grace: Duration,
}

/// The heading of the caps in the help text.
const CAPS: &str = "Caps on workloads";

impl CapOptions {
    /// The caps.
    #[must_use]
    pub fn caps(&self) -> Caps {
        Caps {
            assumed_fractions: false,
            terms: self.max_affinity_terms,
            names: self.max_resource_names,
            gates: self.max_scheduling_gates,
            pods: self.max_pods,
            grace: self.max_grace,
        }
    }
}

/// Which resources count as GPUs, an option of `serve`, `simulate` and the client commands.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AcceleratorOptions {
    /// Resources that count as GPUs in tables and metrics, e.g. nvidia.com/gpu,google.com/tpu. Default: every
    /// resource named */gpu and every device resource in a team's quota.
    #[arg(long, env = "SLUICE_ACCELERATORS", value_delimiter = ',', value_parser = resource, value_name = "RESOURCES")]
    accelerators: Vec<String>,
}

impl AcceleratorOptions {
    /// The accelerators as configured; quotas are still to be added.
    #[must_use]
    pub fn accelerators(&self) -> Accelerators {
        Accelerators::configured(&self.accelerators)
    }
}

/// Reads one resource of `--accelerators`.
///
/// # Errors
/// A sentence for the user.
fn resource(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(
            "expected resource names separated by commas, such as nvidia.com/gpu,google.com/tpu".to_owned()
        );
    }
    Ok(name.to_owned())
}

/// Reads `--usage-half-life`.
///
/// # Errors
/// A sentence for the user.
fn half_life(text: &str) -> Result<Duration, String> {
    let duration = crate::api::values::duration(text)?;
    if duration < Duration::from_secs(1) {
        return Err("must be at least 1s".to_owned());
    }
    Ok(duration)
}

/// Reads `--defragment-every`.
///
/// # Errors
/// A sentence for the user.
fn interval(text: &str) -> Result<Duration, String> {
    let duration = crate::api::values::duration(text)?;
    if duration < Duration::from_secs(60) {
        return Err("must be at least 60s".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        scheduling: SchedulingOptions,
        #[command(flatten)]
        accelerators: AcceleratorOptions,
        #[command(flatten)]
        caps: CapOptions,
    }

    fn parse(arguments: &[&str]) -> Result<Command, clap::Error> {
        Command::try_parse_from([&["sluice"], arguments].concat())
    }

    fn settings(arguments: &[&str]) -> Result<Settings, clap::Error> {
        parse(arguments).map(|command| command.scheduling.settings())
    }

    #[test]
    fn defragmentation_and_past_usage_are_off_by_default() {
        assert_eq!(settings(&[]).expect("no option is needed"), Settings::default());
        let given = settings(&["--usage-half-life=12h", "--defragment-every=15m", "--defragment-loss=30m"]);
        let seconds = Duration::from_secs;
        let expected = Settings {
            unreachable_after: Duration::from_secs(300),
            calendar: crate::engine::types::Time(0),
            usage_half_life: Some(seconds(43_200)),
            defragmentation: Some(Defragmentation { every: seconds(900), most_lost: seconds(1_800) }),
            ..Settings::default()
        };
        assert_eq!(given.expect("all are well formed"), expected);
    }

    #[test]
    fn the_flags_of_caps_have_the_defaults_of_the_caps() {
        let caps = |arguments: &[&str]| parse(arguments).map(|command| command.caps.caps());
        assert_eq!(caps(&[]).expect("no option is needed"), Caps::default());
        let given = caps(&["--max-pods=9", "--max-grace=90s", "--max-affinity-terms=2000"]);
        let expected = Caps { pods: 9, grace: Duration::from_secs(90), terms: 2000, ..Caps::default() };
        assert_eq!(given.expect("all are well formed"), expected);
        assert!(parse(&["--max-affinity-terms=2001"]).is_err(), "no admission could write as many");
        assert!(parse(&["--max-pods=0"]).is_err());
    }

    #[test]
    fn durations_out_of_range_are_refused() {
        for wrong in [
            "--usage-half-life=0s",
            "--usage-half-life=10ms",
            "--usage-half-life=-1h",
            "--usage-half-life=long",
            "--defragment-every=59s",
            "--defragment-loss=5m",
        ] {
            assert!(settings(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn accelerators_are_listed_with_commas() {
        let listed = parse(&["--accelerators=nvidia.com/gpu,google.com/tpu"]).expect("well formed");
        let listed = listed.accelerators.accelerators();
        assert!(listed.contains("google.com/tpu") && !listed.contains("habana.ai/gaudi"));
        assert_eq!(
            parse(&[]).expect("no option is needed").accelerators.accelerators(),
            Accelerators::default()
        );
        assert!(parse(&["--accelerators=nvidia.com/gpu,,google.com/tpu"]).is_err());
    }
}
