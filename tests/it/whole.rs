//! The whole way of an event: both functions as processes, from the sender's request to the effect
//! at the target.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use firstclaim::protocol::Write;
use firstclaim::record::{Data, Status};
use firstclaim::store::{Store, Written};
use futures_util::future::try_join_all;
use integration::Lab;
use integration::deliveries::{Delivery, HttpAnswer};
use integration::lab::WORK;
use integration::poll;
use integration::process::Process;
use integration::proxy::Gate;
use integration::queue_stub::returned;
use integration::target::Behaviour;

use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            calls_are_counted,
            bytes_and_content_type_arrive_as_sent,
            n11_a37_one_event_through_three_hooks_is_one_effect,
            a_killed_owner_is_followed_by_the_next,
            a3_a_killed_owner_is_held_under_hold,
            a31_a_failed_attempt_is_made_good,
        ;
        race:
            a34_a35_fifty_deliveries_at_once_are_one_effect,
            a24_one_batch_in_two_workers_at_once_is_one_effect,
    ]
}

/// Delivers to a webhook process.
pub(crate) async fn deliver(webhook: &Process, delivery: &Delivery) -> anyhow::Result<HttpAnswer> {
    HttpAnswer::read(&webhook.invoke(&delivery.event()).await?)
}

/// The `key` of a 202.
pub(crate) fn key_of(answer: &HttpAnswer) -> anyhow::Result<String> {
    ensure!(answer.status == 202, "{answer:?}");
    let json = answer.json()?;
    Ok(json["key"].as_str().context("no key")?.to_owned())
}

async fn a34_a35_fifty_deliveries_at_once_are_one_effect(lab: &Lab) -> anyhow::Result<()> {
    let webhooks = try_join_all((0..4).map(|_| lab.webhook())).await?;
    let delivery = lab
        .suite
        .deliveries
        .load("github/issue_comment.edited")?
        .signed()?;
    let answers = (0..50).map(|number| deliver(&webhooks[number % 4], &delivery));
    let answers = try_join_all(answers).await?;
    let key = key_of(&answers[0])?;
    let bodies: BTreeSet<&str> = answers.iter().map(|answer| answer.body.as_str()).collect();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    for answer in &answers {
        ensure!(answer.status == 202, "{answer:?}");
    }

    let workers = try_join_all((0..2).map(|_| lab.queue())).await?;
    lab.drain(&workers).await?;
    assert_eq!(lab.target.effects().into_values().collect::<Vec<_>>(), [1]);
    let record = lab.record(&key).await?;
    assert_eq!((record.status, record.attempt), (Status::Completed, 1));
    let doors: Vec<_> = lab
        .ids()
        .await?
        .into_iter()
        .filter(|id| id.starts_with("accept."))
        .collect();
    assert_eq!(doors.len(), 1, "{doors:?}");

    // The same comment is edited once more: another operation.
    let again = lab.suite.deliveries.load("github/issue_comment.edited")?;
    let again = again.with_header("x-github-delivery", "11111111-2222-3333-4444-555555555555");
    let again = again.with_changed_body(|body| {
        body["comment"]["updated_at"] = "2026-11-12T11:00:00Z".into();
    })?;
    let second = key_of(&deliver(&webhooks[0], &again.signed()?).await?)?;
    assert_ne!(second, key);
    lab.drain(&workers).await?;
    assert_eq!(
        lab.target.effects().into_values().collect::<Vec<_>>(),
        [1, 1]
    );
    Ok(())
}

async fn n11_a37_one_event_through_three_hooks_is_one_effect(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let mut keys = BTreeSet::new();
    for name in ["created", "created.app", "created.hook-twice"] {
        let delivery = lab
            .suite
            .deliveries
            .load(&format!("github/issue_comment.{name}"))?;
        keys.insert(key_of(&deliver(&webhook, &delivery.signed()?).await?)?);
    }
    assert_eq!(keys.len(), 1, "{keys:?}");
    ensure!(!lab.queues.messages(WORK).is_empty(), "nothing was queued");
    lab.drain(&[worker]).await?;
    assert_eq!(lab.target.effect_count(), 1);
    Ok(())
}

async fn a24_one_batch_in_two_workers_at_once_is_one_effect(lab: &Lab) -> anyhow::Result<()> {
    let workers = try_join_all((0..2).map(|_| lab.queue())).await?;
    let event = lab.suite.deliveries.json("lambda/sqs-fifo-batch")?;
    try_join_all(workers.iter().map(|worker| worker.invoke(&event))).await?;
    let effects = lab.target.effects();
    ensure!(effects.values().all(|count| *count == 1), "{effects:?}");
    Ok(())
}

async fn a_killed_owner_is_followed_by_the_next(lab: &Lab) -> anyhow::Result<()> {
    let (mut first, second) = (lab.queue().await?, lab.queue().await?);
    lab.queues
        .send(WORK, r#"{"key":"killed","payload":{"amount":5}}"#);
    let (batch, gate) = (lab.queues.receive(WORK, 1), Gate::new());
    lab.target.plan([Behaviour::Hang(gate.clone())]);
    let event = batch.event();
    {
        let work = first.invoke_within(&event, Duration::from_secs(4));
        tokio::pin!(work);
        tokio::select! {
            ended = &mut work => anyhow::bail!("it ended while the target hung: {ended:?}"),
            () = gate.reached(1) => {}
        }
    }
    first.kill().await?;
    let key = "queue#killed";
    let dead = lab.record(key).await?;
    assert_eq!((dead.status, dead.attempt), (Status::InProgress, 1));
    lab.queues.abandon(&batch);

    // Before the lease is over nobody may work; after it the next delivery takes over.
    let early = lab.work(&second, 1).await?;
    assert_eq!(returned(&early)?.len(), 1, "the lease still ran");
    poll::until("the takeover", Duration::from_secs(30), async || {
        let answer = lab.work(&second, 1).await?;
        Ok(returned(&answer)?.is_empty().then_some(()))
    })
    .await?;

    let received = lab.target.received();
    let attempts: Vec<_> = received
        .iter()
        .map(|one| one.header("firstclaim-attempt"))
        .collect();
    assert_eq!(attempts, ["1", "2"]);
    assert_eq!(received[0].key(), received[1].key());
    assert_eq!(received[0].key().len(), 64);
    let record = lab.record(key).await?;
    assert_eq!((record.status, record.attempt), (Status::Completed, 2));

    // What the dead owner still had under way changes nothing.
    let late = Write::Finish {
        owner: dead.owner.context("no owner")?,
        status: Status::Completed,
        data: Data::Inline("\"late\"".to_owned()),
        expiration: record.expiration.context("no expiration")?,
    };
    let written = lab.store().write(&record.id, &late).await?;
    ensure!(matches!(written, Written::Refused(_)), "{written:?}");
    assert_eq!(lab.record(key).await?, record);
    Ok(())
}

async fn a3_a_killed_owner_is_held_under_hold(lab: &Lab) -> anyhow::Result<()> {
    let mut variables = lab.queue_variables();
    variables.insert("CLAIMS_ON_LAPSE".to_owned(), "hold".to_owned());
    let mut first = lab.process("queue", &variables).await?;
    let second = lab.process("queue", &variables).await?;
    lab.queues.send(WORK, r#"{"key":"held","payload":{}}"#);
    let (batch, gate) = (lab.queues.receive(WORK, 1), Gate::new());
    lab.target.plan([Behaviour::Hang(gate.clone())]);
    let event = batch.event();
    {
        let work = first.invoke_within(&event, Duration::from_secs(4));
        tokio::pin!(work);
        tokio::select! {
            ended = &mut work => anyhow::bail!("it ended while the target hung: {ended:?}"),
            () = gate.reached(1) => {}
        }
    }
    first.kill().await?;
    lab.queues.abandon(&batch);
    poll::until("the hold", Duration::from_secs(30), async || {
        let answer = lab.work(&second, 1).await?;
        Ok(returned(&answer)?.is_empty().then_some(()))
    })
    .await?;
    assert_eq!(lab.target.received().len(), 1, "nobody may try again");
    assert_eq!(lab.record("queue#held").await?.status, Status::InProgress);
    let dead = lab.queues.messages(integration::lab::DEAD);
    assert_eq!(dead.len(), 1);
    assert_eq!(
        dead[0].attributes.get("reason").map(String::as_str),
        Some("held")
    );
    Ok(())
}

async fn a31_a_failed_attempt_is_made_good(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    lab.queues.send(WORK, r#"{"key":"flaky","payload":{}}"#);
    lab.target.plan([
        Behaviour::Answer(500),
        Behaviour::Reset,
        Behaviour::RetryAfter(429, 7),
    ]);
    for _ in 0..3 {
        assert_eq!(returned(&lab.work(&worker, 1).await?)?.len(), 1);
    }
    let asked = lab.queues.visibilities();
    assert_eq!(
        asked.last().map(|visibility| visibility.seconds),
        Some(7),
        "{asked:?}"
    );
    ensure!(
        asked.iter().all(|visibility| visibility.seconds > 0),
        "{asked:?}"
    );
    assert_eq!(returned(&lab.work(&worker, 1).await?)?.len(), 0);
    let record = lab.record("queue#flaky").await?;
    assert_eq!((record.status, record.attempt), (Status::Completed, 4));
    let keys: BTreeSet<_> = lab
        .target
        .received()
        .iter()
        .map(|one| one.key().to_owned())
        .collect();
    assert_eq!((keys.len(), lab.target.effect_count()), (1, 1));
    Ok(())
}

async fn calls_are_counted(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, cold_webhook) = (lab.webhook().await?, lab.webhook().await?);
    let (worker, cold_worker) = (lab.queue().await?, lab.queue().await?);
    let counted = || {
        let counts = (lab.dynamodb.total(), lab.sqs.total());
        lab.dynamodb.forget();
        lab.sqs.forget();
        counts
    };
    counted();

    let delivery = lab.suite.deliveries.load("github/pull_request.opened")?;
    let forged = delivery
        .clone()
        .with_header("x-hub-signature-256", "sha256=00");
    assert_eq!(deliver(&webhook, &forged).await?.status, 401);
    let unknown = Delivery {
        path: "/webhooks/nobody".to_owned(),
        ..delivery.clone().signed()?
    };
    assert_eq!(deliver(&webhook, &unknown).await?.status, 404);
    assert_eq!(counted(), (0, 0), "a refused request");

    let delivery = delivery.signed()?;
    let first = deliver(&webhook, &delivery).await?;
    let key = key_of(&first)?;
    assert_eq!(counted(), (2, 1), "an accepted delivery");
    let again = deliver(&cold_webhook, &delivery).await?;
    assert_eq!(counted(), (1, 0), "its duplicate");
    ensure!(again.replayed() && !first.replayed(), "{again:?}");
    assert_eq!(again.body, first.body);

    let batch = lab.queues.receive(WORK, 1);
    let answer = worker.invoke(&batch.event()).await?;
    assert_eq!(returned(&answer)?.len(), 0);
    assert_eq!(counted(), (2, 0), "an operation");
    let answer = cold_worker.invoke(&batch.event()).await?;
    assert_eq!(returned(&answer)?.len(), 0);
    assert_eq!(counted(), (1, 0), "its duplicate at the worker");
    assert_eq!(lab.record(&key).await?.attempt, 1);
    assert_eq!(lab.target.effect_count(), 1);
    Ok(())
}

async fn bytes_and_content_type_arrive_as_sent(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let workers = [worker];
    for (number, (name, kind)) in [
        ("github/push", "push"),
        ("github/push.form", "push"),
        (
            "github/pull_request_review.submitted",
            "pull_request_review.submitted",
        ),
        ("standard/user.created", "user.created"),
    ]
    .into_iter()
    .enumerate()
    {
        let delivery = lab.suite.deliveries.load(name)?.signed()?;
        // Every other one in base64, as gateways send forms.
        let event = if number % 2 == 1 {
            delivery.event_base64()
        } else {
            delivery.event()
        };
        let answer = HttpAnswer::read(&webhook.invoke(&event).await?)?;
        ensure!(answer.status == 202, "{name}: {answer:?}");
        lab.drain(&workers).await?;
        let received = lab.target.received();
        let last = received
            .last()
            .with_context(|| format!("{name}: nothing arrived"))?;
        assert_eq!(received.len(), number + 1, "{name}");
        ensure!(last.body == delivery.body, "{name}: other bytes arrived");
        assert_eq!(
            last.header("content-type"),
            delivery.headers["content-type"],
            "{name}"
        );
        assert_eq!(last.header("firstclaim-kind"), kind, "{name}");
        assert_eq!(last.header("firstclaim-sender"), delivery.scheme, "{name}");
        assert_eq!(last.header("firstclaim-attempt"), "1", "{name}");
        ensure!(
            last.header("traceparent").starts_with("00-"),
            "{name}: no traceparent"
        );
        for secret in ["authorization", "x-hub-signature-256", "webhook-signature"] {
            assert_eq!(last.header(secret), "", "{name}: {secret} was passed on");
        }
    }
    Ok(())
}
