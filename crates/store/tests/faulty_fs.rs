//! The faulty disk: the effect of each fault on file operations, and its end.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use pyrmq_store::RealFs;
use pyrmq_store::fs::{DiskFaults, FaultyFs, Fs};
use pyrmq_testkit::TempDir;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn faulty() -> (FaultyFs, TempDir) {
    (FaultyFs::new(Arc::new(RealFs)), TempDir::new().unwrap())
}

#[test]
fn a_full_disk_accepts_this_many_bytes_and_reports_it() {
    let (fs, home) = faulty();
    let file = fs.create(&home.path().join("log")).unwrap();
    fs.change(|faults| faults.free_bytes = Some(10));
    file.write_all_at(b"12345678", 0).unwrap();
    assert_eq!(fs.space(home.path()).unwrap().free, 2);
    let error = file.write_all_at(b"123", 8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    file.write_all_at(b"90", 8).unwrap();
    assert_eq!(
        fs.create(&home.path().join("more")).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    assert_eq!(file.set_length(100).unwrap_err().kind(), ErrorKind::StorageFull);
    fs.remove(&home.path().join("log")).unwrap();
    fs.change(|faults| *faults = DiskFaults::default());
    fs.create(&home.path().join("more")).unwrap();
}

#[test]
fn failing_writes_reads_and_syncs_are_distinguished() {
    let (fs, home) = faulty();
    let path = home.path().join("log");
    let file = fs.create(&path).unwrap();
    file.write_all_at(b"here", 0).unwrap();
    fs.change(|faults| faults.fail_writes = true);
    assert!(file.write_all_at(b"x", 0).is_err());
    assert!(fs.rename(&path, &home.path().join("other")).is_err());
    assert!(fs.remove(&path).is_err());
    file.sync().unwrap();
    fs.change(|faults| {
        *faults = DiskFaults {
            fail_syncs: true,
            ..DiskFaults::default()
        };
    });
    file.write_all_at(b"that", 0).unwrap();
    assert!(file.sync().is_err());
    assert!(fs.sync_directory(home.path()).is_err());
    assert!(fs.sync_all(home.path()).is_err());
    assert_eq!(fs.read(&path).unwrap(), b"that");
    fs.change(|faults| faults.fail_reads = true);
    assert!(fs.read(&path).is_err());
    assert!(file.read_at(&mut [0; 4], 0).is_err());
    assert!(file.read_cached(&mut [0; 4], 0).is_err());
}

#[test]
fn a_slow_disk_delays_writes_and_syncs() {
    let (fs, home) = faulty();
    let file = fs.create(&home.path().join("log")).unwrap();
    fs.change(|faults| faults.slow = Duration::from_millis(30));
    let began = Instant::now();
    file.write_all_at(b"x", 0).unwrap();
    file.sync().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(60));
}
