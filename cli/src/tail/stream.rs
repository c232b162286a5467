//! The connection to the stream: how it is asked for, and what the answers mean.
//!
//! | answer | what follows |
//! | --- | --- |
//! | 200 with `text/event-stream` | it is followed |
//! | 204 | the server wants no more connections, as the standard has it: the end |
//! | 410, 412, 416 to a `Last-Event-ID` | a gap |
//! | 408, 425, 429, 5xx, none | again, after a pause; `Retry-After` is honoured |
//! | a redirect | the end: it is not followed, since the token would go along; the new address is told |
//! | any other | the end: nothing here would make it better |

use std::fmt;
use std::time::Duration;

use firstclaim::clock::Source;
use queue::target::retry_after;
use reqwest::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use reqwest::header::{LOCATION, RETRY_AFTER};
use reqwest::{Client, Response};

use super::Error;
use crate::check::root;
use crate::dev::is_loopback;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

/// A stream that can be connected to. Its `Debug` hides the token.
pub(super) struct Stream {
    http: Client,
    url: String,
    shown: String,
    token: Option<HeaderValue>,
    /// How long nothing may come before the connection counts as dead.
    idle: Duration,
}

/// What became of a connection.
#[derive(Debug)]
pub(super) enum Opened {
    /// Events will come.
    Following(Response),
    /// The server wants no more connections.
    Over,
    /// It can't replay what follows the id.
    Gap(String),
    /// To be tried again.
    Later {
        why: String,
        asked: Option<Duration>,
    },
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("url", &self.shown)
            .finish_non_exhaustive()
    }
}

impl Stream {
    pub(super) fn new(url: String, token: Option<&str>, idle: Duration) -> Result<Self, Error> {
        let shown = shown(&url);
        if token.is_some() && url.starts_with("http:") && !is_loopback(&url) {
            return Err(Error::Usage(format!(
                "the token would go to {shown} unencrypted; use https"
            )));
        }
        let token = match token.map(bearer) {
            Some(None) => {
                return Err(Error::Usage("the token can't stand in a header".to_owned()));
            }
            other => other.flatten(),
        };
        Ok(Self {
            http: client(&url)?
                .connect_timeout(CONNECT)
                .build()
                .map_err(Error::Client)?,
            url,
            shown,
            token,
            idle,
        })
    }

    /// The address without what may be secret in it.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Asks for what follows `id`; for what comes from now on where that is empty.
    pub(super) async fn open(&self, id: &str, source: &impl Source) -> Result<Opened, Error> {
        let mut request = self
            .http
            .get(&self.url)
            .header(ACCEPT, "text/event-stream")
            .header(CACHE_CONTROL, "no-store");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if !id.is_empty() {
            request = request.header("last-event-id", id.as_bytes());
        }
        // Some servers send the head only with the first event.
        let response = match tokio::time::timeout(self.idle, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Ok(Opened::later(root(&error))),
            Err(_) => return Ok(Opened::later("no answer in time".to_owned())),
        };
        let status = response.status();
        let said = |name| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let refused = |why: &str| Error::Refused {
            url: self.shown.clone(),
            why: why.to_owned(),
        };
        match status.as_u16() {
            200 => {
                let kind = said(CONTENT_TYPE).unwrap_or("no content type");
                let essence = kind.split(';').next().unwrap_or_default().trim();
                if essence.eq_ignore_ascii_case("text/event-stream") {
                    return Ok(Opened::Following(response));
                }
                Err(refused(&format!(
                    "the answer is no event stream but {kind}"
                )))
            }
            204 => Ok(Opened::Over),
            410 | 412 | 416 if !id.is_empty() => Ok(Opened::Gap(status.to_string())),
            401 | 403 => Err(refused(match self.token {
                Some(_) => "the token was refused; renew FIRSTCLAIM_TAIL_TOKEN",
                None => "it wants a token; set FIRSTCLAIM_TAIL_TOKEN",
            })),
            408 | 425 | 429 | 500..=599 => Ok(Opened::Later {
                why: status.to_string(),
                asked: said(RETRY_AFTER).and_then(|text| retry_after(text, source.now())),
            }),
            300..=399 => Err(refused(&format!(
                "{status}: redirects are not followed; give the address that it leads to ({})",
                shown(said(LOCATION).unwrap_or("none is told"))
            ))),
            _ if id.is_empty() => Err(refused(&status.to_string())),
            _ => Err(refused(&format!(
                "{status}; if it is the last id that it refuses ({id}), the stream can't be \
                 replayed from there: look at the current state of what is followed, and go on \
                 from now by removing the position's file"
            ))),
        }
    }
}

impl Opened {
    fn later(why: String) -> Self {
        Self::Later { why, asked: None }
    }
}

/// A client without redirects, and without a proxy to this machine itself.
pub(super) fn client(url: &str) -> Result<reqwest::ClientBuilder, Error> {
    // The process may have one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().redirect(reqwest::redirect::Policy::none());
    Ok(match is_loopback(url) {
        true => builder.no_proxy(),
        false => builder,
    })
}

/// An address without its query and fragment, where secrets can be.
pub(super) fn shown(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
