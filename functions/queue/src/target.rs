//! The target: where an operation is applied, over HTTP.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_config::SdkConfig;
use firstclaim::Key;
use firstclaim::clock::EpochMillis;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url};

mod answer;
mod headers;

pub use answer::{ANSWER_LIMIT, Applied, Class, Refusal, retry_after};
pub(crate) use headers::percent_encoded;

use crate::config::TargetSettings;
use crate::token::Token;

/// The step that a downstream key is made for: one operation, one call.
pub const STEP: &str = "target";

/// The limit of making a connection: what fails by then has not been sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// For how long a connection waits for the next record. Short, since one that the other side
/// dropped while the process was frozen fails after the request went out.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a refusal's body is waited for: its status says all that matters.
const EXCERPT_PATIENCE: Duration = Duration::from_millis(500);

/// How much of a refusal's body is read, in bytes.
const REFUSAL_LIMIT: usize = 16 * 1024;

/// How much of a refusal's body is kept as the failure's message, in bytes.
const EXCERPT_LIMIT: usize = 512;

/// The client of the target. Cheap to clone; make one per process.
#[derive(Clone)]
pub struct Target {
    http: Client,
    url: Url,
    senders: Arc<BTreeMap<String, Url>>,
    timeout: Duration,
    token: Arc<Token>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("url", &self.url.as_str())
            .field("senders", &self.senders)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// TLS could not be set up: no root certificates, for example.
    #[error("the HTTP client could not be made")]
    Client(#[from] reqwest::Error),
    /// The token can't stand in a header.
    #[error("the token has characters that can't stand in a header")]
    Token,
}

/// One call of the target.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The configured sender's name.
    pub sender: &'a str,
    /// The event's kind.
    pub kind: &'a str,
    /// The delivery's id.
    pub delivery: &'a str,
    /// The operation's key.
    pub key: &'a Key,
    /// The attempt.
    pub attempt: u32,
    /// The same on every attempt: what the target tells repetitions by.
    pub downstream_key: &'a str,
    /// The body's content type.
    pub content_type: &'a str,
    /// The sender's headers that are passed on.
    pub headers: &'a BTreeMap<String, String>,
    /// The body.
    pub body: &'a [u8],
    /// The record's X-Ray trace header.
    pub trace: Option<&'a str>,
}

/// Where a call goes, and with which token.
#[derive(Clone, Debug)]
pub struct Route {
    url: Url,
    /// Its `Debug` hides it.
    token: Option<HeaderValue>,
}

impl Target {
    /// A client for `settings`; a token in Secrets Manager is read with `sdk`, when it is first
    /// needed.
    ///
    /// Redirects are not followed, and proxies of the environment are not used.
    ///
    /// # Errors
    ///
    /// TLS could not be set up, or the token can't stand in a header.
    pub fn new(settings: TargetSettings, sdk: &SdkConfig) -> Result<Self, TargetError> {
        // The process may have one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .user_agent(concat!("firstclaim/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build()?;
        Ok(Self {
            http,
            token: Arc::new(Token::new(settings.token, sdk, "target").ok_or(TargetError::Token)?),
            url: settings.url,
            senders: Arc::new(settings.senders),
            timeout: settings.timeout,
        })
    }

    /// The HTTP client, for what else this process calls: it follows no redirects and uses no
    /// proxies of the environment.
    pub(crate) fn http(&self) -> &Client {
        &self.http
    }

    /// Where calls of `sender` go. Nothing is sent to the target.
    ///
    /// # Errors
    ///
    /// The target's token can't be had.
    pub async fn route(&self, sender: &str, now: EpochMillis) -> Result<Route, Refusal> {
        let url = self.senders.get(sender).unwrap_or(&self.url);
        // The token was given for TARGET_URL; another host must not learn it.
        let token = if url.origin() == self.url.origin() {
            let token = self.token.current(now).await;
            token.map_err(|_| {
                Refusal::unsent(
                    "token_unavailable",
                    "the target's token could not be read from Secrets Manager",
                )
            })?
        } else {
            None
        };
        let url = url.clone();
        Ok(Route { url, token })
    }

    /// Applies one operation: within `left` and the configured time-out, whichever is shorter.
    ///
    /// # Errors
    ///
    /// The target did not confirm it; what that means for the claim is in the refusal.
    pub async fn apply(
        &self,
        route: &Route,
        call: &Call<'_>,
        left: Duration,
        now: EpochMillis,
    ) -> Result<Applied, Refusal> {
        let timeout = self.timeout.min(left);
        if timeout.is_zero() {
            return Err(Refusal::unsent("no_time", "no time was left for the call"));
        }
        let Route { url, token } = route;
        let deadline = tokio::time::Instant::now() + timeout;
        let answer = self.send(url, call, token.as_ref(), deadline).await?;
        let renewed = match (token, answer.status().as_u16()) {
            (Some(sent), 401) => self.token.renewed(sent, now).await,
            _ => None,
        };
        let answer = match renewed {
            // Refused for its token alone, so that nothing was done: sending it again is safe.
            Some(renewed) => self.send(url, call, Some(&renewed), deadline).await?,
            None => answer,
        };
        read_answer(answer, now).await
    }

    async fn send(
        &self,
        url: &Url,
        call: &Call<'_>,
        token: Option<&HeaderValue>,
        deadline: tokio::time::Instant,
    ) -> Result<Response, Refusal> {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        self.http
            .post(url.clone())
            .headers(headers::of(call, token))
            .timeout(left)
            .body(call.body.to_vec())
            .send()
            .await
            .map_err(|error| failed(&error))
    }
}

/// What the target answered, bounded.
async fn read_answer(mut answer: Response, now: EpochMillis) -> Result<Applied, Refusal> {
    let status = answer.status().as_u16();
    let class = match answer::classify(status) {
        None => {
            let content_type = text_of(answer.headers(), &CONTENT_TYPE);
            let body = match bounded_body(&mut answer, ANSWER_LIMIT).await {
                Ok(body) => body,
                Err(error) => return Err(failed(&error)),
            };
            return Ok(Applied::new(status, content_type, body));
        }
        Some(class) => class,
    };
    let retry_after =
        text_of(answer.headers(), &RETRY_AFTER).and_then(|text| answer::retry_after(&text, now));
    // Read for the sake of the connection too: one whose answer was not read can't be used again.
    let said = tokio::time::timeout(EXCERPT_PATIENCE, excerpt(&mut answer)).await;
    let excerpt = said.ok().flatten().filter(|_| class == Class::Permanent);
    Err(Refusal::status(
        class,
        status,
        excerpt.as_deref(),
        retry_after,
    ))
}

/// The first bytes of what a target said about a refusal, for people to read.
async fn excerpt(answer: &mut Response) -> Option<String> {
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        text.extend_from_slice(&chunk);
        if text.len() >= REFUSAL_LIMIT {
            break;
        }
    }
    text.truncate(EXCERPT_LIMIT);
    let text = String::from_utf8_lossy(&text).replace(|c: char| c.is_control(), " ");
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The whole body, or `None` if it is longer than `limit`.
async fn bounded_body(
    answer: &mut Response,
    limit: usize,
) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

fn text_of(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    (value.len() <= 256).then(|| value.to_owned())
}

/// A call that has no answer: whether it went out decides what is known.
fn failed(error: &reqwest::Error) -> Refusal {
    if error.is_connect() {
        Refusal::unsent("connect", "no connection to the target")
    } else if error.is_builder() {
        Refusal::unsent("request", "the request could not be made")
    } else if error.is_timeout() {
        Refusal::unknown("timeout", "the target did not answer in time")
    } else {
        Refusal::unknown("reset", "the connection ended before the answer")
    }
}
