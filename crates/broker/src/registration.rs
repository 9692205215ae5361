//! Registering with the name servers (Apache `BrokerOuterAPI.registerBrokerAll`).
//!
//! Each name server has its own task, so an unreachable one does not delay the others. A task registers at start, every
//! `registerNameServerPeriod`, at once after a change of topics, and soon after its connection was lost. After changing
//! a topic, a caller can wait until every reachable name server knows it.

use crate::announcements::announced;
use crate::context::BrokerContext;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, RegisterBrokerBody};
use pyrmq_remoting::clock;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::{
    ADVERTISED_ADDRESSES, RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader,
};
use pyrmq_remoting::message::record::body_crc;
use pyrmq_remoting::names::{PERM_READ, PERM_WRITE};
use pyrmq_remoting::net::{Client, CloseReason, Events, Peer, Shutdown};
use std::sync::Arc;
use std::time::Duration;

/// Half of the first pause after a failed registration. Each further failure doubles the pause, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Maximum pause: a name server that comes back knows its brokers well within a second.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// How long a stop waits for a name server (Apache `unregisterBroker`).
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(3);

/// Registers again when a connection to a name server was lost.
#[derive(Debug)]
pub struct LostConnection(pub Arc<BrokerContext>);

impl Events for LostConnection {
    fn closed(&self, _peer: &Peer, _reason: &CloseReason) {
        self.0.announcements.lost.send_modify(|count| *count += 1);
    }
}

/// Keeps one name server informed until the broker stops.
pub(crate) async fn keep_registered(
    context: Arc<BrokerContext>,
    client: Client,
    at: usize,
    address: String,
    shutdown: Shutdown,
) {
    let announcements = &context.announcements;
    let mut changes = announcements.changes.subscribe();
    let mut lost = announcements.lost.subscribe();
    let mut pause = FIRST_PAUSE;
    let mut away = false;
    let mut first = true;
    loop {
        let change = *changes.borrow_and_update();
        lost.mark_unchanged();
        let period = match register(&context, &client, &address).await {
            Ok(()) => {
                if away {
                    tracing::info!(name_server = address, "registered, the name server is back");
                }
                (away, pause) = (false, FIRST_PAUSE);
                announcements.acknowledge(at, Some(change));
                Duration::from_millis(
                    u64::try_from(context.options.register_name_server_period).unwrap_or(30_000),
                )
            }
            Err(reason) => {
                if !away {
                    tracing::warn!(name_server = address, %reason, "cannot register, will keep trying");
                }
                away = true;
                announcements.acknowledge(at, None);
                pause = (pause * 2).min(MAX_PAUSE);
                pause
            }
        };
        if std::mem::take(&mut first) {
            announcements.attempted.send_modify(|attempted| *attempted += 1);
        }
        tokio::select! {
            () = shutdown.stopped() => return,
            () = tokio::time::sleep(period) => {}
            // A change does not help to reach a name server that is away.
            Ok(()) = changes.changed(), if !away => {}
            Ok(()) = lost.changed(), if !away => {}
        }
    }
}

async fn register(context: &BrokerContext, client: &Client, address: &str) -> Result<(), String> {
    let limit =
        Duration::from_millis(u64::try_from(context.options.register_broker_timeout_mills).unwrap_or(24_000));
    let answer = client.request(address, register_command(context), limit).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if answer.code == response::SUCCESS {
        return Ok(());
    }
    Err(format!(
        "code {}: {}",
        answer.code,
        answer.remark.as_deref().unwrap_or("no remark")
    ))
}

/// The registration request (103).
pub(crate) fn register_command(context: &BrokerContext) -> Command {
    let options = &context.options;
    let (topics, version) = context.topics.all();
    let mut broker_bits = context.live.broker_permission() | !(PERM_READ | PERM_WRITE);
    let mut version = version;
    if context.store.has_failed() {
        // A failed log accepts nothing more, so producers must go elsewhere. Name servers notice only a new version.
        broker_bits &= !PERM_WRITE;
        version = version.next(clock::now_ms(), version.state_version);
    }
    let body = RegisterBrokerBody {
        topic_config_serialize_wrapper: announced(&topics, version, broker_bits),
        ..RegisterBrokerBody::default()
    }
    .encode();
    let address = context.address();
    let command = Command::request(request::REGISTER_BROKER)
        .with_header(&RegisterBrokerRequestHeader {
            broker_name: &options.broker_name,
            broker_addr: &address,
            cluster_name: &options.broker_cluster_name,
            broker_id: options.broker_id,
            compressed: false,
            body_crc32: i32::try_from(body_crc(&body)).ok(),
            ..RegisterBrokerRequestHeader::default()
        })
        .with_body(body);
    match &*options.advertised_addresses {
        "" => command,
        sets => command.with_field(ADVERTISED_ADDRESSES, sets),
    }
}

/// Sends 104 to every name server that knows this broker. One that does not respond notices the lost connection.
pub(crate) async fn unregister(context: &BrokerContext, client: &Client, name_servers: &[String]) {
    let options = &context.options;
    let address = context.address();
    let acknowledged = context.announcements.acknowledged.borrow().clone();
    let knowing = name_servers
        .iter()
        .zip(acknowledged)
        .filter(|(_, known)| known.is_some());
    for (name_server, _) in knowing {
        let command =
            Command::request(request::UNREGISTER_BROKER).with_header(&UnRegisterBrokerRequestHeader {
                broker_name: &options.broker_name,
                broker_addr: &address,
                cluster_name: &options.broker_cluster_name,
                broker_id: options.broker_id,
            });
        if let Err(error) = client.request(name_server, command, UNREGISTER_TIMEOUT).await {
            tracing::debug!(name_server, %error, "could not unregister");
        }
    }
}
