//! The tree of a compiled filter, and its bounds.

/// Maximum length of an expression in bytes.
pub const MAX_LENGTH: usize = 65_536;
/// Maximum depth of nested parentheses, prefixes and chained comparisons. All ANDs and ORs of one level count once.
pub const MAX_DEPTH: usize = 64;

/// A part of an expression.
#[derive(Debug)]
pub(super) enum Node {
    /// The value of the property at this index in the filter's names.
    Property(usize),
    Text(Box<str>),
    Int(i32),
    Long(i64),
    Double(f64),
    Bool(bool),
    Null,
    /// A minus sign.
    Negate(Box<Node>),
    /// A property alone as a condition.
    Cast(usize),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    IsNull(Box<Node>),
    /// `=`, and where it begins.
    Equal(Box<[Node; 2]>, usize),
    /// `<`, `<=`, `>` or `>=`, and where it begins.
    Ordered(Comparison, Box<[Node; 2]>, usize),
    /// Value, low, high, and where it begins.
    Between(bool, Box<[Node; 3]>, usize),
    In(usize, Texts),
    Search(Search, Box<Node>),
}

/// The comparison of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

/// The list of IN: sorted texts.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) not: bool,
    pub(super) sorted: Box<[Box<str>]>,
}

/// CONTAINS, STARTSWITH, ENDSWITH.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) not: bool,
    pub(super) position: Position,
    pub(super) text: Box<str>,
}

/// Where a text is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    Anywhere,
    Start,
    End,
}

impl Node {
    /// Returns true for a literal of the expression.
    pub(super) fn is_constant(&self) -> bool {
        self.is_number() || matches!(self, Self::Text(_) | Self::Bool(_) | Self::Null)
    }

    /// Returns true for a literal number.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Long(_) | Self::Double(_))
    }

    /// Returns true for a node whose value can only be true, false or null.
    pub(super) fn is_condition(&self) -> bool {
        match self {
            Self::Property(_)
            | Self::Text(_)
            | Self::Int(_)
            | Self::Long(_)
            | Self::Double(_)
            | Self::Negate(_) => false,
            Self::Bool(_)
            | Self::Null
            | Self::Cast(_)
            | Self::Not(_)
            | Self::And(_)
            | Self::Or(_)
            | Self::IsNull(_)
            | Self::Equal(..)
            | Self::Ordered(..)
            | Self::Between(..)
            | Self::In(..)
            | Self::Search(..) => true,
        }
    }
}
