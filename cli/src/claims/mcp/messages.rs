//! The messages of the connection, one a line. What can't be read is answered, and said on stderr: a
//! client that gets no answer waits for its time-out, and knows nothing then.

use std::collections::BTreeMap;

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::error::Category;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, Empty};
use tokio::task::JoinHandle;

use super::Said;

/// The longest message, in bytes.
const LIMIT: usize = 16 * 1024 * 1024;

/// The methods that this server has. One of them with other parameters than its own is read as a
/// method that nobody knows.
const METHODS: [&str; 5] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/call",
    "tools/list",
];

/// The transport: reads lines, and writes as the protocol's own does.
pub(super) struct Messages<R, W: AsyncWrite> {
    from: BufReader<R>,
    to: AsyncRwTransport<RoleServer, Empty, W>,
    line: Vec<u8>,
    /// Whether the rest of a line that is too long is being passed over.
    too_long: bool,
    /// An answer of this file's own, on its way. What is read next waits for it.
    answering: Option<JoinHandle<()>>,
    said: Said,
}

impl<R, W> Messages<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(from: R, to: W, said: Said) -> Self {
        Self {
            from: BufReader::new(from),
            to: AsyncRwTransport::new(tokio::io::empty(), to),
            line: Vec::new(),
            too_long: false,
            answering: None,
            said,
        }
    }

    /// Reads on until a line is whole; false at the end. May be dropped and called again.
    async fn read_line(&mut self) -> bool {
        loop {
            let part = match self.from.fill_buf().await {
                Ok([]) | Err(_) => return false,
                Ok(part) => part,
            };
            let end = part.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(part.len(), |end| end + 1);
            self.too_long |= self.line.len() + taken > LIMIT;
            match self.too_long {
                true => self.line.clear(),
                false => self.line.extend_from_slice(&part[..taken]),
            }
            self.from.consume(taken);
            if end.is_some() {
                return true;
            }
        }
    }

    fn answer(&mut self, wrong: Wrong) {
        let code = wrong.error.code.0;
        self.said.important(&format!(
            "a message of the client was answered with {code}: {}",
            wrong.error.message
        ));
        let answer = TxJsonRpcMessage::<RoleServer>::error(wrong.error, wrong.id);
        let sending = self.to.send(answer);
        self.answering = Some(tokio::spawn(async move {
            // A client that can't be reached any more is noticed elsewhere.
            let _ = sending.await;
        }));
    }
}

impl<R, W> Transport<RoleServer> for Messages<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.to.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(answering) = &mut self.answering {
                // Its end is all that counts.
                let _ = answering.await;
                self.answering = None;
            }
            if !self.read_line().await {
                return None;
            }
            let read = match std::mem::take(&mut self.too_long) {
                true => Read::Wrong(Wrong::new(
                    ErrorData::invalid_request(format!("it has more than {LIMIT} bytes"), None),
                    None,
                )),
                false => read(&self.line),
            };
            self.line.clear();
            match read {
                Read::Message(message) => return Some(*message),
                Read::Nothing => {}
                Read::Dropped(why) => self.said.important(&format!(
                    "a message of the client that nobody answers was dropped: {why}"
                )),
                Read::Wrong(wrong) => self.answer(wrong),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.to.close().await
    }
}

/// What a line is.
enum Read {
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    Nothing,
    /// What can't be read, and nobody waits for an answer to; why.
    Dropped(String),
    Wrong(Wrong),
}

/// What can't be read, with the request's id where that can.
struct Wrong {
    error: ErrorData,
    id: Option<RequestId>,
}

impl Wrong {
    fn new(error: ErrorData, id: Option<RequestId>) -> Self {
        Self { error, id }
    }
}

fn read(line: &[u8]) -> Read {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let line = line.trim_ascii();
    if line.is_empty() {
        return Read::Nothing;
    }
    let error = match serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(line) {
        Ok(message) => {
            return match misread(&message) {
                Some(wrong) => Read::Wrong(wrong),
                None => Read::Message(Box::new(message)),
            };
        }
        Err(error) => error,
    };
    // What can't be read as a whole may still say what it is: a text, a number or a depth that is
    // none is passed over here.
    let text = String::from_utf8_lossy(line);
    let members: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(&text).ok();
    let member = |name: &str| members.as_ref()?.get(name).copied();
    let id: Option<RequestId> = member("id").and_then(|id| serde_json::from_str(id.get()).ok());
    let why = match (error.classify(), std::str::from_utf8(line)) {
        (_, Err(_)) => "it is no UTF-8".to_owned(),
        // The library's text has no word of the client's in it.
        (Category::Syntax | Category::Eof, _) => error.to_string(),
        (Category::Data | Category::Io, _) => "it has not the form of a message".to_owned(),
    };
    let asks = member("method").is_some();
    let answers = member("result").is_some() || member("error").is_some();
    if members.is_some() {
        match (member("id"), asks) {
            (Some(_), true) => {}
            // It is neither a request nor an answer, and somebody may wait for its id.
            (Some(_), false) if !answers => {
                let why = "it has no method, and no result or error either".to_owned();
                return Read::Wrong(Wrong::new(ErrorData::invalid_request(why, None), id));
            }
            // An answer, or a notification: neither is ever answered.
            _ => return Read::Dropped(why),
        }
    }
    let parsed = error.classify() == Category::Data;
    Read::Wrong(Wrong::new(
        match id {
            Some(_) => ErrorData::invalid_params(format!("the request can't be read: {why}"), None),
            None if parsed => ErrorData::invalid_request(why, None),
            None => ErrorData::parse_error(why, None),
        },
        id,
    ))
}

/// A request of a method that there is, with parameters that are not its own.
fn misread(message: &RxJsonRpcMessage<RoleServer>) -> Option<Wrong> {
    let JsonRpcMessage::Request(request) = message else {
        return None;
    };
    let ClientRequest::CustomRequest(custom) = &request.request else {
        return None;
    };
    let method = METHODS.into_iter().find(|known| *known == custom.method)?;
    let form = match method {
        "tools/call" => "; `name` is a text and `arguments` an object",
        _ => "",
    };
    let text = format!("the parameters of {method} have another form{form}");
    Some(Wrong::new(
        ErrorData::invalid_params(text, None),
        Some(request.id.clone()),
    ))
}
