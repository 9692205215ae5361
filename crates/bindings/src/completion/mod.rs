//! Outcomes of sends: `pyrmq.SendResult`, and how outcomes reach the thread, callback or future that waits.
//!
//! ```text
//! one send      PyWaiter: a slot, the waiting thread is woken by the connection's task itself
//! many calls    CompletionList: (token, outcome) pairs; a thread takes all of them, or asyncio does when the
//!               pipe's end becomes readable. One byte is in the pipe while the list is not empty.
//! ```

mod callback_queue;
pub(crate) mod callbacks;
mod collector;
pub(crate) mod future;
mod list;
mod pipe_signal;
pub(crate) mod queue;
mod result;

pub(crate) use callback_queue::CallbackQueue;
pub(crate) use collector::{BatchCollector, BatchPart, Unsent, batch_list};
pub(crate) use list::{QueueRef, ReplyTo, Value, reply, run};
pub(crate) use pipe_signal::{ArrivalSignal, PipeSignal};
pub(crate) use result::PySendResult;

use pyo3::prelude::*;
use pyrmq_client::ClientError;
use pyrmq_client::producer::SendResult;
use std::sync::Arc;

/// The outcome of one frame: one message, or a batch.
pub(crate) type Outcome = Result<SendResult, ClientError>;

/// What a blocking send gets: the result of its frame and, for a batch, its index in it.
pub(crate) type Share = Result<(Arc<SendResult>, Option<u32>), ClientError>;

/// The slot where a blocking send waits for its outcome.
pub(crate) type PyWaiter = pyrmq_client::producer::send_waiter::SendWaiter<Share>;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    callback_queue::register(module)?;
    result::register(module)?;
    list::register(module)
}
