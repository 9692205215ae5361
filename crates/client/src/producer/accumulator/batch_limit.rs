//! The maximum length of a batch, as learned from refusals.
//!
//! A broker that refuses a batch for its length (`maxMessageSize`) lowers the limit. An operator may raise that setting
//! again, and no broker reports it. So after a minute without a refusal the limit doubles, up to its original value. A
//! batch that is refused meanwhile costs one split.

use pyrmq_remoting::sync::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time without a refusal after which a longer batch is tried.
const RAISE_AFTER: Duration = Duration::from_mins(1);

/// The longest batch that brokers are assumed to accept.
#[derive(Debug)]
pub(super) struct BatchLimit {
    most: usize,
    bytes: AtomicUsize,
    // When the limit last changed. Guards changes.
    changed: Mutex<Option<Instant>>,
}

impl BatchLimit {
    /// `most` bytes, until a broker refuses that.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            bytes: AtomicUsize::new(most),
            changed: Mutex::new(None),
        }
    }

    /// Bytes that a batch may have now; `None`: no broker has refused a length.
    pub(super) fn lowered(&self, now: impl FnOnce() -> Instant) -> Option<usize> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        (bytes < self.most).then(|| self.raise(now()))?
    }

    fn raise(&self, now: Instant) -> Option<usize> {
        let mut changed = lock(&self.changed);
        let mut bytes = self.bytes.load(Ordering::Relaxed);
        if changed.is_some_and(|at| now >= at + RAISE_AFTER) {
            bytes = bytes.saturating_mul(2).min(self.most);
            self.bytes.store(bytes, Ordering::Relaxed);
            *changed = Some(now);
        }
        (bytes < self.most).then_some(bytes)
    }

    /// A batch of this length was stored, and a longer one refused. True when the limit is lower than before.
    pub(super) fn lower(&self, bytes: usize, now: Instant) -> bool {
        let mut changed = lock(&self.changed);
        *changed = Some(now);
        self.bytes.fetch_min(bytes, Ordering::Relaxed) > bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_a_broker_has_lowered_rises_again_in_time() {
        let limit = BatchLimit::new(1000);
        let start = Instant::now();
        assert_eq!(limit.lowered(|| start), None);
        assert!(limit.lower(300, start));
        assert!(!limit.lower(400, start), "it takes 300 only");
        let after = |minutes: u32| limit.lowered(|| start + RAISE_AFTER * minutes);
        assert_eq!(after(0), Some(300));
        assert_eq!(after(1), Some(600), "longer batches are tried");
        assert_eq!(after(1), Some(600), "once");
        assert!(limit.lower(300, start + RAISE_AFTER), "refused again");
        assert_eq!(after(1), Some(300));
        assert_eq!((after(2), after(3)), (Some(600), None));
        assert_eq!(after(4), None, "as long as it was");
    }
}
