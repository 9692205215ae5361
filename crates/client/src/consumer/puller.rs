//! The pulling consumer: keeps the next pull of every assigned queue in flight, and hands out what came (Apache
//! `DefaultLitePullConsumerImpl`).
//!
//! No thread and no task waits for messages: an answer's callback takes the records in, wakes who polls, and asks for
//! more while the queue has room in its share of `ahead_bytes`. Periodic work (positions, share of the queues) is in
//! `rebalance.rs`.

use crate::consumer::offsets::Offsets;
use crate::consumer::process_queue::{Messages, ProcessQueue, QueueKey};
use crate::consumer::questions::Questions;
use crate::consumer::queue_lock::QueueLocks;
use crate::consumer::rebalance::Assignment;
use crate::consumer::send_back::SendBack;
use crate::consumer::shared::Shared;
use crate::error::ClientError;
use crate::options::{Order, PullerOptions};
use crate::producer::outgoing::check_name;
use crate::session::heartbeat::{Heartbeat, Membership, Subscription};
use crate::session::name_servers::{self, NameServers};
use crate::session::routes::Routes;
use pyrmq_remoting::body::ConsumeType;
use pyrmq_remoting::clock;
use pyrmq_remoting::net::{Shutdown, Table, Tracker};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

pub use crate::consumer::shared::Start;

/// Pulls messages. Shared by any number of threads.
#[derive(Debug)]
pub struct Puller {
    pub(crate) shared: Arc<Shared>,
}

impl Puller {
    /// Connects to nothing yet.
    pub fn new(handle: &Handle, mut options: PullerOptions, start: Start) -> Result<Self, ClientError> {
        options.validate()?;
        options.client.group = options.client.wrap(&options.client.group).into_owned();
        let mut table = Table::new();
        let questions = Questions::register(&mut table);
        let client = name_servers::transport(handle, table, &options.client, 0)?;
        let tracker = Tracker::new(handle.clone());
        let names = NameServers::new(client.clone(), &options.client);
        let routes = Routes::new(names, None, tracker.clone(), Arc::default());
        let timeout = options.client.request_timeout;
        let kind = if options.is_listening {
            ConsumeType::Passively
        } else {
            ConsumeType::Actively
        };
        let membership = Membership::consumer(&options.client, kind);
        let client_id = membership.client_id.clone();
        let shared = Arc::new(Shared {
            heartbeat: Heartbeat::new(client.clone(), routes.clone(), membership, timeout),
            offsets: Offsets::new(client.clone(), routes.clone(), &options.client),
            send_back: SendBack::new(client.clone(), routes.clone(), &options.client, options.max_tries),
            locks: QueueLocks::new(client.clone(), routes.clone(), &options.client, client_id),
            shutdown: Shutdown::new(),
            taking: tokio::sync::Mutex::default(),
            generation: AtomicU64::new(0),
            state: Mutex::default(),
            arrived: Condvar::new(),
            options,
            start,
            routes,
            rebalance: Notify::new(),
            client,
            tracker,
        });
        questions.are_for(&shared);
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
        if shared.options.order == Order::Queue {
            shared.tracker.spawn(shared.clone().keep_locked());
        }
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
        self.shared.subscribe(topic, subscription).await?;
        if self.shared.options.is_listening {
            self.shared.subscribe_retry_topic();
        }
        Ok(())
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
        let queue = state
            .queues
            .get_mut(key)
            .ok_or_else(|| ClientError::NotAssigned {
                topic: key.topic.to_string(),
                broker: key.broker.to_string(),
                queue_id: key.queue_id,
            })?;
        queue.restart(offset, generation);
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
        if !self.shared.options.is_listening {
            for queue in self.shared.state().queues.values_mut() {
                queue.done = queue.delivered;
            }
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
        let queues = self.shared.close();
        if self.shared.options.order == Order::Queue {
            let locked = queues
                .into_values()
                .filter(|queue: &ProcessQueue| queue.listeners.is_locked());
            let keys: Vec<Arc<QueueKey>> = locked.map(|queue| queue.key).collect();
            self.shared.locks.unlock(&keys).await;
        }
        self.shared.heartbeat.unregister().await;
        self.shared.client.close().await;
        self.shared.tracker.wait(Duration::from_secs(1)).await;
        committed
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        self.shared.shutdown.stop();
        drop(self.shared.close());
        self.shared.client.shut();
    }
}
