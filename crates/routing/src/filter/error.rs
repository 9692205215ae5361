//! Errors of filter expressions, and their positions.

use super::expression::{MAX_DEPTH, MAX_LENGTH};
use thiserror::Error;

/// Number of characters of an expression that an error shows.
const SHOWN: usize = 40;

/// An invalid filter expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("wrong filter at character {position}: {reason}")]
pub struct FilterError {
    /// Byte offset of the wrong part; the expression's length if it ended too early.
    pub offset: usize,
    /// Position of the wrong part in characters, from 0.
    pub position: usize,
    /// What is wrong there.
    pub reason: Reason,
}

impl FilterError {
    pub(super) fn new(expression: &str, offset: usize, reason: Reason) -> Self {
        let before = expression.get(..offset).unwrap_or(expression);
        Self {
            offset,
            position: before.chars().count(),
            reason,
        }
    }
}

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// An unexpected token.
    #[error("found {found}, expected {expected}")]
    Unexpected {
        /// The token.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A character that begins no token.
    #[error("no part of a filter begins with {found:?}")]
    Character {
        /// The character.
        found: char,
    },
    /// A text without its closing quote.
    #[error("the text that begins here has no closing quote; a quote inside a text is written twice: ''")]
    OpenText,
    /// A comment without its end.
    #[error("the comment that begins here has no */")]
    OpenComment,
    /// A number too large for a Java `long`.
    #[error("the integer {found} is above 9223372036854775807")]
    Integer {
        /// The number.
        found: String,
    },
    /// A number that is no Java `double` above zero.
    #[error("the decimal number {found} is not between 4.9E-324 and 1.7976931348623157E308; write zero as 0")]
    Decimal {
        /// The number.
        found: String,
    },
    /// A value where a condition is needed.
    #[error("{found} is neither true nor false, expected a condition such as {found} = 1")]
    NotCondition {
        /// The value.
        found: String,
    },
    /// An operand of `<`, `<=`, `>`, `>=` or BETWEEN that is not a number.
    #[error("{found} has no order, expected a number or a property")]
    NotOrdered {
        /// The operand.
        found: String,
    },
    /// `= NULL`.
    #[error("nothing equals NULL, expected IS NULL or IS NOT NULL")]
    EqualsNull,
    /// TRUE or FALSE compared with a constant that is neither.
    #[error("{found} is never equal to {other}, expected a property")]
    NeverEqual {
        /// The left one.
        found: String,
        /// The right one.
        other: String,
    },
    /// The left side of IN is not a property.
    #[error("found {found} on the left of IN, expected a property")]
    NotProperty {
        /// What was found there.
        found: String,
    },
    /// BETWEEN with a lower bound above the upper one.
    #[error("BETWEEN {low} AND {high} holds no number, expected the smaller bound first")]
    Bounds {
        /// The first bound.
        low: String,
        /// The second bound.
        high: String,
    },
    /// Too many levels.
    #[error("more than {MAX_DEPTH} levels inside each other")]
    TooDeep,
    /// Too many bytes.
    #[error("the expression has {length} bytes, more than {MAX_LENGTH}")]
    TooLong {
        /// Length of the expression, in bytes.
        length: usize,
    },
}

/// A message's value cannot be compared as the filter requires. Apache's broker logs this, and the message does not
/// match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the comparison at byte {offset} of the filter has no result: {mismatch}")]
pub struct EvaluateError {
    /// Byte offset of the comparison in the expression.
    pub offset: usize,
    /// Why there is no result.
    pub mismatch: Mismatch,
}

/// Why a comparison has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// Compared with a 32-bit integer.
    #[error("the property is no integer from -2147483648 to 2147483647")]
    Int,
    /// Compared with a 64-bit integer.
    #[error("the property is no integer from -9223372036854775808 to 9223372036854775807")]
    Long,
    /// Compared with a decimal number, or with another property by order.
    #[error("the property is not a number")]
    Double,
    /// A condition, TRUE or FALSE on the left of a property or text.
    #[error("a condition cannot be compared with the text on its right; the other way round is possible")]
    Condition,
}

/// Formats a piece of an expression for an error.
pub(super) fn shown(piece: &str) -> String {
    match piece.char_indices().nth(SHOWN) {
        None => format!("`{piece}`"),
        Some((end, _)) => format!("`{}...`", piece.get(..end).unwrap_or(piece)),
    }
}
