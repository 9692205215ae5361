//! Checks, once after a start, that each full segment begins with a record. A start reads the end of the log, so that
//! only readers of its messages would notice a segment that something else has overwritten.

use crate::error::StoreError;
use crate::log::commit_log::CommitLog;
use crate::log::damage::has_head;
use std::time::{Duration, Instant};

/// How long one call of [`HeadCheck::go_on`] reads, and how many segments at most: the thread has other tasks.
const MOST: Duration = Duration::from_millis(20);
const AT_ONCE: u32 = 8;

/// A check in progress.
#[derive(Debug)]
pub(crate) struct HeadCheck {
    /// Where the next segment to be checked begins.
    next: i64,
    /// Later segments were written since the start.
    end: i64,
}

impl HeadCheck {
    pub(crate) fn new(log: &CommitLog) -> Self {
        Self {
            next: log.start(),
            end: log.appended(),
        }
    }

    /// Checks a few more segments. Returns what is wrong with the first one that is overwritten.
    pub(crate) fn go_on(&mut self, log: &CommitLog) -> Result<Option<StoreError>, StoreError> {
        let begin = Instant::now();
        for _ in 0..AT_ONCE {
            let base = self.next.max(log.start());
            let after = base + log.segment_bytes();
            let Some(segment) = log.segment_at(base).filter(|_| after <= self.end) else {
                self.next = self.end;
                break;
            };
            // One that cannot be read is not tried again: readers get the error.
            self.next = after;
            if !has_head(log, &segment)? {
                return Ok(Some(StoreError::Damaged {
                    path: segment.path.clone(),
                    position: base,
                    reason: "it does not begin with a record".to_owned(),
                    good: self.good_behind(log, after)?,
                }));
            }
            if begin.elapsed() >= MOST {
                break;
            }
        }
        Ok(None)
    }

    /// Where the next segment begins that has a record at its beginning, or the end of the log.
    fn good_behind(&self, log: &CommitLog, mut base: i64) -> Result<i64, StoreError> {
        while base + log.segment_bytes() <= self.end
            && let Some(segment) = log.segment_at(base)
        {
            if has_head(log, &segment)? {
                return Ok(base);
            }
            base += log.segment_bytes();
        }
        Ok(base)
    }
}
