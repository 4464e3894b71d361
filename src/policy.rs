//! What the owner of the cluster decides about the way in which is decided; the same for `serve` and `simulate`.

use std::time::Duration;

use crate::engine::types::{Defragmentation, Settings};

/// How decisions are made where a cluster may want it in one way or another.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Policy {
    /// Let what a team held of the surplus in the past count in its share, half as much after every such
    /// time; by default only the present counts.
    #[arg(long, value_parser = half_life, value_name = "DURATION")]
    pub usage_half_life: Option<Duration>,
    /// Move a workload now and then so that free devices lie together, one at most in every such time; by default
    /// only where somebody is owed the room.
    #[arg(long, value_parser = pause, value_name = "DURATION")]
    pub defragment_every: Option<Duration>,
    /// For --defragment-every: move nobody who would lose more than so much run time.
    #[arg(long, value_parser = crate::api::values::duration, value_name = "DURATION", default_value = "10m",
        requires = "defragment_every")]
    pub defragment_loss: Duration,
}

impl Policy {
    /// The same for the engine.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let most_lost = self.defragment_loss;
        Settings {
            usage_half_life: self.usage_half_life,
            defragmentation: self.defragment_every.map(|every| Defragmentation { every, most_lost }),
        }
    }
}

/// Reads `--usage-half-life`.
///
/// # Errors
/// A sentence for the user.
fn half_life(text: &str) -> Result<Duration, String> {
    let duration = crate::api::values::duration(text)?;
    if duration < Duration::from_secs(1) {
        return Err("what is half forgotten in less than 1s is not remembered at all".to_owned());
    }
    Ok(duration)
}

/// Reads `--defragment-every`.
///
/// # Errors
/// A sentence for the user.
fn pause(text: &str) -> Result<Duration, String> {
    let duration = crate::api::values::duration(text)?;
    if duration < Duration::from_secs(60) {
        return Err("moving something more often than once a minute would leave nobody in peace".to_owned());
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
        policy: Policy,
    }

    fn settings(arguments: &[&str]) -> Result<Settings, clap::Error> {
        let command = Command::try_parse_from([&["sluice"], arguments].concat())?;
        Ok(command.policy.settings())
    }

    #[test]
    fn nothing_is_moved_and_nothing_remembered_unless_asked_for() {
        assert_eq!(settings(&[]).expect("no option is needed"), Settings::default());
        let given = settings(&["--usage-half-life=12h", "--defragment-every=15m", "--defragment-loss=30m"]);
        let seconds = Duration::from_secs;
        let expected = Settings {
            usage_half_life: Some(seconds(43_200)),
            defragmentation: Some(Defragmentation { every: seconds(900), most_lost: seconds(1_800) }),
        };
        assert_eq!(given.expect("all are well formed"), expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
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
}
