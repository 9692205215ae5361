//! Which brokers have a topic: requested from the name servers when first needed, again every 30 s, and at once after a
//! failure that shows that the known route is stale (Apache `MQClientInstance.updateTopicRouteInfoFromNameServer`).
//!
//! Readers take a shared lock and an `Arc`; a topic is requested once, however many wait for it.

use crate::error::ClientError;
use crate::session::name_servers::NameServers;
use crate::session::route_refresh::RouteRefresh;
pub(crate) use crate::session::topic_route::HeadStart;
pub use crate::session::topic_route::TopicRoute;
use pyrmq_remoting::hash::NameMap;
use pyrmq_remoting::net::{Shutdown, Tracker};
use pyrmq_remoting::sync::{Completion, lock, read, write};
use pyrmq_routing::fault::LatencyFaultTolerance;
use pyrmq_routing::route::MASTER_ID;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Number of attempts to find a topic that may be created soon: about a second in all.
const FIND_ATTEMPTS: u32 = 10;

/// Number of unused routes that are kept.
const IDLE_KEPT: usize = 1024;

/// What happens when a topic is unknown.
#[derive(Debug, Clone)]
pub struct AutoCreate {
    /// The topic whose brokers may create others (TBW102).
    pub topic: String,
    /// Queues that the new topic shall have.
    pub queues: i32,
}

/// What a client that is closed says.
const CLOSED: ClientError = ClientError::Closed { what: "client" };

/// The result of a request for a route.
pub type RouteResult = Result<Arc<TopicRoute>, ClientError>;

/// Gets the outcome of a look-up.
type RouteCallback = Box<dyn Completion<RouteResult>>;

/// Interval in which failures of sends cause at most one request for a topic's route.
const STALE_INTERVAL: Duration = Duration::from_millis(100);

/// Callers that wait for the route of a topic.
#[derive(Default)]
pub(super) struct Lookup {
    /// Called in order, before [`Routes::cached`] has the topic, each no later than its deadline.
    pub(super) callbacks: Vec<(Instant, RouteCallback)>,
    /// Tasks that wait for the outcome.
    pub(super) tasks: Vec<oneshot::Sender<RouteResult>>,
}

/// The routes of one client.
#[derive(Clone)]
pub struct Routes {
    shared: Arc<RouteShared>,
}

pub(super) struct RouteShared {
    pub(super) name_servers: NameServers,
    pub(super) create: Option<AutoCreate>,
    tracker: Tracker,
    pub(super) faults: Arc<LatencyFaultTolerance>,
    pub(super) known: RwLock<NameMap<Arc<str>, Arc<TopicRoute>>>,
    // Guards the callers that wait for each topic; a topic with an entry is being looked up. Held while a new topic
    // becomes known, so that no caller overtakes the waiting ones: messages of one thread keep their order from the
    // first on.
    lookups: Mutex<HashMap<Arc<str>, Lookup>>,
    // Guards when a failure last caused a request for a topic's route, and whether another request is to follow.
    stale: Mutex<HashMap<Arc<str>, (Instant, bool)>>,
    // The first broker that a route led to, and whether any has led to another since.
    pub(super) first_broker: OnceLock<Arc<str>>,
    pub(super) several_brokers: AtomicBool,
    // Whether any route has led to one broker only.
    pub(super) topic_on_one_broker: AtomicBool,
    // How often a route led to other brokers than before.
    pub(super) broker_changes: AtomicU64,
    closed: AtomicBool,
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Routes {
    /// Nothing is requested yet. `create`: what stands in for a topic that does not exist; `faults`: what is known of
    /// brokers.
    pub fn new(
        name_servers: NameServers,
        create: Option<AutoCreate>,
        tracker: Tracker,
        faults: Arc<LatencyFaultTolerance>,
    ) -> Self {
        let shared = RouteShared {
            name_servers,
            create,
            tracker,
            faults,
            known: RwLock::default(),
            lookups: Mutex::default(),
            stale: Mutex::default(),
            first_broker: OnceLock::new(),
            several_brokers: AtomicBool::new(false),
            topic_on_one_broker: AtomicBool::new(false),
            broker_changes: AtomicU64::new(0),
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

    /// Whether any of the routes that were known so far led to one broker only.
    pub fn has_topic_on_one_broker(&self) -> bool {
        self.shared.topic_on_one_broker.load(Ordering::Relaxed)
    }

    /// Topics whose route is known.
    pub fn count(&self) -> usize {
        self.shared.cached().len()
    }

    /// Calls back at once with the known route, otherwise with the name servers' answer, by `by` at the latest.
    /// Callbacks of one topic run one after the other in the order of the calls; they must not block.
    pub fn with_route(&self, topic: &Arc<str>, by: Instant, then: impl FnOnce(RouteResult) + Send + 'static) {
        if let Some(route) = self.cached(topic) {
            return then(Ok(route));
        }
        let mut lookups = self.shared.lookups();
        // Between the check above and the lock the topic may have become known.
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

    /// The known route, otherwise the name servers' answer within this time.
    pub async fn get_within(&self, topic: &Arc<str>, time: Duration) -> RouteResult {
        match self.cached(topic) {
            Some(route) => Ok(route),
            None => tokio::time::timeout(time, self.refresh(topic))
                .await
                .unwrap_or_else(|_| Err(self.shared.unanswered())),
        }
    }

    /// The known route, otherwise the name servers' answer.
    pub async fn get(&self, topic: &Arc<str>) -> RouteResult {
        match self.cached(topic) {
            Some(route) => Ok(route),
            None => self.refresh(topic).await,
        }
    }

    /// The known route, otherwise the name servers' answer to several requests: a first send may just have created the
    /// topic, and brokers answer it before they have registered the topic.
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

    /// Requests the route from the name servers. Concurrent calls for one topic share a request.
    pub async fn refresh(&self, topic: &Arc<str>) -> RouteResult {
        let (sender, receiver) = oneshot::channel();
        if self.enqueue(topic, Some(sender)) {
            self.look_up(topic);
        }
        receiver.await.unwrap_or(Err(CLOSED))
    }

    /// Requests the route in the background, since the known one seems to be stale. While a broker is unreachable each
    /// send calls this: one request in 100 ms serves all of them, and one request follows the last of them.
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

    /// Requests the route again after a send that found no queue in it: its broker may not have been registered when
    /// the route was requested. A guessed route names every broker that there is, and is used until the first message
    /// has created the topic.
    pub(crate) fn suspect_missing(&self, topic: &Arc<str>, route: &TopicRoute) {
        if !route.guessed {
            self.mark_stale(topic);
        }
    }

    /// Fails all waiting and later calls with `Closed`, so that none waits for a look-up that hangs.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        let waiting: Vec<Lookup> = {
            let mut lookups = self.shared.lookups();
            lookups.values_mut().map(std::mem::take).collect()
        };
        for lookups in waiting {
            for (_, callback) in lookups.callbacks {
                callback.complete(Err(CLOSED));
            }
            // Tasks see that their sender is gone.
            drop(lookups.tasks);
        }
    }

    /// True when the caller must send the request.
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

    /// A number that changes whenever [`Self::brokers`] may have changed.
    pub(crate) fn broker_changes(&self) -> u64 {
        self.shared.broker_changes.load(Ordering::Relaxed)
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

    /// Refreshes every known route, each `interval`, until the client stops. Forgets those that were not used for
    /// `idle`.
    pub async fn keep_fresh(self, interval: Duration, idle: Duration, shutdown: Shutdown) {
        let rounds = idle.as_millis() / interval.as_millis().max(1);
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        let mut refresh = RouteRefresh::new(self.clone());
        while !shutdown.sleep_or_stop(interval).await {
            self.name_servers().keep_fresh().await;
            refresh.round(self.shared.forget_idle(rounds)).await;
        }
    }
}

impl RouteShared {
    pub(super) fn cached(&self) -> RwLockReadGuard<'_, NameMap<Arc<str>, Arc<TopicRoute>>> {
        read(&self.known)
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
            let mut known = write(&self.known);
            for topic in &forgotten {
                known.remove(topic);
            }
        }
        kept.into_iter().map(|(topic, _)| topic).collect()
    }

    fn stale(&self) -> MutexGuard<'_, HashMap<Arc<str>, (Instant, bool)>> {
        lock(&self.stale)
    }

    pub(super) fn lookups(&self) -> MutexGuard<'_, HashMap<Arc<str>, Lookup>> {
        lock(&self.lookups)
    }
}
