//! The broker as a whole: start, stop, health (Apache `BrokerController`).
//!
//! Start order: store, configuration files, ports, tasks, name servers. Stop order: name servers, ports (requests in
//! progress are answered), waiting pulls, delayed messages, files, store. After a stop everything acknowledged is on
//! disk.

mod health;
mod ready_requests;
mod tasks;
mod threads;

pub use health::{Descriptors, Health, Unfinished};

use crate::block_in_place::block_in_place;
use crate::context::BrokerContext;
use crate::error::BrokerError;
use crate::long_polling::LongPolling;
use crate::options::Options;
use crate::pop::hold::HeldPops;
use crate::ports;
use crate::processor::{self, AutoCreateQueue};
use crate::registration::{self, LostConnection};
use crate::retention;
use pyrmq_remoting::body::TopicConfig;
use pyrmq_remoting::names::{PERM_READ, PERM_WRITE, REVIVE_TOPIC, TIMER_TOPIC};
use pyrmq_remoting::net::{
    Client, ClientOptions, CloseReason, Events, Peer, Requests, Security, Server, Shutdown, Stats,
    SystemResolver, Tracker, UnfinishedFrames, descriptor_limit, raise_descriptor_limit,
};
use pyrmq_remoting::sync::lock;
use pyrmq_store::{Fs, RealFs};
use ready_requests::{ReadyRequests, answer_ready};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tasks::{
    check_transactions, close_store, persist_and_close, scan_clients, sweep_waiting, write_files,
    write_orders,
};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How long connections may take to end after they were cut.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    context: Arc<BrokerContext>,
    client: Client,
    name_servers: Vec<String>,
    /// Ends the servers; the background tasks end with `background`.
    serving: Shutdown,
    background: Shutdown,
    servers: Tracker,
    tasks: Tracker,
    listening: SocketAddr,
    fast: Option<SocketAddr>,
    /// Counters and unfinished frames of both ports.
    ports: Vec<(Arc<Stats>, UnfinishedFrames)>,
    // Guards the options in force and serializes changes to them.
    applied: Mutex<Options>,
    // Guards the threads that deliver delayed and timer messages until they are joined.
    deliverers: Mutex<Vec<JoinHandle<()>>>,
    stopped: AtomicBool,
}

impl Broker {
    /// Starts a broker on this runtime. Python workers that pull from `python` answer `python_codes`, except those with
    /// a native row.
    pub fn start(
        options: Options,
        handle: &Handle,
        python: Option<Arc<Requests>>,
        python_codes: &[i32],
    ) -> Result<Arc<Self>, BrokerError> {
        Self::start_on(Arc::new(RealFs), options, handle, python, python_codes)
    }

    /// Starts a broker on another file system, for tests; see [`Self::start`].
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the broker owns the queue from here on"
    )]
    pub fn start_on(
        fs: Arc<dyn Fs>,
        options: Options,
        handle: &Handle,
        python: Option<Arc<Requests>>,
        python_codes: &[i32],
    ) -> Result<Arc<Self>, BrokerError> {
        let rows = (python.as_ref(), python_codes);
        Self::start_secured(&fs, options, handle, rows, &Security::default())
    }

    /// Starts a broker that checks requests to it and signs those that it sends; see [`Self::start_on`].
    pub fn start_secured(
        fs: &Arc<dyn Fs>,
        options: Options,
        handle: &Handle,
        rows: (Option<&Arc<Requests>>, &[i32]),
        security: &Security,
    ) -> Result<Arc<Self>, BrokerError> {
        options.validate()?;
        let name_servers = options.name_servers()?;
        let limit = usize::try_from(options.pull_thread_pool_queue_capacity).unwrap_or(usize::MAX);
        let (long_polling, ready_pulls) = LongPolling::new(limit);
        let max = |limit: i32| usize::try_from(limit).unwrap_or(usize::MAX);
        let (held, ready_pops) =
            HeldPops::new(max(options.max_pop_polling_size), max(options.pop_polling_size));
        // Before the store opens, which claims a share of the descriptors.
        raise_descriptor_limit();
        let context = Arc::new(BrokerContext::open(
            options,
            fs,
            (long_polling, held),
            name_servers.len(),
        )?);
        processor::pop::advance_offsets(&context)
            .and_then(|()| context.persist_moved_back())
            .inspect_err(|_| close_store(&context))?;
        let unfinished_since = processor::pop::unfinished_since(&context);
        let tasks = Tracker::new(handle.clone());
        let ready = ReadyRequests::new(&context, ready_pulls, ready_pops);
        let listener = hook_up(&ready, &tasks, rows, security).inspect_err(|_| close_store(&context))?;
        let (main, fast, admin, client) = listener;
        context.set_name_servers(&client, &name_servers);
        let (listening, fast_address) = (main.local_addr(), fast.as_ref().map(Server::local_addr));
        let broker = Arc::new(Self {
            client,
            name_servers,
            serving: Shutdown::new(),
            background: Shutdown::new(),
            servers: Tracker::new(handle.clone()),
            tasks,
            listening,
            fast: fast_address,
            ports: (std::iter::once(&main).chain(&fast).chain(&admin))
                .map(|server| (server.stats(), server.unfinished_frames()))
                .collect(),
            applied: Mutex::new(context.options.clone()),
            deliverers: Mutex::default(),
            stopped: AtomicBool::new(false),
            context,
        });
        broker.run(std::iter::once(main).chain(fast).chain(admin), &ready);
        broker.run_pops(ready, unfinished_since);
        tracing::info!(
            broker = broker.context.options.broker_name,
            address = broker.address(),
            fast = ?broker.fast,
            "the broker is ready"
        );
        Ok(broker)
    }

    /// The address for clients, `host:port`.
    pub fn address(&self) -> String {
        self.context.address()
    }

    /// The address on which the main port listens.
    pub fn listening(&self) -> SocketAddr {
        self.listening
    }

    /// The address on which the fast port listens, if there is one.
    pub fn fast(&self) -> Option<SocketAddr> {
        self.fast
    }

    /// The settings in force.
    pub fn options(&self) -> &Options {
        &self.context.options
    }

    /// The context that all processors share, for tests and the bindings.
    pub fn context(&self) -> &Arc<BrokerContext> {
        &self.context
    }

    /// Applies those options that may change while the broker runs, and registers again, so that name servers learn of
    /// a new permission. All other options are ignored. An error changes nothing.
    pub fn reconfigure(&self, options: &Options) -> Result<(), BrokerError> {
        let context = &self.context;
        let mut applied = lock(&self.applied);
        context.store.reconfigure(&options.store)?;
        // Name servers ignore a registration unless the version of its topics is new. The permission changes first: a
        // registration that runs meanwhile must not announce the old permission under the new version.
        let before = context.live.swap_broker_permission(options.broker_permission);
        let trace_topic = || TopicConfig::new(&options.msg_trace_topic_name, 1, PERM_READ | PERM_WRITE);
        let changed = context.topics.reconfigure(
            options.auto_create_topic_enable,
            options.default_topic_queue_nums,
            options.trace_topic_enable.then(trace_topic),
            before != options.broker_permission,
        );
        if let Err(refusal) = changed {
            context.live.swap_broker_permission(before);
            context.store.reconfigure(&applied.store)?;
            return Err(BrokerError::NotChanged {
                reason: refusal.remark,
            });
        }
        context.live.set(options);
        context.announcements.changed();
        *applied = options.clone();
        Ok(())
    }

    /// The broker's state.
    pub fn health(&self) -> Health {
        let (registered, name_servers) = self.context.announcements.known_by();
        let (consumers, producers) = self.context.clients.counts();
        Health {
            store: self.context.store.health(),
            registered,
            name_servers,
            consumers,
            producers,
            waiting_pulls: self.context.long_polling.len(),
            descriptors: self.descriptors(),
            unfinished: self.unfinished(),
            running: !self.stopped.load(Ordering::Acquire),
        }
    }

    fn descriptors(&self) -> Descriptors {
        let sum = |count: fn(&Stats) -> &AtomicU64| {
            let counts = (self.ports.iter()).map(|(port, _)| count(port).load(Ordering::Relaxed));
            counts.sum()
        };
        Descriptors {
            limit: descriptor_limit(),
            reserved: self.context.store.reserved_descriptors(),
            connections: sum(|port| &port.connections),
            refused: sum(|port| &port.starved),
        }
    }

    fn unfinished(&self) -> Unfinished {
        Unfinished {
            bytes: self.ports.iter().map(|(_, frames)| frames.bytes()).sum(),
            limit: self.ports.iter().map(|(_, frames)| frames.limit()).sum(),
            closed: (self.ports.iter())
                .map(|(stats, _)| stats.unfinished.load(Ordering::Relaxed))
                .sum(),
        }
    }

    /// The response to GET_BROKER_RUNTIME_INFO (28), by key.
    pub fn stats(&self) -> Vec<(String, String)> {
        processor::runtime::info(&self.context)
    }

    /// Stops the broker. Requests in progress get until `deadline`; writing what was acknowledged may take longer.
    /// Further calls do nothing.
    pub async fn stop(&self, deadline: Duration) -> Result<(), BrokerError> {
        if self.stopped.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        registration::unregister(&self.context, &self.client, &self.name_servers).await;
        self.serving.stop();
        self.context.long_polling.close();
        self.context.pops.held.close();
        if timeout(deadline, self.servers.idle()).await.is_err() {
            self.serving.stop_now();
            self.servers.wait(CLOSE_TIMEOUT).await;
        }
        self.background.stop();
        self.tasks.wait(Duration::from_secs(5)).await;
        self.client.close().await;
        self.context.delays.stop();
        self.context.timers.stop();
        self.context.pops.revive_wakeup.stop();
        let threads = std::mem::take(&mut *lock(&self.deliverers));
        let context = self.context.clone();
        let closed = tokio::task::spawn_blocking(move || {
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("the thread of the delayed messages or of the timer had failed");
                }
            }
            persist_and_close(&context)
        })
        .await;
        closed.unwrap_or(Ok(()))?;
        tracing::info!(
            broker = self.context.options.broker_name,
            "the broker has stopped"
        );
        Ok(())
    }

    /// Cuts the drain of a stop short: requests in progress are dropped, stored messages are still written.
    pub fn hurry(&self) {
        self.serving.stop_now();
    }

    fn run(&self, ports: impl Iterator<Item = Server>, ready: &Arc<ReadyRequests>) {
        for server in ports {
            let shutdown = self.serving.clone();
            self.servers.spawn(async move {
                if let Err(error) = server.run(shutdown).await {
                    tracing::error!(%error, "a port of the broker has failed");
                }
            });
        }
        self.tasks
            .spawn(ready.clone().answer_pulls(self.background.clone()));
        let tasks = self.tasks.clone();
        self.tasks
            .spawn(sweep_waiting(ready.clone(), tasks, self.background.clone()));
        self.tasks
            .spawn(scan_clients(self.context.clone(), self.background.clone()));
        self.tasks
            .spawn(write_files(self.context.clone(), self.background.clone()));
        self.tasks
            .spawn(write_orders(self.context.clone(), self.background.clone()));
        self.tasks
            .spawn(check_transactions(self.context.clone(), self.background.clone()));
        self.tasks
            .spawn(retention::watch(self.context.clone(), self.background.clone()));
        for (at, address) in self.name_servers.iter().enumerate() {
            self.tasks.spawn(registration::keep_registered(
                self.context.clone(),
                self.client.clone(),
                at,
                address.clone(),
                self.serving.clone(),
            ));
        }
        self.start_thread("pyrmq-delay", |context| context.delays.run(&context.store));
        self.start_thread("pyrmq-timer", |context| context.timers.run(&context.store));
    }
}

/// A broker that was dropped without a stop must not leave tasks behind; the store closes itself when the last of them
/// ends.
impl Drop for Broker {
    fn drop(&mut self) {
        self.serving.stop_now();
        self.background.stop_now();
        self.context.delays.stop();
        self.context.timers.stop();
        self.context.pops.revive_wakeup.stop();
    }
}

/// Connects store, tables, ports and client.
fn hook_up(
    ready: &Arc<ReadyRequests>,
    tasks: &Tracker,
    (python, python_codes): (Option<&Arc<Requests>>, &[i32]),
    security: &Security,
) -> Result<(Server, Option<Server>, Option<Server>, Client), BrokerError> {
    let (context, pull) = (&ready.context, &ready.pull);
    let waiting = Arc::downgrade(context);
    context.store.on_arrival(Arc::new(move |arrival| {
        if let Some(context) = waiting.upgrade() {
            if arrival.topic == TIMER_TOPIC {
                context.timers.arrived();
            } else if arrival.topic.starts_with(REVIVE_TOPIC) {
                context.pops.revive_wakeup.notify();
            }
            context.pops.held.arrived(arrival);
            context.long_polling.arrived(arrival);
        }
    }));
    // A runtime worker that waits for the disk polls no socket, and a sleeping worker does not notice. A new task wakes
    // one, which polls before it sleeps again. The task answers the requests that the waiting worker has left.
    let (waker, left) = (tasks.clone(), Arc::downgrade(ready));
    context
        .store
        .on_slow_flush(Arc::new(move || waker.spawn(answer_ready(left.clone()))));
    context.store.set_block_in_place(Arc::new(block_in_place));
    context.secured_by(security);
    let auto_create = AutoCreateQueue::new(context, tasks);
    let table = |fast, is_admin: bool| {
        let mut table = processor::table((context, pull), tasks, &auto_create, fast, python, python_codes);
        table.secured_by(security).logged_by(&context.requests);
        if !is_admin {
            table.without_administration(security);
        }
        Arc::new(table)
    };
    let (main_table, fast_table) = (table(false, false), table(true, false));
    let events: Arc<dyn Events> = Arc::new(Connections(context.clone()));
    let ports = if security.admin.is_some() { 3 } else { 2 };
    let transport = ports::transport(context.store.memory_limit(), ports);
    let common = (&events, security, transport);
    let (main, fast) = ports::listen(&context.options, &main_table, &fast_table, common)?;
    let admin = match &security.admin {
        Some(admin) => Some(ports::bind(admin.address, &table(false, true), common)?),
        None => None,
    };
    let (host, text) = ports::advertised(&context.options, main.local_addr().port())?;
    context.set_address(host, text);
    let lost = Arc::new(LostConnection(context.clone()));
    let outbound = (Arc::new(SystemResolver) as _, security.clone());
    let client = Client::secured(
        tasks.handle(),
        ClientOptions::default(),
        main_table,
        lost,
        outbound,
    )?;
    Ok((main, fast, admin, client))
}

/// Removes the client of a lost connection from its groups at once.
struct Connections(Arc<BrokerContext>);

impl Events for Connections {
    fn reserved_descriptors(&self) -> usize {
        self.0.store.reserved_descriptors()
    }

    fn closed(&self, peer: &Peer, _reason: &CloseReason) {
        processor::client::forget(&self.0, peer);
    }
}
