//! The audit log: one line for each administrative change and for each refused request.
//!
//! Lines have user, address, request, resources, result and reason, and nothing else of a request: no other field, no
//! body. What a peer chose is quoted, escaped and cut. A change is written when it is answered. Refusals are limited
//! for each address and in sum, so that strangers cannot fill the disk.

use super::CodeSet;
use crate::codes::{request, response};
use crate::command::Command;
use crate::net::limits::line_limit::LineLimit;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Refusals that are written in ten seconds, for each address and in sum.
const PER_ADDRESS: u32 = 10;
const IN_SUM: u32 = 200;
/// Characters of a text that a peer chose.
const MAX_TEXT: usize = 256;

/// Says what the audit log writes about a request.
pub trait RequestAudit: Send + Sync + fmt::Debug + 'static {
    /// Returns the codes of administrative changes.
    fn changes(&self) -> CodeSet;
    /// Returns the name of the request's user; `None` if the server checks no users or the request has none.
    fn user<'r>(&self, request: &'r Command) -> Option<&'r str>;
    /// Returns what the request touches.
    fn resources(&self, request: &Command) -> String;
}

/// Writes the audit log of a server. Its ports share one.
#[derive(Debug)]
pub struct AuditLog {
    requests: Arc<dyn RequestAudit>,
    changes: CodeSet,
    refusals: LineLimit,
}

impl AuditLog {
    /// Creates the log of a server whose requests are described so.
    pub fn new(requests: Arc<dyn RequestAudit>) -> Self {
        Self {
            changes: requests.changes(),
            requests,
            refusals: LineLimit::new(PER_ADDRESS, IN_SUM),
        }
    }

    /// Returns the line to write when a request is answered; `None` if it is no administrative change.
    pub(super) fn entry(&self, request: &Command, from: SocketAddr) -> Option<Box<AuditEntry>> {
        if !self.changes.contains(request.code) {
            return None;
        }
        Some(Box::new(AuditEntry {
            user: self.user(request),
            from,
            code: request.code,
            resources: cut(&self.requests.resources(request)),
        }))
    }

    /// Writes that a request was refused, and why. Rows call it for what they alone can decide.
    pub fn refused(&self, request: &Command, from: SocketAddr, answer: i32, why: &str) {
        let Some(omitted) = self.refusals.take(from.ip()) else {
            return;
        };
        tracing::warn!(
            target: "pyrmq_audit",
            user = ?self.user(request),
            from = %from,
            code = request.code,
            request = name_of(request.code),
            resources = ?cut(&self.requests.resources(request)),
            result = result_of(answer),
            reason = ?cut(why),
            not_logged = omitted,
            "refused"
        );
    }

    fn user(&self, request: &Command) -> String {
        self.requests.user(request).map_or_else(|| "-".to_owned(), cut)
    }
}

/// The line of an administrative change that is not answered yet.
#[derive(Debug)]
pub(crate) struct AuditEntry {
    user: String,
    from: SocketAddr,
    code: i32,
    resources: String,
}

impl AuditEntry {
    /// Writes the change with the answer's code and remark; without a code it is never answered.
    pub(super) fn answered(&self, answer: Option<i32>, remark: Option<&str>) {
        tracing::info!(
            target: "pyrmq_audit",
            user = ?self.user,
            from = %self.from,
            code = self.code,
            request = name_of(self.code),
            resources = ?self.resources,
            result = answer.map_or("NONE", result_of),
            reason = ?cut(remark.unwrap_or_default()),
            "change"
        );
    }
}

/// Returns the name of a request code.
pub(super) fn name_of(code: i32) -> &'static str {
    request::name(code).unwrap_or("UNKNOWN")
}

/// Returns the name of a response code.
pub(super) fn result_of(code: i32) -> &'static str {
    response::name(code).unwrap_or("UNKNOWN")
}

/// Returns the beginning of a text that a peer chose.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("ü"), "ü");
        let long = "ü".repeat(300);
        assert_eq!(cut(&long), format!("{}...", "ü".repeat(256)));
    }
}
