//! The HTTP server that tells clients their name servers (Apache `DefaultTopAddressing`, `MixAll.getWSAddr`).
//!
//! ```text
//! GET http://<host>[:8080]/rocketmq/nsaddr[-<unit name>?nofix=1]   ->   200, first line: host:port;host:port
//! ```

use crate::error::ClientError;
use pyrmq_remoting::text::split_host_port;
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SCHEME: &str = "http://";
const PORT: u16 = 8080;
const PATH: &str = "/rocketmq/nsaddr";
/// A list of name servers is short.
const ANSWER_BYTES: u64 = 64 * 1024;

/// Reads `host:port;host:port`, each once.
fn split_addresses(text: &str) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for part in text.split(';').map(str::trim) {
        if !part.is_empty() && !addresses.iter().any(|known| known == part) {
            addresses.push(part.to_owned());
        }
    }
    addresses
}

/// The URL that answers with the list of name servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressServer {
    authority: String,
    connect: String,
    path: String,
}

impl fmt::Display for AddressServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{}", self.authority, self.path)
    }
}

impl AddressServer {
    /// From `http://host[:port]/path`, or from `host[:port]`, which gets Apache's port and path. A unit has its own
    /// list.
    pub fn new(text: &str, unit_name: &str) -> Result<Self, ClientError> {
        let wrong = || ClientError::Option {
            option: "address_server",
            value: text.to_owned(),
            range: "`host`, `host:port` or `http://host:port/path`",
        };
        let is_url = text.starts_with(SCHEME);
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let printable = rest.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || !printable || (!is_url && !path.is_empty()) {
            return Err(wrong());
        }
        let has_port = authority.contains(':') && !authority.ends_with(']');
        let authority = if has_port || is_url {
            authority.to_owned()
        } else {
            format!("{authority}:{PORT}")
        };
        let connect = if has_port || !is_url {
            authority.clone()
        } else {
            format!("{authority}:80")
        };
        if !matches!(split_host_port(&connect), Some((_, 1..))) {
            return Err(wrong());
        }
        let mut path = if path.len() < 2 { PATH } else { path }.to_owned();
        if !unit_name.is_empty() {
            path = format!("{path}-{unit_name}?nofix=1");
        }
        Ok(Self {
            authority,
            connect,
            path,
        })
    }

    /// The name servers, as `host:port`.
    pub(crate) async fn request(&self, timeout: Duration) -> Result<Vec<String>, String> {
        let answer = tokio::time::timeout(timeout, self.fetch()).await;
        let answer = answer
            .map_err(|_| format!("no answer within {} ms", timeout.as_millis()))?
            .map_err(|error| error.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer is not of HTTP")?;
        let status = head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) != Some("200") {
            return Err(format!("answered {status:?}"));
        }
        let addresses = split_addresses(body.trim_start().lines().next().unwrap_or_default());
        if addresses.is_empty() {
            return Err("its list is empty".to_owned());
        }
        Ok(addresses)
    }

    async fn fetch(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.connect).await?;
        // Of version 1.0: the answer ends with the connection, and never comes in chunks.
        let request = format!("GET {} HTTP/1.0\r\nHost: {}\r\n\r\n", self.path, self.authority);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES).read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::AddressServer;

    #[test]
    fn an_ipv6_address_needs_no_port_either() {
        let connect = |text| AddressServer::new(text, "").map(|server| server.connect);
        for (text, expected) in [
            ("[::1]", "[::1]:8080"),
            ("[::1]:81", "[::1]:81"),
            ("http://[::1]/list", "[::1]:80"),
            ("http://[::1]:81/list", "[::1]:81"),
            ("names", "names:8080"),
            ("http://names/list", "names:80"),
        ] {
            assert_eq!(connect(text).unwrap(), expected);
        }
        for text in ["[::1", "[::1]:0", "http://[::1]:x/list", ":81", "names:"] {
            assert!(connect(text).is_err(), "{text}");
        }
    }
}
