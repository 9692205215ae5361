//! A connection before its first frame: networks and host names, the PROXY header, TLS, and the stream of bytes that
//! results.

pub(super) mod network;
pub(super) mod proxy_protocol;
pub(super) mod resolve;
pub(super) mod stream;
#[cfg(feature = "tls")]
pub(super) mod tls;
