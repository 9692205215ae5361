//! Pops and notifications that wait for messages (Apache `PopLongPollingService`).
//!
//! ```text
//! nothing to take -> insert -> a message arrives in the topic or its retry topic -+
//!                              an ordered queue opens                             +-> `ready` queue -> taken again:
//!                              the client's time is up                           -+    answered, or inserted again
//!                              connection closed -> dropped
//! ```
//! Invariants: a request is answered after its deadline; never more than the limits wait; an arrival costs one atomic
//! load while no request waits, and wakes one pop and one notification of each group and kind of queue; those whose
//! connection is closed are passed over. A pop that leaves messages wakes the next one.

use crate::tables::subscription::MessageFilter;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::net::Reply;
use pyrmq_remoting::sync::lock;
use pyrmq_store::Arrival;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A request that waits.
#[derive(Debug)]
pub(crate) struct HeldPop {
    /// The request as it arrived.
    pub(crate) request: Command,
    /// The permit to answer the request.
    pub(crate) reply: Reply,
    /// The topic whose messages the request waits for.
    pub(crate) topic: String,
    pub(crate) group: String,
    /// -1: any queue.
    pub(crate) queue_id: i32,
    /// Retry topics whose messages also wake the request.
    pub(crate) retry_topics: Vec<String>,
    /// Which messages wake the request.
    pub(crate) filter: MessageFilter,
    /// When the request must be answered, in ms of `long_polling::now_ms`.
    pub(crate) deadline_ms: i64,
    /// The latest time at which the request is tried again, in ms of that clock.
    pub(crate) wake_ms: i64,
}

/// What a request wants. Notifications take no messages, so they must not take the place of pops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Notification,
    Pop,
}

/// Group, kind, and queue, -1 for any: each has a line of its own.
type LineKey = (String, Kind, i32);

/// Waiting requests of one topic; the oldest of each line first.
type ByGroup = BTreeMap<LineKey, BTreeSet<u64>>;

impl HeldPop {
    fn key(&self) -> LineKey {
        let kind = match self.request.code {
            request::NOTIFICATION => Kind::Notification,
            _ => Kind::Pop,
        };
        (self.group.clone(), kind, self.queue_id)
    }
}

#[derive(Debug, Default)]
struct WaitingPops {
    next: u64,
    pops: HashMap<u64, HeldPop>,
    by_topic: HashMap<String, ByGroup>,
    times: BTreeSet<(i64, u64)>,
}

impl WaitingPops {
    /// The oldest request of a line whose connection is open: the next sweep drops the others.
    fn first_open(&self, ids: &BTreeSet<u64>) -> Option<(u64, &HeldPop)> {
        let mut requests = ids.iter().filter_map(|id| Some((*id, self.pops.get(id)?)));
        requests.find(|(_, pop)| !pop.reply.is_closed())
    }
}

/// Every request that waits.
#[derive(Debug)]
pub(crate) struct HeldPops {
    limit: usize,
    limit_of_queue: usize,
    closed: AtomicBool,
    count: AtomicUsize,
    // Guards what waits. Held for moves only.
    waiting: Mutex<WaitingPops>,
    ready: UnboundedSender<HeldPop>,
    /// Notified when a request must wake earlier than all others so far.
    pub(crate) sooner: Notify,
}

impl HeldPops {
    /// Creates a table for `limit` requests, `limit_of_queue` for each group, queue and kind of request, and the
    /// receiver of those that are ready.
    pub(crate) fn new(limit: usize, limit_of_queue: usize) -> (Self, UnboundedReceiver<HeldPop>) {
        let (ready, out) = unbounded_channel();
        let held = Self {
            limit,
            limit_of_queue,
            closed: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            waiting: Mutex::default(),
            ready,
            sooner: Notify::new(),
        };
        (held, out)
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingPops> {
        lock(&self.waiting)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Pops of a group that wait for a queue, -1 for any.
    pub(crate) fn count_of(&self, topic: &str, group: &str, queue_id: i32) -> usize {
        let waiting = self.waiting();
        let groups = waiting.by_topic.get(topic);
        let pops = groups.and_then(|groups| groups.get(&(group.to_owned(), Kind::Pop, queue_id)));
        pops.map_or(0, BTreeSet::len)
    }

    /// Holds a request, or returns it if too many wait or the broker stops. The caller must then check for messages
    /// once more: some may have arrived between its last check and this call.
    pub(crate) fn insert(&self, pop: HeldPop) -> Result<(), Box<HeldPop>> {
        let mut waiting = self.waiting();
        let key = pop.key();
        let of_topic = waiting.by_topic.get(&pop.topic);
        let beside = of_topic
            .and_then(|groups| groups.get(&key))
            .map_or(0, BTreeSet::len);
        let is_full = waiting.pops.len() >= self.limit || beside >= self.limit_of_queue;
        if self.is_closed() || is_full {
            return Err(Box::new(pop));
        }
        let id = waiting.next;
        waiting.next += 1;
        let is_first = waiting
            .times
            .first()
            .is_none_or(|(first, _)| pop.wake_ms < *first);
        waiting.times.insert((pop.wake_ms, id));
        for topic in std::iter::once(&pop.topic).chain(&pop.retry_topics) {
            let groups = waiting.by_topic.entry(topic.clone()).or_default();
            groups.entry(key.clone()).or_default().insert(id);
        }
        waiting.pops.insert(id, pop);
        self.count.store(waiting.pops.len(), Ordering::Release);
        drop(waiting);
        if is_first {
            self.sooner.notify_one();
        }
        Ok(())
    }

    /// Messages arrived.
    pub(crate) fn arrived(&self, arrival: &Arrival<'_>) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        let Some(groups) = waiting.by_topic.get(arrival.topic) else {
            return;
        };
        let first = groups.values().filter_map(|ids| waiting.first_open(ids));
        let wanted = first.filter(|(_, pop)| {
            // A retry topic has its own queues, which any pop reads.
            let has_queue =
                pop.topic != arrival.topic || matches!(pop.queue_id, -1) || pop.queue_id == arrival.queue_id;
            has_queue && arrival.tags_code.is_none_or(|code| pop.filter.may_match(code))
        });
        let ids: Vec<u64> = wanted.map(|(id, _)| id).collect();
        self.release(&mut waiting, &ids);
    }

    /// A queue has more messages for a group: wakes the oldest pop for that queue and the oldest for any queue, and the
    /// oldest notifications likewise.
    pub(crate) fn notify(&self, topic: &str, group: &str, queue_id: i32) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        let Some(groups) = waiting.by_topic.get(topic) else {
            return;
        };
        let first = (group.to_owned(), Kind::Notification, i32::MIN);
        let of_group = groups.range(first..=(group.to_owned(), Kind::Pop, i32::MAX));
        let wanted = of_group.filter(|((.., wanted), _)| queue_id < 0 || *wanted < 0 || *wanted == queue_id);
        let ids: Vec<u64> = wanted
            .filter_map(|(_, ids)| waiting.first_open(ids))
            .map(|(id, _)| id)
            .collect();
        self.release(&mut waiting, &ids);
    }

    /// Wakes the requests that are due. Returns when the next one is.
    pub(crate) fn sweep(&self, now_ms: i64) -> Option<i64> {
        if self.is_empty() {
            return None;
        }
        let mut waiting = self.waiting();
        let due = waiting.times.range(..=(now_ms, u64::MAX));
        let ids: Vec<u64> = due.map(|(_, id)| *id).collect();
        self.release(&mut waiting, &ids);
        waiting.times.first().map(|(time, _)| *time)
    }

    /// Drops requests whose connection is gone.
    pub(crate) fn drop_closed(&self) {
        self.release_where(|pop| pop.reply.is_closed());
    }

    /// Wakes every request of a topic that was deleted.
    pub(crate) fn release_topic(&self, topic: &str) {
        self.release_where(|pop| pop.topic == topic);
    }

    /// Wakes every request of a group that was deleted.
    pub(crate) fn release_group(&self, group: &str) {
        self.release_where(|pop| pop.group == group);
    }

    /// Wakes every request and holds no more of them: the broker stops.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.release_where(|_| true);
    }

    /// Whether the broker is stopping: no request waits any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn release_where(&self, wanted: impl Fn(&HeldPop) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        let ids = waiting.pops.iter().filter(|(_, pop)| wanted(pop));
        let ids: Vec<u64> = ids.map(|(id, _)| *id).collect();
        self.release(&mut waiting, &ids);
    }

    fn release(&self, waiting: &mut WaitingPops, ids: &[u64]) {
        for id in ids {
            let Some(pop) = waiting.pops.remove(id) else {
                continue;
            };
            waiting.times.remove(&(pop.wake_ms, *id));
            let key = pop.key();
            for topic in std::iter::once(&pop.topic).chain(&pop.retry_topics) {
                forget(&mut waiting.by_topic, topic, &key, *id);
            }
            if pop.reply.is_closed() {
                pop.reply.silence();
            } else {
                // Without a receiver the broker has stopped; dropping the reply answers that.
                drop(self.ready.send(pop));
            }
        }
        self.count.store(waiting.pops.len(), Ordering::Release);
    }
}

fn forget(by_topic: &mut HashMap<String, ByGroup>, topic: &str, key: &LineKey, id: u64) {
    let Some(groups) = by_topic.get_mut(topic) else {
        return;
    };
    if let Some(ids) = groups.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            groups.remove(key);
        }
    }
    if groups.is_empty() {
        by_topic.remove(topic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrmq_remoting::net::{Outbox, Peer};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    /// A connection that may be closed.
    #[derive(Default)]
    struct Line(AtomicBool);

    impl Outbox for Line {
        fn push(&self, _command: Command) {}

        fn is_closed(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn close(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A request of the group G for any queue of T, on a connection of its own.
    fn request_of(code: i32, opaque: i32) -> (HeldPop, Arc<Line>) {
        let (line, address) = (Arc::<Line>::default(), SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        let request = Command {
            opaque,
            ..Command::request(code)
        };
        let peer = Peer::new(1, address, address, line.clone());
        let held = HeldPop {
            reply: Reply::new(peer, &request),
            request,
            topic: "T".to_owned(),
            group: "G".to_owned(),
            queue_id: -1,
            retry_topics: Vec::new(),
            filter: MessageFilter::All,
            deadline_ms: i64::MAX,
            wake_ms: i64::MAX,
        };
        (held, line)
    }

    /// Two requests, of which the second came later; whether the connection of the first closes; and which are woken,
    /// each time that a message arrives or a queue is said to have one.
    fn woken(codes: [i32; 2], first_closes: bool) -> [Vec<i32>; 2] {
        let arrival = Arrival {
            topic: "T",
            queue_id: 0,
            next_offset: 1,
            count: 1,
            tags_code: Some(0),
            store_timestamp_ms: 0,
        };
        [true, false].map(|arrives| {
            let (held, mut out) = HeldPops::new(2, 2);
            for (code, opaque) in codes.into_iter().zip(1..) {
                let (request, line) = request_of(code, opaque);
                held.insert(request).unwrap();
                if first_closes && opaque == 1 {
                    line.close();
                }
            }
            if arrives {
                held.arrived(&arrival);
            } else {
                held.notify("T", "G", 0);
            }
            let mut woken = Vec::new();
            while let Ok(held) = out.try_recv() {
                woken.push(held.request.opaque);
                held.reply.silence();
            }
            woken
        })
    }

    #[test]
    fn a_message_wakes_the_oldest_pop_and_the_oldest_notification() {
        let (pop, notification) = (request::POP_MESSAGE, request::NOTIFICATION);
        assert_eq!(woken([pop, pop], false), [[1], [1]]);
        for codes in [[notification, pop], [pop, notification]] {
            let woken = woken(codes, false).map(|mut woken| {
                woken.sort_unstable();
                woken
            });
            assert_eq!(woken, [[1, 2], [1, 2]]);
        }
    }

    #[test]
    fn a_pop_whose_connection_has_just_closed_leaves_its_message_to_the_next() {
        assert_eq!(woken([request::POP_MESSAGE; 2], true), [[2], [2]]);
    }
}
