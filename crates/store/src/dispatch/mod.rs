//! What brings stored records to their consume queues and to the key index (Apache calls that dispatching), and what
//! keeps both in order.

pub(crate) mod indexing;
pub(crate) mod queue_maintenance;
