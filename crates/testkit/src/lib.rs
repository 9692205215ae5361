//! Tools for tests only: raw frames, a scripted peer, a faulty disk, a simulated disk, threads scheduled by a seed,
//! temporary directories.

pub mod disk;
pub mod fault_points;
pub mod frame;
mod hangs;
mod lock;
pub mod peer;
pub mod random;
mod record;
pub mod schedule;
pub mod sim;
pub mod temp_dir;
pub mod wait;

pub use disk::FaultyDisk;
pub use peer::{RawPeer, ScriptedServer};
pub use random::Random;
pub use record::new_record;
pub use sim::SimDisk;
pub use temp_dir::TempDir;
pub use wait::{eventually, in_time};
