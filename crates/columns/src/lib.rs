//! Records, pulled or read from log files, as column buffers in Arrow's layout, only the requested columns.
//!
//! ```text
//! int32, int64        [validity] [values]
//! text, bytes         [validity] [offsets int32, rows + 1] [data]
//! map of text         [validity] [offsets int32, rows + 1] [key offsets] [key data] [value offsets] [value data]
//! ```
//! Validity is one bit per row, lowest bit first, 1 for a value; it is left out while a column has no null. A row costs
//! one copy of its content, and no allocation. Timestamps are microseconds.
//!
//! What a column means follows Apache `MessageDecoder.decode` and `MessageExt`: `msgId` is the producer's unique id,
//! or the offset id where there is none; of two properties with one name the later one counts.

mod build;
mod columns;
mod layout;
mod rows;
mod tags;

pub use columns::{Block, ColumnError, Columns};
pub use layout::{Buffer, Column, ColumnData};
pub use rows::{BadBody, BadRow, LogRows, RowFilter};
pub use tags::Tags;
