//! The members of JSON objects in a file of users and policies: nothing in it is ignored.

use crate::error::AuthError;
use crate::nearest::nearest;
use pyrmq_remoting::body::{Json, Key as Name};

/// An error about a value.
pub(crate) fn wrong(what: &str, value: &str, expected: &'static str) -> AuthError {
    AuthError::Value {
        what: what.to_owned(),
        value: value.to_owned(),
        expected,
    }
}

/// Refuses members that nothing reads, and members that are there twice: a misspelt or hidden `decision` must not
/// become a default.
pub(crate) fn check_keys(json: &Json, known: &[&'static str], context: &str) -> Result<(), AuthError> {
    let members = json
        .as_object()
        .ok_or_else(|| wrong(context, "something else", "give an object"))?;
    for (at, (key, _)) in members.iter().enumerate() {
        let Name::Str(key) = key else {
            return Err(wrong("a key", "no text", "give it in quotes"));
        };
        if members
            .iter()
            .take(at)
            .any(|(other, _)| *other == Name::Str(key.clone()))
        {
            let what = format!("the key `{key}` of {context}");
            return Err(AuthError::Twice { what });
        }
        if !known.contains(&key.as_str()) {
            let (key, context) = (key.clone(), context.to_owned());
            return Err(match nearest(&key, known) {
                Some(nearest) => AuthError::Misspelt {
                    key,
                    context,
                    nearest,
                },
                None => AuthError::UnknownKey {
                    key,
                    context,
                    known: known.join(", "),
                },
            });
        }
    }
    Ok(())
}

/// Refuses members that are no texts.
pub(crate) fn check_texts(json: &Json, keys: &[&str]) -> Result<(), AuthError> {
    for key in keys {
        if json
            .get(key)
            .is_some_and(|value| value.as_str().is_none() && *value != Json::Null)
        {
            return Err(wrong(key, "something else", "give a text in quotes"));
        }
    }
    Ok(())
}

/// Refuses a member that is not an array of texts.
pub(crate) fn check_lists(json: &Json, keys: &[&str]) -> Result<(), AuthError> {
    for key in keys {
        let is_text = |item: &Json| item.as_str().is_some();
        let is_list = |value: &Json| value.as_array().is_some_and(|items| items.iter().all(is_text));
        if json
            .get(key)
            .is_some_and(|value| !is_list(value) && *value != Json::Null)
        {
            return Err(wrong(key, "something else", "give an array of texts"));
        }
    }
    Ok(())
}

/// The items of a member; none if the member is missing. Anything but an array is an error: taken as empty, it would
/// drop every user or policy in it.
pub(crate) fn items<'j>(json: &'j Json, member: &str) -> Result<&'j [Json], AuthError> {
    match json.get(member) {
        None => Ok(&[]),
        Some(json) => json
            .as_array()
            .ok_or_else(|| wrong(member, "something else", "give an array")),
    }
}
