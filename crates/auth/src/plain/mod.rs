//! Access control lists of RocketMQ 4.x: accounts and their permissions in YAML files (Apache's module `acl`,
//! `plain_acl.yml`).
//!
//! ```yaml
//! globalWhiteRemoteAddresses:
//!   - 10.10.103.*
//! accounts:
//!   - accessKey: RocketMQ
//!     secretKey: "12345678"
//!     whiteRemoteAddress:
//!     admin: false
//!     defaultTopicPerm: DENY
//!     defaultGroupPerm: SUB
//!     topicPerms:
//!       - orders=PUB|SUB
//!     groupPerms:
//!       - kitchen=SUB
//! dataVersion:
//!   - counter: 1
//!     timestamp: 1700000000000
//! ```

mod accounts;
mod address;
mod change;
mod guard;
mod needs;
mod permission;
mod yaml;

pub use accounts::{Accounts, Files, Version};
pub use change::{Change, changed};
pub use guard::PlainGuard;
