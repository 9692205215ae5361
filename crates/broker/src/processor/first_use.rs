//! Topics and groups that a request makes by using them. Each needs a write and a sync of a whole file, which a
//! connection's task must not wait for: sends of other connections share its thread. So requests that name something
//! new wait in a list. A blocking thread makes what all that are waiting need, with one write for each file, then hands
//! the requests to their rows, which may still make there what was not foreseen.
//!
//! ```text
//! take all that wait -> make what they need -> hand them to their rows
//!                                           -> hand over those behind them that need nothing, until there is none
//! ```
//! In the second line the connections that add requests are not read. So a connection with always something in flight
//! leaves the list soon after its topic is made, and waits for no other's.
//!
//! A user may lose its rights while its request waits. So they are checked again before anything is made, and before
//! the request is served.
//!
//! Invariant: a request does not overtake an earlier one of its connection that waits at the same place. The place is
//! the topic of a send, the group of pulls and commits, and the client itself for heartbeats and their end.

use crate::context::{BrokerContext, NewGroup};
use crate::error::Refusal;
use crate::processor::backlog::{Backlog, BacklogFull, Entry, Load, detached};
use crate::tables::topic_makers::NewTopic;
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

/// Maximum number of requests that wait.
const REQUESTS: usize = 10_000;
/// Maximum of their bytes.
const BYTES: usize = 64 << 20;
/// Where memory is short, this part of it, and at least the largest frame.
const BYTES_SHARE: u64 = 16;
const LEAST_BYTES: usize = 16 << 20;
/// A connection with one of these parts of both is not read until none of its requests waits.
const PARTS: usize = 10;

/// What a request waits for. With nothing to make, it waits for its turn.
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
        Some(Self::of(NewGroup::new(name)))
    }

    /// One group, or topics of it.
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
    entry: Entry,
}

impl Waiting {
    /// Its connection and its place there.
    fn place(&self) -> Option<Place> {
        let place = self.needs.place.as_deref()?;
        Some(place_of(self.reply.peer(), place))
    }
}

/// A connection, and the hash of a place there. Requests of two places with one hash keep their order, too.
type Place = (u64, u64);

fn place_of(peer: &Peer, place: &str) -> Place {
    let mut hasher = DefaultHasher::new();
    place.hash(&mut hasher);
    (peer.id(), hasher.finish())
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// The places of those that wait or are being served, with their numbers.
    places: HashMap<Place, usize>,
    is_worked_off: bool,
    /// While requests are handed to their rows: the connections that have added some meanwhile.
    paused: Option<HashMap<u64, Pause>>,
}

impl Queue {
    /// Takes what needs nothing, and is behind nothing that does.
    fn take_ready(&mut self) -> Vec<Waiting> {
        let mut held = HashSet::new();
        let (ready, left) = std::mem::take(&mut self.waiting).into_iter().partition(|one| {
            let place = one.place();
            let is_ready = one.needs.is_empty() && !place.is_some_and(|place| held.contains(&place));
            if !is_ready {
                held.extend(place);
            }
            is_ready
        });
        self.waiting = left;
        ready
    }
}

/// The requests that wait. The rows of all tables share one.
#[derive(Clone)]
pub(crate) struct FirstUses {
    state: Arc<BrokerContext>,
    tasks: Tracker,
    backlog: Arc<Backlog>,
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
        let most = Load {
            requests: REQUESTS,
            bytes: share.map_or(BYTES, |share| BYTES.min(share.max(LEAST_BYTES))),
        };
        Self {
            state: state.clone(),
            tasks: tasks.clone(),
            backlog: Backlog::new(most, PARTS),
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
        lock(&self.queue).places.contains_key(&place_of(peer, place))
    }

    /// Lets a request wait until everything that it needs is made. Those that do not fit are answered SYSTEM_BUSY, but
    /// for those that need nothing: they are behind others of their connection, and a client that leaves (35) must not
    /// stay a member.
    pub(super) fn wait(&self, needs: Needs, request: Command, reply: Reply, row: Row) {
        let load = Load::of(&request);
        let entry = match self.backlog.enter(reply.peer(), load, !needs.is_empty()) {
            Ok(entry) => entry,
            Err(BacklogFull(used)) => {
                let most = self.backlog.most();
                let text = format!(
                    "[OVERLOAD] {} requests with {} bytes wait for topics and groups that they use for the first \
                     time, allowed are {} with {} bytes: create topics and groups before they are used, or look \
                     whether the disk of the broker is slow",
                    used.requests, used.bytes, most.requests, most.bytes
                );
                return self.refuse(&request, reply, &row, Refusal::new(response::SYSTEM_BUSY, text));
            }
        };
        let peer = reply.peer().clone();
        let waiting = Waiting {
            needs,
            request: detached(request),
            reply,
            row,
            entry,
        };
        let mut queue = lock(&self.queue);
        if let Some(place) = waiting.place() {
            *queue.places.entry(place).or_default() += 1;
        }
        if let Some(paused) = &mut queue.paused {
            paused.entry(peer.id()).or_insert_with(|| peer.pause());
        }
        self.unserved.fetch_add(1, Ordering::Release);
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
        while let Some(waiting) = self.next_round() {
            self.serve(waiting);
            while let Some(ready) = self.next_ready() {
                self.serve(ready);
            }
        }
    }

    fn next_round(&self) -> Option<Vec<Waiting>> {
        let mut queue = lock(&self.queue);
        queue.is_worked_off = !queue.waiting.is_empty();
        queue.is_worked_off.then(|| std::mem::take(&mut queue.waiting))
    }

    fn next_ready(&self) -> Option<Vec<Waiting>> {
        let mut queue = lock(&self.queue);
        let ready = queue.take_ready();
        if ready.is_empty() {
            queue.paused = None;
            return None;
        }
        Some(ready)
    }

    /// Notes that requests of these places were served.
    fn served(&self, places: Vec<Option<Place>>) {
        let mut queue = lock(&self.queue);
        self.unserved.fetch_sub(places.len(), Ordering::Release);
        for place in places.into_iter().flatten() {
            let left = queue
                .places
                .get(&place)
                .map_or(0, |count| count.saturating_sub(1));
            if left > 0 {
                queue.places.insert(place, left);
            } else {
                queue.places.remove(&place);
            }
        }
    }

    /// A panic of one row must not take the other requests with it.
    fn serve(&self, waiting: Vec<Waiting>) {
        let places = waiting.iter().map(Waiting::place).collect();
        let waiting = self.still_allowed(waiting);
        // The connections are read on once all are served.
        let mut entries = Vec::with_capacity(waiting.len());
        let groups = caught(|| self.make_groups(&waiting)).unwrap_or_else(panicked);
        let topics = caught(|| self.make_topics(&waiting)).unwrap_or_else(panicked);
        // The disk may have taken long.
        let waiting = self.still_allowed(waiting);
        let made = Instant::now();
        lock(&self.queue).paused.get_or_insert_default();
        let mut batch: Option<Box<dyn RequestBatch>> = None;
        for one in waiting {
            entries.push(one.entry);
            let refusal = (groups.as_ref().err().filter(|_| !one.needs.groups.is_empty()))
                .or(topics.as_ref().err().filter(|_| !one.needs.topics.is_empty()));
            if let Some(refusal) = refusal {
                self.refuse(&one.request, one.reply, &one.row, refusal.clone());
                continue;
            }
            let reply = self.log_wait(&one.request, one.reply, made);
            let request = one.request;
            let peer = reply.peer().clone();
            caught(|| match one.row {
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
        self.served(places);
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
                Some(Some(refusal)) => {
                    self.count_refused(&one.row);
                    one.reply.send(refusal);
                }
                // The log has why; its reply is an error once it is dropped.
                None => {}
            }
        }
        allowed
    }

    fn make_groups(&self, waiting: &[Waiting]) -> Result<(), Refusal> {
        let groups: BTreeSet<&NewGroup> = waiting.iter().flat_map(|one| &one.needs.groups).collect();
        self.state.make_groups(&groups)
    }

    fn make_topics(&self, waiting: &[Waiting]) -> Result<(), Refusal> {
        let topics = waiting.iter().flat_map(|one| one.needs.topics.iter().cloned());
        self.state.make_topics(topics.collect())
    }

    fn refuse(&self, request: &Command, reply: Reply, row: &Row, refusal: Refusal) {
        self.count_refused(row);
        self.state.refuse(request, reply, refusal);
    }

    fn count_refused(&self, row: &Row) {
        if matches!(row, Row::Batched(_)) {
            self.state.stats.put_failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Logs a request if it has waited long, since not every row logs that. Its row then counts from here on.
    fn log_wait(&self, request: &Command, reply: Reply, made: Instant) -> Reply {
        let (from, times) = (reply.peer().remote(), reply.times(made));
        if self.state.requests.served(request, from, times) {
            return reply.arrived_at(Instant::now());
        }
        reply
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
    use crate::processor::site::{self, Line, soon};
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
        uses: FirstUses,
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
                uses: FirstUses::new(&broker.state, &broker.tasks),
                broker,
                peer,
                line,
                row: Arc::new(row),
                go_on,
            }
        }

        fn ask(&self, opaque: i32) {
            self.ask_for(opaque, Needs::of(NewGroup::new("G")));
        }

        fn ask_for(&self, opaque: i32, needs: Needs) {
            let mut command = Command::request(request::HEART_BEAT);
            command.opaque = opaque;
            let reply = Reply::new(self.peer.clone(), &command);
            self.uses
                .wait(needs, command, reply, Row::Single(self.row.clone()));
        }
    }

    fn at(place: &str) -> Needs {
        Needs {
            place: Some(place.to_owned()),
            ..Needs::default()
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
        soon("all are answered", || site.line.codes().len() == 3).await;
        let expected = [
            (1, response::SYSTEM_ERROR),
            (2, response::SUCCESS),
            (3, response::SUCCESS),
        ];
        assert_eq!(site.line.codes(), expected);
        soon("nothing is left", || {
            let queue = lock(&site.uses.queue);
            let is_idle = queue.places.is_empty() && !queue.is_worked_off;
            is_idle && site.uses.backlog.is_empty() && site.line.pauses() == 0
        })
        .await;
        site.ask(4);
        soon("later ones find a thread", || site.line.codes().len() == 4).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_limited_number_of_requests_waits() {
        let site = Site::new();
        let most = i32::try_from(REQUESTS).unwrap();
        for opaque in 1..=most {
            site.ask(opaque);
        }
        assert_eq!(site.line.codes(), []);
        site.ask(most + 1);
        assert_eq!(site.line.codes(), [(most + 1, response::SYSTEM_BUSY)]);
        // It is behind others, like one that ends the membership of a client.
        site.ask_for(most + 2, at("place"));
        site.go_on.send(()).unwrap();
        soon("all are answered", || site.line.codes().len() == REQUESTS + 2).await;
        assert!(site.line.codes().contains(&(most + 2, response::SUCCESS)));
        site.ask(0);
        soon("there is room again", || {
            site.line.codes().contains(&(0, response::SUCCESS))
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_needs_nothing_is_served_before_more_is_made() {
        let site = Site::new();
        site.ask(1);
        soon("the first one is served", || {
            lock(&site.uses.queue).paused.is_some()
        })
        .await;
        site.broker.disk.hang(true);
        site.ask_for(2, at("place"));
        let new = Needs {
            place: Some("other".to_owned()),
            ..Needs::of(NewGroup::new("H"))
        };
        site.ask_for(3, new);
        site.ask_for(4, at("other"));
        assert_eq!(site.line.pauses(), 1);
        site.go_on.send(()).unwrap();
        let mut expected = vec![(1, response::SYSTEM_ERROR), (2, response::SUCCESS)];
        soon("the second one is served", || site.line.codes() == expected).await;
        soon("its connection is read on", || site.line.pauses() == 0).await;
        assert!(!site.uses.is_behind(&site.peer, "place") && site.uses.is_behind(&site.peer, "other"));
        assert_eq!(site.line.codes(), expected);
        site.broker.disk.hang(false);
        expected.extend([(3, response::SUCCESS), (4, response::SUCCESS)]);
        soon("the others are served", || site.line.codes() == expected).await;
    }
}
