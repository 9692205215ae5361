//! What every processor shares: the store, the tables, and the rules that need several of them.

mod admit;

use crate::announcements::Announcements;
use crate::delivery::delivered::Delivered;
use crate::delivery::schedule::Delays;
use crate::delivery::timer::Timers;
use crate::delivery::transactions::Transactions;
use crate::error::BrokerError;
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
use crate::tables::topics::{Topic, Topics};
use pyrmq_remoting::body::{ConsumerOffsetSerializeWrapper, OffsetTable};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::{NotifyConsumerIdsChangedRequestHeader, SharedFields};
use pyrmq_remoting::message::id::UniqueIds;
use pyrmq_remoting::names::{self, HALF_TOPIC, OP_HALF_TOPIC};
use pyrmq_remoting::net::{Client, Peer, Table, WeakClient};
use pyrmq_remoting::sync::lock;
use pyrmq_remoting::{Command, clock};
use pyrmq_store::{FlushDiskType, Fs, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Apache compares with 40 % of the machine's memory; a fixed share of an ordinary machine makes the answer the same
/// everywhere.
const YOUNG_BYTES: i64 = 4 << 30;

/// Tells the broker's unique ids from those of a producer in the same process.
const BROKER_LOADER: u32 = 0xB20C_E200;

/// Everything that a processor may need.
#[derive(Debug)]
pub struct State {
    /// The settings as they were at the start.
    pub options: Options,
    /// Those of them that may have changed since.
    pub live: LiveOptions,
    /// The message log.
    pub store: Arc<Store>,
    /// The topics.
    pub topics: Topics,
    /// The consumer groups.
    pub groups: Groups,
    /// Their offsets.
    pub offsets: Offsets,
    /// Who is connected.
    pub clients: Clients,
    /// Queue locks of orderly consumers.
    pub locks: Locks,
    /// Pulls that wait.
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
    /// What name servers are told.
    pub announcements: Announcements,
    /// Whether each request's user and rights are checked; known before the ports open.
    checks_rights: AtomicBool,
    /// Known once the port is open.
    address: OnceLock<(SocketAddr, String)>,
    /// Distance from the log's end within which a queue counts as young.
    pub(crate) young_bytes: i64,
    /// What is said of tracing, with `traceOn` and without.
    traced: Said,
    untraced: Said,
    /// How name servers are asked; known once the ports are open.
    asks: OnceLock<(WeakClient, Vec<String>)>,
    unique_ids: UniqueIds,
    next_queue: AtomicU32,
    // Guards that an older text is not written over a newer one.
    offsets_file: Mutex<ConfigFile>,
    unknown_offset_fields: ConsumerOffsetSerializeWrapper,
}

/// What this broker says of itself to every message and sender, made once.
#[derive(Debug)]
pub(crate) struct Said {
    /// The properties that every stored message gets.
    pub(crate) properties: String,
    /// What every answer to a send says besides where the message went.
    pub(crate) answer: SharedFields,
}

impl Said {
    fn new(options: &Options, trace_on: bool) -> Result<Self, BrokerError> {
        let region = &options.region_id;
        let answer = SharedFields::new(|head| {
            head.text("MSG_REGION", region);
            head.truth("TRACE_ON", trace_on);
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

/// What the files below `config/` hold.
struct Tables {
    topics: Topics,
    groups: Groups,
    offsets: Offsets,
    unknown_offset_fields: ConsumerOffsetSerializeWrapper,
    offsets_file: ConfigFile,
    delays: Delays,
}

impl Tables {
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
        Ok(Self {
            topics: Topics::load(options, file("topics.json"))?,
            groups: Groups::load(file("subscriptionGroup.json"))?,
            offsets,
            unknown_offset_fields: read,
            offsets_file,
            delays: Delays::load(delay_levels, file("delayOffset.json"), delivered)?,
        })
    }
}

impl State {
    /// Opens the store and reads the files below `config/`.
    pub(crate) fn open(
        options: Options,
        fs: &Arc<dyn Fs>,
        (long_polling, held): (LongPolling, HeldPops),
        name_servers: usize,
    ) -> Result<Self, BrokerError> {
        // Part of made ids only: any address tells the makers of ids apart well enough.
        let ip = options
            .broker_ip1
            .parse()
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let delay_levels = options.delay_levels()?;
        let (traced, untraced) = (Said::new(&options, true)?, Said::new(&options, false)?);
        let config = options.store.root.join("config");
        let file = |name: &str| ConfigFile::new(fs.clone(), config.join(name));
        // The store first: its lock says whether the directory is ours. Where a later step fails, its drop closes it.
        let mut store_options = options.store.clone();
        store_options.delay_levels_ms.clone_from(&delay_levels);
        let store = Store::open(store_options, fs.clone())?;
        let delivered = Delivered::open(fs.clone(), &config, &store)?;
        let tables = Tables::load(&options, delay_levels, delivered, file)?;
        let timers = Timers::open(&store, fs)?;
        let done = |topic: &str| tables.offsets.get(names::TRANSACTION_GROUP, topic, 0);
        let transactions = Transactions::load(&store, done(HALF_TOPIC), done(OP_HALF_TOPIC))?;
        Ok(Self {
            transactions,
            topics: tables.topics,
            groups: tables.groups,
            offsets: tables.offsets,
            clients: Clients::default(),
            locks: Locks::new(options.lock_max_live_time),
            long_polling,
            pops: Pops::load(&options, held, file)?,
            delays: tables.delays,
            timers,
            stats: Stats::new(clock::now_ms()),
            announcements: Announcements::new(name_servers),
            checks_rights: AtomicBool::new(false),
            address: OnceLock::new(),
            asks: OnceLock::new(),
            young_bytes: YOUNG_BYTES,
            traced,
            untraced,
            unique_ids: UniqueIds::new(ip, std::process::id(), BROKER_LOADER),
            next_queue: AtomicU32::new(0),
            offsets_file: Mutex::new(tables.offsets_file),
            unknown_offset_fields: tables.unknown_offset_fields,
            live: LiveOptions::new(&options),
            options,
            store,
        })
    }

    /// The address that clients are told and that records carry.
    pub fn store_host(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        self.address.get().map_or(unknown, |(host, _)| *host)
    }

    /// The address that clients are told, as `host:port`.
    pub fn address(&self) -> String {
        self.address
            .get()
            .map(|(_, text)| text.clone())
            .unwrap_or_default()
    }

    /// What messages and senders are told, by the `traceOn` in force.
    pub(crate) fn said(&self) -> &Said {
        if self.live.trace_on() {
            &self.traced
        } else {
            &self.untraced
        }
    }

    /// Sends are answered after the disk has them.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.store.live().flush() == FlushDiskType::Sync
    }

    /// A unique id for a message whose sender gave none.
    pub(crate) fn unique_key(&self) -> String {
        self.unique_ids.next(clock::now_ms()).to_string()
    }

    /// Set once, when the port is open, before anything is served.
    pub(crate) fn check_rights(&self) {
        self.checks_rights.store(true, Ordering::Relaxed);
    }

    pub(crate) fn checks_rights(&self) -> bool {
        self.checks_rights.load(Ordering::Relaxed)
    }

    pub(crate) fn set_address(&self, host: SocketAddr, text: String) {
        if self.address.set((host, text)).is_err() {
            tracing::error!(%host, "the broker's address was set twice");
        }
    }

    /// Set once, before anything is served.
    pub(crate) fn set_name_servers(&self, client: &Client, addresses: &[String]) {
        let asks = (client.downgrade(), addresses.to_vec());
        if self.asks.set(asks).is_err() {
            tracing::error!("the name servers of the broker were set twice");
        }
    }

    /// A client and the name server to ask, one after the other; `None` for a broker that stands alone.
    pub(crate) fn name_server(&self) -> Option<(Client, String)> {
        let (client, addresses) = self.asks.get()?;
        let turn = usize::try_from(self.next_queue.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
        let address = addresses.get(turn.checked_rem(addresses.len())?)?;
        Some((client.join(Arc::new(Table::new()))?, address.clone()))
    }

    /// Commits an offset, unless its topic was deleted since the caller looked: a topic of the same name must not begin
    /// with offsets of this one.
    pub fn commit(&self, group: &str, topic: &Topic, queue_id: i32, offset: i64) {
        let name = &topic.topic_name;
        self.offsets.commit(group, name, queue_id, offset);
        // A deletion takes the topic out before its offsets, so one of the two sees the other.
        if !self.topics.get(name).is_some_and(|now| now.is_same(topic)) {
            self.offsets.remove(group, name, queue_id);
        }
    }

    /// Samples the counters of every topic for the spans whose time has come.
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

    /// All offsets of groups, as the file and the answer to 43 have them.
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
            // A running 5.x broker does not read it again.
            pull_offset_table: None,
            unknown_members: rest.unknown_members,
        }
    }

    /// Writes the consumer offsets if any changed, after the messages that they speak of are durable. Else offsets
    /// could point behind messages that a power loss took: groups would pass the messages that take their places, and a
    /// transaction whose half was stored again would never be asked about.
    pub(crate) fn persist_offsets(&self) -> Result<(), StoreError> {
        let file = lock(&self.offsets_file);
        if !self.offsets.take_changed() {
            return Ok(());
        }
        let body = self.offsets_body();
        // A log that has failed cannot be made durable any more, and what readers still pass is kept all the same.
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

    /// When the consumer offsets were last written, ms; 0 if they never were.
    pub(crate) fn offsets_written_ms(&self) -> i64 {
        lock(&self.offsets_file).modified_ms()
    }

    /// When the oldest message in the log was stored; -1 without any (Apache `getEarliestMessageTime`).
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

    /// Writes what ordered groups have, if any of it changed.
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

/// Where a message was born. An IPv4 peer of a port that speaks IPv6 too keeps its IPv4 form.
pub(crate) fn born_host(peer: &Peer) -> SocketAddr {
    let remote = peer.remote();
    SocketAddr::new(remote.ip().to_canonical(), remote.port())
}
