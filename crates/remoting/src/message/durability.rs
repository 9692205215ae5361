//! How safe a stored message is, and how a send asks for it on the wire.
//!
//! ```text
//! request    durability = memory | local     our own field; brokers that do not know it ignore it
//! answer     durability = memory | local     what was reached; only in the answer to such a request
//! ```
//! Without the field the broker's `flushDiskType` and the message's `WAIT` decide, as Apache's do.

/// The field's name in requests and answers.
pub const DURABILITY: &str = "durability";

/// How safe a stored message is; a response says which level was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// In the page cache: it survives the end of the process, but not of the machine.
    Memory,
    /// Fsynced on this machine's disk.
    Local,
}

impl Durability {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Local => "local",
        }
    }

    /// The level with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Memory, Self::Local]
            .into_iter()
            .find(|level| level.name() == name)
    }
}
