//! Pulls that wait for messages (Apache `PullRequestHoldService`).
//!
//! ```text
//! pull finds nothing -> insert -> arrival of a matching message  -+
//!                                 5 s check finds a newer message  +-> `ready` queue -> the pull reads again:
//!                                 the client's time is up         -+     answered, or no message matches -> insert
//!                                 connection closed -> dropped
//! ```
//! `broker/ready_requests.rs` takes them from the `ready` queue.
//!
//! Invariants: a request is held in one place and answered after its deadline; never more than the limit wait at a
//! time; an arrival costs one atomic load while no pull waits. The dispatch thread only moves requests to the `ready`
//! queue; it reads no messages.

use crate::tables::subscription::MessageFilter;
use pyrmq_remoting::Command;
use pyrmq_remoting::clock;
use pyrmq_remoting::net::Reply;
use pyrmq_remoting::sync::lock;
use pyrmq_store::Arrival;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The longest time that a pull or pop waits, in ms, whatever its client requests; Apache's clients request 15 to 30
/// seconds. After that the client pulls again, and requests of clients that are gone do not accumulate.
const MAX_WAIT_MS: i64 = 60_000;

/// The time of the monotonic clock, in ms, for deadlines. With the wall clock, setting it back would extend a wait: the
/// request would take messages for a client that no longer waits.
pub fn now_ms() -> i64 {
    i64::try_from(clock::since_boot().as_millis()).unwrap_or(i64::MAX)
}

/// The deadline, in ms, of a request whose client waits up to `requested_ms`.
pub fn deadline_ms(now_ms: i64, requested_ms: i64) -> i64 {
    now_ms.saturating_add(requested_ms.min(MAX_WAIT_MS))
}

/// Returns the end of a queue: one past its newest message.
pub type EndOf<'a> = dyn Fn(&str, i32) -> i64 + 'a;

/// A pull that waits for messages.
#[derive(Debug)]
pub struct Held {
    /// The request as it arrived.
    pub request: Command,
    /// The permit to answer the request.
    pub reply: Reply,
    /// The first offset that the pull wants.
    pub from_offset: i64,
    /// Which messages wake the pull.
    pub filter: MessageFilter,
    /// When the pull must be answered, in ms.
    pub deadline_ms: i64,
}

type WaitingPulls = HashMap<String, HashMap<i32, Vec<Held>>>;

/// All pulls that wait.
#[derive(Debug)]
pub struct LongPolling {
    limit: usize,
    closed: AtomicBool,
    count: AtomicUsize,
    // Guards topic -> queue -> waiting pulls; held only to move pulls.
    waiting: Mutex<WaitingPulls>,
    ready: UnboundedSender<Held>,
}

impl LongPolling {
    /// Creates a table for `limit` pulls, and the receiver of those to be answered.
    pub fn new(limit: usize) -> (Self, UnboundedReceiver<Held>) {
        let (ready, out) = unbounded_channel();
        let long_polling = Self {
            limit,
            closed: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            waiting: Mutex::default(),
            ready,
        };
        (long_polling, out)
    }

    /// The number of waiting pulls.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether no pull waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes every pull and holds no more of them: the broker is stopping.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.release_all(None);
    }

    /// Whether [`Self::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Holds a pull. Returns it if too many wait or the broker is stopping.
    ///
    /// The caller must then check once more for newer messages: one may have arrived between its last check and this
    /// call.
    pub fn insert(&self, topic: &str, queue: i32, held: Held) -> Result<(), Box<Held>> {
        let mut waiting = self.waiting();
        if self.is_closed() || self.len() >= self.limit {
            return Err(Box::new(held));
        }
        if let Some(by_queue) = waiting.get_mut(topic) {
            by_queue.entry(queue).or_default().push(held);
        } else {
            waiting.insert(topic.to_owned(), HashMap::from([(queue, vec![held])]));
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Wakes the pulls that may want the messages that arrived. Messages with different tag codes wake all.
    pub fn arrived(&self, arrival: &Arrival<'_>) {
        self.release(arrival.topic, arrival.queue_id, |held| {
            held.from_offset < arrival.next_offset
                && arrival.tags_code.is_none_or(|code| held.filter.may_match(code))
        });
    }

    /// Wakes every pull from an offset past the queue's end `max_offset`, whatever its filter.
    pub fn caught_up(&self, topic: &str, queue: i32, max_offset: i64) {
        self.release(topic, queue, |held| held.from_offset < max_offset);
    }

    /// Drops pulls whose connection is gone, and wakes those whose deadline has passed. With `max_offset`, also wakes
    /// those from offsets past the end of their queue.
    pub fn sweep(&self, now_ms: i64, max_offset: Option<&EndOf<'_>>) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        let mut taken = 0;
        for (topic, by_queue) in &mut *waiting {
            for (queue, pulls) in &mut *by_queue {
                let end = max_offset.map_or(i64::MIN, |max_offset| max_offset(topic, *queue));
                let is_due = |held: &mut Held| {
                    held.reply.is_closed() || held.deadline_ms <= now_ms || held.from_offset < end
                };
                for held in pulls.extract_if(.., is_due) {
                    taken += 1;
                    self.make_ready(held);
                }
            }
            by_queue.retain(|_, pulls| !pulls.is_empty());
        }
        waiting.retain(|_, by_queue| !by_queue.is_empty());
        self.count.fetch_sub(taken, Ordering::AcqRel);
    }

    /// Wakes every pull of a topic, or all pulls: the topic was deleted, or the broker is stopping.
    pub fn release_all(&self, topic: Option<&str>) {
        let mut waiting = self.waiting();
        let out: Vec<Held> = match topic {
            Some(topic) => waiting
                .remove(topic)
                .into_iter()
                .flat_map(HashMap::into_values)
                .flatten()
                .collect(),
            None => waiting
                .drain()
                .flat_map(|(_, by_queue)| by_queue.into_values())
                .flatten()
                .collect(),
        };
        self.count.fetch_sub(out.len(), Ordering::AcqRel);
        drop(waiting);
        for held in out {
            self.make_ready(held);
        }
    }

    fn release(&self, topic: &str, queue: i32, wanted: impl Fn(&Held) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        let Some(by_queue) = waiting.get_mut(topic) else {
            return;
        };
        let Some(pulls) = by_queue.get_mut(&queue) else {
            return;
        };
        let mut taken = 0;
        for held in pulls.extract_if(.., |held| wanted(held)) {
            taken += 1;
            self.make_ready(held);
        }
        if pulls.is_empty() {
            by_queue.remove(&queue);
            if by_queue.is_empty() {
                waiting.remove(topic);
            }
        }
        self.count.fetch_sub(taken, Ordering::AcqRel);
    }

    /// Passes a pull to the task that reads again for it; drops it if its connection is closed.
    fn make_ready(&self, held: Held) {
        if held.reply.is_closed() {
            held.reply.silence();
            return;
        }
        // Without a receiver the broker has stopped; dropping the reply answers that.
        drop(self.ready.send(held));
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingPulls> {
        lock(&self.waiting)
    }
}
