//! A value that is made from files, and made again when they change.
//!
//! The files are checked when the value is needed, which is once for each handshake: no timer runs, and a client that
//! opens no connection reads no files.

use super::error::TlsError;
use super::files::Pem;
use crate::sync::lock;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a check of the files holds: a change is in force within a second.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

type Make<T> = Box<dyn Fn() -> Result<Arc<T>, TlsError> + Send + Sync>;
type Versions = Vec<Option<(i64, i64, u64, u64)>>;

pub(super) struct Reload<T> {
    make: Make<T>,
    files: Vec<Pem>,
    // Guards the value in force, and makes changes one after the other.
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    versions: Versions,
    checked: Instant,
    /// Why the files could not be used when they were last read, so that it is logged once.
    refused: Option<String>,
}

fn versions(files: &[Pem]) -> Versions {
    files.iter().map(Pem::version).collect()
}

impl<T> Reload<T> {
    /// Makes the value for the first time.
    pub(super) fn new(files: Vec<Pem>, make: Make<T>) -> Result<Self, TlsError> {
        Self::new_at(Instant::now(), files, make)
    }

    fn new_at(now: Instant, files: Vec<Pem>, make: Make<T>) -> Result<Self, TlsError> {
        // Before the files are read: a change meanwhile is seen by the next check.
        let versions = versions(&files);
        let state = State {
            value: make()?,
            versions,
            checked: now,
            refused: None,
        };
        Ok(Self {
            make,
            files,
            state: Mutex::new(state),
        })
    }

    /// Returns the value in force.
    pub(super) fn current(&self) -> Arc<T> {
        self.current_at(Instant::now())
    }

    fn current_at(&self, now: Instant) -> Arc<T> {
        let mut state = lock(&self.state);
        // A handshake that waited for the lock may be older than the last check.
        if now.saturating_duration_since(state.checked) < CHECK_INTERVAL {
            return state.value.clone();
        }
        state.checked = now;
        let versions = versions(&self.files);
        if versions == state.versions {
            return state.value.clone();
        }
        match (self.make)() {
            Ok(value) => {
                (state.value, state.versions, state.refused) = (value, versions, None);
                tracing::info!(files = ?self.files, "certificates and keys were read again");
            }
            // They are read again by the next check: the cause may go without a change of the files, as a clock, an
            // owner or a lack of descriptors does.
            Err(error) => {
                let text = error.to_string();
                if state.refused.as_ref() != Some(&text) {
                    tracing::error!(%error, "the certificates and keys from before stay in force");
                    state.refused = Some(text);
                }
            }
        }
        state.value.clone()
    }
}

impl<T> fmt::Debug for Reload<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECK_INTERVAL, Reload};
    use crate::net::socket::tls::error::TlsError;
    use crate::net::socket::tls::files::Pem;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a file of the test")]
    fn a_change_is_seen_within_a_second_by_looking_at_the_files_twice_a_second() {
        let path = std::env::temp_dir().join(format!("pyrmq-reload-in-time-{}", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        let (reads, began) = (AtomicU32::new(0), Instant::now());
        let make = move || Ok(Arc::new(reads.fetch_add(1, Ordering::Relaxed)));
        let reload = Reload::new_at(began, vec![Pem::File(path.clone())], Box::new(make)).unwrap();
        std::fs::write(&path, "renewed").unwrap();
        let at = |millis| *reload.current_at(began + Duration::from_millis(millis));
        assert_eq!((at(0), at(499)), (0, 0));
        assert_eq!(at(999), 1);
        // Nothing has changed since.
        assert_eq!((at(1500), at(2100)), (1, 1));
        std::fs::write(&path, "renewed again").unwrap();
        // A handshake that began before the last look.
        assert_eq!(at(1700), 1);
        assert_eq!(at(3099), 2);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a file of the test")]
    fn files_that_were_refused_are_read_again_without_another_change() {
        let path = std::env::temp_dir().join(format!("pyrmq-reload-{}", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        let reads = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&reads);
        // The second reading fails, as with a certificate that is valid in a moment only.
        let make = move || match counted.fetch_add(1, Ordering::Relaxed) {
            1 => Err(TlsError::Setting("not yet valid".to_owned())),
            read => Ok(Arc::new(read)),
        };
        let began = Instant::now();
        let reload = Reload::new_at(began, vec![Pem::File(path.clone())], Box::new(make)).unwrap();
        std::fs::write(&path, "renewed").unwrap();
        let looks = (1..4).map(|check| *reload.current_at(began + CHECK_INTERVAL * check));
        assert_eq!(looks.collect::<Vec<_>>(), [0, 2, 2]);
        assert_eq!(reads.load(Ordering::Relaxed), 3);
        std::fs::remove_file(&path).unwrap();
    }
}
