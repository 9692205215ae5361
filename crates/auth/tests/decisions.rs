//! Policies, users, the rights that requests need, and the file that keeps them.

use pyrmq_auth::{
    Action, AuthError, Credentials, Guard, Resource, Rules, Secret, Switches, changed, knows, required_rights,
};
use pyrmq_remoting::codes::request::{self, REQUEST_CODES};
use pyrmq_remoting::net::RequestSigner;
use pyrmq_remoting::{Command, Fields};
use std::net::IpAddr;

const LIST: &str = r#"{"users":[
    {"username":"root","password":"root-pw","userType":"Super","userStatus":"enable"},
    {"username":"bob","password":"bob-pw","previousPassword":"old-pw"},
    {"username":"off","password":"off-pw","userType":"Super","userStatus":"disable"},
    {"username":"ann","password":"ann-pw"}],
  "acls":[{"subject":"User:bob","policies":[
    {"policyType":"Custom","entries":[
      {"resource":"Topic:orders","actions":["Pub","Sub"],"decision":"Allow"},
      {"resource":"Topic:orders-*","actions":["All"],"decision":"Allow"},
      {"resource":"Topic:orders-x*","actions":["Pub"],"decision":"Deny"},
      {"resource":"Topic:orders-xyz","actions":["Pub"],"sourceIps":["10.0.0.0/8","::1"],"decision":"Allow"},
      {"resource":"Group:kitchen","actions":["Sub","Get","Update"],"decision":"Allow"}]},
    {"policyType":"Default","entries":[
      {"resource":"*","actions":["Get"],"decision":"Allow"},
      {"resource":"Cluster:*","actions":["Get"],"decision":"Deny"}]}]}]}"#;

#[expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]
fn guard() -> Guard {
    let rules = Rules::parse(LIST.as_bytes()).unwrap();
    Guard::new("DefaultCluster", Switches { authorization: true }, rules)
}

#[expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]
fn signed(user: &str, password: &str, mut command: Command) -> Command {
    let credentials = Credentials::new(user, &Secret::new(password), None).unwrap();
    credentials.sign(&mut command);
    command
}

fn bob(command: Command) -> Command {
    signed("bob", "bob-pw", command)
}

fn send(topic: &str) -> Command {
    Command::request(request::SEND_MESSAGE_V2)
        .with_field("a", "group")
        .with_field("b", topic)
}

#[expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]
fn at(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn is_served(command: &Command, address: &str) -> bool {
    guard().refusal(command, at(address)).is_none()
}

#[test]
fn only_signed_requests_of_enabled_users_are_served() {
    let why = |command: &Command| {
        guard()
            .refusal(command, at("127.0.0.1"))
            .map(|refusal| refusal.why)
    };
    assert_eq!(why(&bob(send("orders"))), None);
    assert_eq!(why(&signed("bob", "old-pw", send("orders"))), None);
    let refused = [
        (send("orders"), "not signed"),
        (
            signed("bob", "wrong", send("orders")),
            "the signature is not that of",
        ),
        (signed("nobody", "bob-pw", send("orders")), "there is no user"),
        (signed("off", "off-pw", send("orders")), "is disabled"),
        (signed("ann", "ann-pw", send("orders")), "no matched policies"),
        (
            Command::request(request::HEART_BEAT).with_body("{}"),
            "not signed",
        ),
        (Command::request(7_777), "not signed"),
    ];
    for (command, expected) in refused {
        let why = why(&command).unwrap();
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn an_answer_does_not_tell_which_users_there_are() {
    let remark = |command: &Command| guard().refusal(command, at("127.0.0.1")).unwrap().remark;
    let unknown = remark(&signed("nobody", "x", send("orders")));
    assert_eq!(unknown, remark(&signed("bob", "x", send("orders"))));
    assert_eq!(unknown, remark(&signed("off", "off-pw", send("orders"))));
    assert_eq!(unknown, remark(&send("orders")));
}

#[test]
fn the_most_special_entry_decides() {
    for (topic, address, expected) in [
        ("orders", "1.2.3.4", true),
        ("orders2", "1.2.3.4", false),
        ("orders-a", "1.2.3.4", true),
        ("orders-x1", "1.2.3.4", false),
        ("orders-xyz", "1.2.3.4", false),
        ("orders-xyz", "10.9.9.9", true),
        ("orders-xyz", "::ffff:10.9.9.9", true),
        ("orders-xyz", "::1", true),
        ("orders-xyz", "::2", false),
        ("%RETRY%kitchen", "1.2.3.4", true),
        ("%RETRY%other", "1.2.3.4", false),
        ("%DLQ%kitchen", "1.2.3.4", false),
    ] {
        assert_eq!(
            is_served(&bob(send(topic)), address),
            expected,
            "{topic} from {address}"
        );
    }
}

#[test]
fn default_policies_are_asked_where_no_custom_one_matches() {
    let topic = |code| bob(Command::request(code).with_field("topic", "elsewhere"));
    assert!(is_served(&topic(request::GET_MAX_OFFSET), "1.1.1.1"));
    assert!(!is_served(&topic(request::DELETE_TOPIC_IN_BROKER), "1.1.1.1"));
    assert!(!is_served(
        &bob(Command::request(request::GET_BROKER_CONFIG)),
        "1.1.1.1"
    ));
}

#[test]
fn a_super_user_may_do_everything() {
    for (_, code) in REQUEST_CODES {
        assert!(
            is_served(&signed("root", "root-pw", Command::request(*code)), "1.1.1.1"),
            "{code}"
        );
    }
}

#[test]
fn every_request_code_has_a_row() {
    let without: Vec<_> = REQUEST_CODES.iter().filter(|(_, code)| !knows(*code)).collect();
    assert!(without.is_empty(), "{without:?}");
    assert!(!knows(7_777));
}

/// Without its fields and body a request says nothing of what it does: then only who may change the cluster may do it.
#[test]
fn no_row_is_open_by_omission() {
    // Producers send these without a group or topic; older clients end transactions so.
    let open = [request::UNREGISTER_CLIENT, request::END_TRANSACTION];
    for (name, code) in REQUEST_CODES {
        for body in ["", "{}", "[]", "x"] {
            let command = Command::request(*code).with_field("z", "z").with_body(body);
            let asked = required_rights(&command, "C").unwrap_or_default();
            let is_open = required_rights(&command, "C").is_ok() && asked.is_empty();
            let may = open.contains(code) || *code == request::HEART_BEAT;
            assert!(!is_open || may, "{name} with the body {body:?} asks for no right");
        }
    }
    assert_eq!(
        required_rights(&Command::request(7_777), "C").unwrap()[0].resource,
        Resource::cluster("C")
    );
}

#[test]
fn bodies_name_what_a_request_reads() {
    let resources = |code, body: &str| -> Vec<String> {
        let asked = required_rights(&Command::request(code).with_body(body.to_owned()), "C").unwrap();
        assert!(asked.iter().all(|right| right.actions == [Action::Sub]));
        asked.iter().map(|right| right.resource.to_string()).collect()
    };
    let heartbeat = r#"{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g",
        "subscriptionDataSet":[{"topic":"t"},{"topic":"%RETRY%g"}]}]}"#;
    assert_eq!(resources(request::HEART_BEAT, heartbeat), ["Group:g", "Topic:t"]);
    let locks =
        r#"{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"t","brokerName":"b","queueId":0}]}"#;
    assert_eq!(resources(request::LOCK_BATCH_MQ, locks), ["Group:g", "Topic:t"]);
    let acks = r#"{"brokerName":"b","acks":[{"c":"g","t":"t"},{"c":"h","t":"u"}]}"#;
    assert_eq!(
        resources(request::BATCH_ACK_MESSAGE, acks),
        ["Group:g", "Topic:t", "Group:h", "Topic:u"]
    );
}

#[test]
fn only_the_retry_topic_of_ones_own_group_is_free() {
    let asked = |command: &Command| -> Vec<String> {
        let asked = required_rights(command, "C").unwrap();
        asked.iter().map(|right| right.resource.to_string()).collect()
    };
    let of_fields = [
        (request::PULL_MESSAGE, "topic", "consumerGroup"),
        (request::LITE_PULL_MESSAGE, "topic", "consumerGroup"),
        (request::POP_MESSAGE, "topic", "consumerGroup"),
        (request::PEEK_MESSAGE, "topic", "consumerGroup"),
        (request::ACK_MESSAGE, "topic", "consumerGroup"),
        (request::CHANGE_MESSAGE_INVISIBLETIME, "topic", "consumerGroup"),
        (request::NOTIFICATION, "topic", "consumerGroup"),
        (request::QUERY_CONSUMER_OFFSET, "topic", "consumerGroup"),
        (request::UPDATE_CONSUMER_OFFSET, "topic", "consumerGroup"),
        (request::POLLING_INFO, "topic", "consumerGroup"),
        (request::CONSUMER_SEND_MSG_BACK, "originTopic", "group"),
        (request::INVOKE_BROKER_TO_RESET_OFFSET, "topic", "group"),
        (request::UPDATE_AND_GET_GROUP_FORBIDDEN, "topic", "group"),
        (request::QUERY_CONSUME_TIME_SPAN, "topic", "group"),
        (request::QUERY_SUBSCRIPTION_BY_CONSUMER, "topic", "group"),
        (request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, "topic", "group"),
        (request::QUERY_CORRECTION_OFFSET, "topic", "compareGroup"),
    ];
    let of_bodies = [
        (
            request::HEART_BEAT,
            r#"{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T"}]}]}"#,
        ),
        (
            request::LOCK_BATCH_MQ,
            r#"{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T","brokerName":"b","queueId":0}]}"#,
        ),
        (
            request::CHECK_CLIENT_CONFIG,
            r#"{"group":"g","subscriptionData":{"topic":"T"}}"#,
        ),
        (request::QUERY_ASSIGNMENT, r#"{"consumerGroup":"g","topic":"T"}"#),
        (request::BATCH_ACK_MESSAGE, r#"{"acks":[{"c":"g","t":"T"}]}"#),
    ];
    let commands = |topic: &str| -> Vec<Command> {
        let fields = of_fields.iter().map(|(code, name, group)| {
            Command::request(*code)
                .with_field(name, topic)
                .with_field(group, "g")
        });
        let bodies = of_bodies
            .iter()
            .map(|(code, body)| Command::request(*code).with_body(body.replace('T', topic)));
        fields.chain(bodies).collect()
    };
    for topic in ["%RETRY%g", "%RETRY%g+t"] {
        for command in commands(topic) {
            assert_eq!(asked(&command), ["Group:g"], "{topic} {}", command.code);
        }
    }
    // `%RETRY%g_t` may be the plain retry topic of another group; to acknowledge is no reading.
    let strangers = [
        ("%RETRY%victim", "Group:victim"),
        ("%RETRY%victim+t", "Group:victim"),
        ("%RETRY%", "Group:"),
        ("%RETRY%g_t", "Group:g_t"),
        ("%RETRY%gg", "Group:gg"),
    ];
    for (topic, group) in strangers {
        for command in commands(topic) {
            let acknowledges = [request::ACK_MESSAGE, request::CHANGE_MESSAGE_INVISIBLETIME];
            let is_popped = topic == "%RETRY%g_t" && acknowledges.contains(&command.code);
            let expected = if is_popped { "Topic:t" } else { group };
            let mut asked = asked(&command);
            asked.sort_unstable();
            let mut expected = vec!["Group:g".to_owned(), expected.to_owned()];
            expected.sort_unstable();
            assert_eq!(asked, expected, "{topic} {}", command.code);
        }
    }
    // Two groups in one object: nobody can say whose topic it is.
    let body = r#"{"acks":[{"c":["g","h"],"t":"%RETRY%h"}]}"#;
    let command = Command::request(request::BATCH_ACK_MESSAGE).with_body(body);
    assert_eq!(asked(&command), ["Group:g", "Group:h", "Group:h"]);
}

#[test]
fn a_retry_topic_is_created_by_who_may_create_its_group() {
    let body =
        r#"{"topicConfigList":[{"topicName":"t"},{"topicName":"%RETRY%g"},{"topicName":"%RETRY%h+t"}]}"#;
    let list = Command::request(request::UPDATE_AND_CREATE_TOPIC_LIST).with_body(body);
    let asked = required_rights(&list, "C").unwrap();
    assert!(asked.iter().all(|right| right.actions == [Action::Create]));
    let resources: Vec<_> = asked.iter().map(|right| right.resource.to_string()).collect();
    assert_eq!(resources, ["Topic:t", "Group:g", "Group:h"]);
}

#[test]
fn statistics_of_further_topics_need_the_right_to_each() {
    let one = Command::request(request::GET_TOPIC_STATS_INFO).with_field("topic", "t");
    let resources = |command: &Command| -> Vec<_> {
        let asked = required_rights(command, "C").unwrap();
        assert!(asked.iter().all(|right| right.actions == [Action::Get]));
        asked.iter().map(|right| right.resource.to_string()).collect()
    };
    assert_eq!(resources(&one), ["Topic:t"]);
    let body = r#"{"topics":["u","%RETRY%g",7]}"#;
    let further = one.clone().with_body(body);
    assert_eq!(resources(&further), ["Topic:t", "Topic:u", "Group:g", "Topic:"]);
    assert!(required_rights(&one.with_body("no json"), "C").is_err());
}

#[test]
fn a_list_survives_being_written() {
    let rules = Rules::parse(LIST.as_bytes()).unwrap();
    let again = Rules::parse(&rules.to_text()).unwrap();
    assert_eq!(rules.to_text(), again.to_text());
    assert_eq!(again.list_acls("", ""), rules.list_acls("", ""));
    assert!(is_served(&signed("bob", "old-pw", send("orders")), "1.1.1.1"));
}

#[test]
fn wrong_lists_are_refused_with_the_cause() {
    let user = r#"{"username":"u","password":"p"}"#;
    let acl = |entry: &str| {
        format!(
            r#"{{"users":[{user}],"acls":[{{"subject":"User:u","policies":[{{"entries":[{entry}]}}]}}]}}"#
        )
    };
    let cases = [
        (LIST[..200].to_owned(), "it is not a list"),
        ("[]".to_owned(), "give an object"),
        (r#"{"users":{}}"#.to_owned(), "give an array"),
        (r#"{"user":[]}"#.to_owned(), "unknown key `user`"),
        (r#"{"acl":[]}"#.to_owned(), "did you mean `acls`?"),
        (
            r#"{"users":[{"username":"u","passwordd":"p"}]}"#.to_owned(),
            "unknown key `passwordd` in a user; did you mean `password`?",
        ),
        (
            acl(r#"{"resource":"Topic:a","actions":["Pub"],"sourceIp":["1.1.1.1"],"decision":"Deny"}"#),
            "did you mean `sourceIps`?",
        ),
        (r#"{"users":[{"username":"u"}]}"#.to_owned(), "password"),
        (
            r#"{"users":[{"username":"u","password":" "}]}"#.to_owned(),
            "password",
        ),
        (format!(r#"{{"users":[{user},{user}]}}"#), "exists already"),
        (
            r#"{"users":[{"username":"u","password":"p","userType":"super-user"}]}"#.to_owned(),
            "Super or Normal",
        ),
        (
            r#"{"acls":[{"subject":"User:u","policies":[]}]}"#.to_owned(),
            "does not exist: u",
        ),
        (
            acl(r#"{"resource":"Topic:a","actions":["Pub"]}"#),
            "Allow or Deny",
        ),
        (
            acl(r#"{"resource":"Topic:a","actions":["Pub"],"verdict":"Deny"}"#),
            "unknown key `verdict` in an entry; the known keys are: resource, actions",
        ),
        (
            acl(r#"{"resource":"Topic:a","actions":[],"decision":"Deny"}"#),
            "at least one action",
        ),
        (
            acl(r#"{"resource":"Topic:a","actions":["Any"],"decision":"Allow"}"#),
            "All, Pub",
        ),
        (
            acl(r#"{"resource":"Topic:a*b","actions":["Pub"],"decision":"Allow"}"#),
            "resource",
        ),
        ("{}".to_owned(), "no users"),
        (r#"{"users":[]}"#.to_owned(), "no users"),
        (
            r#"{"users":[{"username":"u","password":"s3cret","password":"p"}]}"#.to_owned(),
            "`password` of a user is listed twice",
        ),
        (
            format!(r#"{{"users":[{user}],"users":[{user}]}}"#),
            "`users` of the file is listed twice",
        ),
        (
            r#"{"users":[{"username":"u","password":"p","previousPassword":5}]}"#.to_owned(),
            "previousPassword",
        ),
        (
            r#"{"users":[{"username":"u","password":5}]}"#.to_owned(),
            "password",
        ),
        (
            r#"{"users":[{"username":"u ","password":"p"}]}"#.to_owned(),
            "blanks at its ends",
        ),
        (r#"{"users":["u"]}"#.to_owned(), "give an object"),
        (r#"{"users":[{5:"u"}]}"#.to_owned(), "in quotes"),
        (
            acl(r#"{"resource":"Topic:a ","actions":["Pub"],"decision":"Allow"}"#),
            "resource",
        ),
        (
            acl(r#"{"resource":"Topic:a","actions":"Pub","decision":"Allow"}"#),
            "array of texts",
        ),
        (
            acl(r#"{"resource":"Topic:a","actions":["Pub"],"sourceIps":[1],"decision":"Allow"}"#),
            "array of texts",
        ),
        (
            acl(r#"{"resource":"Topic:a","actions":["Pub"],"sourceIps":["10.0.0.0/33"],"decision":"Allow"}"#),
            "10.0.0.0/33",
        ),
    ];
    for (text, expected) in cases {
        let error = Rules::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn only_a_super_user_makes_and_changes_super_users() {
    let rules = Rules::parse(LIST.as_bytes()).unwrap();
    let by = |user: &str, code, name: &str, body: &str| {
        let fields: Fields = [("AccessKey", user), ("username", name)].into_iter().collect();
        changed(&rules, code, &fields, body.as_bytes())
    };
    let new_super = r#"{"password":"p","userType":"Super"}"#;
    let password = r#"{"password":"p"}"#;
    assert_eq!(
        by("bob", request::AUTH_CREATE_USER, "eve", new_super).unwrap_err(),
        AuthError::OnlySuper
    );
    assert_eq!(
        by("bob", request::AUTH_UPDATE_USER, "bob", new_super).unwrap_err(),
        AuthError::OnlySuper
    );
    assert_eq!(
        by("bob", request::AUTH_UPDATE_USER, "root", password).unwrap_err(),
        AuthError::OnlySuper
    );
    assert_eq!(
        by("bob", request::AUTH_DELETE_USER, "root", "").unwrap_err(),
        AuthError::OnlySuper
    );
    assert!(by("root", request::AUTH_CREATE_USER, "eve", new_super).is_ok());
    assert!(by("bob", request::AUTH_CREATE_USER, "eve", password).is_ok());
    // Whoever sees a password can act as its user.
    assert_eq!(rules.get_user("root", false).unwrap().password, None);
}

#[test]
fn entries_of_one_resource_stand_side_by_side() {
    let list = |entries: &str| {
        format!(
            r#"{{"users":[{{"username":"bob","password":"bob-pw"}}],"acls":[{{"subject":"User:bob","policies":[{{"entries":[
            {{"resource":"Topic:*","actions":["Pub"],"decision":"Allow"}},{entries}]}}]}}]}}"#
        )
    };
    let deny = r#"{"resource":"Topic:secret","actions":["Pub","Sub"],"decision":"Deny"}"#;
    let look = r#"{"resource":"Topic:secret","actions":["Get"],"decision":"Allow"}"#;
    let near = r#"{"resource":"Topic:secret","actions":["Pub"],"sourceIps":["10.9.9.9"],"decision":"Allow"}"#;
    let far = r#"{"resource":"Topic:secret","actions":["Pub"],"sourceIps":["1.0.0.0/8"],"decision":"Deny"}"#;
    for (entries, address, expected) in [
        (format!("{deny},{look}"), "1.1.1.1", false),
        (format!("{look},{deny}"), "1.1.1.1", false),
        (format!("{deny},{near}"), "10.9.9.9", false),
        (format!("{far},{near}"), "10.9.9.9", true),
        (format!("{far},{near}"), "1.1.1.1", false),
        (format!("{near},{far}"), "1.1.1.1", false),
    ] {
        let rules = Rules::parse(list(&entries).as_bytes()).unwrap();
        let rules = Rules::parse(&rules.to_text()).unwrap();
        let guard = Guard::new("C", Switches { authorization: true }, rules);
        let refusal = guard.refusal(&bob(send("secret")), at(address));
        assert_eq!(refusal.is_none(), expected, "{entries} from {address}");
    }
}

#[test]
fn entries_that_contradict_each_other_are_found_and_refused_in_requests() {
    let entry = |actions: &str, sources: &str, decision: &str| {
        format!(
            r#"{{"resource":"Topic:a","actions":[{actions}],"sourceIps":[{sources}],"decision":"{decision}"}}"#
        )
    };
    let list = |entries: &[String], kind: &str| {
        let entries = entries.join(",");
        format!(
            r#"{{"users":[{{"username":"bob","password":"bob-pw"}}],"acls":[{{"subject":"User:bob","policies":[
            {{"policyType":"Custom","entries":[{{"resource":"Topic:a*","actions":["Pub"],"decision":"Deny"}}]}},
            {{"policyType":"{kind}","entries":[{entries}]}}]}}]}}"#
        )
    };
    let (pub_, all) = (r#""Pub""#, r#""All""#);
    let (near, far) = (r#""10.0.0.1","10.0.0.2""#, r#""10.0.0.2","10.0.0.1""#);
    for (first, second, action) in [
        ((pub_, ""), (pub_, ""), Some("Pub")),
        ((r#""Get","Pub""#, ""), (r#""Pub","Sub""#, ""), Some("Pub")),
        ((all, near), (all, far), Some("All")),
        ((pub_, r#""10.0.0.0/8""#), (pub_, r#""10.0.0.1/8""#), Some("Pub")),
        // An exception to a general entry.
        ((all, ""), (pub_, ""), None),
        ((pub_, r#""10.0.0.0/8""#), (pub_, r#""10.0.0.1""#), None),
        ((pub_, near), (pub_, ""), None),
        ((pub_, ""), (r#""Sub""#, ""), None),
    ] {
        for (one, other) in [("Allow", "Deny"), ("Deny", "Allow"), ("Allow", "Allow")] {
            let entries = [entry(first.0, first.1, one), entry(second.0, second.1, other)];
            for kind in ["Custom", "Default"] {
                let list = list(&entries, kind);
                let rules = Rules::parse(list.as_bytes()).unwrap();
                let found: Vec<_> = rules.contradictions().iter().map(ToString::to_string).collect();
                let expected = action.filter(|_| one != other).map(|action| {
                    format!(
                        "entries of User:bob for Topic:a contradict each other: they allow and deny {action} from \
                         the same addresses; keep one of them"
                    )
                });
                assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{list}");
                // The entry that denies counts, as it did before anything was reported.
                let both = (first, second) == ((pub_, ""), (pub_, "")) && one != other;
                if both && kind == "Custom" {
                    let guard = Guard::new("C", Switches { authorization: true }, rules);
                    assert!(guard.refusal(&bob(send("a")), at("1.1.1.1")).is_some(), "{list}");
                }
            }
        }
    }
    // A request changes nothing then.
    let rules = Rules::parse(LIST.as_bytes()).unwrap();
    let fields: Fields = [("AccessKey", "root"), ("subject", "User:bob")]
        .into_iter()
        .collect();
    let body = format!(
        r#"{{"policies":[{{"entries":[{},{}]}}]}}"#,
        entry(pub_, "", "Allow"),
        entry(pub_, "", "Deny")
    );
    for code in [request::AUTH_CREATE_ACL, request::AUTH_UPDATE_ACL] {
        let error = changed(&rules, code, &fields, body.as_bytes()).unwrap_err();
        assert!(matches!(error, AuthError::TwoDecisions { .. }), "{error}");
        assert!(
            error.to_string().starts_with("entries of User:bob for Topic:a "),
            "{error}"
        );
    }
    // Any other request is served beside such a list, and one for the resource mends it.
    let entries = [entry(pub_, "", "Allow"), entry(pub_, "", "Deny")];
    let rules = Rules::parse(list(&entries, "Custom").as_bytes()).unwrap();
    for (entry, left) in [
        (entry(r#""Get""#, "", "Allow").replace("Topic:a", "Topic:b"), 1),
        (entry(r#""Get""#, "", "Allow"), 0),
    ] {
        let body = format!(r#"{{"policies":[{{"entries":[{entry}]}}]}}"#);
        let after = changed(&rules, request::AUTH_UPDATE_ACL, &fields, body.as_bytes()).unwrap();
        let again = Rules::parse(&after.to_text()).unwrap();
        assert_eq!(again.contradictions().len(), left, "{entry}");
    }
}

#[test]
fn many_entries_of_one_resource_are_compared() {
    // Comparing each with each would take minutes.
    let entries: Vec<_> = (0..20_000)
        .map(|at| {
            let decision = if at % 2 == 0 { "Allow" } else { "Deny" };
            let source = format!("10.0.{}.{}", at / 250, at % 250);
            format!(
                r#"{{"resource":"Topic:a","actions":["Pub"],"sourceIps":["{source}"],"decision":"{decision}"}}"#
            )
        })
        .collect();
    for (last, count) in [("Allow", 0), ("Deny", 1)] {
        let last = format!(
            r#"{{"resource":"Topic:a","actions":["Pub"],"sourceIps":["10.0.0.0"],"decision":"{last}"}}"#
        );
        let list = format!(
            r#"{{"users":[{{"username":"bob","password":"bob-pw"}}],"acls":[{{"subject":"User:bob","policies":[
            {{"entries":[{},{last}]}}]}}]}}"#,
            entries.join(",")
        );
        let rules = Rules::parse(list.as_bytes()).unwrap();
        assert_eq!(rules.contradictions().len(), count);
    }
}

#[test]
fn a_request_replaces_the_entries_of_its_resources() {
    let rules = Rules::parse(LIST.as_bytes()).unwrap();
    let fields: Fields = [("AccessKey", "root"), ("subject", "User:bob")]
        .into_iter()
        .collect();
    let body = r#"{"policies":[{"policyType":"Custom","entries":[
        {"resource":"Topic:orders","actions":["Get"],"decision":"Allow"},
        {"resource":"Topic:orders","actions":["Pub"],"decision":"Deny"}]}]}"#;
    for code in [request::AUTH_CREATE_ACL, request::AUTH_UPDATE_ACL] {
        let after = changed(&rules, code, &fields, body.as_bytes()).unwrap();
        let acl = after.get_acl("User:bob").unwrap().unwrap();
        let entries = acl.policies.unwrap()[0].entries.clone().unwrap();
        let of_orders = entries
            .iter()
            .filter(|entry| entry.resource.as_deref() == Some("Topic:orders"));
        let of_orders: Vec<_> = of_orders.map(|entry| entry.actions.clone().unwrap()).collect();
        assert_eq!(of_orders, [["Get"], ["Pub"]]);
        assert_eq!(entries.len(), 6);
    }
}

#[test]
fn the_last_enabled_super_user_stays() {
    let rules = Rules::parse(LIST.as_bytes()).unwrap();
    let by_root = |rules: &Rules, code, name: &str, body: &str| {
        let fields: Fields = [("AccessKey", "root"), ("username", name)].into_iter().collect();
        changed(rules, code, &fields, body.as_bytes())
    };
    for (code, body) in [
        (request::AUTH_DELETE_USER, ""),
        (request::AUTH_UPDATE_USER, r#"{"userStatus":"disable"}"#),
        (request::AUTH_UPDATE_USER, r#"{"userType":"Normal"}"#),
    ] {
        assert_eq!(
            by_root(&rules, code, "root", body).unwrap_err(),
            AuthError::LastSuper
        );
    }
    let with_two = by_root(
        &rules,
        request::AUTH_UPDATE_USER,
        "off",
        r#"{"userStatus":"enable"}"#,
    )
    .unwrap();
    assert!(by_root(&with_two, request::AUTH_DELETE_USER, "root", "").is_ok());
}

#[test]
fn reasons_and_remarks_repeat_only_the_beginning_of_long_names() {
    let long = "x".repeat(1 << 20);
    let requests = [
        signed(&long, "pw", send("orders")),
        bob(send(&long)),
        bob(Command::request(request::HEART_BEAT).with_body(long.clone())),
    ];
    for command in requests {
        let refusal = guard().refusal(&command, at("1.1.1.1")).unwrap();
        assert!(refusal.why.len() < 500, "{}", refusal.why.len());
        assert!(refusal.remark.len() < 500, "{}", refusal.remark.len());
    }
}
