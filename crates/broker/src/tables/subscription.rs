//! A consumer's subscription to a topic, and which messages match it (Apache `SubscriptionData`, `FilterAPI`,
//! `ExpressionMessageFilter`).
//!
//! For tags the broker compares codes (Java's hash of the tag) in the consume queue and the client compares the text,
//! so two tags with the same code cost a transfer but never deliver a wrong message. SQL92 conditions are evaluated on
//! the records; the client does not evaluate them again.

use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_routing::filter::Filter;
use pyrmq_store::{RecordFilter, TagFilter};
use std::sync::Arc;

/// Which messages match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageFilter {
    /// Every message.
    All,
    /// Messages with one of these tag codes.
    Codes(Arc<[i32]>),
    /// Messages whose properties meet a SQL92 condition.
    Properties(PropertyFilter),
    /// The expression cannot be compiled, for this reason.
    Invalid(Arc<str>),
}

impl MessageFilter {
    /// Whether a message with this code in its consume queue entry may match.
    #[expect(clippy::cast_possible_truncation, reason = "Apache compares the low 32 bits")]
    pub fn may_match(&self, code: i64) -> bool {
        match self {
            Self::Codes(codes) => codes.contains(&(code as i32)),
            Self::All | Self::Properties(_) | Self::Invalid(_) => true,
        }
    }

    /// The filter in the store's form.
    pub(crate) fn for_store(&self) -> TagFilter<'_> {
        match self {
            Self::Codes(codes) => TagFilter::Codes(codes),
            Self::Properties(filter) => TagFilter::Records(filter),
            Self::All | Self::Invalid(_) => TagFilter::All,
        }
    }

    fn sql92(expression: &str) -> Self {
        match Filter::compile(expression) {
            Ok(filter) => Self::Properties(PropertyFilter(Arc::new(filter))),
            Err(error) => Self::Invalid(error.to_string().into()),
        }
    }
}

/// A compiled SQL92 condition.
#[derive(Debug, Clone)]
pub struct PropertyFilter(Arc<Filter>);

impl RecordFilter for PropertyFilter {
    fn matches(&self, record: &[u8]) -> bool {
        Record::decode(record).is_ok_and(|record| self.0.matches(record.properties))
    }
}

impl PartialEq for PropertyFilter {
    fn eq(&self, other: &Self) -> bool {
        self.0.expression() == other.0.expression()
    }
}

impl Eq for PropertyFilter {}

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
    /// Which messages match.
    pub filter: MessageFilter,
    /// The client's time when it subscribed, in ms: the newer subscription wins.
    pub version: i64,
    /// Whether a Java class should filter on the broker, which no broker since 4.x supports.
    pub class_filter: bool,
}

impl Subscription {
    /// Builds a subscription from an expression, as a pull carries it. `None`: the expression names no tag.
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
            filter: MessageFilter::All,
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
            let codes = subscription.tags.iter().map(|tag| java_hash::hash(tag));
            subscription.filter = MessageFilter::Codes(codes.collect());
        } else if subscription.expression_type == "SQL92" {
            subscription.filter = MessageFilter::sql92(&subscription.expression);
        } else if !subscription.is_tag() {
            let cause = format!("expressionType is {expression_type}, allowed are TAG and SQL92");
            subscription.filter = MessageFilter::Invalid(cause.into());
        }
        Some(subscription)
    }

    /// Whether this is a tag expression, the only kind that needs no property filter.
    pub fn is_tag(&self) -> bool {
        self.expression_type.is_empty() || self.expression_type == "TAG"
    }

    /// The tag codes that match; empty without tags.
    pub fn codes(&self) -> &[i32] {
        match &self.filter {
            MessageFilter::Codes(codes) => codes,
            _ => &[],
        }
    }
}
