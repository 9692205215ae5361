//! Sends load to an echo processor over loopback and prints requests per second and CPU per request of both sides.
//!
//! `cargo run --release -p pyrmq-remoting --features net --example load -- [SECONDS] [BODY BYTES]`
//! The server is a separate process (this program again), so that each side's CPU is measured separately.
#![allow(
    clippy::cast_precision_loss,
    clippy::needless_pass_by_value,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool"
)]

use pyrmq_remoting::Command;
use pyrmq_remoting::net::{
    Client, ClientOptions, Peer, Processor, ProcessorTable, Reply, Server, ServerOptions, Shutdown,
};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

const ECHO: i32 = 10;

fn main() {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some("server") {
        return serve();
    }
    let seconds = first.map_or(3, |text| text.parse().unwrap());
    let body = args.next().map_or(128, |text| text.parse().unwrap());
    let mut server = Process::new(std::env::current_exe().unwrap())
        .arg("server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut address)
        .unwrap();
    println!(
        "{:>11} {:>6} {:>12} {:>14} {:>14}",
        "connections", "depth", "requests/s", "server us/req", "client us/req"
    );
    for (connections, depth) in [(1, 1), (1, 32), (1, 1000), (8, 1), (8, 32), (64, 1)] {
        load(
            address.trim(),
            server.id(),
            connections,
            depth,
            body,
            Duration::from_secs(seconds),
        );
    }
    drop(server.stdin.take());
    server.wait().unwrap();
}

fn serve() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut table = ProcessorTable::new();
    let echo: Arc<dyn Processor> = Arc::new(|request: Command, _: &Peer, reply: Reply| {
        reply.send(Command {
            fields: request.fields,
            body: request.body,
            ..Command::response(0)
        });
    });
    table.native(&[ECHO], &echo);
    let server = Server::bind(
        "127.0.0.1:0".parse().unwrap(),
        ServerOptions::default(),
        Arc::new(table),
        Arc::new(()),
    )
    .unwrap();
    println!("{}", server.local_addr());
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    // The parent closes our standard input when it is done.
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        stop.stop();
    });
    runtime.block_on(server.run(shutdown)).unwrap();
}

struct Load {
    client: Client,
    address: String,
    body: bytes::Bytes,
    done: AtomicU64,
    stop: AtomicBool,
}

/// One slot of the pipeline: its answer sends the next request.
fn next(load: Arc<Load>) {
    let command = Command::request(ECHO)
        .with_field("a", "pyrmq_load_group")
        .with_field("b", "TopicOfTheLoad")
        .with_field("e", "3")
        .with_field("g", "1700000000000")
        .with_body(load.body.clone());
    let again = load.clone();
    load.client
        .request_with(&load.address, command, Duration::from_secs(10), move |result| {
            result.unwrap();
            again.done.fetch_add(1, Ordering::Relaxed);
            if !again.stop.load(Ordering::Relaxed) {
                next(again);
            }
        });
}

fn load(address: &str, server: u32, connections: usize, depth: usize, body: usize, time: Duration) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let loads: Vec<_> = (0..connections)
        .map(|_| {
            let client = Client::new(
                runtime.handle(),
                ClientOptions::default(),
                Arc::new(ProcessorTable::new()),
            )
            .unwrap();
            Arc::new(Load {
                client,
                address: address.to_owned(),
                body: vec![b'x'; body].into(),
                done: AtomicU64::new(0),
                stop: AtomicBool::new(false),
            })
        })
        .collect();
    for load in &loads {
        for _ in 0..depth {
            next(load.clone());
        }
    }
    std::thread::sleep(time / 4);
    let count = || {
        loads
            .iter()
            .map(|load| load.done.load(Ordering::Relaxed))
            .sum::<u64>()
    };
    let (start, done, cpu) = (
        Instant::now(),
        count(),
        [cpu_us(server), cpu_us(std::process::id())],
    );
    std::thread::sleep(time);
    let requests = (count() - done) as f64;
    let rate = requests / start.elapsed().as_secs_f64();
    let per_request = |before: f64, pid: u32| (cpu_us(pid) - before) / requests;
    println!(
        "{connections:>11} {depth:>6} {rate:>12.0} {:>14.2} {:>14.2}",
        per_request(cpu[0], server),
        per_request(cpu[1], std::process::id())
    );
    for load in &loads {
        load.stop.store(true, Ordering::Relaxed);
    }
    std::thread::sleep(Duration::from_millis(50));
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// User and system time of a process in microseconds (Linux: ticks of 10 ms).
fn cpu_us(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 * 10_000.0
}
