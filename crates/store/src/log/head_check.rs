//! Checks, once after a start, that each full segment begins with a record. A start reads the end of the log, so that
//! only readers of its messages would notice a segment that something else has overwritten.

use crate::error::StoreError;
use crate::log::commit_log::CommitLog;
use crate::log::damage::{Damage, has_head};
use crate::log::segment::Segment;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which one call of [`HeadCheck::go_on`] ends, because its thread has other tasks.
const MAX_ROUND: Duration = Duration::from_millis(20);
/// Maximum number of segments that one call of [`HeadCheck::go_on`] checks.
const MAX_SEGMENTS_PER_ROUND: u32 = 8;

/// A check in progress.
#[derive(Debug)]
pub(crate) struct HeadCheck {
    /// Where the next segment to be checked begins.
    next: i64,
    /// Later segments were written since the start.
    end: i64,
    /// The first of the damaged segments right before `next`.
    damaged: Option<Arc<Segment>>,
}

impl HeadCheck {
    pub(crate) fn new(log: &CommitLog) -> Self {
        Self {
            next: log.start(),
            end: log.appended(),
            damaged: None,
        }
    }

    /// Checks a few more segments. Returns the damage once the segment after it, or the end of the log, is reached; a
    /// segment that the disk cannot read at once.
    pub(crate) fn go_on(&mut self, log: &CommitLog) -> Result<Option<Damage>, StoreError> {
        let begin = Instant::now();
        for _ in 0..MAX_SEGMENTS_PER_ROUND {
            let base = self.next.max(log.start());
            let after = base + log.segment_bytes();
            let Some(segment) = log.segment_at(base).filter(|_| after <= self.end) else {
                self.next = self.end;
                return Ok(self.damage_until(base));
            };
            // One that cannot be read is not tried again: readers get the error.
            self.next = after;
            match has_head(log, &segment) {
                Ok(true) => {
                    if let Some(damage) = self.damage_until(base) {
                        return Ok(Some(damage));
                    }
                }
                Ok(false) => {
                    self.damaged.get_or_insert(segment);
                }
                Err(error @ StoreError::Io { .. }) => {
                    let (from, until) = (base, after);
                    return Ok(Some(Damage { from, until, error }));
                }
                Err(error) => return Err(error),
            }
            if begin.elapsed() >= MAX_ROUND {
                break;
            }
        }
        Ok(None)
    }

    fn damage_until(&mut self, good: i64) -> Option<Damage> {
        let first = self.damaged.take()?;
        Some(Damage {
            from: first.base,
            until: good,
            error: StoreError::Damaged {
                path: first.path.clone(),
                position: first.base,
                reason: "it does not begin with a record".to_owned(),
                good,
            },
        })
    }
}
