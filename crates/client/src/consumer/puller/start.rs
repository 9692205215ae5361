//! A new consumer: its parts, and the periodic work that it starts.

use crate::consumer::broker_requests::BrokerRequests;
use crate::consumer::callbacks::Callbacks;
use crate::consumer::failure_counts::Counts;
use crate::consumer::options::{PullerOptions, Start};
use crate::consumer::pop::listening::PopListener;
use crate::consumer::puller::Puller;
use crate::consumer::requests::offsets::Offsets;
use crate::consumer::requests::queue_lock::QueueLocks;
use crate::consumer::requests::send_back::SendBack;
use crate::consumer::shared::ConsumerShared;
use crate::error::ClientError;
use crate::session::connections::Role;
use crate::session::heartbeat::Heartbeat;
use crate::session::membership::{ConsumerKind, Membership};
use crate::session::name_servers::NameServers;
use crate::session::routes::Routes;
use pyrmq_remoting::body::{ConsumeFromWhere, ConsumeType, MessageModel};
use pyrmq_remoting::clock;
use pyrmq_remoting::net::{ProcessorTable, Shutdown, Tracker};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::Notify;

impl Puller {
    /// Connects to nothing yet.
    pub fn new(handle: &Handle, mut options: PullerOptions, start: Start) -> Result<Self, ClientError> {
        options.validate()?;
        options.client.group = options.client.wrap(&options.client.group).into_owned();
        let mut table = ProcessorTable::new();
        let broker_requests = BrokerRequests::register(&mut table);
        let client = options.client.connect(handle, table, Role::Consumer)?;
        let (tracker, ending) = (Tracker::new(handle.clone()), Tracker::new(handle.clone()));
        let names = NameServers::new(client.clone(), &options.client);
        let routes = Routes::new(names, None, tracker.clone(), Arc::default());
        let membership = Membership::consumer(&options.client, kind_of(&options, start));
        let client_id = membership.client_id.clone();
        let heartbeat = Heartbeat::new(client.clone(), routes.clone(), membership, &options.client);
        let (counts, counted) = (Arc::new(Counts::default()), Arc::default());
        let of_pops = || (Arc::clone(&counts), Arc::clone(&counted));
        let pops = options
            .may_pop()
            .then(|| PopListener::new(handle, &options, start, (&routes, &heartbeat), of_pops()))
            .transpose()?;
        let shared = Arc::new(ConsumerShared {
            heartbeat,
            pops,
            broker_version: AtomicI32::new(i32::MAX),
            is_pop_turn: AtomicBool::new(false),
            offsets: Offsets::new(client.clone(), routes.clone(), &options.client),
            send_back: SendBack::new(client.clone(), routes.clone(), &options.client, options.max_tries),
            locks: QueueLocks::new(client.clone(), routes.clone(), &options.client, client_id),
            counts,
            counted,
            callbacks: Callbacks::default(),
            started_ms: clock::now_ms(),
            local_offsets: Mutex::default(),
            shutdown: Shutdown::new(),
            taking: tokio::sync::Mutex::default(),
            generation: AtomicU64::new(0),
            state: Mutex::default(),
            arrived: Condvar::new(),
            gave_back: Notify::new(),
            options,
            start,
            routes,
            rebalance: Notify::new(),
            client,
            tracker,
            ending,
            // The outcome until the end sets it: the task may be dropped with its runtime, or panic.
            outcome: Mutex::new(Err(ClientError::Aborted {
                what: "the end of a consumer",
            })),
        });
        broker_requests.set_consumer(&shared);
        shared.follow_pops();
        start_tasks(&shared);
        Ok(Self { shared })
    }
}

/// What heartbeats say about the consumer.
fn kind_of(options: &PullerOptions, start: Start) -> ConsumerKind {
    ConsumerKind {
        consume_type: if options.is_listening {
            ConsumeType::Passively
        } else {
            ConsumeType::Actively
        },
        model: if options.is_broadcasting {
            MessageModel::Broadcasting
        } else {
            MessageModel::Clustering
        },
        start: match start {
            Start::First => ConsumeFromWhere::FirstOffset,
            Start::Last => ConsumeFromWhere::LastOffset,
            Start::Time(_) => ConsumeFromWhere::Timestamp,
        },
    }
}

/// Starts the periodic work of a consumer. It ends with the consumer's shutdown.
fn start_tasks(shared: &Arc<ConsumerShared>) {
    let tracker = &shared.tracker;
    let client = &shared.options.client;
    let stop = || shared.shutdown.clone();
    let routes = shared.routes.clone();
    tracker.spawn(routes.keep_fresh(client.route_interval, client.route_idle, stop()));
    let heartbeat = shared.heartbeat.clone();
    tracker.spawn(heartbeat.keep_alive(client.heartbeat_interval, stop()));
    tracker.spawn(shared.clone().keep_positions());
    tracker.spawn(shared.clone().keep_balanced());
    if shared.options.is_listening {
        tracker.spawn(shared.clone().keep_detached());
    }
    if shared.needs_locks() {
        tracker.spawn(shared.clone().keep_locked());
    }
}
