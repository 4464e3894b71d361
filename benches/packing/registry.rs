//! The policies of the benchmark by name.

use std::fmt;

use clap::ValueEnum;

use crate::baselines::{Random, Scored, best_fit, clustering, dot_product, packing};
use crate::cluster::Cluster;
use crate::fgd::Fgd;
use crate::frag::Typical;
use crate::policy::Policy;
use crate::sluice::Sluice;
use crate::trace::Trace;

/// Every policy of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// A random node among those that fit.
    Random,
    /// Demand against free capacity.
    DotProd,
    /// Pods of a kind together.
    GpuClustering,
    /// Devices and nodes in use first.
    GpuPacking,
    /// The node with the least remaining capacity.
    BestFit,
    /// Fragmentation gradient descent.
    Fgd,
    /// The engine of this project.
    Sluice,
}

impl Kind {
    /// Whether there are published figures for the policy.
    pub fn is_baseline(self) -> bool {
        self != Self::Sluice
    }

    /// The policy, ready for one run.
    pub fn start(self, trace: &Trace, cluster: &Cluster, typical: &Typical, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::Random => Box::new(Random::new(seed)),
            Self::DotProd => Box::new(Scored(dot_product)),
            Self::GpuClustering => Box::new(Scored(clustering)),
            Self::GpuPacking => Box::new(Scored(packing)),
            Self::BestFit => Box::new(Scored(best_fit)),
            Self::Fgd => Box::new(Fgd::new(typical.clone())),
            Self::Sluice => Box::new(Sluice::new(trace, cluster)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Random => "Random",
            Self::DotProd => "DotProd",
            Self::GpuClustering => "GpuClustering",
            Self::GpuPacking => "GpuPacking",
            Self::BestFit => "BestFit",
            Self::Fgd => "FGD",
            Self::Sluice => "Sluice",
        })
    }
}
