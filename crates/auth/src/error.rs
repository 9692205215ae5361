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
    #[error("unknown key `{key}` in {context}; the known keys are: {known}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The object that has the key.
        context: String,
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
    /// The list has no users.
    #[error("it has no users: nobody could send a request; list at least one")]
    NoUsers,
    /// The change would leave no enabled super user.
    #[error("the user is the last enabled super user: enable or create another one first")]
    LastSuper,
    /// A user that is no super user would create, change or delete a super user.
    #[error("only a super user can create, change or delete a super user")]
    OnlySuper,
    /// The code is none of 3001 to 3010 that fits the call.
    #[error("request code {0} does not change or show users and policies")]
    NotAdmin(i32),
    /// A file is not YAML, or not one that has accounts.
    #[error("it is not a YAML file of accounts: {0}")]
    Yaml(String),
    /// What is wrong with one of several files.
    #[error("cannot use `{path}`: {error}")]
    InFile {
        /// The file.
        path: String,
        /// What is wrong.
        error: Box<AuthError>,
    },
    /// A key that nothing reads, and that resembles one that is read.
    #[error("unknown key `{key}` in {context}; did you mean `{nearest}`?")]
    Misspelt {
        /// The key.
        key: String,
        /// The object that has the key.
        context: String,
        /// The key that it resembles.
        nearest: &'static str,
    },
    /// An access key or secret key is missing or too short. The words are Apache's, without the secret.
    #[error("The accessKey={access_key} and its secretKey cannot be null and length should longer than 6")]
    ShortKey {
        /// The access key.
        access_key: String,
    },
    /// An account lists a topic or group with two different permissions.
    #[error("account {account} has two permissions for {resource}: {first} and {second}; keep one of them")]
    Contradiction {
        /// The account's access key.
        account: String,
        /// The topic or group.
        resource: String,
        /// The permission that comes first.
        first: String,
        /// The permission that comes later.
        second: String,
    },
    /// Entries of a subject decide differently about actions on one resource from the same addresses.
    #[error(
        "entries of {subject} for {resource} contradict each other: they allow and deny {actions} from the same addresses; keep one of them"
    )]
    TwoDecisions {
        /// The user that has them, as `User:name`.
        subject: String,
        /// The resource.
        resource: String,
        /// The actions, with commas.
        actions: String,
    },
    /// No account has this access key. The words are Apache's.
    #[error("The accesskey[{0}] corresponding to accessConfig has been deleted failed: no account has it")]
    NoAccount(String),
    /// No file has an account or a white address.
    #[error("there is no account and no white address: nobody could send a request")]
    Nobody,
    /// The path is not that of a file of accounts that is in force.
    #[error("{0} is not one of the files of accounts that this broker reads")]
    NoFile(String),
    /// The subject has no policies.
    #[error("there are no policies for {0}")]
    NoAcl(String),
}
