//! What an account may do with a topic or group (Apache `Permission`).

use std::fmt;

/// The rights to send and to consume; without both, everything is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Permission {
    pub(crate) publish: bool,
    pub(crate) subscribe: bool,
}

impl Permission {
    pub(crate) const EXPECTED: &'static str =
        "give DENY, PUB, SUB or PUB|SUB; Apache takes every other word, ANY too, for DENY";

    /// Reads Apache's words.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (publish, subscribe) = match text.trim() {
            "DENY" => (false, false),
            "PUB" => (true, false),
            "SUB" => (false, true),
            "PUB|SUB" | "SUB|PUB" => (true, true),
            _ => return None,
        };
        Some(Self { publish, subscribe })
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.publish, self.subscribe) {
            (false, false) => "DENY",
            (true, false) => "PUB",
            (false, true) => "SUB",
            (true, true) => "PUB|SUB",
        })
    }
}
