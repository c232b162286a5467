//! A small HTTP server whose answers, good or broken, a test chooses.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't have its server fails"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    /// By lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What the server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// Never answers.
    Hang,
    /// Closes the connection without an answer.
    Close,
    /// Announces a longer body than it sends.
    CutBody,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer {
            status,
            headers: vec![("content-type", "text/plain".to_owned())],
            body: b"so be it".to_vec(),
        }
    }
}

/// The server. It ends with the value.
#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Stub {
    pub(crate) async fn new(reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/apply", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let reply = Arc::new(reply);
        let log = Arc::clone(&seen);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let serving = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let (reply, log) = (Arc::clone(&reply), Arc::clone(&log));
                tokio::spawn(async move {
                    while serve(&mut stream, reply.as_ref(), &log).await.is_some() {}
                });
            }
        });
        Self {
            url,
            seen,
            connections,
            serving,
        }
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// One request. `None` where the connection is over.
async fn serve(
    stream: &mut TcpStream,
    reply: impl Fn(&Seen) -> Reply,
    log: &Mutex<Vec<Seen>>,
) -> Option<()> {
    let seen = receive(stream).await?;
    let reply = reply(&seen);
    log.lock().unwrap().push(seen);
    let (status, headers, body, announced) = match reply {
        Reply::Answer {
            status,
            headers,
            body,
        } => {
            let length = body.len();
            (status, headers, body, length)
        }
        Reply::CutBody => (200, Vec::new(), b"half".to_vec(), 1000),
        Reply::Close => return None,
        Reply::Hang => {
            // Until the other side gives up.
            let _ = stream.read(&mut [0]).await;
            return None;
        }
    };
    let mut text = format!("HTTP/1.1 {status} Stub\r\ncontent-length: {announced}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes()).await.ok()?;
    stream.write_all(&body).await.ok()?;
    (announced == body.len()).then_some(())
}

async fn receive(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").map_or("0", String::as_str);
    let length: usize = length.parse().ok()?;
    let mut body = bytes.split_off(head + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Seen {
        line,
        headers,
        body,
    })
}
