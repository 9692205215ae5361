//! What all clients of a process share: name servers, routes, heartbeats and the client's identity.

pub mod address_server;
pub(crate) mod heartbeat;
pub(crate) mod identity;
pub mod name_servers;
pub mod routes;
pub mod signal;
