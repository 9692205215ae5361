//! Signatures, users, policies, and the decision whether a request may be served (Apache's module `auth`, ACL 2.0, and
//! its module `acl`, ACL 1.0).
//!
//! Nothing here reads files, sockets or clocks: texts and requests in, decisions out.
//! Name server and broker check requests through [`Guard`]; a broker may check them through [`plain::PlainGuard`]
//! instead. Clients sign them with [`Credentials`].

mod admin;
mod audience;
mod audit;
mod error;
mod guard;
mod members;
mod nearest;
pub mod plain;
mod policy;
mod requests;
mod resource;
mod rules;
mod secret;
mod shortened;
mod signature;

pub use admin::{answer_to_read, changed};
pub use audience::{Audience, administrative, audience};
pub use audit::Audit;
pub use error::AuthError;
pub use guard::{Guard, Refusal, Switches};
pub use policy::{Acl, Decision, PolicyEntry, PolicyType};
pub use requests::{Right, described, knows, required_rights};
pub use resource::{Action, Pattern, Resource, ResourceType};
pub use rules::{Rules, User, UserStatus, UserType};
pub use secret::Secret;
pub use signature::{BegunSignature, Credentials, SignedFields, verify};
