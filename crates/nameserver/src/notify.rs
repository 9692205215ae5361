//! Notices to brokers that the lowest id of their name changed: request 905, oneway (Apache
//! `RouteInfoManager.notifyMinBrokerIdChanged`). Sent only with `notifyMinBrokerIdChanged`; connections open when
//! needed.

use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::NotifyMinBrokerIdChangeRequestHeader;
use pyrmq_remoting::net::{Client, ClientOptions, NetError, ProcessorTable, Security, SystemResolver};
use pyrmq_routing::table::MinIdChange;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Connections to brokers.
#[derive(Debug)]
pub(crate) struct Notifier {
    client: Client,
}

impl Notifier {
    pub(crate) fn new(handle: &Handle, security: &Security) -> Result<Self, NetError> {
        let (table, way) = (
            Arc::new(ProcessorTable::new()),
            (Arc::new(SystemResolver) as _, security.clone()),
        );
        let client = Client::secured(handle, ClientOptions::default(), table, Arc::new(()), way)?;
        Ok(Self { client })
    }

    /// Queues a notice to every broker to notify, and returns their number.
    pub(crate) fn send(&self, notice: &MinIdChange) -> u64 {
        tracing::info!(
            broker = notice.name,
            id = notice.id,
            address = notice.address,
            offline = notice.offline,
            "the lowest broker id changed, {} brokers are notified",
            notice.recipients.len()
        );
        let mut sent = 0;
        for address in &notice.recipients {
            let command = Command::request(request::NOTIFY_MIN_BROKER_ID_CHANGE).with_header(
                &NotifyMinBrokerIdChangeRequestHeader {
                    min_broker_id: Some(notice.id),
                    min_broker_addr: Some(&notice.address),
                    offline_broker_addr: notice.offline.as_deref(),
                    ha_broker_addr: notice.ha_address.as_deref().filter(|address| !address.is_empty()),
                    ..NotifyMinBrokerIdChangeRequestHeader::default()
                },
            );
            match self.client.oneway(address, command) {
                Ok(()) => sent += 1,
                Err(error) => tracing::warn!(%address, %error, "cannot notify a broker of its lowest id"),
            }
        }
        sent
    }

    pub(crate) fn close(&self) {
        self.client.shut();
    }
}
