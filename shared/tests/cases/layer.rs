//! The layer around a Lambda handler.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use firstclaim::clock::{EpochMillis, Source};
use firstclaim::lambda::{OnceError, OnceLayer};
use firstclaim::{Attempt, Claims, Failure, Fingerprint, Key, KeyError, downstream_key};
use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use serde_json::{Value, json};
use tower::{Layer, Service};

use crate::lab::{Broken, LEASE, Lab, Rule, SECOND, START, Wire, broken, held, key, quiet, until};

/// The key of an event: its `order`, which may be any scalar.
fn order(event: &Value) -> Result<Key, KeyError> {
    Key::join("orders", std::slice::from_ref(&event["order"]))
}

/// A handler that counts its calls, and answers with what the event asks for.
#[derive(Clone, Default)]
struct Handler {
    calls: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Service<LambdaEvent<Value>> for Handler {
    type Response = Value;
    type Error = Failure<Broken>;
    type Future =
        std::pin::Pin<Box<dyn std::future::Future<Output = Result<Value, Failure<Broken>>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaEvent<Value>) -> Self::Future {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.lock().unwrap().push(event.context.request_id);
        Box::pin(async move {
            match event.payload["fail"].as_str() {
                Some("permanent") => Err(Failure::permanent("declined", broken("no"))),
                Some(_) => Err(broken("no answer").into()),
                None => Ok(json!({ "call": call })),
            }
        })
    }
}

fn event(payload: Value, request: &str, deadline: EpochMillis) -> LambdaEvent<Value> {
    let mut context = lambda_runtime::Context::default();
    context.request_id = request.to_owned();
    context.deadline = u64::try_from(deadline.0).unwrap();
    LambdaEvent::new(payload, context)
}

type Answered = Result<Value, OnceError<Broken>>;

async fn invoke(claims: &Claims<Wire>, handler: &Handler, event: LambdaEvent<Value>) -> Answered {
    let mut service = OnceLayer::new(claims.clone(), order).layer(handler.clone());
    std::future::poll_fn(|context| service.poll_ready(context)).await?;
    service.call(event).await
}

fn error_type(answered: Answered) -> String {
    Diagnostic::from(answered.unwrap_err()).error_type
}

#[tokio::test]
async fn p7_the_layer_gives_each_claim_its_invocations_deadline_and_names() {
    let lab = Lab::new();
    let handler = Handler::default();
    let deadline = START.after(10 * SECOND);
    let event = event(json!({"order": 1}), "r-1", deadline);
    lab.wire.rule("finish", Rule::Hold);
    let run = {
        let (claims, handler) = (lab.process(), handler.clone());
        tokio::spawn(async move { invoke(&claims, &handler, event).await })
    };
    until("it is claimed", || !lab.memory.records().is_empty()).await;
    let record = lab.record();
    assert_eq!(record.lease, Some(deadline.after(2 * SECOND)));
    assert_eq!(record.origin.request.as_deref(), Some("r-1"));
    lab.wire.clear("finish");
    assert_eq!(run.await.unwrap().unwrap(), json!({"call": 1}));
}

#[tokio::test]
async fn p19_concurrent_invocations_of_one_environment_keep_their_own_deadlines() {
    let lab = Lab::new();
    let claims = lab.process();
    lab.wire.rule("finish", Rule::Hold);
    let tasks: Vec<_> = (1..=20_u32)
        .map(|number| {
            let deadline = START.after(number * SECOND);
            let event = event(json!({"order": number}), &number.to_string(), deadline);
            let (claims, handler) = (claims.clone(), Handler::default());
            tokio::spawn(async move { invoke(&claims, &handler, event).await })
        })
        .collect();
    until("all are claimed", || lab.memory.records().len() == 20).await;
    for record in lab.memory.records() {
        let number: u32 = record.origin.request.unwrap().parse().unwrap();
        assert_eq!(record.id, format!("orders#[{number}]"));
        assert_eq!(record.lease, Some(START.after((number + 2) * SECOND)));
    }
    lab.wire.clear("finish");
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn p53_the_key_is_what_the_function_says_and_nothing_else_of_the_event() {
    let lab = Lab::new();
    let handler = Handler::default();
    for (request, payload) in [
        (
            "r-1",
            json!({"order": 7, "requestContext": {"timeEpoch": 1}}),
        ),
        (
            "r-2",
            json!({"requestContext": {"timeEpoch": 2}, "order": 7}),
        ),
    ] {
        let event = event(payload, request, START.after(LEASE));
        let answer = invoke(&lab.process(), &handler, event).await.unwrap();
        assert_eq!(answer, json!({"call": 1}));
    }
    assert_eq!(lab.record().id, "orders#[7]");
}

#[tokio::test]
async fn p37_p44_p84_an_event_without_a_key_is_refused_and_falsy_keys_are_keys() {
    let lab = Lab::new();
    let handler = Handler::default();
    for payload in [json!({}), json!({"order": null}), json!({"order": ""})] {
        let event = event(payload, "r-1", START.after(LEASE));
        let answered = invoke(&lab.process(), &handler, event).await;
        assert_eq!(error_type(answered), "firstclaim.NoKey");
    }
    assert_eq!(lab.failing.calls(), 0);
    for payload in [
        json!({"order": 0}),
        json!({"order": false}),
        json!({"order": "0"}),
    ] {
        let event = event(payload, "r-1", START.after(LEASE));
        invoke(&lab.process(), &handler, event).await.unwrap();
    }
    assert_eq!(handler.calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn p82_a6_each_refusal_has_a_stable_type_of_its_own() {
    let lab = Lab::new();
    let handler = Handler::default();
    let now = |payload: &Value| event(payload.clone(), "r-1", lab.source.now().after(LEASE));
    let mut types = HashSet::new();

    let permanent = json!({"order": 1, "fail": "permanent"});
    for _ in 0..2 {
        types.insert(error_type(
            invoke(&lab.process(), &handler, now(&permanent)).await,
        ));
    }
    let claim = held(
        lab.process()
            .once(order(&json!({"order": 2})).unwrap())
            .lease(LEASE),
    )
    .await;
    let busy = json!({"order": 2});
    types.insert(error_type(
        invoke(&lab.process(), &handler, now(&busy)).await,
    ));
    drop(claim);
    let held_key = order(&json!({"order": 3})).unwrap();
    let policy = firstclaim::Policy::Hold;
    lab.crash(lab.process().once(held_key).lease(LEASE).policy(policy))
        .await;
    lab.advance(LEASE);
    types.insert(error_type(
        invoke(&lab.process(), &handler, now(&json!({"order": 3}))).await,
    ));
    lab.wire.rule("claim", Rule::Refuse);
    types.insert(error_type(
        invoke(&lab.process(), &handler, now(&json!({"order": 4}))).await,
    ));

    let wanted = [
        "firstclaim.OperationFailed",
        "firstclaim.ReplayedFailure",
        "firstclaim.InProgress",
        "firstclaim.Held",
        "firstclaim.NotClaimed",
    ];
    assert_eq!(types, wanted.map(str::to_owned).into());
}

#[tokio::test]
async fn a31_a_failed_invocation_is_repeated_and_a_done_one_is_not() {
    let lab = Lab::new();
    let handler = Handler::default();
    let failing = event(
        json!({"order": 1, "fail": "unknown"}),
        "r-1",
        START.after(LEASE),
    );
    let answered = invoke(&lab.process(), &handler, failing).await;
    assert_eq!(error_type(answered), "firstclaim.OperationFailed");
    for request in ["r-2", "r-3"] {
        let event = event(json!({"order": 1}), request, START.after(LEASE));
        let answer = invoke(&lab.process(), &handler, event).await.unwrap();
        assert_eq!(answer, json!({"call": 2}));
    }
    assert_eq!(*handler.seen.lock().unwrap(), ["r-1", "r-2"]);
}

/// A handler that becomes ready only when the clock has moved, and must be asked before each call.
#[derive(Clone)]
struct Reluctant {
    lab: Lab,
    ready: bool,
}

impl Service<LambdaEvent<Value>> for Reluctant {
    type Response = usize;
    type Error = Failure<Broken>;
    type Future = std::future::Ready<Result<usize, Failure<Broken>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if self.lab.source.now() == START {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _event: LambdaEvent<Value>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being asked"
        );
        std::future::ready(Ok(self.lab.effect()))
    }
}

#[tokio::test]
async fn the_handler_is_asked_whether_it_is_ready_and_only_where_it_is_called() {
    let lab = Lab::new();
    let reluctant = Reluctant {
        lab: lab.clone(),
        ready: false,
    };
    let run = {
        let mut service = OnceLayer::new(lab.process(), order).layer(reluctant);
        tokio::spawn(async move {
            let first = service.call(event(json!({"order": 1}), "r-1", START.after(LEASE)));
            let first = first.await.unwrap();
            let again = service.call(event(json!({"order": 1}), "r-2", START.after(LEASE)));
            (first, again.await.unwrap())
        })
    };
    quiet().await;
    assert!(!run.is_finished());
    lab.advance(SECOND);
    assert_eq!(run.await.unwrap(), (1, 1));
    assert_eq!(lab.effects(), 1);
    assert_ne!(lab.record().id, key().stored());
}

#[tokio::test]
async fn p28_a_response_that_could_not_be_recorded_is_given_all_the_same() {
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::Refuse);
    let run = {
        let (claims, handler) = (lab.process(), Handler::default());
        let event = event(json!({"order": 1}), "r-1", START.after(LEASE));
        tokio::spawn(async move { invoke(&claims, &handler, event).await })
    };
    lab.advance_until(SECOND / 10, "the run ends", || run.is_finished())
        .await;
    assert_eq!(run.await.unwrap().unwrap(), json!({"call": 1}));
}

/// A handler that answers with what it finds of its claim, here and in a task that it spawns.
async fn tell(event: LambdaEvent<Value>) -> Result<Value, Failure<Broken>> {
    let attempt = Attempt::current().ok_or_else(|| Failure::permanent("none", broken("none")))?;
    let spawned = tokio::spawn(async { Attempt::current().is_none() });
    let spawned_has_none = spawned.await.map_err(|error| broken(&error.to_string()))?;
    Ok(json!({
        "order": event.payload["order"],
        "key": attempt.key().as_str(),
        "attempt": attempt.number(),
        "downstream": attempt.downstream_key("charge"),
        "left": attempt.remaining().as_secs(),
        "lost": attempt.is_lost(),
        "spawned_has_none": spawned_has_none,
    }))
}

#[tokio::test]
async fn the_handler_finds_its_claim() {
    let lab = Lab::new();
    lab.crash(
        lab.process()
            .once(order(&json!({"order": 1})).unwrap())
            .lease(LEASE),
    )
    .await;
    lab.advance(LEASE);
    let mut service = OnceLayer::new(lab.process(), order).layer(service_fn(tell));
    let deadline = lab.source.now().after(10 * SECOND);
    let told = service.call(event(json!({"order": 1}), "r-1", deadline));
    let key = order(&json!({"order": 1})).unwrap();
    assert_eq!(
        told.await.unwrap(),
        json!({
            "order": 1,
            "key": "orders#[1]",
            "attempt": 2,
            "downstream": downstream_key(&key, 0, "charge"),
            "left": 10,
            "lost": false,
            "spawned_has_none": true,
        })
    );
    assert!(Attempt::current().is_none());
}

#[tokio::test]
async fn p57_the_layer_binds_a_key_to_its_payload() {
    let lab = Lab::new();
    let layer = |claims| OnceLayer::new(claims, order).fingerprint(Fingerprint::of::<Value>);
    let handler = Handler::default();
    let now = |payload: Value| event(payload, "r-1", START.after(LEASE));
    let mut service = layer(lab.process()).layer(handler.clone());
    let first = service.call(now(json!({"order": 1, "amount": 5}))).await;
    assert_eq!(first.unwrap(), json!({"call": 1}));
    // From this process and from a cold one.
    for claims in [lab.process(), lab.process()] {
        let mut service = layer(claims).layer(handler.clone());
        let again = service.call(now(json!({"amount": 5, "order": 1}))).await;
        assert_eq!(again.unwrap(), json!({"call": 1}));
        let other = service.call(now(json!({"order": 1, "amount": 500}))).await;
        assert_eq!(error_type(other), "firstclaim.Mismatch");
    }
    let fails = |_: &Value| Fingerprint::of(&std::collections::HashMap::from([((1, 2), 3)]));
    let mut service = OnceLayer::new(lab.process(), order)
        .fingerprint(fails)
        .layer(handler.clone());
    let refused = service.call(now(json!({"order": 2}))).await;
    assert_eq!(error_type(refused), "firstclaim.NoFingerprint");
    assert_eq!(handler.calls.load(Ordering::SeqCst), 1);
}
