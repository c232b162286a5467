//! Servers of HTTP/1.1, one connection for each request: a thread server's event stream, and whatever
//! else a test wants to be answered.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How often a stream says that it lives.
const HEARTBEAT: Duration = Duration::from_millis(20);

/// What a server was asked.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// By lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(':') else {
                break;
            };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length = headers
            .get("content-length")
            .and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        Some(Self {
            headers,
            body: String::from_utf8(body).ok()?,
        })
    }
}

/// A running server, and what it was asked.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers each request with what `answer` writes; then the connection is closed.
    pub(crate) fn start(answer: impl Fn(&Request, TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, seen, answer) =
                    (stream.unwrap(), Arc::clone(&seen), Arc::clone(&answer));
                thread::spawn(move || {
                    if let Some(request) = Request::read(&stream) {
                        seen.lock().unwrap().push(request.clone());
                        answer(&request, stream);
                    }
                });
            }
        });
        Self { url, requests }
    }

    /// Answers with these in turn, and with the last from then on.
    pub(crate) fn answering(answers: &[&str]) -> Self {
        let answers = Mutex::new(answers.iter().map(|answer| (*answer).to_owned()).collect());
        Self::start(move |_, mut stream| {
            let mut answers: std::sync::MutexGuard<'_, VecDeque<String>> = answers.lock().unwrap();
            let answer = match answers.len() {
                1 => answers[0].clone(),
                _ => answers.pop_front().unwrap(),
            };
            // Whoever was killed meanwhile reads no answer.
            let _ = stream.write_all(answer.as_bytes());
        })
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// An answer without a body.
pub(crate) fn head(status: &str, headers: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n")
}

/// An event stream that says this and ends.
pub(crate) fn stream(text: &str) -> String {
    format!("{STREAM}{text}")
}

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\
                      Cache-Control: no-store\r\nConnection: close\r\n\r\n";

/// The events of a thread server, which can be added to. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(String, String)>>>);

impl Log {
    /// As many events, each of a thread of its own and with a key.
    pub(crate) fn of(count: usize) -> Self {
        let log = Self::default();
        for number in 1..=count {
            log.add(number);
        }
        log
    }

    pub(crate) fn add(&self, number: usize) {
        let key = key(number);
        let data = format!(
            "{{\"key\": \"{key}\",\ndata: \"scopes\": [\"thread:teams/platform/website/{number}\"],\n\
             data: \"kind\": \"reply.created\", \"payload\": {{\"number\": {number}}}}}"
        );
        self.0.lock().unwrap().push((format!("e{number}"), data));
    }

    /// Writes what follows `Last-Event-ID`, then heartbeats and what is added, until the connection
    /// is lost or `limit` bytes are written. What was sent last before is sent once more, as a server
    /// does that is not sure of it.
    pub(crate) fn serve(
        &self,
        request: &Request,
        mut to: TcpStream,
        retry: u64,
        limit: Option<usize>,
    ) {
        let mut left = limit.unwrap_or(usize::MAX);
        let mut write = |text: &str| {
            let part = &text.as_bytes()[..left.min(text.len())];
            left -= part.len();
            to.write_all(part).is_ok() && left > 0
        };
        let mut next = 0;
        if let Some(last) = request.header("last-event-id") {
            let log = self.0.lock().unwrap();
            next = log
                .iter()
                .position(|(id, _)| id == last)
                .expect("an id that was sent");
        }
        if !write(&format!("{STREAM}retry: {retry}\n\n")) {
            return;
        }
        loop {
            let fresh: Vec<_> = self.0.lock().unwrap().iter().skip(next).cloned().collect();
            next += fresh.len();
            for (id, data) in fresh {
                if !write(&format!("id: {id}\ndata: {data}\n\n")) {
                    return;
                }
            }
            if !write(": heartbeat\n\n") {
                return;
            }
            thread::sleep(HEARTBEAT);
        }
    }
}

/// The key of an event of [`Log`].
pub(crate) fn key(number: usize) -> String {
    format!("thread#teams/platform/website:{number}:1")
}
