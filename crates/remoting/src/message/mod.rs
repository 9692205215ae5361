//! Messages on disk and on the wire: the same bytes in both places.

pub mod batch;
pub mod compress;
pub mod durability;
pub mod id;
pub mod inner_batch;
pub mod java_hash;
pub mod properties;
pub mod receipt;
pub mod record;
pub mod sys_flag;

mod read;
mod records;

pub use batch::BatchItem;
pub use durability::{DURABILITY, Durability};
pub use properties::Properties;
pub use receipt::ReceiptHandle;
pub use record::{NewRecord, Record};
