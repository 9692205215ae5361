//! The consumer that receives messages for a limited time (Apache `SimpleConsumer`).

use crate::consumer::failure_counts::Counts;
use crate::consumer::options::{MIN_INVISIBLE, Start, check_invisible};
use crate::consumer::pop::answer::Popped;
use crate::consumer::pop::batch::PopBatch;
use crate::consumer::pop::in_hand::InHand;
use crate::consumer::pop::options::SimpleOptions;
use crate::consumer::pop::receipt::Receipt;
use crate::consumer::pop::renew::Renewal;
use crate::consumer::pop::state::PopState;
use crate::consumer::rates::Counted;
use crate::consumer::requests::send_back::SendBack;
use crate::consumer::requests::subscription_check::check_filter;
use crate::error::ClientError;
use crate::session::connections::{Connections, Role};
use crate::session::heartbeat::Heartbeat;
use crate::session::membership::{ConsumerKind, Membership, Subscription};
use crate::session::name_servers::NameServers;
use crate::session::routes::Routes;
use crate::session::topic_name::check_name;
use pyrmq_remoting::body::{Body, ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionGroupConfig};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::group::GetSubscriptionGroupConfigRequestHeader;
use pyrmq_remoting::net::{Client, ProcessorTable, Shutdown, Tracker};
use pyrmq_remoting::sync::lock;
use pyrmq_remoting::{Command, clock};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Deliveries after the first if the group's setting is not known (Apache `retryMaxTimes`).
const MAX_TRIES: i32 = 16;
/// How often the consumer checks for messages that no call receives.
const IDLE_CHECK: Duration = Duration::from_secs(1);

pub(crate) struct PopShared {
    pub(crate) options: SimpleOptions,
    pub(crate) client: Client,
    pub(crate) routes: Routes,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) send_back: SendBack,
    pub(crate) tracker: Tracker,
    pub(crate) shutdown: Shutdown,
    // Guards the messages that came and the calls that wait.
    state: Mutex<PopState>,
    pub(super) changed: Condvar,
    /// Messages wait to be handed out, as of the last change.
    pub(crate) has_ready: AtomicBool,
    /// Fewer messages were requested than a free listener could take: the next free one requests more.
    pub(crate) has_spare_demand: AtomicBool,
    max_tries: AtomicI32,
    attempts: AtomicU64,
    /// Counters of what happened to messages.
    pub(crate) counts: Arc<Counts>,
    /// Messages received and done lately. Nothing else is locked under it.
    pub(crate) counted: Arc<Mutex<Counted>>,
    /// How often the time of messages was renewed.
    pub(crate) renewed: AtomicU64,
    /// What callers of `receive` have.
    pub(super) in_hand: Arc<InHand>,
}

/// The parts that a simple consumer is built from.
pub(crate) struct SimpleParts {
    pub(crate) client: Client,
    pub(crate) routes: Routes,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) tracker: Tracker,
    pub(crate) counts: Arc<Counts>,
    pub(crate) counted: Arc<Mutex<Counted>>,
}

impl fmt::Debug for PopShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PopShared")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Receives messages for a limited time. Shared by any number of threads.
#[derive(Debug)]
pub struct SimpleConsumer {
    pub(super) shared: Arc<PopShared>,
    /// Messages that were acknowledged.
    pub(super) done: AtomicU64,
    // Runs the end, which waits for the tasks of the consumer's own tracker.
    pub(super) ending: Tracker,
    // Held while the end is begun: a second call finds it there.
    pub(super) is_ending: Mutex<bool>,
    // Held while a subscription is announced to the brokers, so that the previous one is known if they refuse it.
    subscribing: tokio::sync::Mutex<()>,
}

impl SimpleConsumer {
    /// Connects to nothing yet.
    pub fn new(handle: &Handle, mut options: SimpleOptions) -> Result<Self, ClientError> {
        options.validate()?;
        options.client.group = options.client.wrap(&options.client.group).into_owned();
        // Its own connection: when it ends, brokers forget the pops that they hold for it, and hand out no messages
        // that would be lost.
        options.client.connections = Connections::new();
        let client = options
            .client
            .connect(handle, ProcessorTable::new(), Role::Consumer)?;
        let tracker = Tracker::new(handle.clone());
        let names = NameServers::new(client.clone(), &options.client);
        let routes = Routes::new(names, None, tracker.clone(), Arc::default());
        let kind = ConsumerKind {
            consume_type: ConsumeType::Actively,
            model: MessageModel::Clustering,
            start: match options.start {
                Start::Last => ConsumeFromWhere::LastOffset,
                Start::First | Start::Time(_) => ConsumeFromWhere::FirstOffset,
            },
        };
        let membership = Membership::consumer(&options.client, kind);
        let heartbeat = Heartbeat::new(client.clone(), routes.clone(), membership, &options.client);
        let parts = SimpleParts {
            client,
            routes,
            heartbeat,
            tracker,
            counts: Arc::default(),
            counted: Arc::default(),
        };
        let shared = Arc::new(PopShared::new(options, parts));
        let every = &shared.options.client;
        let (interval, idle, beat) = (every.route_interval, every.route_idle, every.heartbeat_interval);
        let stop = || shared.shutdown.clone();
        let fresh = shared.routes.clone().keep_fresh(interval, idle, stop());
        shared.tracker.spawn(fresh);
        shared
            .tracker
            .spawn(shared.heartbeat.clone().keep_alive(beat, stop()));
        shared.tracker.spawn(shared.clone().keep_idle_given_back());
        Ok(Self {
            shared,
            done: AtomicU64::new(0),
            ending: Tracker::new(handle.clone()),
            is_ending: Mutex::new(false),
            subscribing: tokio::sync::Mutex::default(),
        })
    }

    /// The settings.
    pub fn options(&self) -> &SimpleOptions {
        &self.shared.options
    }

    /// The client id that brokers list.
    pub fn client_id(&self) -> &str {
        &self.shared.heartbeat.membership.client_id
    }

    /// The topics that are subscribed to, as brokers name them.
    pub fn topics(&self) -> Vec<Arc<str>> {
        self.shared.heartbeat.membership.topics()
    }

    /// Joins the group for a topic; another filter replaces the one before. A failure leaves the previous subscription.
    pub async fn subscribe(&self, topic: &str, expression: &str, is_sql: bool) -> Result<(), ClientError> {
        check_name(topic)?;
        let topic: Arc<str> = topic.into();
        let shared = &self.shared;
        shared.routes.find(&topic).await?;
        let subscription = Subscription {
            expression: expression.to_owned(),
            is_sql,
            version: clock::now_ms(),
        };
        let membership = &shared.heartbeat.membership;
        let time = shared.options.client.request_timeout;
        check_filter(
            &shared.client,
            &shared.routes,
            (membership, time),
            &topic,
            &subscription,
        )
        .await?;
        let one_at_a_time = self.subscribing.lock().await;
        let (before, accepting) = (membership.subscription(&topic), shared.heartbeat.accepting());
        membership.subscribe(topic.clone(), subscription.clone());
        // The group must exist before the first pop in its name.
        if let Err(error) = shared.heartbeat.send_new(&topic, &accepting).await {
            if membership.put_back(&topic, &subscription, before) {
                shared.tracker.spawn(shared.heartbeat.clone().send_change());
            }
            return Err(error);
        }
        drop(one_at_a_time);
        if shared.options.max_tries.is_none() {
            shared.read_max_tries(&topic).await;
        }
        shared.send_pops();
        Ok(())
    }

    /// Leaves the group for a topic; messages that were not handed out are given back. False: it was not subscribed to.
    pub async fn unsubscribe(&self, topic: &str) -> Result<bool, ClientError> {
        let shared = &self.shared;
        if !shared.heartbeat.membership.unsubscribe(topic) {
            return Ok(false);
        }
        let dropped = shared.state().forget_topic(topic);
        shared.give_back(dropped).await;
        if shared.heartbeat.membership.is_away() {
            shared.heartbeat.unregister().await;
        } else {
            shared.heartbeat.send().await?;
        }
        Ok(true)
    }

    /// Acknowledges messages; the outcomes are in their order.
    pub async fn ack(&self, receipts: &[Arc<Receipt>]) -> Vec<Result<(), ClientError>> {
        let outcomes = self.shared.acknowledge(receipts).await;
        self.count_done(receipts, &outcomes);
        outcomes
    }

    /// Hides a message for this time from now on; zero gives it back at once.
    pub async fn change_invisible(&self, receipt: &Receipt, invisible: Duration) -> Result<(), ClientError> {
        self.shared.change(receipt, invisible).await?;
        if invisible.is_zero() {
            self.shared.counts.add_later();
        }
        Ok(())
    }

    /// Renews the time of messages until the result is dropped, for at most `limit` in all.
    pub fn renew(
        &self,
        receipts: Vec<Arc<Receipt>>,
        invisible: Duration,
        limit: Duration,
    ) -> Result<Renewal, ClientError> {
        check_invisible(invisible, MIN_INVISIBLE)?;
        Ok(self.shared.renew(receipts, invisible, limit))
    }

    /// Calls this whenever something may be there. It must not block.
    pub fn on_arrival(&self, waker: Arc<dyn Fn() + Send + Sync>) {
        self.shared.state().waker = Some(waker);
    }
}

impl PopShared {
    pub(crate) fn new(options: SimpleOptions, parts: SimpleParts) -> Self {
        let SimpleParts {
            client,
            routes,
            heartbeat,
            tracker,
            counts,
            counted,
        } = parts;
        Self {
            send_back: SendBack::new(client.clone(), routes.clone(), &options.client, options.max_tries),
            max_tries: AtomicI32::new(options.max_tries.unwrap_or(MAX_TRIES)),
            attempts: AtomicU64::new(0),
            counts,
            counted,
            renewed: AtomicU64::new(0),
            in_hand: Arc::default(),
            shutdown: Shutdown::new(),
            state: Mutex::new(PopState::new(options.is_ordered)),
            changed: Condvar::new(),
            has_ready: AtomicBool::new(false),
            has_spare_demand: AtomicBool::new(false),
            heartbeat,
            client,
            routes,
            tracker,
            options,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, PopState> {
        lock(&self.state)
    }

    /// Wakes another listener if there is more.
    pub(crate) fn wake_next(&self, state: &PopState) {
        self.has_ready.store(!state.ready.is_empty(), Ordering::Release);
        if !state.ready.is_empty() {
            self.wake(state);
        }
    }

    pub(crate) fn wake(&self, state: &PopState) {
        self.has_ready.store(!state.ready.is_empty(), Ordering::Release);
        self.changed.notify_all();
        if let Some(waker) = &state.waker {
            waker();
        }
    }

    pub(crate) fn max_tries(&self) -> i32 {
        self.max_tries.load(Ordering::Relaxed)
    }

    /// A unique name for an ordered pop.
    pub(crate) fn next_attempt(&self) -> String {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.heartbeat.membership.client_id)
    }

    /// Hands out and requests no more messages. Returns those that were not handed out.
    pub(crate) fn end(&self) -> Vec<Popped> {
        let mut state = self.state();
        state.is_closed = true;
        let left = state.take_all();
        self.wake(&state);
        left
    }

    /// Renews messages that have waited, and puts them before those to hand out.
    pub(super) async fn bring_back(self: Arc<Self>, batch: PopBatch, invisible: Duration) {
        let messages = self.refresh(batch.messages.into(), invisible).await;
        if messages.is_empty() {
            return self.send_pops();
        }
        let batch = PopBatch {
            messages: messages.into(),
            invisible,
            arrived: Instant::now(),
        };
        if let Some(late) = self.hold(batch, true) {
            self.give_back(late).await;
        }
    }

    /// Keeps messages for the next call, before or after all others. Closed, it returns them.
    pub(crate) fn hold(&self, batch: PopBatch, is_first: bool) -> Option<Vec<Popped>> {
        let mut state = self.state();
        if state.is_closed {
            return Some(batch.messages.into());
        }
        if is_first {
            state.ready.push_front(batch);
        } else {
            state.ready.push_back(batch);
        }
        self.wake(&state);
        None
    }

    /// Makes messages available whose predecessors are acknowledged now.
    pub(crate) fn release_successors(&self, acknowledged: &BTreeSet<&str>) {
        let mut state = self.state();
        if state.release_successors(acknowledged) {
            self.wake(&state);
        }
    }

    /// Gives back messages that no call receives, each second.
    async fn keep_idle_given_back(self: Arc<Self>) {
        while !self.shutdown.sleep_or_stop(IDLE_CHECK).await {
            let idle = self.state().take_idle(Instant::now());
            self.give_back(idle).await;
            self.send_pops();
        }
    }

    /// Requests the group's maximum of tries from a broker.
    pub(crate) async fn read_max_tries(&self, topic: &Arc<str>) {
        let Ok(route) = self.routes.get(topic).await else {
            return;
        };
        let header = GetSubscriptionGroupConfigRequestHeader {
            group: &self.options.client.group,
        };
        let command = Command::request(request::GET_SUBSCRIPTIONGROUP_CONFIG).with_header(&header);
        for broker in &route.route.brokers {
            let Some(address) = route.reader_of(&broker.name) else {
                continue;
            };
            let time = self.options.client.request_timeout;
            match self.client.request(&address, command.clone(), time).await {
                Ok(answer) if answer.code == response::SUCCESS => {
                    match SubscriptionGroupConfig::decode(&answer.body.unwrap_or_default()) {
                        Ok(group) => {
                            self.max_tries
                                .store(group.retry_max_times.max(0), Ordering::Relaxed);
                            return;
                        }
                        Err(error) => tracing::warn!(%error, "the group's settings cannot be read"),
                    }
                }
                Ok(answer) => tracing::debug!(code = answer.code, "no settings of the group"),
                Err(error) => tracing::debug!(%error, "no settings of the group"),
            }
        }
    }
}
