//! Finds popped messages of a broker with `popConsumerKVServiceEnable` by name, before anything is changed. That broker
//! keeps messages in flight in RocksDB (`kvStore/`), which pyrmq cannot read, so opening such a store would lose them
//! silently. Check points in the log are served.

use crate::error::StoreError;
use crate::fs::{Context, Fs};
use std::path::Path;

/// The content of such a store.
const POPPED: &str = "POP messages in flight in RocksDB (popConsumerKVServiceEnable), which is not served: have the broker that wrote them move them to its log (mqadmin exportPopRecord)";

/// Refuses a store with popped messages in RocksDB.
pub(crate) fn refuse(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let database = root.join("kvStore");
    for entry in fs.list(&database).at("list", &database)? {
        let kind = Path::new(&entry.name).extension();
        let has_data = kind.is_some_and(|kind| kind == "sst" || (kind == "log" && entry.length > 0));
        if !entry.is_directory && has_data {
            let path = database;
            return Err(StoreError::Foreign { path, what: POPPED });
        }
    }
    Ok(())
}
