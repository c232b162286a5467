//! What the bodies of Shopify's topics must have. The topic comes from a header that is not signed:
//! an order that was created must not be taken for one that was cancelled.

use Must::{Has, Is};
use serde_json::Value;

/// One thing that a body must have.
enum Must {
    /// Something else than null at this pointer.
    Has(&'static str),
    /// This text at this pointer.
    Is(&'static str, &'static str),
}

/// Topics by their beginning, the longer ones first.
const TOPICS: &[(&str, &[Must])] = &[
    ("orders/cancelled", &[Has("/id"), Has("/cancelled_at")]),
    (
        "orders/paid",
        &[Has("/id"), Is("/financial_status", "paid")],
    ),
    (
        "orders/fulfilled",
        &[Has("/id"), Is("/fulfillment_status", "fulfilled")],
    ),
    (
        "orders/partially_fulfilled",
        &[Has("/id"), Is("/fulfillment_status", "partial")],
    ),
    ("orders/create", &[Has("/id"), Has("/line_items")]),
    ("orders/updated", &[Has("/id"), Has("/line_items")]),
    ("orders/edited", &[Has("/order_edit")]),
    ("orders/delete", &[Has("/id")]),
    (
        "refunds/create",
        &[Has("/id"), Has("/order_id"), Has("/refund_line_items")],
    ),
    ("fulfillments/", &[Has("/id"), Has("/order_id")]),
    (
        "order_transactions/create",
        &[Has("/id"), Has("/order_id"), Has("/gateway")],
    ),
    ("products/create", &[Has("/id"), Has("/variants")]),
    ("products/update", &[Has("/id"), Has("/variants")]),
    ("products/delete", &[Has("/id")]),
    ("carts/", &[Has("/token"), Has("/line_items")]),
    ("checkouts/create", &[Has("/token"), Has("/line_items")]),
    ("checkouts/update", &[Has("/token"), Has("/line_items")]),
    (
        "inventory_levels/",
        &[Has("/inventory_item_id"), Has("/location_id")],
    ),
    ("app/uninstalled", &[Has("/id"), Has("/shop_owner")]),
    ("shop/update", &[Has("/id"), Has("/shop_owner")]),
];

/// Whether a body can be one of this topic; a topic that is not listed says nothing.
pub(super) fn fits(topic: &str, document: Option<&Value>) -> bool {
    let listed = TOPICS.iter().find(|(start, _)| topic.starts_with(start));
    listed.is_none_or(|(_, must)| {
        document.is_some_and(|document| must.iter().all(|must| must.holds(document)))
    })
}

impl Must {
    fn holds(&self, document: &Value) -> bool {
        let value = |pointer| document.pointer(pointer).filter(|value| !value.is_null());
        match self {
            Has(pointer) => value(pointer).is_some(),
            Is(pointer, text) => value(pointer).and_then(Value::as_str) == Some(text),
        }
    }
}
