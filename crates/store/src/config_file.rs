//! Configuration files (`config/*.json`) that survive a crash (Apache `ConfigManager`, `MixAll.string2File`).
//!
//! ```text
//! save   write NAME.tmp, fsync; move NAME to NAME.bak; move NAME.tmp to NAME; fsync the directory
//! load   NAME; if it is missing, empty or incomplete: NAME.bak, with `Loaded::Backup`
//! ```
//! At every moment one of the two is complete.

use crate::error::StoreError;
use crate::fs::{Context, Fs, make_directories, parent, with_suffix};
use pyrmq_remoting::WireError;
use pyrmq_remoting::body::{Body, Json};
use std::io;
use std::path::Path;

/// Where a configuration came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// From the file itself.
    Main(String),
    /// From the backup.
    Backup {
        /// The backup's text.
        text: String,
        /// Why the file itself was not used.
        reason: String,
    },
    /// There is neither file nor backup.
    Missing,
}

impl Loaded {
    /// The text, if there was any.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Main(text) | Self::Backup { text, .. } => Some(text),
            Self::Missing => None,
        }
    }
}

/// Writes `text` so that either the old or the new content survives whatever happens.
pub fn save(fs: &dyn Fs, path: &Path, text: &str) -> Result<(), StoreError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    make_directories(fs, directory).at("create", directory)?;
    let is_first = !fs.exists(path).at("look for", path)?;
    if is_first {
        // The directory's own name may not be durable yet: its fsync may have failed when an earlier call created it.
        // An existing file proves that it is.
        fs.sync_directory(parent(directory)).at("flush", directory)?;
    }
    let new = with_suffix(path, ".tmp");
    let file = fs.create(&new).at("create", &new)?;
    file.write_all_at(text.as_bytes(), 0).at("write", &new)?;
    file.sync().at("flush", &new)?;
    if !is_first {
        let backup = with_suffix(path, ".bak");
        fs.rename(path, &backup).at("rename", path)?;
    }
    fs.rename(&new, path).at("rename", &new)?;
    fs.sync_directory(directory).at("flush", directory)
}

/// Maximum number of values that references in a file may expand to.
const MAX_REFERENCED: usize = 100_000;

/// Reads a text as a table's body. A complete one has the member `table`.
pub fn parse<T: Body>(text: &str, table: &'static str) -> Result<T, WireError> {
    let mut json = Json::parse(text.as_bytes())?;
    json.resolve(MAX_REFERENCED);
    if json.get(table).is_none() {
        return Err(WireError::MissingField(table));
    }
    T::read(json, "body")
}

/// Reads the file. `check` returns what is wrong with a text (a parser's error), so that half a file is not used.
pub fn load(
    fs: &dyn Fs,
    path: &Path,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<Loaded, StoreError> {
    let loaded = find(fs, path, check)?;
    if let Loaded::Backup { reason, .. } = &loaded {
        tracing::warn!(file = %path.display(), %reason, "configuration taken from the backup");
    }
    Ok(loaded)
}

/// Like [`load`], but without a warning, for a look at a file that is loaded later.
pub(crate) fn find(
    fs: &dyn Fs,
    path: &Path,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<Loaded, StoreError> {
    let reason = match read(fs, path, &check)? {
        Ok(text) => return Ok(Loaded::Main(text)),
        Err(reason) => reason,
    };
    let backup = with_suffix(path, ".bak");
    match read(fs, &backup, &check)? {
        Ok(text) => {
            let reason = reason.unwrap_or_else(|| "missing".to_owned());
            Ok(Loaded::Backup { text, reason })
        }
        Err(other) => match reason.or(other) {
            None => Ok(Loaded::Missing),
            Some(reason) => Err(StoreError::BadConfigFile {
                path: path.to_owned(),
                reason,
            }),
        },
    }
}

/// The inner error says why the text is unusable; `None` if there is no file.
type Text = Result<String, Option<String>>;

fn read(fs: &dyn Fs, path: &Path, check: impl Fn(&str) -> Result<(), String>) -> Result<Text, StoreError> {
    let bytes = match fs.read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(None)),
        Err(error) => return Err(StoreError::io("read", path, &error)),
    };
    let Ok(text) = String::from_utf8(bytes) else {
        return Ok(Err(Some("not UTF-8".to_owned())));
    };
    if text.trim().is_empty() {
        return Ok(Err(Some("empty".to_owned())));
    }
    Ok(match check(&text) {
        Ok(()) => Ok(text),
        Err(reason) => Err(Some(reason)),
    })
}
