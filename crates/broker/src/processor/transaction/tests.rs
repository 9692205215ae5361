//! Transactions with one unique id, step by step.

use super::check::{check, commit_progress};
use super::end::end;
use crate::context::BrokerContext;
use crate::delivery::transactions::Transactions;
use crate::message::properties::{self, names};
use crate::options::Options;
use crate::processor::site::{Line, Site, in_time};
use pyrmq_remoting::body::TopicConfig;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::transaction::EndTransactionRequestHeader;
use pyrmq_remoting::message::sys_flag;
use pyrmq_remoting::names::{HALF_TOPIC, OP_HALF_TOPIC, PERM_READ, PERM_WRITE, TRANSACTION_GROUP};
use pyrmq_remoting::{Command, clock};
use pyrmq_store::{NewMessage, Stored};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const ID: &str = "0A01";
const COMMIT: i32 = sys_flag::TRANSACTION_COMMIT;
const ROLLBACK: i32 = sys_flag::TRANSACTION_ROLLBACK;

fn site() -> Site {
    let site = Site::new();
    let topic = || TopicConfig::new("T", 1, PERM_READ | PERM_WRITE);
    site.context.topics.get_or_put("T", topic).unwrap();
    site
}

/// Stores a half, of which the tables learn nothing.
fn store_half(context: &BrokerContext, more: &[(&str, &str)]) -> Stored {
    store_half_of(context, 0, more)
}

/// Stores a half of a transaction whose first one is at a position; 0: this is the first one.
fn store_half_of(context: &BrokerContext, first: i64, more: &[(&str, &str)]) -> Stored {
    let mut text = String::new();
    let pairs = [
        (names::UNIQ_KEY, ID),
        (names::PGROUP, "producers"),
        (names::REAL_TOPIC, "T"),
        (names::REAL_QID, "0"),
    ];
    for (name, value) in pairs.iter().chain(more) {
        properties::append(&mut text, name, value);
    }
    let host = "127.0.0.1:1".parse().unwrap();
    let half = NewMessage {
        topic: HALF_TOPIC,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: clock::now_ms() - 1000,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: first,
        body: b"x",
        properties: text.into(),
        tags_code: 0,
        unique_key: Some(ID),
        keys: None,
        tag: None,
    };
    context.store.put(&half).unwrap()
}

/// What a copy says of where its first half is.
fn first_of(half: &Stored) -> i64 {
    half.physical_offset.max(1)
}

fn begin(context: &BrokerContext) -> Stored {
    let half = store_half(context, &[]);
    context.transactions.began(&context.offsets, ID, &half);
    half
}

/// Makes a pass of the check, for which no half is too young. A pass ends at what was stored in its own millisecond.
fn pass(context: &BrokerContext) {
    context.live.set(&Options {
        transaction_time_out: 1,
        ..Options::default()
    });
    std::thread::sleep(Duration::from_millis(2));
    check(context).unwrap();
}

/// Makes the open transaction one of the last run.
fn find_at_start(context: &BrokerContext) {
    let mut tables = context.transactions.tables();
    tables.last_run_end = context.store.end_position();
    tables.open.get_mut(ID).unwrap().found = true;
}

/// Whether the transaction ended; an error if that was refused.
fn try_end(context: &BrokerContext, half: &Stored, how: i32, may_search: bool) -> Result<bool, String> {
    let header = EndTransactionRequestHeader {
        producer_group: "producers",
        tran_state_table_offset: half.queue_offset,
        commit_log_offset: half.physical_offset,
        commit_or_rollback: how,
        msg_id: ID,
        topic: None,
        from_transaction_check: None,
        transaction_id: None,
    };
    let request = Command::request(request::END_TRANSACTION).with_header(&header);
    let (peer, _) = Line::peer(1);
    let answer = end(context, &request, &peer, may_search).map_err(|refusal| refusal.remark)?;
    Ok(answer.is_some())
}

#[tokio::test]
async fn transactions_with_one_unique_id_end_each_for_itself() {
    for (first, second, stored) in [
        (COMMIT, COMMIT, 2),
        (ROLLBACK, COMMIT, 1),
        (COMMIT, ROLLBACK, 1),
        (ROLLBACK, ROLLBACK, 0),
    ] {
        let site = site();
        let (one, two) = (begin(&site.context), begin(&site.context));
        assert_eq!(try_end(&site.context, &one, first, false), Ok(true));
        assert_eq!(try_end(&site.context, &two, second, false), Ok(true));
        for half in [&one, &two] {
            try_end(&site.context, half, COMMIT, false).unwrap_err();
        }
        assert_eq!(site.context.store.max_offset("T", 0), stored);
    }
}

#[tokio::test]
async fn a_half_that_is_stored_while_an_end_waits_for_a_search_keeps_its_transaction() {
    for (first, stored) in [(ROLLBACK, 1), (COMMIT, 2)] {
        let site = site();
        let context = &site.context;
        let one = begin(context);
        find_at_start(context);
        assert_eq!(
            try_end(context, &one, first, false),
            Ok(false),
            "it waits for a search"
        );
        let two = begin(context);
        pass(context);
        assert_eq!(try_end(context, &one, first, true), Ok(true));
        assert_eq!(try_end(context, &two, COMMIT, false), Ok(true));
        assert_eq!(context.store.max_offset("T", 0), stored);
    }
}

#[tokio::test]
async fn the_end_of_an_earlier_transaction_that_waits_for_a_search_counts_although_the_check_searched_for_it()
{
    let site = site();
    let context = &site.context;
    let one = begin(context);
    find_at_start(context);
    assert_eq!(try_end(context, &one, COMMIT, false), Ok(false));
    pass(context);
    begin(context);
    for _ in 0..3 {
        pass(context);
    }
    assert!(done(context) > 1);
    assert_eq!(try_end(context, &one, COMMIT, true), Ok(true));
    assert_eq!(context.store.max_offset("T", 0), 1);
}

#[tokio::test]
async fn a_half_that_is_stored_while_an_earlier_one_is_given_up_keeps_its_transaction() {
    let site = site();
    let context = site.context.clone();
    let checked = [(names::TRANSACTION_CHECK_TIMES, "1000000")];
    let one = store_half(&context, &checked);
    context.transactions.began(&context.offsets, ID, &one);
    site.disk.hang_writes(true);
    let checking = context.clone();
    let checking = std::thread::spawn(move || pass(&checking));
    let busy = || context.store.health().busy.held_now_ms > 0;
    in_time("it is being given up", busy).await;
    let two = Stored {
        queue_offset: one.queue_offset + 1,
        physical_offset: one.end_position,
        ..one.clone()
    };
    context.transactions.began(&context.offsets, ID, &two);
    site.disk.hang_writes(false);
    checking.join().unwrap();
    assert!(context.transactions.tables().is_last(ID, two.physical_offset));
}

#[tokio::test]
async fn the_last_of_two_halves_that_are_listed_out_of_order_is_checked() {
    let site = site();
    let context = &site.context;
    let (one, two) = (store_half(context, &[]), store_half(context, &[]));
    context.transactions.began(&context.offsets, ID, &two);
    context.transactions.began(&context.offsets, ID, &one);
    assert!(context.transactions.tables().is_last(ID, two.physical_offset));
    assert_eq!(try_end(context, &one, ROLLBACK, false), Ok(true));
    assert_eq!(try_end(context, &two, COMMIT, false), Ok(true));
}

/// How far the check is done with the halves, as a restart would know it.
fn done(context: &BrokerContext) -> i64 {
    let done = context.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0);
    done.unwrap_or_default()
}

#[tokio::test]
async fn a_half_that_is_listed_behind_a_pass_of_the_check_is_checked() {
    let site = site();
    let context = &site.context;
    let half = store_half(context, &[]);
    pass(context);
    context.transactions.began(&context.offsets, ID, &half);
    assert_eq!(done(context), half.queue_offset, "a restart knows it, too");
    pass(context);
    assert_eq!(context.store.max_offset(HALF_TOPIC, 0), 2, "it was written again");
    assert_eq!(done(context), half.queue_offset + 1);
    assert_eq!(try_end(context, &half, COMMIT, false), Ok(true));
}

#[tokio::test]
async fn the_check_does_not_pass_a_new_half_that_is_not_listed_yet() {
    let site = site();
    let context = &site.context;
    let half = store_half(context, &[]);
    std::thread::sleep(Duration::from_millis(2));
    check(context).unwrap();
    assert_eq!(done(context), half.queue_offset);
}

/// The offsets of the halves that a broker which starts now will check: each open transaction has one.
fn open_after_restart(context: &BrokerContext) -> Vec<i64> {
    let loaded = Transactions::load(&context.store, Some(done(context)), None).unwrap();
    let tables = loaded.tables();
    tables.open.values().map(|open| open.half_offset).collect()
}

fn close(context: &BrokerContext, half: &Stored) {
    let (store, host) = (&context.store, context.store_host());
    context
        .transactions
        .write_op(store, host, half.queue_offset)
        .unwrap();
}

#[tokio::test]
async fn after_a_restart_the_end_of_one_half_counts_for_all_of_its_transaction() {
    let checked = [(names::TRANSACTION_CHECK_TIMES, "1")];
    for closed in [0, 1, 2] {
        let site = site();
        let context = &site.context;
        let first = store_half(context, &[]);
        let again = |_| store_half_of(context, first_of(&first), &checked);
        let halves = [first.clone(), again(1), again(2)];
        assert_eq!(open_after_restart(context), [2]);
        close(context, &halves[closed]);
        assert_eq!(open_after_restart(context), [0; 0], "closed: {closed}");
        let resumed = [(names::TRANSACTION_CHECK_TIMES, "0")];
        store_half_of(context, first_of(&first), &resumed);
        assert_eq!(open_after_restart(context), [3], "request 323 opens it again");
    }
}

#[tokio::test]
async fn a_restart_lists_the_last_transaction_although_an_earlier_one_was_copied() {
    let site = site();
    let context = &site.context;
    let (one, _) = (store_half(context, &[]), store_half(context, &[]));
    let checked = [(names::TRANSACTION_CHECK_TIMES, "1")];
    store_half_of(context, first_of(&one), &checked);
    for done in [0, 1] {
        context.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, done);
        assert_eq!(open_after_restart(context), [1]);
    }
}

/// Lets a pass of the check write a half again. `meanwhile` runs while that write hangs.
async fn write_again(site: &Site, meanwhile: impl FnOnce(&BrokerContext)) {
    site.disk.hang_writes(true);
    let context = site.context.clone();
    let checking = std::thread::spawn(move || pass(&context));
    let busy = || site.context.store.health().busy.held_now_ms > 0;
    in_time("it is being written again", busy).await;
    meanwhile(&site.context);
    site.disk.hang_writes(false);
    checking.join().unwrap();
}

#[tokio::test]
async fn a_half_whose_transaction_ended_while_it_was_written_is_closed_before_the_check_passes_the_end() {
    let site = site();
    let context = &site.context;
    let half = begin(context);
    write_again(&site, |context| {
        // An end whose op message follows.
        context.transactions.tables().remove(ID, first_of(&half));
    })
    .await;
    assert_eq!(done(context), 1);
    let ops = context.store.max_offset(OP_HALF_TOPIC, 0);
    assert_eq!((ops, open_after_restart(context)), (1, vec![]));
}

#[tokio::test]
async fn a_transaction_whose_end_is_refused_while_its_half_is_written_again_stays_open() {
    let site = site();
    let context = &site.context;
    let half = begin(context);
    let set_ending = |context: &BrokerContext, ending| {
        let mut tables = context.transactions.tables();
        tables.get_mut(ID, first_of(&half)).unwrap().ending = ending;
    };
    write_again(&site, |context| set_ending(context, true)).await;
    pass(context);
    assert_eq!(done(context), 0, "its end may need it");
    set_ending(context, false);
    pass(context);
    assert_eq!(open_after_restart(context), [2], "written again once more");
    assert_eq!(try_end(context, &half, ROLLBACK, false), Ok(true));
    assert_eq!(open_after_restart(context), [0; 0]);
}

#[tokio::test]
async fn progress_ends_in_front_of_an_op_message_that_was_listed_late() {
    let site = site();
    let context = &site.context;
    {
        let mut tables = context.transactions.tables();
        tables.list_op(6, 1);
        tables.list_op(5, 9);
    }
    let progress = || context.offsets.get(TRANSACTION_GROUP, OP_HALF_TOPIC, 0);
    commit_progress(context, 0, 2);
    assert_eq!(progress(), None, "the half 9 is not done");
    commit_progress(context, 2, 10);
    assert_eq!(progress(), Some(7));
}

/// An op message gets its offset before it is listed. The check may come in between.
#[tokio::test]
async fn progress_ends_in_front_of_an_op_message_that_is_stored_and_not_listed() {
    let site = site();
    let context = &site.context;
    let (one, two) = (begin(context), begin(context));
    let progress = |context: &BrokerContext| context.offsets.get(TRANSACTION_GROUP, OP_HALF_TOPIC, 0);
    let (in_between, meanwhile) = (Arc::downgrade(context), Arc::new(OnceLock::new()));
    let seen = meanwhile.clone();
    let is_first = AtomicBool::new(true);
    context.store.on_arrival(Arc::new(move |arrival| {
        if arrival.topic == OP_HALF_TOPIC && is_first.swap(false, Ordering::Relaxed) {
            let context = in_between.upgrade().unwrap();
            assert_eq!(try_end(&context, &one, ROLLBACK, false), Ok(true));
            pass(&context);
            seen.set((done(&context), progress(&context))).unwrap();
        }
    }));
    assert_eq!(try_end(context, &two, ROLLBACK, false), Ok(true));
    let (halves, ops) = *meanwhile.get().unwrap();
    assert_eq!(halves, 1, "the second one is not done");
    let loaded = Transactions::load(&context.store, Some(halves), ops).unwrap();
    assert_eq!(loaded.open(), 0, "both were rolled back");
    pass(context);
    assert_eq!((done(context), progress(context)), (2, Some(2)));
}
