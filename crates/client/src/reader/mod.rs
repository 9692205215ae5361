//! Reads fixed ranges of queues into column blocks, with several pulls in flight.
//!
//! ```text
//! queue    lo ........ lo+s ....... lo+2s ...... lo+3s                  hi
//! pulls    [  pull 0   )[  pull 1   )[  pull 2   )   at most `pulls_in_flight`, answered in any order,
//! columns  <- front answer, cut? the rest of pull 0 is pulled again, in front   taken strictly in this one
//! ```
//! Queue offsets are dense, so the next pulls need not wait for an answer. How much a broker gives at once differs
//! (Apache's gives 32 messages from memory and 8 from disk, whatever is requested: `DefaultMessageStore.getMessage`),
//! so the step follows what comes. With a filter the broker walks on over what does not match; then a queue has one
//! pull at a time, and other queues fill the window.
//!
//! A failure that may pass (no connection, busy broker, a queue that is shorter than it was because its broker has
//! just been started again) is pulled again until `timeout`; then it is the read's error. No async: a thread without a
//! runtime waits in slices.

mod answer;
mod drain;
mod error;
mod options;
mod pull;

pub use error::{Lost, Range, RangeError, Unreadable};
pub use options::{OnBadMessage, ReadOptions};

use bytes::Bytes;
use pyrmq_columns::{Block, Columns, Tags};
use pyrmq_remoting::net::{Call, Client};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Size of the first pull, which shows how much the broker returns at once.
const PROBE: i64 = 1024;
/// The step never exceeds this.
const MAX_STEP: i64 = 4096;
/// Full answers in a row after which a larger step is tried.
const GROW_AFTER: u32 = 64;
/// Longest wait for one answer; the next attempt opens a new connection if need be.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

struct PendingPull {
    range: usize,
    from: i64,
    to: i64,
    call: Call,
}

/// An answer whose records are being read.
struct OpenAnswer {
    range: usize,
    requested_from: i64,
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
    /// Nothing is requested before the first [`RangeReader::poll`].
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
                Ok(DrainStep::Block) => return Some(Ok(Some(self.columns.finish()))),
                Ok(DrainStep::Done) => {
                    let rest = (self.columns.rows() > 0).then(|| self.columns.finish());
                    return Some(Ok(rest));
                }
                Ok(DrainStep::Wait) => return None,
                Ok(DrainStep::More) => {}
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

    /// Continues after [`RangeError::Unreachable`], without a gap, with brokers at the addresses given by broker name.
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

    fn advance(&mut self, until: Instant) -> Result<DrainStep, RangeError> {
        if self.open.is_some() {
            return self.drain();
        }
        if let Some(retry) = &self.retry
            && !retry.is_resent
        {
            let wait = retry.again_at.saturating_duration_since(Instant::now());
            std::thread::sleep(wait.min(until.saturating_duration_since(Instant::now())));
            if Instant::now() < retry.again_at {
                return Ok(DrainStep::Wait);
            }
            self.retry_front();
        }
        self.fill();
        let Some(front) = self.window.front() else {
            return Ok(DrainStep::Done);
        };
        match front.call.wait(until.saturating_duration_since(Instant::now())) {
            None => Ok(DrainStep::Wait),
            Some(answer) => self.answered(answer).map(|()| DrainStep::More),
        }
    }

    fn is_filtered(&self) -> bool {
        self.tags.is_filter() || self.options.sql.is_some()
    }

    /// Whether offsets without a message are normal for a range.
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

    /// Puts a pull at the front, unless it is empty.
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

enum DrainStep {
    /// A block is full.
    Block,
    /// Go on.
    More,
    /// The slice is over.
    Wait,
    /// Everything was read.
    Done,
}
