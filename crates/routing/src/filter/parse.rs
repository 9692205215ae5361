//! Parses an expression into its tree, with Apache's checks.

use super::error::{FilterError, Reason, shown};
use super::expression::{Comparison, MAX_DEPTH, MAX_LENGTH, Node, Position, Search, Texts};
use super::number;
use super::token::{Kind, Token, Tokens};
use std::collections::HashMap;

/// A tree, its depth, and the bytes that it was read from.
#[derive(Debug)]
struct Part {
    node: Node,
    depth: usize,
    start: usize,
    end: usize,
}

/// A tree and the names of its properties.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) root: Node,
    pub(super) names: Box<[Box<str>]>,
}

pub(super) fn parse(expression: &str) -> Result<Parsed, FilterError> {
    if expression.len() > MAX_LENGTH {
        let length = expression.len();
        return Err(FilterError::new(expression, 0, Reason::TooLong { length }));
    }
    let mut tokens = Tokens::new(expression);
    let next = tokens.read()?;
    let mut parser = Parser {
        tokens,
        next,
        end: 0,
        nesting: 0,
        slots: HashMap::new(),
        names: Vec::new(),
    };
    let part = parser.either()?;
    let condition = parser.condition(part)?;
    parser.finish()?;
    Ok(Parsed {
        root: condition.node,
        names: parser.names.into(),
    })
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    next: Token,
    /// Where the last token ended.
    end: usize,
    nesting: usize,
    slots: HashMap<&'a str, usize>,
    names: Vec<Box<str>>,
}

impl<'a> Parser<'a> {
    /// Parses conditions joined by OR.
    fn either(&mut self) -> Result<Part, FilterError> {
        let first = self.all()?;
        self.joined(first, Kind::Or, Self::all, Node::Or)
    }

    /// Parses conditions joined by AND.
    fn all(&mut self) -> Result<Part, FilterError> {
        let first = self.equality()?;
        self.joined(first, Kind::And, Self::equality, Node::And)
    }

    fn joined(
        &mut self,
        first: Part,
        word: Kind,
        read: fn(&mut Self) -> Result<Part, FilterError>,
        join: fn(Vec<Node>) -> Node,
    ) -> Result<Part, FilterError> {
        if self.next.kind != word {
            return Ok(first);
        }
        let start = first.start;
        let first = self.condition(first)?;
        let (mut depth, mut nodes) = (first.depth, vec![first.node]);
        while self.next.kind == word {
            self.advance()?;
            let part = read(self)?;
            let part = self.condition(part)?;
            depth = depth.max(part.depth);
            nodes.push(part.node);
        }
        self.part(join(nodes), depth, start)
    }

    fn equality(&mut self) -> Result<Part, FilterError> {
        let mut left = self.comparison()?;
        loop {
            left = match self.next.kind {
                Kind::Equal | Kind::NotEqual => {
                    let not = self.advance()?.kind == Kind::NotEqual;
                    let right = self.comparison()?;
                    self.equal(left, right, not)?
                }
                Kind::Is => {
                    self.advance()?;
                    let not = self.take(Kind::Not)?;
                    let expected = if not { "NULL" } else { "NULL or NOT NULL" };
                    self.expect(Kind::Null, expected)?;
                    let (depth, start) = (left.depth, left.start);
                    let node = Node::IsNull(Box::new(left.node));
                    self.perhaps_not(not, node, depth, start)?
                }
                _ => return Ok(left),
            };
        }
    }

    fn equal(&mut self, left: Part, right: Part, not: bool) -> Result<Part, FilterError> {
        for side in [&left, &right] {
            if matches!(side.node, Node::Null) {
                return Err(self.tokens.error(side.start, Reason::EqualsNull));
            }
        }
        if matches!(left.node, Node::Bool(_)) && right.node.is_constant() && !right.node.is_condition() {
            let (found, other) = (self.shown(&left), self.shown(&right));
            return Err(self.tokens.error(left.start, Reason::NeverEqual { found, other }));
        }
        let (depth, start) = (left.depth.max(right.depth), left.start);
        let node = Node::Equal(Box::new([left.node, right.node]), start);
        self.perhaps_not(not, node, depth, start)
    }

    fn comparison(&mut self) -> Result<Part, FilterError> {
        let mut left = self.unary()?;
        loop {
            let comparison = match self.next.kind {
                Kind::Greater => Some(Comparison::Greater),
                Kind::GreaterEqual => Some(Comparison::GreaterEqual),
                Kind::Less => Some(Comparison::Less),
                Kind::LessEqual => Some(Comparison::LessEqual),
                _ => None,
            };
            if let Some(comparison) = comparison {
                self.advance()?;
                let right = self.unary()?;
                for side in [&left, &right] {
                    self.check_ordered(side)?;
                }
                let (depth, start) = (left.depth.max(right.depth), left.start);
                let node = Node::Ordered(comparison, Box::new([left.node, right.node]), start);
                left = self.part(node, depth, start)?;
                continue;
            }
            let not = self.take(Kind::Not)?;
            left = match self.next.kind {
                Kind::Between => self.between(left, not)?,
                Kind::In => self.list(&left, not)?,
                Kind::Contains => self.search(left, not, Position::Anywhere)?,
                Kind::StartsWith => self.search(left, not, Position::Start)?,
                Kind::EndsWith => self.search(left, not, Position::End)?,
                _ if not => return Err(self.unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")),
                _ => return Ok(left),
            };
        }
    }

    fn between(&mut self, value: Part, not: bool) -> Result<Part, FilterError> {
        self.advance()?;
        let low = self.unary()?;
        self.expect(Kind::And, "AND and the upper bound")?;
        let high = self.unary()?;
        for operand in [&value, &low, &high] {
            self.check_ordered(operand)?;
        }
        if !not && is_above(&low.node, &high.node) {
            let reason = Reason::Bounds {
                low: self.shown(&low),
                high: self.shown(&high),
            };
            return Err(self.tokens.error(low.start, reason));
        }
        let depth = value.depth.max(low.depth).max(high.depth);
        let node = Node::Between(not, Box::new([value.node, low.node, high.node]), value.start);
        self.part(node, depth, value.start)
    }

    fn list(&mut self, left: &Part, not: bool) -> Result<Part, FilterError> {
        self.advance()?;
        self.expect(Kind::Open, "( and a list of texts such as ('a', 'b')")?;
        let mut sorted = vec![self.text()?];
        while self.take(Kind::Comma)? {
            sorted.push(self.text()?);
        }
        self.expect(Kind::Close, "a comma or )")?;
        let Node::Property(slot) = left.node else {
            let found = self.shown(left);
            return Err(self.tokens.error(left.start, Reason::NotProperty { found }));
        };
        sorted.sort_unstable();
        sorted.dedup();
        let sorted = sorted.into();
        self.part(Node::In(slot, Texts { not, sorted }), left.depth, left.start)
    }

    fn search(&mut self, left: Part, not: bool, position: Position) -> Result<Part, FilterError> {
        self.advance()?;
        let text = self.text()?;
        let search = Search { not, position, text };
        self.part(Node::Search(search, Box::new(left.node)), left.depth, left.start)
    }

    fn unary(&mut self) -> Result<Part, FilterError> {
        let start = self.next.start;
        match self.next.kind {
            Kind::Plus => {
                let inner = self.nested(Self::unary)?;
                Ok(Part { start, ..inner })
            }
            Kind::Minus => {
                let inner = self.nested(Self::unary)?;
                self.part(Node::Negate(Box::new(inner.node)), inner.depth, start)
            }
            Kind::Not => {
                let inner = self.nested(Self::unary)?;
                let inner = self.condition(inner)?;
                self.part(Node::Not(Box::new(inner.node)), inner.depth, start)
            }
            _ => self.primary(),
        }
    }

    fn primary(&mut self) -> Result<Part, FilterError> {
        let token = self.next;
        let image = self.image(token);
        let node = match token.kind {
            Kind::Open => {
                let inner = self.nested(Self::either)?;
                self.expect(Kind::Close, "a comparison, AND, OR or )")?;
                let (start, end) = (token.start, self.end);
                return Ok(Part { start, end, ..inner });
            }
            Kind::Text => Node::Text(unquoted(image)),
            Kind::Integer => match number::long(image.trim_end_matches(['l', 'L'])) {
                Some(value) => i32::try_from(value).map_or(Node::Long(value), Node::Int),
                None => {
                    return Err(self
                        .tokens
                        .error(token.start, Reason::Integer { found: shown(image) }));
                }
            },
            Kind::Decimal => match number::double(image) {
                Some(value) if value > 0.0 && value.is_finite() => Node::Double(value),
                _ => {
                    return Err(self
                        .tokens
                        .error(token.start, Reason::Decimal { found: shown(image) }));
                }
            },
            Kind::True => Node::Bool(true),
            Kind::False => Node::Bool(false),
            Kind::Null => Node::Null,
            Kind::Name => Node::Property(self.slot(image)),
            _ => return Err(self.unexpected("a property, a text, a number, TRUE, FALSE, NULL, NOT or (")),
        };
        self.advance()?;
        self.part(node, 0, token.start)
    }

    /// Parses what follows the next token, one level deeper.
    fn nested(&mut self, read: fn(&mut Self) -> Result<Part, FilterError>) -> Result<Part, FilterError> {
        if self.nesting == MAX_DEPTH {
            return Err(self.tokens.error(self.next.start, Reason::TooDeep));
        }
        self.nesting += 1;
        self.advance()?;
        let part = read(self)?;
        self.nesting -= 1;
        Ok(part)
    }

    /// Returns the index of a property in the names, and adds it if needed.
    fn slot(&mut self, name: &'a str) -> usize {
        let names = &mut self.names;
        *self.slots.entry(name).or_insert_with(|| {
            names.push(name.into());
            names.len() - 1
        })
    }

    /// Converts a part to a condition: a property alone becomes one.
    fn condition(&self, part: Part) -> Result<Part, FilterError> {
        match part.node {
            Node::Property(slot) => Ok(Part {
                node: Node::Cast(slot),
                ..part
            }),
            ref node if node.is_condition() => Ok(part),
            _ => {
                let found = self.shown(&part);
                Err(self.tokens.error(part.start, Reason::NotCondition { found }))
            }
        }
    }

    fn check_ordered(&self, operand: &Part) -> Result<(), FilterError> {
        let node = &operand.node;
        if node.is_condition() || (node.is_constant() && !node.is_number()) {
            let found = self.shown(operand);
            return Err(self.tokens.error(operand.start, Reason::NotOrdered { found }));
        }
        Ok(())
    }

    fn perhaps_not(&self, not: bool, node: Node, depth: usize, start: usize) -> Result<Part, FilterError> {
        let part = self.part(node, depth, start)?;
        if not {
            return self.part(Node::Not(Box::new(part.node)), part.depth, start);
        }
        Ok(part)
    }

    /// Creates a part from a node whose children have at most `depth` levels; it ends with the last token.
    fn part(&self, node: Node, depth: usize, start: usize) -> Result<Part, FilterError> {
        // A prefix or comparison may take two levels of the tree.
        if depth >= 2 * MAX_DEPTH {
            return Err(self.tokens.error(start, Reason::TooDeep));
        }
        Ok(Part {
            node,
            depth: depth + 1,
            start,
            end: self.end,
        })
    }

    fn text(&mut self) -> Result<Box<str>, FilterError> {
        let token = self.expect(Kind::Text, "a text such as 'a'")?;
        Ok(unquoted(self.image(token)))
    }

    /// Checks that only a comment follows the expression. The comment may end with the expression.
    fn finish(&self) -> Result<(), FilterError> {
        let rest = self.tokens.text.get(self.next.start..).unwrap_or_default();
        if self.next.kind == Kind::End || rest.starts_with("--") {
            return Ok(());
        }
        Err(self.unexpected("a comparison, AND, OR or the end"))
    }

    fn advance(&mut self) -> Result<Token, FilterError> {
        let token = self.next;
        self.end = token.end;
        self.next = self.tokens.read()?;
        Ok(token)
    }

    /// Consumes the next token if it is of this kind.
    fn take(&mut self, kind: Kind) -> Result<bool, FilterError> {
        let found = self.next.kind == kind;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, kind: Kind, expected: &'static str) -> Result<Token, FilterError> {
        if self.next.kind == kind {
            return self.advance();
        }
        Err(self.unexpected(expected))
    }

    fn unexpected(&self, expected: &'static str) -> FilterError {
        let found = match self.next.kind {
            Kind::End => "the end".to_owned(),
            _ => shown(self.image(self.next)),
        };
        self.tokens
            .error(self.next.start, Reason::Unexpected { found, expected })
    }

    fn image(&self, token: Token) -> &'a str {
        self.tokens.text.get(token.start..token.end).unwrap_or_default()
    }

    fn shown(&self, part: &Part) -> String {
        shown(self.tokens.text.get(part.start..part.end).unwrap_or_default())
    }
}

/// Returns the text between quotes, with each doubled quote once.
fn unquoted(image: &str) -> Box<str> {
    let inner = image.get(1..image.len().saturating_sub(1)).unwrap_or_default();
    inner.replace("''", "'").into()
}

/// Returns true if both are literal numbers and the first is greater.
fn is_above(low: &Node, high: &Node) -> bool {
    match (low, high) {
        (Node::Int(_) | Node::Long(_), Node::Int(_) | Node::Long(_)) => whole(low) > whole(high),
        (Node::Double(_), Node::Int(_) | Node::Long(_) | Node::Double(_)) | (_, Node::Double(_)) => {
            real(low) > real(high)
        }
        _ => false,
    }
}

fn whole(node: &Node) -> Option<i64> {
    match node {
        Node::Int(value) => Some((*value).into()),
        Node::Long(value) => Some(*value),
        _ => None,
    }
}

fn real(node: &Node) -> Option<f64> {
    match node {
        Node::Double(value) => Some(*value),
        _ => whole(node).map(number::nearest),
    }
}
