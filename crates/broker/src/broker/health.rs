//! The state of a broker, as operators see it.

/// The state of a broker.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// The message log.
    pub store: pyrmq_store::Health,
    /// Number of name servers that know this broker.
    pub registered: usize,
    /// Number of configured name servers.
    pub name_servers: usize,
    /// Number of connected consumers.
    pub consumers: usize,
    /// Number of connected producers.
    pub producers: usize,
    /// Number of pulls that wait for messages.
    pub waiting_pulls: usize,
    /// Open files and connections.
    pub descriptors: Descriptors,
    /// Memory held by requests that have not arrived completely.
    pub unfinished: Unfinished,
    /// False once the broker is stopping.
    pub running: bool,
}

/// The file descriptors of the broker's process: each open file and each connection takes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// How many the process may open.
    pub limit: usize,
    /// How many of them connections must leave free, for the store.
    pub reserved: usize,
    /// Number of open connections.
    pub connections: u64,
    /// Connections refused since the start because only reserved descriptors were left.
    pub refused: u64,
}

/// The memory held by requests that have not arrived completely, on all ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// Bytes held now.
    pub bytes: usize,
    /// Bytes at which connections wait for each other.
    pub limit: usize,
    /// Connections closed since the start because their request did not arrive while the memory was used up.
    pub closed: u64,
}
