//! A bearer token: fixed, or from Secrets Manager.

use std::fmt;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_secretsmanager::Client;
use firstclaim::clock::EpochMillis;
use futures_util::lock::Mutex;
use reqwest::header::HeaderValue;

use crate::config::TokenSource;
use crate::log::chain;

/// How long a token that was read is used without asking again.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// The least time between two readings after a token has been refused, or while Secrets Manager
/// fails.
const PAUSE: Duration = Duration::from_secs(60);

/// The least time between two readings while there is no token at all.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The token, as the value of the header `Authorization`.
pub(crate) enum Token {
    None,
    Fixed(HeaderValue),
    Managed {
        client: Box<Client>,
        secret: String,
        /// Whom it is for, in a log line.
        of: &'static str,
        state: Mutex<State>,
    },
}

/// There is no token, although there should be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unread;

/// What is known of a token in Secrets Manager.
#[derive(Default)]
pub(crate) struct State {
    /// The last token that was read, and when.
    token: Option<(HeaderValue, EpochMillis)>,
    /// When reading was last tried.
    tried: Option<EpochMillis>,
    /// Whether that failed; said once.
    failing: bool,
}

impl Token {
    /// A token for `of`; `None` if a fixed one can't stand in a header.
    pub(crate) fn new(source: TokenSource, sdk: &SdkConfig, of: &'static str) -> Option<Self> {
        Some(match source {
            TokenSource::None => Self::None,
            TokenSource::Fixed(token) => Self::Fixed(bearer(&token)?),
            TokenSource::SecretsManager(secret) => Self::Managed {
                client: Box::new(Client::new(sdk)),
                secret,
                of,
                state: Mutex::default(),
            },
        })
    }

    /// The token to send; `None` where none is asked for.
    pub(crate) async fn current(&self, now: EpochMillis) -> Result<Option<HeaderValue>, Unread> {
        let (client, secret, of, state) = match self {
            Self::None => return Ok(None),
            Self::Fixed(token) => return Ok(Some(token.clone())),
            Self::Managed {
                client,
                secret,
                of,
                state,
            } => (client, secret, of, state),
        };
        let mut state = state.lock().await;
        let due = match (&state.token, state.tried) {
            (Some((_, read)), Some(tried)) => now.since(*read) >= KEPT && now.since(tried) >= PAUSE,
            (None, Some(tried)) => now.since(tried) >= FIRST_PAUSE,
            (_, None) => true,
        };
        if due {
            state.read(client, secret, of, now).await;
        }
        match &state.token {
            Some((token, _)) => Ok(Some(token.clone())),
            None => Err(Unread),
        }
    }

    /// Another token than `refused`, which has been refused: read again, unless that was done less
    /// than a minute ago.
    pub(crate) async fn renewed(
        &self,
        refused: &HeaderValue,
        now: EpochMillis,
    ) -> Option<HeaderValue> {
        let Self::Managed {
            client,
            secret,
            of,
            state,
        } = self
        else {
            return None;
        };
        let mut state = state.lock().await;
        let other = |state: &State| {
            let (token, _) = state.token.as_ref()?;
            (token != refused).then(|| token.clone())
        };
        if let Some(token) = other(&state) {
            return Some(token);
        }
        if state.tried.is_none_or(|tried| now.since(tried) >= PAUSE) {
            state.read(client, secret, of, now).await;
        }
        other(&state)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl State {
    /// Reads the secret; a failure keeps the old token and is said once.
    async fn read(&mut self, client: &Client, secret: &str, of: &str, now: EpochMillis) {
        self.tried = Some(now);
        let answer = client.get_secret_value().secret_id(secret).send().await;
        let token = match &answer {
            Ok(value) => value.secret_string().and_then(bearer),
            Err(_) => None,
        };
        match token {
            Some(token) => {
                self.token = Some((token, now));
                self.failing = false;
            }
            None if self.failing => {}
            None => {
                self.failing = true;
                let cause = match &answer {
                    Ok(_) => "the secret is no text that can stand in a header".to_owned(),
                    Err(error) => chain(error),
                };
                tracing::error!(
                    target: "firstclaim::token",
                    of,
                    cause,
                    kept = self.token.is_some(),
                    "a token could not be read from Secrets Manager",
                );
            }
        }
    }
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let token = token.trim_end_matches(['\r', '\n']);
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
