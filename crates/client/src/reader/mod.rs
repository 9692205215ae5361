//! Reads fixed ranges of queues into column blocks, with several pulls on their way.
//!
//! ```text
//! queue    lo ........ lo+s ....... lo+2s ...... lo+3s                  hi
//! asks     [   ask 0   )[   ask 1   )[   ask 2   )   at most `pulls_in_flight`, answered in any order,
//! columns  <- front answer, cut? the rest of ask 0 is asked again, in front   taken strictly in this one
//! ```
//! Queue offsets are dense, so the next asks need not wait for an answer. How much a broker gives at once differs
//! (Apache's gives 32 messages from memory and 8 from disk, whatever is asked: `DefaultMessageStore.getMessage`), so
//! the step follows what comes. With a filter the broker walks on over what does not match; then a queue has one
//! ask at a time, and other queues fill the window.
//!
//! A failure that may pass (no connection, busy broker, a queue that is shorter than it was because its broker has
//! just been started again) is asked again until `timeout`; then it is the read's error. No async: a thread without a
//! runtime waits in slices.

mod error;
mod pull;

pub use error::{Lost, Range, RangeError, Unreadable};

use bytes::Bytes;
use pyrmq_columns::{Block, Column, ColumnError, Columns, Tags};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::inner_batch;
use pyrmq_remoting::message::record::{Hop, hop};
use pyrmq_remoting::net::{Call, Client, NetError};
use pyrmq_remoting::{Command, WireError};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the first ask wants, to learn how much the broker gives at once.
const PROBE: i64 = 1024;
/// The step never exceeds this.
const MAX_STEP: i64 = 4096;
/// So many answers in full, and a larger step is tried.
const GROW_AFTER: u32 = 64;
/// Longest wait for one answer; the next attempt opens a new connection if need be.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What to do with a message that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBadMessage {
    /// The read fails.
    Fail,
    /// A body that cannot be decompressed becomes null; a record without readable fields is left out.
    Null,
    /// The message is left out.
    Skip,
}

/// How to read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Consumer group that the requests name; the broker keeps nothing for it.
    pub group: String,
    /// `*`, or tags separated by `||`.
    pub tags: String,
    /// A SQL92 condition that the broker evaluates; `tags` is `*` then.
    pub sql: Option<String>,
    /// Topics with compaction: the broker removes older messages of a key, so that gaps are no loss.
    pub compacted: HashSet<String>,
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// A block ends at so many rows,
    pub max_rows: usize,
    /// or at about so many bytes.
    pub max_bytes: usize,
    /// Requests kept on their way.
    pub pulls_in_flight: usize,
    /// How long a failure that may pass is borne.
    pub timeout: Duration,
    /// How long a broker may give no answer before [`RangeError::Unreachable`]; at most `timeout`.
    pub unreachable_after: Duration,
    /// Go on with what is left where messages have expired.
    pub skip_lost: bool,
    /// What to do with a message that cannot be read.
    pub on_bad: OnBadMessage,
}

struct PendingPull {
    range: usize,
    from: i64,
    to: i64,
    call: Call,
}

/// An answer that is being taken apart.
struct OpenAnswer {
    range: usize,
    asked_from: i64,
    position: i64,
    to: i64,
    next_begin: i64,
    body: Bytes,
    at: usize,
}

struct RetryState {
    since: Instant,
    again_at: Instant,
    pause: Duration,
    is_resent: bool,
    cause: RangeError,
}

/// Reads ranges, in their order, as blocks of columns.
pub struct RangeReader {
    client: Client,
    options: ReadOptions,
    tags: Tags,
    ranges: Vec<Arc<Range>>,
    next: (usize, i64),
    window: VecDeque<PendingPull>,
    step: Option<i64>,
    full_answers: u32,
    open: Option<OpenAnswer>,
    columns: Columns,
    retry: Option<RetryState>,
    lost: Vec<Lost>,
    unreadable: Vec<Unreadable>,
}

impl RangeReader {
    /// Nothing is asked before the first [`RangeReader::poll`].
    pub fn new(client: Client, ranges: Vec<Range>, options: ReadOptions) -> Self {
        let tags = Tags::parse(&options.tags);
        let columns = Columns::new(options.columns.clone());
        Self {
            columns: match options.on_bad {
                OnBadMessage::Null => columns.with_null_bodies(),
                OnBadMessage::Fail | OnBadMessage::Skip => columns,
            },
            next: (0, ranges.first().map_or(0, |range| range.start)),
            ranges: ranges.into_iter().map(Arc::new).collect(),
            step: if tags.is_filter() || options.sql.is_some() {
                Some(PROBE)
            } else {
                None
            },
            client,
            options,
            tags,
            window: VecDeque::new(),
            full_answers: 0,
            open: None,
            retry: None,
            lost: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    /// Works for up to `slice`. `None`: not done yet. `Some(Ok(None))`: everything was read.
    pub fn poll(&mut self, slice: Duration) -> Option<Result<Option<Block>, RangeError>> {
        let until = Instant::now() + slice;
        loop {
            match self.advance(until) {
                Ok(Step::Block) => return Some(Ok(Some(self.columns.finish()))),
                Ok(Step::Done) => {
                    let rest = (self.columns.rows() > 0).then(|| self.columns.finish());
                    return Some(Ok(rest));
                }
                Ok(Step::Wait) => return None,
                Ok(Step::More) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// What was left out since the last call.
    pub fn take_lost(&mut self) -> Vec<Lost> {
        std::mem::take(&mut self.lost)
    }

    /// The messages that could not be read since the last call and did not end the read.
    pub fn take_unreadable(&mut self) -> Vec<Unreadable> {
        std::mem::take(&mut self.unreadable)
    }

    /// Goes on after [`RangeError::Unreachable`], without a gap, with brokers at the addresses given by broker name.
    /// The timeout starts again.
    pub fn resume(&mut self, addresses: &HashMap<String, String>) {
        for range in &mut self.ranges {
            if let Some(address) = addresses.get(&range.broker)
                && *address != range.address
            {
                *range = Arc::new(Range {
                    address: address.clone(),
                    ..Range::clone(range)
                });
            }
        }
        self.retry = None;
        let pending = std::mem::take(&mut self.window);
        self.window = pending
            .into_iter()
            .filter_map(|pull| self.send_pull(pull.range, pull.from, pull.to))
            .collect();
    }

    fn advance(&mut self, until: Instant) -> Result<Step, RangeError> {
        if self.open.is_some() {
            return self.drain();
        }
        if let Some(retry) = &self.retry
            && !retry.is_resent
        {
            let wait = retry.again_at.saturating_duration_since(Instant::now());
            std::thread::sleep(wait.min(until.saturating_duration_since(Instant::now())));
            if Instant::now() < retry.again_at {
                return Ok(Step::Wait);
            }
            self.retry_front();
        }
        self.fill();
        let Some(front) = self.window.front() else {
            return Ok(Step::Done);
        };
        match front.call.wait(until.saturating_duration_since(Instant::now())) {
            None => Ok(Step::Wait),
            Some(answer) => self.answered(answer).map(|()| Step::More),
        }
    }

    fn is_filtered(&self) -> bool {
        self.tags.is_filter() || self.options.sql.is_some()
    }

    /// Whether offsets without a message are what is expected of a range.
    fn has_gaps(&self, range: &Range) -> bool {
        self.is_filtered() || self.options.compacted.contains(&range.topic)
    }

    fn fill(&mut self) {
        let most = if self.step.is_some() {
            self.options.pulls_in_flight
        } else {
            1
        };
        while self.window.len() < most {
            let (index, from) = self.next;
            let Some(range) = self.ranges.get(index) else {
                return;
            };
            if from >= range.end {
                self.next = (
                    index + 1,
                    self.ranges.get(index + 1).map_or(0, |range| range.start),
                );
                continue;
            }
            let to = if self.is_filtered() {
                range.end
            } else {
                range.end.min(from.saturating_add(self.step.unwrap_or(PROBE)))
            };
            self.next = (index, to);
            if let Some(pending) = self.send_pull(index, from, to) {
                self.window.push_back(pending);
            }
        }
    }

    fn send_pull(&self, index: usize, from: i64, to: i64) -> Option<PendingPull> {
        let range = self.ranges.get(index)?;
        let count = (to - from).min(MAX_STEP);
        let filter = match &self.options.sql {
            Some(condition) => pull::Filter::Sql(condition),
            None if self.is_filtered() => pull::Filter::Tags(&self.options.tags),
            None => pull::Filter::Tags("*"),
        };
        let command = pull::request(range, &self.options.group, filter, from, count);
        let timeout = self.options.timeout.min(REQUEST_TIMEOUT);
        Some(PendingPull {
            range: index,
            from,
            to,
            call: self.client.call(&range.address, command, timeout),
        })
    }

    /// Puts an ask in front, or nothing when it is empty.
    fn pull_first(&mut self, index: usize, from: i64, to: i64) {
        if from < to
            && let Some(pending) = self.send_pull(index, from, to)
        {
            self.window.push_front(pending);
        }
    }

    fn retry_front(&mut self) {
        if let Some(front) = self.window.pop_front() {
            self.pull_first(front.range, front.from, front.to);
        }
        if let Some(retry) = &mut self.retry {
            retry.is_resent = true;
        }
    }

    fn answered(&mut self, answer: Result<Command, NetError>) -> Result<(), RangeError> {
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
                let position = pull::position(&range, &answer)?;
                let body =
                    inner_batch::unwrapped(answer.body.unwrap_or_default(), from).map_err(|cause| {
                        RangeError::Message {
                            range: range.clone(),
                            offset: from,
                            cause: cause.into(),
                        }
                    })?;
                self.retry = None;
                self.window.pop_front();
                self.open = Some(OpenAnswer {
                    range: index,
                    asked_from: from,
                    position: from,
                    to,
                    next_begin: position.next_begin,
                    body,
                    at: 0,
                });
                Ok(())
            }
            response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY | response::PULL_OFFSET_MOVED => {
                let position = pull::position(&range, &answer)?;
                self.nothing_there(&range, &position, answer.code)
            }
            response::SYSTEM_ERROR
            | response::SYSTEM_BUSY
            | response::SERVICE_NOT_AVAILABLE
            | response::FLOW_CONTROL
            | response::GO_AWAY => self.retry_later(refused(answer)),
            _ => Err(refused(answer)),
        }
    }

    /// The front ask found nothing: a gap that the filter left, messages that are gone, or none yet.
    fn nothing_there(
        &mut self,
        range: &Arc<Range>,
        position: &pull::Position,
        code: i32,
    ) -> Result<(), RangeError> {
        let Some((index, from, to)) = self
            .window
            .front()
            .map(|pending| (pending.range, pending.from, pending.to))
        else {
            return Ok(());
        };
        if position.lowest > from {
            return self.expired(range, position.lowest, position);
        }
        if position.next_begin > from && code != response::PULL_OFFSET_MOVED {
            if !self.has_gaps(range) {
                return self.expired(range, position.next_begin, position);
            }
            self.retry = None;
            self.window.pop_front();
            self.pull_first(index, position.next_begin, to);
            return Ok(());
        }
        // A broker that was killed shows less of a queue until it has read its log again.
        self.retry_later(RangeError::Expired {
            range: range.clone(),
            from,
            lowest: position.lowest,
            highest: position.highest,
        })
    }

    /// Asks again later, unless that went on for too long.
    fn retry_later(&mut self, cause: RangeError) -> Result<(), RangeError> {
        let now = Instant::now();
        let (since, pause) = match &self.retry {
            Some(retry) => (retry.since, (retry.pause * 2).min(LONGEST_PAUSE)),
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

    fn expired(&mut self, range: &Arc<Range>, to: i64, position: &pull::Position) -> Result<(), RangeError> {
        if !self.options.skip_lost {
            return Err(RangeError::Expired {
                range: range.clone(),
                from: self.window.front().map_or(range.start, |pending| pending.from),
                lowest: position.lowest.max(to),
                highest: position.highest,
            });
        }
        self.skip_lost_range(range, to);
        Ok(())
    }

    /// Goes on behind `to`; the asks behind the front one find out for themselves.
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

    /// Takes records off the open answer until it is empty or a block is full.
    fn drain(&mut self) -> Result<Step, RangeError> {
        let Some(mut open) = self.open.take() else {
            return Ok(Step::More);
        };
        let Some(range) = self.ranges.get(open.range).cloned() else {
            return Ok(Step::More);
        };
        while let Some(rest) = open.body.get(open.at..).filter(|rest| !rest.is_empty()) {
            let record = match Record::decode(rest) {
                Ok(record) => record,
                Err(cause) => {
                    self.bad_message(&range, open.position, cause.into())?;
                    let Hop::Record(size) = hop(rest) else {
                        // Nothing says where the next record begins: what follows is asked for again.
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
                return Ok(Step::Block);
            }
        }
        self.close(&range, &open)?;
        Ok(Step::More)
    }

    /// A message that is no row: an error, or a note that it was left out.
    fn bad_message(&mut self, range: &Arc<Range>, offset: i64, cause: ColumnError) -> Result<(), RangeError> {
        let range = range.clone();
        if self.options.on_bad == OnBadMessage::Fail {
            return Err(RangeError::Message { range, offset, cause });
        }
        self.unreadable.push(Unreadable { range, offset, cause });
        Ok(())
    }

    /// The answer is used up: asks for what it lacks, and learns from how much it gave.
    fn close(&mut self, range: &Arc<Range>, open: &OpenAnswer) -> Result<(), RangeError> {
        let mut next = open.position;
        if open.next_begin > next && next < open.to {
            next = open.next_begin.min(open.to);
            if !self.has_gaps(range) {
                self.gap(range, open, next)?;
            }
        }
        if next <= open.asked_from {
            self.pull_first(open.range, open.asked_from, open.to);
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
            // The probe stood alone: what it left is asked for in the steps that it has taught.
            self.next = (open.range, next);
        } else {
            self.pull_first(open.range, next, open.to);
        }
        if !self.is_filtered() {
            self.adapt_step(next - open.asked_from, open.to - open.asked_from);
        }
        Ok(())
    }

    fn adapt_step(&mut self, given: i64, asked: i64) {
        let Some(step) = self.step else {
            self.step = Some(if given < asked { given } else { asked.max(PROBE) });
            return;
        };
        if given < asked {
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

impl fmt::Debug for RangeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeReader")
            .field("ranges", &self.ranges)
            .field("next", &self.next)
            .field("in_flight", &self.window.len())
            .field("trouble", &self.retry.as_ref().map(|retry| &retry.cause))
            .finish_non_exhaustive()
    }
}

enum Step {
    /// A block is full.
    Block,
    /// Go on.
    More,
    /// The slice is over.
    Wait,
    /// Everything was read.
    Done,
}
