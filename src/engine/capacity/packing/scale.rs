//! The fixed-point scales of weights and usable capacity.

/// Weights are fixed-point numbers with this many bits behind the point.
pub(super) const SCALE: u32 = 20;
/// Usable capacity is counted in this many parts of a thousandth of a device.
pub(super) const PARTS: i64 = 4;
