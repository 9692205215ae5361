//! Accounts of 4.x: their files, what changes them, and what they decide.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use pyrmq_auth::plain::{Accounts, Change, Files, PlainGuard, Version, changed};
use pyrmq_auth::{AuthError, Credentials, Secret};
use pyrmq_remoting::body::{Body, ConsumerData, HeartbeatData, SubscriptionData};
use pyrmq_remoting::codes::request::{self, REQUEST_CODES};
use pyrmq_remoting::net::RequestSigner;
use pyrmq_remoting::{Command, Fields};
use std::net::IpAddr;

const FILE: &str = r#"
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.{5,7}
accounts:
  - accessKey: orderly
    secretKey: 12345678      # a number to YAML, the same text to us
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - orders=PUB|SUB
      - bills = SUB
      - "%RETRY%bakery=SUB"
    groupPerms: [kitchen=SUB, cellar=DENY]
    owner: team a            # unknown, kept
  - accessKey: rocketmq2
    secretKey: "12345678"
    whiteRemoteAddress: 192.168.1.*
    admin: true
  - accessKey: keeper99
    secretKey: keeper-secret
    admin: yes
    topicPerms: [orders=SUB]
"#;
const MAIN: &str = "/home/conf/plain_acl.yml";

fn files(text: &str) -> Files {
    vec![(MAIN.to_owned(), text.as_bytes().to_vec())]
}

fn guard() -> PlainGuard {
    PlainGuard::new(Accounts::parse(&files(FILE)).unwrap())
}

fn signed(user: &str, secret: &str, mut command: Command) -> Command {
    let credentials = Credentials::new(user, &Secret::new(secret), None).unwrap();
    credentials.sign(&mut command);
    command
}

fn refusal_from(command: &Command, address: &str) -> Option<String> {
    let source: IpAddr = address.parse().unwrap();
    guard().refusal(command, source)
}

fn refusal(user: &str, command: Command) -> Option<String> {
    let secret = if user == "keeper99" {
        "keeper-secret"
    } else {
        "12345678"
    };
    refusal_from(&signed(user, secret, command), "127.0.0.1")
}

fn send(topic: &str) -> Command {
    Command::request(request::SEND_MESSAGE_V2)
        .with_field("a", "kitchen")
        .with_field("b", topic)
}

fn pull(topic: &str, group: &str) -> Command {
    Command::request(request::PULL_MESSAGE)
        .with_field("topic", topic)
        .with_field("consumerGroup", group)
}

#[test]
fn a_request_needs_an_account_and_its_signature() {
    let unsigned = refusal_from(&send("orders"), "127.0.0.1");
    assert_eq!(unsigned.as_deref(), Some("No accessKey is configured"));
    let stranger = refusal("nobody7", send("orders"));
    assert_eq!(stranger.as_deref(), Some("No acl config for nobody7"));
    let thief = refusal_from(&signed("orderly", "87654321", send("orders")), "127.0.0.1");
    assert_eq!(
        thief.as_deref(),
        Some("Check signature failed for accessKey=orderly")
    );
    assert_eq!(refusal("orderly", send("orders")), None);
}

#[test]
fn white_addresses_need_no_signature() {
    for address in ["10.10.103.9", "192.168.0.7", "::ffff:10.10.103.1"] {
        assert_eq!(refusal_from(&send("any"), address), None, "{address}");
    }
    for address in ["10.10.104.9", "192.168.0.6", "::1"] {
        assert!(refusal_from(&send("any"), address).is_some(), "{address}");
    }
    let named = send("any").with_field("AccessKey", "rocketmq2");
    assert_eq!(refusal_from(&named, "192.168.1.77"), None);
    assert!(refusal_from(&named, "192.168.2.77").is_some());
    assert!(refusal_from(&send("any"), "192.168.1.77").is_some());
}

#[test]
fn topics_and_groups_have_their_own_permissions() {
    let may = [
        send("orders"),
        send("%RETRY%kitchen"),
        send("RMQ_SYS_TRACE_TOPIC"),
        pull("orders", "kitchen"),
        pull("bills", "any-other"),
        pull("%RETRY%kitchen", "kitchen"),
        Command::request(request::SEND_BATCH_MESSAGE).with_field("b", "orders"),
        Command::request(request::SEND_REPLY_MESSAGE_V2).with_field("b", "DefaultCluster_REPLY_TOPIC"),
        Command::request(request::UNREGISTER_CLIENT).with_field("producerGroup", "any"),
        Command::request(request::GET_MAX_OFFSET).with_field("topic", "secret"),
        Command::request(request::GET_BROKER_RUNTIME_INFO),
    ];
    for command in may {
        assert_eq!(refusal("orderly", command.clone()), None, "{command:?}");
    }
    let may_not = [
        (send("bills"), "topic:bills"),
        (send("other"), "topic:other"),
        (send("%RETRY%cellar"), "group:cellar"),
        (pull("secret", "kitchen"), "topic:secret"),
        (pull("orders", "cellar"), "group:cellar"),
        (pull("%RETRY%cellar", "kitchen"), "group:cellar"),
        (
            Command::request(request::SEND_BATCH_MESSAGE).with_field("b", "bills"),
            "topic:bills",
        ),
        (
            Command::request(request::SEND_REPLY_MESSAGE).with_field("topic", "other"),
            "topic:other",
        ),
        (
            Command::request(request::POP_MESSAGE)
                .with_field("topic", "secret")
                .with_field("consumerGroup", "kitchen"),
            "topic:secret",
        ),
    ];
    for (command, what) in may_not {
        let text = format!("No default permission for {what}");
        assert_eq!(refusal("orderly", command), Some(text));
    }
}

#[test]
fn a_heartbeat_needs_each_group_and_topic() {
    let beat = |group: &str, topic: &str| {
        let subscription = SubscriptionData {
            topic: topic.to_owned(),
            ..SubscriptionData::default()
        };
        let consumer = ConsumerData {
            group_name: group.to_owned(),
            subscription_data_set: vec![subscription],
            ..ConsumerData::default()
        };
        let data = HeartbeatData {
            consumer_data_set: vec![consumer],
            ..HeartbeatData::default()
        };
        let mut command = Command::request(request::HEART_BEAT);
        command.body = Some(data.encode().into());
        command
    };
    assert_eq!(refusal("orderly", beat("kitchen", "orders")), None);
    assert_eq!(refusal("orderly", beat("kitchen", "%RETRY%kitchen")), None);
    assert!(refusal("orderly", beat("cellar", "orders")).is_some());
    assert!(refusal("orderly", beat("kitchen", "secret")).is_some());
    let mut broken = beat("kitchen", "orders");
    broken.body = Some("{".into());
    assert!(refusal("orderly", broken).is_some());
}

#[test]
fn what_changes_the_broker_and_what_shows_secrets_needs_an_administrator() {
    for code in [
        request::UPDATE_AND_CREATE_TOPIC,
        request::UPDATE_BROKER_CONFIG,
        request::DELETE_TOPIC_IN_BROKER,
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        request::DELETE_SUBSCRIPTIONGROUP,
        request::UPDATE_AND_CREATE_ACL_CONFIG,
        request::DELETE_ACL_CONFIG,
        request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        request::GET_BROKER_CLUSTER_ACL_CONFIG,
        request::VIEW_MESSAGE_BY_ID,
        request::INVOKE_BROKER_TO_RESET_OFFSET,
        9999,
    ] {
        let text = format!("Need admin permission for request code={code}, but accessKey=orderly is not");
        let command = Command::request(code)
            .with_field("topic", "orders")
            .with_field("group", "kitchen");
        assert_eq!(refusal("orderly", command.clone()), Some(text));
        assert_eq!(refusal("rocketmq2", command), None, "{code}");
    }
    assert_eq!(refusal("rocketmq2", send("any")), None);
    // An administrator with permissions of its own has these alone, as in Apache.
    assert_eq!(
        refusal("keeper99", pull("orders", "g")).as_deref(),
        Some("No default permission for group:g")
    );
    assert!(refusal("keeper99", send("orders")).is_some());
    let create = Command::request(request::UPDATE_AND_CREATE_TOPIC);
    assert_eq!(refusal("keeper99", create), None);
}

/// Codes that an account without permissions may send without a field or body: they show something, or leave.
#[test]
fn no_code_that_changes_something_is_open_because_its_fields_are_missing() {
    let text = "accounts: [{accessKey: nothing, secretKey: '12345678'}]";
    let guard = PlainGuard::new(Accounts::parse(&files(text)).unwrap());
    let open = REQUEST_CODES.iter().filter(|(_, code)| {
        let command = signed("nothing", "12345678", Command::request(*code));
        guard.refusal(&command, "::1".parse().unwrap()).is_none()
    });
    let open: Vec<&str> = open.map(|(name, _)| *name).collect();
    let changes = |name: &&&str| {
        let words = [
            "UPDATE", "DELETE", "CREATE", "PUT", "RESET", "SEND", "PULL", "POP", "ACK", "CLEAN", "REGISTER",
        ];
        words.iter().any(|word| name.contains(word)) && !name.starts_with("GET") && !name.starts_with("QUERY")
    };
    assert_eq!(
        open.iter().filter(changes).collect::<Vec<_>>(),
        ["UNREGISTER_CLIENT"; 1].iter().collect::<Vec<_>>()
    );
}

fn error_of(text: &str) -> String {
    Accounts::parse(&files(text)).unwrap_err().to_string()
}

#[test]
fn wrong_files_are_refused_with_what_is_wrong() {
    let account =
        |rest: &str| format!("accounts:\n  - accessKey: orderly\n    secretKey: '12345678'\n{rest}");
    for (text, part) in [
        ("accounts:\n  - accessKey: [", "not a YAML file of accounts"),
        ("- a\n- b\n", "does not begin with `key:`"),
        ("a: 1\n---\na: 2\n", "several documents"),
        ("", "nobody could send a request"),
        ("accounts: []", "nobody could send a request"),
        ("accountss: []", "did you mean `accounts`?"),
        (
            "globalWhiteRemoteAddress: ['*']",
            "did you mean `globalWhiteRemoteAddresses`?",
        ),
        (
            &account("    defaultTopicPrem: PUB\n"),
            "did you mean `defaultTopicPerm`?",
        ),
        (
            &account("    defaultTopicPerm: ANY\n"),
            "give DENY, PUB, SUB or PUB|SUB",
        ),
        (
            &account("    defaultTopicPerm: pub\n"),
            "give DENY, PUB, SUB or PUB|SUB",
        ),
        (
            &account("    topicPerms: [orders]\n"),
            "give a name and a permission",
        ),
        (&account("    topicPerms: orders=PUB\n"), "give a list"),
        (
            &account("    topicPerms: [a=PUB, a=SUB]\n"),
            "two permissions for a: PUB and SUB",
        ),
        (
            &account("    groupPerms: [a=SUB]\n    topicPerms: ['%RETRY%a=DENY']\n"),
            "two permissions for a",
        ),
        (&account("    whiteRemoteAddress: 192.168.*.5\n"), "only be `*`"),
        (&account("    admin: maybe\n"), "give true or false"),
        (&account("    admin: true\n    admin: false\n"), "not a YAML file"),
        (
            &account("  - accessKey: orderly\n    secretKey: abcdefgh\n"),
            "the access key orderly is listed twice",
        ),
        (&account("dataVersion:\n  - counter: x\n"), "remove `dataVersion`"),
        (
            "accounts:\n  - accessKey: short6\n    secretKey: '12345678'\n",
            "length should longer than 6",
        ),
        (
            "accounts:\n  - accessKey: orderly\n    secretKey: ''\n",
            "length should longer than 6",
        ),
        (
            "accounts:\n  - accessKey: orderly\n",
            "length should longer than 6",
        ),
        (
            "accounts:\n  - accessKey: orderly\n    secretKey: 0123456_7\n",
            "put it into quotes",
        ),
        ("accounts: [orderly]", "begin it with `- accessKey:`"),
        ("globalWhiteRemoteAddresses: [host.example]", "give an address"),
    ] {
        let error = error_of(text);
        assert!(error.contains(part), "{text}: {error}");
        assert!(error.contains(MAIN) || part.contains("nobody"), "{error}");
    }
    let secret = "accounts:\n  - accessKey: short\n    secretKey: my-long-secret\n";
    assert!(!error_of(secret).contains("my-long-secret"));
    let twice = vec![
        files(&account("")).remove(0),
        ("/b.yml".to_owned(), account("").into_bytes()),
    ];
    assert!(
        Accounts::parse(&twice)
            .unwrap_err()
            .to_string()
            .contains("/b.yml")
    );
}

#[test]
fn unknown_keys_are_named_and_kept() {
    let accounts = Accounts::parse(&files(FILE)).unwrap();
    assert_eq!(accounts.unknown().len(), 1);
    assert!(accounts.unknown()[0].contains("`owner` in account 1"));
    let change = change(FILE, request::DELETE_ACL_CONFIG, &[("accessKey", "rocketmq2")]).unwrap();
    let text = String::from_utf8(change.text).unwrap();
    assert!(text.contains("owner: team a"), "{text}");
}

fn change(text: &str, code: i32, pairs: &[(&str, &str)]) -> Result<Change, AuthError> {
    let fields: Fields = pairs.iter().copied().collect();
    changed(&files(text), MAIN, code, &fields, 1_700_000_000_000)
}

fn after(change: &Change) -> Accounts {
    Accounts::parse(&vec![(change.path.clone(), change.text.clone())]).unwrap()
}

#[test]
fn requests_change_the_file_and_count_the_change() {
    let made = change(
        FILE,
        request::UPDATE_AND_CREATE_ACL_CONFIG,
        &[
            ("accessKey", "newcomer"),
            ("secretKey", "0012345'\" yes"),
            ("defaultTopicPerm", "SUB"),
            ("topicPerms", "a=PUB,b=SUB|PUB"),
            ("AccessKey", "rocketmq2"),
        ],
    )
    .unwrap();
    let first = after(&made);
    assert_eq!((first.count(), made.path.as_str()), (4, MAIN));
    let version = Version {
        counter: 1,
        timestamp_ms: 1_700_000_000_000,
    };
    assert_eq!(first.versions(), [(MAIN.to_owned(), version)]);
    let shown = String::from_utf8(first.to_json()).unwrap();
    let text = r#"{"accessKey":"newcomer","admin":false,"defaultTopicPerm":"SUB","secretKey":"0012345'\" yes","topicPerms":["a=PUB","b=SUB|PUB"]}"#;
    assert!(shown.contains(text), "{shown}");
    assert!(
        shown.contains(r#""globalWhiteAddrs":["10.10.103.*","192.168.0.{5,7}"]"#),
        "{shown}"
    );

    let made = String::from_utf8(made.text).unwrap();
    let pairs = [
        ("accessKey", "newcomer"),
        ("secretKey", "another-one"),
        ("admin", "true"),
    ];
    let updated = change(&made, request::UPDATE_AND_CREATE_ACL_CONFIG, &pairs).unwrap();
    let shown = String::from_utf8(after(&updated).to_json()).unwrap();
    let text = r#"{"accessKey":"newcomer","admin":true,"defaultTopicPerm":"SUB","secretKey":"another-one","topicPerms":["a=PUB","b=SUB|PUB"]}"#;
    assert!(shown.contains(text), "{shown}");
    assert_eq!(after(&updated).versions()[0].1.counter, 2);

    let gone = change(&made, request::DELETE_ACL_CONFIG, &[("accessKey", "newcomer")]).unwrap();
    assert_eq!(after(&gone).count(), 3);
    let white = [
        ("globalWhiteAddrs", "10.0.0.1, 192.168.1.{7,9}"),
        ("aclFileFullPath", MAIN),
    ];
    let white = change(&made, request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, &white).unwrap();
    let shown = String::from_utf8(after(&white).to_json()).unwrap();
    assert!(shown.contains(r#"["10.0.0.1","192.168.1.{7,9}"]"#), "{shown}");
}

#[test]
fn changes_that_could_not_be_read_again_are_refused() {
    let refused = |code, pairs: &[(&str, &str)]| change(FILE, code, pairs).unwrap_err().to_string();
    let put = |pairs: &[(&str, &str)]| {
        let pairs = [&[("accessKey", "newcomer"), ("secretKey", "12345678")], pairs].concat();
        refused(request::UPDATE_AND_CREATE_ACL_CONFIG, &pairs)
    };
    assert!(put(&[("topicPerms", "a=ANY")]).contains("give DENY"));
    assert!(put(&[("topicPerms", "a=PUB,a=SUB")]).contains("two permissions"));
    assert!(put(&[("whiteRemoteAddress", "nowhere")]).contains("give an address"));
    let short = refused(
        request::UPDATE_AND_CREATE_ACL_CONFIG,
        &[("accessKey", "new"), ("secretKey", "12345678")],
    );
    assert!(short.starts_with("The accessKey=new and "), "{short}");
    let unknown = refused(request::DELETE_ACL_CONFIG, &[("accessKey", "newcomer")]);
    assert!(
        unknown.starts_with("The accesskey[newcomer] corresponding to accessConfig has been deleted failed")
    );
    let elsewhere = [("globalWhiteAddrs", "*"), ("aclFileFullPath", "/etc/passwd")];
    assert!(refused(request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, &elsewhere).contains("/etc/passwd"));
    let last = "accounts: [{accessKey: nothing, secretKey: '12345678'}]";
    let last = change(last, request::DELETE_ACL_CONFIG, &[("accessKey", "nothing")]);
    assert_eq!(last.unwrap_err(), AuthError::Nobody);
}

#[test]
fn a_file_that_is_not_there_is_made() {
    let other = vec![("/home/conf/acl/a.yml".to_owned(), FILE.as_bytes().to_vec())];
    let fields: Fields = [("accessKey", "newcomer"), ("secretKey", "12345678")]
        .into_iter()
        .collect();
    let change = changed(&other, MAIN, request::UPDATE_AND_CREATE_ACL_CONFIG, &fields, 1).unwrap();
    assert_eq!((change.path.as_str(), after(&change).count()), (MAIN, 1));
    let fields: Fields = [("accessKey", "orderly"), ("secretKey", "another-one")]
        .into_iter()
        .collect();
    let change = changed(&other, MAIN, request::UPDATE_AND_CREATE_ACL_CONFIG, &fields, 1).unwrap();
    assert_eq!(change.path, "/home/conf/acl/a.yml");
}

#[test]
fn secrets_are_not_shown() {
    assert!(!format!("{:?}", guard()).contains("keeper-secret"));
}
