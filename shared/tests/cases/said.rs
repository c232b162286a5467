//! What is said about each claim, for people to find it again.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use firstclaim::clock::Source;
use firstclaim::{Answer, Ended, Failure, Fingerprint, Inspection, Invocation, StoredFailure};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::lab::{Broken, LEASE, Lab, Rule, SECOND, broken, held, key, operation_failure};

/// Keeps each event of the crate as `name=value` texts, behind those of the span that it is in.
#[derive(Clone, Default)]
struct Heard {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<Mutex<Vec<String>>>,
    inside: Arc<Mutex<Vec<Id>>>,
}

impl Heard {
    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Every span, with all that was recorded in it.
    fn spans(&self) -> Vec<String> {
        self.spans.lock().unwrap().clone()
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

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        let mut spans = self.spans.lock().unwrap();
        spans.push(line.0);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.spans.lock().unwrap();
        let span = &mut spans[usize::try_from(span.into_u64()).unwrap() - 1];
        let mut line = Line(std::mem::take(span));
        values.record(&mut line);
        *span = line.0;
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        if let Some(span) = self.inside.lock().unwrap().last() {
            let at = usize::try_from(span.into_u64()).unwrap() - 1;
            line.0 = format!("[{}] {}", self.spans()[at], line.0);
        }
        self.lines.lock().unwrap().push(line.0);
    }

    fn enter(&self, span: &Id) {
        self.inside.lock().unwrap().push(span.clone());
    }

    fn exit(&self, _span: &Id) {
        self.inside.lock().unwrap().pop();
    }
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
        let span = heard.spans().remove(0);
        assert!(span.ends_with(&format!("outcome={outcome:?}")), "{span}");
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

#[tokio::test]
async fn p81_the_operations_own_lines_carry_its_key_and_attempt() {
    let (heard, _guard) = listening();
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.advance(LEASE);
    let invocation = Invocation {
        request: Some("request-1".to_owned()),
        trace: Some("trace-1".to_owned()),
        ..Invocation::until(lab.source.now().after(LEASE))
    };
    let ran = lab.once().run_inspecting(
        |_work| async {
            tracing::info!(target: "firstclaim::test", "inspecting");
            Ok(Inspection::Proceed)
        },
        |_work| async {
            tracing::info!(target: "firstclaim::test", "charging");
            tokio::task::yield_now().await;
            tracing::info!(target: "firstclaim::test", "charged");
            Ok::<_, Failure<Broken>>(1)
        },
    );
    invocation.scope(ran).await.unwrap();
    let said: Vec<_> = heard
        .lines()
        .into_iter()
        .filter(|line| line.contains("message="))
        .collect();
    let span = "claim key=\"orders#order-42\" attempt=2 requestId=\"request-1\" \
                xrayTraceId=\"trace-1\"";
    assert_eq!(
        said,
        [
            format!("[{span}] INFO message=inspecting"),
            format!("[{span}] INFO message=charging"),
            format!("[{span}] INFO message=charged"),
        ]
    );
    // The span of the one that was killed has no outcome.
    assert_eq!(
        heard.spans(),
        [
            "claim key=\"orders#order-42\" attempt=1".to_owned(),
            format!("{span} outcome=\"performed\""),
        ]
    );
}
