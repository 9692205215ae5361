//! The transport's settings. Defaults are Apache's if Apache has the setting (`NettyServerConfig`,
//! `NettyClientConfig`). The limits are ours, because Apache has none.

use super::NetError;
use crate::frame::Limits;
use std::time::Duration;

const MIB: usize = 1024 * 1024;

/// Settings of one connection, of a server or a client.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionOptions {
    /// Close after this time without a byte in either direction, and if a frame stays incomplete for this time. Apache
    /// `serverChannelMaxIdleTimeSeconds`, `clientChannelMaxIdleTimeSeconds`: 120 s.
    pub idle: Duration,
    /// Close a peer that reads less than 64 KiB of the bytes waiting for it in this time.
    pub write_timeout: Duration,
    /// Bytes waiting to be written at which the connection stops reading from this peer, and a client refuses further
    /// requests.
    pub outgoing_bytes: usize,
    /// Bytes waiting to be written at which the connection is closed.
    pub outgoing_close_bytes: usize,
    /// Requests of the peer that may wait for their answer; one more is answered SYSTEM_BUSY.
    pub in_flight: usize,
    /// Our own requests that may wait for the peer's answer.
    pub pending: usize,
    /// The decoder's limits.
    pub limits: Limits,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            idle: Duration::from_mins(2),
            write_timeout: Duration::from_secs(30),
            outgoing_bytes: 16 * MIB,
            outgoing_close_bytes: 128 * MIB,
            in_flight: 65_536,
            pending: 65_535,
            limits: Limits::default(),
        }
    }
}

impl ConnectionOptions {
    fn validate(&self) -> Result<(), NetError> {
        positive("idle", self.idle)?;
        positive("write_timeout", self.write_timeout)?;
        at_least_one("outgoing_bytes", self.outgoing_bytes)?;
        at_least_one("in_flight", self.in_flight)?;
        at_least_one("pending", self.pending)?;
        at_least_one("limits.fields", self.limits.fields)?;
        if self.outgoing_close_bytes < self.outgoing_bytes {
            return Err(bad(
                "outgoing_close_bytes",
                self.outgoing_close_bytes,
                "at least `outgoing_bytes`",
            ));
        }
        // The length word is a signed 32-bit number; the header length has 24 bits.
        if !(16..=0x7fff_ffff).contains(&self.limits.frame_bytes) {
            return Err(bad(
                "limits.frame_bytes",
                self.limits.frame_bytes,
                "16 to 2147483647",
            ));
        }
        if !(16..=0xff_ffff).contains(&self.limits.header_bytes) {
            return Err(bad(
                "limits.header_bytes",
                self.limits.header_bytes,
                "16 to 16777215",
            ));
        }
        Ok(())
    }
}

/// How a server reads large frames.
#[derive(Debug, Clone, Copy)]
pub struct LargeFrames {
    /// Size from which on a frame is large.
    pub bytes: usize,
    /// How many are read and processed at a time; the others wait in their sockets.
    pub at_once: usize,
}

/// Settings of a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// For each of its connections.
    pub connection: ConnectionOptions,
    /// Bytes that may wait to be written on all connections together. As they approach it, each slow reader gets less
    /// than `outgoing_bytes`: as much as is left, but always 128 KiB.
    pub outgoing_total_bytes: usize,
    /// Bytes of unfinished frames on all connections together. As they approach it, each connection gets less: as much
    /// as is left, but always 128 KiB. A few at a time may exceed that, and are closed if the rest does not arrive.
    pub unfinished_total_bytes: usize,
    /// Time in which those few must send the rest of their frame.
    pub unfinished_time: Duration,
    /// Connections that wait to be accepted. Apache `serverSocketBacklog`: 1024.
    pub backlog: u32,
    /// Maximum number of connections; one more is closed at once.
    pub max_connections: usize,
    /// Longest time between a clean stop and the end of the last connection.
    pub drain: Duration,
    /// While stopping, an idle connection is closed after this time without a byte.
    pub drain_quiet: Duration,
    /// Limit on reading large frames, for a server whose requests are mostly small; `None`: no limit.
    pub large_frames: Option<LargeFrames>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            connection: ConnectionOptions::default(),
            outgoing_total_bytes: 256 * MIB,
            unfinished_total_bytes: 256 * MIB,
            unfinished_time: Duration::from_secs(5),
            backlog: 1024,
            max_connections: 65_536,
            drain: Duration::from_secs(10),
            drain_quiet: Duration::from_millis(50),
            large_frames: None,
        }
    }
}

impl ServerOptions {
    /// Returns an error if a value is out of its range.
    pub fn validate(&self) -> Result<(), NetError> {
        self.connection.validate()?;
        at_least_one("max_connections", self.max_connections)?;
        at_least_one("outgoing_total_bytes", self.outgoing_total_bytes)?;
        at_least_one("unfinished_total_bytes", self.unfinished_total_bytes)?;
        positive("unfinished_time", self.unfinished_time)?;
        if !(1..=65_535).contains(&self.backlog) {
            return Err(bad("backlog", self.backlog, "1 to 65535"));
        }
        if let Some(large) = self.large_frames {
            at_least_one("large_frames.bytes", large.bytes)?;
            at_least_one("large_frames.at_once", large.at_once)?;
        }
        Ok(())
    }
}

/// Settings of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions {
    /// For each of its connections.
    pub connection: ConnectionOptions,
    /// Longest time to wait for a connection. Apache `connectTimeoutMillis`: 3000.
    pub connect_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connection: ConnectionOptions::default(),
            connect_timeout: Duration::from_secs(3),
        }
    }
}

impl ClientOptions {
    /// Returns an error if a value is out of its range.
    pub fn validate(&self) -> Result<(), NetError> {
        self.connection.validate()?;
        positive("connect_timeout", self.connect_timeout)
    }
}

fn positive(option: &'static str, value: Duration) -> Result<(), NetError> {
    if value.is_zero() {
        return Err(bad(option, "0", "longer than 0"));
    }
    Ok(())
}

fn at_least_one(option: &'static str, value: usize) -> Result<(), NetError> {
    if value == 0 {
        return Err(bad(option, value, "at least 1"));
    }
    Ok(())
}

fn bad(option: &'static str, value: impl std::fmt::Display, range: &'static str) -> NetError {
    NetError::Option {
        option,
        value: value.to_string(),
        range,
    }
}
