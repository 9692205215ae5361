//! What is wrong with an expression, and where.

use super::{MAX_DEPTH, MAX_LENGTH};
use thiserror::Error;

/// So many characters of an expression are shown in an error.
const SHOWN: usize = 40;

/// An expression that is no filter.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("wrong filter at character {position}: {reason}")]
pub struct FilterError {
    /// Byte of the expression at which the wrong part begins; its length when the end came too early.
    pub offset: usize,
    /// Where the wrong part begins, in characters from 0.
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
    /// A token at which the grammar asks for others.
    #[error("found {found}, expected {expected}")]
    Unexpected {
        /// The token.
        found: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// A character with which no token begins.
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
    /// A number that no Java `long` holds.
    #[error("the integer {found} is above 9223372036854775807")]
    Integer {
        /// The number.
        found: String,
    },
    /// A number that no Java `double` above zero holds.
    #[error("the decimal number {found} is not between 4.9E-324 and 1.7976931348623157E308; write zero as 0")]
    Decimal {
        /// The number.
        found: String,
    },
    /// A value where something true or false is needed.
    #[error("{found} is neither true nor false, expected a condition such as {found} = 1")]
    NotCondition {
        /// The value.
        found: String,
    },
    /// An operand of `<`, `<=`, `>`, `>=` or BETWEEN that is no number.
    #[error("{found} has no order, expected a number or a property")]
    NotOrdered {
        /// The operand.
        found: String,
    },
    /// `= NULL`.
    #[error("nothing equals NULL, expected IS NULL or IS NOT NULL")]
    EqualsNull,
    /// TRUE or FALSE beside a constant that is neither.
    #[error("{found} is never equal to {other}, expected a property")]
    NeverEqual {
        /// The left one.
        found: String,
        /// The right one.
        other: String,
    },
    /// The left side of IN is no property.
    #[error("found {found} on the left of IN, expected a property")]
    NotProperty {
        /// What stands there.
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
        /// Its length.
        length: usize,
    },
}

/// A message's value that cannot be compared as the filter asks. Apache's broker logs it, and the message does not
/// match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the comparison at byte {offset} of the filter has no result: {mismatch}")]
pub struct EvaluateError {
    /// Byte of the expression at which the comparison begins.
    pub offset: usize,
    /// Why there is no result.
    pub mismatch: Mismatch,
}

/// Why a comparison has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// Compared with an integer of 32 bits.
    #[error("the property is no integer from -2147483648 to 2147483647")]
    Int,
    /// Compared with an integer of 64 bits.
    #[error("the property is no integer from -9223372036854775808 to 9223372036854775807")]
    Long,
    /// Compared with a decimal number, or with another property by order.
    #[error("the property is no number")]
    Double,
    /// A condition, TRUE or FALSE on the left of a property or text.
    #[error("a condition cannot be compared with the text on its right; the other way round is possible")]
    Condition,
}

/// A piece of an expression as errors show it.
pub(super) fn shown(piece: &str) -> String {
    match piece.char_indices().nth(SHOWN) {
        None => format!("`{piece}`"),
        Some((end, _)) => format!("`{}...`", piece.get(..end).unwrap_or(piece)),
    }
}
