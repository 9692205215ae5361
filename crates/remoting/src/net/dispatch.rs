//! A connection's incoming frames on their way: responses to those who wait, requests to their row of the table.

use super::connection::{Connection, Hang};
use super::large_frames::Permit;
use super::link::Phase;
use super::{CloseReason, PythonRequest, Reply, Row};
use crate::codes::response;
use crate::command::Command;
use crate::error::WireError;
use crate::frame;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Peers newer than this know GO_AWAY (Apache `MQVersion.V5_3_1`).
const GO_AWAY_ABOVE: i32 = 475;

/// Answers that are handed out under one lock; more would not be in the processor's nearest cache any more.
const TOGETHER: usize = 32;

impl Connection {
    /// Decodes and hands out the whole frames in `input`, while there is work left and room for answers.
    pub(super) fn dispatch(&mut self, work: &mut usize) -> Result<(), CloseReason> {
        let before = *work;
        let result = loop {
            if *work == 0 || !self.takes_more() {
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
            // The frame that hung is whole now; what is left is another.
            self.read_hang = Hang::default();
        }
        self.responses();
        result
    }

    /// Behind the last frame that was there: what requests of this batch share is done now, so that their answers leave
    /// in one write.
    pub(super) fn end_batch(&mut self) {
        if !std::mem::take(&mut self.in_batch) {
            return;
        }
        let end = AssertUnwindSafe(|| self.setting.table.end_batch());
        if catch_unwind(end).is_err() {
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

    fn request(&mut self, request: Command, permit: Option<Permit>) {
        self.tally.requests += 1;
        let reply = Reply::new(self.peer.clone(), &request).holding(permit);
        if !reply.is_oneway() && self.link.begin_request() > self.setting.options.in_flight {
            self.tally.busy += 1;
            reply.send(busy("too many requests of this connection wait for their answer"));
            return;
        }
        if self.link.phase() == Phase::Draining && request.version > GO_AWAY_ABOVE {
            reply.send(Command::error(response::GO_AWAY, "the server is shutting down"));
            return;
        }
        let code = request.code;
        match self.setting.table.get(code) {
            Some(Row::Native(processor)) => {
                let peer = &self.peer;
                self.in_batch |= processor.joins_batch();
                let run = AssertUnwindSafe(|| processor.process(request, peer, reply));
                if catch_unwind(run).is_err() {
                    self.tally.panics += 1;
                    tracing::error!(code, peer = %self.peer.remote(), "a processor panicked");
                }
            }
            Some(Row::Python(requests)) => {
                // Answered on another thread, perhaps before this batch ends: what it tells counts itself.
                self.setting.stats.add(&mut self.tally);
                let command = request;
                let peer = self.peer.clone();
                let at = Instant::now();
                let request = PythonRequest {
                    command,
                    peer,
                    reply,
                    at,
                };
                if let Err(back) = requests.push(request) {
                    self.tally.busy += 1;
                    back.reply.send(busy("the queue of the control plane is full"));
                }
            }
            Some(Row::Refused(why)) => {
                self.tally.unsupported += 1;
                reply.send(unsupported(code, &format!(": {why}")));
            }
            None => {
                self.tally.unsupported += 1;
                reply.send(unsupported(code, ""));
            }
        }
    }
}

fn busy(why: &str) -> Command {
    Command::error(
        response::SYSTEM_BUSY,
        format!("[OVERLOAD] {why}, try again later"),
    )
}

fn unsupported(code: i32, why: &str) -> Command {
    let remark = format!("request type {code} not supported{why}");
    Command::error(response::REQUEST_CODE_NOT_SUPPORTED, remark)
}
