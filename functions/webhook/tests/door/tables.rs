//! The senders' facts as tables: what each delivery is known by, what a duplicate is told while the
//! first is still being accepted, and how long a redelivery is one.

use std::time::Duration;

use crate::bench::{Bench, Request, SCHEMES, problem, sample, until};
use crate::identity::events::{gitlab, standard, stripe};

/// What the index says of a recorded delivery.
fn said(file: &str, field: &str) -> String {
    let index = sample("index.json");
    let deliveries = index["deliveries"].as_array().unwrap();
    let delivery = deliveries.iter().find(|delivery| delivery["file"] == file);
    delivery.unwrap()[field].as_str().unwrap().to_owned()
}

/// The SHA-256 of its body.
fn digest(file: &str) -> String {
    said(file, "body_sha256")
}

/// One recorded delivery, and what it is known by; `{}` stands for the body's digest, and an
/// operation that is not said for the delivery itself, which is counted where the rule says that it
/// should have had one.
struct Row {
    file: &'static str,
    kind: &'static str,
    delivery: &'static str,
    operation: Option<&'static str>,
    fallback: Option<&'static str>,
}

const fn named(
    file: &'static str,
    kind: &'static str,
    delivery: &'static str,
    operation: &'static str,
) -> Row {
    let operation = Some(operation);
    Row {
        file,
        kind,
        delivery,
        operation,
        fallback: None,
    }
}

const fn same(file: &'static str, kind: &'static str, delivery: &'static str) -> Row {
    Row {
        file,
        kind,
        delivery,
        operation: None,
        fallback: None,
    }
}

const fn counted(file: &'static str, kind: &'static str, delivery: &'static str) -> Row {
    let fallback = Some("default");
    Row {
        file,
        kind,
        delivery,
        operation: None,
        fallback,
    }
}

const KEYS: &[Row] = &[
    named(
        "github/push.json",
        "push",
        r#"["9541d743-7ab7-4aef-a5c2-374338f8e904","{}"]"#,
        r#"["push",780744988,"refs/heads/main","032b4289165d9e6a89db6105aeb1ada624dd8aff","b9b01e03fc623a645fe682ee8fa6167b8e81dadd",1794476467]"#,
    ),
    named(
        "github/push.form.json",
        "push",
        r#"["84eed909-82a6-4f7c-ae0b-ae0680ed8e22","{}"]"#,
        r#"["push",780744988,"refs/heads/windows","c5edd13104be8eeb21503bd496ad9c37582960c6","6f580c262bfe5649d5223f5df104da4a1deb31a2",1794477731]"#,
    ),
    named(
        "github/issue_comment.created.json",
        "issue_comment.created",
        r#"["6b384875-3188-4d14-ab58-ef0402e39dc5","{}"]"#,
        r#"["issue_comment","created",780744988,3421879292,"2026-11-12T09:52:30Z"]"#,
    ),
    named(
        "github/issue_comment.created.app.json",
        "issue_comment.created",
        r#"["6b384875-3188-4d14-ab58-ef0402e39dc5","{}"]"#,
        r#"["issue_comment","created",780744988,3421879292,"2026-11-12T09:52:30Z"]"#,
    ),
    named(
        "github/issue_comment.created.hook-twice.json",
        "issue_comment.created",
        r#"["fa4a54c8-834a-423c-a196-dfd6afb87a1b","{}"]"#,
        r#"["issue_comment","created",780744988,3421879292,"2026-11-12T09:52:30Z"]"#,
    ),
    named(
        "github/issue_comment.edited.json",
        "issue_comment.edited",
        r#"["cb25d69d-2050-4efb-a7da-7d0e0e499d8d","{}"]"#,
        r#"["issue_comment","edited",780744988,3421879292,"2026-11-12T09:58:04Z","a8cc77b3e19561de652d7adcb631a3f6361bb5e11461de6f94d72ee7318462c0"]"#,
    ),
    named(
        "github/pull_request.opened.json",
        "pull_request.opened",
        r#"["149d8d44-01a0-4c2a-a186-b717e8276fdc","{}"]"#,
        r#"["pull_request","opened",780744988,2823165645,"2026-11-12T11:20:08Z"]"#,
    ),
    named(
        "github/pull_request.synchronize.json",
        "pull_request.synchronize",
        r#"["637b8eee-1c35-4e21-acf3-c486bc162b31","{}"]"#,
        r#"["pull_request","synchronize",780744988,2823165645,"2026-11-12T12:40:51Z","fdaa53594955bd927c6f9134461d57953e8840af","e62eacac7fe36b45fd9c30f704d2db0550cfd460"]"#,
    ),
    named(
        "github/pull_request_review.submitted.json",
        "pull_request_review.submitted",
        r#"["27996eaf-58ae-47f1-afa1-114a1f157258","{}"]"#,
        r#"["pull_request_review","submitted",780744988,3991219768,"2026-11-12T13:02:44Z"]"#,
    ),
    counted(
        "github/ping.json",
        "ping",
        r#"["7d5fb1e7-2018-4ab5-a84c-a20c5d5f6dbf","{}"]"#,
    ),
    named(
        "github/check_run.completed.json",
        "check_run.completed",
        r#"["90ca6034-607d-43ab-a6de-f2e82c10643a","{}"]"#,
        r#"["check_run","completed",780744988,33664216656,"2026-11-12T11:31:52Z","failure"]"#,
    ),
    named(
        "github/workflow_run.completed.json",
        "workflow_run.completed",
        r#"["d63ba9a7-08b2-4709-af1d-617b3fcfacc9","{}"]"#,
        r#"["workflow_run","completed",780744988,16627106238,1]"#,
    ),
    counted(
        "gitlab/push.json",
        "push",
        "0251244b-9d17-4fa6-a8b8-af08e4e895ec",
    ),
    named(
        "gitlab/note.json",
        "note.create",
        "f94907aa-8fda-4279-ad1f-532102d5b520",
        r#"["note","create",40117,2880417,"2026-11-12 12:02:44 UTC"]"#,
    ),
    named(
        "gitlab/note.resent.json",
        "note.create",
        "f94907aa-8fda-4279-ad1f-532102d5b520",
        r#"["note","create",40117,2880417,"2026-11-12 12:02:44 UTC"]"#,
    ),
    same(
        "gitlab/note.signing-token.json",
        "note.create",
        "e46f44ea-26dc-4e32-aba0-3e053222635e",
    ),
    named(
        "gitlab/merge_request.open.json",
        "merge_request.open",
        "87784b92-aed9-412d-a49d-449fc92dde51",
        r#"["merge_request","open",40117,77310,"2026-11-12 10:20:11 UTC"]"#,
    ),
    counted(
        "gitlab/push.old-server.json",
        "push",
        r#"["3fe9a53f-c30a-4911-aebb-7f98e5e8be8d","{}"]"#,
    ),
    same(
        "stripe/charge.succeeded.json",
        "charge.succeeded",
        r#"[false,"evt_PMiBgqYz6ySuc0HOoszPIGkp"]"#,
    ),
    same(
        "stripe/charge.succeeded.second-event.json",
        "charge.succeeded",
        r#"[false,"evt_MVdAyGz9IXitfCQaIoTWtjVa"]"#,
    ),
    same(
        "stripe/invoice.paid.json",
        "invoice.paid",
        r#"[false,"evt_l6A2pBOnEDg1TqBBMLUfSg42"]"#,
    ),
    same(
        "stripe/connect.payout.paid.json",
        "payout.paid",
        r#"["account","acct_zPoAAr1xlbbVAgrH",true,"evt_GmSTlEBuYVRNTKOmIbFyp3NM"]"#,
    ),
    same(
        "slack/event_callback.message.json",
        "event_callback.message",
        "Ev08FCSAMPLE1",
    ),
    same(
        "slack/event_callback.message.retry-1.json",
        "event_callback.message",
        "Ev08FCSAMPLE1",
    ),
    same(
        "slack/slash_command.json",
        "slash_command",
        "8841920117734.7481029384756.63d62d4aee9a5d4fe8539e53a9e3d05f",
    ),
    same(
        "slack/interactive.block_actions.json",
        "block_actions",
        "8841920117799.7481029384756.2316d17ac81d3109f12320da86e555ef",
    ),
    named(
        "shopify/orders-create.json",
        "orders/create",
        r#"["fc-sample-shop.myshopify.com","orders/create","cf4ac28e-a7ba-4492-a583-c9bee7839a4e","{}"]"#,
        r#"["event","fc-sample-shop.myshopify.com","orders/create","d2e4a8af-8270-4b1d-a628-a164eb435e30","{}"]"#,
    ),
    named(
        "shopify/orders-create.second-subscription.json",
        "orders/create",
        r#"["fc-sample-shop.myshopify.com","orders/create","120c717d-5b45-4d4b-a52f-ef6f1a199149","{}"]"#,
        r#"["event","fc-sample-shop.myshopify.com","orders/create","d2e4a8af-8270-4b1d-a628-a164eb435e30","{}"]"#,
    ),
    named(
        "shopify/orders-paid.same-event-id.json",
        "orders/paid",
        r#"["fc-sample-shop.myshopify.com","orders/paid","c81cf19a-af69-4d4e-a741-4ca424b057a1","{}"]"#,
        r#"["event","fc-sample-shop.myshopify.com","orders/paid","d2e4a8af-8270-4b1d-a628-a164eb435e30","{}"]"#,
    ),
    named(
        "shopify/app-uninstalled.json",
        "app/uninstalled",
        r#"["fc-sample-shop.myshopify.com","app/uninstalled","617549b5-c1c9-4a48-afd5-fadce68fb154","{}"]"#,
        r#"["event","fc-sample-shop.myshopify.com","app/uninstalled","c22f6eeb-797a-45b7-abc3-e668977cdc50","{}"]"#,
    ),
    named(
        "shopify/events.product-update.json",
        "events",
        r#"["fc-sample-shop.myshopify.com","Product","c24b2531-144a-452f-ac4a-12651b20381e","update","gid://shopify/Product/8911000000001","{}"]"#,
        r#"["event","fc-sample-shop.myshopify.com","Product","6bc94165-795a-433e-a495-bf53e95fe73d","update","gid://shopify/Product/8911000000001","{}"]"#,
    ),
    same(
        "standard/user.created.json",
        "user.created",
        "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
    ),
    same(
        "standard/user.created.svix.json",
        "user.created",
        "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
    ),
    named(
        "twilio/message-status.delivered.json",
        "message.delivered",
        r#"["cdd82940-2277-4f6d-a389-c40cafdeca80","{}"]"#,
        r#"["MessageSid","SM98e77137bc5b833298466de2fb115da6","delivered"]"#,
    ),
    named(
        "twilio/message-status.sent.json",
        "message.sent",
        r#"["9c6f6081-6bab-43e1-a35e-f0fcaae7d545","{}"]"#,
        r#"["MessageSid","SM98e77137bc5b833298466de2fb115da6","sent"]"#,
    ),
    named(
        "twilio/voice-status.completed.json",
        "call.completed",
        r#"["7c9e8f7d-37bd-41f4-a9f7-441548392c81","{}"]"#,
        r#"["CallSid","CA287dd006d3a87a83cf4425b54c0de6a0","completed","3"]"#,
    ),
    counted(
        "twilio/event-streams.json",
        "event-streams",
        r#"["e27a95e2-bcdf-4a0b-a2de-d64e08a0dd4f","{}"]"#,
    ),
    same("token/operation.json", "operation", "deploy-2026-11-12-417"),
];

#[tokio::test]
async fn every_recorded_delivery_has_its_two_keys() {
    let index = sample("index.json");
    let bench = Bench::new();
    for row in KEYS {
        let mut request = Request::of(row.file);
        match row.file {
            "gitlab/note.signing-token.json" => request = request.to("/webhooks/standard"),
            "token/operation.json" => request = request.to("/webhooks/token"),
            _ => {}
        }
        let seen = bench.seen(&request).await;
        let delivery = row.delivery.replace("{}", &digest(row.file));
        assert_eq!(seen.kind, row.kind, "{}", row.file);
        assert_eq!(said(row.file, "kind"), row.kind, "{}", row.file);
        assert_eq!(seen.door.id(), delivery, "{}", row.file);
        assert_eq!(
            seen.door.scope(),
            format!("accept.{}", seen.sender),
            "{}",
            row.file
        );
        let operation = row.operation.map(|id| id.replace("{}", &digest(row.file)));
        let operation = operation.unwrap_or(delivery);
        assert_eq!(seen.operation.id(), operation, "{}", row.file);
        assert_eq!(seen.operation.scope(), seen.sender, "{}", row.file);
        assert_eq!(seen.fallback, row.fallback, "{}", row.file);
    }
    // All of them, but for the probe and the delivery of another key than the sender's.
    let all = index["deliveries"].as_array().unwrap().iter();
    let all = all.map(|delivery| delivery["file"].as_str().unwrap());
    let missing: Vec<_> = all
        .filter(|file| KEYS.iter().all(|row| row.file != *file))
        .collect();
    let left_out = [
        "slack/url_verification.json",
        "standard/user.created.ed25519.json",
    ];
    assert_eq!(missing, left_out);
}

/// A good delivery of each scheme.
fn one_of(scheme: &str) -> Request {
    let file = match scheme {
        "github" => "github/ping.json",
        "gitlab" => "gitlab/push.json",
        "stripe" => "stripe/invoice.paid.json",
        "slack" => "slack/event_callback.message.json",
        "shopify" => "shopify/orders-create.json",
        "standard" => "standard/user.created.json",
        "twilio" => "twilio/message-status.delivered.json",
        "token" => "token/operation.json",
        other => panic!("{other}"),
    };
    let request = Request::of(file);
    match scheme {
        "token" => request.to("/webhooks/token"),
        _ => request,
    }
}

/// GitHub never sends again by itself: to it an event in flight is accepted once more, and the
/// worker's claim decides. All others are told to come again.
#[tokio::test(flavor = "multi_thread")]
async fn a29_a33_what_a_duplicate_in_flight_is_told() {
    for scheme in SCHEMES {
        let bench = Bench::new();
        bench.queue.close();
        let first = tokio::spawn({
            let bench = bench.clone();
            async move { bench.send(&one_of(scheme)).await }
        });
        until("the first is claimed", || {
            !bench.memory.records().is_empty()
        })
        .await;
        let other = bench.cold();
        let duplicate = tokio::spawn(async move { other.send(&one_of(scheme)).await });
        if scheme == "github" {
            until("both have claimed", || bench.store.calls() >= 2).await;
            bench.queue.open();
            assert_eq!(duplicate.await.unwrap().status_code, 202);
            assert_eq!(first.await.unwrap().status_code, 202);
            assert_eq!(bench.queue.messages().len(), 2);
            assert_eq!(bench.queue.operations(), 1);
            continue;
        }
        let response = duplicate.await.unwrap();
        assert_eq!(response.status_code, 409, "{scheme}");
        assert_eq!(problem(&response), "in-flight");
        let wait: u64 = response.headers["retry-after"].parse().unwrap();
        assert!((1..=60).contains(&wait), "{scheme}: {wait}");
        bench.queue.open();
        assert_eq!(first.await.unwrap().status_code, 202);
        let again = bench.send(&one_of(scheme)).await;
        assert_eq!(again.headers["idempotent-replayed"], "true", "{scheme}");
        assert_eq!(bench.queue.messages().len(), 1, "{scheme}");
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// For how long after the first delivery a sender may repeat it, by itself or by hand.
const REDELIVERY: [(&str, Duration); 8] = [
    ("github", HOUR.saturating_mul(3 * 24)),
    ("gitlab", HOUR.saturating_mul(7 * 24)),
    ("stripe", HOUR.saturating_mul(30 * 24)),
    ("slack", Duration::from_secs(6 * 60)),
    ("shopify", HOUR.saturating_mul(4)),
    ("standard", HOUR.saturating_mul(28 * 24)),
    ("twilio", HOUR),
    ("token", HOUR.saturating_mul(30 * 24)),
];

#[tokio::test]
async fn a38_a41_the_window_outlives_the_last_redelivery() {
    for (scheme, last) in REDELIVERY {
        let bench = Bench::new();
        let first = bench.send(&one_of(scheme)).await;
        assert_eq!(first.status_code, 202, "{scheme}");
        bench.clock.advance(last);
        let at = firstclaim::clock::Source::now(&bench.clock);
        // Each retry is signed anew, where the signature has a time stamp.
        let again = one_of(scheme).signed_at(scheme, &crate::bench::secret(scheme), at);
        let again = bench.cold().send(&again).await;
        assert_eq!(
            (again.status_code, &again.body),
            (202, &first.body),
            "{scheme}"
        );
        assert_eq!(again.headers["idempotent-replayed"], "true", "{scheme}");
        assert_eq!(bench.queue.messages().len(), 1, "{scheme}");
    }
}

#[tokio::test]
async fn a38_a_senders_own_window_is_kept() {
    let mut senders = Bench::senders();
    senders["shopify"]["window"] = "5h".into();
    let bench = Bench::with_senders(&senders);
    let request = one_of("shopify");
    bench.send(&request).await;
    bench.clock.advance(HOUR * 5 - Duration::from_secs(1));
    bench.send(&request).await;
    assert_eq!(bench.queue.messages().len(), 1);
    bench.clock.advance(Duration::from_secs(2));
    bench.send(&request).await;
    assert_eq!(bench.queue.messages().len(), 2);
}

/// What names no delivery and no operation is refused: a digest would make one of all that look
/// alike.
#[tokio::test]
async fn p37_n5_without_an_id_there_is_no_key() {
    let bench = Bench::new();
    let ids = [
        ("gitlab", vec!["idempotency-key", "x-gitlab-event-uuid"]),
        (
            "shopify",
            vec!["x-shopify-webhook-id", "x-shopify-event-id"],
        ),
        ("github", vec!["x-github-delivery"]),
    ];
    for (scheme, headers) in ids {
        let request = headers
            .iter()
            .fold(one_of(scheme), |request, name| request.without(name));
        let response = bench.send(&request).await;
        assert_eq!(response.status_code, 400, "{scheme}");
        assert_eq!(problem(&response), "missing-key", "{scheme}");
    }
    for (scheme, body) in [
        ("stripe", "{}"),
        ("stripe", ""),
        ("stripe", r#"{"id":null}"#),
    ] {
        let request = one_of(scheme).body(body).signed_by(scheme);
        let response = bench.send(&request).await;
        assert_eq!(problem(&response), "missing-key", "{scheme}: {body}");
    }
    for form in ["", "Body=hello"] {
        let request = one_of("twilio").without("i-twilio-idempotency-token");
        let request = request.body(form).signed_by("twilio");
        assert_eq!(
            problem(&bench.send(&request).await),
            "missing-key",
            "twilio: {form}"
        );
    }
    assert_eq!(bench.store.calls(), 0);
}

#[tokio::test]
async fn ids_that_are_no_keys_are_refused() {
    let long = "k".repeat(256);
    for id in ["", "a\nb", "\u{7f}", &long] {
        let requests = [
            gitlab(&serde_json::json!({})).with("idempotency-key", id),
            one_of("github").with("x-github-delivery", id),
            one_of("shopify").with("x-shopify-webhook-id", id),
            one_of("shopify").with("x-shopify-event-id", id),
            one_of("shopify").with("x-shopify-topic", id),
            one_of("twilio").with("i-twilio-idempotency-token", id),
            stripe(id, "invoice.paid", &serde_json::json!({})),
            one_of("token").with("idempotency-key", id),
        ];
        for request in requests {
            let response = Bench::new().send(&request).await;
            assert_eq!(response.status_code, 400, "{id:?}: {request:?}");
            assert_eq!(problem(&response), "malformed-key");
        }
    }
    // The id is signed: an empty one is no signature's.
    let request = standard("", "{}");
    assert_eq!(Bench::new().send(&request).await.status_code, 401);
}
