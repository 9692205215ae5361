//! The audit log: one line for each administrative change and for each refused request.
//!
//! Lines have user, address, request, resources, result and reason, and nothing else of a request: no other field, no
//! body. What a peer chose is quoted, escaped and cut. A change is written when it is answered. Refusals are limited
//! for each address and in sum, so that strangers cannot fill the disk.

use super::CodeSet;
use crate::codes::{request, response};
use crate::command::Command;
use crate::net::limits::address_map::AddressMap;
use crate::sync::lock;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Time in which a limited number of refusals is written, for each address and in sum.
const INTERVAL: Duration = Duration::from_secs(10);
const PER_ADDRESS: u32 = 10;
const IN_SUM: u32 = 200;
/// Addresses whose refusals are counted.
const ADDRESSES: usize = 4096;
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
    // Guards how many refusals were written lately.
    refusals: Mutex<Refusals>,
}

#[derive(Debug)]
struct Refusals {
    sum: Window,
    by_address: AddressMap<Window>,
}

/// Refusals since the beginning of an interval.
#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    written: u32,
    omitted: u64,
}

impl Window {
    /// Whether one more may be written; the number of those that were not, if it is the first of an interval.
    fn take(&mut self, now: Instant, most: u32) -> Option<u64> {
        let mut omitted = 0;
        if self
            .since
            .is_none_or(|since| now.duration_since(since) >= INTERVAL)
        {
            omitted = std::mem::take(&mut self.omitted);
            (self.since, self.written) = (Some(now), 0);
        }
        if self.written >= most {
            self.omitted += 1;
            return None;
        }
        self.written += 1;
        Some(omitted)
    }
}

impl AuditLog {
    /// Creates the log of a server whose requests are described so.
    pub fn new(requests: Arc<dyn RequestAudit>) -> Self {
        Self {
            changes: requests.changes(),
            requests,
            refusals: Mutex::new(Refusals {
                sum: Window::default(),
                by_address: AddressMap::new(ADDRESSES),
            }),
        }
    }

    /// Returns what to write when a request is answered; `None` if it is no administrative change.
    pub(super) fn change(&self, request: &Command, from: SocketAddr) -> Option<Box<Change>> {
        if !self.changes.contains(request.code) {
            return None;
        }
        Some(Box::new(Change {
            user: self.user(request),
            from,
            code: request.code,
            resources: cut(&self.requests.resources(request)),
        }))
    }

    /// Writes that a request was refused, and why. Rows call it for what they alone can decide.
    pub fn refused(&self, request: &Command, from: SocketAddr, answer: i32, why: &str) {
        let now = Instant::now();
        let mut refusals = lock(&self.refusals);
        let window = refusals.by_address.entry(from.ip());
        let Some(omitted) = window.take(now, PER_ADDRESS) else {
            return;
        };
        let Some(omitted_in_sum) = refusals.sum.take(now, IN_SUM) else {
            return;
        };
        drop(refusals);
        tracing::warn!(
            target: "pyrmq_audit",
            user = ?self.user(request),
            from = %from,
            code = request.code,
            request = name_of(request.code),
            resources = ?cut(&self.requests.resources(request)),
            result = result_of(answer),
            reason = ?cut(why),
            not_logged = omitted.max(omitted_in_sum),
            "refused"
        );
    }

    fn user(&self, request: &Command) -> String {
        self.requests.user(request).map_or_else(|| "-".to_owned(), cut)
    }
}

/// An administrative change on its way.
#[derive(Debug)]
pub(crate) struct Change {
    user: String,
    from: SocketAddr,
    code: i32,
    resources: String,
}

impl Change {
    /// Writes the change with the answer's code and remark; without a code nobody answers it.
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

fn name_of(code: i32) -> &'static str {
    request::name(code).unwrap_or("UNKNOWN")
}

fn result_of(code: i32) -> &'static str {
    response::name(code).unwrap_or("UNKNOWN")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_so_many_lines_and_the_next_one_tells_of_the_rest() {
        let (mut window, begin) = (Window::default(), Instant::now());
        let written = (0..25).filter(|_| window.take(begin, 10) == Some(0)).count();
        assert_eq!(written, 10);
        assert_eq!(window.take(begin + INTERVAL, 10), Some(15));
        assert_eq!(window.take(begin + INTERVAL, 10), Some(0));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("ü"), "ü");
        let long = "ü".repeat(300);
        assert_eq!(cut(&long), format!("{}...", "ü".repeat(256)));
    }
}
