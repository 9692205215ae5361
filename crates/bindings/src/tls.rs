//! `_core.ServerTls` and `_core.ClientTls`: certificates, keys, and whom they trust; and how certificates are created.

use crate::enter;
use crate::errors::Error;
use pyo3::prelude::*;
use pyrmq_remoting::clock;
use pyrmq_remoting::net::{self, ClientAuth, ClientTlsSettings, Identity, Pem, ServerTlsSettings, TlsError};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::sync::Arc;
use std::time::Duration;

/// A certificate is valid from an hour before its creation: clocks differ.
const BACK: Duration = Duration::from_hours(1);

impl From<TlsError> for Error {
    fn from(error: TlsError) -> Self {
        Self::Config {
            text: error.to_string(),
        }
    }
}

impl From<rcgen::Error> for Error {
    fn from(error: rcgen::Error) -> Self {
        Self::Config {
            text: format!("cannot create a certificate: {error}"),
        }
    }
}

fn file(path: String) -> Pem {
    Pem::File(path.into())
}

fn identity(
    certificate: Option<String>,
    key: Option<String>,
    key_password: Option<String>,
) -> Option<Identity> {
    let (certificate, key) = certificate.zip(key)?;
    Some(Identity {
        certificate: file(certificate),
        key: file(key),
        key_password,
    })
}

/// The TLS settings of a server.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct ServerTls {
    inner: Arc<net::ServerTls>,
}

impl ServerTls {
    pub(crate) fn inner(&self) -> Arc<net::ServerTls> {
        self.inner.clone()
    }
}

#[pymethods]
impl ServerTls {
    /// Paths of PEM files. Without certificate and key it creates its own, for tests. `trust`: the authorities of
    /// clients' certificates, which must be shown if `requires_client`; without it no client is asked for one.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "called by one line of Python")]
    #[pyo3(signature = (*, serves_plain, certificate=None, key=None, key_password=None, trust=None, requires_client=true, revoked=None))]
    fn new(
        py: Python<'_>,
        serves_plain: bool,
        certificate: Option<String>,
        key: Option<String>,
        key_password: Option<String>,
        trust: Option<String>,
        requires_client: bool,
        revoked: Option<String>,
    ) -> PyResult<Self> {
        enter::compute(py, || {
            let client_auth = match trust.map(file) {
                None => ClientAuth::None,
                Some(trust) if requires_client => ClientAuth::Required(trust),
                Some(trust) => ClientAuth::Optional(trust),
            };
            let identity = identity(certificate, key, key_password).map_or_else(self_signed, Ok)?;
            let inner = net::ServerTls::new(ServerTlsSettings {
                serves_plain,
                identity,
                client_auth,
                revoked: revoked.map(file),
                handshake_timeout: None,
            })?;
            Ok::<_, Error>(Self {
                inner: Arc::new(inner),
            })
        })
    }
}

/// Checks certificates of clients as the ports of a server do, for a port that speaks TLS by other means.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct ClientCheck {
    inner: net::ClientCheck,
}

#[pymethods]
impl ClientCheck {
    /// Paths of PEM files.
    #[new]
    #[pyo3(signature = (*, trust, revoked))]
    fn new(py: Python<'_>, trust: String, revoked: String) -> PyResult<Self> {
        enter::compute(py, || {
            let inner = net::ClientCheck::new(file(trust), file(revoked))?;
            Ok::<_, Error>(Self { inner })
        })
    }

    /// Why the certificates of a client are refused, its own first, each in DER form.
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 hands over owned lists")]
    fn refusal(&self, py: Python<'_>, chain: Vec<Vec<u8>>) -> PyResult<Option<String>> {
        enter::compute(py, || Ok::<_, Error>(self.inner.refusal(&chain)))
    }
}

/// How a client opens connections through TLS.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct ClientTls {
    inner: Arc<net::ClientTls>,
}

impl ClientTls {
    pub(crate) fn inner(&self) -> Arc<net::ClientTls> {
        self.inner.clone()
    }
}

#[pymethods]
impl ClientTls {
    /// Paths of PEM files. Without `trust`: the system's authorities.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "called by one line of Python")]
    #[pyo3(signature = (*, trust=None, certificate=None, key=None, key_password=None, server_name=None, verify=true, revoked=None))]
    fn new(
        py: Python<'_>,
        trust: Option<String>,
        certificate: Option<String>,
        key: Option<String>,
        key_password: Option<String>,
        server_name: Option<String>,
        verify: bool,
        revoked: Option<String>,
    ) -> PyResult<Self> {
        enter::compute(py, || {
            let inner = net::ClientTls::new(ClientTlsSettings {
                trust: trust.map(file),
                revoked: revoked.map(file),
                identity: identity(certificate, key, key_password),
                server_name,
                trust_everybody: !verify,
            })?;
            Ok::<_, Error>(Self {
                inner: Arc::new(inner),
            })
        })
    }
}

/// A certificate for tests, which no authority signed.
fn self_signed() -> Result<Identity, Error> {
    let key = KeyPair::generate()?;
    let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let certificate = valid_for(CertificateParams::new(hosts)?, 365).self_signed(&key)?;
    Ok(Identity {
        certificate: Pem::Text(certificate.pem().into_bytes()),
        key: Pem::Text(key.serialize_pem().into_bytes()),
        key_password: None,
    })
}

fn valid_for(mut params: CertificateParams, days: u32) -> CertificateParams {
    let now = Duration::from_millis(u64::try_from(clock::now_ms()).unwrap_or_default());
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACK);
    params.not_after = epoch + now + Duration::from_hours(24 * u64::from(days));
    params
}

fn named(params: &mut CertificateParams, name: &str) {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
}

/// Creates an authority, and a server's certificate that it signs. Returns PEM: the authority's certificate and key,
/// the server's certificate and key.
#[pyfunction]
fn make_certificates(
    py: Python<'_>,
    hosts: Vec<String>,
    days: u32,
) -> PyResult<(String, String, String, String)> {
    enter::compute(py, || {
        let mut authority = valid_for(CertificateParams::default(), days);
        named(&mut authority, "pyrmq authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let mut server = valid_for(CertificateParams::new(hosts)?, days);
        named(&mut server, "pyrmq server");
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        server.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &authority)?;
        Ok::<_, Error>((
            authority.pem(),
            authority.key().serialize_pem(),
            certificate.pem(),
            key.serialize_pem(),
        ))
    })
}

/// Adds this file's names to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ServerTls>()?;
    module.add_class::<ClientCheck>()?;
    module.add_class::<ClientTls>()?;
    module.add_function(wrap_pyfunction!(make_certificates, module)?)
}
