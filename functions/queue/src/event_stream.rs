//! An event stream's bytes, read by the rules that the HTML standard has for `EventSource`.
//!
//! For `firstclaim tail`, which follows such a stream, and for the answers of a threads server.
//! Written here, since what a follower needs is what the crates leave out (looked at:
//! `eventsource-stream`, `sse-stream`, `sseer`): an event over the limit must not be kept in memory
//! and still be stepped past under its own id, which can stand behind its data; a block that has an
//! id and no data moves the position; and bytes that are no UTF-8 are replaced, as the standard has
//! it, where an error would meet the same bytes again at each replay.

use std::time::Duration;

/// What a line may have besides an event's data, in bytes: its field's name, and a byte order mark.
const FIELD: usize = 16;

/// What stands between two empty lines, and says more than a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The last id that the stream has named, here or before; empty where there is none.
    pub id: String,
    /// Whether it is named here.
    pub own_id: bool,
    /// The event's type; empty where none is given.
    pub event: String,
    /// `None` for a block without data, which is no event.
    pub data: Option<Data>,
}

/// An event's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Its lines, with a line feed between two.
    Text(String),
    /// More than the [limit](Parser::new), and not kept.
    TooLong {
        /// How many there were.
        bytes: usize,
    },
}

/// Reads one connection's bytes, in pieces of any size.
#[derive(Debug)]
pub struct Parser {
    limit: usize,
    line: Vec<u8>,
    /// How many bytes of the line were not kept.
    cut: usize,
    /// The last byte was a carriage return: a line feed behind it belongs to the same line end.
    after_return: bool,
    first_line: bool,
    id: String,
    own_id: bool,
    event: String,
    data: Option<Data>,
    retry: Option<Duration>,
}

impl Parser {
    /// A parser at a connection's start. `id` is the last one that the stream has named before.
    /// Of an event no more than `limit` bytes of data are kept.
    ///
    /// (By the letter of the standard a new connection has none until it names one, so that a
    /// first event without an id would make the place in the stream be forgotten. Browsers keep
    /// it, and so does this.)
    #[must_use]
    pub fn new(id: String, limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            cut: 0,
            after_return: false,
            first_line: true,
            id,
            own_id: false,
            event: String::new(),
            data: None,
            retry: None,
        }
    }

    /// The next block in `input`, which is moved behind it. `None` when all of it is read: what
    /// has no end yet waits for more, and is no event if no more comes.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Block> {
        loop {
            if self.after_return && !input.is_empty() {
                self.after_return = false;
                *input = input.strip_prefix(b"\n").unwrap_or(input);
            }
            let Some(end) = input.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                self.keep(input);
                *input = &[];
                return None;
            };
            let (line, rest) = input.split_at(end);
            self.keep(line);
            self.after_return = rest.first() == Some(&b'\r');
            *input = rest.get(1..).unwrap_or_default();
            if let Some(block) = self.end_line() {
                return Some(block);
            }
        }
    }

    /// How long to wait before a connection is made again, where the stream has said it.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.limit + FIELD - self.line.len();
        let (kept, cut) = bytes.split_at(room.min(bytes.len()));
        self.line.extend_from_slice(kept);
        self.cut += cut.len();
    }

    fn end_line(&mut self) -> Option<Block> {
        let line = std::mem::take(&mut self.line);
        let cut = std::mem::take(&mut self.cut);
        let mut text = &line[..];
        if std::mem::take(&mut self.first_line) {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if text.is_empty() {
            return self.dispatch();
        }
        let (name, value) = match text.iter().position(|byte| *byte == b':') {
            None => (text, &[][..]),
            Some(colon) => {
                let value = &text[colon + 1..];
                (&text[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
        };
        match name {
            b"data" => self.add(value, cut),
            // Not even its beginning could be said to a server.
            _ if cut > 0 => {}
            b"event" => self.event = String::from_utf8_lossy(value).into_owned(),
            b"id" if !value.contains(&0) => {
                self.id = String::from_utf8_lossy(value).into_owned();
                self.own_id = true;
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let millis = std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                self.retry = Some(Duration::from_millis(millis.unwrap_or(u64::MAX)));
            }
            // A comment has no name; nothing is known of any other.
            _ => {}
        }
        None
    }

    fn add(&mut self, value: &[u8], cut: usize) {
        let text = String::from_utf8_lossy(value);
        self.data = Some(match self.data.take() {
            Some(Data::TooLong { bytes }) => Data::TooLong {
                bytes: bytes + 1 + value.len() + cut,
            },
            before => {
                let mut data = match before {
                    Some(Data::Text(mut data)) => {
                        data.push('\n');
                        data
                    }
                    _ => String::new(),
                };
                let bytes = data.len() + text.len() + cut;
                if bytes > self.limit {
                    Data::TooLong { bytes }
                } else {
                    data.push_str(&text);
                    Data::Text(data)
                }
            }
        });
    }

    fn dispatch(&mut self) -> Option<Block> {
        let block = Block {
            id: self.id.clone(),
            own_id: std::mem::take(&mut self.own_id),
            event: std::mem::take(&mut self.event),
            data: self.data.take(),
        };
        (block.own_id || block.data.is_some()).then_some(block)
    }
}

#[cfg(test)]
mod tests;
