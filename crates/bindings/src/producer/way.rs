//! What a batch call hands its messages to.

use crate::completion::queue::Completion;
use crate::enter;
use crate::errors::Error;
use crate::producer::class::PyProducer;
use pyo3::prelude::*;
use pyrmq_client::producer::Producer;
use pyrmq_client::producer::accumulator::Accumulator;
use pyrmq_client::producer::outgoing::EncodedBody;
use std::sync::Arc;

/// The parts of an accumulator that a batch call needs.
pub(crate) struct Way<'a> {
    pub(crate) native: &'a Py<PyProducer>,
    pub(crate) producer: &'a Arc<Producer>,
    pub(crate) core: &'a Arc<Accumulator<Completion>>,
}

impl Way<'_> {
    pub(crate) fn core(&self) -> &Arc<Accumulator<Completion>> {
        self.core
    }

    /// Compresses a body that is large enough, detached from the interpreter.
    pub(crate) fn encode_body(&self, py: Python<'_>, body: &[u8]) -> PyResult<Option<EncodedBody>> {
        // A body that is too large will be refused, so it is not compressed.
        if body.len() > self.producer.options().max_message_bytes {
            return Ok(None);
        }
        enter::compute(py, || Ok::<_, Error>(self.producer.encode_body(body)))
    }
}
