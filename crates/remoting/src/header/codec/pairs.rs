//! Writes the pairs of a header in either form. Most are short; those are moved by copies of fixed size into space
//! reserved for many at once.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::chunk::CHUNK;
use crate::fields::{Fields, Front};

/// Maximum bytes of a short pair in either form.
pub(super) const PAIR: usize = 2 * CHUNK + 8;
/// Number of pairs for which space is reserved at once.
const PAIRS: usize = 16;

/// Copies a part of known size into a pair, as far as it fits.
#[inline]
pub(super) fn put<const N: usize>(pair: &mut [u8; PAIR], at: usize, part: &[u8; N]) {
    if let Some(place) = pair.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = *part;
    }
}

/// Appends all pairs. `short` writes a pair of at most `PAIR` bytes and returns its length, or declines; `long` appends
/// any pair.
#[inline]
pub(super) fn push_pairs<E>(
    fields: &Fields,
    out: &mut Vec<u8>,
    short: impl Fn(&mut [u8; PAIR], Front<'_>, Front<'_>) -> Option<usize>,
    long: impl Fn(&mut Vec<u8>, Front<'_>, Front<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut pairs = fields.fronts();
    let mut at = out.len();
    loop {
        let room = pairs.len().min(PAIRS).wrapping_mul(PAIR);
        out.resize(at.wrapping_add(room), 0);
        let declined = loop {
            let Some((key, value)) = pairs.next() else {
                out.truncate(at);
                return Ok(());
            };
            let place = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
            match place.and_then(|place| short(place, key, value)) {
                Some(written) => at = at.wrapping_add(written),
                None => break (key, value),
            }
        };
        out.truncate(at);
        long(out, declined.0, declined.1)?;
        at = out.len();
    }
}
