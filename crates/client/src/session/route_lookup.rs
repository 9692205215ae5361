//! Requests a route from the name servers, once for all callers that wait for it.

use crate::error::ClientError;
use crate::session::routes::{RouteResult, RouteShared};
use crate::session::topic_route::TopicRoute;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, ClusterInfo, TopicRouteData};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::sync::write;
use pyrmq_routing::route::Route;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Further requests of a producer for a topic that no broker has or may create, and the pause between them.
const REGISTRATION_ATTEMPTS: u32 = 4;
const REGISTRATION_PAUSE: Duration = Duration::from_millis(50);

/// How often callers whose time has passed are failed while a request to the name servers is open.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(20);

/// The log lines keep the name of the routes.
const LOG: &str = "pyrmq_client::session::routes";

impl RouteShared {
    pub(super) async fn look_up(&self, topic: &Arc<str>) {
        let mut lookup = pin!(self.request(topic));
        let found = loop {
            match tokio::time::timeout(EXPIRY_INTERVAL, lookup.as_mut()).await {
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
                    // A task that gave up is no error.
                    drop(task.send(found.clone()));
                }
                return;
            }
            drop(lookups);
            for (_, callback) in callbacks {
                callback.complete(found.clone());
            }
        }
    }

    /// Fails the waiting calls whose time has passed: the name servers have not answered.
    fn expire(&self, topic: &Arc<str>) {
        let now = Instant::now();
        let mut lookups = self.lookups();
        let late: Vec<_> = match lookups.get_mut(topic) {
            Some(lookups) => lookups.callbacks.extract_if(.., |(by, _)| *by <= now).collect(),
            None => return,
        };
        drop(lookups);
        for (_, callback) in late {
            callback.complete(Err(self.unanswered()));
        }
    }

    /// The error of a caller whose time has passed before a name server answered.
    pub(super) fn unanswered(&self) -> ClientError {
        let addresses = self.name_servers.addresses();
        ClientError::NameServers {
            addresses: addresses.join(";"),
            failed_attempts: format!("{}: no answer within the time of the call", addresses.join(", ")),
            unresolved: false,
        }
    }

    fn remember(&self, topic: &Arc<str>, found: &RouteResult) {
        let mut known = write(&self.known);
        match found {
            Ok(route) => {
                let mut route = TopicRoute::clone(route);
                for broker in &*route.brokers {
                    if self.first_broker.get_or_init(|| broker.clone()) != broker {
                        self.several_brokers.store(true, Ordering::Relaxed);
                    }
                }
                if route.brokers.len() == 1 {
                    self.topic_on_one_broker.store(true, Ordering::Relaxed);
                }
                let old = known.get(topic);
                if old.is_none_or(|old| old.route.brokers != route.route.brokers) {
                    self.broker_changes.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(old) = old {
                    (route.selector, route.idle) = (old.selector.clone(), old.idle.clone());
                }
                known.insert(topic.clone(), Arc::new(route));
            }
            // The known route stays: while a broker restarts, the name servers do not know its topics, and the broker
            // itself refuses messages of a topic that was deleted.
            Err(ClientError::NoTopic { .. }) => {
                tracing::debug!(target: LOG, topic = &**topic, "the name servers do not know it");
            }
            Err(error @ ClientError::Closed { .. }) => {
                tracing::debug!(target: LOG, topic = &**topic, %error, "route not refreshed");
            }
            Err(error) => tracing::warn!(target: LOG, topic = &**topic, %error, "route not refreshed"),
        }
    }

    /// Requests the route once; for a producer a few times, because a broker that has just started may be about to
    /// register.
    async fn request(&self, topic: &Arc<str>) -> RouteResult {
        for _ in 0..if self.create.is_some() {
            REGISTRATION_ATTEMPTS
        } else {
            0
        } {
            match self.request_once(topic).await {
                Err(ClientError::NoTopic { .. } | ClientError::NoBroker { .. }) => {
                    tokio::time::sleep(REGISTRATION_PAUSE).await;
                }
                found => return found,
            }
        }
        self.request_once(topic).await
    }

    async fn request_once(&self, topic: &Arc<str>) -> RouteResult {
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

    /// Whether any broker is registered at the name server. A name server that does not answer this is assumed to have
    /// some.
    async fn has_brokers(&self) -> Result<bool, ClientError> {
        let command = Command::request(request::GET_BROKER_CLUSTER_INFO);
        let read =
            |answer: Command, _: &str| {
                let body = answer.body.unwrap_or_default();
                let known = ClusterInfo::decode(&body);
                Ok(answer.code != response::SUCCESS
                    || known.is_ok_and(|info| !info.broker_addr_table.is_empty()))
            };
        self.name_servers
            .request("the list of brokers", command, read)
            .await
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
                code => return Err(ClientError::refused(WHAT, address, code, answer.remark)),
            }
            let body = answer.body.unwrap_or_default();
            let decoded = TopicRouteData::decode(&body);
            let data = decoded.map_err(|source| ClientError::UnreadableAnswer {
                what: WHAT,
                address: address.to_owned(),
                source,
            })?;
            Ok(Some(Route::from(data)))
        };
        self.name_servers.request(WHAT, command, read).await
    }
}
