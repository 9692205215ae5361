//! Handles the answers to pulls at the front, and decides what is tried again.

use crate::reader::{
    FIRST_PAUSE, Lost, MAX_PAUSE, OpenAnswer, Range, RangeError, RangeReader, RetryState, pull,
};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::inner_batch;
use pyrmq_remoting::net::NetError;
use std::sync::Arc;
use std::time::Instant;

impl OpenAnswer {
    /// The answer to a pull of `range` for the offsets `from` to `to - 1`.
    fn new(
        index: usize,
        range: &Arc<Range>,
        (from, to): (i64, i64),
        answer: Command,
    ) -> Result<Self, RangeError> {
        let offsets = pull::read_offsets(range, &answer)?;
        let body = answer.body.unwrap_or_default();
        let body = inner_batch::unwrapped(body, from).map_err(|cause| RangeError::Message {
            range: range.clone(),
            offset: from,
            cause: cause.into(),
        })?;
        Ok(Self {
            range: index,
            requested_from: from,
            position: from,
            to,
            next_begin: offsets.next_begin,
            body,
            at: 0,
        })
    }
}

impl RangeReader {
    pub(super) fn answered(&mut self, answer: Result<Command, NetError>) -> Result<(), RangeError> {
        let Some((index, from, to)) = self
            .window
            .front()
            .map(|pending| (pending.range, pending.from, pending.to))
        else {
            return Ok(());
        };
        let Some(range) = self.ranges.get(index).cloned() else {
            return Ok(());
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(cause) => {
                return self.retry_later(RangeError::Unreachable {
                    range,
                    waited_ms: 0,
                    cause,
                });
            }
        };
        let refused = |answer: Command| RangeError::Refused {
            range: range.clone(),
            offset: from,
            code: answer.code,
            remark: answer.remark.unwrap_or_default(),
        };
        match answer.code {
            response::SUCCESS => {
                let open = OpenAnswer::new(index, &range, (from, to), answer)?;
                self.retry = None;
                self.window.pop_front();
                self.open = Some(open);
                Ok(())
            }
            response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY | response::PULL_OFFSET_MOVED => {
                let offsets = pull::read_offsets(&range, &answer)?;
                self.nothing_there(&range, (index, from, to), &offsets, answer.code)
            }
            response::SYSTEM_ERROR
            | response::SYSTEM_BUSY
            | response::SERVICE_NOT_AVAILABLE
            | response::FLOW_CONTROL
            | response::GO_AWAY => self.retry_later(refused(answer)),
            _ => Err(refused(answer)),
        }
    }

    /// Handles a front pull that found nothing: the filter left a gap, messages are gone, or there are none yet.
    fn nothing_there(
        &mut self,
        range: &Arc<Range>,
        (index, from, to): (usize, i64, i64),
        offsets: &pull::AnswerOffsets,
        code: i32,
    ) -> Result<(), RangeError> {
        if offsets.lowest > from {
            return self.expired(range, offsets.lowest, offsets);
        }
        if offsets.next_begin > from && code != response::PULL_OFFSET_MOVED {
            if !self.has_gaps(range) {
                return self.expired(range, offsets.next_begin, offsets);
            }
            self.retry = None;
            self.window.pop_front();
            self.pull_first(index, offsets.next_begin, to);
            return Ok(());
        }
        // A broker that was killed shows less of a queue until it has read its log again.
        self.retry_later(RangeError::Expired {
            range: range.clone(),
            from,
            lowest: offsets.lowest,
            highest: offsets.highest,
        })
    }

    /// Pulls again later, unless this has lasted too long.
    pub(super) fn retry_later(&mut self, cause: RangeError) -> Result<(), RangeError> {
        let now = Instant::now();
        let (since, pause) = match &self.retry {
            Some(retry) => (retry.since, (retry.pause * 2).min(MAX_PAUSE)),
            None => (now, FIRST_PAUSE),
        };
        let waited = now.duration_since(since);
        let limit = match cause {
            RangeError::Unreachable { .. } => self.options.unreachable_after,
            _ => self.options.timeout,
        };
        if waited + pause > limit {
            return match cause {
                RangeError::Unreachable { range, cause, .. } => Err(RangeError::Unreachable {
                    range,
                    waited_ms: waited.as_millis(),
                    cause,
                }),
                RangeError::Expired { range, .. } if self.options.skip_lost => {
                    let to = range.end;
                    self.skip_lost_range(&range, to);
                    Ok(())
                }
                other => Err(other),
            };
        }
        self.retry = Some(RetryState {
            since,
            again_at: now + pause,
            pause,
            is_resent: false,
            cause,
        });
        Ok(())
    }

    fn expired(
        &mut self,
        range: &Arc<Range>,
        to: i64,
        offsets: &pull::AnswerOffsets,
    ) -> Result<(), RangeError> {
        if !self.options.skip_lost {
            return Err(RangeError::Expired {
                range: range.clone(),
                from: self.window.front().map_or(range.start, |pending| pending.from),
                lowest: offsets.lowest.max(to),
                highest: offsets.highest,
            });
        }
        self.skip_lost_range(range, to);
        Ok(())
    }

    /// Continues after `to`; the other pulls detect the loss themselves.
    fn skip_lost_range(&mut self, range: &Arc<Range>, to: i64) {
        self.retry = None;
        if let Some(front) = self.window.pop_front() {
            self.lost.push(Lost {
                range: range.clone(),
                from: front.from,
                to: to.min(front.to),
            });
            self.pull_first(front.range, to, front.to);
        }
    }
}
