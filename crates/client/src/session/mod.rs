//! What producers and consumers have in common: name servers, routes, heartbeats, identity. Each client has its own.

pub mod address_server;
pub(crate) mod heartbeat;
pub(crate) mod identity;
pub mod name_servers;
pub mod routes;
pub mod signal;
