//! Bodies: the typed bodies, one family per file, over `codec/`: lenient JSON in, exact fastjson out.

pub mod auth;
pub mod client;
pub mod cluster;
pub(crate) mod codec;
pub mod connection;
pub mod consumer;
pub mod group;
pub mod heartbeat;
pub mod list;
pub mod lock;
pub mod mapping;
pub mod offset;
pub mod plain_acl;
pub mod pop;
pub mod queue;
pub mod registration;
pub mod replication;
pub mod route;
pub mod stats;
pub mod topic;
pub mod unserved;
pub mod version;

pub use auth::*;
pub use client::*;
pub use cluster::*;
pub use codec::json::{Json, Key};
pub use codec::unknown::UnknownMembers;
pub use codec::value::{BodyKey, BodyValue};
pub use codec::write::{Style, Writer};
pub use codec::{json, write};
pub use connection::*;
pub use consumer::*;
pub use group::*;
pub use heartbeat::*;
pub use list::*;
pub use lock::*;
pub use mapping::*;
pub use offset::*;
pub use plain_acl::*;
pub use pop::*;
pub use queue::*;
pub use registration::*;
pub use replication::*;
pub use route::*;
pub use stats::*;
pub use topic::*;
pub use version::*;

use crate::error::WireError;

/// Maximum number of values that the references in one body may expand to.
const REFERENCED: usize = 100_000;

/// A body that is one JSON object.
pub trait Body: BodyValue {
    /// Reads the body and resolves its references.
    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut json = Json::parse(bytes)?;
        json.resolve(REFERENCED);
        Self::read(json, "body")
    }

    /// Writes the body in fastjson's compact form, which every RocketMQ peer reads.
    fn encode(&self) -> Vec<u8> {
        self.encode_as(Style::PLAIN)
    }

    /// Writes the body in the given style.
    fn encode_as(&self, style: Style) -> Vec<u8> {
        let mut writer = Writer::new(style);
        self.write(&mut writer);
        writer.finish()
    }
}
