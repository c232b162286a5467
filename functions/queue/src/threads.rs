//! The threads server: where people and agents work on one thing together. The worker reads a
//! thread's state there before it acts, and tells its result in a reply.
//!
//! It is an MCP server with four tools, and no idempotency of its own:
//!
//! | tool | arguments | what is read of its answer |
//! | --- | --- | --- |
//! | `get_thread_context` | `repo`, `thread_number` | the thread's `state` or `status`; of each of `replies` its `id`, `body` and `links` |
//! | `create_reply` | `repo`, `thread_number`, `kind`, `body`, `links` | the reply's `id` |
//! | `update_reply` | `repo`, `thread_number`, `reply_id`, `body`, `links` | |
//! | `update_activity` | `activity`: a line, or an empty text for none | |
//!
//! An answer is taken from `structuredContent`, else from the first text, as JSON.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_config::SdkConfig;
use firstclaim::clock::EpochMillis;
use reqwest::Url;
use serde_json::{Value, json};

mod answer;
mod client;
mod context;
mod error;
mod name;
mod reply;

use crate::config::ThreadsSettings;
use crate::target::{Target, TargetError};
use crate::token::Token;
use client::Client;

pub(crate) use client::Until;
pub(crate) use context::Context;
pub use error::ThreadsError;
pub(crate) use name::{NameError, ThreadName};
pub(crate) use reply::{Reply, Told, mark};

/// The longest call of the server.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest wait for an activity to be taken, and for it to be taken away.
const ACTIVITY_PATIENCE: Duration = Duration::from_secs(2);

/// How often an activity is tried to be cleared within its patience.
const CLEARINGS: u32 = 3;

/// The tools that are called.
const TOOLS: [&str; 4] = [
    "get_thread_context",
    "create_reply",
    "update_reply",
    "update_activity",
];

/// The kind of the replies.
const KIND: &str = "implementation";

/// The client of the threads server. Cheap to clone; make one per process. Nothing is sent before
/// an event names a thread.
#[derive(Clone)]
pub struct Threads(Arc<Inner>);

struct Inner {
    url: Url,
    client: Client,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads")
            .field("url", &self.0.url.as_str())
            .finish_non_exhaustive()
    }
}

impl Threads {
    /// A client for `settings` that shares the target's connections; a token in Secrets Manager is
    /// read with `sdk`, when it is first needed.
    ///
    /// # Errors
    ///
    /// The token can't stand in a header.
    pub fn new(
        settings: ThreadsSettings,
        target: &Target,
        sdk: &SdkConfig,
    ) -> Result<Self, TargetError> {
        let token = Token::new(settings.token, sdk, "threads").ok_or(TargetError::Token)?;
        let url = settings.url;
        let client = Client::new(target.http().clone(), url.clone(), token);
        Ok(Self(Arc::new(Inner { url, client })))
    }

    /// Whether the server is there, takes the token, and has the tools: those that it lacks. Nothing
    /// is changed at it.
    ///
    /// # Errors
    ///
    /// It did not say.
    pub async fn missing_tools(
        &self,
        limit: Duration,
        now: EpochMillis,
    ) -> Result<Vec<&'static str>, ThreadsError> {
        let tools = self.0.client.tools(Until::within(limit, now)).await?;
        let missing = TOOLS.into_iter().filter(|tool| !tools.contains_key(*tool));
        Ok(missing.collect())
    }

    /// The current state of a thread.
    pub(crate) async fn context(
        &self,
        thread: &ThreadName,
        until: Until,
    ) -> Result<Context, ThreadsError> {
        let arguments = json!({"repo": thread.repo(), "thread_number": thread.number()});
        let value = self.call("get_thread_context", &arguments, until).await?;
        Context::read(&value)
    }

    /// Posts a reply, once; its id, where the server says it. After an error it may be there all the
    /// same, unless the error [says otherwise](ThreadsError::not_done).
    pub(crate) async fn create(
        &self,
        thread: &ThreadName,
        reply: &Reply,
        until: Until,
    ) -> Result<Option<String>, ThreadsError> {
        let arguments = json!({
            "repo": thread.repo(),
            "thread_number": thread.number(),
            "kind": KIND,
            "body": reply.body,
            "links": reply.links,
        });
        let value = self.call("create_reply", &arguments, until).await?;
        Ok(context::id_of(value.get("reply").unwrap_or(&value)).map(|(_, text)| text))
    }

    /// Makes a reply say what `reply` says.
    pub(crate) async fn update(
        &self,
        thread: &ThreadName,
        id: &Value,
        reply: &Reply,
        until: Until,
    ) -> Result<(), ThreadsError> {
        let arguments = json!({
            "repo": thread.repo(),
            "thread_number": thread.number(),
            "reply_id": id,
            "body": reply.body,
            "links": reply.links,
        });
        self.call("update_reply", &arguments, until).await?;
        Ok(())
    }

    /// Says what is being done. For people to see: whether it arrives decides nothing.
    pub(crate) async fn say(&self, activity: &str, until: Until) {
        let said = self.activity(activity, shorter(until, ACTIVITY_PATIENCE));
        if let Err(error) = said.await {
            tracing::debug!(target: "firstclaim::threads", %error, "an activity was not taken");
        }
    }

    /// Says that nothing is being done any more; likewise. What is said twice is still nothing, so
    /// that it may be said again where it is not known to have arrived.
    pub(crate) async fn clear(&self, until: Until) {
        let until = shorter(until, ACTIVITY_PATIENCE);
        for _ in 0..CLEARINGS {
            match self.activity("", until).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(target: "firstclaim::threads", %error, "an activity was not cleared");
                }
            }
        }
    }

    async fn activity(&self, text: &str, until: Until) -> Result<(), ThreadsError> {
        let arguments = json!({"activity": text});
        self.call("update_activity", &arguments, until).await?;
        Ok(())
    }

    /// Calls a tool, and takes its answer out of its wrapping.
    async fn call(
        &self,
        tool: &'static str,
        arguments: &Value,
        until: Until,
    ) -> Result<Value, ThreadsError> {
        let until = shorter(until, CALL_TIMEOUT);
        let mut result = self.0.client.call(tool, arguments, until).await?;
        let kind = result.get("resultType").and_then(Value::as_str);
        if kind.is_some_and(|kind| kind != "complete") {
            // It wants to be told more, which nobody is there for.
            return Err(ThreadsError::Tool);
        }
        if result.get("isError").and_then(Value::as_bool) == Some(true) {
            return Err(ThreadsError::Tool);
        }
        let structured = result.get_mut("structuredContent").map(Value::take);
        if let Some(value) = structured.filter(|value| !value.is_null()) {
            return Ok(value);
        }
        let contents = result.get("content").and_then(Value::as_array);
        let text = contents
            .into_iter()
            .flatten()
            .find_map(|content| content.get("text")?.as_str());
        // A tool that only acts may say so in words.
        Ok(text
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default())
    }
}

fn shorter(until: Until, limit: Duration) -> Until {
    let limit = tokio::time::Instant::now() + limit;
    Until {
        deadline: until.deadline.min(limit),
        ..until
    }
}
