//! Requests of a consumer to brokers: offsets, locks of queues, messages handed back, checks of filters.

pub mod offsets;
pub(crate) mod queue_lock;
pub(crate) mod send_back;
pub(crate) mod subscription_check;

use pyrmq_remoting::codes::response;

/// Answers after which the same pull or pop may succeed later.
pub(crate) fn is_transient(code: i32) -> bool {
    matches!(
        code,
        response::SYSTEM_ERROR
            | response::SYSTEM_BUSY
            | response::SERVICE_NOT_AVAILABLE
            | response::FLOW_CONTROL
            | response::SUBSCRIPTION_NOT_EXIST
            | response::SUBSCRIPTION_NOT_LATEST
    )
}
