//! Which brokers have a topic: asked of the name servers when first needed, again every 30 s, and at once after a
//! failure that says that what is known is old (Apache `MQClientInstance.updateTopicRouteInfoFromNameServer`).
//!
//! Readers take a shared lock and an `Arc`; a topic that is being asked for is asked for once, however many wait.

use crate::error::ClientError;
use crate::session::name_servers::NameServers;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, ClusterInfo, TopicRouteData};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::hash::NameMap;
use pyrmq_remoting::names::PERM_WRITE;
use pyrmq_remoting::net::{Shutdown, Tracker};
use pyrmq_routing::fault::{Healths, LatencyFaultTolerance};
use pyrmq_routing::route::{MASTER_ID, Route, TopicPublishInfo};
use pyrmq_routing::select::QueueSelector;
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Looks at a topic that may come soon: about a second in all.
const FIND_ATTEMPTS: u32 = 10;

/// Further looks of a producer at a topic that nobody has or may create, and the pause between them.
const REGISTRATION_ATTEMPTS: u32 = 4;
const REGISTRATION_PAUSE: Duration = Duration::from_millis(50);

/// Routes that are kept although nobody uses them.
const IDLE_KEPT: usize = 1024;

/// What happens when a topic is unknown.
#[derive(Debug, Clone)]
pub struct AutoCreate {
    /// The topic whose brokers may create others (TBW102).
    pub topic: String,
    /// Queues that the new topic shall have.
    pub queues: i32,
}

/// A topic as a client knows it.
#[derive(Debug, Clone)]
pub struct TopicRoute {
    /// As the name server told it; of the topic that stands in for it when `guessed`.
    pub route: Arc<Route>,
    /// The queues that may be written to, in Apache's order.
    pub published: Arc<TopicPublishInfo>,
    /// The brokers of the published queues.
    pub brokers: Arc<[Arc<str>]>,
    /// What is known of the broker of each published queue.
    pub healths: Healths,
    /// True when the topic does not exist yet: the first send creates it.
    pub guessed: bool,
    /// Which queue is next; kept when the route is asked for again.
    pub selector: Arc<QueueSelector>,
    /// How often the route was refreshed since it was last used; kept, too.
    idle: Arc<AtomicU32>,
    /// What the headers of all messages to this topic share, as it travels; written by the first of them.
    pub(crate) shared_fields: OnceLock<Vec<u8>>,
}

impl TopicRoute {
    fn new(route: Route, guessed: bool, faults: &LatencyFaultTolerance) -> Self {
        let published = Arc::new(route.published());
        let mut brokers: Vec<Arc<str>> = published
            .queues
            .iter()
            .map(|queue| queue.broker.clone())
            .collect();
        brokers.sort_unstable();
        brokers.dedup();
        Self {
            brokers: brokers.into(),
            healths: faults.healths(&published.queues),
            published,
            route: Arc::new(route),
            guessed,
            selector: Arc::new(QueueSelector::new(crate::random(1 << 16))),
            idle: Arc::default(),
            shared_fields: OnceLock::new(),
        }
    }

    /// Whether its messages may go to more than one broker.
    pub(crate) fn has_several_brokers(&self) -> bool {
        self.brokers.len() > 1
    }

    /// Why no queue of the topic can be written.
    pub fn no_queue(&self, topic: &str) -> ClientError {
        let queues = &self.route.queues;
        ClientError::NoQueue {
            topic: topic.to_owned(),
            what: "write to",
            reason: if !self.published.queues.is_empty() {
                "the queue that was asked for is not among its writable queues (its broker may be away)"
            } else if queues.is_empty() {
                "its route is empty"
            } else if queues.iter().all(|queues| queues.perm & PERM_WRITE == 0) {
                "writing is not permitted (perm without 2)"
            } else {
                "no broker that has it is alive as a master"
            },
        }
    }

    /// The address to read a broker's queues at: the master's, else of the lowest id.
    pub fn reader_of(&self, broker: &str) -> Option<String> {
        let (_, address) = self.route.broker(broker)?.addresses.first_key_value()?;
        Some(address.clone())
    }
}

/// What a client that is closed says.
const CLOSED: ClientError = ClientError::Closed { what: "client" };

/// What asking for a route gives.
pub type RouteResult = Result<Arc<TopicRoute>, ClientError>;

/// Told what is known.
type Callback = Box<dyn FnOnce(RouteResult) + Send>;

/// Failures of sends make at most one question about a topic in this time.
const STALE_INTERVAL: Duration = Duration::from_millis(100);

/// How often is looked for callbacks whose time is over while the name servers are asked.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(20);

/// Who waits for a topic that is being asked for.
#[derive(Default)]
struct Lookup {
    /// Called in order, before the topic becomes known to those who only look; each by its time at the latest.
    callbacks: Vec<(Instant, Callback)>,
    /// Told when it is known.
    tasks: Vec<oneshot::Sender<RouteResult>>,
}

/// The routes of one client.
#[derive(Clone)]
pub struct Routes {
    shared: Arc<Shared>,
}

struct Shared {
    name_servers: NameServers,
    create: Option<AutoCreate>,
    tracker: Tracker,
    faults: Arc<LatencyFaultTolerance>,
    known: RwLock<NameMap<Arc<str>, Arc<TopicRoute>>>,
    // Guards who waits for which topic; a topic with an entry is being asked for. Held while a new topic becomes
    // known, so that nobody overtakes those who wait: messages of one thread keep their order from the first on.
    lookups: Mutex<HashMap<Arc<str>, Lookup>>,
    // Guards when a failure last made a question about a topic, and whether the next one is already to come.
    stale: Mutex<HashMap<Arc<str>, (Instant, bool)>>,
    // The first broker that a route led to, and whether any has led to another since.
    first_broker: OnceLock<Arc<str>>,
    several_brokers: AtomicBool,
    closed: AtomicBool,
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Routes {
    /// Nothing is asked yet. `create`: what stands in for a topic that does not exist; `faults`: what is known of
    /// brokers.
    pub fn new(
        name_servers: NameServers,
        create: Option<AutoCreate>,
        tracker: Tracker,
        faults: Arc<LatencyFaultTolerance>,
    ) -> Self {
        let shared = Shared {
            name_servers,
            create,
            tracker,
            faults,
            known: RwLock::default(),
            lookups: Mutex::default(),
            stale: Mutex::default(),
            first_broker: OnceLock::new(),
            several_brokers: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The name servers.
    pub fn name_servers(&self) -> &NameServers {
        &self.shared.name_servers
    }

    /// What is known now, without asking.
    pub fn cached(&self, topic: &str) -> Option<Arc<TopicRoute>> {
        let route = self.shared.cached().get(topic).cloned();
        if let Some(route) = &route
            && route.idle.load(Ordering::Relaxed) > 0
        {
            route.idle.store(0, Ordering::Relaxed);
        }
        route
    }

    /// Whether the routes that were known so far led to more than one broker.
    pub fn has_several_brokers(&self) -> bool {
        self.shared.several_brokers.load(Ordering::Relaxed)
    }

    /// Topics whose route is known.
    pub fn count(&self) -> usize {
        self.shared.cached().len()
    }

    /// Calls back with what is known (at once), else with what the name servers say until `by`. Callbacks of one
    /// topic run one after the other in the order of the calls; they must not block.
    pub fn with_route(&self, topic: &Arc<str>, by: Instant, then: impl FnOnce(RouteResult) + Send + 'static) {
        if let Some(route) = self.cached(topic) {
            return then(Ok(route));
        }
        let mut lookups = self.shared.lookups();
        // Between the look above and the lock the topic may have become known.
        if let Some(route) = self.cached(topic) {
            drop(lookups);
            return then(Ok(route));
        }
        if self.shared.closed.load(Ordering::Acquire) {
            drop(lookups);
            return then(Err(CLOSED));
        }
        let first = !lookups.contains_key(topic);
        let callbacks = &mut lookups.entry(topic.clone()).or_default().callbacks;
        callbacks.push((by, Box::new(then)));
        drop(lookups);
        if first {
            self.look_up(topic);
        }
    }

    /// What is known, else what the name servers say within this time.
    pub async fn get_within(&self, topic: &Arc<str>, time: Duration) -> RouteResult {
        match self.cached(topic) {
            Some(route) => Ok(route),
            None => tokio::time::timeout(time, self.refresh(topic))
                .await
                .unwrap_or_else(|_| Err(self.shared.unanswered())),
        }
    }

    /// What is known, else what the name servers say.
    pub async fn get(&self, topic: &Arc<str>) -> RouteResult {
        match self.cached(topic) {
            Some(route) => Ok(route),
            None => self.refresh(topic).await,
        }
    }

    /// As [`Self::get`], for a topic that may just have been created by a first send: brokers answer that send before
    /// they have told the name servers.
    pub async fn find(&self, topic: &Arc<str>) -> RouteResult {
        let mut pause = Duration::from_millis(10);
        for _ in 0..FIND_ATTEMPTS {
            match self.get(topic).await {
                Err(ClientError::NoTopic { .. } | ClientError::NoBroker { .. }) => {
                    tokio::time::sleep(pause).await;
                }
                found => return found,
            }
            pause = pause.mul_f32(1.5);
        }
        self.get(topic).await
    }

    /// Asks the name servers, together with whoever asks for the same topic now.
    pub async fn refresh(&self, topic: &Arc<str>) -> RouteResult {
        let (sender, receiver) = oneshot::channel();
        if self.enqueue(topic, Some(sender)) {
            self.look_up(topic);
        }
        receiver.await.unwrap_or(Err(CLOSED))
    }

    /// Asks in the background: what is known seems to be old. While a broker is away each send says so: one question in
    /// 100 ms serves them all, and the last of them is followed by one.
    pub fn mark_stale(&self, topic: &Arc<str>) {
        let mut stale = self.shared.stale();
        let now = Instant::now();
        if let Some((at, again)) = stale.get_mut(topic) {
            let rest = STALE_INTERVAL.saturating_sub(now.saturating_duration_since(*at));
            if *again {
                return;
            }
            if !rest.is_zero() {
                *again = true;
                drop(stale);
                let (this, topic) = (self.clone(), topic.clone());
                self.shared.tracker.spawn(async move {
                    tokio::time::sleep(rest).await;
                    this.shared.stale().remove(&topic);
                    this.mark_stale(&topic);
                });
                return;
            }
        }
        stale.insert(topic.clone(), (now, false));
        drop(stale);
        if self.enqueue(topic, None) {
            self.look_up(topic);
        }
    }

    /// Asks for the route again after a send that found no queue by it: its broker may have been away when the route
    /// was asked for. A guessed route names every broker that there is, and holds until the first message has made
    /// the topic.
    pub(crate) fn suspect_missing(&self, topic: &Arc<str>, route: &TopicRoute) {
        if !route.guessed {
            self.mark_stale(topic);
        }
    }

    /// Whoever waits for a route is told that the client is closed, and so is whoever asks from now on: a look-up that
    /// hangs holds up nobody.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        let waiting: Vec<Lookup> = {
            let mut lookups = self.shared.lookups();
            lookups.values_mut().map(std::mem::take).collect()
        };
        for lookups in waiting {
            for (_, callback) in lookups.callbacks {
                callback(Err(CLOSED));
            }
            // Tasks see that their sender is gone.
            drop(lookups.tasks);
        }
    }

    /// True when the caller must start to ask.
    fn enqueue(&self, topic: &Arc<str>, task: Option<oneshot::Sender<RouteResult>>) -> bool {
        let mut lookups = self.shared.lookups();
        if self.shared.closed.load(Ordering::Acquire) {
            // The task sees that its sender is gone.
            return false;
        }
        let first = !lookups.contains_key(topic);
        lookups.entry(topic.clone()).or_default().tasks.extend(task);
        first
    }

    fn look_up(&self, topic: &Arc<str>) {
        let (shared, topic) = (self.shared.clone(), topic.clone());
        self.shared
            .tracker
            .spawn(async move { shared.look_up(&topic).await });
    }

    /// The master's address of a broker by name.
    pub fn master(&self, broker: &str) -> Option<String> {
        let known = self.shared.cached();
        let mut brokers = known.values().filter_map(|topic| topic.route.broker(broker));
        brokers.find_map(|broker| broker.addresses.get(&MASTER_ID).cloned())
    }

    /// Some queue on a broker, to ask it something harmless: topic, queue and the master's address.
    pub fn queue_on(&self, broker: &str) -> Option<(Arc<str>, i32, String)> {
        let known = self.shared.cached();
        known.iter().find_map(|(topic, route)| {
            let mut queues = route.published.queues.iter();
            let queue = queues.find(|queue| &*queue.broker == broker)?;
            Some((topic.clone(), queue.queue_id, queue.address.to_string()))
        })
    }

    /// The addresses of every broker that is known, each with whether it is a master.
    pub fn brokers(&self) -> Vec<(String, bool)> {
        let known = self.shared.cached();
        let mut found: Vec<(String, bool)> = known
            .values()
            .flat_map(|topic| topic.route.brokers.iter())
            .flat_map(|broker| broker.addresses.iter())
            .map(|(id, address)| (address.clone(), *id == 0))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Asks for every known topic again, each `interval`, until the client stops. Forgets what was not used for `idle`.
    pub async fn keep_fresh(self, interval: Duration, idle: Duration, shutdown: Shutdown) {
        let rounds = idle.as_millis() / interval.as_millis().max(1);
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        while !shutdown.sleep_or_stop(interval).await {
            self.name_servers().keep_fresh().await;
            for topic in self.shared.forget_idle(rounds) {
                // A failure leaves what is known; `look_up` has logged it.
                drop(self.refresh(&topic).await);
            }
        }
    }
}

impl Shared {
    fn cached(&self) -> RwLockReadGuard<'_, NameMap<Arc<str>, Arc<TopicRoute>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets routes that were not used for this many rounds, while more than [`IDLE_KEPT`] are known; returns the
    /// topics that remain. The last route to a broker stays, for heartbeats go to the brokers of known routes.
    fn forget_idle(&self, rounds: u32) -> Vec<Arc<str>> {
        let now = Instant::now();
        self.stale()
            .retain(|_, (at, again)| *again || now.saturating_duration_since(*at) < STALE_INTERVAL);
        let known = self.cached();
        let is_idle = |route: &TopicRoute| route.idle.fetch_add(1, Ordering::Relaxed) >= rounds;
        let (idle, mut kept): (Vec<_>, Vec<_>) = known
            .iter()
            .map(|(topic, route)| (topic.clone(), route.clone()))
            .partition(|(_, route)| is_idle(route));
        drop(known);
        // The brokers that the kept routes lead to.
        let mut reached: HashSet<String> = HashSet::new();
        let name_servers = |route: &TopicRoute| -> Vec<String> {
            let brokers = route.route.brokers.iter();
            brokers.map(|broker| broker.name.clone()).collect()
        };
        for (_, route) in &kept {
            reached.extend(name_servers(route));
        }
        let mut forgotten = Vec::new();
        for (topic, route) in idle {
            let name_servers = name_servers(&route);
            if kept.len() < IDLE_KEPT || name_servers.iter().any(|name| !reached.contains(name)) {
                reached.extend(name_servers);
                kept.push((topic, route));
            } else {
                forgotten.push(topic);
            }
        }
        if !forgotten.is_empty() {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            for topic in &forgotten {
                known.remove(topic);
            }
        }
        kept.into_iter().map(|(topic, _)| topic).collect()
    }

    fn stale(&self) -> MutexGuard<'_, HashMap<Arc<str>, (Instant, bool)>> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lookups(&self) -> MutexGuard<'_, HashMap<Arc<str>, Lookup>> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_up(&self, topic: &Arc<str>) {
        let mut asked = pin!(self.ask(topic));
        let found = loop {
            match tokio::time::timeout(EXPIRY_INTERVAL, asked.as_mut()).await {
                Ok(found) => break found,
                Err(_) => self.expire(topic),
            }
        };
        loop {
            let mut lookups = self.lookups();
            let callbacks = lookups
                .get_mut(topic)
                .map(|lookups| std::mem::take(&mut lookups.callbacks));
            let callbacks = callbacks.unwrap_or_default();
            if callbacks.is_empty() {
                self.remember(topic, &found);
                let done = lookups.remove(topic).unwrap_or_default();
                drop(lookups);
                for task in done.tasks {
                    // A task that has given up is no fault.
                    drop(task.send(found.clone()));
                }
                return;
            }
            drop(lookups);
            for (_, callback) in callbacks {
                callback(found.clone());
            }
        }
    }

    /// Tells those who cannot wait any longer that the name servers have not answered.
    fn expire(&self, topic: &Arc<str>) {
        let now = Instant::now();
        let mut lookups = self.lookups();
        let late: Vec<_> = match lookups.get_mut(topic) {
            Some(lookups) => lookups.callbacks.extract_if(.., |(by, _)| *by <= now).collect(),
            None => return,
        };
        drop(lookups);
        for (_, callback) in late {
            callback(Err(self.unanswered()));
        }
    }

    /// The name servers have not answered in the time that somebody had.
    fn unanswered(&self) -> ClientError {
        let addresses = self.name_servers.addresses();
        ClientError::NameServers {
            addresses: addresses.join(";"),
            failed_attempts: format!("{}: no answer within the time of the call", addresses.join(", ")),
            unresolved: false,
        }
    }

    fn remember(&self, topic: &Arc<str>, found: &RouteResult) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(route) => {
                let mut route = TopicRoute::clone(route);
                for broker in &*route.brokers {
                    if self.first_broker.get_or_init(|| broker.clone()) != broker {
                        self.several_brokers.store(true, Ordering::Relaxed);
                    }
                }
                if let Some(old) = known.get(topic) {
                    (route.selector, route.idle) = (old.selector.clone(), old.idle.clone());
                }
                known.insert(topic.clone(), Arc::new(route));
            }
            // What was known stays: a broker that restarts takes its topics from the name servers for a while, and
            // the broker itself tells when a topic is gone for good.
            Err(ClientError::NoTopic { .. }) => {
                tracing::debug!(topic = &**topic, "the name servers do not know it");
            }
            Err(error) => tracing::warn!(topic = &**topic, %error, "route not refreshed"),
        }
    }

    /// Asks once; for a producer a few times, because a broker that has just started may be about to register.
    async fn ask(&self, topic: &Arc<str>) -> RouteResult {
        for _ in 0..if self.create.is_some() {
            REGISTRATION_ATTEMPTS
        } else {
            0
        } {
            match self.ask_once(topic).await {
                Err(ClientError::NoTopic { .. } | ClientError::NoBroker { .. }) => {
                    tokio::time::sleep(REGISTRATION_PAUSE).await;
                }
                found => return found,
            }
        }
        self.ask_once(topic).await
    }

    async fn ask_once(&self, topic: &Arc<str>) -> RouteResult {
        if let Some(route) = self.query(topic).await? {
            return Ok(Arc::new(TopicRoute::new(route, false, &self.faults)));
        }
        let unknown = || ClientError::NoTopic {
            topic: topic.to_string(),
            to_send: self.create.is_some(),
        };
        let stand_in = match &self.create {
            Some(create) => self.query(&create.topic).await?.zip(Some(create)),
            None => None,
        };
        let Some((mut route, create)) = stand_in else {
            return Err(if self.has_brokers().await? {
                unknown()
            } else {
                ClientError::NoBroker {
                    topic: topic.to_string(),
                }
            });
        };
        for queue in &mut route.queues {
            let queues = create.queues.min(queue.read_queues);
            (queue.read_queues, queue.write_queues) = (queues, queues);
        }
        Ok(Arc::new(TopicRoute::new(route, true, &self.faults)))
    }

    /// Whether any broker is registered at the name server. One that cannot tell is believed to have some.
    async fn has_brokers(&self) -> Result<bool, ClientError> {
        let command = Command::request(request::GET_BROKER_CLUSTER_INFO);
        let read =
            |answer: Command, _: &str| {
                let body = answer.body.unwrap_or_default();
                let known = ClusterInfo::decode(&body);
                Ok(answer.code != response::SUCCESS
                    || known.is_ok_and(|info| !info.broker_addr_table.is_empty()))
            };
        self.name_servers.ask("the list of brokers", command, read).await
    }

    /// `None`: the name server does not know the topic.
    async fn query(&self, topic: &str) -> Result<Option<Route>, ClientError> {
        const WHAT: &str = "a route query";
        let command = Command::request(request::GET_ROUTEINFO_BY_TOPIC)
            .with_field("topic", topic)
            .with_field("acceptStandardJsonOnly", "true");
        let read = |answer: Command, address: &str| {
            match answer.code {
                response::SUCCESS => {}
                response::TOPIC_NOT_EXIST => return Ok(None),
                code => return Err(ClientError::answer(WHAT, address, code, answer.remark)),
            }
            let body = answer.body.unwrap_or_default();
            let decoded = TopicRouteData::decode(&body);
            let data = decoded.map_err(|source| ClientError::Answered {
                what: WHAT,
                address: address.to_owned(),
                source,
            })?;
            Ok(Some(Route::from(data)))
        };
        self.name_servers.ask(WHAT, command, read).await
    }
}
