//! The value of an expression for one message (Apache `ComparisonExpression`, `LogicExpression`, `UnaryExpression`).
//!
//! The order of evaluation is Apache's too: a comparison without a result ends the evaluation, unless earlier parts
//! have already decided it.

use super::error::{EvaluateError, Mismatch};
use super::expression::{Comparison, Node, Position, Search};
use super::number;
use std::cmp::Ordering;

/// A value while an expression is evaluated.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Null,
    Text(&'a str),
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
}

/// One evaluation. `value` returns a property by its index in the filter's names.
#[derive(Debug)]
pub(super) struct Evaluation<F> {
    pub(super) value: F,
}

impl<'a, F: Fn(usize) -> Option<&'a str>> Evaluation<F> {
    /// Returns the value of a condition. Anything else counts as null; the parser creates no such nodes.
    pub(super) fn condition(&self, node: &'a Node) -> Result<Option<bool>, EvaluateError> {
        match self.evaluate(node)? {
            Value::Bool(value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    fn evaluate(&self, node: &'a Node) -> Result<Value<'a>, EvaluateError> {
        let condition = match node {
            Node::Property(slot) => return Ok((self.value)(*slot).map_or(Value::Null, Value::Text)),
            Node::Text(text) => return Ok(Value::Text(text)),
            Node::Int(value) => return Ok(Value::Int(*value)),
            Node::Long(value) => return Ok(Value::Long(*value)),
            Node::Double(value) => return Ok(Value::Double(*value)),
            Node::Bool(value) => return Ok(Value::Bool(*value)),
            Node::Null => return Ok(Value::Null),
            Node::Negate(inner) => return Ok(negated(self.evaluate(inner)?)),
            // A property alone is text, and text is never true.
            Node::Cast(slot) => (self.value)(*slot).map(|_| false),
            Node::Not(inner) => self.condition(inner)?.map(|value| !value),
            Node::And(parts) => self.until(parts, false)?,
            Node::Or(parts) => self.until(parts, true)?,
            Node::IsNull(inner) => Some(matches!(self.evaluate(inner)?, Value::Null)),
            Node::Equal(sides, at) => {
                let [left, right] = &**sides;
                equal(self.evaluate(left)?, self.evaluate(right)?).map_err(|mismatch| error(*at, mismatch))?
            }
            Node::Ordered(comparison, sides, at) => {
                let [left, right] = &**sides;
                self.ordered(*comparison, self.evaluate(left)?, right, *at)?
            }
            Node::Between(not, parts, at) => self.between(*not, parts, *at)?,
            Node::In(slot, texts) => (self.value)(*slot).map(|text| {
                let found = texts.sorted.binary_search_by(|one| (**one).cmp(text));
                found.is_ok() != texts.not
            }),
            Node::Search(search, inner) => Some(self.search(search, inner)?),
        };
        Ok(condition.map_or(Value::Null, Value::Bool))
    }

    /// Evaluates AND, which a false part decides, and OR, which a true part decides. Otherwise one null makes all null.
    fn until(&self, parts: &'a [Node], deciding: bool) -> Result<Option<bool>, EvaluateError> {
        let mut result = Some(!deciding);
        for part in parts {
            match self.condition(part)? {
                Some(value) if value == deciding => return Ok(Some(deciding)),
                Some(_) => {}
                None => result = None,
            }
        }
        Ok(result)
    }

    fn ordered(
        &self,
        comparison: Comparison,
        left: Value<'a>,
        right: &'a Node,
        at: usize,
    ) -> Result<Option<bool>, EvaluateError> {
        // Without a left value, the right one is not evaluated.
        if matches!(left, Value::Null) {
            return Ok(None);
        }
        let ordering = match (left, self.evaluate(right)?) {
            (_, Value::Null) => return Ok(None),
            (Value::Text(left), Value::Text(right)) => match (number::double(left), number::double(right)) {
                (Some(left), Some(right)) => number::compare(left, right),
                _ => return Err(error(at, Mismatch::Double)),
            },
            (left, right) => compare(left, right).map_err(|mismatch| error(at, mismatch))?,
        };
        Ok(Some(match comparison {
            Comparison::Greater => ordering.is_gt(),
            Comparison::GreaterEqual => ordering.is_ge(),
            Comparison::Less => ordering.is_lt(),
            Comparison::LessEqual => ordering.is_le(),
        }))
    }

    /// Evaluates `value >= low AND value <= high`, or its negation, with one evaluation of `value`.
    fn between(&self, not: bool, parts: &'a [Node; 3], at: usize) -> Result<Option<bool>, EvaluateError> {
        let [value, low, high] = parts;
        let value = self.evaluate(value)?;
        let (first, second) = if not {
            (Comparison::Less, Comparison::Greater)
        } else {
            (Comparison::GreaterEqual, Comparison::LessEqual)
        };
        let first = self.ordered(first, value, low, at)?;
        if first == Some(not) {
            return Ok(first);
        }
        let second = self.ordered(second, value, high, at)?;
        if second == Some(not) {
            return Ok(second);
        }
        Ok(first.and(second))
    }

    /// Evaluates a text search. It is never null: without a text to search in or for, it is false, also with NOT.
    fn search(&self, search: &'a Search, inner: &'a Node) -> Result<bool, EvaluateError> {
        if search.text.is_empty() {
            return Ok(false);
        }
        let Value::Text(text) = self.evaluate(inner)? else {
            return Ok(false);
        };
        let found = match search.position {
            Position::Anywhere => text.contains(&*search.text),
            Position::Start => text.starts_with(&*search.text),
            Position::End => text.ends_with(&*search.text),
        };
        Ok(found != search.not)
    }
}

fn error(offset: usize, mismatch: Mismatch) -> EvaluateError {
    EvaluateError { offset, mismatch }
}

/// Negates a number of the expression itself; a property's value is text and has no negative.
fn negated(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Int(value) => Value::Int(value.wrapping_neg()),
        Value::Long(value) => Value::Long(value.wrapping_neg()),
        Value::Double(value) => Value::Double(-value),
        Value::Null | Value::Text(_) | Value::Bool(_) => Value::Null,
    }
}

/// Compares for equality. Null equals null, a value does not equal null, and whether null equals a value is unknown.
fn equal(left: Value<'_>, right: Value<'_>) -> Result<Option<bool>, Mismatch> {
    match (left, right) {
        (Value::Null, Value::Null) => Ok(Some(true)),
        (Value::Null, _) => Ok(None),
        (_, Value::Null) => Ok(Some(false)),
        (Value::Text(left), Value::Text(right)) => Ok(Some(left == right)),
        (left, right) => Ok(Some(compare(left, right)?.is_eq())),
    }
}

/// Compares two values. A text is read as the other value's type; values that cannot be compared count as less.
fn compare(left: Value<'_>, right: Value<'_>) -> Result<Ordering, Mismatch> {
    Ok(match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(&right),
        (Value::Int(left), Value::Long(right)) => i64::from(left).cmp(&right),
        (Value::Long(left), Value::Int(right)) => left.cmp(&i64::from(right)),
        (Value::Long(left), Value::Long(right)) => left.cmp(&right),
        (Value::Int(left), Value::Double(right)) => number::compare(left.into(), right),
        (Value::Double(left), Value::Int(right)) => number::compare(left, right.into()),
        (Value::Long(left), Value::Double(right)) => number::compare(number::nearest(left), right),
        (Value::Double(left), Value::Long(right)) => number::compare(left, number::nearest(right)),
        (Value::Double(left), Value::Double(right)) => number::compare(left, right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(&right),
        (Value::Text(left), Value::Int(right)) => int(left)?.cmp(&right),
        (Value::Int(left), Value::Text(right)) => left.cmp(&int(right)?),
        (Value::Text(left), Value::Long(right)) => long(left)?.cmp(&right),
        (Value::Long(left), Value::Text(right)) => left.cmp(&long(right)?),
        (Value::Text(left), Value::Double(right)) => number::compare(double(left)?, right),
        (Value::Double(left), Value::Text(right)) => number::compare(left, double(right)?),
        (Value::Text(left), Value::Bool(right)) => left.eq_ignore_ascii_case("true").cmp(&right),
        (Value::Bool(_), Value::Text(_)) => return Err(Mismatch::Condition),
        // Two texts reach this arm only for equality, which has compared them already.
        (Value::Text(left), Value::Text(right)) => left.cmp(right),
        (Value::Null | Value::Bool(_), _)
        | (
            Value::Int(_) | Value::Long(_) | Value::Double(_) | Value::Text(_),
            Value::Null | Value::Bool(_),
        ) => Ordering::Less,
    })
}

fn int(text: &str) -> Result<i32, Mismatch> {
    number::int(text).ok_or(Mismatch::Int)
}

fn long(text: &str) -> Result<i64, Mismatch> {
    number::long(text).ok_or(Mismatch::Long)
}

fn double(text: &str) -> Result<f64, Mismatch> {
    number::double(text).ok_or(Mismatch::Double)
}
