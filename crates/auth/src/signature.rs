//! The signature of a request (Apache `AclClientRPCHook`, `AclUtils.combineRequestContent`, `AclSigner`).
//!
//! ```text
//! content    the values of all fields but `Signature`, in ascending order of their keys, then the body
//! Signature  Base64(HMAC-SHA1(secret, content))
//! ```
//! The content is fed to the hash piece by piece, without a copy. It names neither the code nor a time, so a signature
//! does not stop a replay: only TLS does.

use crate::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use pyrmq_remoting::header::FieldSink;
use pyrmq_remoting::net::RequestSigner;
use pyrmq_remoting::{Command, Fields};
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
/// Characters of a signature: Base64 of the hash.
const SIGNATURE_BYTES: usize = 28;
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

/// Writes fields to a head and hashes their values on the way. They must come in ascending order of their keys.
pub struct SignedFields<'h, S> {
    hash: Hmac<Sha1>,
    head: &'h mut S,
}

impl<S> fmt::Debug for SignedFields<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignedFields(***)")
    }
}

impl<S: FieldSink> FieldSink for SignedFields<'_, S> {
    #[inline]
    fn text(&mut self, key: &str, value: &str) {
        self.hash.update(value.as_bytes());
        self.head.text(key, value);
    }
    #[inline]
    fn ascii(&mut self, key: &str, value: &str) {
        self.hash.update(value.as_bytes());
        self.head.ascii(key, value);
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

    /// Writes the fields that a head begins with: the user's name, then what `write` gives, in ascending order of the
    /// keys, all of them in small letters. The result signs every head that begins with these fields.
    pub fn begin_sorted<S: FieldSink>(
        &self,
        write: impl FnOnce(&mut SignedFields<'_, S>),
        head: &mut S,
    ) -> BegunSignature {
        let mut fields = SignedFields {
            hash: self.key.0.clone(),
            head,
        };
        // Capitals sort before small letters, so the fields are in order on the wire, too: a server need not sort them.
        fields.text(ACCESS_KEY, &self.access_key);
        if let Some(token) = &self.security_token {
            fields.text(SECURITY_TOKEN, token);
        }
        write(&mut fields);
        BegunSignature(fields.hash)
    }
}

/// The hash of the fields that many heads begin with.
#[derive(Clone)]
pub struct BegunSignature(Hmac<Sha1>);

impl fmt::Debug for BegunSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BegunSignature(***)")
    }
}

impl BegunSignature {
    /// Writes the other fields of a head, and the signature of all. `write` continues in ascending order of the keys;
    /// `body` follows the head.
    pub fn sign_sorted<S: FieldSink>(
        &self,
        write: impl FnOnce(&mut SignedFields<'_, S>),
        body: &[u8],
        head: &mut S,
    ) {
        let mut fields = SignedFields {
            hash: self.0.clone(),
            head,
        };
        write(&mut fields);
        let SignedFields { mut hash, head } = fields;
        hash.update(body);
        let mut text = [0; SIGNATURE_BYTES];
        head.ascii(
            SIGNATURE,
            encoded(&hash.finalize().into_bytes().into(), &mut text),
        );
    }
}

/// The text of a signature.
fn encoded<'t>(hash: &[u8; HASH_BYTES], text: &'t mut [u8; SIGNATURE_BYTES]) -> &'t str {
    // Base64 of this many bytes fills the text.
    let written = STANDARD.encode_slice(hash, text).unwrap_or(0);
    text.get(..written)
        .and_then(|text| std::str::from_utf8(text).ok())
        .unwrap_or_default()
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
        let mut text = [0; SIGNATURE_BYTES];
        let signature = encoded(&hash(&self.key, request, skip_query), &mut text);
        request.fields.push(SIGNATURE, signature);
    }
}

/// The hash of a request's fields and body.
fn hash(key: &Key, request: &Command, skip_query: bool) -> [u8; HASH_BYTES] {
    let mut hash = key.0.clone();
    let fields = &request.fields;
    let signed = |name: &str| name != SIGNATURE && !(skip_query && name == UNIQUE_KEY_QUERY);
    // Our clients write the fields in order.
    let mut last = "";
    let is_sorted = fields
        .iter()
        .filter(|(name, _)| signed(name))
        .all(|(name, value)| {
            let is_next = last < name;
            if is_next {
                hash.update(value.as_bytes());
                last = name;
            }
            is_next
        });
    if !is_sorted {
        hash = key.0.clone();
        update_sorted(&mut hash, fields, signed);
    }
    hash.update(request.body.as_deref().unwrap_or_default());
    hash.finalize().into_bytes().into()
}

/// Hashes the values of fields that are in any order.
fn update_sorted(hash: &mut Hmac<Sha1>, fields: &Fields, signed: impl Fn(&str) -> bool) {
    let feed = |pairs: &[(&str, &str)], hash: &mut Hmac<Sha1>| {
        for (at, (name, value)) in pairs.iter().enumerate() {
            // A later pair of the same key replaces an earlier one, here as for the processor that reads the header.
            if pairs.get(at + 1).is_none_or(|(next, _)| next != name) {
                hash.update(value.as_bytes());
            }
        }
    };
    if fields.len() <= USUAL_FIELDS {
        let mut pairs = [("", ""); USUAL_FIELDS];
        let mut used = 0;
        for pair in fields.iter().filter(|(name, _)| signed(name)) {
            insert(&mut pairs, used, pair);
            used += 1;
        }
        feed(pairs.get(..used).unwrap_or_default(), hash);
    } else {
        let mut pairs: Vec<_> = fields.iter().filter(|(name, _)| signed(name)).collect();
        pairs.sort_by_key(|(name, _)| *name);
        feed(&pairs, hash);
    }
}

/// Inserts a pair into the first `used` ones, which are sorted by their keys, after those of the same key. Most pairs
/// come in order.
fn insert<'f>(pairs: &mut [(&'f str, &'f str); USUAL_FIELDS], used: usize, pair: (&'f str, &'f str)) {
    let sorted = pairs.get(..used).unwrap_or_default();
    let at = if sorted.last().is_none_or(|(last, _)| *last <= pair.0) {
        used
    } else {
        sorted.partition_point(|(name, _)| *name <= pair.0)
    };
    if let Some(tail) = pairs.get_mut(at..=used) {
        tail.rotate_right(1);
        if let Some(first) = tail.first_mut() {
            *first = pair;
        }
    }
}

/// Whether the request bears a signature made with one of these keys. Comparing takes the same time however many bytes
/// are right.
pub(crate) fn is_signed<'k>(request: &Command, keys: impl IntoIterator<Item = &'k Key>) -> bool {
    let Some(given) = request.fields.get(SIGNATURE) else {
        return false;
    };
    let skip_query = request.version <= UNSIGNED_QUERY_UP_TO;
    keys.into_iter().any(|key| {
        let mut text = [0; SIGNATURE_BYTES];
        let right = encoded(&hash(key, request, skip_query), &mut text);
        let pairs = right.bytes().zip(given.bytes());
        let different = pairs.fold(0, |sum, (a, b)| sum | (a ^ b));
        right.len() == given.len() && std::hint::black_box(different) == 0
    })
}

/// Whether the request bears the signature of this secret.
pub fn verify(request: &Command, secret: &Secret) -> bool {
    Key::new(secret).is_some_and(|key| is_signed(request, [&key]))
}
