//! What a consumer asks of brokers: offsets, locks of queues, messages handed back, checks of filters.

pub mod offsets;
pub(crate) mod queue_lock;
pub(crate) mod send_back;
pub(crate) mod subscription_check;
