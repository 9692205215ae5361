//! Members of a table below `config/` that this version does not know: a newer broker wrote them, and finds them again.

use crate::json::{Json, Read};
use pyrmq_remoting::body::Key;

/// Members that are kept as they are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UnknownFields(Vec<(String, Json)>);

impl UnknownFields {
    /// The members of an object whose names are not known.
    pub(crate) fn of(tree: &Json, is_known: impl Fn(&str) -> bool) -> Self {
        let fields = tree.members().filter(|(name, _)| !is_known(name));
        Self(
            fields
                .map(|(name, value)| (name.into_owned(), value.clone()))
                .collect(),
        )
    }

    /// The object with these members among its own, sorted as fastjson sorts those of a bean.
    pub(crate) fn join(&self, tree: Json) -> Json {
        match tree {
            Json::Object(mut members) if !self.0.is_empty() => {
                let fields = self.0.iter().cloned();
                members.extend(fields.map(|(name, value)| (Key::Str(name), value)));
                members.sort_by(|(one, _), (other, _)| name_of(one).cmp(name_of(other)));
                Json::Object(members)
            }
            tree => tree,
        }
    }

    /// Keeps those of an older state where this one has none: a change of a setting by a version that does not know
    /// them does not take them away.
    pub(crate) fn keep(&mut self, older: &Self) {
        if self.0.is_empty() {
            self.clone_from(older);
        }
    }
}

fn name_of(key: &Key) -> &str {
    match key {
        Key::Str(name) => name,
        _ => "",
    }
}
