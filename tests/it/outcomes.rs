//! The table of outcomes, row by row, on the real binary: the answer byte for byte, the visibility,
//! the dead letter and the record.

use std::time::Duration;

use anyhow::Context;
use firstclaim::record::{RELEASED, SUSPENDED, Status};
use integration::Lab;
use integration::lab::{DEAD, WORK};
use integration::poll;
use integration::process::Process;
use integration::proxy::{ANY, Failure, Step};
use integration::queue_stub::Batch;
use integration::runtime_api::Ended;
use integration::target::Behaviour;
use serde_json::json;

use crate::registry::{Test, tests};
use crate::worker::{listing, text};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            performed_and_replayed_are_acknowledged,
            n35_a_permanent_failure_is_a_dead_letter_and_meeting_it_again_is_none,
            a_mismatch_is_a_dead_letter_and_the_record_stays,
            a21_what_can_not_be_decoded_is_a_dead_letter_and_noise_is_none,
            a3_an_unknown_outcome_under_hold_is_a_dead_letter_and_stays,
            a31_what_can_be_tried_again_is_returned_with_its_back_off,
            n25_what_is_none_of_the_records_fault_is_returned_with_the_queues_own_visibility,
            a_visibility_that_can_not_be_set_changes_no_answer,
            other_sources_are_unwrapped_as_their_samples_say,
        ;
        race:
    ]
}

fn put(lab: &Lab, key: &str, payload: u32) -> Batch {
    lab.queues.send(
        WORK,
        &json!({"key": key, "payload": {"n": payload}}).to_string(),
    );
    lab.queues.receive(WORK, 1)
}

fn id(batch: &Batch) -> &str {
    &batch.messages[0].id
}

/// The reason and the code of the only dead letter.
fn letter(lab: &Lab) -> anyhow::Result<(String, String)> {
    let letters = lab.queues.messages(DEAD);
    let [letter] = letters.as_slice() else {
        anyhow::bail!("{letters:?}");
    };
    let attribute = |name: &str| {
        letter
            .attributes
            .get(name)
            .cloned()
            .context(name.to_owned())
    };
    Ok((attribute("reason")?, attribute("code")?))
}

fn seconds(lab: &Lab) -> Vec<i64> {
    let visibilities = lab.queues.visibilities();
    visibilities.into_iter().map(|one| one.seconds).collect()
}

/// Waits until the process has said that it counted this once.
async fn counted(worker: &Process, metric: &str) -> anyhow::Result<()> {
    let said = format!("\"{metric}\":1");
    poll::until(metric, Duration::from_secs(10), async || {
        Ok(worker.log().contains(&said).then_some(()))
    })
    .await
}

async fn holding(lab: &Lab) -> anyhow::Result<Process> {
    let mut variables = lab.queue_variables();
    variables.insert("CLAIMS_ON_LAPSE".to_owned(), "hold".to_owned());
    lab.process("queue", &variables).await
}

async fn performed_and_replayed_are_acknowledged(lab: &Lab) -> anyhow::Result<()> {
    let batch = put(lab, "k", 1);
    let (first, cold) = (lab.queue().await?, lab.queue().await?);
    for worker in [&first, &first, &cold] {
        assert_eq!(text(worker, &batch.event()).await?, listing([]));
    }
    assert_eq!((lab.target.effect_count(), seconds(lab)), (1, vec![]));
    assert_eq!(lab.record("queue#k").await?.status, Status::Completed);
    Ok(())
}

async fn n35_a_permanent_failure_is_a_dead_letter_and_meeting_it_again_is_none(
    lab: &Lab,
) -> anyhow::Result<()> {
    let batch = put(lab, "k", 1);
    lab.target.always(Behaviour::Answer(422));
    let (first, cold) = (lab.queue().await?, lab.queue().await?);
    for worker in [&first, &first, &cold] {
        assert_eq!(text(worker, &batch.event()).await?, listing([]));
    }
    assert_eq!(
        letter(lab)?,
        ("permanent".to_owned(), "target_422".to_owned())
    );
    assert_eq!(lab.record("queue#k").await?.status, Status::Failed);
    assert_eq!((lab.target.received().len(), seconds(lab)), (1, vec![]));
    Ok(())
}

async fn a_mismatch_is_a_dead_letter_and_the_record_stays(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    let (one, other) = (put(lab, "k", 1), put(lab, "k", 2));
    assert_eq!(text(&worker, &one.event()).await?, listing([]));
    let record = lab.record("queue#k").await?;
    assert_eq!(text(&worker, &other.event()).await?, listing([]));
    assert_eq!(letter(lab)?, ("mismatch".to_owned(), "mismatch".to_owned()));
    assert_eq!(lab.record("queue#k").await?, record);
    assert_eq!(lab.target.effect_count(), 1);
    Ok(())
}

async fn a21_what_can_not_be_decoded_is_a_dead_letter_and_noise_is_none(
    lab: &Lab,
) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    lab.queues.send(WORK, "garbage");
    lab.queues
        .send(WORK, r#"{"Service":"Amazon S3","Event":"s3:TestEvent"}"#);
    lab.queues.send(WORK, r#"{"key":"k"}"#);
    let batch = lab.queues.receive(WORK, 3);
    assert_eq!(text(&worker, &batch.event()).await?, listing([]));
    assert_eq!(
        letter(lab)?,
        ("undecodable".to_owned(), "not_an_object".to_owned())
    );
    assert_eq!(lab.target.effect_count(), 1);
    counted(&worker, "Ignored").await?;
    Ok(())
}

async fn a3_an_unknown_outcome_under_hold_is_a_dead_letter_and_stays(
    lab: &Lab,
) -> anyhow::Result<()> {
    let worker = holding(lab).await?;
    let batch = put(lab, "k", 1);
    lab.target.plan([Behaviour::ApplyAndClose]);
    assert_eq!(text(&worker, &batch.event()).await?, listing([]));
    assert_eq!(letter(lab)?, ("held".to_owned(), "reset".to_owned()));
    let record = lab.record("queue#k").await?;
    assert_eq!(
        (record.status, record.lease),
        (Status::InProgress, Some(SUSPENDED))
    );
    assert_eq!((lab.target.received().len(), seconds(lab)), (1, vec![]));
    Ok(())
}

async fn a31_what_can_be_tried_again_is_returned_with_its_back_off(
    lab: &Lab,
) -> anyhow::Result<()> {
    for worker in [lab.queue().await?, holding(lab).await?] {
        for (number, behaviour) in [
            Behaviour::Answer(429),
            Behaviour::Answer(401),
            Behaviour::Answer(404),
            Behaviour::RetryAfter(425, 77),
        ]
        .into_iter()
        .enumerate()
        {
            let key = format!("k{number}-{}", lab.target.received().len());
            let batch = put(lab, &key, 1);
            let expected = match behaviour {
                Behaviour::RetryAfter(_, seconds) => i64::from(seconds),
                // The whole batch was refused: it backs off fully.
                _ => 30,
            };
            lab.target.plan([behaviour]);
            assert_eq!(text(&worker, &batch.event()).await?, listing([id(&batch)]));
            assert_eq!(seconds(lab).last(), Some(&expected), "{key}");
            let record = lab.record(&format!("queue#{key}")).await?;
            assert_eq!(record.lease, Some(RELEASED), "{key}");
        }
    }
    assert_eq!(lab.queues.messages(DEAD).len(), 0);
    Ok(())
}

async fn n25_what_is_none_of_the_records_fault_is_returned_with_the_queues_own_visibility(
    lab: &Lab,
) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    // The store does not answer.
    let batch = put(lab, "k", 1);
    lab.dynamodb.always(ANY, Step::Fail(Failure::AccessDenied));
    assert_eq!(text(&worker, &batch.event()).await?, listing([id(&batch)]));
    lab.dynamodb.heal();
    // A newer worker will understand it.
    lab.queues.send(WORK, r#"{"v":2,"key":"k"}"#);
    let newer = lab.queues.receive(WORK, 1);
    assert_eq!(text(&worker, &newer.event()).await?, listing([id(&newer)]));
    // There is less time than an operation is given.
    let mut variables = lab.queue_variables();
    variables.insert("MIN_REMAINING".to_owned(), "15s".to_owned());
    let hurried = lab.process("queue", &variables).await?;
    lab.dynamodb.forget();
    let event = batch.event().to_string().into_bytes();
    let ended = hurried.invoke_raw(event, Duration::from_secs(10)).await?;
    let expected = listing([id(&batch)]).into_bytes();
    assert_eq!(ended, Ended::Response(expected));
    assert_eq!(lab.dynamodb.total(), 0, "nothing was claimed");
    assert_eq!((seconds(lab), lab.target.received().len()), (vec![], 0));
    assert_eq!(lab.queues.messages(DEAD).len(), 0);
    Ok(())
}

async fn a_visibility_that_can_not_be_set_changes_no_answer(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    let (bad, good) = (put(lab, "bad", 1), put(lab, "good", 1));
    lab.sqs
        .always("ChangeMessageVisibility", Step::Fail(Failure::AccessDenied));
    let messages = [bad.messages.clone(), good.messages].concat();
    lab.target.plan([Behaviour::Answer(429)]);
    let event = Batch { messages }.event();
    let answer = text(&worker, &event).await?;
    // Which of the two met the 429 is the network's choice.
    let returned: serde_json::Value = serde_json::from_str(&answer)?;
    assert_eq!(
        returned["batchItemFailures"].as_array().map(Vec::len),
        Some(1)
    );
    counted(&worker, "VisibilityNotSet").await?;
    Ok(())
}

async fn other_sources_are_unwrapped_as_their_samples_say(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    for (name, effects) in [
        ("lambda/s3-to-sqs", 4),
        ("lambda/s3-test-event", 0),
        // Raw it is one operation with what comes wrapped.
        ("lambda/sns-to-sqs.raw", 1),
        ("lambda/sns-to-sqs.wrapped", 1),
        // The creation of an object is one operation with what S3 itself has told of it.
        ("lambda/eventbridge-to-sqs", 2),
    ] {
        let before = lab.target.effect_count();
        let event = lab.suite.deliveries.json(name)?;
        assert_eq!(text(&worker, &event).await?, listing([]), "{name}");
        assert_eq!(lab.target.effect_count() - before, effects, "{name}");
    }
    assert_eq!(lab.queues.messages(DEAD).len(), 0);
    Ok(())
}
