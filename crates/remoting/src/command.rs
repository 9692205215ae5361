//! The unit of the protocol: one request or response (Apache `RemotingCommand`).
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::fields::Fields;
use bytes::Bytes;

/// Flag bit 0: this is a response.
pub const FLAG_RESPONSE: i32 = 1;
/// Flag bit 1: the sender waits for no response.
pub const FLAG_ONEWAY: i32 = 2;
/// The version ordinal that we send: RocketMQ 5.5.0 (Apache `MQVersion.V5_5_0`).
pub const CURRENT_VERSION: i32 = 513;
/// The version ordinal of 5.0.0 (Apache `MQVersion.V5_0_0`).
pub const V5_0_0: i32 = 413;

/// The encoding of a header (Apache `SerializeType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SerializeType {
    /// A JSON object, the default of every client.
    #[default]
    Json,
    /// The ROCKETMQ binary form.
    RocketMq,
}

/// The language that a peer is written in (Apache `LanguageCode`). An unknown number or name becomes
/// [`Language::Unknown`], which is written as OTHER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names are the languages")]
pub enum Language {
    Java,
    Cpp,
    DotNet,
    #[default]
    Python,
    Delphi,
    Erlang,
    Ruby,
    Other,
    Http,
    Go,
    Php,
    Oms,
    Rust,
    NodeJs,
    Unknown,
}

impl Language {
    const NAMES: [(Self, &'static str); 14] = [
        (Self::Java, "JAVA"),
        (Self::Cpp, "CPP"),
        (Self::DotNet, "DOTNET"),
        (Self::Python, "PYTHON"),
        (Self::Delphi, "DELPHI"),
        (Self::Erlang, "ERLANG"),
        (Self::Ruby, "RUBY"),
        (Self::Other, "OTHER"),
        (Self::Http, "HTTP"),
        (Self::Go, "GO"),
        (Self::Php, "PHP"),
        (Self::Oms, "OMS"),
        (Self::Rust, "RUST"),
        (Self::NodeJs, "NODE_JS"),
    ];

    /// The name that a JSON header carries.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(language, _)| *language == self)
            .map_or("OTHER", |(_, name)| name)
    }

    /// The number that a binary header carries.
    pub fn number(self) -> u8 {
        Self::NAMES
            .iter()
            .position(|(language, _)| *language == self)
            .and_then(|at| u8::try_from(at).ok())
            .unwrap_or(7)
    }

    /// From a JSON header's name.
    pub fn from_name(name: &str) -> Self {
        Self::NAMES
            .iter()
            .find(|(_, known)| *known == name)
            .map_or(Self::Unknown, |(language, _)| *language)
    }

    /// From a binary header's number.
    pub fn from_number(number: u8) -> Self {
        Self::NAMES
            .get(usize::from(number))
            .map_or(Self::Unknown, |(language, _)| *language)
    }
}

/// One request or response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// Request code, or response code when [`FLAG_RESPONSE`] is set.
    pub code: i32,
    /// The sender's language.
    pub language: Language,
    /// The sender's version ordinal; 0 if it sent none.
    pub version: i32,
    /// Request number, copied into the response.
    pub opaque: i32,
    /// Bit set of [`FLAG_RESPONSE`] and [`FLAG_ONEWAY`]; other bits are kept.
    pub flag: i32,
    /// Error text of a response.
    pub remark: Option<String>,
    /// The header's own fields (`extFields`).
    pub fields: Fields,
    /// The encoding in which the header arrived or will be sent.
    pub serialize_type: SerializeType,
    /// Payload; a frame without one reads as `None`, never as empty bytes.
    pub body: Option<Bytes>,
}

impl Command {
    /// A request with our version and language, opaque 0 (the connection numbers it).
    pub fn request(code: i32) -> Self {
        Self {
            code,
            version: CURRENT_VERSION,
            ..Self::default()
        }
    }

    /// A response. The server that sends it copies the opaque number.
    pub fn response(code: i32) -> Self {
        Self {
            code,
            version: CURRENT_VERSION,
            flag: FLAG_RESPONSE,
            ..Self::default()
        }
    }

    /// A response with an error text.
    pub fn error(code: i32, remark: impl Into<String>) -> Self {
        Self {
            remark: Some(remark.into()),
            ..Self::response(code)
        }
    }

    /// Returns this command with a body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Returns this command with one more header field.
    #[must_use]
    pub fn with_field(mut self, key: &str, value: &str) -> Self {
        self.fields.push(key, value);
        self
    }

    /// Returns this command with the fields of a header structure.
    #[must_use]
    pub fn with_header(mut self, header: &impl crate::fields::EncodeHeader) -> Self {
        header.encode(&mut self.fields);
        self
    }

    /// Whether the response bit is set.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether the oneway bit is set: then no response may be sent.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }
}
