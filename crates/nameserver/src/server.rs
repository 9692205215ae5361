//! The running name server (Apache `NamesrvController`): one port, one scan for silent brokers, and the queries of its
//! Python rows.

use crate::context::{LostBroker, NameServerContext};
use crate::error::NameServerError;
use crate::notify::Notifier;
use crate::options::Options;
use crate::{registration_thread, rows};
use pyrmq_remoting::body::TopicRouteData;
use pyrmq_remoting::meter::Latency;
use pyrmq_remoting::net::{
    Requests, Security, Server, Shutdown, Snapshot, Stats, Tracker, raise_descriptor_limit,
};
use pyrmq_routing::table::{BrokerView, UnitTopics};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long tasks may take after a request to stop at once.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A running name server. Dropping it stops it at once.
#[derive(Debug)]
pub struct NameServer {
    context: Arc<NameServerContext>,
    address: SocketAddr,
    /// Each address set with the address on which its clients ask.
    set_listeners: Vec<(String, SocketAddr)>,
    /// Counters of the main port and of those of address sets.
    stats: Vec<Arc<Stats>>,
    shutdown: Shutdown,
    tasks: Tracker,
    python: Option<Arc<Requests>>,
    stopped: AtomicBool,
    /// The process whose threads serve it.
    pid: u32,
    /// True once the queue's thread has ended.
    queue_ended: watch::Receiver<bool>,
}

/// The state of a name server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// False once it is stopping.
    pub running: bool,
    /// Live broker processes.
    pub brokers: usize,
    /// Topics with a route.
    pub topics: usize,
    /// Connections.
    pub connections: u64,
}

impl NameServer {
    /// Starts on this runtime; the port is open when this returns. Python workers that pull from `python` answer
    /// `python_codes`, except those that have a native row.
    pub fn start(
        options: Options,
        handle: &Handle,
        python: Option<&Arc<Requests>>,
        python_codes: &[i32],
    ) -> Result<Arc<Self>, NameServerError> {
        Self::start_secured(options, handle, (python, python_codes), &Security::default())
    }

    /// Starts like [`Self::start`], with checks on its requests.
    pub fn start_secured(
        options: Options,
        handle: &Handle,
        (python, python_codes): (Option<&Arc<Requests>>, &[i32]),
        security: &Security,
    ) -> Result<Arc<Self>, NameServerError> {
        options.validate()?;
        raise_descriptor_limit();
        let (address, transport) = (options.address()?, options.transport());
        let listeners = options.set_listeners()?;
        let scan = Duration::from_millis(options.scan_not_active_broker_interval.unsigned_abs());
        let sets = listeners.iter().map(|(set, _)| set.clone()).collect();
        let notifier = Notifier::new(handle, security)?;
        let context = Arc::new(NameServerContext::new(options, sets, notifier));
        let bind = |address, set: Option<&str>| {
            let mut table = rows::table(&context, python, python_codes, set);
            table.secured_by(security).without_administration(security);
            let server = Server::bind(address, transport, Arc::new(table), context.clone())?;
            Ok::<_, NameServerError>(server.secured(security))
        };
        let server = bind(address, None)?;
        let mut set_listeners = Vec::with_capacity(listeners.len());
        let mut servers = Vec::new();
        for (set, address) in listeners {
            let server = bind(address, Some(&set))?;
            set_listeners.push((set, server.local_addr()));
            servers.push(server);
        }
        let stats = std::iter::once(&server)
            .chain(&servers)
            .map(Server::stats)
            .collect();
        if let Some(admin) = &security.admin {
            let mut table = rows::table(&context, python, python_codes, None);
            table.secured_by(security);
            let admin = Server::bind(admin.address, transport, Arc::new(table), context.clone())?;
            servers.push(admin.secured(security));
        }
        let queue_ended = registration_thread::start(&context).map_err(|cause| NameServerError::Thread {
            cause: Arc::new(cause),
        })?;
        let name_server = Arc::new(Self {
            address: server.local_addr(),
            set_listeners,
            stats,
            shutdown: Shutdown::new(),
            tasks: Tracker::new(handle.clone()),
            stopped: AtomicBool::new(false),
            pid: std::process::id(),
            queue_ended,
            python: python.cloned(),
            context,
        });
        servers.push(server);
        name_server.run(servers, scan);
        tracing::info!(address = %name_server.address, "the name server is ready");
        Ok(name_server)
    }

    /// Serves these ports, and looks for silent brokers every `scan`, until the name server stops.
    fn run(&self, servers: Vec<Server>, scan: Duration) {
        for server in servers {
            let shutdown = self.shutdown.clone();
            self.tasks.spawn(async move {
                if let Err(error) = server.run(shutdown).await {
                    tracing::error!(%error, "a port of the name server has failed");
                }
            });
        }
        let (shutdown, context) = (self.shutdown.clone(), self.context.clone());
        self.tasks.spawn(async move {
            while !shutdown.sleep_or_stop(scan).await {
                context.expire_silent();
            }
        });
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns each address set with the address on which its clients ask.
    pub fn set_listeners(&self) -> &[(String, SocketAddr)] {
        &self.set_listeners
    }

    /// Returns the settings in force.
    pub fn options(&self) -> Options {
        self.context.options().clone()
    }

    /// Returns the state of the name server.
    pub fn health(&self) -> Health {
        let (brokers, topics) = self.context.table.counts();
        Health {
            running: !self.stopped.load(Ordering::Acquire),
            brokers,
            topics,
            connections: self.stats.iter().map(|stats| stats.snapshot().connections).sum(),
        }
    }

    /// The newest brokers that ended without unregistering, oldest first; some may have come back.
    pub fn lost_brokers(&self) -> Vec<LostBroker> {
        self.context.lost_brokers()
    }

    /// Returns the counters by name.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let net: Vec<Snapshot> = self.stats.iter().map(|stats| stats.snapshot()).collect();
        let sum = |counter: fn(&Snapshot) -> u64| net.iter().map(counter).sum::<u64>();
        let own = &self.context.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("registrations", read(&own.registrations)),
            ("registrations_unchanged", read(&own.unchanged)),
            ("registrations_refused", read(&own.refused)),
            ("route_queries_unknown_topic", read(&own.unknown_topics)),
            ("brokers_unregistered", read(&own.unregistered)),
            ("brokers_lost", read(&own.lost)),
            ("brokers_expired", read(&own.expired)),
            ("min_id_notices", read(&own.notices)),
            ("table_changes_waiting", self.context.queue.len() as u64),
            ("route_cache_bytes", self.context.table.cached_bytes() as u64),
            ("connections", sum(|net| net.connections)),
            ("connections_opened", sum(|net| net.opened)),
            ("connections_refused", sum(|net| net.refused)),
            ("unfinished_requests_closed", sum(|net| net.unfinished)),
            ("requests", sum(|net| net.requests)),
            ("requests_busy", sum(|net| net.busy)),
            ("requests_unsupported", sum(|net| net.unsupported)),
            ("malformed", sum(|net| net.malformed)),
            ("stalled", sum(|net| net.stalled)),
            ("bytes_in", sum(|net| net.bytes_in)),
            ("bytes_out", sum(|net| net.bytes_out)),
        ]
    }

    /// Stops it; requests in flight may take until `deadline`. May be called again.
    pub async fn stop(&self, deadline: Duration) {
        self.stopped.store(true, Ordering::Release);
        self.shutdown.stop();
        if timeout(deadline, self.tasks.idle()).await.is_err() {
            self.shutdown.stop_now();
            self.tasks.wait(CLOSE_TIMEOUT).await;
        }
        self.context.queue.close();
        self.context.notifier.close();
        let mut ended = self.queue_ended.clone();
        drop(timeout(CLOSE_TIMEOUT, ended.wait_for(|ended| *ended)).await);
    }

    /// Returns latencies by kind of request; `python` is the requests that Python workers answered.
    pub fn latencies(&self) -> Vec<Latency> {
        let python = self.python.iter().map(|requests| requests.meter().read("python"));
        self.context.meters.read().into_iter().chain(python).collect()
    }

    /// Returns every live broker process.
    pub fn brokers(&self) -> Vec<BrokerView> {
        self.context.table.brokers(self.context.now_ms())
    }

    /// Returns the route of a topic.
    pub fn route(&self, topic: &str) -> Option<TopicRouteData> {
        self.context.table.route(topic, None)
    }

    /// Returns the milliseconds since the start.
    pub fn uptime_ms(&self) -> i64 {
        self.context.now_ms()
    }

    /// Ends the drain of a stop.
    pub fn hurry(&self) {
        self.shutdown.stop_now();
    }

    /// Changes settings while it runs: all of them, or none and returns the reason. Keys of the Python side are
    /// ignored.
    pub fn reconfigure(&self, pairs: &[(String, String)]) -> Result<(), NameServerError> {
        let before = self.options();
        let mut options = before.clone();
        for (key, value) in pairs {
            let was = options.clone();
            options.set(key, value)?;
            if options != was && !Options::is_live(key) {
                return Err(NameServerError::NotLive { key: key.clone() });
            }
        }
        options.validate()?;
        self.context.set_options(options);
        Ok(())
    }

    /// Replaces the order configuration (namespace `ORDER_TOPIC_CONFIG`); `None` if there is no such namespace.
    pub fn set_order_config(&self, order: Option<BTreeMap<String, String>>) {
        self.context.table.set_order_config(order);
    }

    /// Returns all topics, sorted.
    pub fn topics(&self) -> Vec<String> {
        self.context.table.topics()
    }

    /// Returns the topics of a cluster, sorted.
    pub fn topics_of_cluster(&self, cluster: &str) -> Vec<String> {
        self.context.table.topics_of_cluster(cluster)
    }

    /// Returns cluster and broker names, and the address of any broker.
    pub fn system_topics(&self) -> (Vec<String>, Option<String>) {
        self.context.table.system_topics()
    }

    /// Returns topics by their unit flags, sorted.
    pub fn unit_topics(&self, which: UnitTopics) -> Vec<String> {
        self.context.table.unit_topics(which)
    }

    /// Removes a topic everywhere or from one cluster.
    pub fn delete_topic(&self, topic: &str, cluster: Option<&str>) {
        self.context.table.delete_topic(topic, cluster);
    }

    /// Stops writes to a broker. Returns the number of topics that changed.
    pub fn wipe_write_perm(&self, broker: &str) -> usize {
        self.context.table.wipe_write_perm(broker)
    }

    /// Allows writes to a broker again. Returns the number of topics that changed.
    pub fn add_write_perm(&self, broker: &str) -> usize {
        self.context.table.add_write_perm(broker)
    }
}

/// A name server that is not stopped must not leak tasks.
impl Drop for NameServer {
    fn drop(&mut self) {
        // In a forked child none of its tasks run, and another thread may have held one of its locks during the fork.
        if std::process::id() == self.pid {
            self.shutdown.stop_now();
            self.context.queue.close();
            self.context.notifier.close();
        }
    }
}
