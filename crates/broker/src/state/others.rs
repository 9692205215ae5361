//! Members of a table below `config/` that this version does not know: a newer broker wrote them, and finds them again.

use crate::json::{Json, Read};
use pyrmq_remoting::body::Key;

/// Members that are kept as they are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Others(Vec<(String, Json)>);

impl Others {
    /// The members of an object whose names are not known.
    pub(crate) fn of(tree: &Json, is_known: impl Fn(&str) -> bool) -> Self {
        let others = tree.members().filter(|(name, _)| !is_known(name));
        Self(
            others
                .map(|(name, value)| (name.into_owned(), value.clone()))
                .collect(),
        )
    }

    /// The object with these members among its own, sorted as fastjson sorts those of a bean.
    pub(crate) fn join(&self, tree: Json) -> Json {
        match tree {
            Json::Object(mut members) if !self.0.is_empty() => {
                let others = self.0.iter().cloned();
                members.extend(others.map(|(name, value)| (Key::Str(name), value)));
                members.sort_by(|(one, _), (other, _)| name_of(one).cmp(name_of(other)));
                Json::Object(members)
            }
            tree => tree,
        }
    }

    /// Keeps those of an older state where this one has none: who changes a setting does not take away what he does not know.
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
