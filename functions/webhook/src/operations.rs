//! `/operations`: a caller submits an operation under its own key, and looks up how it stands.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use firstclaim::clock::EpochMillis;
use firstclaim::record::SUSPENDED;
use firstclaim::{Key, Policy, Record, Status, Store, StoreError};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::accept::{Delivery, Unclaimed};
use crate::door::{Answered, Entry, Outcome, Webhook, fingerprint, keyed, message, queued};
use crate::keys;
use crate::outbox::Outbox;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::sender::{Acknowledgement, Presented, Sender, TOKEN_CHALLENGE, Unverified};

/// The length of an operation's id: 32 bytes in base64url.
const ID_LENGTH: usize = 43;

/// The longest result that an answer holds, in bytes: Lambda takes 6 MB with all that is around it.
const RESULT_LIMIT: usize = 4 * 1024 * 1024;

impl<S: Store, Q: Outbox> Webhook<S, Q> {
    /// `POST /operations`
    pub(crate) async fn submit(
        &self,
        request: Request,
        entry: &mut Entry,
    ) -> Result<Answered, Problem> {
        request.check_size()?;
        let now = self.claims.now();
        let sender = self.caller(&request, now, entry).await?;
        // Without the body's bytes nobody can say what was asked for.
        if request.body().is_none() {
            return Err(unauthorized(Unverified::UndecodableBody));
        }
        let (event, keys) = keyed(&sender, &request, entry)?;
        let id = id_of(&sender, &keys.delivery);
        let fingerprint = fingerprint(&sender, &request);
        let delivery = Delivery {
            door: door(&sender, &id)?,
            // A look-up has only the id; the record leads it on to the operation.
            event: keys.operation.as_str().to_owned(),
            fingerprint,
            window: sender.window,
            in_flight: sender.scheme.in_flight(),
            unclaimed: Unclaimed::Refuse,
            body: queued(Some(&id), &keys.operation)?,
            budget: request.budget(),
            message: message(&sender, event, keys, fingerprint, request, now)?,
        };
        let accepted = self.accept(delivery).await?;
        let mut answered = accepted.into_answer(Acknowledgement::Queued);
        let base = self.options.public_url.as_deref().unwrap_or_default();
        answered
            .response
            .set("location", format!("{base}/operations/{id}"));
        Ok(answered)
    }

    /// `GET /operations/{id}`
    pub(crate) async fn look_up(
        &self,
        request: &Request,
        id: &str,
        entry: &mut Entry,
    ) -> Result<Answered, Problem> {
        let now = self.claims.now();
        let sender = self.caller(request, now, entry).await?;
        if id.len() != ID_LENGTH || URL_SAFE_NO_PAD.decode(id).is_err() {
            return Err(Problem::UnknownPath);
        }
        // Other callers' ids live in other scopes, and so are not found.
        let accepted = self.record(&door(&sender, id)?, now).await?;
        let accepted = accepted.ok_or(Problem::UnknownPath)?;
        let key = accepted.origin.event.as_deref().map(Key::parse);
        let Some(Ok(key)) = key else {
            return Err(Problem::UnknownPath);
        };
        let silent_limit = self.claims.config().silent_limit;
        let work = self.record(&key, now).await?;
        let standing = match &work {
            Some(record) => {
                let result = self.result(record).await?;
                Standing::of(record, status(record, now, silent_limit), result)
            }
            None => Standing::before_work(&accepted, now).ok_or(Problem::UnknownPath)?,
        };
        let body = serde_json::to_string(&standing)
            .map_err(|_| Problem::Unavailable { what: "answer" })?;
        Ok(Answered {
            response: Response::new(200, "application/json", body),
            outcome: Outcome::LookedUp,
        })
    }

    /// The `token` sender that a request comes from.
    async fn caller(
        &self,
        request: &Request,
        now: EpochMillis,
        entry: &mut Entry,
    ) -> Result<Arc<Sender>, Problem> {
        let presented = Presented::of(request).map_err(unauthorized)?;
        self.verified(now, entry, |roster| {
            let sender = roster.by_token(&presented);
            sender
                .map(Arc::clone)
                .ok_or(unauthorized(Unverified::Wrong))
        })
        .await
    }

    /// The result or the remembered failure of a record, if it was kept and an answer can hold it.
    async fn result(&self, record: &Record) -> Result<Option<Box<RawValue>>, Problem> {
        let text = self.claims.result(record).await.map_err(unread)?;
        let fits = text.filter(|text| text.len() <= RESULT_LIMIT);
        Ok(fits.and_then(|text| RawValue::from_string(text).ok()))
    }

    /// A record that is still good: inside its window, or being worked on.
    async fn record(&self, key: &Key, now: EpochMillis) -> Result<Option<Record>, Problem> {
        let record = self.claims.read(key).await.map_err(unread)?;
        Ok(record.filter(|record| record.in_window(now) || record.running(now)))
    }
}

/// How an operation stands, as a caller sees it.
#[derive(Debug, Serialize)]
struct Standing<'a> {
    status: &'static str,
    attempt: Option<u32>,
    activity: Option<&'a str>,
    checkpoints: Vec<&'a str>,
    result: Option<Box<RawValue>>,
}

impl<'a> Standing<'a> {
    fn of(record: &'a Record, status: &'static str, result: Option<Box<RawValue>>) -> Self {
        let activity = record.activity.as_ref().filter(|_| status == "running");
        Self {
            status,
            attempt: Some(record.attempt),
            activity: activity.map(|activity| activity.text.as_str()),
            checkpoints: record.checkpoints.keys().map(String::as_str).collect(),
            result,
        }
    }

    /// While there is no record of the work: `accepted` is the door's. `None` if it says that the
    /// queue never took the event.
    fn before_work(accepted: &Record, now: EpochMillis) -> Option<Self> {
        let status = match accepted.status {
            Status::Completed => "queued",
            Status::InProgress if accepted.running(now) => "queued",
            Status::InProgress if accepted.released() => return None,
            // Accepted or not: that could not be recorded.
            Status::InProgress | Status::Failed => "unknown",
        };
        Some(Self {
            status,
            attempt: None,
            activity: None,
            checkpoints: Vec::new(),
            result: None,
        })
    }
}

fn status(record: &Record, now: EpochMillis, silent_limit: u32) -> &'static str {
    let held = record.lease == Some(SUSPENDED)
        || record.policy == Policy::Hold
        || record.silent_attempts() >= silent_limit;
    match record.status {
        Status::Completed => "done",
        Status::Failed => "failed",
        // A lease that is missing locks the record until its window ends.
        Status::InProgress if record.lease.is_none() || record.running(now) => "running",
        Status::InProgress if record.released() => "waiting",
        Status::InProgress if held => "unknown",
        Status::InProgress => "waiting",
    }
}

/// The operation's id: SHA-256 over the scope and the delivery key, in base64url.
fn id_of(sender: &Sender, delivery: &str) -> String {
    let text = format!("{}#{delivery}", sender.name);
    URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes()))
}

/// The key that the door claims for an operation's id: joined, so that no caller's key at
/// `/webhooks` can be the same.
fn door(sender: &Sender, id: &str) -> Result<Key, Problem> {
    let parts = ["operations".into(), id.into()];
    let id = keys::id_of_parts(&parts).ok_or(Problem::MalformedKey)?;
    keys::door(sender, &id)
}

fn unread(error: StoreError) -> Problem {
    tracing::error!(
        error = &error as &dyn std::error::Error,
        "an operation could not be looked up",
    );
    Problem::Unavailable { what: "look_up" }
}

fn unauthorized(why: Unverified) -> Problem {
    Problem::Unauthorized {
        challenge: TOKEN_CHALLENGE,
        why,
    }
}
