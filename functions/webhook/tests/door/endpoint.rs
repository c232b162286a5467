//! A stub of an AWS endpoint: answers the SDK's JSON calls as a test says.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One answer of the stub.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// This status and body.
    Json(u16, Value),
    /// Takes the call and closes the connection without an answer.
    Drop,
}

/// The stub; it ends with the test's runtime.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    calls: Arc<Mutex<Vec<Value>>>,
    reply: Arc<Mutex<Reply>>,
}

impl Endpoint {
    pub(crate) async fn start(reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            calls: Arc::default(),
            reply: Arc::new(Mutex::new(reply)),
        };
        let stub = endpoint.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stub.clone(), stream));
            }
        });
        endpoint
    }

    /// The bodies of the calls that came.
    pub(crate) fn calls(&self) -> Vec<Value> {
        self.calls.lock().unwrap().clone()
    }

    /// What the next calls are answered.
    pub(crate) fn reply(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }
}

async fn serve(endpoint: Endpoint, mut stream: TcpStream) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let head_end = loop {
            if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&buffer[..head_end]).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .map_or(0, |length| length.trim().parse().unwrap());
        while buffer.len() < head_end + length {
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        }
        let call = serde_json::from_slice(&buffer[head_end..head_end + length]).unwrap();
        endpoint.calls.lock().unwrap().push(call);
        buffer.drain(..head_end + length);
        let reply = endpoint.reply.lock().unwrap().clone();
        let Reply::Json(status, body) = reply else {
            return None;
        };
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}
