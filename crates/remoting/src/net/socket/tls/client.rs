//! A client's TLS: which servers it trusts, and by which certificate it shows itself.

use super::error::TlsError;
use super::files::{Identity, Pem, authorities, revocation_lists};
use super::provider;
use super::reload::Reload;
use crate::net::socket::stream::Stream;
use crate::text::split_host_port;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The TLS settings of a client.
#[derive(Debug, Clone, Default)]
pub struct ClientTlsSettings {
    /// The authorities whose certificates it trusts; `None`: the system's.
    pub trust: Option<Pem>,
    /// Lists of certificates of servers that are no longer trusted. With them, the issuer of each must have a list.
    pub revoked: Option<Pem>,
    /// The client's own certificate, for servers that ask for one.
    pub identity: Option<Identity>,
    /// The name that every server's certificate must have; `None`: the host of its address.
    pub server_name: Option<String>,
    /// Trust every server. The traffic is encrypted, but anybody may be at the other end.
    pub trust_everybody: bool,
}

/// A client's TLS. Connections of the same object resume each other's sessions.
#[derive(Debug)]
pub struct ClientTls {
    server_name: Option<ServerName<'static>>,
    config: Reload<ClientConfig>,
}

impl ClientTls {
    /// Reads the files.
    pub fn new(settings: ClientTlsSettings) -> Result<Self, TlsError> {
        let server_name = settings
            .server_name
            .as_ref()
            .map(|name| {
                ServerName::try_from(name.clone())
                    .map_err(|_| TlsError::Setting(format!("`{name}` is no host name or address")))
            })
            .transpose()?;
        let mut files: Vec<Pem> = settings.trust.iter().chain(&settings.revoked).cloned().collect();
        if let Some(identity) = &settings.identity {
            files.extend([identity.certificate.clone(), identity.key.clone()]);
        }
        let config = Reload::new(files, Box::new(move || config(&settings).map(Arc::new)))?;
        Ok(Self { server_name, config })
    }

    /// Performs a handshake with the server at this address.
    pub(crate) async fn connect(&self, stream: TcpStream, address: &str) -> io::Result<Stream> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host_of(address).to_owned())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        };
        let connector = TlsConnector::from(self.config.current());
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(Stream::tls(stream.into())),
            Err(error) => Err(explained(&error)),
        }
    }
}

/// Returns the host of `host:port`; an IPv6 address without its brackets.
fn host_of(address: &str) -> &str {
    split_host_port(address).map_or(address, |(host, _)| host)
}

fn config(settings: &ClientTlsSettings) -> Result<ClientConfig, TlsError> {
    let refused = |error: rustls::Error| TlsError::Setting(error.to_string());
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refused)?;
    let builder = if settings.trust_everybody {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TrustEverybody(provider())))
    } else {
        let roots = settings
            .trust
            .as_ref()
            .map_or_else(system_authorities, authorities)?;
        let mut verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        if let Some(lists) = &settings.revoked {
            verifier = verifier
                .with_crls(revocation_lists(lists)?)
                .only_check_end_entity_revocation();
        }
        let verifier = verifier
            .build()
            .map_err(|error| TlsError::Setting(error.to_string()))?;
        builder.with_webpki_verifier(verifier)
    };
    let Some(identity) = &settings.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let (chain, key) = identity.load()?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| identity.refused(&error))
}

fn system_authorities() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let cause = found
            .errors
            .first()
            .map_or(String::new(), |error| format!(" ({error})"));
        return Err(TlsError::Setting(format!(
            "this system has no list of trusted authorities{cause}: name a file of them"
        )));
    }
    Ok(roots)
}

/// Says what a failed handshake means.
fn explained(error: &io::Error) -> io::Error {
    let text = match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it closed the connection during the TLS handshake: does this port speak TLS?".to_owned()
        }
        None => format!("the TLS handshake failed: {error}"),
        Some(rustls::Error::InvalidMessage(_)) => {
            "it did not answer the TLS handshake: this port seems to speak plain TCP".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(cause)) => match cause {
            // Authorities of one name are told apart by their signatures.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate was signed by an authority that is not trusted here: name its \
                 authority as trusted"
                    .to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("its certificate has expired ({cause})")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("its certificate is not valid yet, check the clocks ({cause})")
            }
            CertificateError::Revoked => "its certificate was revoked".to_owned(),
            CertificateError::UnknownRevocationStatus => {
                "the lists of revoked certificates have none of its issuer: add it".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is for another host ({cause})")
            }
            other => format!("its certificate is not accepted: {other}"),
        },
        Some(rustls::Error::AlertReceived(alert)) => format!("it ended the TLS handshake: {alert:?}"),
        Some(other) => format!("the TLS handshake failed: {other}"),
    };
    io::Error::new(error.kind(), text)
}

/// Checks signatures, so that a session has one peer, but not whose they are.
#[derive(Debug)]
struct TrustEverybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustEverybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
