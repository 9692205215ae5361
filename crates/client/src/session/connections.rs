//! Connections that clients share: one to each server, however many producers and consumers a process has (Apache
//! `MQClientManager`, whose `MQClientInstance` has one for all of its groups).
//!
//! ```text
//! Connections -> session (identity) -> net::Client, one for each member: its own waits and table
//! ```
//! Each client keeps its own client id, routes and heartbeats. A broker knows the members of a group by their
//! connection, so a second member of a group gets a session of its own.

use crate::error::ClientError;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::{Properties, Record};
use pyrmq_remoting::net::{
    Client, ClientOptions, ProcessorTable, Resolve, Security, SystemResolver, WeakClient,
};
use pyrmq_remoting::sync::lock;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use tokio::runtime::Handle;

/// Bytes that may wait to be written to one server. Producers limit theirs themselves (`max_in_flight_bytes`), each of
/// those that share the connection.
const OUTGOING_BYTES: usize = 1 << 40;
/// Requests that may wait for one server's answer: of every client that shares the connection, each of which has its
/// own limit.
const PENDING: usize = 1 << 24;

/// Whether a client produces or consumes in its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// A producer with this client id.
    Producer(String),
    Consumer,
}

impl Role {
    fn is_producer(&self) -> bool {
        matches!(self, Self::Producer(_))
    }

    /// Whether a broker's request is for the client of this role and group.
    fn is_addressee(&self, group: &str, request: &Command) -> bool {
        let field = |name| request.fields.get(name);
        match (self, request.code) {
            (Self::Producer(_), request::CHECK_TRANSACTION_STATE) => {
                let half = request.body.as_deref().map(Record::decode);
                let half = half.and_then(Result::ok);
                let named = half.as_ref().and_then(|half| half.properties.get(names::PGROUP));
                named.is_none_or(|named| named == group)
            }
            (Self::Producer(id), request::PUSH_REPLY_MESSAGE_TO_CLIENT) => {
                let text = field("properties").unwrap_or_default();
                let named = Properties::from_bytes(text.as_bytes()).get(names::REPLY_TO_CLIENT);
                named.is_none_or(|named| named == id)
            }
            (Self::Producer(_), _) => true,
            (Self::Consumer, _) => {
                let named = field("consumerGroup").or_else(|| field("group"));
                named.is_none_or(|named| named == group)
            }
        }
    }
}

/// A client as brokers know it.
pub(crate) trait Present: fmt::Debug + Send + Sync {
    /// Whether brokers take it for the client of this id, group and role, and it has not left the group.
    fn is_present(&self, client_id: &str, group: &str, is_consumer: bool) -> bool;
}

/// The connections that clients share. Clients with the same object share them. A forked process must have another
/// object: the locks of its parent's may have been held.
#[derive(Debug, Default)]
pub struct Connections {
    // Guards the sessions that are open.
    sessions: Mutex<Vec<Session>>,
    // Guards the clients that were created with these connections.
    clients: Mutex<Vec<Weak<dyn Present>>>,
}

/// Connections of one identity, without keeping them open.
#[derive(Debug)]
struct Session {
    identity: Identity,
    client: WeakClient,
    // A member lives as long as its table, which the connections drop when it leaves.
    members: Vec<Weak<Member>>,
}

/// A client in its group.
#[derive(Debug)]
struct Member {
    role: Role,
    group: String,
}

/// Clients with the same identity may share connections.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) instance_name: String,
    pub(crate) unit_name: String,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) security: Security,
}

impl Identity {
    fn is(&self, other: &Self) -> bool {
        self.instance_name == other.instance_name
            && self.unit_name == other.unit_name
            && Arc::ptr_eq(&self.resolver, &other.resolver)
            && self.security.is_shared_with(&other.security)
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            instance_name: String::new(),
            unit_name: String::new(),
            resolver: system_resolver(),
            security: Security::default(),
        }
    }
}

/// The default resolver: one object, since clients with the same resolver share connections.
pub(crate) fn system_resolver() -> Arc<dyn Resolve> {
    static SYSTEM: LazyLock<Arc<dyn Resolve>> = LazyLock::new(|| Arc::new(SystemResolver));
    SYSTEM.clone()
}

impl Session {
    /// Whether a client of the same role and group shares these connections.
    fn has(&self, wanted: &Member) -> bool {
        let mut members = self.members.iter().filter_map(Weak::upgrade);
        members.any(|member| {
            member.role.is_producer() == wanted.role.is_producer() && member.group == wanted.group
        })
    }
}

impl Connections {
    /// No connections yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A client that asks servers and is in no group: it shares the connections of clients with the default identity
    /// that send in the same name.
    pub fn join_without_group(&self, handle: &Handle, security: Security) -> Result<Client, ClientError> {
        let identity = Identity {
            security,
            ..Identity::default()
        };
        let mut sessions = self.sessions();
        sessions.retain(|session| session.client.is_open());
        let mut open = sessions.iter().filter(|session| session.identity.is(&identity));
        let table = Arc::new(ProcessorTable::new());
        if let Some(client) = open.find_map(|session| session.client.join(table.clone())) {
            return Ok(client);
        }
        let client = connect(handle, table, &identity)?;
        sessions.push(Session {
            identity,
            client: client.downgrade(),
            members: Vec::new(),
        });
        Ok(client)
    }

    /// A client of this role and group, whose `table` answers what brokers ask it. It shares the connections of clients
    /// with the same identity, unless one of these has the same role and group.
    pub(crate) fn join(
        &self,
        handle: &Handle,
        mut table: ProcessorTable,
        identity: Identity,
        (role, group): (Role, String),
    ) -> Result<Client, ClientError> {
        let member = Arc::new(Member { role, group });
        let mut sessions = self.sessions();
        sessions.retain(|session| session.client.is_open());
        let mut open: Vec<&mut Session> = sessions.iter_mut().collect();
        open.retain(|session| session.identity.is(&identity) && !session.has(&member));
        let weak = Arc::downgrade(&member);
        table.only(move |request| member.role.is_addressee(&member.group, request));
        let table = Arc::new(table);
        for session in open {
            if let Some(client) = session.client.join(table.clone()) {
                session.members.retain(|member| member.strong_count() > 0);
                session.members.push(weak);
                return Ok(client);
            }
        }
        let client = connect(handle, table, &identity)?;
        sessions.push(Session {
            identity,
            client: client.downgrade(),
            members: vec![weak],
        });
        Ok(client)
    }

    /// Number of open sets of connections: one for each identity, and one more for each further member of a group.
    pub fn session_count(&self) -> usize {
        let mut sessions = self.sessions();
        sessions.retain(|session| session.client.is_open());
        sessions.len()
    }

    /// Notes a client.
    pub(crate) fn note(&self, client: Weak<dyn Present>) {
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(client);
    }

    /// Whether a client of this id and role is in the group.
    pub(crate) fn is_present(&self, client_id: &str, group: &str, is_consumer: bool) -> bool {
        let clients = lock(&self.clients);
        let mut living = clients.iter().filter_map(Weak::upgrade);
        living.any(|client| client.is_present(client_id, group, is_consumer))
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Session>> {
        lock(&self.sessions)
    }
}

fn connect(handle: &Handle, table: Arc<ProcessorTable>, identity: &Identity) -> Result<Client, ClientError> {
    let mut net = ClientOptions::default();
    net.connection.outgoing_bytes = OUTGOING_BYTES;
    net.connection.outgoing_close_bytes = OUTGOING_BYTES;
    net.connection.pending = PENDING;
    let way = (identity.resolver.clone(), identity.security.clone());
    Client::secured(handle, net, table, Arc::new(()), way)
        .map_err(|source| ClientError::net("setting up the transport", String::new(), source))
}
