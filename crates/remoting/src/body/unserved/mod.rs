//! Bodies of requests that no native processor serves. Brokers and clients of 4.6 to 5.5 send them: a feature that is
//! built finds its bodies here and moves them to its family's file.
//!
//! | file | feature |
//! |---|---|
//! | `controller` | the controller and elections |
//! | `static_topic` | static topics |

mod controller;
mod static_topic;

pub use controller::*;
pub use static_topic::*;
