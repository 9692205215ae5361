//! Measures the store and prints the numbers as lines of JSON: `cargo run --release --example store_bench -- [DIR]`.
//!
//! put: one thread, 128 B bodies with the properties that a Java client sends; put_batch: 32 such messages a call;
//! get: 32 messages a pull, first fresh ones, then all from the files; floor: bare positional writes of the same bytes.
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a program for people who measure"
)]
#![allow(clippy::cast_precision_loss, reason = "rates")]

use pyrmq_store::fs::{Fs, RealFs};
use pyrmq_store::{Batch, BatchItem, FlushDiskType, Get, Message, Options, Store, TagFilter};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

const PROPERTIES: &str = "KEYS\u{1}k\u{2}UNIQ_KEY\u{1}7F0000011AE24E0E2F2A6AE802B40001\u{2}CLUSTER\u{1}DefaultCluster\u{2}WAIT\u{1}true\u{2}MSG_REGION\u{1}DefaultRegion\u{2}TRACE_ON\u{1}true\u{2}TAGS\u{1}t\u{2}";

fn host() -> SocketAddr {
    "127.0.0.1:10911".parse().expect("an address")
}

fn message(body: &[u8], queue_id: i32) -> Message<'_> {
    Message {
        topic: "bench",
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host(),
        store_host: host(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: PROPERTIES,
        tags_code: 116,
        unique_key: Some("7F0000011AE24E0E2F2A6AE802B40001"),
        keys: Some("k"),
        tag: Some("t"),
    }
}

fn options(root: &Path, index: bool) -> Options {
    let mut options = Options::new(root);
    options.index = index;
    options
}

/// Nanoseconds that this thread was on a processor: what a busy machine does not change.
fn cpu_ns() -> f64 {
    let text = RealFs
        .read(Path::new("/proc/thread-self/schedstat"))
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

/// Calls `work` for `count` messages: (messages a second, processor microseconds a message).
fn measure(count: usize, work: impl FnOnce()) -> (f64, f64) {
    let (start, cpu) = (Instant::now(), cpu_ns());
    work();
    let cpu = (cpu_ns() - cpu) / 1e3 / count as f64;
    (count as f64 / start.elapsed().as_secs_f64(), cpu)
}

fn fresh(root: &Path) {
    drop(std::fs::remove_dir_all(root));
}

fn put(root: &Path, index: bool, count: usize) -> (f64, f64) {
    fresh(root);
    let store = Store::open(options(root, index), Arc::new(RealFs)).expect("the store opens");
    let body = [7u8; 128];
    measure(count, || {
        for number in 0..count {
            let queue = i32::try_from(number % 8).unwrap();
            store.put(&message(&body, queue)).expect("stored");
        }
    })
}

fn put_threads(root: &Path, threads: usize, each: usize) -> f64 {
    fresh(root);
    let store = Store::open(options(root, true), Arc::new(RealFs)).expect("the store opens");
    let body = [7u8; 128];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let store = &store;
            scope.spawn(move || {
                for number in 0..each {
                    let queue = i32::try_from((thread + number) % 8).unwrap();
                    store.put(&message(&body, queue)).expect("stored");
                }
            });
        }
    });
    (threads * each) as f64 / start.elapsed().as_secs_f64()
}

fn put_batch(root: &Path, index: bool, count: usize) -> ((f64, f64), Arc<Store>) {
    fresh(root);
    let store = Store::open(options(root, index), Arc::new(RealFs)).expect("the store opens");
    let body = [7u8; 128];
    let one = message(&body, 0);
    let item = BatchItem {
        flag: 0,
        body: &body,
        properties: PROPERTIES,
        tags_code: 116,
        unique_key: one.unique_key,
        keys: one.keys,
        tag: one.tag,
    };
    let items = [item; 32];
    let batch = Batch {
        topic: "bench",
        queue_id: 0,
        sys_flag: 0,
        born_timestamp_ms: 1,
        born_host: host(),
        store_host: host(),
        reconsume_times: 0,
        items: &items,
    };
    let rates = measure(count, || {
        for _ in 0..count / 32 {
            store.put_batch(&batch).expect("stored");
        }
    });
    (rates, store)
}

/// Reads everything: (messages a second, processor microseconds a message, megabytes a second).
fn get_all(store: &Store) -> (f64, f64, f64) {
    let (mut offset, mut messages, mut bytes) = (0, 0usize, 0usize);
    let (start, cpu) = (Instant::now(), cpu_ns());
    loop {
        let got = store
            .get(&Get {
                topic: "bench",
                queue_id: 0,
                offset,
                max_count: 32,
                max_bytes: 256 << 10,
                tags: TagFilter::All,
            })
            .expect("an answer");
        if got.count == 0 {
            break;
        }
        messages += got.count;
        bytes += got.body.len();
        offset = got.next_offset;
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = (cpu_ns() - cpu) / 1e3 / messages as f64;
    (messages as f64 / seconds, cpu, bytes as f64 / seconds / 1e6)
}

fn floor(root: &Path, size: usize, count: usize, messages: usize) -> (f64, f64) {
    fresh(root);
    RealFs.create_directories(root).expect("a directory");
    let file = RealFs.create(&root.join("floor")).expect("a file");
    file.set_length(1 << 30).expect("a length");
    let bytes = vec![7u8; size];
    measure(messages, || {
        for number in 0..count {
            file.write_all_at(&bytes, (number * size) as u64)
                .expect("a write");
        }
    })
}

fn sync(root: &Path, senders: usize, each: usize) -> (f64, f64) {
    fresh(root);
    let mut options = options(root, true);
    options.flush = FlushDiskType::Sync;
    let store = Store::open(options, Arc::new(RealFs)).expect("the store opens");
    let body = [7u8; 128];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for sender in 0..senders {
            let store = &store;
            scope.spawn(move || {
                let (done, wait) = mpsc::channel();
                for _ in 0..each {
                    let stored = store
                        .put(&message(&body, i32::try_from(sender % 8).unwrap()))
                        .expect("stored");
                    let done = done.clone();
                    store.when_durable(
                        stored.end_position,
                        Box::new(move |result| done.send(result).expect("a waiter")),
                    );
                    wait.recv().expect("an answer").expect("durable");
                }
            });
        }
    });
    let rate = (senders * each) as f64 / start.elapsed().as_secs_f64();
    (rate, store.stats().flushes as f64)
}

fn main() {
    let root = std::env::args()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("pyrmq-store-bench"), PathBuf::from);
    let count = 1_000_000;
    let floor_one = floor(&root, 352, count, count);
    let floor_batch = floor(&root, 352 * 32, count / 32, count);
    let put_plain = put(&root, false, count);
    let put_index = put(&root, true, count);
    let put_four = put_threads(&root, 4, count / 4);
    let (batch_plain, store) = put_batch(&root, false, 2 * count);
    drop(store);
    let (batch_index, store) = put_batch(&root, true, 2 * count);
    let got = get_all(&store);
    store.close().expect("a clean stop");
    drop(store);
    let start = Instant::now();
    let store = Store::open(options(&root, true), Arc::new(RealFs)).expect("the store opens");
    let open_clean_ms = start.elapsed().as_secs_f64() * 1e3;
    store.close().expect("a clean stop");
    drop(store);
    RealFs.create(&root.join("abort")).expect("an abort file");
    let (start, cpu) = (Instant::now(), cpu_ns());
    let store = Store::open(options(&root, true), Arc::new(RealFs)).expect("the store opens");
    let open_crashed_ms = start.elapsed().as_secs_f64() * 1e3;
    let open_crashed_cpu_ms = (cpu_ns() - cpu) / 1e6;
    drop(store);
    let (sync_one, _) = sync(&root, 1, 500);
    let (sync_many, flushes) = sync(&root, 64, 200);
    fresh(&root);
    let rows = [
        ("floor_1_write", floor_one),
        ("floor_32_a_write", floor_batch),
        ("put", put_plain),
        ("put_indexed", put_index),
        ("put_batch32", batch_plain),
        ("put_batch32_indexed", batch_index),
        ("get32", (got.0, got.1)),
    ];
    for (name, (rate, cpu)) in rows {
        println!("{{\"row\":\"{name}\",\"messages_per_s\":{rate:.0},\"cpu_us_per_message\":{cpu:.3}}}");
    }
    println!(
        "{{\"put_indexed_4_threads_per_s\":{put_four:.0},\"get32_mb_per_s\":{:.0},\"open_clean_ms\":{open_clean_ms:.1},\
         \"open_crashed_ms\":{open_crashed_ms:.1},\"open_crashed_cpu_ms\":{open_crashed_cpu_ms:.1},\
         \"sync_1_sender_per_s\":{sync_one:.0},\"sync_64_senders_per_s\":{sync_many:.0},\"sync_64_flushes\":{flushes:.0}}}",
        got.2
    );
}
