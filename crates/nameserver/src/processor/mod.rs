//! The native rows, one family per file. Each is a function from request to answer; none waits. Changes by brokers go
//! to the registration thread.

mod fast_path;
pub(crate) mod liveness;
pub(crate) mod registration;
pub(crate) mod route;

use crate::context::{Meters, NameServerContext};
use crate::error::Refusal;
use crate::registration_queue::{Job, QueuedRegistration};
use pyrmq_remoting::Command;
use pyrmq_remoting::meter::Meter;
use pyrmq_remoting::net::{Peer, Processor, Reply};
use std::sync::Arc;
use std::time::Instant;

/// Answers one request.
pub(crate) type Function = fn(&NameServerContext, &Command) -> Result<Command, Refusal>;

/// A function as a row of the processor table.
pub(crate) struct Native {
    pub(crate) context: Arc<NameServerContext>,
    pub(crate) function: Function,
    pub(crate) meter: fn(&Meters) -> &Meter,
}

impl Processor for Native {
    fn process(&self, request: Command, _: &Peer, reply: Reply) {
        let started = Instant::now();
        let answer = (self.function)(&self.context, &request).unwrap_or_else(Command::from);
        (self.meter)(&self.context.meters).add(started.elapsed());
        reply.send(answer);
    }
}

/// Answers one request with the addresses of a set; `None`: with the usual ones.
pub(crate) type SetFunction = fn(&NameServerContext, &Command, Option<&str>) -> Result<Command, Refusal>;

/// A function as a row of the processor table of one listener.
pub(crate) struct InSet {
    pub(crate) context: Arc<NameServerContext>,
    pub(crate) set: Option<String>,
    pub(crate) function: SetFunction,
    pub(crate) meter: fn(&Meters) -> &Meter,
}

impl Processor for InSet {
    fn process(&self, request: Command, _: &Peer, reply: Reply) {
        let started = Instant::now();
        let answer = (self.function)(&self.context, &request, self.set.as_deref());
        (self.meter)(&self.context.meters).add(started.elapsed());
        reply.send(answer.unwrap_or_else(Command::from));
    }
}

/// 103, parsed and applied by the registration thread.
pub(crate) struct Register(pub(crate) Arc<NameServerContext>);

impl Processor for Register {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        let (peer, at) = (peer.clone(), Instant::now());
        let queued = QueuedRegistration {
            request,
            peer,
            reply,
            at,
        };
        self.0.queue.push(Job::Register(Box::new(queued)));
    }
}

/// 104, applied by the registration thread together with other departures.
pub(crate) struct Unregister(pub(crate) Arc<NameServerContext>);

impl Processor for Unregister {
    fn process(&self, request: Command, _: &Peer, reply: Reply) {
        let at = Instant::now();
        match registration::removal(&request) {
            Ok(removal) => self.0.queue.push(Job::Unregister(removal, reply, at)),
            Err(refusal) => reply.send(refusal.into()),
        }
    }
}
