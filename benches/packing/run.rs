//! One run: pods arrive one by one and never leave; one that does not fit is dropped.

use std::time::Instant;

use anyhow::Result;

use crate::cluster::Cluster;
use crate::frag::Typical;
use crate::policy::Policy;
use crate::trace::Pod;

/// The loads at which samples are taken, in per cent of the cluster's devices requested so far; the last is
/// the end of the run.
pub const LOADS: [u32; 6] = [60, 80, 90, 95, 100, 130];

/// The figures at one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Devices allocated, in per cent of the cluster's.
    pub allocation: f64,
    /// Devices not allocated.
    pub idle: f64,
    /// Fragmented devices, in per cent of the cluster's.
    pub fragmentation: f64,
    /// Number of pods with several devices dropped so far.
    pub failed_multi: f64,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By load, as in [`LOADS`].
    pub samples: [Sample; LOADS.len()],
    /// Median time of a decision in nanoseconds.
    pub p50: f64,
    /// 99th percentile of the time of a decision in nanoseconds.
    pub p99: f64,
}

/// Runs `policy` on an empty cluster.
///
/// # Errors
/// When the policy places a pod where it does not fit, or its own usage differs from the cluster's.
pub fn run(
    mut cluster: Cluster,
    capacity: i64,
    arrivals: &[Pod],
    typical: &Typical,
    policy: &mut dyn Policy,
) -> Result<Outcome> {
    let (mut arrived, mut allocated, mut failed_multi) = (0_i64, 0_i64, 0_u32);
    let mut samples = [Sample::default(); LOADS.len()];
    let mut next = 0;
    let mut nanos: Vec<u64> = Vec::with_capacity(arrivals.len());
    let per_cent = |milli: f64| milli * 100.0 / capacity as f64;
    let sample = |cluster: &Cluster, allocated: i64, failed_multi: u32| Sample {
        allocation: per_cent(allocated as f64),
        idle: (capacity - allocated) as f64 / 1000.0,
        fragmentation: per_cent(typical.of_cluster(cluster)),
        failed_multi: f64::from(failed_multi),
    };
    for pod in arrivals {
        // A load's sample is taken just before the load is exceeded.
        while next + 1 < LOADS.len() && (arrived + pod.request()) * 100 > capacity * i64::from(LOADS[next]) {
            samples[next] = sample(&cluster, allocated, failed_multi);
            next += 1;
        }
        arrived += pod.request();
        let start = Instant::now();
        let spot = policy.place(&cluster, pod)?;
        nanos.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        match spot {
            Some(spot) => {
                cluster.take(pod, spot)?;
                allocated += pod.request();
            }
            None => failed_multi += u32::from(pod.devices > 1),
        }
        policy.confirm();
    }
    for left in &mut samples[next..] {
        *left = sample(&cluster, allocated, failed_multi);
    }
    policy.audit(&cluster)?;
    nanos.sort_unstable();
    let quantile = |part: usize| nanos.get(nanos.len() * part / 100).copied().unwrap_or(0) as f64;
    Ok(Outcome { samples, p50: quantile(50), p99: quantile(99) })
}

/// The sample of an outcome at one of [`LOADS`]; at its end for any other load.
pub fn at(outcome: &Outcome, load: u32) -> &Sample {
    let index = LOADS.iter().position(|known| *known == load);
    &outcome.samples[index.unwrap_or(LOADS.len() - 1)]
}
