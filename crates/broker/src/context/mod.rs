//! What every processor shares: the store, the tables, and the rules that need several of them.

mod admit;
mod blocking;
mod move_back;
mod rights;

pub(crate) use admit::NewGroup;
pub(crate) use blocking::{BlockingError, on_blocking_thread, serve_on_blocking_thread, wait_for_permit};

use crate::announcements::Announcements;
use crate::delivery::delivered::Delivered;
use crate::delivery::schedule::Delays;
use crate::delivery::timer::Timers;
use crate::delivery::transactions::Transactions;
use crate::error::{BrokerError, Refusal};
use crate::long_polling::LongPolling;
use crate::message::properties;
use crate::options::LiveOptions;
use crate::options::Options;
use crate::pop::Pops;
use crate::pop::hold::HeldPops;
use crate::stats::Stats;
use crate::stats::windows::Span;
use crate::tables::clients::Clients;
use crate::tables::config_file::ConfigFile;
use crate::tables::groups::Groups;
use crate::tables::locks::Locks;
use crate::tables::offsets::Offsets;
use crate::tables::topic_creators::TopicCreators;
use crate::tables::topics::{Topic, Topics};
use pyrmq_remoting::body::{ConsumerOffsetSerializeWrapper, OffsetTable};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::{NotifyConsumerIdsChangedRequestHeader, SharedFields};
use pyrmq_remoting::message::id::UniqueIds;
use pyrmq_remoting::names::{self, HALF_TOPIC, OP_HALF_TOPIC};
use pyrmq_remoting::net::{
    AuditLog, Client, Peer, Reply, RequestCheck, RequestLog, RequestNames, WeakClient,
};
use pyrmq_remoting::sync::lock;
use pyrmq_remoting::{Command, clock};
use pyrmq_store::{FlushDiskType, Fs, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// New groups read a queue from its start while the log is at most this long. Apache compares with 40 % of the
/// machine's memory; a fixed number makes the result the same everywhere.
const NEW_GROUP_FROM_START_BYTES: i64 = 4 << 30;

/// Distinguishes the broker's unique ids from those of a producer in the same process.
const BROKER_LOADER: u32 = 0xB20C_E200;

/// Everything that processors share.
#[derive(Debug)]
pub struct BrokerContext {
    /// The settings at the start.
    pub options: Options,
    /// The settings that may change while the broker runs, as they are now.
    pub live: LiveOptions,
    /// The message log.
    pub store: Arc<Store>,
    /// The topics.
    pub topics: Topics,
    /// The user that created each topic.
    creators: TopicCreators,
    /// The consumer groups.
    pub groups: Groups,
    /// The groups' offsets.
    pub offsets: Offsets,
    /// The connected clients.
    pub clients: Clients,
    /// Queue locks of orderly consumers.
    pub locks: Locks,
    /// Pulls that wait for messages.
    pub long_polling: LongPolling,
    /// Messages that groups pop.
    pub pops: Pops,
    /// Delayed messages.
    pub delays: Delays,
    /// Timer messages.
    pub timers: Timers,
    /// Open transactions.
    pub(crate) transactions: Transactions,
    /// Counters.
    pub stats: Stats,
    /// What name servers must learn.
    pub announcements: Announcements,
    /// What checks the user and rights of each request; set before the ports open, and only if they are checked.
    check: OnceLock<Arc<dyn RequestCheck>>,
    /// Where refusals are written that a row decides about; set before the ports open.
    audit: OnceLock<Arc<AuditLog>>,
    /// Where slow and refused requests are written.
    pub(crate) requests: Arc<RequestLog>,
    /// Set once the port is open.
    address: OnceLock<(SocketAddr, String)>,
    /// New groups read a queue from its start while the log is at most this long, in bytes.
    pub(crate) new_group_from_start_bytes: i64,
    /// What messages and send responses say with `traceOn`; `untraced` applies without it.
    traced: BrokerFields,
    untraced: BrokerFields,
    /// The client and the name servers that it asks; set once the ports are open.
    name_servers: OnceLock<(WeakClient, Vec<String>)>,
    unique_ids: UniqueIds,
    next_queue: AtomicU32,
    // Guards the file, so that an older version never overwrites a newer one.
    offsets_file: Mutex<ConfigFile>,
    unknown_offset_fields: ConsumerOffsetSerializeWrapper,
    /// Whether the start found progress that was ahead of the log.
    has_moved_back: bool,
}

/// What this broker adds to each message and each response to a send, encoded once.
#[derive(Debug)]
pub(crate) struct BrokerFields {
    /// The properties that every stored message gets.
    pub(crate) properties: String,
    /// The fields that every response to a send has in addition to the message's position.
    pub(crate) answer: SharedFields,
}

impl BrokerFields {
    /// The fields with `traceOn`, and those without it.
    fn both(options: &Options) -> Result<(Self, Self), BrokerError> {
        Ok((Self::new(options, true)?, Self::new(options, false)?))
    }

    fn new(options: &Options, trace_on: bool) -> Result<Self, BrokerError> {
        let region = &options.region_id;
        let answer = SharedFields::new(|head| {
            head.text(properties::names::MSG_REGION, region);
            head.truth(properties::names::TRACE_ON, trace_on);
        })
        .map_err(|error| BrokerError::Option {
            key: "regionId",
            value: region.clone(),
            range: error.to_string(),
        })?;
        Ok(Self {
            properties: properties::brokers_own(region, trace_on, &options.broker_cluster_name),
            answer,
        })
    }
}

/// The content of the files below `config/`.
struct ConfigTables {
    topics: Topics,
    creators: TopicCreators,
    groups: Groups,
    offsets: Offsets,
    unknown_offset_fields: ConsumerOffsetSerializeWrapper,
    offsets_file: ConfigFile,
    delays: Delays,
}

impl ConfigTables {
    fn load(
        options: &Options,
        delay_levels: Vec<i64>,
        delivered: (Delivered, BTreeMap<i32, i64>),
        file: impl Fn(&str) -> ConfigFile,
    ) -> Result<Self, BrokerError> {
        let offsets = Offsets::default();
        let offsets_file = file("consumerOffset.json");
        let mut read: ConsumerOffsetSerializeWrapper = offsets_file.read("offsetTable")?.unwrap_or_default();
        offsets.load(std::mem::take(&mut read.offset_table.rows));
        offsets.load_cutoffs(read.pop_cutoffs.take().unwrap_or_default());
        Ok(Self {
            topics: Topics::load(options, file("topics.json"))?,
            creators: TopicCreators::load(file("topicMakers.json"))?,
            groups: Groups::load(file("subscriptionGroup.json"))?,
            offsets,
            unknown_offset_fields: read,
            offsets_file,
            delays: Delays::load(delay_levels, file("delayOffset.json"), delivered)?,
        })
    }
}

impl BrokerContext {
    /// Opens the store and reads the files below `config/`.
    pub(crate) fn open(
        options: Options,
        fs: &Arc<dyn Fs>,
        (long_polling, held): (LongPolling, HeldPops),
        name_servers: usize,
    ) -> Result<Self, BrokerError> {
        // Only generated ids contain it, and any address distinguishes their creators well enough.
        let ip = options.broker_ip1.parse();
        let ip = ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let delay_levels = options.delay_levels()?;
        let (traced, untraced) = BrokerFields::both(&options)?;
        let config = options.store.root.join("config");
        let file = |name: &str| ConfigFile::new(fs.clone(), config.join(name));
        // The store comes first: its lock proves that the directory is ours. If a later step fails, dropping it closes
        // it.
        let mut store_options = options.store.clone();
        store_options.delay_levels_ms.clone_from(&delay_levels);
        let store = Store::open(store_options, fs.clone())?;
        // A start that fails before it has moved offsets back must leave that to the next one.
        store.set_unclean(store.health().recovered_from_crash);
        let delivered = Delivered::open(fs.clone(), &config, &store)?;
        let tables = ConfigTables::load(&options, delay_levels, delivered, file)?;
        let pops = Pops::load(&options, held, file)?;
        let has_moved_back = move_back::move_back(&store, &tables.offsets, &tables.delays, &pops.orders);
        let timers = Timers::open(&store, fs)?;
        let done = |topic: &str| tables.offsets.get(names::TRANSACTION_GROUP, topic, 0);
        let transactions = Transactions::load(&store, done(HALF_TOPIC), done(OP_HALF_TOPIC))?;
        Ok(Self {
            transactions,
            topics: tables.topics,
            creators: tables.creators,
            groups: tables.groups,
            offsets: tables.offsets,
            clients: Clients::default(),
            locks: Locks::new(options.lock_max_live_time),
            long_polling,
            pops,
            delays: tables.delays,
            timers,
            stats: Stats::new(clock::now_ms()),
            announcements: Announcements::new(name_servers),
            check: OnceLock::new(),
            audit: OnceLock::new(),
            requests: Arc::default(),
            address: OnceLock::new(),
            name_servers: OnceLock::new(),
            new_group_from_start_bytes: NEW_GROUP_FROM_START_BYTES,
            traced,
            untraced,
            unique_ids: UniqueIds::new(ip, std::process::id(), BROKER_LOADER),
            next_queue: AtomicU32::new(0),
            offsets_file: Mutex::new(tables.offsets_file),
            unknown_offset_fields: tables.unknown_offset_fields,
            has_moved_back,
            live: LiveOptions::new(&options),
            options,
            store,
        })
    }

    /// Answers a request that is refused, and logs it.
    pub(crate) fn refuse<'a>(&self, request: impl Into<RequestNames<'a>>, reply: Reply, refusal: Refusal) {
        refusal.answer(request, reply, &self.requests);
    }

    /// The address that clients get and that records contain.
    pub fn store_host(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        self.address.get().map_or(unknown, |(host, _)| *host)
    }

    /// The address that clients get, `host:port`.
    pub fn address(&self) -> String {
        self.address
            .get()
            .map(|(_, text)| text.clone())
            .unwrap_or_default()
    }

    /// What messages and senders get, according to the current `traceOn`.
    pub(crate) fn broker_fields(&self) -> &BrokerFields {
        if self.live.trace_on() {
            &self.traced
        } else {
            &self.untraced
        }
    }

    /// Whether sends are answered only once the disk has their messages.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.store.live().flush() == FlushDiskType::Sync
    }

    /// A unique id for a message that was sent without one.
    pub(crate) fn unique_key(&self) -> String {
        self.unique_ids.next(clock::now_ms()).to_string()
    }

    pub(crate) fn set_address(&self, host: SocketAddr, text: String) {
        if self.address.set((host, text)).is_err() {
            tracing::error!(%host, "the broker's address was set twice");
        }
    }

    /// Called once, before any request is served.
    pub(crate) fn set_name_servers(&self, client: &Client, addresses: &[String]) {
        let name_servers = (client.downgrade(), addresses.to_vec());
        if self.name_servers.set(name_servers).is_err() {
            tracing::error!("the name servers of the broker were set twice");
        }
    }

    /// A client and the name servers to ask, each call in another order; `None` if no name server is configured.
    pub(crate) fn name_servers(&self) -> Option<(Client, Vec<String>)> {
        let (client, addresses) = self.name_servers.get()?;
        let turn = usize::try_from(self.next_queue.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
        let (last, first) = addresses.split_at_checked(turn.checked_rem(addresses.len())?)?;
        Some((client.join(Arc::default())?, [first, last].concat()))
    }

    /// Commits an offset, unless the topic was deleted since the caller looked it up: a new topic of the same name must
    /// not begin with the old one's offsets.
    pub fn commit(&self, group: &str, topic: &Topic, queue_id: i32, offset: i64) {
        let name = &topic.topic_name;
        self.offsets.commit(group, name, queue_id, offset);
        // A deletion removes the topic before its offsets, so either it removes this commit or the check below fails.
        if !self.topics.get(name).is_some_and(|now| now.is_same(topic)) {
            self.offsets.remove(group, name, queue_id);
        }
    }

    /// Samples the counters of every topic for the spans that are due.
    pub(crate) fn sample_traffic(&self, now_ms: i64, due: &[Span]) {
        if due.is_empty() {
            return;
        }
        self.stats.sample_windows(now_ms, due);
        let (topics, _) = self.topics.all();
        for topic in topics {
            topic.traffic.sample(now_ms, due);
        }
    }

    /// All offsets of groups, in the form of the file and of the response to 43.
    pub(crate) fn offsets_body(&self) -> ConsumerOffsetSerializeWrapper {
        let rows = self.offsets.rows();
        let mut topics_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for key in rows.keys() {
            if let Some((topic, group)) = key.split_once('@') {
                let topics = topics_of.entry(group.to_owned()).or_default();
                topics.insert(topic.to_owned());
            }
        }
        let rest = self.unknown_offset_fields.clone();
        let version = rest.data_version.unwrap_or_default();
        ConsumerOffsetSerializeWrapper {
            data_version: Some(version.next(clock::now_ms(), version.state_version)),
            group_topic_map: Some(topics_of),
            offset_table: OffsetTable {
                rows,
                ..rest.offset_table
            },
            // Empty, since a running 5.x broker never reads it back.
            pull_offset_table: None,
            pop_cutoffs: None,
            unknown_members: rest.unknown_members,
        }
    }

    /// Writes the consumer offsets if any changed, after the messages that they refer to are durable. Otherwise offsets
    /// could point past messages that a power loss took: groups would skip the messages that take their places, and a
    /// transaction whose half was stored again would never be checked.
    pub(crate) fn persist_offsets(&self) -> Result<(), StoreError> {
        let file = lock(&self.offsets_file);
        if !self.offsets.take_changed() {
            return Ok(());
        }
        let cutoffs = self.offsets.cutoff_rows();
        let body = ConsumerOffsetSerializeWrapper {
            pop_cutoffs: (!cutoffs.is_empty()).then_some(cutoffs),
            ..self.offsets_body()
        };
        // A failed log cannot become durable any more, but the offsets that readers still commit are worth keeping.
        let flushed = if self.store.has_failed() {
            Ok(())
        } else {
            self.store.flush()
        };
        let written = flushed.and_then(|()| file.save(&body));
        if written.is_err() {
            self.offsets.set_changed();
        }
        written
    }

    /// Marks all progress as unwritten: a write that panicked may have left it marked as written.
    pub(crate) fn mark_progress_unwritten(&self) {
        self.offsets.set_changed();
        self.pops.orders.set_changed();
        self.delays.set_changed();
    }

    /// When the consumer offsets were last written, in ms; 0 if never.
    pub(crate) fn offsets_written_ms(&self) -> i64 {
        lock(&self.offsets_file).modified_ms()
    }

    /// When the oldest message in the log was stored, in ms; -1 without messages (Apache `getEarliestMessageTime`).
    pub fn earliest_ms(&self) -> i64 {
        let health = self.store.health();
        let min = health.min_physical_offset;
        if min >= health.max_physical_offset {
            return -1;
        }
        let record = self.store.record_at(min).ok().flatten();
        record
            .and_then(|record| pyrmq_remoting::message::record::store_timestamp_of(&record))
            .unwrap_or(-1)
    }

    /// Writes the state of ordered groups if any of it changed.
    pub(crate) fn persist_orders(&self) -> Result<(), StoreError> {
        let exists =
            |topic: &str, group: &str| self.topics.get(topic).is_some() && self.groups.get(group).is_some();
        self.pops.orders.persist(exists)
    }

    /// Tells the members of a consumer group that the membership changed (40).
    pub(crate) fn notify(&self, group: &str, members: &[Peer]) {
        if !self.live.notify_consumer_ids_changed_enable() || members.is_empty() {
            return;
        }
        if self
            .groups
            .get(group)
            .is_some_and(|config| !config.notify_consumer_ids_changed_enable)
        {
            return;
        }
        for member in members {
            let mut notice = Command::request(request::NOTIFY_CONSUMER_IDS_CHANGED).with_header(
                &NotifyConsumerIdsChangedRequestHeader {
                    consumer_group: group,
                },
            );
            notice.flag |= pyrmq_remoting::command::FLAG_ONEWAY;
            member.send(notice);
        }
    }
}

/// The address that sent a message. An IPv4 peer of a port that also speaks IPv6 keeps its IPv4 form.
pub(crate) fn born_host(peer: &Peer) -> SocketAddr {
    let remote = peer.remote();
    SocketAddr::new(remote.ip().to_canonical(), remote.port())
}
