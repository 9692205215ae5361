//! Dispatches a connection's incoming frames: responses to their handlers, requests to their row of the table.

use crate::codes::response;
use crate::command::Command;
use crate::error::WireError;
use crate::frame;
use crate::net::connection::{Connection, Hang, HeldAnswer};
use crate::net::limits::large_frames::LargeFramePermit;
use crate::net::link::Phase;
use crate::net::table::{busy, enqueue, unsupported};
use crate::net::{CloseReason, Refused, Reply, Row};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Peers newer than this know GO_AWAY (Apache `MQVersion.V5_3_1`).
const GO_AWAY_ABOVE: i32 = 475;

/// Number of answers passed on under one lock; more would no longer fit the processor's first-level cache.
const TOGETHER: usize = 32;

impl Connection {
    /// Decodes and dispatches the whole frames in `input`, within the limits of `work` and of waiting answers.
    pub(super) fn dispatch(&mut self, work: &mut usize) -> Result<(), CloseReason> {
        let before = *work;
        let result = loop {
            if *work == 0 || self.held.is_some() || !self.takes_more() {
                break Ok(());
            }
            match frame::decode(&mut self.input, &self.setting.options.limits) {
                Ok(Some(command)) => {
                    *work -= 1;
                    self.fresh = false;
                    let permit = self.permit_state.take();
                    if command.is_response() {
                        self.responses.push(command);
                        if self.responses.len() >= TOGETHER {
                            self.responses();
                        }
                    } else {
                        self.request(command, permit);
                    }
                }
                Ok(None) => {
                    self.unread = false;
                    break Ok(());
                }
                Err(error) => break Err(self.refuse_bytes(error)),
            }
        };
        if *work < before {
            // The frame that stopped progressing is whole now; what remains is another one.
            self.read_hang = Hang::default();
        }
        self.responses();
        result
    }

    /// Ends the batch after its last frame: does what its requests share, so that their answers leave in one write.
    pub(super) fn end_batch(&mut self) {
        if !std::mem::take(&mut self.in_batch) {
            return;
        }
        let Some(requests) = &mut self.requests else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| requests.end())).is_err() {
            self.tally.panics += 1;
            tracing::error!(peer = %self.peer.remote(), "the end of a batch panicked");
        }
    }

    fn responses(&mut self) {
        if self.responses.is_empty() {
            return;
        }
        self.tally.responses += self.responses.len() as u64;
        self.tally.late += self.link.complete(&mut self.responses, &mut self.answered);
    }

    fn refuse_bytes(&self, error: WireError) -> CloseReason {
        match self.input.first() {
            Some(0x16) if self.fresh => CloseReason::Tls,
            Some(b'P' | b'\r') if self.fresh => CloseReason::ProxyProtocol,
            _ => CloseReason::Wire(error),
        }
    }

    fn request(&mut self, request: Command, permit: Option<LargeFramePermit>) {
        self.tally.requests += 1;
        let reply = Reply::new(self.peer.clone(), &request)
            .holding(permit)
            .arrived_at(self.now.into_std());
        if !reply.is_oneway() && self.link.begin_request() > self.setting.options.in_flight {
            self.tally.busy += 1;
            let answer = busy("too many requests of this connection wait for their answer");
            self.refuse_unserved(&request, reply, answer);
            return;
        }
        if self.link.phase() == Phase::Draining && request.version > GO_AWAY_ABOVE {
            reply.send(Command::error(response::GO_AWAY, "the server is shutting down"));
            return;
        }
        let Some(reply) = self.admit(&request, reply) else {
            return;
        };
        let code = request.code;
        match self.setting.table.get(code) {
            Some(Row::Native(processor)) => {
                let peer = &self.peer;
                let run = AssertUnwindSafe(|| processor.process(request, peer, reply));
                self.count_panic(code, catch_unwind(run).is_err());
            }
            Some(Row::Batched) => {
                if self.requests.is_none() {
                    self.requests = self.setting.table.batch();
                }
                if let Some(requests) = &mut self.requests {
                    self.in_batch = true;
                    let peer = &self.peer;
                    let run = AssertUnwindSafe(|| requests.process(request, peer, reply));
                    let panicked = catch_unwind(run).is_err();
                    self.count_panic(code, panicked);
                }
            }
            Some(Row::Python(requests)) => {
                // Another thread may answer this before the batch ends, and the answer may report the counters: they
                // must include it.
                self.setting.stats.add(&mut self.tally);
                if !enqueue(requests, request, &self.peer, reply) {
                    self.tally.busy += 1;
                }
            }
            Some(Row::Refused(why)) => {
                self.tally.unsupported += 1;
                let answer = unsupported(code, &format!(": {why}"));
                self.refuse_unserved(&request, reply, answer);
            }
            None => {
                self.tally.unsupported += 1;
                let answer = unsupported(code, "");
                self.refuse_unserved(&request, reply, answer);
            }
        }
    }

    fn refuse_unserved(&self, request: &Command, reply: Reply, answer: Command) {
        let table = &self.setting.table;
        table.refuse_unserved(request, &self.peer, reply, answer);
    }

    /// Returns the reply of a request that may be served, and refuses others.
    fn admit(&mut self, request: &Command, reply: Reply) -> Option<Reply> {
        if let Some(used) = &self.used
            && let Err(why) = used.take(self.now)
        {
            self.refuse_busy(request, reply, &why);
            return None;
        }
        let reply = match self.setting.table.admit(request, &self.peer, reply) {
            Ok(reply) => reply,
            Err(refused) => {
                let (reply, refused) = *refused;
                self.refuse(reply, refused);
                return None;
            }
        };
        if let Some(used) = &mut self.used
            && used.limits_users()
            && let Some(user) = self.setting.table.user(request)
            && let Err(why) = used.take_of_user(user, self.now)
        {
            self.refuse_busy(request, reply, &why);
            return None;
        }
        Some(reply)
    }

    fn refuse_busy(&mut self, request: &Command, reply: Reply, why: &str) {
        self.tally.busy += 1;
        let table = &self.setting.table;
        table.audit_refusal(request, &self.peer, response::SYSTEM_BUSY, why);
        reply.without_change().send(busy(why));
    }

    /// Answers a refused request, after a wait if its sender fails again and again to say who it is.
    fn refuse(
        &mut self,
        reply: Reply,
        Refused {
            answer,
            is_failed_login,
            ..
        }: Refused,
    ) {
        let wait = match &self.used {
            Some(used) if is_failed_login => used.failed_login(self.peer.remote().ip(), self.now),
            _ => Duration::ZERO,
        };
        if wait.is_zero() {
            reply.send(answer);
            return;
        }
        self.held = Some(Box::new(HeldAnswer {
            until: self.now + wait,
            reply,
            answer,
        }));
    }

    fn count_panic(&mut self, code: i32, panicked: bool) {
        if panicked {
            self.tally.panics += 1;
            tracing::error!(code, peer = %self.peer.remote(), "a processor panicked");
        }
    }
}
