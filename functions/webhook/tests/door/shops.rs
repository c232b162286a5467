//! Shopify, GitLab and Stripe: what is told apart by what they sign, and what they don't.

use serde_json::{Value, json};

use crate::bench::{Bench, Request};
use crate::identity::events::{body_of, gitlab, merge_request, shopify, stripe, with};

#[tokio::test]
async fn n13_an_order_under_another_topic_is_not_taken_for_that() {
    let order = body_of("shopify/orders-create.json");
    let shop = body_of("shopify/app-uninstalled.json");
    let rows = [
        ("orders/create", &order, true),
        ("orders/updated", &order, true),
        ("orders/delete", &order, true),
        ("orders/cancelled", &order, false),
        ("orders/fulfilled", &order, false),
        ("orders/edited", &order, false),
        ("refunds/create", &order, false),
        ("products/update", &order, false),
        ("app/uninstalled", &order, false),
        ("app/uninstalled", &shop, true),
        ("orders/create", &shop, false),
        ("themes/publish", &shop, true),
    ];
    let bench = Bench::new();
    for (topic, body, fits) in rows {
        bench.send(&shopify(topic, "event-1", body)).await;
        let envelope = bench.queue.envelopes().pop().unwrap();
        let told = envelope.headers.contains_key("x-shopify-topic");
        let kind = if fits { topic } else { "unknown" };
        assert_eq!((envelope.kind.as_str(), told), (kind, fits), "{topic}");
    }
    // Its own: it was cancelled.
    let cancelled = with(
        &order,
        &json!({"cancelled_at": "2026-11-12T04:21:07-05:00"}),
    );
    let seen = bench
        .seen(&shopify("orders/cancelled", "event-1", &cancelled))
        .await;
    assert_eq!(seen.kind, "orders/cancelled");
}

/// The ids are not signed. A captured body under a new webhook id is one operation as long as the
/// event's id is not made up too.
#[tokio::test]
async fn n13_a_captured_body_under_other_ids() {
    let bench = Bench::new();
    let request = Request::of("shopify/orders-create.json");
    let first = bench.seen(&request).await;
    let again = bench
        .seen(&request.clone().with("x-shopify-webhook-id", "captured"))
        .await;
    assert_ne!(again.door, first.door);
    assert_eq!(again.operation, first.operation);
    // Documented: this one can't be told from another event.
    let forged = bench
        .seen(&request.with("x-shopify-event-id", "forged"))
        .await;
    assert_ne!(forged.operation, first.operation);
}

#[tokio::test]
async fn the_two_families_of_shopifys_headers_are_not_mixed() {
    let bench = Bench::new();
    let newer = Request::of("shopify/events.product-update.json");
    let plain = bench.seen(&newer).await;
    let crowded = newer
        .clone()
        .with("x-shopify-shop-domain", "forged")
        .with("x-shopify-topic", "forged")
        .with("x-shopify-event-id", "forged");
    assert_eq!(bench.seen(&crowded).await, plain);
    // The older signature counts where both are there.
    let both = crowded.with("x-shopify-hmac-sha256", "AAAA");
    assert_eq!(bench.send(&both).await.status_code, 401);
}

#[tokio::test]
async fn n1_a_merge_request_opened_and_updated_twice_is_three_operations() {
    let bench = Bench::new();
    let updated = |second: u32| {
        merge_request(
            "update",
            &json!({
                "object_attributes/updated_at": format!("2026-11-12 10:20:{second} UTC"),
                "changes": {"title": {"current": second}},
            }),
        )
    };
    let requests = [merge_request("open", &json!({})), updated(20), updated(30)];
    for request in &requests {
        assert_eq!(bench.send(request).await.status_code, 202);
    }
    for request in &requests {
        assert_eq!(
            bench.send(request).await.headers["idempotent-replayed"],
            "true"
        );
    }
    assert_eq!(bench.queue.messages().len(), 3);
    assert_eq!(bench.queue.operations(), 3);
}

#[tokio::test]
async fn n2_deleting_a_branch_twice_is_two_operations_at_gitlab_too() {
    let deletion = with(
        &body_of("gitlab/push.json"),
        &json!({"after": "0".repeat(40), "checkout_sha": null}),
    );
    let bench = Bench::new();
    bench.send(&gitlab(&deletion)).await;
    bench.send(&gitlab(&deletion)).await;
    assert_eq!(bench.queue.operations(), 2);
    // Older servers have no key for each delivery: the event's own UUID stands in.
    let old = |uuid: &str| {
        gitlab(&deletion)
            .without("idempotency-key")
            .with("x-gitlab-event-uuid", uuid)
    };
    bench.send(&old("a")).await;
    bench.send(&old("b")).await;
    bench.send(&old("b")).await;
    assert_eq!(bench.queue.operations(), 4);
}

/// Hooks that set off each other share the event's UUID.
#[tokio::test]
async fn an_old_servers_uuid_is_one_delivery_only_with_its_body() {
    let bench = Bench::new();
    let request = Request::of("gitlab/push.old-server.json");
    let first = bench.seen(&request).await;
    let other = with(
        &body_of("gitlab/push.old-server.json"),
        &json!({"ref": "refs/heads/b"}),
    );
    let other = bench.seen(&request.clone().body(other.to_string())).await;
    assert_ne!(first.door, other.door);
    // New in each request, and so no part of it.
    let resent = request.with("x-gitlab-webhook-uuid", "another");
    assert_eq!(bench.seen(&resent).await, first);
}

#[tokio::test]
async fn bodies_of_gitlab_that_lack_what_their_kind_must_have_are_unknown() {
    let bench = Bench::new();
    let odd = [
        json!({"object_kind": "push"}),
        json!({"object_kind": "merge_request", "object_attributes": {"action": "merge"}}),
        json!({"object_kind": "note", "object_attributes": {"id": 1}}),
        json!({"object_kind": "pipeline", "object_attributes": {"id": 1}}),
        json!({"object_kind": 7}),
        json!({}),
        json!([]),
        Value::Null,
    ];
    for body in odd {
        let seen = bench.seen(&gitlab(&body)).await;
        assert_eq!(
            (&*seen.kind, seen.fallback),
            ("unknown", Some("default")),
            "{body}"
        );
    }
    let system = bench
        .seen(&gitlab(&json!({"event_name": "project_create"})))
        .await;
    assert_eq!(&*system.kind, "project_create");
}

#[tokio::test]
async fn a36_by_a_rule_two_events_of_one_charge_are_one_operation() {
    let files = [
        "stripe/charge.succeeded.json",
        "stripe/charge.succeeded.second-event.json",
    ];
    let bench = Bench::new();
    for file in files {
        bench.send(&Request::of(file)).await;
        let again = bench.send(&Request::of(file)).await;
        assert_eq!(again.headers["idempotent-replayed"], "true");
    }
    assert_eq!(bench.queue.operations(), 2);
    let mut senders = Bench::senders();
    senders["stripe"]["operation_key"] = json!("[account || 'own', type, data.object.id]");
    let bench = Bench::with_senders(&senders);
    for file in files {
        bench.send(&Request::of(file)).await;
    }
    assert_eq!(bench.queue.operations(), 1);
}

#[tokio::test]
async fn n6_every_event_of_stripe_is_its_own_operation() {
    let bench = Bench::new();
    let requests = [
        stripe("evt_1", "customer.subscription.updated", &json!({})),
        stripe("evt_2", "customer.subscription.updated", &json!({})),
        stripe("evt_3", "payment_intent.succeeded", &json!({})),
        stripe("evt_4", "charge.succeeded", &json!({})),
        stripe("evt_5", "payout.paid", &json!({"account": "acct_1"})),
        stripe("evt_5", "payout.paid", &json!({"account": "acct_2"})),
        stripe(
            "evt_5",
            "payout.paid",
            &json!({"account": "acct_2", "livemode": false}),
        ),
        stripe(
            "evt_5",
            "v1.billing.meter",
            &json!({"context": "acct_2", "object": "v2.core.event"}),
        ),
    ];
    for request in &requests {
        let response = bench.send(request).await;
        assert_eq!(response.headers.get("idempotent-replayed"), None);
    }
    assert_eq!(bench.queue.operations(), requests.len());
}
