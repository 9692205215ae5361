//! Connections that clients share: one to each server, however many producers and consumers a process has (Apache
//! `MQClientManager`, whose `MQClientInstance` has one for all of its groups).
//!
//! ```text
//! Connections -> session (identity) -> net::Client, one for each member: its own waits and table
//! ```
//! Each client keeps its own client id, routes and heartbeats. A broker knows the members of a group by their
//! connection, so a second member of a group gets a session of its own.

use crate::error::ClientError;
use crate::options::ClientOptions;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::{Properties, Record};
use pyrmq_remoting::net::{Client, ClientOptions as NetOptions, Resolve, Table, WeakClient};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::runtime::Handle;

/// Bytes that may wait to be written to one server. Producers limit theirs themselves (`max_in_flight_bytes`), each of
/// those that share the connection.
const OUTGOING_BYTES: usize = 1 << 40;
/// Requests that may wait for one server's answer: of every client that shares the connection, each of which has its
/// own limit.
const PENDING: usize = 1 << 24;

/// What a client is in its group.
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
    fn is_asked(&self, group: &str, request: &Command) -> bool {
        let field = |name| request.fields.get(name);
        match (self, request.code) {
            (Self::Producer(_), request::CHECK_TRANSACTION_STATE) => {
                let half = request.body.as_deref().map(Record::decode);
                let half = half.and_then(Result::ok);
                let asked = half.as_ref().and_then(|half| half.properties.get(names::PGROUP));
                asked.is_none_or(|asked| asked == group)
            }
            (Self::Producer(id), request::PUSH_REPLY_MESSAGE_TO_CLIENT) => {
                let text = field("properties").unwrap_or_default();
                let asked = Properties::from_bytes(text.as_bytes()).get(names::REPLY_TO_CLIENT);
                asked.is_none_or(|asked| asked == id)
            }
            (Self::Producer(_), _) => true,
            (Self::Consumer, _) => {
                let asked = field("consumerGroup").or_else(|| field("group"));
                asked.is_none_or(|asked| asked == group)
            }
        }
    }
}

/// The connections that clients share. Those that are given the same object do.
#[derive(Debug, Default)]
pub struct Connections {
    // Guards the sessions that are open.
    sessions: Mutex<Vec<Session>>,
}

/// Connections of one identity, without keeping them open.
#[derive(Debug)]
struct Session {
    identity: Identity,
    client: WeakClient,
    // A client's token lives as long as its table, which the connections drop when it leaves.
    members: Vec<(bool, String, Weak<()>)>,
}

/// Clients with the same identity may share connections.
#[derive(Debug)]
struct Identity {
    instance_name: String,
    unit_name: String,
    resolver: Arc<dyn Resolve>,
}

impl Identity {
    fn of(options: &ClientOptions) -> Self {
        Self {
            instance_name: options.instance_name.clone(),
            unit_name: options.unit_name.clone(),
            resolver: options.resolver.clone(),
        }
    }

    fn is_of(&self, options: &ClientOptions) -> bool {
        self.instance_name == options.instance_name
            && self.unit_name == options.unit_name
            && Arc::ptr_eq(&self.resolver, &options.resolver)
    }
}

impl Session {
    fn has(&mut self, role: &Role, group: &str) -> bool {
        self.members.retain(|(_, _, token)| token.strong_count() > 0);
        let mut members = self.members.iter();
        members.any(|(is_producer, known, _)| *is_producer == role.is_producer() && known == group)
    }
}

impl Connections {
    /// No connections yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A client that asks servers and is in no group: it shares the connections of clients with the default identity.
    pub fn join_without_group(&self, handle: &Handle) -> Result<Client, ClientError> {
        let options = ClientOptions::new(Vec::new(), "");
        let mut sessions = self.sessions();
        sessions.retain(|session| session.client.is_open());
        let mut open = sessions.iter().filter(|session| session.identity.is_of(&options));
        let table = Arc::new(Table::new());
        if let Some(client) = open.find_map(|session| session.client.join(table.clone())) {
            return Ok(client);
        }
        let client = connect(handle, table, &options)?;
        sessions.push(Session {
            identity: Identity::of(&options),
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
        mut table: Table,
        options: &ClientOptions,
        role: Role,
    ) -> Result<Client, ClientError> {
        let group = options.group.clone();
        let is_producer = role.is_producer();
        let token = Arc::new(());
        let member = (is_producer, group.clone(), Arc::downgrade(&token));
        let mut sessions = self.sessions();
        sessions.retain(|session| session.client.is_open());
        let mut open: Vec<&mut Session> = sessions.iter_mut().collect();
        open.retain_mut(|session| session.identity.is_of(options) && !session.has(&role, &group));
        table.only(move |request| {
            let _lives_as_long = &token;
            role.is_asked(&group, request)
        });
        let table = Arc::new(table);
        for session in open {
            if let Some(client) = session.client.join(table.clone()) {
                session.members.push(member);
                return Ok(client);
            }
        }
        let client = connect(handle, table, options)?;
        sessions.push(Session {
            identity: Identity::of(options),
            client: client.downgrade(),
            members: vec![member],
        });
        Ok(client)
    }

    /// Sets of connections that are open: one for each identity, and one more for each further member of a group.
    pub fn session_count(&self) -> usize {
        let mut sessions = self.sessions();
        sessions.retain(|session| session.client.is_open());
        sessions.len()
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(handle: &Handle, table: Arc<Table>, options: &ClientOptions) -> Result<Client, ClientError> {
    let mut net = NetOptions::default();
    net.connection.outgoing_bytes = OUTGOING_BYTES;
    net.connection.outgoing_close_bytes = OUTGOING_BYTES;
    net.connection.pending = PENDING;
    Client::with_resolver(handle, net, table, Arc::new(()), options.resolver.clone())
        .map_err(|source| ClientError::net("setting up the transport", String::new(), source))
}
