//! TLS on connections: rustls with the `ring` provider (Apache `TlsHelper`, `TlsSystemConfig`).
//!
//! ```text
//! server: accept -> first byte 0x16? -> handshake, with a deadline and a bound on their number -> Connection
//!                   anything else    -> Connection (permissive) or closed (enforcing)
//! client: connect -> handshake, which checks chain and host name -> Connection
//! ```
//! A handshake takes the certificates, keys and authorities as their files are then: they are read again after a
//! change. Connections that are open keep theirs. A changed file that cannot be used is reported, and what was in force
//! stays in force.

mod client;
mod client_check;
mod error;
mod files;
mod reload;
mod server;

pub use client::{ClientTls, ClientTlsSettings};
pub use client_check::ClientCheck;
pub use error::TlsError;
pub use files::{Identity, Pem};
pub use server::{ClientAuth, ServerTls, ServerTlsSettings};

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, LazyLock};

/// The algorithms, which all connections share.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    PROVIDER.clone()
}
