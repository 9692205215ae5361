//! The processor table: which code is answered by what (Apache `NettyRemotingAbstract.processorTable`).

use super::{Peer, Reply, Requests};
use crate::command::Command;
use crate::hash::NameMap;
use std::fmt;
use std::sync::Arc;

/// Answers requests of one family, on the connection's own task: it must not block for long.
pub trait Processor: Send + Sync + 'static {
    /// Handles one request. `reply` may be answered at once, or kept and answered later from any thread; dropped
    /// unanswered it says so to the peer.
    fn process(&self, request: Command, peer: &Peer, reply: Reply);

    /// True when its answers come only once [`Table::on_batch_end`]'s function was called: what many requests share
    /// (a write to the disk) is then done once for all requests that came together.
    fn joins_batch(&self) -> bool {
        false
    }
}

/// Called behind the last request of a batch.
pub type BatchEnd = dyn Fn() + Send + Sync;

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
    /// A Python worker that pulls from the queue.
    Python(Arc<Requests>),
    /// Answered with REQUEST_CODE_NOT_SUPPORTED and this remark.
    Refused(&'static str),
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native(_) => "Native",
            Self::Python(_) => "Python",
            Self::Refused(_) => "Refused",
        })
    }
}

/// How a server's list of rows says that a request code is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By Rust, on the connection's task or on a thread of its own.
    Native,
    /// By a Python worker, where the Python side registers one; refused otherwise.
    Python,
    /// Answered REQUEST_CODE_NOT_SUPPORTED, with the note as remark.
    Refused,
}

/// One row of such a list, from which the table and docs/compat.md are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowInfo {
    /// Request code.
    pub code: i32,
    /// How it is served.
    pub kind: Kind,
    /// What is to know about it.
    pub note: &'static str,
}

/// Request code to row. Fixed once the server runs.
#[derive(Default)]
pub struct Table {
    rows: NameMap<i32, Row>,
    batch_end: Option<Arc<BatchEnd>>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// An empty table: every code is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// A native row for each of these codes.
    pub fn native(&mut self, codes: &[i32], processor: &Arc<dyn Processor>) -> &mut Self {
        for code in codes {
            self.rows.insert(*code, Row::Native(processor.clone()));
        }
        self
    }

    /// Python rows. A code that has a native row keeps it.
    pub fn python(&mut self, codes: &[i32], requests: &Arc<Requests>) -> &mut Self {
        for code in codes {
            self.rows
                .entry(*code)
                .or_insert_with(|| Row::Python(requests.clone()));
        }
        self
    }

    /// A row that says why this code is not served.
    pub fn refused(&mut self, code: i32, remark: &'static str) -> &mut Self {
        self.rows.insert(code, Row::Refused(remark));
        self
    }

    /// Sets what ends a batch: the requests that a connection had when it was read, if one of them was for a row that
    /// joins batches. It runs on the connection's task, in front of the write of the answers, and must not block for
    /// long.
    pub fn on_batch_end(&mut self, end: Arc<BatchEnd>) -> &mut Self {
        self.batch_end = Some(end);
        self
    }

    pub(super) fn end_batch(&self) {
        if let Some(end) = &self.batch_end {
            end();
        }
    }

    /// The row of a code.
    pub fn get(&self, code: i32) -> Option<&Row> {
        self.rows.get(&code)
    }
}
