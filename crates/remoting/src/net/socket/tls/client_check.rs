//! Clients' certificates on a port whose TLS is not rustls', such as the metrics port: checked as on all other ports.

use super::error::TlsError;
use super::files::Pem;
use super::reload::Reload;
use super::server::verifier;
use crate::clock;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use std::sync::Arc;
use std::time::Duration;

struct Verifier(Arc<dyn ClientCertVerifier>);

/// The authorities of clients' certificates, and their lists of revoked ones. The files are read again when they
/// change.
#[derive(Debug)]
pub struct ClientCheck {
    verifier: Reload<Verifier>,
}

impl ClientCheck {
    /// Reads the files.
    pub fn new(trust: Pem, revoked: Pem) -> Result<Self, TlsError> {
        let files = vec![trust.clone(), revoked.clone()];
        let make = move || {
            let built = verifier(&trust, Some(&revoked))?.build();
            let built = built.map_err(|error| TlsError::Setting(error.to_string()))?;
            Ok(Arc::new(Verifier(built)))
        };
        Ok(Self {
            verifier: Reload::new(files, Box::new(make))?,
        })
    }

    /// Checks a client's chain of certificates (DER, its own first). Returns why it is refused; `None`: it is accepted.
    pub fn refusal(&self, chain: &[Vec<u8>]) -> Option<String> {
        let mut chain = chain.iter().map(|der| CertificateDer::from(der.as_slice()));
        let Some(own) = chain.next() else {
            return Some("the client has no certificate".to_owned());
        };
        let others: Vec<_> = chain.collect();
        let now = UnixTime::since_unix_epoch(Duration::from_millis(
            u64::try_from(clock::now_ms()).unwrap_or_default(),
        ));
        let checked = self.verifier.current().0.verify_client_cert(&own, &others, now);
        checked.err().map(|error| error.to_string())
    }
}
