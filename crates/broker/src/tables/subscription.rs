//! What a consumer asks for of a topic, and which messages match (Apache `SubscriptionData`, `FilterAPI`,
//! `ExpressionMessageFilter`).
//!
//! The broker compares tag codes (Java's hash of the tag); the client compares the text, so a code that two tags share
//! costs a transfer, never a wrong message.

use pyrmq_remoting::message::java_hash;
use std::sync::Arc;

/// Which tag codes match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags {
    /// Every message.
    All,
    /// Messages with one of these codes.
    Codes(Arc<[i32]>),
}

impl Tags {
    /// True when a message with this code of its consume queue entry may be wanted.
    #[expect(clippy::cast_possible_truncation, reason = "Apache compares the low 32 bits")]
    pub fn matches(&self, code: i64) -> bool {
        match self {
            Self::All => true,
            Self::Codes(codes) => codes.contains(&(code as i32)),
        }
    }
}

/// A subscription to one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Topic name.
    pub topic: String,
    /// The expression as the client wrote it; `*` is everything.
    pub expression: String,
    /// `TAG` or `SQL92`.
    pub expression_type: String,
    /// The tags of a tag expression.
    pub tags: Vec<String>,
    /// What matches.
    pub filter: Tags,
    /// The client's clock when it subscribed: the newer wins.
    pub version: i64,
    /// A class on the broker would filter: not since 4.x.
    pub class_filter: bool,
}

impl Subscription {
    /// Builds one from an expression, as a pull carries it. `None`: the expression names no tag.
    pub fn parse(
        topic: &str,
        expression: Option<&str>,
        expression_type: Option<&str>,
        version: i64,
    ) -> Option<Self> {
        let expression_type = expression_type.filter(|kind| !kind.is_empty()).unwrap_or("TAG");
        let expression = expression.filter(|text| !text.is_empty()).unwrap_or("*");
        let mut subscription = Self {
            topic: topic.to_owned(),
            expression: expression.to_owned(),
            expression_type: expression_type.to_owned(),
            tags: Vec::new(),
            filter: Tags::All,
            version,
            class_filter: false,
        };
        if subscription.is_tag() && expression != "*" {
            let words = expression
                .split("||")
                .map(str::trim)
                .filter(|tag| !tag.is_empty());
            subscription.tags = words.map(str::to_owned).collect();
            if subscription.tags.is_empty() {
                return None;
            }
            subscription.filter =
                Tags::Codes(subscription.tags.iter().map(|tag| java_hash::hash(tag)).collect());
        }
        Some(subscription)
    }

    /// A tag expression, the only kind that needs no property filter.
    pub fn is_tag(&self) -> bool {
        self.expression_type.is_empty() || self.expression_type == "TAG"
    }

    /// The codes that match; empty for everything.
    pub fn codes(&self) -> &[i32] {
        match &self.filter {
            Tags::All => &[],
            Tags::Codes(codes) => codes,
        }
    }
}
