//! The rows of requests that may be answered later.

use crate::context::BrokerContext;
use crate::processor::pop::ack::{Ack, BatchedAck};
use crate::processor::pop::assign::QueryAssignment;
use crate::processor::pop::change::ChangeInvisibleTime;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::net::Processor;
use std::sync::Arc;

/// Codes and what answers them: once the disk has what they wrote, or a name server said something.
pub(crate) fn rows(context: &Arc<BrokerContext>) -> [(i32, Arc<dyn Processor>); 4] {
    [
        (request::ACK_MESSAGE, Arc::new(Ack(context.clone()))),
        (request::BATCH_ACK_MESSAGE, Arc::new(BatchedAck(context.clone()))),
        (
            request::CHANGE_MESSAGE_INVISIBLETIME,
            Arc::new(ChangeInvisibleTime(context.clone())),
        ),
        (
            request::QUERY_ASSIGNMENT,
            Arc::new(QueryAssignment(context.clone())),
        ),
    ]
}
