//! A server's TLS: which connections it takes, its certificate, and which certificates of clients it trusts.

use super::error::TlsError;
use super::files::{Identity, Pem, authorities, next_update_ms, revocation_lists};
use super::provider;
use super::reload::Reload;
use crate::net::CloseReason;
use crate::net::socket::proxy_protocol::{self, OPENING_TIMEOUT};
use crate::net::socket::stream::Stream;
use rustls::ServerConfig;
use rustls::server::{ClientCertVerifierBuilder, WebPkiClientVerifier};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// Whether clients must have a certificate. Apache `tls.server.need.client.auth`.
#[derive(Debug, Clone)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    None,
    /// A certificate must be signed by one of these authorities, but a client may have none.
    Optional(Pem),
    /// Clients must have a certificate that is signed by one of these authorities.
    Required(Pem),
}

/// The TLS settings of a server.
#[derive(Debug, Clone)]
pub struct ServerTlsSettings {
    /// Serve plain connections, too. Apache `tls.server.mode`: `permissive`; false: `enforcing`.
    pub serves_plain: bool,
    /// The server's certificate.
    pub identity: Identity,
    /// Certificates of clients.
    pub client_auth: ClientAuth,
    /// Lists of certificates of clients that are no longer trusted. With them, the issuer of each must have a list.
    pub revoked: Option<Pem>,
    /// Longest time for a PROXY header and a handshake; `None`: 10 s.
    pub handshake_timeout: Option<Duration>,
}

/// A server's TLS. Several ports may share one.
#[derive(Debug)]
pub struct ServerTls {
    serves_plain: bool,
    handshake_timeout: Duration,
    made: Reload<Made>,
}

/// What is made from the files.
struct Made {
    config: Arc<ServerConfig>,
    /// When the first list of revoked certificates is out of date, in ms since the Unix epoch.
    next_update_ms: Option<i64>,
}

impl ServerTls {
    /// Reads the files.
    pub fn new(settings: ServerTlsSettings) -> Result<Self, TlsError> {
        let identity = &settings.identity;
        let mut files = vec![identity.certificate.clone(), identity.key.clone()];
        if let ClientAuth::Optional(trust) | ClientAuth::Required(trust) = &settings.client_auth {
            files.push(trust.clone());
        }
        files.extend(settings.revoked.clone());
        Ok(Self {
            serves_plain: settings.serves_plain,
            handshake_timeout: settings.handshake_timeout.unwrap_or(OPENING_TIMEOUT),
            made: Reload::new(files, Box::new(move || made(&settings).map(Arc::new)))?,
        })
    }

    /// When the first of its lists of revoked certificates is out of date, in ms since the Unix epoch: what is revoked
    /// after that is trusted. `None` without such a list. Files that have changed are read again.
    pub fn next_update_ms(&self) -> Option<i64> {
        self.made.current().next_update_ms
    }

    /// How long PROXY header and handshake may take, and whether plain connections are served, too.
    pub(crate) fn limits(&self) -> (Duration, bool) {
        (self.handshake_timeout, self.serves_plain)
    }

    /// Looks at the first byte of a new connection, and performs the handshake if it begins one. A plain connection may
    /// stay silent for `idle`. `begun`: when the connection did; `spent`: what its PROXY header has used of the time
    /// for the handshake.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        (begun, spent): (Instant, Duration),
        idle: Duration,
    ) -> Result<Stream, CloseReason> {
        let limit = if self.serves_plain {
            idle
        } else {
            self.handshake_timeout.saturating_sub(begun.elapsed())
        };
        let mut first = [0; 1];
        match timeout(limit, stream.peek(&mut first)).await {
            Err(_) => return Err(CloseReason::Idle),
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(0)) => return Err(CloseReason::ByPeer),
            Ok(Ok(_)) if first == [HANDSHAKE] => {}
            Ok(Ok(_)) if self.serves_plain => return Ok(Stream::plain(stream)),
            Ok(Ok(_)) if proxy_protocol::begins_header(first[0]) => return Err(CloseReason::ProxyProtocol),
            Ok(Ok(_)) => return Err(CloseReason::PlainRefused),
        }
        let waited = if self.serves_plain { spent } else { begun.elapsed() };
        let handshake = TlsAcceptor::from(self.made.current().config.clone()).accept(stream);
        match timeout(self.handshake_timeout.saturating_sub(waited), handshake).await {
            Ok(Ok(stream)) => Ok(Stream::tls(stream.into())),
            Ok(Err(error)) => Err(CloseReason::Handshake(error.to_string().into())),
            Err(_) => Err(CloseReason::Handshake(
                "the peer did not finish it in time".into(),
            )),
        }
    }
}

fn made(settings: &ServerTlsSettings) -> Result<Made, TlsError> {
    let next = settings.revoked.as_ref().map(next_update_ms).transpose()?;
    Ok(Made {
        config: Arc::new(config(settings)?),
        next_update_ms: next.flatten(),
    })
}

fn config(settings: &ServerTlsSettings) -> Result<ServerConfig, TlsError> {
    let refused = |error: rustls::Error| TlsError::Setting(error.to_string());
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refused)?;
    let verifier = |trust| verifier(trust, settings.revoked.as_ref());
    let built = |error: rustls::server::VerifierBuilderError| TlsError::Setting(error.to_string());
    let builder = match &settings.client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::Optional(trust) => {
            let verifier = verifier(trust)?.allow_unauthenticated().build().map_err(built)?;
            builder.with_client_cert_verifier(verifier)
        }
        ClientAuth::Required(trust) => {
            builder.with_client_cert_verifier(verifier(trust)?.build().map_err(built)?)
        }
    };
    let (chain, key) = settings.identity.load()?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| settings.identity.refused(&error))?;
    // A session is resumed only under the same authorities: another configuration has other tickets.
    config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(refused)?;
    Ok(config)
}

/// What checks certificates of clients. That a list is past its next update refuses nobody.
pub(super) fn verifier(trust: &Pem, revoked: Option<&Pem>) -> Result<ClientCertVerifierBuilder, TlsError> {
    let roots = Arc::new(authorities(trust)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    Ok(match revoked {
        Some(lists) => builder
            .with_crls(revocation_lists(lists)?)
            .only_check_end_entity_revocation(),
        None => builder,
    })
}
