//! Topics and groups that a request makes by using them. Each needs a write and a sync of a whole file, which a
//! connection's task must not wait for: sends of other connections share its thread. So requests that name something
//! new wait in a list. A blocking thread makes what all that are waiting need, with one write for each file, then hands
//! the requests to their rows, which may still make there what was not foreseen.
//!
//! A user may lose its rights while its request waits, so that the rights are checked again: before anything is made, and
//! behind what was made before the request is served.
//!
//! Invariant: a request does not overtake an earlier one of its connection that waits at the same place. The place is
//! the topic of a send, the group of pulls and commits, and the client itself for heartbeats and their end.

use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::tables::topic_makers::NewTopic;
use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{BatchProcessor, Peer, Processor, Reply, RequestBatch, Tracker};
use pyrmq_remoting::sync::lock;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::task::spawn_blocking;

/// Maximum number of requests that wait.
const REQUESTS: usize = 10_000;
/// Maximum of their bytes.
const BYTES: usize = 64 << 20;
/// Where memory is short, this part of it, and at least the largest frame.
const BYTES_SHARE: u64 = 16;
const LEAST_BYTES: usize = 16 << 20;
/// What a request uses besides its fields and its body.
const REQUEST_BYTES: usize = 512;

/// A group that is not there yet, or has no retry topic yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NewGroup {
    pub(super) name: String,
    /// Its members get messages again: it needs its retry topic.
    pub(super) needs_retry_topic: bool,
}

/// What a request waits for. With nothing to make, it waits for its turn, or makes something rare itself.
#[derive(Debug, Default)]
pub(super) struct Needs {
    pub(super) groups: Vec<NewGroup>,
    pub(super) topics: Vec<NewTopic>,
    /// No later request of the connection with this place overtakes the one that waits.
    pub(super) place: Option<String>,
}

impl Needs {
    /// This group, if a request may make it by using it.
    pub(super) fn group(state: &BrokerContext, name: &str) -> Option<Self> {
        if state.groups.contains(name) || !state.may_make_group(name) {
            return None;
        }
        let group = NewGroup {
            name: name.to_owned(),
            needs_retry_topic: false,
        };
        Some(Self {
            groups: vec![group],
            ..Self::default()
        })
    }
}

/// What serves a request that has waited.
pub(super) enum Row {
    Single(Arc<dyn Processor>),
    /// A row about a connection, whose requests are dropped once that is closed.
    OfConnection(Arc<dyn Processor>),
    /// Those that waited together are one batch.
    Batched(Arc<dyn BatchProcessor>),
}

struct Waiting {
    needs: Needs,
    request: Command,
    reply: Reply,
    row: Row,
}

/// What a request adds to the list, until it was served.
struct Share {
    peer: u64,
    place: Option<String>,
    bytes: usize,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// The places of those that wait or are being served, by connection.
    places: HashMap<u64, HashMap<String, usize>>,
    /// Their bytes.
    bytes: usize,
    is_worked_off: bool,
}

/// The requests that wait. The rows of all tables share one.
#[derive(Clone)]
pub(crate) struct FirstUses {
    state: Arc<BrokerContext>,
    tasks: Tracker,
    most_bytes: usize,
    /// The number of requests that wait or are being served. Changed under the lock of the queue, and read without it:
    /// the requests that find it 0 are nearly all.
    unserved: Arc<AtomicUsize>,
    // Guards the requests that wait, and whether a thread takes them.
    queue: Arc<Mutex<Queue>>,
}

impl fmt::Debug for FirstUses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstUses")
    }
}

impl FirstUses {
    pub(crate) fn new(state: &Arc<BrokerContext>, tasks: &Tracker) -> Self {
        let share = (state.store.memory_limit()).and_then(|bytes| usize::try_from(bytes / BYTES_SHARE).ok());
        Self {
            state: state.clone(),
            tasks: tasks.clone(),
            most_bytes: share.map_or(BYTES, |share| BYTES.min(share.max(LEAST_BYTES))),
            unserved: Arc::default(),
            queue: Arc::default(),
        }
    }

    /// A row behind what its requests make.
    pub(super) fn row(&self, row: Arc<dyn Processor>, rule: Rule) -> Arc<dyn Processor> {
        let uses = self.clone();
        Arc::new(FirstUse { uses, row, rule })
    }

    /// Whether a request must wait behind an earlier one of its connection.
    pub(super) fn is_behind(&self, peer: &Peer, place: &str) -> bool {
        if self.unserved.load(Ordering::Acquire) == 0 {
            return false;
        }
        let queue = lock(&self.queue);
        let places = queue.places.get(&peer.id());
        places.is_some_and(|places| places.contains_key(place))
    }

    /// Lets a request wait until everything that it needs is made. Too many of them are answered SYSTEM_BUSY.
    pub(super) fn wait(&self, needs: Needs, mut request: Command, reply: Reply, row: Row) {
        // The buffer of its frame has other requests, too.
        let body = request.body.take();
        request.body = body.map(|body| Bytes::copy_from_slice(&body));
        let waiting = Waiting {
            needs,
            request,
            reply,
            row,
        };
        let share = waiting.share();
        let mut queue = lock(&self.queue);
        let count = self.unserved.load(Ordering::Relaxed);
        if count >= REQUESTS || queue.bytes + share.bytes > self.most_bytes {
            let text = format!(
                "[OVERLOAD] {count} requests with {} bytes wait for topics and groups that they use for the first time, \
                 allowed are {REQUESTS} with {} bytes: create topics and groups before they are used, or look whether \
                 the disk of the broker is slow",
                queue.bytes, self.most_bytes
            );
            drop(queue);
            return self.refuse(waiting, Refusal::new(response::SYSTEM_BUSY, text));
        }
        queue.bytes += share.bytes;
        if let Some(place) = share.place {
            *queue
                .places
                .entry(share.peer)
                .or_default()
                .entry(place)
                .or_default() += 1;
        }
        self.unserved.store(count + 1, Ordering::Release);
        queue.waiting.push(waiting);
        if std::mem::replace(&mut queue.is_worked_off, true) {
            return;
        }
        drop(queue);
        let uses = self.clone();
        self.tasks.spawn(async move {
            if let Err(error) = spawn_blocking(move || uses.work_off()).await {
                tracing::error!(%error, "serving the first uses of topics and groups panicked");
            }
        });
    }

    fn work_off(&self) {
        loop {
            let waiting = {
                let mut queue = lock(&self.queue);
                if queue.waiting.is_empty() {
                    queue.is_worked_off = false;
                    return;
                }
                std::mem::take(&mut queue.waiting)
            };
            let shares: Vec<Share> = waiting.iter().map(Waiting::share).collect();
            self.serve(waiting);
            self.served(shares);
        }
    }

    fn served(&self, shares: Vec<Share>) {
        let mut queue = lock(&self.queue);
        let count = self.unserved.load(Ordering::Relaxed);
        self.unserved
            .store(count.saturating_sub(shares.len()), Ordering::Release);
        for share in shares {
            queue.bytes = queue.bytes.saturating_sub(share.bytes);
            let (Some(place), Some(places)) = (share.place, queue.places.get_mut(&share.peer)) else {
                continue;
            };
            let left = places.get(&place).map_or(0, |count| count.saturating_sub(1));
            if left > 0 {
                places.insert(place, left);
            } else {
                places.remove(&place);
            }
            if places.is_empty() {
                queue.places.remove(&share.peer);
            }
        }
    }

    /// A panic of one row must not take the other requests with it.
    fn serve(&self, waiting: Vec<Waiting>) {
        let waiting = self.still_allowed(waiting);
        let groups = caught(|| self.make_groups(&waiting)).unwrap_or_else(panicked);
        let topics = caught(|| self.make_topics(&waiting)).unwrap_or_else(panicked);
        // The disk may have taken long.
        let waiting = self.still_allowed(waiting);
        let mut batch: Option<Box<dyn RequestBatch>> = None;
        for one in waiting {
            let refusal = (groups.as_ref().err().filter(|_| !one.needs.groups.is_empty()))
                .or(topics.as_ref().err().filter(|_| !one.needs.topics.is_empty()));
            if let Some(refusal) = refusal {
                self.refuse(one, refusal.clone());
                continue;
            }
            let Waiting {
                request, reply, row, ..
            } = one;
            let peer = reply.peer().clone();
            caught(|| match row {
                Row::OfConnection(_) if reply.is_closed() => reply.silence(),
                Row::OfConnection(row) | Row::Single(row) => row.process(request, &peer, reply),
                Row::Batched(row) => {
                    let batch = batch.get_or_insert_with(|| row.batch());
                    batch.process(request, &peer, reply);
                }
            });
        }
        if let Some(mut batch) = batch {
            caught(|| batch.end());
        }
    }

    /// Refuses the requests whose users have lost their rights, and returns the others.
    fn still_allowed(&self, waiting: Vec<Waiting>) -> Vec<Waiting> {
        if !self.state.checks_rights() {
            return waiting;
        }
        let mut allowed = Vec::with_capacity(waiting.len());
        for one in waiting {
            match caught(|| self.state.check_again(&one.request, one.reply.peer())) {
                Some(None) => allowed.push(one),
                Some(Some(refusal)) => self.answer(one, refusal),
                // The log has why; its reply is an error once it is dropped.
                None => {}
            }
        }
        allowed
    }

    fn make_groups(&self, waiting: &[Waiting]) -> Result<(), Refusal> {
        let groups: BTreeSet<&NewGroup> = waiting.iter().flat_map(|one| &one.needs.groups).collect();
        let names: BTreeSet<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        let retried = groups.iter().filter(|group| group.needs_retry_topic);
        let retried: Vec<&str> = retried.map(|group| group.name.as_str()).collect();
        self.state.make_groups(&Vec::from_iter(names), &retried)
    }

    fn make_topics(&self, waiting: &[Waiting]) -> Result<(), Refusal> {
        let topics = waiting.iter().flat_map(|one| one.needs.topics.iter().cloned());
        self.state.make_topics(topics.collect())
    }

    fn refuse(&self, one: Waiting, refusal: Refusal) {
        self.answer(one, refusal.into_response());
    }

    fn answer(&self, one: Waiting, refusal: Command) {
        if matches!(one.row, Row::Batched(_)) {
            self.state.stats.put_failed.fetch_add(1, Ordering::Relaxed);
        }
        one.reply.send(refusal);
    }
}

impl Waiting {
    fn share(&self) -> Share {
        let body = self.request.body.as_ref().map_or(0, Bytes::len);
        let fields = self.request.fields.iter();
        let fields: usize = fields.map(|(key, value)| key.len() + value.len()).sum();
        Share {
            peer: self.reply.peer().id(),
            place: self.needs.place.clone(),
            bytes: REQUEST_BYTES + fields + body,
        }
    }
}

/// `None`: it panicked, which the log says.
fn caught<T>(serve: impl FnOnce() -> T) -> Option<T> {
    let served = catch_unwind(AssertUnwindSafe(serve));
    if served.is_err() {
        tracing::error!("a request panicked that had waited for a new topic or group");
    }
    served.ok()
}

fn panicked() -> Result<(), Refusal> {
    let text = "making topics or groups failed in the broker; its log has the details";
    Err(Refusal::internal(text))
}

/// How requests of a row wait.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) kind: fn(Arc<dyn Processor>) -> Row,
    /// The field with the place of a request; `None`: it may overtake others.
    pub(super) field: Option<&'static str>,
    /// What a request makes; `None` for nearly all.
    pub(super) needs: fn(&BrokerContext, &Command, &Peer) -> Option<Needs>,
}

struct FirstUse {
    uses: FirstUses,
    row: Arc<dyn Processor>,
    rule: Rule,
}

impl Processor for FirstUse {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        let needs = (self.rule.needs)(&self.uses.state, &request, peer);
        let place = self
            .rule
            .field
            .map(|field| request.fields.get(field).unwrap_or_default());
        let is_behind = || place.is_some_and(|place| self.uses.is_behind(peer, place));
        if needs.is_none() && !is_behind() {
            return self.row.process(request, peer, reply);
        }
        let mut needs = needs.unwrap_or_default();
        needs.place = place.map(str::to_owned);
        let row = (self.rule.kind)(self.row.clone());
        self.uses.wait(needs, request, reply, row);
    }
}

impl fmt::Debug for FirstUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstUse")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::long_polling::LongPolling;
    use crate::options::Options;
    use crate::pop::hold::HeldPops;
    use pyrmq_remoting::codes::request;
    use pyrmq_remoting::net::Outbox;
    use pyrmq_store::{Fs, RealFs};
    use pyrmq_testkit::{TempDir, eventually};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use tokio::runtime::Handle;

    /// Keeps what a peer is answered.
    #[derive(Default)]
    struct Answers(Mutex<Vec<Command>>);

    impl Outbox for Answers {
        fn push(&self, command: Command) {
            lock(&self.0).push(command);
        }

        fn is_closed(&self) -> bool {
            false
        }

        fn close(&self) {}
    }

    impl Answers {
        fn codes(&self) -> Vec<(i32, i32)> {
            let answers = lock(&self.0);
            answers
                .iter()
                .map(|answer| (answer.opaque, answer.code))
                .collect()
        }
    }

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

    async fn soon(what: &str, condition: impl FnMut() -> bool) {
        assert!(eventually(condition).await, "not in time: {what}");
    }

    struct Site {
        _dir: TempDir,
        uses: FirstUses,
        answers: Arc<Answers>,
        row: Arc<dyn Processor>,
        go_on: Sender<()>,
    }

    impl Site {
        fn new() -> Self {
            let dir = TempDir::new().unwrap();
            let mut options = Options::default();
            options.store.root = dir.path().to_owned();
            options.store.segment_bytes = 1 << 20;
            options.store.max_message_bytes = 1 << 16;
            let fs: Arc<dyn Fs> = Arc::new(RealFs);
            let held = (LongPolling::new(1).0, HeldPops::new(1, 1).0);
            let state = Arc::new(BrokerContext::open(options, &fs, held, 0).unwrap());
            let (go_on, waits) = channel();
            let row = Panics {
                is_later: AtomicBool::new(false),
                go_on: Mutex::new(waits),
            };
            Self {
                _dir: dir,
                uses: FirstUses::new(&state, &Tracker::new(Handle::current())),
                answers: Arc::default(),
                row: Arc::new(row),
                go_on,
            }
        }

        fn ask(&self, opaque: i32) {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            let peer = Peer::new(1, address, address, self.answers.clone());
            let mut command = Command::request(request::HEART_BEAT);
            command.opaque = opaque;
            let reply = Reply::new(peer, &command);
            let row = Row::Single(self.row.clone());
            self.uses.wait(Needs::default(), command, reply, row);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_row_that_panics_takes_neither_its_round_nor_the_next_one_with_it() {
        let site = Site::new();
        site.ask(1);
        soon("the first round runs", || {
            lock(&site.uses.queue).waiting.is_empty()
        })
        .await;
        site.ask(2);
        site.ask(3);
        site.go_on.send(()).unwrap();
        soon("all are answered", || site.answers.codes().len() == 3).await;
        let expected = [
            (1, response::SYSTEM_ERROR),
            (2, response::SUCCESS),
            (3, response::SUCCESS),
        ];
        assert_eq!(site.answers.codes(), expected);
        soon("nothing is left", || {
            let queue = lock(&site.uses.queue);
            (queue.bytes, queue.places.len(), queue.is_worked_off) == (0, 0, false)
        })
        .await;
        site.ask(4);
        soon("later ones find a thread", || site.answers.codes().len() == 4).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_limited_number_of_requests_waits() {
        let site = Site::new();
        let most = i32::try_from(REQUESTS).unwrap();
        for opaque in 1..=most {
            site.ask(opaque);
        }
        assert_eq!(site.answers.codes(), []);
        site.ask(most + 1);
        assert_eq!(site.answers.codes(), [(most + 1, response::SYSTEM_BUSY)]);
        site.go_on.send(()).unwrap();
        soon("all are answered", || site.answers.codes().len() == REQUESTS + 1).await;
        site.ask(0);
        soon("there is room again", || {
            site.answers.codes().contains(&(0, response::SUCCESS))
        })
        .await;
    }
}
