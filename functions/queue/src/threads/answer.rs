//! What an MCP server answers: a JSON-RPC response as JSON or as the last event of a stream, or a
//! refusal by status. Nothing that a server says as text goes any further from here than the result.

use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use serde::Deserialize;
use serde_json::Value;

use super::ThreadsError;
use crate::event_stream::{Data, Parser};

/// The longest answer that is read, in bytes.
const ANSWER_LIMIT: usize = 4 * 1024 * 1024;

/// The versions that a request had must be another: the server offers some.
const UNSUPPORTED_VERSION: i64 = -32022;

/// The headers and the body of a request don't say the same, or a header is missing.
const HEADER_MISMATCH: i64 = -32020;

/// The server wants a capability that the request does not claim.
const MISSING_CAPABILITY: i64 = -32021;

/// The server has no such method.
const NO_METHOD: i64 = -32601;

/// An answer that says something of the request.
#[derive(Debug)]
pub(super) enum Answer {
    Result(Value),
    Rejected(Rejection),
}

/// A request that was refused as it is: by a status, by a JSON-RPC error, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) status: u16,
    /// The JSON-RPC error's code.
    pub(super) code: Option<i64>,
    /// The revisions that the server offers.
    supported: Vec<String>,
}

impl Rejection {
    /// Whether only a server of the newer revision refuses so.
    pub(super) fn is_modern(&self) -> bool {
        match self.code {
            Some(UNSUPPORTED_VERSION | HEADER_MISMATCH | MISSING_CAPABILITY) => true,
            Some(NO_METHOD) => self.status == 404,
            _ => false,
        }
    }

    pub(super) fn is_header_mismatch(&self) -> bool {
        self.code == Some(HEADER_MISMATCH)
    }

    /// Whether the server wants another revision, and offers one of these.
    pub(super) fn offers(&self, revisions: &[&str]) -> bool {
        let known = |offered: &String| revisions.contains(&offered.as_str());
        self.code == Some(UNSUPPORTED_VERSION) && self.supported.iter().any(known)
    }

    /// Whether the server does not know the session: 404 by the specification, 400 by some servers.
    pub(super) fn ends_session(&self) -> bool {
        matches!(self.status, 400 | 404)
    }
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: Value,
    result: Option<Value>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    #[serde(default)]
    data: Value,
}

/// Reads the answer to the request `id`; of a notification, which has none, only a refusal.
pub(super) async fn read(answer: Response, id: Option<u64>) -> Result<Answer, ThreadsError> {
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get(RETRY_AFTER).cloned();
    match status {
        200..=299 => {
            let id = id.ok_or(ThreadsError::Malformed("an answer to nothing"))?;
            let message = match stream(&answer) {
                true => read_stream(answer, id).await?,
                false => {
                    let body = bounded(answer).await?;
                    serde_json::from_slice(&body)
                        .ok()
                        .filter(|message| answers(message, id))
                }
            };
            let message = message.ok_or(ThreadsError::Malformed("no JSON-RPC response"))?;
            answered(status, message)
        }
        401 | 403 | 407 => Err(ThreadsError::Refused { status }),
        300..=399 => Err(ThreadsError::Refused { status }),
        408 | 425 | 429 | 500..=599 => Err(ThreadsError::Unwell {
            status,
            retry_after: retry_after
                .and_then(|value| value.to_str().ok().map(str::to_owned))
                .filter(|text| text.len() <= 64),
        }),
        _ => {
            let body = bounded(answer).await?;
            let message = serde_json::from_slice::<Message>(&body).ok();
            let error = message.and_then(|message| message.error);
            Ok(Answer::Rejected(rejection(status, error)))
        }
    }
}

fn answered(status: u16, message: Message) -> Result<Answer, ThreadsError> {
    match (message.result, message.error) {
        (Some(result), None) => Ok(Answer::Result(result)),
        (None, Some(error)) => Ok(Answer::Rejected(rejection(status, Some(error)))),
        _ => Err(ThreadsError::Malformed("no JSON-RPC response")),
    }
}

fn rejection(status: u16, error: Option<RpcError>) -> Rejection {
    let supported = error.as_ref().and_then(|error| error.data.get("supported"));
    let supported = supported.and_then(Value::as_array).into_iter().flatten();
    Rejection {
        status,
        supported: supported
            .filter_map(|version| version.as_str().map(str::to_owned))
            .collect(),
        code: error.map(|error| error.code),
    }
}

fn stream(answer: &Response) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("text/event-stream")
}

/// The response among a stream's messages. Notifications, and requests of the server, which older
/// ones may send here, are passed over.
async fn read_stream(mut answer: Response, id: u64) -> Result<Option<Message>, ThreadsError> {
    let mut parser = Parser::new(String::new(), ANSWER_LIMIT);
    let mut bytes = 0;
    while let Some(chunk) = answer
        .chunk()
        .await
        .map_err(|error| ThreadsError::from(&error))?
    {
        bytes += chunk.len();
        if bytes > ANSWER_LIMIT {
            return Err(ThreadsError::Malformed("an answer that is too long"));
        }
        let mut input = &chunk[..];
        while let Some(block) = parser.next(&mut input) {
            if let Some(Data::Text(data)) = block.data
                && let Ok(message) = serde_json::from_str::<Message>(&data)
                && answers(&message, id)
            {
                return Ok(Some(message));
            }
        }
    }
    // The request may have been done all the same.
    Err(ThreadsError::CutOff)
}

fn answers(message: &Message, id: u64) -> bool {
    message.id.as_u64() == Some(id) && (message.result.is_some() || message.error.is_some())
}

async fn bounded(mut answer: Response) -> Result<Vec<u8>, ThreadsError> {
    let mut body = Vec::new();
    while let Some(chunk) = answer
        .chunk()
        .await
        .map_err(|error| ThreadsError::from(&error))?
    {
        if body.len() + chunk.len() > ANSWER_LIMIT {
            return Err(ThreadsError::Malformed("an answer that is too long"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
