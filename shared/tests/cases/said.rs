//! What is said about each claim, for people to find it again.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use firstclaim::{Answer, Ended, Failure, Fingerprint, StoredFailure};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::lab::{Broken, LEASE, Lab, Rule, SECOND, broken, held, key, operation_failure};

/// Keeps each event of the crate as `name=value` texts.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// The one line with all these parts.
    fn line(&self, parts: &[&str]) -> String {
        let lines = self.lines();
        let mut found = lines
            .iter()
            .filter(|line| parts.iter().all(|part| line.contains(part)));
        let line = found
            .next()
            .unwrap_or_else(|| panic!("{parts:?}: {lines:#?}"));
        assert_eq!(found.next(), None, "{parts:?}");
        line.clone()
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("firstclaim")
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

fn listening() -> (Heard, tracing::subscriber::DefaultGuard) {
    let heard = Heard::default();
    let guard = tracing::subscriber::set_default(heard.clone());
    (heard, guard)
}

#[tokio::test]
async fn p81_every_outcome_is_said_once_with_its_key_and_attempt() {
    let (heard, _guard) = listening();
    let lab = Lab::new();
    lab.answer(lab.once().event("delivery-1")).await;
    lab.answer(lab.once()).await;
    let fingerprint = Fingerprint::of_raw(b"1");
    lab.answer(lab.once().fingerprint(fingerprint)).await;
    assert_eq!(heard.lines().len(), 3);
    heard.line(&[
        "INFO",
        "key=\"orders#order-42\"",
        "attempt=1",
        "outcome=\"performed\"",
    ]);
    let replays: Vec<_> = heard.lines()[1..].to_vec();
    for line in replays {
        assert!(line.contains("outcome=\"replayed\""), "{line}");
        assert!(line.contains("winner_event=\"delivery-1\""), "{line}");
    }
}

#[tokio::test]
async fn every_ending_of_a_failure_is_said_with_its_code_and_without_its_message() {
    for (failure, outcome) in [
        (Failure::permanent("declined", broken("secret")), "failed"),
        (
            Failure::did_not_happen("busy", broken("secret")),
            "did_not_happen",
        ),
        (Failure::unknown("timeout", broken("secret")), "unknown"),
    ] {
        let (heard, _guard) = listening();
        let lab = Lab::new();
        let code = format!("code={:?}", failure.code);
        let ran = lab.once().run(|_work| async { Err::<usize, _>(failure) });
        operation_failure(ran.await);
        let line = heard.line(&["WARN", &code, &format!("outcome={outcome:?}")]);
        assert!(!line.contains("secret"), "{line}");
    }
}

#[tokio::test]
async fn n47_a_superseded_result_is_said_by_its_digest_and_never_shown() {
    let lab = Lab::new();
    let late = held(lab.once()).await;
    lab.advance(LEASE);
    lab.answer(lab.once()).await;
    let (heard, _guard) = listening();
    let answer = late.complete("a secret".to_owned()).await.answer;
    assert!(matches!(answer, Answer::ResultOmitted(_)), "{answer:?}");
    let digest = Fingerprint::of_raw(br#""a secret""#).to_hex();
    heard.line(&["WARN", "orders#order-42", "attempt=1", &digest]);
    heard.line(&["INFO", "attempt=2", "outcome=\"superseded\""]);
    assert!(heard.lines().iter().all(|line| !line.contains("secret")));
}

#[tokio::test]
async fn n47_a_superseded_failure_is_said_by_its_digest_too() {
    let lab = Lab::new();
    let late = held(lab.once()).await;
    lab.advance(LEASE);
    lab.answer(lab.once()).await;
    let (heard, _guard) = listening();
    let ended = late.fail_with(&"a secret").await.unwrap();
    assert_eq!(ended, Ended::Superseded);
    let digest = Fingerprint::of_raw(br#""a secret""#).to_hex();
    heard.line(&["WARN", "orders#order-42", "attempt=1", &digest]);
}

#[tokio::test]
async fn n37_n47_giving_up_what_somebody_else_has_is_said() {
    for hold in [false, true] {
        let lab = Lab::new();
        let late = held(lab.once()).await;
        lab.advance(LEASE);
        lab.crash(lab.once()).await;
        let (heard, _guard) = listening();
        let failure = StoredFailure {
            code: "busy".to_owned(),
            message: "later".to_owned(),
        };
        let ended = match hold {
            true => late.give_up(failure).await,
            false => late.release(failure).await,
        };
        assert_eq!(ended.unwrap(), Ended::Superseded);
        heard.line(&[
            "WARN",
            "giving the key up changed nothing",
            "orders#order-42",
        ]);
    }
}

#[tokio::test]
async fn p28_an_unrecorded_result_is_said_with_its_cause() {
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::Refuse);
    let (heard, _guard) = listening();
    let ran = lab
        .once()
        .run(|_work| async { Ok::<_, Failure<Broken>>(1) });
    let (ran, ()) = tokio::join!(ran, lab.pass(5 * SECOND, SECOND / 10));
    assert_eq!(ran.unwrap().answer, Answer::NotRecorded(1));
    heard.line(&[
        "ERROR",
        "could not be recorded",
        key().as_str(),
        "did not answer",
    ]);
    heard.line(&["INFO", "outcome=\"not_recorded\""]);
}

#[tokio::test]
async fn no_token_of_an_owner_is_said() {
    let (heard, _guard) = listening();
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let token = claim.owner().expose().to_owned();
    lab.answer(lab.once()).await;
    claim.complete(1).await;
    assert!(!heard.lines().is_empty());
    assert!(heard.lines().iter().all(|line| !line.contains(&token)));
}

#[tokio::test]
async fn giving_up_a_record_that_is_gone_is_done() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    lab.memory.remove(&key().stored());
    let (heard, _guard) = listening();
    let failure = StoredFailure {
        code: "busy".to_owned(),
        message: "later".to_owned(),
    };
    claim.release(failure).await.unwrap();
    assert_eq!(heard.lines(), Vec::<String>::new());
}
