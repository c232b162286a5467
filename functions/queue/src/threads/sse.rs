//! The data of server-sent events, for answers that come as a stream.

/// Reads a stream's bytes, in pieces of any size. What its limit is says the reader of the bytes.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Option<String>,
    /// The last byte was a carriage return: a line feed behind it belongs to the same line end.
    after_return: bool,
}

impl Events {
    /// The data of the events that end in `bytes`. Everything else that a stream can say (types,
    /// ids, comments) has no meaning for the answer to one request.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut ended = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    ended.extend(self.end_line());
                }
                other => {
                    self.after_return = false;
                    self.line.push(*other);
                }
            }
        }
        ended
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.data.take();
        }
        let text = String::from_utf8_lossy(&line);
        // The first line of a stream may begin with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        if name == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let stream = "\u{feff}: hello\r\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\nid: 7\r\n\r\n\
                      data:b\n\ndata\r\rretry: 5\n\ndata: never ended\n";
        for size in 1..=stream.len() {
            let mut events = Events::default();
            let found: Vec<_> = stream
                .as_bytes()
                .chunks(size)
                .flat_map(|piece| events.feed(piece))
                .collect();
            assert_eq!(found, ["{\"a\":\n1}", "b", ""], "pieces of {size}");
        }
    }
}
