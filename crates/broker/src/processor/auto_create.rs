//! Creates the topics and groups that requests use for the first time (Apache `autoCreateTopicEnable`,
//! `autoCreateSubscriptionGroup`). Each needs a write and a sync of a whole file, which a connection's task must not
//! wait for: sends of other connections share its thread. So requests that name something new wait in a list. A
//! blocking thread creates what all waiting requests miss, with one write for each file, then hands the requests to
//! their rows, which may still create there what was not foreseen.
//!
//! ```text
//! take all waiting requests -> create what they miss -> hand them to their rows
//!                                -> hand over the requests after them that miss nothing, until there is none
//! ```
//! In the second line the connections that add requests are not read. So a connection that always has requests waiting
//! leaves the list soon after its topic is created, and waits for no other's.
//!
//! A user may lose rights while a request waits. So they are checked again before anything is created, and before the
//! request is served.
//!
//! Invariant: a request does not overtake an earlier one of its connection with the same order key. The order key is
//! the topic of a send, the group of pulls and commits, and the client itself for heartbeats and their end.

use crate::context::{BrokerContext, NewGroup};
use crate::error::Refusal;
use crate::processor::backlog::{Backlog, BacklogEntry, BacklogFull, Load, detached};
use crate::tables::topic_creators::NewTopic;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{BatchProcessor, Pause, Peer, Processor, Reply, RequestBatch, Tracker};
use pyrmq_remoting::sync::lock;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::task::spawn_blocking;

/// Maximum number of waiting requests.
const MAX_REQUESTS: usize = 10_000;
/// Maximum bytes of all waiting requests.
const MAX_BYTES: usize = 64 << 20;
/// Where memory is short, waiting requests have this part of it, but at least [`MIN_BYTES`], the largest frame.
const BYTES_SHARE: u64 = 16;
const MIN_BYTES: usize = 16 << 20;
/// A connection that has this part of the requests or bytes is not read until none of its requests waits.
const PARTS: usize = 10;

/// What must be created before a request can be served. If nothing, it waits for earlier requests of its connection.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) groups: Vec<NewGroup>,
    pub(super) topics: Vec<NewTopic>,
    /// No later request of the connection with this key overtakes the waiting one.
    pub(super) order_key: Option<String>,
}

impl Missing {
    /// This group, if it does not exist and a request may create it by using it.
    pub(super) fn group(context: &BrokerContext, name: &str) -> Option<Self> {
        if context.groups.contains(name) || !context.may_create_group(name) {
            return None;
        }
        Some(Self::of(NewGroup::new(name)))
    }

    /// The group, or the topics of it that do not exist.
    pub(super) fn of(group: NewGroup) -> Self {
        Self {
            groups: vec![group],
            ..Self::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.topics.is_empty()
    }
}

/// How a request is served once it has waited.
pub(super) enum Resume {
    /// As a request of its own.
    Single(Arc<dyn Processor>),
    /// As a request of its own, but only while its connection is open: otherwise it is dropped.
    OfConnection(Arc<dyn Processor>),
    /// Together with the others of this kind: requests that waited together are served as one batch.
    Batched(Arc<dyn BatchProcessor>),
}

struct WaitingRequest {
    missing: Missing,
    request: Command,
    reply: Reply,
    resume: Resume,
    entry: BacklogEntry,
}

impl WaitingRequest {
    /// The request's order key; `None`: it may overtake others.
    fn order_key(&self) -> Option<OrderKey> {
        let order_key = self.missing.order_key.as_deref()?;
        Some(order_key_of(self.reply.peer(), order_key))
    }
}

/// A connection's id, and the hash of a key there. Requests of two keys with one hash keep their order, too.
type OrderKey = (u64, u64);

fn order_key_of(peer: &Peer, order_key: &str) -> OrderKey {
    let mut hasher = DefaultHasher::new();
    order_key.hash(&mut hasher);
    (peer.id(), hasher.finish())
}

#[derive(Default)]
struct WaitList {
    waiting: Vec<WaitingRequest>,
    /// The order keys of requests that wait or are being served, each with the number of requests.
    order_keys: HashMap<OrderKey, usize>,
    /// Whether a thread serves the list.
    has_worker: bool,
    /// Set while requests are handed to their rows: the connections that have added requests meanwhile.
    paused: Option<HashMap<u64, Pause>>,
}

impl WaitList {
    /// Takes the requests that miss nothing and do not have to follow one that does.
    fn take_ready(&mut self) -> Vec<WaitingRequest> {
        let mut held = HashSet::new();
        let (ready, left) = std::mem::take(&mut self.waiting).into_iter().partition(|one| {
            let order_key = one.order_key();
            let is_ready =
                one.missing.is_empty() && !order_key.is_some_and(|order_key| held.contains(&order_key));
            if !is_ready {
                held.extend(order_key);
            }
            is_ready
        });
        self.waiting = left;
        ready
    }
}

/// The requests that wait until topics and groups are created. The rows of all tables share one queue.
#[derive(Clone)]
pub(crate) struct AutoCreateQueue {
    context: Arc<BrokerContext>,
    tasks: Tracker,
    backlog: Arc<Backlog>,
    /// The number of requests that wait or are being served. It is changed under the lock of the list, and read without
    /// it, because nearly all requests find 0.
    unserved: Arc<AtomicUsize>,
    // Guards the waiting requests, and whether a thread takes them.
    list: Arc<Mutex<WaitList>>,
}

impl fmt::Debug for AutoCreateQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AutoCreateQueue")
    }
}

impl AutoCreateQueue {
    pub(crate) fn new(context: &Arc<BrokerContext>, tasks: &Tracker) -> Self {
        let share =
            (context.store.memory_limit()).and_then(|bytes| usize::try_from(bytes / BYTES_SHARE).ok());
        let limit = Load {
            requests: MAX_REQUESTS,
            bytes: share.map_or(MAX_BYTES, |share| MAX_BYTES.min(share.max(MIN_BYTES))),
        };
        Self {
            context: context.clone(),
            tasks: tasks.clone(),
            backlog: Backlog::new(limit, PARTS),
            unserved: Arc::default(),
            list: Arc::default(),
        }
    }

    /// Returns a row whose requests wait here until what they miss is created.
    pub(super) fn wrap(&self, row: Arc<dyn Processor>, rule: Rule) -> Arc<dyn Processor> {
        let queue = self.clone();
        Arc::new(AutoCreate { queue, row, rule })
    }

    /// Whether a request must follow an earlier one of its connection that waits here.
    pub(super) fn must_follow(&self, peer: &Peer, order_key: &str) -> bool {
        if self.unserved.load(Ordering::Acquire) == 0 {
            return false;
        }
        lock(&self.list)
            .order_keys
            .contains_key(&order_key_of(peer, order_key))
    }

    /// Lets a request wait until everything that it misses is created. A request that does not fit is answered
    /// SYSTEM_BUSY, unless it misses nothing: then it follows others of its connection, and a client that leaves (35)
    /// must not stay a member.
    pub(super) fn enqueue(&self, missing: Missing, request: Command, reply: Reply, resume: Resume) {
        let load = Load::of(&request);
        let entry = match self.backlog.enter(reply.peer(), load, !missing.is_empty()) {
            Ok(entry) => entry,
            Err(BacklogFull(used)) => {
                let limit = self.backlog.limit();
                let text = format!(
                    "[OVERLOAD] {} requests with {} bytes wait for topics and groups that they use for the first \
                     time, allowed are {} with {} bytes: create topics and groups before they are used, or look \
                     whether the disk of the broker is slow",
                    used.requests, used.bytes, limit.requests, limit.bytes
                );
                return self.refuse(
                    &request,
                    reply,
                    &resume,
                    Refusal::new(response::SYSTEM_BUSY, text),
                );
            }
        };
        let peer = reply.peer().clone();
        let waiting = WaitingRequest {
            missing,
            request: detached(request),
            reply,
            resume,
            entry,
        };
        let mut list = lock(&self.list);
        if let Some(order_key) = waiting.order_key() {
            *list.order_keys.entry(order_key).or_default() += 1;
        }
        if let Some(paused) = &mut list.paused {
            paused.entry(peer.id()).or_insert_with(|| peer.pause());
        }
        self.unserved.fetch_add(1, Ordering::Release);
        list.waiting.push(waiting);
        if std::mem::replace(&mut list.has_worker, true) {
            return;
        }
        drop(list);
        let queue = self.clone();
        // Before the task is spawned: tokio may keep that for this thread, whose next write or fsync may hang.
        let serving = spawn_blocking(move || queue.serve_all());
        self.tasks.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "serving requests that waited for new topics and groups panicked");
            }
        });
    }

    fn serve_all(&self) {
        while let Some(waiting) = self.next_round() {
            self.serve(waiting);
            while let Some(ready) = self.next_ready() {
                self.serve(ready);
            }
        }
    }

    fn next_round(&self) -> Option<Vec<WaitingRequest>> {
        let mut list = lock(&self.list);
        list.has_worker = !list.waiting.is_empty();
        list.has_worker.then(|| std::mem::take(&mut list.waiting))
    }

    fn next_ready(&self) -> Option<Vec<WaitingRequest>> {
        let mut list = lock(&self.list);
        let ready = list.take_ready();
        if ready.is_empty() {
            list.paused = None;
            return None;
        }
        Some(ready)
    }

    /// Removes requests with these order keys, which were served.
    fn served(&self, order_keys: Vec<Option<OrderKey>>) {
        let mut list = lock(&self.list);
        self.unserved.fetch_sub(order_keys.len(), Ordering::Release);
        for order_key in order_keys.into_iter().flatten() {
            let left = list
                .order_keys
                .get(&order_key)
                .map_or(0, |count| count.saturating_sub(1));
            if left > 0 {
                list.order_keys.insert(order_key, left);
            } else {
                list.order_keys.remove(&order_key);
            }
        }
    }

    /// A panic of one row must not take the other requests with it.
    fn serve(&self, waiting: Vec<WaitingRequest>) {
        let order_keys = waiting.iter().map(WaitingRequest::order_key).collect();
        let waiting = self.still_allowed(waiting);
        // The connections are read again once all are served.
        let mut entries = Vec::with_capacity(waiting.len());
        let groups = self
            .caught(|| self.create_groups(&waiting))
            .unwrap_or_else(panicked);
        let topics = self
            .caught(|| self.create_topics(&waiting))
            .unwrap_or_else(panicked);
        // The disk may have taken long.
        let waiting = self.still_allowed(waiting);
        let created = Instant::now();
        lock(&self.list).paused.get_or_insert_default();
        let mut batch: Option<Box<dyn RequestBatch>> = None;
        for one in waiting {
            entries.push(one.entry);
            let refusal = (groups.as_ref().err().filter(|_| !one.missing.groups.is_empty()))
                .or(topics.as_ref().err().filter(|_| !one.missing.topics.is_empty()));
            if let Some(refusal) = refusal {
                self.refuse(&one.request, one.reply, &one.resume, refusal.clone());
                continue;
            }
            let reply = self.log_wait(&one.request, one.reply, created);
            let request = one.request;
            let peer = reply.peer().clone();
            self.caught(|| match one.resume {
                Resume::OfConnection(_) if reply.is_closed() => reply.silence(),
                Resume::OfConnection(row) | Resume::Single(row) => row.process(request, &peer, reply),
                Resume::Batched(row) => {
                    let batch = batch.get_or_insert_with(|| row.batch());
                    batch.process(request, &peer, reply);
                }
            });
        }
        if let Some(mut batch) = batch {
            self.caught(|| batch.end());
        }
        self.served(order_keys);
    }

    /// Refuses the requests whose users have lost their rights, and returns the others.
    fn still_allowed(&self, waiting: Vec<WaitingRequest>) -> Vec<WaitingRequest> {
        if !self.context.checks_rights() {
            return waiting;
        }
        let mut allowed = Vec::with_capacity(waiting.len());
        for one in waiting {
            match self.caught(|| self.context.check_again(&one.request, one.reply.peer())) {
                Some(None) => allowed.push(one),
                Some(Some(refusal)) => {
                    self.count_refused(&one.resume);
                    one.reply.send(refusal);
                }
                // The reason was logged; dropping the reply answers with an error.
                None => {}
            }
        }
        allowed
    }

    fn create_groups(&self, waiting: &[WaitingRequest]) -> Result<(), Refusal> {
        let groups: BTreeSet<&NewGroup> = waiting.iter().flat_map(|one| &one.missing.groups).collect();
        self.context.create_groups(&groups)
    }

    fn create_topics(&self, waiting: &[WaitingRequest]) -> Result<(), Refusal> {
        let topics = waiting.iter().flat_map(|one| one.missing.topics.iter().cloned());
        self.context.create_topics(topics.collect())
    }

    /// Calls a function. `None` if it panics, which is logged and counted.
    fn caught<T>(&self, serve: impl FnOnce() -> T) -> Option<T> {
        let served = catch_unwind(AssertUnwindSafe(serve));
        if served.is_err() {
            self.context.stats.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("a request panicked that had waited for a new topic or group");
        }
        served.ok()
    }

    fn refuse(&self, request: &Command, reply: Reply, resume: &Resume, refusal: Refusal) {
        self.count_refused(resume);
        self.context.refuse(request, reply, refusal);
    }

    fn count_refused(&self, resume: &Resume) {
        if matches!(resume, Resume::Batched(_)) {
            self.context.stats.put_failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Logs a request if it has waited long, since not every row logs that. Its row then counts from here on.
    fn log_wait(&self, request: &Command, reply: Reply, created: Instant) -> Reply {
        let (from, times) = (reply.peer().remote(), reply.times(created));
        if self.context.requests.served(request, from, times) {
            return reply.arrived_at(Instant::now());
        }
        reply
    }
}

fn panicked() -> Result<(), Refusal> {
    let text = "creating topics or groups failed in the broker; its log has the details";
    Err(Refusal::internal(text))
}

/// Which requests of a row wait, and how they are served then.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) resume: fn(Arc<dyn Processor>) -> Resume,
    /// The field of a request with its order key; `None`: it may overtake others.
    pub(super) field: Option<&'static str>,
    /// What a request creates; `None` for nearly all.
    pub(super) missing: fn(&BrokerContext, &Command, &Peer) -> Option<Missing>,
}

struct AutoCreate {
    queue: AutoCreateQueue,
    row: Arc<dyn Processor>,
    rule: Rule,
}

impl Processor for AutoCreate {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        let missing = (self.rule.missing)(&self.queue.context, &request, peer);
        let order_key = self
            .rule
            .field
            .map(|field| request.fields.get(field).unwrap_or_default());
        let must_follow = || order_key.is_some_and(|order_key| self.queue.must_follow(peer, order_key));
        if missing.is_none() && !must_follow() {
            return self.row.process(request, peer, reply);
        }
        let mut missing = missing.unwrap_or_default();
        missing.order_key = order_key.map(str::to_owned);
        let resume = (self.rule.resume)(self.row.clone());
        self.queue.enqueue(missing, request, reply, resume);
    }
}

impl fmt::Debug for AutoCreate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AutoCreate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::site::{self, Line, in_time};
    use pyrmq_remoting::codes::request;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Its first request waits for `go_on`, and panics.
    struct Panics {
        is_later: AtomicBool,
        go_on: Mutex<Receiver<()>>,
    }

    impl Processor for Panics {
        fn process(&self, _request: Command, _peer: &Peer, reply: Reply) {
            if !self.is_later.swap(true, Ordering::Relaxed) {
                let go_on = lock(&self.go_on).recv();
                panic!("as this test wants it: {go_on:?}");
            }
            reply.send(Command::response(response::SUCCESS));
        }
    }

    struct Site {
        broker: site::Site,
        queue: AutoCreateQueue,
        peer: Peer,
        line: Arc<Line>,
        row: Arc<dyn Processor>,
        go_on: Sender<()>,
    }

    impl Site {
        fn new() -> Self {
            let broker = site::Site::new();
            let (go_on, waits) = channel();
            let row = Panics {
                is_later: AtomicBool::new(false),
                go_on: Mutex::new(waits),
            };
            let (peer, line) = Line::peer(1);
            Self {
                queue: AutoCreateQueue::new(&broker.context, &broker.tasks),
                broker,
                peer,
                line,
                row: Arc::new(row),
                go_on,
            }
        }

        fn ask(&self, opaque: i32) {
            self.ask_for(opaque, Missing::of(NewGroup::new("G")));
        }

        fn ask_for(&self, opaque: i32, missing: Missing) {
            let mut command = Command::request(request::HEART_BEAT);
            command.opaque = opaque;
            let reply = Reply::new(self.peer.clone(), &command);
            self.queue
                .enqueue(missing, command, reply, Resume::Single(self.row.clone()));
        }
    }

    fn at(order_key: &str) -> Missing {
        Missing {
            order_key: Some(order_key.to_owned()),
            ..Missing::default()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_row_that_panics_takes_neither_its_round_nor_the_next_one_with_it() {
        let site = Site::new();
        site.ask(1);
        in_time("the first round runs", || {
            lock(&site.queue.list).waiting.is_empty()
        })
        .await;
        site.ask(2);
        site.ask(3);
        site.go_on.send(()).unwrap();
        in_time("all are answered", || site.line.codes().len() == 3).await;
        let expected = [
            (1, response::SYSTEM_ERROR),
            (2, response::SUCCESS),
            (3, response::SUCCESS),
        ];
        assert_eq!(site.line.codes(), expected);
        in_time("nothing is left", || {
            let list = lock(&site.queue.list);
            let is_idle = list.order_keys.is_empty() && !list.has_worker;
            is_idle && site.queue.backlog.is_empty() && site.line.pauses() == 0
        })
        .await;
        site.ask(4);
        in_time("later ones find a thread", || site.line.codes().len() == 4).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_limited_number_of_requests_waits() {
        let site = Site::new();
        let most = i32::try_from(MAX_REQUESTS).unwrap();
        for opaque in 1..=most {
            site.ask(opaque);
        }
        assert_eq!(site.line.codes(), []);
        site.ask(most + 1);
        assert_eq!(site.line.codes(), [(most + 1, response::SYSTEM_BUSY)]);
        // It is behind others, like one that ends the membership of a client.
        site.ask_for(most + 2, at("key"));
        site.go_on.send(()).unwrap();
        in_time("all are answered", || site.line.codes().len() == MAX_REQUESTS + 2).await;
        assert!(site.line.codes().contains(&(most + 2, response::SUCCESS)));
        site.ask(0);
        in_time("there is room again", || {
            site.line.codes().contains(&(0, response::SUCCESS))
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_needs_nothing_is_served_before_more_is_made() {
        let site = Site::new();
        site.ask(1);
        in_time("the first one is served", || {
            lock(&site.queue.list).paused.is_some()
        })
        .await;
        site.broker.disk.hang(true);
        site.ask_for(2, at("key"));
        let new = Missing {
            order_key: Some("other".to_owned()),
            ..Missing::of(NewGroup::new("H"))
        };
        site.ask_for(3, new);
        site.ask_for(4, at("other"));
        assert_eq!(site.line.pauses(), 1);
        site.go_on.send(()).unwrap();
        let mut expected = vec![(1, response::SYSTEM_ERROR), (2, response::SUCCESS)];
        in_time("the second one is served", || site.line.codes() == expected).await;
        in_time("its connection is read on", || site.line.pauses() == 0).await;
        assert!(!site.queue.must_follow(&site.peer, "key") && site.queue.must_follow(&site.peer, "other"));
        assert_eq!(site.line.codes(), expected);
        site.broker.disk.hang(false);
        expected.extend([(3, response::SUCCESS), (4, response::SUCCESS)]);
        in_time("the others are served", || site.line.codes() == expected).await;
    }
}
