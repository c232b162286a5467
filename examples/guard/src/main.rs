//! A Lambda of one's own, guarded: whoever invokes it twice with one order gets the first receipt
//! twice. No queue and no webhook; the table is all that it needs.

use std::convert::Infallible;

use firstclaim::aws::{Patience, sdk_config};
use firstclaim::lambda::OnceLayer;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Attempt, Claims, Config, Failure, Fingerprint, Key};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::{Deserialize, Serialize};
use tower::Layer;

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    amount: u64,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    order: String,
    charged: u64,
    payment: Option<String>,
    request: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    #[expect(clippy::disallowed_methods, reason = "the one setting that there is")]
    let table = std::env::var("CLAIMS_TABLE")?;
    let sdk = sdk_config(Patience::default()).await;
    let store = DynamoDb::new(aws_sdk_dynamodb::Client::new(&sdk), table);
    let claims = Claims::new(store, Config::default())?;
    // The invocation's deadline is the lease: an order whose function was killed runs again then.
    // An order with the id of another and a different amount is refused.
    let once = OnceLayer::new(claims, |order: &Order| Key::new("orders", &order.id))
        .fingerprint(Fingerprint::of::<Order>);
    lambda_runtime::run(once.layer(service_fn(charge))).await
}

/// The work that must happen once. The request's id shows which invocation did it.
async fn charge(event: LambdaEvent<Order>) -> Result<Receipt, Failure<Infallible>> {
    // A payment service gets this as its Idempotency-Key: it is the same on every attempt.
    let payment = Attempt::current().map(|attempt| attempt.downstream_key("charge"));
    Ok(Receipt {
        order: event.payload.id,
        charged: event.payload.amount,
        payment,
        request: event.context.request_id,
    })
}
