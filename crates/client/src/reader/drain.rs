//! Takes the open answer apart, record by record, into the columns.

use crate::reader::{
    DrainStep, GROW_AFTER, Lost, MAX_STEP, OnBadMessage, OpenAnswer, PROBE, Range, RangeError, RangeReader,
    Unreadable,
};
use pyrmq_columns::ColumnError;
use pyrmq_remoting::WireError;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::record::{Hop, hop};
use std::sync::Arc;

impl RangeReader {
    /// Takes records off the open answer until it is empty or a block is full.
    pub(super) fn drain(&mut self) -> Result<DrainStep, RangeError> {
        let Some(mut open) = self.open.take() else {
            return Ok(DrainStep::More);
        };
        let Some(range) = self.ranges.get(open.range).cloned() else {
            return Ok(DrainStep::More);
        };
        while let Some(rest) = open.body.get(open.at..).filter(|rest| !rest.is_empty()) {
            let record = match Record::decode(rest) {
                Ok(record) => record,
                Err(cause) => {
                    self.bad_message(&range, open.position, cause.into())?;
                    let Hop::Record(size) = hop(rest) else {
                        // Nothing says where the next record begins: what follows is requested again.
                        open.position += 1;
                        open.next_begin = open.position;
                        break;
                    };
                    open.at += size;
                    open.position += 1;
                    continue;
                }
            };
            open.at += record.size;
            let offset = record.queue_offset;
            if offset < open.position {
                continue;
            }
            if offset >= open.to {
                break;
            }
            if offset > open.position && !self.has_gaps(&range) {
                self.gap(&range, &open, offset)?;
            }
            if self.tags.wants(&record) {
                match self.columns.push(Some(&range.broker), &record) {
                    Ok(None) => {}
                    Ok(Some(cause)) => self.unreadable.push(Unreadable {
                        range: range.clone(),
                        offset,
                        cause: cause.into(),
                    }),
                    Err(cause) => self.bad_message(&range, offset, cause)?,
                }
            }
            open.position = offset + 1;
            if self.columns.rows() >= self.options.max_rows || self.columns.bytes() >= self.options.max_bytes
            {
                self.open = Some(open);
                return Ok(DrainStep::Block);
            }
        }
        self.close(&range, &open)?;
        Ok(DrainStep::More)
    }

    /// Handles a message that cannot be a row: an error, or it is recorded as left out.
    fn bad_message(&mut self, range: &Arc<Range>, offset: i64, cause: ColumnError) -> Result<(), RangeError> {
        let range = range.clone();
        if self.options.on_bad == OnBadMessage::Fail {
            return Err(RangeError::Message { range, offset, cause });
        }
        self.unreadable.push(Unreadable { range, offset, cause });
        Ok(())
    }

    /// Ends an answer that is used up: requests what it lacks, and adapts the step to how much it brought.
    fn close(&mut self, range: &Arc<Range>, open: &OpenAnswer) -> Result<(), RangeError> {
        let mut next = open.position;
        if open.next_begin > next && next < open.to {
            next = open.next_begin.min(open.to);
            if !self.has_gaps(range) {
                self.gap(range, open, next)?;
            }
        }
        if next <= open.requested_from {
            self.pull_first(open.range, open.requested_from, open.to);
            return self.retry_later(RangeError::Answer {
                range: range.clone(),
                cause: WireError::Truncated {
                    what: "pull answer",
                    needed: 1,
                    left: 0,
                },
            });
        }
        if self.step.is_none() {
            // The probe was the only pull: the rest is requested in steps of the size that it has shown.
            self.next = (open.range, next);
        } else {
            self.pull_first(open.range, next, open.to);
        }
        if !self.is_filtered() {
            self.adapt_step(next - open.requested_from, open.to - open.requested_from);
        }
        Ok(())
    }

    fn adapt_step(&mut self, given: i64, requested: i64) {
        let Some(step) = self.step else {
            self.step = Some(if given < requested {
                given
            } else {
                requested.max(PROBE)
            });
            return;
        };
        if given < requested {
            self.step = Some(given.min(step));
            self.full_answers = 0;
        } else {
            self.full_answers += 1;
            if self.full_answers >= GROW_AFTER {
                self.full_answers = 0;
                self.step = Some(step.saturating_mul(2).min(MAX_STEP));
            }
        }
    }

    fn gap(&mut self, range: &Arc<Range>, open: &OpenAnswer, to: i64) -> Result<(), RangeError> {
        if !self.options.skip_lost {
            return Err(RangeError::Expired {
                range: range.clone(),
                from: open.position,
                lowest: to,
                highest: range.end,
            });
        }
        self.lost.push(Lost {
            range: range.clone(),
            from: open.position,
            to,
        });
        Ok(())
    }
}
