//! What is wrong with a list of users and policies, or with a change of it.

use pyrmq_remoting::WireError;
use thiserror::Error;

/// A list that cannot be used, or a change that is refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The text is not JSON, or has a value of the wrong kind.
    #[error("it is not a list of users and policies: {0}")]
    Json(#[from] WireError),
    /// An object has a member that nothing reads.
    #[error("unknown key `{key}` in {place}; the known keys are: {known}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The object that has it.
        place: String,
        /// What it may have.
        known: String,
    },
    /// A value is missing or out of its range.
    #[error("{what} is {value:?}: {expected}")]
    Value {
        /// The value's name.
        what: String,
        /// The value.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// Two users have one name, or two lists one subject.
    #[error("{what} is listed twice; keep one of them")]
    Twice {
        /// The user or subject.
        what: String,
    },
    /// The user does not exist.
    #[error("the user does not exist: {0}")]
    NoUser(String),
    /// There is already a user of this name.
    #[error("the user exists already: {0}")]
    UserExists(String),
    /// Somebody else than a super user would make, change or delete one.
    #[error("only a super user can create, change or delete a super user")]
    OnlySuper,
    /// The code is none of 3001 to 3010 that fits the call.
    #[error("request code {0} does not change or show users and policies")]
    NotAdmin(i32),
    /// The subject has no policies.
    #[error("there are no policies for {0}")]
    NoAcl(String),
}
