//! Certificates, keys and lists of authorities, in PEM files.

use super::error::TlsError;
use crate::clock;
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::der::{Decode, SecretDocument};
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use x509_cert::Certificate;
use x509_cert::crl::CertificateList;
use x509_cert::time::Time;

const ENCRYPTED: (&str, &str) = (
    "-----BEGIN ENCRYPTED PRIVATE KEY-----",
    "-----END ENCRYPTED PRIVATE KEY-----",
);

/// Where PEM text is.
#[derive(Clone)]
pub enum Pem {
    /// In this file, which is read again when it changes.
    File(PathBuf),
    /// In memory; it never changes.
    Text(Vec<u8>),
}

impl Pem {
    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text(_) => "given as text".to_owned(),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the operator's, outside every store"
    )]
    fn read(&self, what: &'static str) -> Result<Vec<u8>, TlsError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => std::fs::read(path).map_err(|source| TlsError::Read {
                what,
                path: self.name(),
                source: Arc::new(source),
            }),
        }
    }

    /// Returns what distinguishes the file's present version from others; `None` if there is no file.
    pub(super) fn version(&self) -> Option<(i64, i64, u64, u64)> {
        match self {
            Self::Text(_) => None,
            Self::File(path) => {
                let found = std::fs::metadata(path).ok()?;
                Some((found.mtime(), found.mtime_nsec(), found.ino(), found.size()))
            }
        }
    }

    fn unusable(&self, what: &'static str, cause: impl Into<String>) -> TlsError {
        TlsError::Content {
            what,
            path: self.name(),
            cause: cause.into(),
        }
    }
}

/// Shows the file, never a text, which may be a key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// A certificate with its chain, and its private key.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, then those that lead to its authority.
    pub certificate: Pem,
    /// The key: PKCS#8, PKCS#1 or SEC1.
    pub key: Pem,
    /// Password of an encrypted PKCS#8 key.
    pub key_password: Option<String>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("certificate", &self.certificate)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// A chain and its key, as rustls takes them.
pub(super) type Loaded = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Identity {
    /// Reads both. A certificate that is not valid now is refused.
    pub(super) fn load(&self) -> Result<Loaded, TlsError> {
        let chain = certificates("certificate", &self.certificate)?;
        if let Some(own) = chain.first() {
            check_validity(own).map_err(|cause| self.certificate.unusable("certificate", cause))?;
        }
        check_order(&chain).map_err(|cause| self.certificate.unusable("certificate", cause))?;
        Ok((chain, self.load_key()?))
    }

    /// Explains why rustls does not take the chain and its key.
    pub(super) fn refused(&self, error: &rustls::Error) -> TlsError {
        let cause = match error {
            rustls::Error::InconsistentKeys(_) => {
                format!(
                    "it does not belong to the certificate `{}`",
                    self.certificate.name()
                )
            }
            other => other.to_string(),
        };
        self.key.unusable("private key", cause)
    }

    fn load_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        const WHAT: &str = "private key";
        let bytes = self.key.read(WHAT)?;
        let text = String::from_utf8_lossy(&bytes);
        let (begin, end) = ENCRYPTED;
        if let Some((_, rest)) = text.split_once(begin) {
            let inside = rest.split_once(end).map_or(rest, |(inside, _)| inside);
            let Some(password) = &self.key_password else {
                return Err(self.key.unusable(WHAT, "it is encrypted: give its password"));
            };
            return decrypted(&format!("{begin}{inside}{end}\n"), password)
                .map_err(|cause| self.key.unusable(WHAT, cause));
        }
        if text.contains("Proc-Type: 4,ENCRYPTED") {
            let cause = "its encryption is OpenSSL's old one: convert it by `openssl pkcs8 -topk8`";
            return Err(self.key.unusable(WHAT, cause));
        }
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
            let cause = match error {
                pem::Error::NoItemsFound => "it has no private key in PEM form".to_owned(),
                other => other.to_string(),
            };
            self.key.unusable(WHAT, cause)
        })
    }
}

fn decrypted(pem: &str, password: &str) -> Result<PrivateKeyDer<'static>, String> {
    let (_, document) = SecretDocument::from_pem(pem).map_err(|error| error.to_string())?;
    let key = EncryptedPrivateKeyInfoRef::from_der(document.as_bytes()).map_err(|error| error.to_string())?;
    let plain = key.decrypt(password).map_err(|error| match error {
        pkcs8::Error::EncryptedPrivateKey(pkcs8::pkcs5::Error::DecryptFailed) => {
            "its password is wrong".to_owned()
        }
        other => format!("{other}; AES-CBC and AES-GCM with PBKDF2 or scrypt are supported"),
    })?;
    // A wrong password may leave bytes that look padded but are no key.
    if pkcs8::PrivateKeyInfoRef::from_der(plain.as_bytes()).is_err() {
        return Err("its password is wrong".to_owned());
    }
    Ok(PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec()).into())
}

/// Reads at least one item; `none` says that there is none.
fn items<T: PemObject>(what: &'static str, pem: &Pem, none: &str) -> Result<Vec<T>, TlsError> {
    let bytes = pem.read(what)?;
    let found: Result<Vec<T>, _> = T::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| pem.unusable(what, error.to_string()))?;
    if found.is_empty() {
        return Err(pem.unusable(what, none));
    }
    Ok(found)
}

/// Reads at least one certificate.
fn certificates(what: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    items(what, pem, "it has no certificate in PEM form")
}

/// Reads the certificates of authorities.
pub(super) fn authorities(pem: &Pem) -> Result<RootCertStore, TlsError> {
    const WHAT: &str = "list of authorities";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(WHAT, pem)? {
        roots
            .add(certificate)
            .map_err(|error| pem.unusable(WHAT, error.to_string()))?;
    }
    Ok(roots)
}

/// Reads lists of revoked certificates. One that rustls cannot read is refused here, not at the first handshake. One
/// that is past its next update is used all the same: who may connect must not depend on when the authority publishes.
pub(super) fn revocation_lists(pem: &Pem) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let lists = read_lists(pem)?;
    for next in lists.iter().filter_map(next_update) {
        warn_of_age(pem, next);
    }
    Ok(lists)
}

/// When the first of the lists is out of date, in ms since the Unix epoch; `None` if none of them says so.
pub(super) fn next_update_ms(pem: &Pem) -> Result<Option<i64>, TlsError> {
    let lists = read_lists(pem)?;
    let times = lists.iter().filter_map(next_update);
    let times = times.map(|next| i64::try_from(next.to_unix_duration().as_millis()).unwrap_or(i64::MAX));
    Ok(times.min())
}

fn read_lists(pem: &Pem) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let none = "it has no list in PEM form (`-----BEGIN X509 CRL-----`)";
    items("list of revoked certificates", pem, none)
}

fn next_update(list: &CertificateRevocationListDer<'_>) -> Option<Time> {
    let parsed: CertificateList = CertificateList::from_der(list).ok()?;
    parsed.tbs_cert_list.next_update
}

/// Warns of a list whose authority has published a newer one by now.
fn warn_of_age(pem: &Pem, next: Time) {
    let now = Duration::from_millis(u64::try_from(clock::now_ms()).unwrap_or_default());
    if next.to_unix_duration() < now {
        tracing::warn!(
            file = ?pem,
            next_update = %next.to_date_time(),
            "a list of revoked certificates is out of date: what was revoked since is trusted"
        );
    }
}

/// Checks that each certificate was issued by the next one, as TLS 1.2 demands: peers that do not sort would refuse it.
fn check_order(chain: &[CertificateDer<'_>]) -> Result<(), String> {
    let parsed: Result<Vec<_>, _> = chain
        .iter()
        .map(|certificate| Certificate::from_der(certificate))
        .collect();
    let parsed = parsed.map_err(|error| error.to_string())?;
    let wrong = parsed.windows(2).zip(1..).find(|(pair, _)| match pair {
        [own, issuer] => own.tbs_certificate().issuer() != issuer.tbs_certificate().subject(),
        _ => false,
    });
    match wrong {
        None => Ok(()),
        Some((_, at)) => Err(format!(
            "its chain is out of order, certificate {} did not issue certificate {at}: put its own certificate first, \
             then each one's issuer",
            at + 1
        )),
    }
}

fn check_validity(certificate: &CertificateDer<'_>) -> Result<(), String> {
    let parsed = Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let validity = parsed.tbs_certificate().validity();
    let now = Duration::from_millis(u64::try_from(clock::now_ms()).unwrap_or_default());
    if now > validity.not_after.to_unix_duration() {
        return Err(format!(
            "it expired at {}: renew it",
            validity.not_after.to_date_time()
        ));
    }
    if now < validity.not_before.to_unix_duration() {
        return Err(format!(
            "it is not valid before {}: check the clock",
            validity.not_before.to_date_time()
        ));
    }
    Ok(())
}
