//! Members that this version does not know.

use crate::body::codec::json::Json;
use crate::body::codec::write::Writer;

/// The members of a body that its type does not name. A newer version wrote them, so they are written back, among the
/// known ones, in the order in which fastjson sorts a bean's members.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UnknownMembers(Vec<(String, Json)>);

impl UnknownMembers {
    /// Takes the members of `older` if there are none here, so that a change by a client that does not know them does
    /// not remove them.
    pub fn keep(&mut self, older: &Self) {
        if self.0.is_empty() {
            self.clone_from(older);
        }
    }

    pub(crate) fn push(&mut self, name: String, value: Json) {
        let at = self.0.partition_point(|(known, _)| *known <= name);
        self.0.insert(at, (name, value));
    }

    pub(crate) fn as_slice(&self) -> &[(String, Json)] {
        &self.0
    }
}

/// Writes the members that sort before `name` and returns the others.
#[inline]
pub(crate) fn write_before<'a>(
    mut unknown: &'a [(String, Json)],
    name: &str,
    writer: &mut Writer,
) -> &'a [(String, Json)] {
    while let Some(((first, value), rest)) = unknown.split_first()
        && first.as_str() < name
    {
        writer.name(first);
        value.write(writer);
        unknown = rest;
    }
    unknown
}

/// Writes all members.
#[inline]
pub(crate) fn write_all(unknown: &[(String, Json)], writer: &mut Writer) {
    for (name, value) in unknown {
        writer.name(name);
        value.write(writer);
    }
}
