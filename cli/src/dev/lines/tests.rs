use std::sync::Arc;

use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;

use super::*;

#[derive(Clone, Default)]
struct Out(Arc<Mutex<Vec<u8>>>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines that `events` makes, without their times.
fn lines(colours: bool, events: impl FnOnce()) -> Vec<String> {
    let out = Out::default();
    let layer = Lines::new(out.clone(), colours).with_filter(filter_fn(shown));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), events);
    let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
    text.lines()
        .map(|line| line["00:00:00.000  ".len()..].to_owned())
        .collect()
}

#[test]
fn each_event_is_one_aligned_line() {
    let lines = lines(false, || {
        tracing::info!(target: "firstclaim::door", outcome = "accepted", status = 202, key = "token#order-1", ms = 12);
        tracing::info!(target: "firstclaim::door", outcome = "refused", status = 401, sender = "github", reason = "wrong_signature", ms = 0);
        tracing::info!(target: "firstclaim::target", effect = 1, requests = 1, key = "token#order-1", attempt = "1");
        tracing::info!(target: "firstclaim::target", effect = 1, requests = 2, key = "token#order-1", attempt = "2");
        tracing::info!(target: "firstclaim::record", outcome = "performed", key = "token#order-1", attempt = 1, answer = "acknowledged", ms = 29);
        tracing::info!(target: "firstclaim::record", outcome = "in_flight", key = "token#order-1", attempt = 1, answer = "returned", visibility = 31, ms = 2);
        tracing::info!(target: "firstclaim::record", outcome = "permanent", key = "token#order-1", attempt = 1, code = "http_422", answer = "dead_lettered", ms = 3);
        tracing::info!(target: "firstclaim::record", outcome = "store_unavailable", key = "token#order-1", answer = "returned", ms = 3);
    });
    assert_eq!(
        lines,
        [
            "door     accepted              token#order-1                                            12 ms  202",
            "door     refused               github                                                    0 ms  401  wrong_signature",
            "target   effect 1              token#order-1                             attempt 1",
            "target   seen before 1         token#order-1                             attempt 2",
            "worker   performed             token#order-1                             attempt 1      29 ms",
            "worker   in flight             token#order-1                             attempt 1       2 ms  again in 31 s",
            "worker   permanent             token#order-1                             attempt 1       3 ms  http_422  dead letter",
            "worker   store unavailable     token#order-1                                             3 ms  comes back",
        ]
    );
}

#[test]
fn nothing_foreign_acts_on_the_terminal() {
    let hostile = "a\u{1b}]0;owned\u{7}\r\nworker   performed\u{202e}";
    let error = std::io::Error::other(hostile);
    let lines = lines(false, || {
        tracing::info!(target: "firstclaim::door", outcome = "accepted", key = hostile, reason = hostile);
        tracing::info!(target: "firstclaim::target", effect = hostile, key = hostile, attempt = hostile);
        tracing::info!(target: "firstclaim::record", outcome = hostile, code = hostile);
        tracing::error!(error = &error as &dyn Error, found = hostile, "{hostile}");
        tracing::info!(target: "firstclaim::door", outcome = "accepted", key = "k".repeat(10_000));
    });
    assert_eq!(lines.len(), 5, "{lines:?}");
    for line in &lines {
        assert!(
            !line.chars().any(|c| c.is_control() || c == '\u{202e}'),
            "{line:?}"
        );
        assert!(line.len() < 1000, "{line:?}");
    }
    assert!(
        lines[0].contains(r"a\u{1b}]0;owned\u{7}\r\nworker"),
        "{lines:?}"
    );
}

#[test]
fn errors_are_shown_with_their_causes_and_gossip_is_not() {
    #[derive(Debug, thiserror::Error)]
    #[error("the key could not be claimed")]
    struct Outer(#[source] std::io::Error);
    let error = Outer(std::io::Error::other("connection refused"));
    let lines = lines(false, || {
        tracing::info!(target: "firstclaim::outcome", outcome = "performed", key = "a#b");
        tracing::info!(target: "webhook::senders", "read the senders' secret");
        tracing::warn!(target: "hyper::client", "a connection was closed");
        tracing::warn!(target: "queuetip", "a name that begins like ours");
        tracing::warn!(target: "firstclaim::claim", key = "a#b", "superseded");
        tracing::error!(target: "hyper::server", error = &error as &dyn Error, "no answer");
    });
    assert_eq!(
        lines,
        [
            "warning  superseded            key: a#b",
            "error    no answer             error: the key could not be claimed: connection refused",
        ]
    );
}

#[test]
fn colours_are_there_only_if_asked_for() {
    let event = || {
        tracing::info!(target: "firstclaim::record", outcome = "performed", key = "a#b");
    };
    assert!(lines(true, event)[0].contains("\u{1b}[32mperformed           \u{1b}[0m"));
    assert!(!lines(false, event)[0].contains('\u{1b}'));
}

#[test]
fn the_time_is_that_of_the_day() {
    assert_eq!(time(EpochMillis(1_794_478_868_123)), "10:21:08.123");
    assert_eq!(time(EpochMillis(0)), "00:00:00.000");
}
