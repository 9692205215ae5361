//! How a broker is, as operators see it.

/// How a broker is.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// The message log.
    pub store: pyrmq_store::Health,
    /// Name servers that know this broker.
    pub registered: usize,
    /// Name servers in all.
    pub name_servers: usize,
    /// Connected consumers.
    pub consumers: usize,
    /// Connected producers.
    pub producers: usize,
    /// Pulls that wait for messages.
    pub waiting_pulls: usize,
    /// Open files and connections.
    pub descriptors: Descriptors,
    /// Memory of requests of which the rest has not come yet.
    pub unfinished: Unfinished,
    /// False once it stops.
    pub running: bool,
}

/// The descriptors of the broker's process: each open file and each connection takes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// How many the process may have.
    pub limit: usize,
    /// How many of them connections leave free, for the store.
    pub reserved: usize,
    /// Connections that live now.
    pub connections: u64,
    /// Connections refused so far because only reserved descriptors were left.
    pub refused: u64,
}

/// The memory of requests of which the rest has not come yet, on all ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// Bytes that they take now.
    pub bytes: usize,
    /// Bytes that they may take before connections wait for each other.
    pub limit: usize,
    /// Connections closed so far because the rest did not come while these bytes were taken.
    pub closed: u64,
}
