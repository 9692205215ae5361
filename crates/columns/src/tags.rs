//! Which tags a read wants.

use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::properties::names;

/// The tags of an expression; without any, every message is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(Vec<String>);

impl Tags {
    /// Reads `*`, or tags separated by `||`.
    pub fn parse(expression: &str) -> Self {
        let tags = expression.split("||").map(str::trim);
        Self(
            tags.filter(|tag| !tag.is_empty() && *tag != "*")
                .map(str::to_owned)
                .collect(),
        )
    }

    /// True when not every message is wanted.
    pub fn is_filter(&self) -> bool {
        !self.0.is_empty()
    }

    /// True for a message that is wanted. Brokers compare hashes of tags, and two tags may have the same hash.
    pub fn wants(&self, record: &Record<'_>) -> bool {
        !self.is_filter()
            || record
                .properties
                .get(names::TAGS)
                .is_some_and(|tag| self.0.iter().any(|wanted| wanted == tag))
    }
}
