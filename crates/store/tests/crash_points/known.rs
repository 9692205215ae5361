//! What the runs do not cover yet, each with its reason, and the seeds that once failed.

use pyrmq_testkit::sim::Call;

/// Zero bytes in keys, tags and properties.
pub(crate) const NUL_IN_PROPERTIES: bool = true;

/// Any of them may also fail with the error of a full disk: such an fsync has dropped pages like any other failed one.
pub(crate) const FULL_CALLS: bool = true;

/// The calls that fail.
pub(crate) const FAILING: &[Call] = &Call::ALL;

/// Seeds of runs that once failed: every run includes them.
pub(crate) const SEEDS: &[u64] = &[
    16,
    28,
    29,
    32,
    52,
    58,
    73,
    87,
    93,
    99,
    101,
    103,
    117,
    136,
    137,
    138,
    145,
    346_332_418,
];

/// Seeds that once failed in runs of several threads.
#[cfg(debug_assertions)]
pub(crate) const SEEDS_OF_THREADS: &[u64] = &[11, 22, 94, 111, 183, 837_583_431, 837_583_733];
