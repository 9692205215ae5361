//! The signature of a request (Apache `AclClientRPCHook`, `AclUtils.combineRequestContent`, `AclSigner`).
//!
//! ```text
//! content    the values of all fields but `Signature`, in ascending order of their keys, then the body
//! Signature  Base64(HMAC-SHA1(secret, content))
//! ```
//! The content is fed to the hash piece by piece, from where it lies: nothing is put together first. It names neither
//! the code nor a time, so a signature does not stop a replay: only TLS does.

use crate::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use pyrmq_remoting::Command;
use pyrmq_remoting::header::FieldSink;
use pyrmq_remoting::net::RequestSigner;
use sha1::Sha1;
use std::fmt;

/// Field of the user's name (Apache `SessionCredentials.ACCESS_KEY`).
pub(crate) const ACCESS_KEY: &str = "AccessKey";
/// Field of the signature (Apache `SessionCredentials.SIGNATURE`).
pub(crate) const SIGNATURE: &str = "Signature";
/// Field of a temporary token (Apache `SessionCredentials.SECURITY_TOKEN`).
const SECURITY_TOKEN: &str = "SecurityToken";
/// Field that peers up to 4.9.3 add after signing (Apache `MixAll.UNIQUE_MSG_QUERY_FLAG`).
const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";
/// The last version that does so (Apache `MQVersion.V4_9_3`).
const UNSIGNED_QUERY_UP_TO: i32 = 399;
/// Bytes of a SHA-1 hash.
const HASH_BYTES: usize = 20;
/// Fields of a usual request: sorted without an allocation.
const USUAL_FIELDS: usize = 24;

/// The hash of one secret, begun: cloned for each request.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha1>);

impl Key {
    pub(crate) fn new(secret: &Secret) -> Option<Self> {
        Hmac::new_from_slice(secret.expose().as_bytes()).ok().map(Self)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}

/// The name of a client, and the secret that it signs with (Apache `SessionCredentials`).
#[derive(Debug, Clone)]
pub struct Credentials {
    access_key: String,
    security_token: Option<String>,
    key: Key,
}

/// Takes a header's values as they would be written, and hashes them. They must come in ascending order of their keys.
#[derive(Clone)]
pub struct ValueHash(Hmac<Sha1>);

impl fmt::Debug for ValueHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueHash(***)")
    }
}

impl FieldSink for ValueHash {
    fn text(&mut self, _key: &str, value: &str) {
        self.0.update(value.as_bytes());
    }
    fn ascii(&mut self, _key: &str, value: &str) {
        self.0.update(value.as_bytes());
    }
}

impl Credentials {
    /// Credentials of a user. `None` if the secret is empty.
    pub fn new(
        access_key: impl Into<String>,
        secret: &Secret,
        security_token: Option<String>,
    ) -> Option<Self> {
        if secret.expose().is_empty() {
            return None;
        }
        Some(Self {
            access_key: access_key.into(),
            security_token,
            key: Key::new(secret)?,
        })
    }

    /// The user's name.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// Adds the fields of a signature to a head whose own fields `write` gives in ascending order of their keys, all of
    /// them in small letters; `body` follows the head.
    pub fn sign_sorted<S: FieldSink>(&self, write: impl FnOnce(&mut ValueHash), body: &[u8], head: &mut S) {
        let mut hash = ValueHash(self.key.0.clone());
        // Capitals sort before small letters.
        hash.0.update(self.access_key.as_bytes());
        if let Some(token) = &self.security_token {
            hash.0.update(token.as_bytes());
        }
        write(&mut hash);
        hash.0.update(body);
        head.text(ACCESS_KEY, &self.access_key);
        if let Some(token) = &self.security_token {
            head.text(SECURITY_TOKEN, token);
        }
        head.text(SIGNATURE, &STANDARD.encode(hash.0.finalize().into_bytes()));
    }
}

impl RequestSigner for Credentials {
    fn sign(&self, request: &mut Command) {
        for key in [ACCESS_KEY, SECURITY_TOKEN, SIGNATURE] {
            request.fields.remove(key);
        }
        request.fields.push(ACCESS_KEY, &self.access_key);
        if let Some(token) = &self.security_token {
            request.fields.push(SECURITY_TOKEN, token);
        }
        // Servers from 4.9.2 to 4.9.8 always leave this field out, those from 5.0 on if the peer is not newer than
        // 4.9.3: a request that names this version is understood by both.
        let skip_query = request.fields.get(UNIQUE_KEY_QUERY).is_some();
        if skip_query {
            request.version = request.version.min(UNSIGNED_QUERY_UP_TO);
        }
        let signature = STANDARD.encode(hash(&self.key, request, skip_query));
        request.fields.push(SIGNATURE, &signature);
    }
}

/// The hash of a request's fields and body.
fn hash(key: &Key, request: &Command, skip_query: bool) -> [u8; HASH_BYTES] {
    let mut hash = key.0.clone();
    let fields = &request.fields;
    let signed = |name: &str| name != SIGNATURE && !(skip_query && name == UNIQUE_KEY_QUERY);
    let mut feed = |pairs: &mut [(&str, &str)]| {
        // A later pair of the same key replaces an earlier one, here as for the processor that reads the header.
        pairs.sort_by_key(|(name, _)| *name);
        for (at, (name, value)) in pairs.iter().enumerate() {
            let is_replaced = pairs.get(at + 1).is_some_and(|(next, _)| next == name);
            if signed(name) && !is_replaced {
                hash.update(value.as_bytes());
            }
        }
    };
    if fields.len() <= USUAL_FIELDS {
        let mut pairs = [("", ""); USUAL_FIELDS];
        let mut used = 0;
        for (slot, pair) in pairs.iter_mut().zip(fields.iter()) {
            *slot = pair;
            used += 1;
        }
        feed(pairs.get_mut(..used).unwrap_or_default());
    } else {
        feed(&mut fields.iter().collect::<Vec<_>>());
    }
    hash.update(request.body.as_deref().unwrap_or_default());
    hash.finalize().into_bytes().into()
}

/// Whether the request bears a signature made with one of these keys. Comparing takes the same time however many bytes
/// are right.
pub(crate) fn is_signed<'k>(request: &Command, keys: impl IntoIterator<Item = &'k Key>) -> bool {
    let Some(given) = request.fields.get(SIGNATURE) else {
        return false;
    };
    let mut signature = [0; HASH_BYTES + 4];
    let Ok(HASH_BYTES) = STANDARD.decode_slice(given, &mut signature) else {
        return false;
    };
    let skip_query = request.version <= UNSIGNED_QUERY_UP_TO;
    keys.into_iter().any(|key| {
        let right = hash(key, request, skip_query);
        let different = right.iter().zip(&signature).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(different) == 0
    })
}

/// Whether the request bears the signature of this secret.
pub fn verify(request: &Command, secret: &Secret) -> bool {
    Key::new(secret).is_some_and(|key| is_signed(request, [&key]))
}
