//! The tokens of a filter, by the longest match (Apache `SelectorParser.jj`).

use super::error::{FilterError, Reason};

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Not,
    And,
    Or,
    Between,
    In,
    True,
    False,
    Null,
    Is,
    Contains,
    StartsWith,
    EndsWith,
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Open,
    Comma,
    Close,
    Plus,
    Minus,
    /// Digits, optionally with an `L` suffix.
    Integer,
    /// A number with a point or an exponent.
    Decimal,
    /// `'...'`
    Text,
    /// The name of a property.
    Name,
    End,
}

const KEYWORDS: [(&str, Kind); 12] = [
    ("NOT", Kind::Not),
    ("AND", Kind::And),
    ("OR", Kind::Or),
    ("BETWEEN", Kind::Between),
    ("IN", Kind::In),
    ("TRUE", Kind::True),
    ("FALSE", Kind::False),
    ("NULL", Kind::Null),
    ("IS", Kind::Is),
    ("CONTAINS", Kind::Contains),
    ("STARTSWITH", Kind::StartsWith),
    ("ENDSWITH", Kind::EndsWith),
];

/// A token and the bytes that it covers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Reads tokens from an expression.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    pub(super) text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next token after blanks and comments.
    pub(super) fn read(&mut self) -> Result<Token, FilterError> {
        self.pass_blanks()?;
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.bytes().next() else {
            return Ok(self.token(Kind::End, 0));
        };
        let (kind, length) = match first {
            b'=' => (Kind::Equal, 1),
            b'<' if rest.starts_with("<>") => (Kind::NotEqual, 2),
            b'<' if rest.starts_with("<=") => (Kind::LessEqual, 2),
            b'<' => (Kind::Less, 1),
            b'>' if rest.starts_with(">=") => (Kind::GreaterEqual, 2),
            b'>' => (Kind::Greater, 1),
            b'(' => (Kind::Open, 1),
            b',' => (Kind::Comma, 1),
            b')' => (Kind::Close, 1),
            b'+' => (Kind::Plus, 1),
            b'-' => (Kind::Minus, 1),
            b'\'' => match text_length(rest) {
                Some(length) => (Kind::Text, length),
                None => return Err(self.error(start, Reason::OpenText)),
            },
            b'0'..=b'9' | b'.' => match number(rest.as_bytes()) {
                Some(found) => found,
                None => return Err(self.error(start, Reason::Character { found: '.' })),
            },
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => {
                let length = run(rest.as_bytes(), |byte| {
                    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
                });
                (word(rest.get(..length).unwrap_or_default()), length)
            }
            b'/' if rest.starts_with("/*") => return Err(self.error(start, Reason::OpenComment)),
            _ => {
                let found = rest.chars().next().unwrap_or_default();
                return Err(self.error(start, Reason::Character { found }));
            }
        };
        Ok(self.token(kind, length))
    }

    pub(super) fn error(&self, offset: usize, reason: Reason) -> FilterError {
        FilterError::new(self.text, offset, reason)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn token(&mut self, kind: Kind, length: usize) -> Token {
        let start = self.at;
        self.at = start + length;
        Token {
            kind,
            start,
            end: self.at,
        }
    }

    fn pass_blanks(&mut self) -> Result<(), FilterError> {
        loop {
            let rest = self.rest();
            let blanks = run(rest.as_bytes(), |byte| {
                matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
            });
            let rest = rest.get(blanks..).unwrap_or_default();
            self.at += blanks;
            let comment = if rest.starts_with("--") {
                // Without an end of line, these are two minus signs.
                rest.find(['\n', '\r']).map(|end| end + 1)
            } else if rest.starts_with("/*") {
                let end = rest.get(2..).and_then(|inner| inner.find("*/"));
                Some(end.ok_or_else(|| self.error(self.at, Reason::OpenComment))? + 4)
            } else {
                None
            };
            match comment {
                None => return Ok(()),
                Some(length) => self.at += length,
            }
        }
    }
}

/// Returns the number of leading bytes that are all `wanted`.
fn run(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| wanted(**byte)).count()
}

fn word(text: &str) -> Kind {
    let keyword = KEYWORDS.iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
    keyword.map_or(Kind::Name, |(_, kind)| *kind)
}

/// Returns the length of the quoted text at the beginning; a quote inside is doubled.
fn text_length(rest: &str) -> Option<usize> {
    let bytes = rest.as_bytes();
    let mut at = 1;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == b'\'')? + 1;
        if bytes.get(at) != Some(&b'\'') {
            return Some(at);
        }
        at += 1;
    }
}

/// Returns kind and length of the number at the beginning; `None` for a point without a digit after it.
fn number(bytes: &[u8]) -> Option<(Kind, usize)> {
    let from = |at: usize| bytes.get(at..).unwrap_or_default();
    let digits = |at: usize| run(from(at), |byte| byte.is_ascii_digit());
    let exponent = |at: usize| {
        if !matches!(bytes.get(at), Some(b'e' | b'E')) {
            return 0;
        }
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        match digits(at + 1 + sign) {
            0 => 0,
            length => 1 + sign + length,
        }
    };
    let whole = digits(0);
    if bytes.get(whole) == Some(&b'.') {
        let fraction = digits(whole + 1);
        if whole == 0 && fraction == 0 {
            return None;
        }
        let end = whole + 1 + fraction;
        return Some((Kind::Decimal, end + exponent(end)));
    }
    match exponent(whole) {
        0 => {}
        length => return Some((Kind::Decimal, whole + length)),
    }
    // A zero is a token of its own: what follows it is the next token.
    if bytes.first() == Some(&b'0') {
        return Some((Kind::Integer, 1));
    }
    let suffix = usize::from(matches!(bytes.get(whole), Some(b'l' | b'L')));
    Some((Kind::Integer, whole + suffix))
}
