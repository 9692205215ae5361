//! Heartbeats to brokers: at once when a broker becomes known or has a new connection, then every 30 s (Apache
//! `MQClientInstance.sendHeartbeatToAllBrokerWithLock`, `HeartbeatData`).

use crate::error::ClientError;
use crate::session::connections::{Connections, Present};
use crate::session::late_unregister::{self, Unanswered};
use crate::session::membership::Membership;
use crate::session::options::ClientOptions;
use crate::session::routes::Routes;
use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::Body;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::{Client, NetError, Shutdown, Snapshot};
use pyrmq_remoting::sync::lock;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{RwLock, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often the client checks for new connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the last heartbeats before the client unregisters, and for the answers to that.
const UNREGISTER_TIME: Duration = Duration::from_millis(500);

/// The last round of heartbeats: its time, and what was known then.
struct LastRound {
    at: Instant,
    stats: Snapshot,
    changes: u64,
    brokers: Vec<(String, bool)>,
}

/// How one heartbeat went.
#[derive(Debug, Default)]
struct Round {
    /// How many brokers took it.
    answered: usize,
    /// Those that did not, by address.
    failed: Vec<(String, ClientError)>,
}

impl Round {
    /// A failure, when all failed.
    fn outcome(mut self) -> Result<(), ClientError> {
        let last = self.failed.pop().filter(|_| self.answered == 0);
        last.map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Sends heartbeats to the brokers of every known route.
#[derive(Debug, Clone)]
pub(crate) struct Heartbeat {
    client: Client,
    routes: Routes,
    pub(crate) membership: Arc<Membership>,
    timeout: Duration,
    // Heartbeats share it until they are answered, even if their callers are gone; `unregister` holds it exclusively.
    // Brokers process several requests of a connection at a time: a heartbeat that is processed last would register the
    // client again.
    on_their_way: Arc<RwLock<()>>,
    unanswered: Unanswered,
    // Guards the addresses of brokers that accepted the last heartbeat they have answered. Nothing else is locked under
    // it.
    accepting: Arc<Mutex<BTreeSet<String>>>,
    connections: Arc<Connections>,
}

impl Heartbeat {
    pub(crate) fn new(
        client: Client,
        routes: Routes,
        membership: Membership,
        options: &ClientOptions,
    ) -> Self {
        let membership = Arc::new(membership);
        let present: Weak<dyn Present> = Arc::<Membership>::downgrade(&membership);
        options.connections.note(present);
        Self {
            client,
            routes,
            membership,
            timeout: options.request_timeout,
            on_their_way: Arc::default(),
            unanswered: Unanswered::default(),
            accepting: Arc::default(),
            connections: options.connections.clone(),
        }
    }

    /// Sends a heartbeat to every broker (a producer: to masters only), side by side. Fails when all fail.
    pub(crate) async fn send(&self) -> Result<(), ClientError> {
        self.send_within(self.timeout).await
    }

    /// Sends a heartbeat to every broker, each within `time` or the request timeout if that is shorter. Fails when all
    /// fail.
    pub(crate) async fn send_within(&self, time: Duration) -> Result<(), ClientError> {
        self.send_all(self.timeout.min(time)).await.outcome()
    }

    /// The brokers that accepted the last heartbeat.
    pub(crate) fn accepting(&self) -> BTreeSet<String> {
        lock(&self.accepting).clone()
    }

    /// Sends a heartbeat with a new subscription, as [`Self::send`] does. A broker that refuses it for lack of
    /// permission refuses it as a whole, with all topics, and forgets the member. So this call fails, too, whatever
    /// others answer, if that broker has the topic or was among `accepting` before the subscription.
    pub(crate) async fn send_new(
        &self,
        topic: &Arc<str>,
        accepting: &BTreeSet<String>,
    ) -> Result<(), ClientError> {
        let mut round = self.send_all(self.timeout).await;
        let route = self.routes.cached(topic);
        let brokers = || route.iter().flat_map(|topic| topic.route.brokers.iter());
        let has_topic = |address: &String| {
            let mut replicas = brokers().flat_map(|broker| broker.addresses.values());
            replicas.any(|one| one == address)
        };
        let is_denied = |(address, error): &(String, ClientError)| {
            let is_refused =
                matches!(error, ClientError::Refused { code, .. } if *code == response::NO_PERMISSION);
            is_refused && (accepting.contains(address) || has_topic(address))
        };
        if let Some(at) = round.failed.iter().position(is_denied) {
            return Err(round.failed.swap_remove(at).1);
        }
        round.outcome()
    }

    /// Tells the brokers that a topic is not subscribed to any more; what fails is in the log.
    pub(crate) async fn send_change(self) {
        if self.membership.is_away() {
            self.unregister().await;
        } else {
            drop(self.send().await);
        }
    }

    async fn send_all(&self, timeout: Duration) -> Round {
        const WHAT: &str = "a heartbeat";
        let on_its_way = Arc::new(self.on_their_way.clone().read_owned().await);
        if self.membership.is_away() {
            return Round::default();
        }
        let body = Bytes::from(self.membership.data().encode());
        let mut beats = Vec::new();
        for (address, master) in self.routes.brokers() {
            if !master && self.membership.consumer.is_none() {
                continue;
            }
            let command = Command::request(request::HEART_BEAT).with_body(body.clone());
            let (result_sender, outcome) = oneshot::channel();
            let on_its_way = on_its_way.clone();
            let note = self.unanswered.begin(&address);
            self.client
                .request_with(&address, command, timeout, move |result| {
                    note(&result);
                    drop(result_sender.send(result));
                    drop(on_its_way);
                });
            beats.push((address, outcome));
        }
        drop(on_its_way);
        let mut round = Round::default();
        for (address, outcome) in beats {
            let error = match outcome.await.unwrap_or(Err(NetError::Closed)) {
                Ok(answer) if answer.code == response::SUCCESS => {
                    lock(&self.accepting).insert(address);
                    round.answered += 1;
                    continue;
                }
                Ok(answer) => {
                    lock(&self.accepting).remove(&address);
                    ClientError::refused(WHAT, &address, answer.code, answer.remark)
                }
                Err(source) => ClientError::net(WHAT, address.clone(), source),
            };
            tracing::warn!(address, %error, "heartbeat failed");
            round.failed.push((address, error));
        }
        round
    }

    /// Sends heartbeats until the client stops: in each interval, and within a second after a broker became known or a
    /// connection began or ended (a restarted broker knows no clients, and cannot ask about transactions). After a
    /// failure it tries again sooner, with pauses that double. A broker that becomes known may already have a
    /// connection, of another client.
    pub(crate) async fn keep_alive(self, interval: Duration, shutdown: Shutdown) {
        let stats = self.client.stats();
        let mut last: Option<LastRound> = None;
        let (mut pause, mut failures) = (interval, 0);
        while !shutdown.sleep_or_stop(CHECK_INTERVAL.min(interval)).await {
            let now = stats.snapshot();
            let changes = self.routes.broker_changes();
            let is_due = match &mut last {
                Some(last)
                    if last.at.elapsed() < pause
                        && now.opened == last.stats.opened
                        && now.connections >= last.stats.connections =>
                {
                    // The list is built only when it may differ: a producer may have many thousand topics.
                    std::mem::replace(&mut last.changes, changes) != changes
                        && last.brokers != self.routes.brokers()
                }
                _ => true,
            };
            let brokers = if is_due { self.routes.brokers() } else { Vec::new() };
            if brokers.is_empty() {
                continue;
            }
            // What failed is in the log.
            if self.send_all(self.timeout).await.failed.is_empty() {
                (pause, failures) = (interval, 0);
            } else {
                pause = (CHECK_INTERVAL * 2_u32.saturating_pow(failures)).min(interval);
                failures += 1;
            }
            last = Some(LastRound {
                at: Instant::now(),
                stats: stats.snapshot(),
                changes,
                brokers,
            });
        }
    }

    /// Unregisters for good: no heartbeat follows, whatever is still under way in this client.
    pub(crate) async fn end(&self) {
        self.membership.has_ended.store(true, Ordering::Release);
        self.unregister().await;
    }

    /// Unregisters from every connected broker, after the heartbeats in flight. Failures are ignored.
    pub(crate) async fn unregister(&self) {
        let wait = UNREGISTER_TIME.min(self.timeout);
        // A broker that has not answered by then gets both later, perhaps in the wrong order.
        let _alone = tokio::time::timeout(wait, self.on_their_way.write()).await;
        if !self.membership.is_away() {
            // It has subscribed again meanwhile.
            return;
        }
        let mut connected = self.client.connected();
        let brokers = self.routes.brokers();
        connected.retain(|address| brokers.iter().any(|(broker, _)| broker == address));
        let silent = self.unanswered.of(&connected);
        let mut requests = JoinSet::new();
        for address in connected {
            let (client, command) = (self.client.clone(), self.membership.unregistration());
            requests.spawn(async move {
                if let Err(error) = client.request(&address, command, wait).await {
                    tracing::debug!(address, %error, "cannot unregister from a broker");
                }
            });
        }
        while requests.join_next().await.is_some() {}
        if !silent.is_empty() {
            late_unregister::unregister_later(&self.client, &self.connections, &self.membership, silent);
        }
    }
}
