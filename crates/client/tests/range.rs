//! Reading ranges from a scripted broker that answers at once, holds answers, or is away.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyrmq_client::reader::{OnBadMessage, Range, RangeError, RangeReader, ReadOptions};
use pyrmq_columns::{Buffer, Column};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::{BatchItem, NewRecord, Record, batch, sys_flag};
use pyrmq_remoting::net::{
    Client, ClientOptions, Peer, Processor, ProcessorTable, Reply, Server, ServerOptions, Shutdown,
};
use pyrmq_testkit::new_record;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The broker's messages, and its behaviour.
#[derive(Clone)]
struct Script {
    lowest: i64,
    highest: i64,
    at_once: i64,
    busy: u32,
    asked: Vec<(i64, i64)>,
    hold_after: usize,
    /// Number of messages in a record.
    batch: i64,
    /// The broker has removed older messages of a key: those with tag green.
    compacted: bool,
    /// Offset of a message whose body does not decompress, and of one without readable fields.
    bad: (i64, i64),
}

impl Default for Script {
    fn default() -> Self {
        Self {
            lowest: 0,
            highest: 1000,
            at_once: 32,
            busy: 0,
            asked: Vec::new(),
            hold_after: usize::MAX,
            batch: 1,
            compacted: false,
            bad: (-1, -1),
        }
    }
}

struct Broker {
    script: Mutex<Script>,
    waiting: Mutex<Vec<(Command, Reply)>>,
}

impl Processor for Broker {
    fn process(&self, request: Command, _: &Peer, reply: Reply) {
        let mut script = self.script.lock().unwrap();
        if script.asked.len() >= script.hold_after {
            self.waiting.lock().unwrap().push((request, reply));
        } else {
            reply.send(answer(&mut script, &request));
        }
    }
}

fn tag(offset: i64) -> &'static str {
    ["red", "green", "blue"][usize::try_from(offset % 3).unwrap()]
}

/// A batch of messages as one record.
fn batch_record(topic: &str, queue_id: i32, base: i64, count: i64) -> Vec<u8> {
    let mut body = Vec::new();
    for offset in base..base + count {
        let properties = format!("TAGS\u{1}{}\u{2}", tag(offset));
        let item = BatchItem {
            flag: 0,
            body: b"body",
            properties: properties.as_bytes(),
        };
        batch::encode(&item, &mut body).unwrap();
    }
    let mut bytes = Vec::new();
    let plain = record(topic, queue_id, base);
    NewRecord {
        body: &body,
        properties: b"",
        sys_flag: sys_flag::INNER_BATCH | sys_flag::NEED_UNWRAP,
        ..Record::decode(&plain).unwrap().to_new()
    }
    .encode(&mut bytes)
    .unwrap();
    bytes
}

fn record(topic: &str, queue_id: i32, offset: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    NewRecord {
        physical_offset: offset * 100,
        body: b"body",
        properties: format!("TAGS\u{1}{}\u{2}", tag(offset)).as_bytes(),
        ..new_record(topic, queue_id, offset)
    }
    .encode(&mut bytes)
    .unwrap();
    bytes
}

/// The record as it is, or damaged at the offsets that are to be bad.
fn damaged(mut bytes: Vec<u8>, offset: i64, (body, fields): (i64, i64)) -> Vec<u8> {
    if offset == body {
        let mut compressed = Vec::new();
        NewRecord {
            sys_flag: sys_flag::COMPRESSED,
            ..Record::decode(&bytes).unwrap().to_new()
        }
        .encode(&mut compressed)
        .unwrap();
        return compressed;
    }
    if offset == fields {
        // The topic is said to be longer than the record.
        let topic = bytes.windows(6).position(|window| window == b"orders").unwrap();
        bytes[topic - 1] = 0xFF;
    }
    bytes
}

fn answer(script: &mut Script, request: &Command) -> Command {
    let fields: HashMap<&str, &str> = request.fields.iter().collect();
    let number = |key: &str| fields[key].parse::<i64>().unwrap();
    let (from, count) = (number("queueOffset"), number("maxMsgNums"));
    script.asked.push((from, count));
    if script.busy > 0 {
        script.busy -= 1;
        return Command::error(response::SYSTEM_BUSY, "too much to do");
    }
    let reply = |code, next: i64| {
        Command::response(code)
            .with_field("suggestWhichBrokerId", "0")
            .with_field("nextBeginOffset", &next.to_string())
            .with_field("minOffset", &script.lowest.to_string())
            .with_field("maxOffset", &script.highest.to_string())
    };
    if from < script.lowest || from > script.highest {
        return reply(
            response::PULL_OFFSET_MOVED,
            script.lowest.max(from.min(script.highest)),
        );
    }
    if from == script.highest {
        return reply(response::PULL_NOT_FOUND, from);
    }
    let condition = fields["subscription"];
    let wanted: Vec<&str> = match fields["expressionType"] {
        "SQL92" => condition.strip_prefix("TAGS = ").into_iter().collect(),
        _ if script.compacted => vec!["red", "blue"],
        _ => condition.split("||").map(str::trim).collect(),
    };
    let (mut body, mut next, mut given) = (Vec::new(), from, 0);
    if script.batch > 1 {
        next -= next % script.batch;
    }
    while next < script.highest && given < count.min(script.at_once) {
        if script.batch > 1 {
            let queue_id = fields["queueId"].parse().unwrap();
            let count = script.batch.min(script.highest - next);
            body.extend(batch_record(fields["topic"], queue_id, next, count));
            given += count;
            next += count;
            continue;
        }
        if wanted == ["*"] || wanted.contains(&tag(next)) {
            let queue_id = fields["queueId"].parse().unwrap();
            let bytes = record(fields["topic"], queue_id, next);
            body.extend(damaged(bytes, next, script.bad));
            given += 1;
        }
        next += 1;
    }
    if given == 0 {
        return reply(response::PULL_RETRY_IMMEDIATELY, next);
    }
    reply(response::SUCCESS, next).with_body(body)
}

struct Rig {
    runtime: Runtime,
    broker: Arc<Broker>,
    address: SocketAddr,
    shutdown: Shutdown,
    client: Client,
}

impl Rig {
    fn new(script: Script) -> Self {
        let runtime = Runtime::new().unwrap();
        let broker = Arc::new(Broker {
            script: Mutex::new(script),
            waiting: Mutex::default(),
        });
        let client = Client::new(
            runtime.handle(),
            ClientOptions::default(),
            Arc::new(ProcessorTable::new()),
        )
        .unwrap();
        let mut rig = Self {
            runtime,
            broker,
            address: "127.0.0.1:0".parse().unwrap(),
            shutdown: Shutdown::new(),
            client,
        };
        rig.start();
        rig
    }

    /// Starts again on its previous port.
    fn start(&mut self) {
        let mut table = ProcessorTable::new();
        let row: Arc<dyn Processor> = self.broker.clone();
        table.native(&[request::PULL_MESSAGE], &row);
        let _guard = self.runtime.enter();
        let server = Server::bind(
            self.address,
            ServerOptions::default(),
            Arc::new(table),
            Arc::new(()),
        )
        .unwrap();
        self.address = server.local_addr();
        self.shutdown = Shutdown::new();
        let shutdown = self.shutdown.clone();
        drop(
            self.runtime
                .spawn(async move { server.run(shutdown).await.map(drop) }),
        );
    }

    fn range(&self, queue_id: i32, start: i64, end: i64) -> Range {
        Range {
            address: self.address.to_string(),
            broker: "broker-a".to_owned(),
            topic: "orders".to_owned(),
            queue_id,
            start,
            end,
        }
    }

    fn reader(&self, ranges: Vec<Range>, change: impl FnOnce(&mut ReadOptions)) -> RangeReader {
        let mut options = ReadOptions {
            group: "readers".to_owned(),
            tags: "*".to_owned(),
            sql: None,
            compacted: HashSet::new(),
            columns: vec![Column::QueueId, Column::QueueOffset],
            max_rows: 10_000,
            max_bytes: 1 << 20,
            pulls_in_flight: 8,
            timeout: Duration::from_secs(5),
            unreachable_after: Duration::from_secs(5),
            skip_lost: false,
            on_bad: OnBadMessage::Fail,
        };
        change(&mut options);
        RangeReader::new(self.client.clone(), ranges, options)
    }

    fn asked(&self) -> Vec<(i64, i64)> {
        self.broker.script.lock().unwrap().asked.clone()
    }
}

type Rows = Vec<(i32, i64)>;

/// Returns (queue, offset) of every row, and the number of rows of each block.
fn read(reader: &mut RangeReader) -> Result<(Rows, Vec<usize>), RangeError> {
    let (mut rows, mut blocks) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < deadline, "not done: {reader:?}");
        match reader.poll(Duration::from_millis(50)) {
            None => {}
            Some(Ok(None)) => return Ok((rows, blocks)),
            Some(Err(error)) => return Err(error),
            Some(Ok(Some(block))) => {
                let (Some(Buffer::Int32(queues)), Some(Buffer::Int64(offsets))) =
                    (&block.columns[0].buffers[1], &block.columns[1].buffers[1])
                else {
                    panic!("other columns");
                };
                rows.extend(queues.iter().copied().zip(offsets.iter().copied()));
                blocks.push(block.rows);
            }
        }
    }
}

fn offsets(rows: &[(i32, i64)]) -> Vec<i64> {
    rows.iter().map(|(_, offset)| *offset).collect()
}

#[test]
fn a_topic_of_batches_is_read_message_by_message() {
    for batch in [2, 7, 64] {
        let rig = Rig::new(Script {
            batch,
            ..Script::default()
        });
        // Beginning and end within a batch.
        let mut reader = rig.reader(vec![rig.range(0, 3, 997)], |_| ());
        let (rows, _) = read(&mut reader).unwrap();
        assert_eq!(offsets(&rows), (3..997).collect::<Vec<_>>());
        let tags = |options: &mut ReadOptions| "red || blue".clone_into(&mut options.tags);
        let mut reader = rig.reader(vec![rig.range(0, 3, 997)], tags);
        let (rows, _) = read(&mut reader).unwrap();
        let expected: Vec<i64> = (3..997).filter(|offset| offset % 3 != 1).collect();
        assert_eq!(offsets(&rows), expected);
    }
}

#[test]
fn a_range_comes_once_and_in_order_however_much_the_broker_gives() {
    for at_once in [1, 8, 32, 1000, 5000] {
        let rig = Rig::new(Script {
            at_once,
            ..Script::default()
        });
        let (rows, _) = read(&mut rig.reader(vec![rig.range(0, 7, 901)], |_| ())).unwrap();
        assert_eq!(offsets(&rows), (7..901).collect::<Vec<_>>(), "{at_once} at once");
    }
}

#[test]
fn the_step_matches_the_brokers_answers_so_none_is_cut() {
    let rig = Rig::new(Script::default());
    read(&mut rig.reader(vec![rig.range(0, 0, 960)], |_| ())).unwrap();
    assert_eq!(rig.asked().len(), 30, "{:?}", rig.asked());
}

#[test]
fn several_pulls_are_on_their_way() {
    let rig = Rig::new(Script {
        hold_after: 1,
        ..Script::default()
    });
    let mut reader = rig.reader(vec![rig.range(0, 0, 960)], |_| ());
    let deadline = Instant::now() + Duration::from_secs(10);
    while rig.broker.waiting.lock().unwrap().len() < 8 {
        assert!(Instant::now() < deadline, "{reader:?}");
        assert!(reader.poll(Duration::from_millis(5)).is_none());
    }
    let waiting: Vec<_> = {
        let mut script = rig.broker.script.lock().unwrap();
        script.hold_after = usize::MAX;
        rig.broker.waiting.lock().unwrap().drain(..).collect()
    };
    assert_eq!(waiting.len(), 8);
    for (request, reply) in waiting.into_iter().rev() {
        let answer = answer(&mut rig.broker.script.lock().unwrap(), &request);
        reply.send(answer);
    }
    let (rows, _) = read(&mut reader).unwrap();
    assert_eq!(offsets(&rows), (0..960).collect::<Vec<_>>());
}

#[test]
fn blocks_end_at_the_row_limit() {
    let rig = Rig::new(Script::default());
    let (rows, blocks) =
        read(&mut rig.reader(vec![rig.range(0, 0, 100)], |options| options.max_rows = 40)).unwrap();
    assert_eq!(rows.len(), 100);
    assert_eq!(blocks, [40, 40, 20]);
}

#[test]
fn several_ranges_are_read_one_after_the_other() {
    let rig = Rig::new(Script::default());
    let ranges = vec![rig.range(0, 5, 50), rig.range(1, 0, 0), rig.range(2, 10, 75)];
    let (rows, blocks) = read(&mut rig.reader(ranges, |_| ())).unwrap();
    let expected: Vec<_> = (5..50).map(|o| (0, o)).chain((10..75).map(|o| (2, o))).collect();
    assert_eq!(rows, expected);
    assert_eq!(blocks, [110]);
}

#[test]
fn a_tag_filter_leaves_gaps_that_are_no_loss() {
    let rig = Rig::new(Script {
        at_once: 10,
        ..Script::default()
    });
    let ranges = vec![rig.range(0, 0, 100), rig.range(1, 0, 100)];
    let (rows, _) = read(&mut rig.reader(ranges, |options| options.tags = "red || blue".to_owned())).unwrap();
    let expected: Vec<_> = (0..2)
        .flat_map(|queue| (0..100).filter(|o| tag(*o) != "green").map(move |o| (queue, o)))
        .collect();
    assert_eq!(rows, expected);
}

#[test]
fn a_sql_condition_is_left_to_the_broker_and_its_gaps_are_no_loss() {
    let rig = Rig::new(Script::default());
    let (rows, _) = read(&mut rig.reader(vec![rig.range(0, 0, 1000)], |options| {
        options.sql = Some("TAGS = blue".to_owned());
    }))
    .unwrap();
    let expected: Vec<i64> = (0..1000).filter(|offset| tag(*offset) == "blue").collect();
    assert_eq!(offsets(&rows), expected);
}

#[test]
fn gaps_of_a_compacted_topic_are_no_loss() {
    let script = Script {
        compacted: true,
        at_once: 10,
        ..Script::default()
    };
    let expected: Vec<i64> = (0..1000).filter(|offset| tag(*offset) != "green").collect();
    let rig = Rig::new(script.clone());
    let (rows, _) = read(&mut rig.reader(vec![rig.range(0, 0, 1000)], |options| {
        options.compacted = HashSet::from(["orders".to_owned()]);
    }))
    .unwrap();
    assert_eq!(offsets(&rows), expected);
    let rig = Rig::new(script);
    let lost = read(&mut rig.reader(vec![rig.range(0, 0, 1000)], |_| ())).unwrap_err();
    assert!(matches!(lost, RangeError::Expired { from: 1, .. }), "{lost:?}");
}

#[test]
fn a_filter_that_matches_nothing_ends() {
    let rig = Rig::new(Script::default());
    let (rows, _) = read(&mut rig.reader(vec![rig.range(0, 0, 1000)], |options| {
        options.tags = "white".to_owned();
    }))
    .unwrap();
    assert!(rows.is_empty());
}

#[test]
fn an_expired_start_is_an_error_with_both_ranges() {
    let rig = Rig::new(Script {
        lowest: 40,
        ..Script::default()
    });
    let error = read(&mut rig.reader(vec![rig.range(3, 10, 90)], |_| ())).unwrap_err();
    assert!(matches!(
        error,
        RangeError::Expired {
            from: 10,
            lowest: 40,
            highest: 1000,
            ..
        }
    ));
    let text = error.to_string();
    assert!(
        text.contains("offsets 10 to 90 were wanted, it holds 40 to 1000"),
        "{text}"
    );
    assert!(text.contains("topic orders, broker broker-a"), "{text}");
}

#[test]
fn an_expired_start_is_skipped_on_request() {
    let rig = Rig::new(Script {
        lowest: 40,
        ..Script::default()
    });
    let mut reader = rig.reader(vec![rig.range(3, 10, 90)], |options| options.skip_lost = true);
    let (rows, _) = read(&mut reader).unwrap();
    assert_eq!(offsets(&rows), (40..90).collect::<Vec<_>>());
    let lost: i64 = reader.take_lost().iter().map(|lost| lost.to - lost.from).sum();
    assert_eq!(lost, 30);
}

#[test]
fn a_queue_that_is_shorter_than_wanted_is_waited_for() {
    let rig = Rig::new(Script {
        highest: 50,
        ..Script::default()
    });
    let mut reader = rig.reader(vec![rig.range(0, 0, 100)], |_| ());
    for _ in 0..5 {
        assert!(reader.poll(Duration::from_millis(20)).is_none());
    }
    rig.broker.script.lock().unwrap().highest = 200;
    let (rows, _) = read(&mut reader).unwrap();
    assert_eq!(offsets(&rows), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_queue_that_stays_shorter_is_an_error_after_the_timeout() {
    let rig = Rig::new(Script {
        highest: 50,
        ..Script::default()
    });
    let error = read(&mut rig.reader(vec![rig.range(0, 0, 100)], |options| {
        options.timeout = Duration::from_millis(200);
    }))
    .unwrap_err();
    assert!(
        matches!(
            error,
            RangeError::Expired {
                from: 50,
                highest: 50,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_busy_broker_is_retried_and_a_refusal_is_not() {
    let rig = Rig::new(Script {
        busy: 5,
        ..Script::default()
    });
    let (rows, _) = read(&mut rig.reader(vec![rig.range(0, 0, 100)], |_| ())).unwrap();
    assert_eq!(rows.len(), 100);
    let mut unknown = rig.range(0, 0, 10);
    unknown.address = rig.address.to_string();
    let table = ProcessorTable::new();
    let _guard = rig.runtime.enter();
    let other = Server::bind(
        "127.0.0.1:0".parse().unwrap(),
        ServerOptions::default(),
        Arc::new(table),
        Arc::new(()),
    )
    .unwrap();
    unknown.address = other.local_addr().to_string();
    drop(
        rig.runtime
            .spawn(async move { other.run(Shutdown::new()).await.map(drop) }),
    );
    let error = read(&mut rig.reader(vec![unknown], |_| ())).unwrap_err();
    assert!(
        matches!(
            error,
            RangeError::Refused {
                code: response::REQUEST_CODE_NOT_SUPPORTED,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_broker_that_went_away_and_came_back_costs_no_row_and_doubles_none() {
    let mut rig = Rig::new(Script::default());
    let mut reader = rig.reader(vec![rig.range(0, 0, 900)], |options| options.max_rows = 100);
    let mut rows = Vec::new();
    while rows.is_empty() {
        if let Some(Ok(Some(block))) = reader.poll(Duration::from_millis(50)) {
            let Some(Buffer::Int64(offsets)) = &block.columns[1].buffers[1] else {
                panic!("other columns")
            };
            rows.extend(offsets.clone());
        }
    }
    rig.shutdown.stop_now();
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(rig.address).is_ok() {
        assert!(Instant::now() < deadline);
    }
    let _ = reader.poll(Duration::from_millis(100));
    rig.start();
    rows.extend(offsets(&read(&mut reader).unwrap().0));
    let whole = rows.iter().copied().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(whole.len(), rows.len());
    assert_eq!(rows.last(), Some(&899));
    assert!(rows.is_sorted());
}

#[test]
fn an_address_without_a_server_gives_an_error_that_names_it() {
    let rig = Rig::new(Script::default());
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut range = rig.range(0, 0, 10);
    range.address = free.to_string();
    let error = read(&mut rig.reader(vec![range], |options| {
        options.timeout = Duration::from_millis(300);
    }))
    .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, RangeError::Unreachable { .. }), "{text}");
    assert!(text.contains(&free.to_string()), "{text}");
}

#[test]
fn a_reader_goes_on_at_another_address_without_a_gap() {
    let old = Rig::new(Script::default());
    let new = Rig::new(Script::default());
    let mut reader = old.reader(vec![old.range(0, 0, 900), old.range(1, 0, 50)], |options| {
        options.max_rows = 100;
        options.unreachable_after = Duration::from_millis(200);
    });
    let mut rows = Vec::new();
    while rows.is_empty() {
        if let Some(Ok(Some(block))) = reader.poll(Duration::from_millis(50)) {
            let Some(Buffer::Int64(offsets)) = &block.columns[1].buffers[1] else {
                panic!("other columns")
            };
            rows.extend(offsets.clone());
        }
    }
    old.shutdown.stop_now();
    let error = loop {
        match reader.poll(Duration::from_millis(50)) {
            Some(Ok(Some(block))) => {
                let Some(Buffer::Int64(offsets)) = &block.columns[1].buffers[1] else {
                    panic!("other columns")
                };
                rows.extend(offsets.clone());
            }
            Some(Ok(None)) => panic!("read everything from a broker that is stopped"),
            Some(Err(error)) => break error,
            None => {}
        }
    };
    assert!(matches!(error, RangeError::Unreachable { .. }), "{error}");
    let addresses = HashMap::from([("broker-a".to_owned(), new.address.to_string())]);
    reader.resume(&addresses);
    rows.extend(offsets(&read(&mut reader).unwrap().0));
    let expected: Vec<i64> = (0..900).chain(0..50).collect();
    assert_eq!(rows, expected);
}

#[test]
fn a_bad_message_fails_the_read_or_is_null_or_left_out() {
    let rig = Rig::new(Script {
        bad: (40, 60),
        ..Script::default()
    });
    let read_with = |on_bad| {
        let mut reader = rig.reader(vec![rig.range(0, 0, 100)], |options| {
            options.on_bad = on_bad;
            options.columns = vec![Column::QueueId, Column::QueueOffset, Column::Body];
        });
        let rows = read(&mut reader).map(|(rows, _)| offsets(&rows));
        let bad: Vec<i64> = reader.take_unreadable().iter().map(|bad| bad.offset).collect();
        (rows, bad)
    };
    let (failed, _) = read_with(OnBadMessage::Fail);
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("broker broker-a"), "{text}");
    assert!(text.contains("queue 0: the message at offset 40"), "{text}");
    let (rows, bad) = read_with(OnBadMessage::Null);
    assert_eq!(rows.unwrap(), (0..100).filter(|at| *at != 60).collect::<Vec<_>>());
    assert_eq!(bad, [40, 60]);
    let (rows, bad) = read_with(OnBadMessage::Skip);
    let left: Vec<i64> = (0..100).filter(|at| ![40, 60].contains(at)).collect();
    assert_eq!(rows.unwrap(), left);
    assert_eq!(bad, [40, 60]);
}
