//! The current state of a thread, as far as it matters.

use serde_json::Value;

use super::ThreadsError;
use super::reply::{Link, MARK, Reply};

/// States in which nothing is done for a thread any more.
const CLOSED: [&str; 6] = ["closed", "resolved", "merged", "archived", "locked", "done"];

/// The longest reply id, in bytes.
const ID_LIMIT: usize = 128;

/// What a thread is like now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub(crate) closed: bool,
    /// Those that carry a key, in the thread's order.
    replies: Vec<Found>,
}

/// A reply that carries a key.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// As the server gave it.
    pub(crate) id: Value,
    /// The same as text, which can stand in a log line.
    pub(crate) name: String,
    body: String,
    links: Vec<Link>,
}

impl Context {
    /// Reads the answer of `get_thread_context`. The members of the thread may stand on the first
    /// level or in `thread`.
    ///
    /// # Errors
    ///
    /// Whether a reply is there can't be told: there is no list of them, a part is left out, or one
    /// with a key has no id. To go on would double it.
    pub(super) fn read(value: &Value) -> Result<Self, ThreadsError> {
        let inner = value.get("thread");
        let member = |name: &str| value.get(name).or_else(|| inner?.get(name));
        let replies = member("replies").and_then(Value::as_array);
        let replies = replies.ok_or(ThreadsError::Malformed("a thread has no `replies`"))?;
        let cut = ["has_more", "truncated", "next_cursor"]
            .into_iter()
            .any(|name| {
                member(name).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
            });
        if cut {
            return Err(ThreadsError::Malformed("not all of a thread's replies"));
        }
        let state = ["state", "status"]
            .into_iter()
            .find_map(|name| member(name)?.as_str());
        let state = state.map(str::to_ascii_lowercase);
        let closed = state.is_some_and(|state| CLOSED.contains(&state.as_str()))
            || member("closed").and_then(Value::as_bool) == Some(true);
        let replies = replies.iter().filter_map(Found::read);
        Ok(Self {
            closed,
            replies: replies.collect::<Result<_, _>>()?,
        })
    }

    /// The first reply that carries this mark, on a line of its own and whole: the key that ends
    /// with `:4` is not found in one that ends with `:42`, nor is one that somebody quotes.
    pub(crate) fn reply(&self, mark: &str) -> Option<&Found> {
        let carries = |reply: &&Found| reply.body.lines().any(|line| line.trim_end() == mark);
        self.replies.iter().find(carries)
    }
}

impl Found {
    /// `None` for a reply without a key.
    fn read(reply: &Value) -> Option<Result<Self, ThreadsError>> {
        let body = reply.get("body")?.as_str()?;
        if !body.lines().any(|line| line.starts_with(MARK)) {
            return None;
        }
        let Some((id, name)) = id_of(reply) else {
            return Some(Err(ThreadsError::Malformed("a reply has no `id`")));
        };
        let links = reply.get("links").and_then(Value::as_array);
        Some(Ok(Self {
            id,
            name,
            body: body.to_owned(),
            links: links.into_iter().flatten().filter_map(Link::read).collect(),
        }))
    }

    /// Whether it says what `reply` says.
    pub(crate) fn says(&self, reply: &Reply) -> bool {
        self.body.trim() == reply.body.trim() && self.links == reply.links
    }
}

/// A reply's id, as it is and as text.
pub(super) fn id_of(reply: &Value) -> Option<(Value, String)> {
    let id = reply.get("id").or_else(|| reply.get("reply_id"))?;
    let text = match id {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let fine = (1..=ID_LIMIT).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    fine.then(|| (id.clone(), text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_found_whole_and_on_its_own_line_only() {
        let body = "Done.\r\n\r\nfirstclaim-key: thread#a/b:42:7  \r\n";
        let context = Context::read(&json!({
            "thread": {"number": 42, "state": "open"},
            "replies": [
                {"id": 1, "body": "> firstclaim-key: thread#a/b:42:7"},
                {"id": 2, "body": "see firstclaim-key: thread#a/b:42:7"},
                {"id": 3, "body": body},
                {"id": "4", "body": body},
                {"id": 5}, null,
            ],
        }))
        .unwrap();
        assert!(!context.closed);
        let found = |key: &str| {
            let reply = context.reply(&format!("firstclaim-key: {key}"));
            reply.map(|reply| reply.name.as_str())
        };
        assert_eq!(found("thread#a/b:42:7"), Some("3"));
        for other in [
            "thread#a/b:42:",
            "thread#a/b:42",
            "hread#a/b:42:7",
            "thread#a/b:42:77",
            "",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_thread_that_can_not_be_told_whole_is_none() {
        for wrong in [
            json!(null),
            json!({}),
            json!({"replies": {}}),
            json!({"replies": [], "has_more": true}),
            json!({"replies": [], "next_cursor": "x"}),
            json!({"replies": [{"body": "firstclaim-key: a#b"}]}),
            json!({"replies": [{"id": "a b", "body": "firstclaim-key: a#b"}]}),
            json!({"replies": [{"id": {}, "body": "firstclaim-key: a#b"}]}),
        ] {
            let read = Context::read(&wrong);
            assert!(matches!(read, Err(ThreadsError::Malformed(_))), "{wrong}");
        }
    }

    #[test]
    fn a_thread_is_closed_by_its_state() {
        let closed = |value: Value| Context::read(&value).unwrap().closed;
        assert!(closed(json!({"state": "closed", "replies": []})));
        assert!(closed(
            json!({"thread": {"status": "Resolved", "replies": []}})
        ));
        assert!(closed(json!({"closed": true, "replies": []})));
        for open in [
            json!({"replies": []}),
            json!({"state": "open", "replies": [], "has_more": false}),
            json!({"state": null, "closed": false, "replies": [], "next_cursor": null}),
        ] {
            assert!(!closed(open));
        }
    }
}
