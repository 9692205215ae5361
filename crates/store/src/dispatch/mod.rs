//! Passes stored records to their consume queues and to the key index (Apache calls that dispatching), and maintains
//! both.

pub(crate) mod indexing;
pub(crate) mod mismatches;
pub(crate) mod queue_maintenance;
