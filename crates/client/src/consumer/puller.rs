//! The pulling consumer: keeps the next pull of every assigned queue in flight, and hands out what came (Apache
//! `DefaultLitePullConsumerImpl`).
//!
//! No thread and no task waits for messages: an answer's callback takes the records in, wakes who polls, and asks for
//! more while the queue has room in its share of `ahead_bytes`. Periodic work (positions, share of the queues) is in
//! `rebalance.rs`.

use crate::consumer::inner_batch;
use crate::consumer::offsets::Offsets;
use crate::consumer::process_queue::{Chunk, Messages, ProcessQueue, QueueKey, Share};
use crate::consumer::rebalance::Assignment;
use crate::error::ClientError;
use crate::options::PullerOptions;
use crate::producer::outgoing::check_name;
use crate::session::heartbeat::{Heartbeat, Membership, Subscription};
use crate::session::name_servers::{self, NameServers};
use crate::session::routes::Routes;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::pull::{PullMessageRequestHeader, PullMessageResponseHeader};
use pyrmq_remoting::net::{Client, NetError, Peer, Processor, Reply, Shutdown, Table, Tracker};
use pyrmq_remoting::{Command, clock};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;

const WHAT: &str = "a pull";
/// The request's wait beyond what the broker may hold it.
const ANSWER_TIME: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// A broker that answers "nothing there" sooner than this does not hold pulls: ask it less often.
const HELD_AT_LEAST: Duration = Duration::from_millis(5);

/// `PullSysFlag` bits: the broker may hold the request; the request carries its subscription.
const MAY_SUSPEND: i32 = 0x2;
const WITH_SUBSCRIPTION: i32 = 0x4;

/// Where a queue starts when nothing else is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The first message that is still there.
    First,
    /// What comes from now on.
    Last,
    /// The first message stored at this time (ms) or later.
    Time(i64),
}

/// Pulls messages. Shared by any number of threads.
#[derive(Debug)]
pub struct Puller {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) options: PullerOptions,
    pub(crate) start: Start,
    pub(crate) routes: Routes,
    pub(crate) offsets: Offsets,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) shutdown: Shutdown,
    pub(crate) rebalance: Arc<Notify>,
    client: Client,
    pub(crate) tracker: Tracker,
    // Held while queues are taken or given back: who takes the same queues meanwhile waits until they have begun.
    pub(crate) taking: tokio::sync::Mutex<()>,
    generation: AtomicU64,
    // Guards the assigned queues and what was fetched for them.
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) queues: BTreeMap<Arc<QueueKey>, ProcessQueue>,
    /// Queues with something to hand out, each once: polls go round.
    ready: VecDeque<Arc<QueueKey>>,
    /// What the next poll shall fail with.
    failure: Option<ClientError>,
    closed: bool,
    waker: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

/// Code 40: somebody came to the group or left it.
struct GroupChanged(Arc<Notify>);

impl Processor for GroupChanged {
    fn process(&self, _request: Command, _peer: &Peer, reply: Reply) {
        self.0.notify_one();
        reply.silence();
    }
}

impl Puller {
    /// Connects to nothing yet.
    pub fn new(handle: &Handle, mut options: PullerOptions, start: Start) -> Result<Self, ClientError> {
        options.validate()?;
        options.client.group = options.client.wrap(&options.client.group).into_owned();
        let rebalance = Arc::new(Notify::new());
        let mut table = Table::new();
        let changed: Arc<dyn Processor> = Arc::new(GroupChanged(rebalance.clone()));
        table.native(&[request::NOTIFY_CONSUMER_IDS_CHANGED], &changed);
        let client = name_servers::transport(handle, table, &options.client, 0)?;
        let tracker = Tracker::new(handle.clone());
        let names = NameServers::new(client.clone(), &options.client);
        let routes = Routes::new(names, None, tracker.clone(), Arc::default());
        let timeout = options.client.request_timeout;
        let membership = Membership::consumer(&options.client);
        let shared = Arc::new(Shared {
            heartbeat: Heartbeat::new(client.clone(), routes.clone(), membership, timeout),
            offsets: Offsets::new(client.clone(), routes.clone(), &options.client),
            shutdown: Shutdown::new(),
            taking: tokio::sync::Mutex::default(),
            generation: AtomicU64::new(0),
            state: Mutex::default(),
            arrived: Condvar::new(),
            options,
            start,
            routes,
            rebalance,
            client,
            tracker,
        });
        let every = &shared.options.client;
        let (route_interval, route_idle) = (every.route_interval, every.route_idle);
        let beat_interval = every.heartbeat_interval;
        let stop = || shared.shutdown.clone();
        shared.tracker.spawn(
            shared
                .routes
                .clone()
                .keep_fresh(route_interval, route_idle, stop()),
        );
        shared
            .tracker
            .spawn(shared.heartbeat.clone().keep_alive(beat_interval, stop()));
        shared.tracker.spawn(shared.clone().keep_positions());
        shared.tracker.spawn(shared.clone().keep_balanced());
        Ok(Self { shared })
    }

    /// The settings.
    pub fn options(&self) -> &PullerOptions {
        &self.shared.options
    }

    /// The topics' routes.
    pub fn routes(&self) -> &Routes {
        &self.shared.routes
    }

    /// Offsets of queues, assigned or not.
    pub fn offsets(&self) -> &Offsets {
        &self.shared.offsets
    }

    /// Joins the group for a topic: takes this member's share of its queues now and whenever the group changes.
    pub async fn subscribe(&self, topic: &str, expression: &str) -> Result<(), ClientError> {
        check_name(topic)?;
        let topic: Arc<str> = topic.into();
        self.shared.routes.find(&topic).await?;
        let subscription = Subscription {
            expression: expression.to_owned(),
            version: clock::now_ms(),
        };
        self.shared.subscribe(topic, subscription).await
    }

    /// Takes exactly these queues, all others are given back. Without a start of its own a queue goes on where the
    /// group has committed.
    pub async fn assign(
        &self,
        queues: Vec<(QueueKey, Option<i64>)>,
        expression: &str,
    ) -> Result<(), ClientError> {
        let subscription = Arc::new(Subscription {
            expression: expression.to_owned(),
            version: clock::now_ms(),
        });
        for (key, _) in &queues {
            self.shared.routes.find(&key.topic).await?;
        }
        let wanted = queues
            .into_iter()
            .map(|(key, start)| Assignment {
                key: Arc::new(key),
                start,
                subscription: subscription.clone(),
            })
            .collect();
        self.shared.take(wanted, |_| true).await
    }

    /// The assigned queues with the position of each: the offset of the next message that a poll hands out.
    pub fn positions(&self) -> Vec<(Arc<QueueKey>, i64)> {
        let state = self.shared.state();
        let queues = state.queues.values();
        queues.map(|queue| (queue.key.clone(), queue.delivered)).collect()
    }

    /// Goes on from this offset of an assigned queue.
    pub fn seek(&self, key: &QueueKey, offset: i64) -> Result<(), ClientError> {
        let generation = self.shared.next_generation();
        let mut state = self.shared.state();
        let State { queues, ready, .. } = &mut *state;
        let queue = queues.get_mut(key).ok_or_else(|| ClientError::NotAssigned {
            topic: key.topic.to_string(),
            broker: key.broker.to_string(),
            queue_id: key.queue_id,
        })?;
        queue.restart(offset, generation);
        ready.retain(|ready| **ready != *key);
        let key = queue.key.clone();
        drop(state);
        self.shared.pull(&key);
        Ok(())
    }

    /// Hands out up to `max` messages that are there, without waiting. What earlier calls handed out is done now.
    pub fn take(&self, max: usize) -> Result<Vec<Messages>, ClientError> {
        let mut again = Vec::new();
        let taken = self
            .shared
            .state()
            .take(max, self.shared.options.ahead_bytes, &mut again);
        for key in again {
            self.shared.pull(&key);
        }
        taken
    }

    /// Waits up to `slice` until something is there, or failed. True: look.
    pub fn wait(&self, slice: Duration) -> bool {
        let state = self.shared.state();
        let (state, _) = self
            .shared
            .arrived
            .wait_timeout_while(state, slice, |state| !state.is_ready())
            .unwrap_or_else(PoisonError::into_inner);
        state.is_ready()
    }

    /// Calls this whenever something may be there. It must not block.
    pub fn on_arrival(&self, waker: Arc<dyn Fn() + Send + Sync>) {
        self.shared.state().waker = Some(waker);
    }

    /// Tells the brokers how far the group has come: everything handed out is done.
    pub async fn commit(&self) -> Result<(), ClientError> {
        for queue in self.shared.state().queues.values_mut() {
            queue.done = queue.delivered;
        }
        self.shared.commit_done().await
    }

    /// Ends pulls and connections and says goodbye. With a commit interval positions are committed: with `all`
    /// everything handed out, else only what a later poll has confirmed. Idempotent.
    pub async fn shut(&self, all: bool) -> Result<(), ClientError> {
        if self.shared.shutdown.is_stopped() {
            return Ok(());
        }
        self.shared.shutdown.stop();
        let committed = match self.shared.options.commit_interval {
            None => Ok(()),
            Some(_) if all => self.commit().await,
            Some(_) => self.shared.commit_done().await,
        };
        if let Err(error) = &committed {
            tracing::warn!(%error, "positions not committed at the end");
        }
        self.shared.close();
        self.shared.heartbeat.unregister().await;
        self.shared.client.close().await;
        self.shared.tracker.wait(Duration::from_secs(1)).await;
        committed
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        self.shared.shutdown.stop();
        self.shared.close();
        self.shared.client.shut();
    }
}

impl State {
    fn is_ready(&self) -> bool {
        self.closed || self.failure.is_some() || !self.ready.is_empty()
    }

    fn share(&self, ahead_bytes: usize) -> Share {
        Share::new(ahead_bytes, self.queues.len())
    }

    /// A queue, unless it was given back or moved since it had this generation.
    pub(crate) fn queue(&mut self, key: &QueueKey, generation: u64) -> Option<&mut ProcessQueue> {
        let queue = self.queues.get_mut(key);
        queue.filter(|queue| queue.generation == generation)
    }

    fn take(
        &mut self,
        max: usize,
        ahead_bytes: usize,
        again: &mut Vec<Arc<QueueKey>>,
    ) -> Result<Vec<Messages>, ClientError> {
        if self.closed {
            return Err(ClientError::Closed { what: "consumer" });
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        for queue in self.queues.values_mut() {
            queue.done = queue.delivered;
        }
        let share = self.share(ahead_bytes);
        let mut taken = Vec::new();
        let mut left = max;
        while left > 0
            && let Some(key) = self.ready.pop_front()
        {
            let Some(queue) = self.queues.get_mut(&key) else {
                continue;
            };
            if let Some(messages) = queue.deliver(left) {
                left -= messages.end - messages.first;
                taken.push(messages);
            }
            if queue.wants_pull(share) {
                again.push(key.clone());
            }
            if queue.has_messages() {
                self.ready.push_back(key);
            }
        }
        Ok(taken)
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.queues.clear();
        state.ready.clear();
        self.wake(&state);
    }

    fn wake(&self, state: &State) {
        self.arrived.notify_all();
        if let Some(waker) = &state.waker {
            waker();
        }
    }

    /// Makes the next poll fail.
    pub(crate) fn fail(&self, error: ClientError) {
        let mut state = self.state();
        state.failure = Some(error);
        self.wake(&state);
    }

    /// Sends the queue's next pull if it wants one.
    pub(crate) fn pull(self: &Arc<Self>, key: &Arc<QueueKey>) {
        let mut state = self.state();
        let share = state.share(self.options.ahead_bytes);
        let Some(queue) = state.queues.get_mut(key) else {
            return;
        };
        let (true, Some(offset)) = (queue.wants_pull(share), queue.next_pull) else {
            return;
        };
        queue.pulling = true;
        let (generation, subscription) = (queue.generation, queue.subscription.clone());
        drop(state);
        let Some(address) = self
            .routes
            .cached(&key.topic)
            .and_then(|topic| topic.reader_of(&key.broker))
        else {
            self.routes.mark_stale(&key.topic);
            return self.pause(key.clone(), generation);
        };
        let suspend = self.options.suspend;
        let header = PullMessageRequestHeader {
            consumer_group: &self.options.client.group,
            topic: &key.topic,
            queue_id: key.queue_id,
            queue_offset: offset,
            max_msg_nums: self.options.batch,
            sys_flag: MAY_SUSPEND | WITH_SUBSCRIPTION,
            commit_offset: 0,
            suspend_timeout_millis: i64::try_from(suspend.as_millis()).unwrap_or(i64::MAX),
            subscription: Some(&subscription.expression),
            sub_version: subscription.version,
            expression_type: Some("TAG"),
            max_msg_bytes: i32::try_from(share.answer_bytes()).ok(),
            broker_name: Some(&key.broker),
            ..PullMessageRequestHeader::default()
        };
        let command = Command::request(request::PULL_MESSAGE).with_header(&header);
        let (shared, key, asked) = (self.clone(), key.clone(), Instant::now());
        self.client
            .request_with(&address.clone(), command, suspend + ANSWER_TIME, move |outcome| {
                shared.pulled(&key, generation, &address, asked, outcome);
            });
    }

    fn pulled(
        self: &Arc<Self>,
        key: &Arc<QueueKey>,
        generation: u64,
        address: &str,
        asked: Instant,
        outcome: Result<Command, NetError>,
    ) {
        let outcome = outcome
            .map_err(|source| ClientError::net(WHAT, address.to_owned(), source))
            .and_then(|answer| read(address, answer));
        let mut state = self.state();
        let Some(queue) = state.queue(key, generation) else {
            return;
        };
        queue.pulling = false;
        let chunk = outcome.and_then(|(code, next_offset, body)| {
            if code == response::PULL_OFFSET_MOVED {
                tracing::warn!(%key, asked = ?queue.next_pull, next_offset, "offset moved: it is not in the queue");
            }
            inner_batch::unwrapped(body, queue.next_pull.unwrap_or(0))
                .and_then(|body| Chunk::new(key.clone(), body, next_offset, &queue.subscription))
                .map_err(|source| ClientError::Answered {
                    what: WHAT,
                    address: address.to_owned(),
                    source,
                })
        });
        match chunk {
            Ok(chunk) => {
                queue.failures = 0;
                let moved = queue.next_pull != Some(chunk.next_offset);
                let had_messages = queue.has_messages();
                if queue.arrive(chunk) {
                    if !had_messages {
                        state.ready.push_back(key.clone());
                    }
                    self.wake(&state);
                }
                drop(state);
                if moved || asked.elapsed() >= HELD_AT_LEAST {
                    self.pull(key);
                } else {
                    self.pause(key.clone(), generation);
                }
            }
            Err(error) => {
                queue.failures += 1;
                drop(state);
                self.failed(key, generation, error);
            }
        }
    }

    /// Tries again later; what will not pass by itself, the next poll raises.
    fn failed(self: &Arc<Self>, key: &Arc<QueueKey>, generation: u64, error: ClientError) {
        tracing::warn!(%key, %error, "pull failed");
        let passing = match &error {
            ClientError::Net { .. } => true,
            ClientError::Answer { code, .. } => matches!(
                *code,
                response::SYSTEM_ERROR
                    | response::SYSTEM_BUSY
                    | response::SERVICE_NOT_AVAILABLE
                    | response::FLOW_CONTROL
                    | response::SUBSCRIPTION_NOT_EXIST
                    | response::SUBSCRIPTION_NOT_LATEST
            ),
            _ => false,
        };
        if matches!(&error, ClientError::Answer { code, .. } if *code == response::TOPIC_NOT_EXIST)
            && let Some(queue) = self.state().queue(key, generation)
        {
            queue.is_gone = true;
        }
        self.routes.mark_stale(&key.topic);
        if !passing {
            self.fail(error);
        }
        self.pause(key.clone(), generation);
    }

    /// Pulls again after a while; longer after each failure.
    pub(crate) fn pause(self: &Arc<Self>, key: Arc<QueueKey>, generation: u64) {
        let shared = self.clone();
        let failures = {
            let mut state = self.state();
            let Some(queue) = state.queue(&key, generation) else {
                return;
            };
            queue.pulling = true;
            queue.failures
        };
        let pause = LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.saturating_pow(failures.min(8)));
        self.tracker.spawn(async move {
            if shared.shutdown.sleep_or_stop(pause).await {
                return;
            }
            {
                let mut state = shared.state();
                let Some(queue) = state.queue(&key, generation) else {
                    return;
                };
                queue.pulling = false;
                if !queue.is_gone {
                    drop(state);
                    return shared.pull(&key);
                }
            }
            shared.start_over(&key, generation).await;
        });
    }
}

/// Code, where to go on, records.
fn read(address: &str, answer: Command) -> Result<(i32, i64, bytes::Bytes), ClientError> {
    match answer.code {
        response::SUCCESS
        | response::PULL_NOT_FOUND
        | response::PULL_RETRY_IMMEDIATELY
        | response::PULL_OFFSET_MOVED => {}
        code => return Err(ClientError::answer(WHAT, address, code, answer.remark)),
    }
    let header =
        PullMessageResponseHeader::decode(&answer.fields).map_err(|source| ClientError::Answered {
            what: WHAT,
            address: address.to_owned(),
            source,
        })?;
    let next_offset = header.next_begin_offset;
    let body = if answer.code == response::SUCCESS {
        answer.body
    } else {
        None
    };
    Ok((answer.code, next_offset, body.unwrap_or_default()))
}
