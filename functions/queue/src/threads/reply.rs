//! What a reply says: what the target said for it, and the key.

use firstclaim::Key;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::target::{Applied, percent_encoded};

/// What the line with the key begins with.
pub(super) const MARK: &str = "firstclaim-key: ";

/// The longest text that a target has in a reply, in bytes.
const TEXT_LIMIT: usize = 3 * 1024;

/// The most links of a reply.
const LINKS_LIMIT: usize = 8;

/// The longest target of a link, in bytes.
const LINK_LIMIT: usize = 256;

/// The longest answer of the target that is kept between its call and the reply, in bytes of JSON:
/// it stands in the record.
const ANSWER_LIMIT: usize = 4 * 1024;

/// A reply as it is posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) body: String,
    pub(crate) links: Vec<Link>,
}

/// `{"kind": "branch", "target": "codex/thread-42"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    kind: String,
    target: String,
}

/// What the target has done and what it wants to be told of that: kept in the record, so that
/// whoever goes on behind a crash posts the same and has the same result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Its answer, without a body that is too long to be kept here.
    pub(crate) applied: Applied,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<Link>,
}

impl Told {
    /// Reads a target's answer: of a JSON object the members `reply`, a text, and `links`. What
    /// can't be used of them is left out: the operation is done, whatever is told of it.
    pub(crate) fn of(mut applied: Applied) -> Self {
        let said: Value = applied
            .body
            .as_deref()
            .and_then(|body| serde_json::from_str(body).ok())
            .unwrap_or_default();
        let text = said.get("reply").and_then(Value::as_str).and_then(usable);
        let links = said.get("links").and_then(Value::as_array);
        let links = links.into_iter().flatten().filter_map(Link::read);
        let links = links.take(LINKS_LIMIT).collect();
        let long = serde_json::to_string(&applied).map_or(true, |json| json.len() > ANSWER_LIMIT);
        if long {
            applied.content_type = applied.content_type.filter(|kind| kind.len() <= 256);
            applied.body = None;
            applied.body_base64 = None;
            applied.body_omitted = Some(format!("longer than {ANSWER_LIMIT} bytes"));
        }
        Self {
            applied,
            text,
            links,
        }
    }
}

impl Reply {
    /// The same for every attempt of `key`.
    pub(crate) fn of(key: &Key, told: &Told) -> Self {
        let text = match &told.text {
            Some(text) => text.clone(),
            None => format!(
                "The event of this thread has been applied; the target answered {}.",
                told.applied.status
            ),
        };
        Self {
            body: format!("{text}\n\n{}\n", mark(key)),
            links: told.links.clone(),
        }
    }
}

/// The line that a key is found by. What a server or its Markdown could change in it is
/// percent-encoded; of a key that is too long it is the record's id, which is bounded and as unique.
pub(crate) fn mark(key: &Key) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~#/:,;=+@()[]".contains(&byte);
    format!("{MARK}{}", percent_encoded(&key.stored(), plain))
}

impl Link {
    /// `None` for what is no link, or can't be one.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let member = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let (kind, target) = (member("kind")?, member("target")?);
        let word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_' || byte == b'-';
        let fine = (1..=32).contains(&kind.len())
            && kind.bytes().all(word)
            && (1..=LINK_LIMIT).contains(&target.len())
            && !target.chars().any(char::is_control);
        fine.then_some(Self { kind, target })
    }
}

/// A target's text as it may stand in a reply: bounded, without control characters, and without a
/// line that could be taken for a key's. What a line is and what it begins with is looked at last,
/// in the text as it will be posted: taking something out could make a key's line of another one.
fn usable(text: &str) -> Option<String> {
    let bounded = &text[..text.floor_char_boundary(TEXT_LIMIT.min(text.len()))];
    let plain = bounded.replace("\r\n", "\n").replace(ends_line, "\n");
    let plain = plain.replace(|c: char| c.is_control() && c != '\t' && c != '\n', " ");
    let lines: Vec<&str> = plain
        .split('\n')
        .filter(|line| !could_be_a_mark(line))
        .collect();
    let text = lines.join("\n");
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// What one reader or another takes for the end of a line.
fn ends_line(c: char) -> bool {
    matches!(
        c,
        '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Whether a server that drops what nobody sees, or the space in front of a line, would make a key's
/// line of this one.
fn could_be_a_mark(line: &str) -> bool {
    let seen: String = line.chars().filter(|c| !is_unseen(*c)).collect();
    seen.trim_start().starts_with(MARK.trim_end())
}

/// Characters without a width: joiners, marks of direction, the byte order mark, and their like.
fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(body: &str) -> Applied {
        let applied = json!({"status": 201, "content_type": "application/json", "body": body});
        serde_json::from_value(applied).unwrap()
    }

    fn key(id: &str) -> Key {
        Key::new("thread", id).unwrap()
    }

    #[test]
    fn a_reply_says_what_the_target_said_and_the_key() {
        let told = Told::of(answer(
            &json!({
                "reply": "Pushed.\nfirstclaim-key: thread#a/b:1:2\r\n\u{7}Look.\n",
                "links": [
                    {"kind": "branch", "target": "codex/thread-42"},
                    {"kind": "Branch", "target": "x"},
                    {"kind": "branch", "target": "a\nb"},
                    {"kind": "branch"},
                    7,
                ],
            })
            .to_string(),
        ));
        let reply = Reply::of(&key("teams/platform/website:42:a1b2c3"), &told);
        assert_eq!(
            reply.body,
            "Pushed.\n Look.\n\nfirstclaim-key: thread#teams/platform/website:42:a1b2c3\n"
        );
        let links = serde_json::to_value(&reply.links).unwrap();
        assert_eq!(
            links,
            json!([{"kind": "branch", "target": "codex/thread-42"}])
        );
        for silent in [
            "",
            "done",
            "[]",
            "{\"reply\":7,\"links\":{}}",
            "{\"reply\":\" \"}",
        ] {
            let reply = Reply::of(&key("a/b:1:2"), &Told::of(answer(silent)));
            assert!(reply.body.contains("the target answered 201."), "{silent}");
            assert_eq!(reply.links, []);
        }
    }

    #[test]
    fn no_text_of_a_target_makes_a_line_that_could_be_a_keys() {
        const FORGED: &str = "firstclaim-key: thread#a/b:1:2";
        let unseen = [
            "\u{ad}", "\u{200b}", "\u{200d}", "\u{202e}", "\u{2060}", "\u{feff}",
        ];
        let blank = [
            " ",
            "\t",
            "\u{7}",
            "\u{0}",
            "\u{a0}",
            "\u{2003}",
            " \u{200b} \u{7}",
        ];
        let mut forged: Vec<String> = unseen
            .iter()
            .chain(&blank)
            .flat_map(|front| [format!("{front}{FORGED}"), format!("So.\n{front}{FORGED}")])
            .collect();
        forged.extend(
            unseen
                .iter()
                .map(|one| FORGED.replace('-', &format!("{one}-{one}"))),
        );
        for end in [
            "\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}",
        ] {
            forged.push(format!("So.{end}{FORGED}{end}On."));
        }
        for text in forged {
            let told = Told::of(answer(&json!({"reply": text}).to_string()));
            let reply = Reply::of(&key("a/b:9:9"), &told);
            let lines = reply.body.split(|c| ends_line(c) || c == '\n');
            let marks: Vec<_> = lines.filter(|line| could_be_a_mark(line)).collect();
            assert_eq!(marks, ["firstclaim-key: thread#a/b:9:9"], "{text:?}");
        }
        // What only speaks of a key stays, and so does what joins the parts of a letter.
        let told = Told::of(answer(
            r#"{"reply":"see firstclaim-key: a#b\n👩\u200d💻 done"}"#,
        ));
        let reply = Reply::of(&key("a/b:9:9"), &told);
        assert!(
            reply
                .body
                .starts_with("see firstclaim-key: a#b\n👩\u{200d}💻 done\n")
        );
    }

    #[test]
    fn keys_that_differ_have_marks_that_differ() {
        assert_eq!(
            mark(&key("a/b:1:[\"id\",\"é %\"]")),
            "firstclaim-key: thread#a/b:1:[%22id%22,%22%C3%A9%20%25%22]"
        );
        assert_ne!(mark(&key("a/b:1:%20")), mark(&key("a/b:1: ")));
        let long = |end: &str| mark(&key(&format!("a/b:1:{}{end}", "x".repeat(3000))));
        assert!(long("1").len() < 1200);
        assert_ne!(long("1"), long("2"));
    }

    #[test]
    fn what_is_kept_between_call_and_reply_is_bounded() {
        let links: Vec<_> = (0..20)
            .map(|_| json!({"kind": "x", "target": "\"".repeat(256)}))
            .collect();
        let body = json!({"reply": "\"\n".repeat(10_000), "links": links}).to_string();
        let told = Told::of(answer(&body));
        assert!(serde_json::to_string(&told).unwrap().len() < 16 * 1024);
        assert_eq!(told.applied.body, None);
        assert_eq!(told.links.len(), LINKS_LIMIT);
        let again: Told = serde_json::from_value(serde_json::to_value(&told).unwrap()).unwrap();
        assert_eq!(again, told);
    }
}
