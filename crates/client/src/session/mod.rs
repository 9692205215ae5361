//! What producers and consumers have in common: name servers, routes, heartbeats, identity. Each client has its own,
//! except for the connections, which the clients of a process share.

pub mod address_server;
pub mod connections;
pub(crate) mod heartbeat;
pub(crate) mod identity;
mod late_unregister;
pub(crate) mod membership;
pub mod name_servers;
mod namespace;
pub mod options;
mod route_lookup;
pub mod route_refresh;
pub mod routes;
pub mod topic_name;
mod topic_route;
