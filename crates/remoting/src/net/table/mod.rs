//! The processor table: what answers each request code (Apache `NettyRemotingAbstract.processorTable`).

pub(super) mod requests;

use crate::codes::{request, response};
use crate::command::Command;
use crate::hash::NameMap;
use crate::net::{
    AdminPort, AuditLog, Peer, PythonRequest, Refused, Reply, RequestCheck, RequestLog, Requests, Security,
};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Answers requests of one family, on the connection's own task: it must not block for long.
pub trait Processor: Send + Sync + 'static {
    /// Handles one request. It may answer `reply` at once, or keep it and answer later from any thread. A reply that is
    /// dropped unanswered sends an error to the peer.
    fn process(&self, request: Command, peer: &Peer, reply: Reply);
}

/// Answers requests of one family. Those that arrived together on a connection are one batch: what they share (a write
/// to the disk) is done once for all of them.
pub trait BatchProcessor: Send + Sync + 'static {
    /// Returns a batch for one connection, which uses it until it closes.
    fn batch(&self) -> Box<dyn RequestBatch>;
}

/// Requests of a connection that arrived together.
pub trait RequestBatch: Send + fmt::Debug {
    /// Handles one request like [`Processor::process`]; the answer may wait for the end of the batch.
    fn process(&mut self, request: Command, peer: &Peer, reply: Reply);

    /// Called after the last request that had arrived. It runs on the connection's task, before the answers are
    /// written, and must not block for long.
    fn end(&mut self);
}

impl<F: Fn(Command, &Peer, Reply) + Send + Sync + 'static> Processor for F {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        self(request, peer, reply);
    }
}

/// What answers a request code.
#[derive(Clone)]
pub enum Row {
    /// Rust, on the connection's task.
    Native(Arc<dyn Processor>),
    /// Rust, on the connection's task, together with the other requests that had arrived: by the table's
    /// [`BatchProcessor`].
    Batched,
    /// A Python worker that pulls from the queue.
    Python(Arc<Requests>),
    /// Answered with REQUEST_CODE_NOT_SUPPORTED and this remark.
    Refused(&'static str),
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native(_) => "Native",
            Self::Batched => "Batched",
            Self::Python(_) => "Python",
            Self::Refused(_) => "Refused",
        })
    }
}

/// How a server serves a request code, in its list of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By Rust, on the connection's task or on a separate thread.
    Native,
    /// By a Python worker if the Python side registers one; otherwise refused.
    Python,
    /// Answered REQUEST_CODE_NOT_SUPPORTED with the note as remark.
    Refused,
}

/// One row of a server's list, from which the table and docs/compat.md are generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowInfo {
    /// Request code.
    pub code: i32,
    /// How it is served.
    pub kind: Kind,
    /// Notes for users, or the reason for a refusal.
    pub note: &'static str,
}

/// Whether a request is for the owner of a table.
type Filter = Box<dyn Fn(&Command) -> bool + Send + Sync>;

/// Maps request codes to rows. Fixed once the server runs.
#[derive(Default)]
pub struct ProcessorTable {
    rows: NameMap<i32, Row>,
    // What answers all other codes.
    rest: Option<Row>,
    batches: Option<Arc<dyn BatchProcessor>>,
    filter: Option<Filter>,
    // Whether a request may be served at all.
    check: Option<Arc<dyn RequestCheck>>,
    audit: Option<Arc<AuditLog>>,
    log: Arc<RequestLog>,
    // The port that serves administrators in its place.
    admin: Option<Arc<AdminPort>>,
}

impl fmt::Debug for ProcessorTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorTable")
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl ProcessorTable {
    /// Creates an empty table: every code is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a native row for each of these codes.
    pub fn native(&mut self, codes: &[i32], processor: &Arc<dyn Processor>) -> &mut Self {
        for code in codes {
            self.rows.insert(*code, Row::Native(processor.clone()));
        }
        self
    }

    /// Adds Python rows. A code that has a native row keeps it.
    pub fn python(&mut self, codes: &[i32], requests: &Arc<Requests>) -> &mut Self {
        for code in codes {
            self.rows
                .entry(*code)
                .or_insert_with(|| Row::Python(requests.clone()));
        }
        self
    }

    /// Adds a row that gives the reason why this code is not served.
    pub fn refused(&mut self, code: i32, remark: &'static str) -> &mut Self {
        self.rows.insert(code, Row::Refused(remark));
        self
    }

    /// A batched row for each of these codes. A table has one batch processor: a later one replaces it.
    pub fn batched(&mut self, codes: &[i32], processor: Arc<dyn BatchProcessor>) -> &mut Self {
        self.rows.extend(codes.iter().map(|code| (*code, Row::Batched)));
        self.batches = Some(processor);
        self
    }

    /// Adds a native row for all codes that have no other row.
    pub fn rest(&mut self, processor: Arc<dyn Processor>) -> &mut Self {
        self.rest = Some(Row::Native(processor));
        self
    }

    /// Clients that share a connection: only the requests for which `filter` returns true are for this one.
    pub fn only(&mut self, filter: impl Fn(&Command) -> bool + Send + Sync + 'static) -> &mut Self {
        self.filter = Some(Box::new(filter));
        self
    }

    /// Checks each request before its row serves it, or before it is refused for having none, and writes down changes
    /// and refusals.
    pub fn secured_by(&mut self, security: &Security) -> &mut Self {
        self.check.clone_from(&security.check);
        self.audit.clone_from(&security.audit);
        self
    }

    /// Writes into this log which requests no row takes.
    pub fn logged_by(&mut self, log: &Arc<RequestLog>) -> &mut Self {
        self.log = log.clone();
        self
    }

    /// Refuses requests of administrators if another port serves them.
    pub fn without_administration(&mut self, security: &Security) -> &mut Self {
        self.admin.clone_from(&security.admin);
        self
    }

    /// Returns the reply of a request that may be served, and otherwise how it is refused.
    pub(super) fn admit(
        &self,
        request: &Command,
        peer: &Peer,
        reply: Reply,
    ) -> Result<Reply, Box<(Reply, Refused)>> {
        if let Some(check) = &self.check
            && let Some(refused) = check.check(request, peer)
        {
            self.audit_refusal(request, peer, refused.answer.code, &refused.why);
            return Err(Box::new((reply, refused)));
        }
        if let Some(admin) = &self.admin
            && admin.codes.contains(request.code)
        {
            let refused = elsewhere(request.code, admin);
            self.audit_refusal(request, peer, refused.answer.code, &refused.why);
            return Err(Box::new((reply, refused)));
        }
        Ok(match &self.audit {
            Some(audit) => reply.noting(audit.entry(request, peer.remote())),
            None => reply,
        })
    }

    /// Returns the user of a request whose user has been checked.
    pub(super) fn user<'r>(&self, request: &'r Command) -> Option<&'r str> {
        let check = self.check.as_ref()?;
        check.user(request)
    }

    /// Writes down that a request is refused.
    pub(super) fn audit_refusal(&self, request: &Command, peer: &Peer, answer: i32, why: &str) {
        if let Some(audit) = &self.audit {
            audit.refused(request, peer.remote(), answer, why);
        }
    }

    /// Answers a request that no row takes, and logs it.
    pub(super) fn refuse_unserved(&self, request: &Command, peer: &Peer, reply: Reply, answer: Command) {
        let why = answer.remark.as_deref().unwrap_or_default();
        self.log.refused(request, peer.remote(), answer.code, why);
        reply.send(answer);
    }

    /// Whether a request is for the owner of this table.
    pub(super) fn is_for(&self, request: &Command) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter(request))
    }

    /// Passes a request to its row. Batched rows are for servers: here they are refused.
    pub(super) fn serve(&self, request: Command, peer: &Peer, reply: Reply) {
        let reply = match self.admit(&request, peer, reply) {
            Ok(reply) => reply,
            Err(refused) => {
                let (reply, refused) = *refused;
                reply.send(refused.answer);
                return;
            }
        };
        let code = request.code;
        match self.get(code) {
            Some(Row::Native(processor)) => processor.process(request, peer, reply),
            Some(Row::Python(requests)) => {
                // A full queue has said so.
                let _is_queued = enqueue(requests, request, peer, reply);
            }
            Some(Row::Refused(why)) => reply.send(unsupported(code, &format!(": {why}"))),
            Some(Row::Batched) | None => reply.send(unsupported(code, "")),
        }
    }

    /// A batch for a connection; `None` without batched rows.
    pub(super) fn batch(&self) -> Option<Box<dyn RequestBatch>> {
        self.batches.as_ref().map(|batches| batches.batch())
    }

    /// Returns the row of a code.
    pub fn get(&self, code: i32) -> Option<&Row> {
        self.rows.get(&code).or(self.rest.as_ref())
    }
}

/// Queues a request for Python. False: the queue is full, and the peer was asked to try again later.
pub(super) fn enqueue(requests: &Requests, command: Command, peer: &Peer, reply: Reply) -> bool {
    let request = PythonRequest {
        command,
        peer: peer.clone(),
        reply,
        at: Instant::now(),
    };
    match requests.push(request) {
        Ok(()) => true,
        Err(back) => {
            const WHY: &str = "the queue of the control plane is full";
            let from = back.peer.remote();
            let log = requests.log();
            log.refused(&back.command, from, response::SYSTEM_BUSY, WHY);
            back.reply.send(busy(WHY));
            false
        }
    }
}

fn elsewhere(code: i32, admin: &AdminPort) -> Refused {
    let name = request::name(code).unwrap_or_default();
    let why = format!(
        "request code {code} ({name}) is served by the administration port {} alone (adminListenPort): send it there",
        admin.address
    );
    Refused {
        answer: Command::error(response::NO_PERMISSION, why.clone()),
        why,
        is_failed_login: false,
    }
}

pub(super) fn busy(why: &str) -> Command {
    Command::error(
        response::SYSTEM_BUSY,
        format!("[OVERLOAD] {why}, try again later"),
    )
}

pub(super) fn unsupported(code: i32, why: &str) -> Command {
    let remark = format!("request type {code} not supported{why}");
    Command::error(response::REQUEST_CODE_NOT_SUPPORTED, remark)
}
