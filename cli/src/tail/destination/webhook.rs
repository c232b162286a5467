//! A webhook that verifies its sender.

use std::fmt;
use std::time::Duration;

use ::webhook::signing::{Unsigned, sign};
use firstclaim::clock::Source;
use queue::target::retry_after;
use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use super::Handed;
use crate::check::root;
use crate::dev::is_loopback;
use crate::tail::Error;
use crate::tail::event::Event;
use crate::tail::stream::{client, shown};

/// How long an answer may take; what the most patient of senders waits.
const LIMIT: Duration = Duration::from_secs(15);

/// What every event is.
const JSON: &str = "application/json";

/// A webhook. Its `Debug` hides the secret.
pub(in crate::tail) struct Webhook {
    http: Client,
    url: String,
    scheme: &'static str,
    secret: String,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shape = f.debug_struct("Webhook");
        shape
            .field("url", &shown(&self.url))
            .field("scheme", &self.scheme);
        shape.finish_non_exhaustive()
    }
}

impl Webhook {
    /// The webhook at `url`, for which `secret` signs by `scheme`.
    pub(in crate::tail) fn new(
        url: &str,
        scheme: &'static str,
        secret: String,
    ) -> Result<Self, Error> {
        if scheme == "token" && url.starts_with("http:") && !is_loopback(url) {
            return Err(Error::Usage(format!(
                "the token would go to {} unencrypted; use https",
                shown(url)
            )));
        }
        let webhook = Self {
            http: client(url)?.timeout(LIMIT).build().map_err(Error::Client)?,
            url: url.to_owned(),
            scheme,
            secret,
        };
        // What can't sign is found now, not at the first event.
        let try_out = webhook.headers("try", b"{}", firstclaim::clock::EpochMillis(0));
        try_out
            .map(|_| webhook)
            .map_err(|why| Error::Usage(format!("the secret {why}")))
    }

    /// The sender's name, as webhooks of this project have it: the last part of the path.
    pub(super) fn sender(&self) -> String {
        let shown = shown(&self.url);
        let (_, name) = shown
            .trim_end_matches('/')
            .rsplit_once('/')
            .unwrap_or_default();
        name.to_owned()
    }

    pub(super) async fn post(&self, event: &Event, source: &impl Source) -> Handed {
        // Signed for each try: a time stamp is good for minutes only.
        let headers = match self.headers(&event.delivery, event.body.as_bytes(), source.now()) {
            Ok(headers) => headers,
            Err(why) => return Handed::Wrong(format!("the secret {why}")),
        };
        let request = self.http.post(&self.url).headers(headers);
        let response = match request.body(event.body.clone()).send().await {
            Ok(response) => response,
            Err(error) if error.is_timeout() => return later("no answer in time".to_owned()),
            Err(error) => return later(root(&error)),
        };
        let status = response.status();
        let why = status.to_string();
        match status.as_u16() {
            200..=299 => Handed::Done,
            400 | 413 | 422 => Handed::Never(why),
            408 | 409 | 425 | 429 | 500..=599 => Handed::Later {
                why,
                asked: response
                    .headers()
                    .get(RETRY_AFTER)
                    .and_then(|value| value.to_str().ok())
                    .and_then(|text| retry_after(text, source.now())),
            },
            401 | 403 => Handed::Wrong(format!("{why}: the secret or the scheme is not its own")),
            300..=399 => Handed::Wrong(format!("{why}: redirects are not followed")),
            _ => Handed::Wrong(why),
        }
    }

    fn headers(
        &self,
        id: &str,
        body: &[u8],
        at: firstclaim::clock::EpochMillis,
    ) -> Result<HeaderMap, String> {
        let unsigned = Unsigned {
            url: &self.url,
            content_type: JSON,
            body,
            id,
            at,
        };
        let signed = sign(self.scheme, &self.secret, &unsigned).map_err(|error| match error {
            ::webhook::signing::SigningError::Secret(fault) => fault,
            other => other.to_string(),
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        for (name, value) in signed.headers {
            // A secret can be in one of them.
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| format!("makes a header {name} that HTTP does not take"))?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }
}

fn later(why: String) -> Handed {
    Handed::Later { why, asked: None }
}
