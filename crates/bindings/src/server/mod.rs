//! Name servers and brokers run from Python.

pub(crate) mod broker;
pub(crate) mod links;
pub(crate) mod metrics;
pub(crate) mod nameserver;
pub(crate) mod requests;
pub(crate) mod stop;
pub(crate) mod store_lock;
