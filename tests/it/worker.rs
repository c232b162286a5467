//! The queue function as a process, batch by batch.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use firstclaim::claims::Resolution;
use firstclaim::record::Status;
use firstclaim::{Claimed, Claims, Config, Key};
use integration::Lab;
use integration::lab::{DEAD, WORK};
use integration::process::Process;
use integration::proxy::Gate;
use integration::queue_stub::{Batch, returned};
use integration::runtime_api::Ended;
use integration::target::Behaviour;
use serde_json::{Value, json};

use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            n26_n31_a_mixed_batch_is_answered_record_by_record,
            n27_p93_a23_a_fifo_group_stops_at_its_first_failure,
            n28_groups_of_a_standard_queue_have_no_order,
            a20_n25_one_held_key_returns_one_record,
            p92_each_record_has_its_own_key,
            p94_records_without_an_identifier_are_isolated,
            a25_a_redelivery_during_the_first_is_returned,
            n35_a_wrong_configuration_is_not_remembered_as_the_answer,
            dead_letters_carry_their_reason,
            a_fifo_group_goes_on_behind_a_dead_letter,
            a_dead_letter_that_was_not_sent_is_returned,
            sample_batches_are_answered_as_listed,
            a_settled_failure_runs_again_at_once,
        ;
        race:
    ]
}

const LIMIT: Duration = Duration::from_secs(20);

/// A worker without a dead-letter queue: what can't succeed goes back to SQS.
pub(crate) async fn returning_worker(lab: &Lab) -> anyhow::Result<Process> {
    let mut variables = lab.queue_variables();
    variables.remove("DEAD_LETTER_URL");
    lab.process("queue", &variables).await
}

/// Invokes a worker with an event and returns the response's text.
pub(crate) async fn text(worker: &Process, event: &Value) -> anyhow::Result<String> {
    match worker
        .invoke_raw(event.to_string().into_bytes(), LIMIT)
        .await?
    {
        Ended::Response(body) => Ok(String::from_utf8(body)?),
        other => anyhow::bail!("{other:?}"),
    }
}

/// The answer that lists these identifiers in this order, byte for byte.
pub(crate) fn listing<'a>(ids: impl IntoIterator<Item = &'a str>) -> String {
    let failures: Vec<_> = ids
        .into_iter()
        .map(|id| json!({"itemIdentifier": id}))
        .collect();
    json!({"batchItemFailures": failures}).to_string()
}

pub(crate) fn send(lab: &Lab, keys: &[&str]) {
    for key in keys {
        lab.queues.send(
            WORK,
            &json!({"key": key, "payload": {"for": key}}).to_string(),
        );
    }
}

fn id_of(event: &Value, record: usize) -> &str {
    event["Records"][record]["messageId"]
        .as_str()
        .unwrap_or_default()
}

async fn n26_n31_a_mixed_batch_is_answered_record_by_record(lab: &Lab) -> anyhow::Result<()> {
    let worker = returning_worker(lab).await?;
    let event = lab.suite.deliveries.json("lambda/sqs-standard-batch")?;
    let expected = lab.suite.deliveries.returned("lambda/sqs-standard-batch")?;
    let expected = listing(expected.iter().map(String::as_str));
    assert_eq!(text(&worker, &event).await?, expected);
    let effects = lab.target.effects();
    assert_eq!(effects.values().copied().collect::<Vec<_>>(), [1, 1, 1, 1]);

    // Again, in this process and in a cold one, and redriven under new message ids.
    let cold = returning_worker(lab).await?;
    for worker in [&worker, &cold] {
        assert_eq!(text(worker, &event).await?, expected);
    }
    let redriven = lab.suite.deliveries.json("lambda/sqs-redriven-batch")?;
    assert_eq!(text(&cold, &redriven).await?, listing([]));
    assert_eq!(lab.target.effects(), effects, "something ran a second time");
    Ok(())
}

async fn n27_p93_a23_a_fifo_group_stops_at_its_first_failure(lab: &Lab) -> anyhow::Result<()> {
    let worker = returning_worker(lab).await?;
    let event = lab.suite.deliveries.json("lambda/sqs-fifo-batch")?;
    let expected = lab.suite.deliveries.returned("lambda/sqs-fifo-batch")?;
    assert_eq!(
        text(&worker, &event).await?,
        listing(expected.iter().map(String::as_str))
    );
    let applied: Vec<_> = lab
        .target
        .received()
        .iter()
        .map(|one| one.header("firstclaim-key").to_owned())
        .collect();
    let place = |key: &str| {
        applied
            .iter()
            .position(|one| one.ends_with(key))
            .with_context(|| key.to_owned())
    };
    ensure!(place("B-1")? < place("B-2")?, "{applied:?}");
    place("A-1")?;
    place("C-1")?;
    assert_eq!(applied.len(), 4, "{applied:?}");
    // The rest of the stopped group gets the failed record's visibility, if it got any.
    let seconds: BTreeSet<_> = lab
        .queues
        .visibilities()
        .iter()
        .map(|one| one.seconds)
        .collect();
    ensure!(seconds.len() <= 1, "{:?}", lab.queues.visibilities());
    Ok(())
}

async fn n28_groups_of_a_standard_queue_have_no_order(lab: &Lab) -> anyhow::Result<()> {
    let worker = returning_worker(lab).await?;
    let mut event = lab.suite.deliveries.json("lambda/sqs-fifo-batch")?;
    for record in event["Records"].as_array_mut().context("no records")? {
        let arn = record["eventSourceARN"]
            .as_str()
            .context("no ARN")?
            .replace(".fifo", "");
        record["eventSourceARN"] = json!(arn);
    }
    assert_eq!(text(&worker, &event).await?, listing([id_of(&event, 2)]));
    assert_eq!(lab.target.effect_count(), 5);
    Ok(())
}

async fn a20_n25_one_held_key_returns_one_record(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    let claims = Claims::new(lab.store(), Config::default())?;
    let held = claims
        .once(Key::new("queue", "k4")?)
        .lease(Duration::from_secs(40))
        .claim()
        .await?;
    ensure!(matches!(held, Claimed::Held(_)), "{held:?}");
    send(
        lab,
        &["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"],
    );
    let batch = lab.queues.receive(WORK, 10);
    assert_eq!(
        text(&worker, &batch.event()).await?,
        listing([batch.messages[4].id.as_str()])
    );
    assert_eq!(lab.target.effect_count(), 9);
    let asked = lab.queues.visibilities();
    let [asked] = asked.as_slice() else {
        anyhow::bail!("{asked:?}");
    };
    assert_eq!(asked.receipt, batch.messages[4].receipt);
    // The rest of the lease and a second.
    ensure!((35..=41).contains(&asked.seconds), "{asked:?}");
    Ok(())
}

async fn p92_each_record_has_its_own_key(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    send(lab, &["1", "2"]);
    lab.work(&worker, 2).await?;
    send(lab, &["2", "3"]);
    lab.work(&worker, 2).await?;
    assert_eq!(
        lab.target.effects().into_values().collect::<Vec<_>>(),
        [1, 1, 1]
    );
    Ok(())
}

/// Without an identifier there is nothing to return a record by, and an empty one would fail the
/// whole batch at AWS.
async fn p94_records_without_an_identifier_are_isolated(lab: &Lab) -> anyhow::Result<()> {
    let worker = returning_worker(lab).await?;
    send(lab, &["a", "b", "c"]);
    let batch = lab.queues.receive(WORK, 3);
    let mut event = batch.event();
    event["Records"][1]
        .as_object_mut()
        .map(|record| record.remove("messageId"));
    event["Records"][1]["body"] = json!("garbage");
    let answer = worker
        .invoke_raw(event.to_string().into_bytes(), LIMIT)
        .await?;
    if let Ended::Response(body) = answer {
        let failed = returned(&serde_json::from_slice(&body)?)?;
        ensure!(!failed.contains(&batch.messages[0].id), "{failed:?}");
        ensure!(!failed.contains(&batch.messages[2].id), "{failed:?}");
    }
    assert_eq!(lab.target.effect_count(), 2, "the good ones are done");
    Ok(())
}

async fn a25_a_redelivery_during_the_first_is_returned(lab: &Lab) -> anyhow::Result<()> {
    let (worker, other) = (lab.queue().await?, lab.queue().await?);
    send(lab, &["slow"]);
    let batch = lab.queues.receive(WORK, 1);
    let gate = Gate::new();
    lab.target.plan([Behaviour::Hang(gate.clone())]);
    let event = batch.event();
    let first = text(&worker, &event);
    let second = async {
        gate.reached(1).await;
        lab.queues.abandon(&batch);
        let again = lab.queues.receive(WORK, 1);
        let answer = text(&other, &again.event()).await;
        gate.open();
        (again, answer)
    };
    let (first, (again, second)) = tokio::join!(first, second);
    assert_eq!(first?, listing([]));
    assert_eq!(second?, listing([again.messages[0].id.as_str()]));
    assert_eq!(lab.target.received().len(), 1);
    assert_eq!(lab.record("queue#slow").await?.attempt, 1);
    Ok(())
}

async fn n35_a_wrong_configuration_is_not_remembered_as_the_answer(
    lab: &Lab,
) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    for (status, code) in [
        (401, "not yet"),
        (403, "not yet"),
        (404, "not yet"),
        (302, "not yet"),
        (422, "stored"),
    ] {
        let key = format!("status-{status}");
        send(lab, &[&key]);
        let batch = lab.queues.receive(WORK, 1);
        lab.target.plan([Behaviour::Answer(status)]);
        let before = lab.target.effect_count();
        let first: Value = serde_json::from_str(&text(&worker, &batch.event()).await?)?;
        let again: Value = serde_json::from_str(&text(&worker, &batch.event()).await?)?;
        let ran = lab.target.effect_count() - before;
        let outcome = (returned(&first)?.len(), returned(&again)?.len(), ran);
        let expected = if code == "stored" {
            (0, 0, 0)
        } else {
            (1, 0, 1)
        };
        assert_eq!(outcome, expected, "{status}");
        lab.queues
            .settle(&batch, &json!({"batchItemFailures": []}))?;
    }
    assert_eq!(lab.record("queue#status-422").await?.status, Status::Failed);
    Ok(())
}

async fn dead_letters_carry_their_reason(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    send(lab, &["refused"]);
    lab.queues.send(WORK, "garbage");
    let batch = lab.queues.receive(WORK, 2);
    lab.target.always(Behaviour::Answer(422));
    assert_eq!(text(&worker, &batch.event()).await?, listing([]));
    let dead = lab.queues.messages(DEAD);
    assert_eq!(dead.len(), 2, "{dead:?}");
    for message in &batch.messages {
        let letter = dead
            .iter()
            .find(|letter| letter.body == message.body)
            .context("no letter")?;
        assert_eq!(letter.attributes.get("message_id"), Some(&message.id));
        ensure!(letter.attributes.contains_key("reason"), "{letter:?}");
        ensure!(letter.attributes.contains_key("code"), "{letter:?}");
    }
    let refused = dead
        .iter()
        .find(|letter| letter.body.contains("refused"))
        .context("no letter")?;
    assert_eq!(
        refused.attributes.get("firstclaim_key").map(String::as_str),
        Some("queue#refused")
    );
    assert_eq!(
        refused.attributes.get("attempt").map(String::as_str),
        Some("1")
    );
    assert_eq!(lab.record("queue#refused").await?.status, Status::Failed);
    // Delivered once more, it is known: no second letter.
    assert_eq!(
        text(
            &worker,
            &Batch {
                messages: vec![batch.messages[0].clone()]
            }
            .event()
        )
        .await?,
        listing([])
    );
    assert_eq!(lab.queues.messages(DEAD).len(), 2);
    assert_eq!(lab.target.received().len(), 1);
    assert_eq!(lab.queues.unknown_operations(), BTreeSet::new());
    Ok(())
}

async fn a_fifo_group_goes_on_behind_a_dead_letter(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    let event = lab.suite.deliveries.json("lambda/sqs-fifo-batch")?;
    assert_eq!(text(&worker, &event).await?, listing([]));
    assert_eq!(lab.target.effect_count(), 5);
    assert_eq!(lab.queues.messages(DEAD).len(), 1);
    Ok(())
}

/// First the letter, then the record, then the acknowledgement: a letter that can't be sent keeps
/// the message in the queue.
async fn a_dead_letter_that_was_not_sent_is_returned(lab: &Lab) -> anyhow::Result<()> {
    use integration::proxy::{ANY, Failure, Step};
    let worker = lab.queue().await?;
    send(lab, &["refused"]);
    let batch = lab.queues.receive(WORK, 1);
    lab.target.always(Behaviour::Answer(422));
    lab.sqs.always(ANY, Step::Fail(Failure::Internal));
    let id = batch.messages[0].id.as_str();
    assert_eq!(text(&worker, &batch.event()).await?, listing([id]));
    assert_ne!(lab.record("queue#refused").await?.status, Status::Failed);
    lab.sqs.heal();
    assert_eq!(text(&worker, &batch.event()).await?, listing([]));
    assert_eq!(lab.queues.messages(DEAD).len(), 1);
    assert_eq!(lab.record("queue#refused").await?.status, Status::Failed);
    Ok(())
}

async fn sample_batches_are_answered_as_listed(lab: &Lab) -> anyhow::Result<()> {
    let worker = returning_worker(lab).await?;
    for name in ["lambda/sqs-redriven-batch", "lambda/sns-to-sqs.raw"] {
        let event = lab.suite.deliveries.json(name)?;
        let expected = lab.suite.deliveries.returned(name)?;
        let expected = listing(expected.iter().map(String::as_str));
        assert_eq!(text(&worker, &event).await?, expected, "{name}");
    }
    Ok(())
}

/// A worker that has just met a failed record sees at once what a person has made of it since.
async fn a_settled_failure_runs_again_at_once(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    let deliver = async || {
        send(lab, &["settled"]);
        let answer = lab.work(&worker, 1).await?;
        ensure!(returned(&answer)?.is_empty(), "{answer}");
        Ok(lab.target.effect_count())
    };
    lab.target.plan([Behaviour::Answer(422)]);
    assert_eq!(deliver().await?, 0);
    assert_eq!(deliver().await?, 0, "it has failed for good");
    let claims = Claims::new(lab.store(), Config::default())?;
    let seen = lab.record("queue#settled").await?;
    assert_eq!(seen.status, Status::Failed);
    let rerun = Resolution::Rerun {
        new_generation: false,
    };
    claims
        .settle(&seen, rerun, "operator", "the target takes it now")
        .await?;
    assert_eq!(deliver().await?, 1);
    Ok(())
}
