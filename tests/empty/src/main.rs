//! Answers each event with nothing.

use lambda_runtime::{LambdaEvent, service_fn};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::run(service_fn(async |_: LambdaEvent<Value>| {
        Ok::<_, std::convert::Infallible>(Value::Null)
    }))
    .await
}
