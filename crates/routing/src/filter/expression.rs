//! The tree of a compiled filter.

/// A part of an expression.
#[derive(Debug)]
pub(super) enum Node {
    /// The value of the property with this place in the filter's names.
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
    Ordered(Order, Box<[Node; 2]>, usize),
    /// Value, low, high, and where it begins.
    Between(bool, Box<[Node; 3]>, usize),
    In(usize, Texts),
    Search(Search, Box<Node>),
}

/// How two values must stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
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
    pub(super) place: Place,
    pub(super) text: Box<str>,
}

/// Where a text is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    Start,
    End,
}

impl Node {
    /// True for what stands literally in the expression.
    pub(super) fn is_constant(&self) -> bool {
        self.is_number() || matches!(self, Self::Text(_) | Self::Bool(_) | Self::Null)
    }

    /// True for a literal number.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Long(_) | Self::Double(_))
    }

    /// True for what is true, false or null and nothing else.
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
