//! The native rows, one family a file. Each is a function from request to answer; nothing here waits.

pub(crate) mod liveness;
pub(crate) mod registration;
pub(crate) mod route;

use crate::error::Refusal;
use crate::state::State;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{Peer, Processor, Reply};
use std::sync::Arc;

/// Answers one request.
pub(crate) type Function = fn(&State, &Command, &Peer) -> Result<Command, Refusal>;

/// A function as a row of the processor table.
pub(crate) struct Native {
    pub(crate) state: Arc<State>,
    pub(crate) function: Function,
}

impl Processor for Native {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        reply.send((self.function)(&self.state, &request, peer).unwrap_or_else(Command::from));
    }
}
