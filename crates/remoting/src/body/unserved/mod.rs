//! Bodies of requests that no native processor serves. Brokers and clients of 4.6 to 5.5 send them: a feature that is
//! built finds its bodies here and moves them to its family's file. `crates/auth` already uses those of `auth`.
//!
//! | file | feature |
//! |---|---|
//! | `auth` | users and access rules |
//! | `controller` | the controller and elections |
//! | `static_topic` | static topics |

mod auth;
mod controller;
mod static_topic;

pub use auth::*;
pub use controller::*;
pub use static_topic::*;
