//! What all header structures can do.

use crate::fields::Fields;

/// A header structure that can be written into fields.
pub trait EncodeHeader {
    /// Appends this structure's fields; absent options are left out.
    fn encode(&self, fields: &mut Fields);
}
