//! The first send of a batch, which the log names if the batch was slow.

use pyrmq_remoting::Command;
use pyrmq_remoting::net::{Reply, RequestLog, RequestNames};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The first send of a batch: the log names it if the batch was slow.
#[derive(Debug, Default)]
pub(super) struct FirstSend {
    /// When it arrived, and from where; `None` while the batch is empty.
    arrived: Option<(Instant, SocketAddr)>,
    code: i32,
    topic: String,
    group: String,
}

impl FirstSend {
    /// Keeps the names of a send for the log, if it is the first one of its batch.
    pub(super) fn note(&mut self, request: &Command, reply: &Reply) {
        if self.arrived.is_some() {
            return;
        }
        let names = RequestNames::from(request);
        self.arrived = reply.arrived().map(|at| (at, reply.peer().remote()));
        self.code = names.code;
        names.topic.clone_into(&mut self.topic);
        names.group.clone_into(&mut self.group);
    }

    /// Writes a line if the batch was slow; the next send is the first of another one.
    pub(super) fn end(&mut self, log: &RequestLog) {
        let Some((arrived, from)) = self.arrived.take() else {
            return;
        };
        let names = RequestNames {
            code: self.code,
            topic: &self.topic,
            group: &self.group,
        };
        log.served(names, from, (Duration::ZERO, arrived.elapsed()));
    }
}
