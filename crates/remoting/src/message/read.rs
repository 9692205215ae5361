//! A cursor over borrowed bytes whose every step is checked.

use crate::error::WireError;

/// Reads big-endian values off the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    left: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { left: bytes, what }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.left.len()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        match self.left.split_at_checked(count) {
            Some((head, tail)) => {
                self.left = tail;
                Ok(head)
            }
            None => Err(WireError::Truncated {
                what: self.what,
                needed: count,
                left: self.left.len(),
            }),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        match self.left.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.left = tail;
                Ok(*head)
            }
            None => Err(WireError::Truncated {
                what: self.what,
                needed: N,
                left: self.left.len(),
            }),
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, WireError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, WireError> {
        self.array().map(i64::from_be_bytes)
    }

    /// A signed length from the wire; refused if negative.
    pub(crate) fn length(&self, value: i64) -> Result<usize, WireError> {
        usize::try_from(value).map_err(|_| WireError::Length {
            what: self.what,
            length: value,
        })
    }
}
