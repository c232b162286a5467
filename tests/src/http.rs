//! The small HTTP server under every stub. Unlike a framework's it can close a connection without
//! an answer, and refuse connections for a while.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

/// What a stub does with a request.
pub(crate) enum Reply {
    /// Answers.
    Answer(Response<Bytes>),
    /// Closes the connection without a word.
    Close,
}

/// A server on a loopback port of its own; gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    /// Bound and not listening, so that the port stays this server's while it is stopped.
    _reserved: TcpSocket,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Serves `handler` on a port that the system chooses.
    pub(crate) async fn start<H, F>(handler: H) -> anyhow::Result<Self>
    where
        H: Fn(Request<Bytes>) -> F + Clone + Send + 'static,
        F: Future<Output = Reply> + Send + 'static,
    {
        let reserved = TcpSocket::new_v4()?;
        reserved.set_reuseaddr(true)?;
        let port = reserved.bind((Ipv4Addr::LOCALHOST, 0).into());
        port.context("no loopback port")?;
        let address = reserved.local_addr()?;
        let listener = TcpListener::bind(address).await?;
        let accepting = Mutex::new(Some(tokio::spawn(accept(listener, handler))));
        Ok(Self {
            address,
            _reserved: reserved,
            accepting,
        })
    }

    /// Where it listens, as `http://127.0.0.1:port`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens, as `127.0.0.1:port`.
    pub(crate) fn authority(&self) -> String {
        self.address.to_string()
    }

    /// Closes the port and every connection: whoever calls now is refused.
    pub(crate) async fn stop(&self) {
        let task = self.take();
        if let Some(task) = task {
            task.abort();
            // It ends by the abort, and only then is the port closed.
            let _ = task.await;
        }
    }

    /// Listens again on the same port.
    pub(crate) async fn resume<H, F>(&self, handler: H) -> anyhow::Result<()>
    where
        H: Fn(Request<Bytes>) -> F + Clone + Send + 'static,
        F: Future<Output = Reply> + Send + 'static,
    {
        let listener = TcpListener::bind(self.address).await?;
        let task = tokio::spawn(accept(listener, handler));
        let mut accepting = self.accepting.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(former) = accepting.replace(task) {
            former.abort();
        }
        Ok(())
    }

    fn take(&self) -> Option<JoinHandle<()>> {
        let mut accepting = self.accepting.lock().unwrap_or_else(|e| e.into_inner());
        accepting.take()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = self.take() {
            task.abort();
        }
    }
}

/// An answer with a JSON body.
pub(crate) fn json(status: u16, body: &serde_json::Value) -> Reply {
    answer(
        status,
        &[("content-type", "application/x-amz-json-1.0")],
        body.to_string(),
    )
}

/// An answer.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
    let mut builder = Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    // Statuses and headers are the tests' own: one that is no HTTP is answered by closing, and the
    // test that asked for it fails.
    builder
        .body(body.into())
        .map_or(Reply::Close, Reply::Answer)
}

/// Accepts until it is aborted, which drops the connections with it.
async fn accept<H, F>(listener: TcpListener, handler: H)
where
    H: Fn(Request<Bytes>) -> F + Clone + Send + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let handler = handler.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| serve(handler.clone(), request));
                    // An error here is a connection that was closed on purpose, by either side.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The connection is closed on purpose.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed on purpose")
    }
}

impl std::error::Error for Closed {}

async fn serve<H, F>(
    handler: H,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Closed>
where
    H: Fn(Request<Bytes>) -> F,
    F: Future<Output = Reply>,
{
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return Err(Closed);
    };
    match handler(Request::from_parts(parts, body.to_bytes())).await {
        Reply::Answer(response) => Ok(response.map(Full::new)),
        Reply::Close => Err(Closed),
    }
}
