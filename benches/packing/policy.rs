//! What all policies have in common, and which there are.

use std::fmt;

use anyhow::Result;
use clap::ValueEnum;

use crate::baselines::{Random, Scored, best_fit, clustering, dot_product, packing};
use crate::cluster::{Cluster, Spot};
use crate::fgd::Fgd;
use crate::frag::Typical;
use crate::sluice::Sluice;
use crate::trace::{Pod, Trace};

/// Something that says where pods go. What it says is booked before it is asked again.
pub trait Policy {
    /// Where the next pod goes; none when it is dropped. This is what is timed.
    ///
    /// # Errors
    /// When the policy contradicts itself.
    fn place(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Option<Spot>>;

    /// Takes note that what was said last has been done.
    fn confirm(&mut self) {}

    /// Compares the policy's own books, if it has any, with the cluster at the end of a run.
    ///
    /// # Errors
    /// When they differ.
    fn audit(&self, _cluster: &Cluster) -> Result<()> {
        Ok(())
    }
}

/// Every policy of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// A node drawn from those that fit.
    Random,
    /// Demand against what is free.
    DotProd,
    /// Pods of a kind together.
    GpuClustering,
    /// Devices and nodes in use first.
    GpuPacking,
    /// Where the least is left.
    BestFit,
    /// Fragmentation gradient descent.
    Fgd,
    /// The engine of this project.
    Sluice,
}

impl Kind {
    /// The policies that published figures exist for.
    pub fn is_baseline(self) -> bool {
        self != Self::Sluice
    }

    /// A policy ready for one run.
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
