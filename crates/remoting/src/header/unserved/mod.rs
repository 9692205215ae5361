//! Structures of requests that no server here answers yet. Brokers and clients of 4.6 to 5.5 send them, and golden
//! frames hold their form: a feature that is built finds its headers here and moves them to its family's file.
//!
//! | file | feature |
//! |---|---|
//! | `lite` | lite topics |
//! | `controller` | the controller and elections |
//! | `replication` | replication (HA) and broker containers |
//! | `admin` | administration: tables in pages, RocksDB |

mod admin;
mod controller;
mod lite;
mod replication;

pub use admin::*;
pub use controller::*;
pub use lite::*;
pub use replication::*;
