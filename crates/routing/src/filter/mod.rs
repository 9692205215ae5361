//! SQL92 filters over the properties of messages (Apache `org.apache.rocketmq.filter`).
//!
//! ```text
//! condition  := and { OR and }                        and := equality { AND equality }
//! equality   := comparison { "=" comparison | "<>" comparison | IS [NOT] NULL }
//! comparison := unary { (">" | ">=" | "<" | "<=") unary | [NOT] BETWEEN unary AND unary
//!                     | [NOT] IN "(" text { "," text } ")" | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text }
//! unary      := ("+" | "-" | NOT) unary | text | integer | decimal | TRUE | FALSE | NULL | property | "(" condition ")"
//! ```
//! Grammar and evaluation match Apache 5.5.0 (`SelectorParser.jj`, `ComparisonExpression.java`), including odd corners:
//! both brokers must give a group the same messages. docs/differences.md lists the exceptions.
//!
//! A filter is compiled once and evaluated for each message, on the property bytes of the record. Evaluation allocates
//! nothing and visits each part of the expression at most once. Length and depth are limited, so no expression
//! overflows the stack.

mod error;
mod evaluate;
mod expression;
mod number;
mod parse;
mod token;

pub use error::{EvaluateError, FilterError, Mismatch, Reason};
pub use expression::{MAX_DEPTH, MAX_LENGTH};

use evaluate::Evaluation;
use expression::Node;
use pyrmq_remoting::message::properties::Properties;

/// Number of a filter's properties that one pass over a message's properties looks up.
const IN_ONE_PASS: usize = 16;

/// A compiled filter.
#[derive(Debug)]
pub struct Filter {
    expression: Box<str>,
    root: Node,
    names: Box<[Box<str>]>,
}

impl Filter {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Apache would refuse the expression, or it exceeds the limits of length or depth. The error gives the position.
    pub fn compile(expression: &str) -> Result<Self, FilterError> {
        let parsed = parse::parse(expression)?;
        Ok(Self {
            expression: expression.into(),
            root: parsed.root,
            names: parsed.names,
        })
    }

    /// Returns the expression as given to `compile`.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Returns the properties that the expression names, each once, in the order of their first appearance.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Returns the number of characters before a byte of the expression.
    pub fn position(&self, offset: usize) -> usize {
        let before = self.expression.get(..offset).unwrap_or(&self.expression);
        before.chars().count()
    }

    /// Returns true if a message with these properties passes. As with Apache, it does not pass if its values cannot be
    /// compared as the expression requires.
    pub fn matches(&self, properties: Properties<'_>) -> bool {
        self.evaluate(properties) == Ok(Some(true))
    }

    /// Returns the value of the expression for a message with these properties; `None` is SQL's NULL.
    ///
    /// # Errors
    /// A value cannot be compared as the expression requires.
    pub fn evaluate(&self, properties: Properties<'_>) -> Result<Option<bool>, EvaluateError> {
        match self.names.len() {
            0..=2 => self.in_one_pass::<2>(properties),
            3..=6 => self.in_one_pass::<6>(properties),
            7..=IN_ONE_PASS => self.in_one_pass::<IN_ONE_PASS>(properties),
            _ => self.evaluate_with(|slot| properties.get(self.names.get(slot)?)),
        }
    }

    /// Returns the value of the expression if the property `names()[slot]` has the value `value(slot)`.
    ///
    /// # Errors
    /// A value cannot be compared as the expression requires.
    pub fn evaluate_with<'a>(
        &'a self,
        value: impl Fn(usize) -> Option<&'a str>,
    ) -> Result<Option<bool>, EvaluateError> {
        Evaluation { value }.condition(&self.root)
    }

    fn in_one_pass<const N: usize>(&self, properties: Properties<'_>) -> Result<Option<bool>, EvaluateError> {
        // No property has an empty name, so unused slots find nothing.
        let mut wanted = [""; N];
        for (slot, name) in wanted.iter_mut().zip(&self.names) {
            *slot = name;
        }
        let found = properties.get_many(wanted);
        Evaluation {
            value: |slot: usize| found.get(slot).copied().flatten(),
        }
        .condition(&self.root)
    }
}
