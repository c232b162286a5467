//! AWS clients whose time-outs, retries and TLS are set on purpose.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::Credentials;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;

/// How long a client tries before it gives up on one call.
///
/// Repeating is safe for every write of the protocol: each names the owner that it expects or
/// makes, so that a copy which lands late or twice changes nothing. (The SDK's own first back-off
/// of a second is too long for a webhook.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often a call is sent at the most.
    pub attempts: u32,
    /// The limit of one attempt.
    pub attempt: Duration,
    /// The limit of the call with all its attempts.
    pub total: Duration,
}

impl Default for Patience {
    /// Three attempts of a second each, two and a half seconds in all.
    fn default() -> Self {
        Self {
            attempts: 3,
            attempt: Duration::from_millis(1000),
            total: Duration::from_millis(2500),
        }
    }
}

/// The configuration for all AWS clients of a process, from the environment as every AWS SDK reads
/// it (`AWS_REGION`, `AWS_ENDPOINT_URL`, credentials, …).
pub async fn sdk_config(patience: Patience) -> SdkConfig {
    loader(patience).load().await
}

/// The same for an endpoint on this machine: it brings a Region and dummy credentials itself, so
/// that no AWS settings are needed.
pub async fn loopback_config(endpoint: &str, patience: Patience) -> SdkConfig {
    let credentials = Credentials::new("firstclaim", "firstclaim", None, None, "loopback");
    loader(patience)
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials)
        .endpoint_url(endpoint)
        .load()
        .await
}

fn loader(patience: Patience) -> aws_config::ConfigLoader {
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let retries = RetryConfig::standard()
        .with_max_attempts(patience.attempts)
        .with_initial_backoff(Duration::from_millis(25))
        .with_max_backoff(Duration::from_millis(400));
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_millis(500))
        .operation_attempt_timeout(patience.attempt)
        .operation_timeout(patience.total)
        .build();
    aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .retry_config(retries)
        .timeout_config(timeouts)
}
