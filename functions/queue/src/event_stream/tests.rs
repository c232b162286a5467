use proptest::prelude::*;

use super::*;

/// What a queue takes.
const EVENT_LIMIT: usize = 1024 * 1024;

fn read(pieces: &[&[u8]]) -> Vec<Block> {
    let mut parser = Parser::new(String::new(), EVENT_LIMIT);
    let mut blocks = Vec::new();
    for mut piece in pieces.iter().copied() {
        while let Some(block) = parser.next(&mut piece) {
            blocks.push(block);
        }
        assert!(piece.is_empty());
    }
    blocks
}

/// Id, type and data of each event.
fn events(stream: &str) -> Vec<(String, String, String)> {
    let blocks = read(&[stream.as_bytes()]);
    let events = blocks.into_iter().filter_map(|block| match block.data? {
        Data::Text(data) => Some((block.id, block.event, data)),
        Data::TooLong { .. } => None,
    });
    events.collect()
}

fn event(id: &str, event: &str, data: &str) -> (String, String, String) {
    (id.to_owned(), event.to_owned(), data.to_owned())
}

/// The examples of the HTML standard, section 9.2.6.
#[test]
fn the_standard_s_own_examples() {
    assert_eq!(
        events("data: YHOO\ndata: +2\ndata: 10\n\n"),
        [event("", "", "YHOO\n+2\n10")]
    );
    let four = ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
    assert_eq!(
        events(four),
        [
            event("1", "", "first event"),
            event("", "", "second event"),
            event("", "", " third event"),
        ]
    );
    // The last block has no end.
    assert_eq!(
        events("data\n\ndata\ndata\n\ndata:"),
        [event("", "", ""), event("", "", "\n")]
    );
    let same = events("data:test\n\ndata: test\n\n");
    assert_eq!(same[0], same[1]);
}

#[test]
fn lines_end_in_three_ways_and_a_byte_order_mark_is_none_of_the_first() {
    let expected = [event("7", "reply", "a\nb"), event("7", "", "c")];
    for stream in [
        "id: 7\nevent: reply\ndata: a\ndata: b\n\ndata: c\n\n",
        "id: 7\revent: reply\rdata: a\rdata: b\r\rdata: c\r\r",
        "id: 7\r\nevent: reply\r\ndata: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n",
        "\u{feff}id: 7\nevent: reply\r\ndata: a\rdata: b\n\r\ndata: c\r\n\n",
    ] {
        assert_eq!(events(stream), expected, "{stream:?}");
    }
    // Only the first mark is one.
    assert_eq!(
        events("\u{feff}\u{feff}data: a\n\ndata: b\n\n"),
        [event("", "", "b")]
    );
    // An event that ends with a carriage return does not wait for a line feed.
    assert_eq!(events("data: a\r\r").len(), 1);
}

#[test]
fn an_id_with_nul_is_ignored_and_an_id_alone_moves_the_position() {
    assert_eq!(
        events("id: 1\n\nid: a\0b\ndata: x\n\n"),
        [event("1", "", "x")]
    );
    let blocks = read(&[b"id: 5\n\n: heartbeat\n\nevent: nothing\n\ndata: x\n\n"]);
    let (alone, event) = (&blocks[0], &blocks[1]);
    assert_eq!(blocks.len(), 2);
    assert_eq!(
        (alone.id.as_str(), alone.own_id, &alone.data),
        ("5", true, &None)
    );
    assert_eq!(
        (event.id.as_str(), event.own_id, event.event.as_str()),
        ("5", false, "")
    );
}

#[test]
fn a_new_connection_keeps_the_id_until_the_stream_names_another() {
    let mut parser = Parser::new("41".to_owned(), EVENT_LIMIT);
    let mut input = &b"data: x\n\nid\ndata: y\n\n"[..];
    assert_eq!(parser.next(&mut input).unwrap().id, "41");
    assert_eq!(parser.next(&mut input).unwrap().id, "");
}

#[test]
fn retry_takes_digits_only() {
    let retry = |stream: &[u8]| {
        let mut parser = Parser::new(String::new(), EVENT_LIMIT);
        let mut input = stream;
        while parser.next(&mut input).is_some() {}
        parser.retry()
    };
    assert_eq!(retry(b"retry: 2500\n"), Some(Duration::from_millis(2500)));
    assert_eq!(
        retry(b"retry: 1\nretry: -5\nretry: 2s\nretry:\n"),
        Some(Duration::from_millis(1))
    );
    assert_eq!(
        retry(b"retry: 99999999999999999999999\n"),
        Some(Duration::from_millis(u64::MAX))
    );
    assert_eq!(retry(b"retry: 2"), None);
}

/// It is stepped past under its own id, which may stand behind it, and costs no memory.
#[test]
fn an_event_over_the_limit_is_counted_and_not_kept() {
    let piece = [b'x'; 64 * 1024];
    let mut parser = Parser::new(String::new(), EVENT_LIMIT);
    let mut blocks = Vec::new();
    let mut feed = |parser: &mut Parser, mut input: &[u8]| {
        while let Some(block) = parser.next(&mut input) {
            blocks.push(block);
        }
    };
    feed(&mut parser, b"data: ");
    for _ in 0..100 {
        feed(&mut parser, &piece);
        assert!(parser.line.capacity() <= 4 * EVENT_LIMIT);
    }
    feed(
        &mut parser,
        b"\ndata: more\nid: 9\n\ndata: next\nid: 10\n\n",
    );
    // A comment and an id that are as long say nothing.
    feed(&mut parser, b":");
    (0..100).for_each(|_| feed(&mut parser, &piece));
    feed(&mut parser, b"\nid:");
    (0..100).for_each(|_| feed(&mut parser, &piece));
    feed(&mut parser, b"\ndata: last\n\n");
    let Some(Data::TooLong { bytes }) = blocks[0].data else {
        panic!("{:?}", blocks[0].id);
    };
    assert!(bytes >= 100 * piece.len(), "{bytes}");
    assert_eq!(blocks[0].id, "9");
    assert_eq!(blocks[1].data, Some(Data::Text("next".to_owned())));
    assert_eq!((blocks[2].id.as_str(), blocks.len()), ("10", 3));
}

#[test]
fn many_lines_make_an_event_too_long_as_well() {
    let mut stream = "data: 0123456789012345678901234567890\n".repeat(EVENT_LIMIT / 30);
    stream.push_str("id: 3\n\ndata: next\n\n");
    let blocks = read(&[stream.as_bytes()]);
    assert!(matches!(blocks[0].data, Some(Data::TooLong { .. })));
    assert_eq!(blocks[1].data, Some(Data::Text("next".to_owned())));
}

/// Text that is likely to mean something here.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let parts: [&[u8]; 17] = [
        b"data: ",
        b"data",
        b"id: ",
        b"id",
        b"event:",
        b"retry: 10",
        b":",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\xef\xbb\xbf",
        b"\xc3\xa9",
        b"\xc3",
        b"\0",
        b" ",
        b"abc",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..60)
        .prop_map(|parts| parts.concat())
}

/// The standard's rules, read off a whole text.
fn expected(bytes: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut blocks = Vec::new();
    let (mut id, mut own_id, mut event, mut data) =
        (String::new(), false, String::new(), String::new());
    // What stands behind the last line end is no line yet.
    let mut lines: Vec<&str> = text.split('\n').collect();
    lines.pop();
    for line in lines {
        if line.is_empty() {
            let text = data
                .strip_suffix('\n')
                .map(|text| Data::Text(text.to_owned()));
            if own_id || text.is_some() {
                blocks.push(Block {
                    id: id.clone(),
                    own_id,
                    event: event.clone(),
                    data: text,
                });
            }
            (own_id, event, data) = (false, String::new(), String::new());
            continue;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut event),
            "data" => data = data + value + "\n",
            "id" if !value.contains('\0') => {
                value.clone_into(&mut id);
                own_id = true;
            }
            _ => {}
        }
    }
    blocks
}

proptest! {
    #[test]
    fn any_stream_in_any_pieces_is_read_as_the_standard_says(
        bytes in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        let whole = expected(&bytes);
        prop_assert_eq!(&read(&pieces), &whole);
        prop_assert_eq!(&read(&bytes.chunks(1).collect::<Vec<_>>()), &whole);
    }
}
