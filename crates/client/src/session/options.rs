//! The settings that every client has, with Apache's names and defaults (`ClientConfig`).

use crate::error::ClientError;
use crate::session::address_server::AddressServer;
use crate::session::connections::{Connections, Identity, Role, system_resolver};
use pyrmq_auth::Credentials;
use pyrmq_remoting::names::GROUP_LIMIT;
use pyrmq_remoting::net::{Client, ClientTls, ProcessorTable, RequestHook, Resolve, Security};
use pyrmq_remoting::text::split_host_port;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// The group of producers without a group (Apache `MixAll.DEFAULT_PRODUCER_GROUP`).
const DEFAULT_PRODUCER: &str = "DEFAULT_PRODUCER";

/// What producers and pullers share.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Name servers as `host:port`, without duplicates. Apache `namesrvAddr`.
    pub name_servers: Vec<String>,
    /// Server that lists the name servers when none is given. Apache `rocketmq.namesrv.domain`.
    pub address_server: Option<AddressServer>,
    /// Group name. Apache `producerGroup`, `consumerGroup`.
    pub group: String,
    /// Distinguishes clients of one process. Empty: process id and a counter, as Apache's `DEFAULT` becomes.
    pub instance_name: String,
    /// The unit that this client belongs to; empty: none. Apache `unitName`.
    pub unit_name: String,
    /// Goes before the names of group and topics (`namespace%topic`); empty: none. Apache `namespace`.
    pub namespace: String,
    /// Time for one control request (route, offset, heartbeat). Apache `mqClientApiTimeout`: 3 s.
    pub request_timeout: Duration,
    /// How often a known route is refreshed. Apache `pollNameServerInterval`: 30 s.
    pub route_interval: Duration,
    /// How long an unused route is kept. Kafka `metadata.max.idle.ms`: 5 min; Apache keeps it for ever.
    pub route_idle: Duration,
    /// How old the list of name servers may be. Apache `MQClientInstance.startScheduledTask`: 2 min.
    pub name_server_interval: Duration,
    /// How often brokers get a heartbeat. Apache `heartbeatBrokerInterval`: 30 s.
    pub heartbeat_interval: Duration,
    /// Resolves host names.
    pub resolver: Arc<dyn Resolve>,
    /// In whose name requests are sent; `None`: unsigned. Apache `AclClientRPCHook`.
    pub credentials: Option<Arc<Credentials>>,
    /// Called around each request, before it is signed; `None`: nothing is. Apache `RPCHook`.
    pub hook: Option<Arc<dyn RequestHook>>,
    /// Connections go through TLS; `None`: plain. Apache `useTLS`.
    pub tls: Option<Arc<ClientTls>>,
    /// The connections, which clients with the same object here share.
    pub connections: Arc<Connections>,
}

impl ClientOptions {
    /// Defaults for these name servers and this group.
    pub fn new(name_servers: Vec<String>, group: impl Into<String>) -> Self {
        Self {
            name_servers,
            address_server: None,
            group: group.into(),
            instance_name: String::new(),
            unit_name: String::new(),
            namespace: String::new(),
            request_timeout: Duration::from_secs(3),
            route_interval: Duration::from_secs(30),
            route_idle: Duration::from_mins(5),
            name_server_interval: Duration::from_mins(2),
            heartbeat_interval: Duration::from_secs(30),
            resolver: system_resolver(),
            credentials: None,
            hook: None,
            tls: None,
            connections: Connections::new(),
        }
    }

    /// Connections for a client of this role, whose `table` answers what brokers ask it.
    pub(crate) fn connect(
        &self,
        handle: &Handle,
        table: ProcessorTable,
        role: Role,
    ) -> Result<Client, ClientError> {
        let identity = Identity {
            instance_name: self.instance_name.clone(),
            unit_name: self.unit_name.clone(),
            resolver: self.resolver.clone(),
            security: Security {
                signer: self.credentials.clone().map(|credentials| credentials as _),
                client_tls: self.tls.clone(),
                ..Security::default()
            },
        };
        let client = self
            .connections
            .join(handle, table, identity, (role, self.group.clone()))?;
        Ok(client.hooked(self.hook.clone()))
    }

    /// Refuses what cannot work.
    pub fn validate(&self) -> Result<(), ClientError> {
        if self.name_servers.is_empty() && self.address_server.is_none() {
            return Err(ClientError::Option {
                option: "name_server",
                value: String::new(),
                range: "at least one `host:port`",
            });
        }
        for address in &self.name_servers {
            if !matches!(split_host_port(address), Some((_, 1..))) {
                return Err(ClientError::Option {
                    option: "name_server",
                    value: address.clone(),
                    range: "`host:port;host:port`",
                });
            }
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"%|_-".contains(&byte);
        if self.group.is_empty() || self.group.len() > GROUP_LIMIT || !self.group.bytes().all(legal) {
            return Err(ClientError::Option {
                option: "group",
                value: self.group.clone(),
                range: "1 to 120 of the characters a-z A-Z 0-9 % | _ -",
            });
        }
        if self.group == DEFAULT_PRODUCER {
            return Err(ClientError::Option {
                option: "group",
                value: self.group.clone(),
                range: "another one: this name is RocketMQ's own",
            });
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if !self.namespace.bytes().all(legal) {
            return Err(ClientError::Option {
                option: "namespace",
                value: self.namespace.clone(),
                range: "of the characters a-z A-Z 0-9 _ -",
            });
        }
        let legal = |byte: u8| byte.is_ascii_graphic() && byte != b'@';
        for (option, value) in [
            ("instance_name", &self.instance_name),
            ("unit_name", &self.unit_name),
        ] {
            if !value.bytes().all(legal) {
                return Err(ClientError::Option {
                    option,
                    value: value.clone(),
                    range: "of printable characters of ASCII without a space and `@`",
                });
            }
        }
        Ok(())
    }
}
