//! What happens behind a failure: lost replies, late writers, killed workers, redrives; and the
//! worker under load.

use std::time::Duration;

use anyhow::{Context, ensure};
use firstclaim::claims::Resolution;
use firstclaim::record::Status;
use firstclaim::{Claims, Config};
use integration::Lab;
use integration::lab::{DEAD, WORK};
use integration::poll;
use integration::proxy::{Gate, Step};
use integration::queue_stub::returned;
use integration::soak::{Plan, run};
use integration::target::Behaviour;
use integration::throughput::measure;

use crate::registry::{Test, tests};
use crate::worker::{listing, send, text};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            p21_a13_a_lost_reply_to_the_claim_is_one_effect_without_a_wait,
            a18_a_completion_that_comes_behind_a_takeover_changes_nothing,
            a3_a_worker_killed_before_its_call_is_followed_under_hold,
            n31_redriven_messages_run_again_only_once_they_are_settled,
            nothing_goes_on_behind_the_answer,
            ten_calls_of_the_target_are_in_flight_at_once,
        ;
        race:
            a_short_soak_doubles_and_loses_nothing,
    ]
}

async fn p21_a13_a_lost_reply_to_the_claim_is_one_effect_without_a_wait(
    lab: &Lab,
) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    send(lab, &["k"]);
    let batch = lab.queues.receive(WORK, 1);
    lab.dynamodb.plan("PutItem", [Step::DropReply]);
    assert_eq!(text(&worker, &batch.event()).await?, listing([]));
    assert_eq!(lab.target.received().len(), 1);
    assert_eq!(lab.queues.visibilities(), []);
    let record = lab.record("queue#k").await?;
    assert_eq!((record.status, record.attempt), (Status::Completed, 1));
    Ok(())
}

async fn a18_a_completion_that_comes_behind_a_takeover_changes_nothing(
    lab: &Lab,
) -> anyhow::Result<()> {
    let first = lab.queue().await?;
    // The second worker's way to the store is not the one that holds writes.
    let mut variables = lab.queue_variables();
    let endpoint = lab.suite.engine.endpoint().to_owned();
    variables.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), endpoint);
    let second = lab.process("queue", &variables).await?;
    send(lab, &["late"]);
    let (batch, gate) = (lab.queues.receive(WORK, 1), Gate::new());
    lab.dynamodb.always("UpdateItem", Step::Hold(gate.clone()));
    let answer = first
        .invoke_within(&batch.event(), Duration::from_secs(5))
        .await?;
    ensure!(
        returned(&answer)?.contains(&batch.messages[0].id),
        "{answer}"
    );
    gate.reached(1).await;
    let held = lab.dynamodb.calls()["UpdateItem"];
    lab.queues.abandon(&batch);
    poll::until("the takeover", Duration::from_secs(40), async || {
        let answer = lab.work(&second, 1).await?;
        Ok(returned(&answer)?.is_empty().then_some(()))
    })
    .await?;
    let record = lab.record("queue#late").await?;
    assert_eq!((record.status, record.attempt), (Status::Completed, 2));
    gate.open();
    lab.dynamodb.arrived(held).await;
    assert_eq!(lab.record("queue#late").await?, record);
    let keys: Vec<_> = lab
        .target
        .received()
        .iter()
        .map(|one| one.key().to_owned())
        .collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(
        keys[0], keys[1],
        "the target can tell that it is one operation"
    );
    Ok(())
}

async fn a3_a_worker_killed_before_its_call_is_followed_under_hold(
    lab: &Lab,
) -> anyhow::Result<()> {
    let mut variables = lab.queue_variables();
    variables.insert("CLAIMS_ON_LAPSE".to_owned(), "hold".to_owned());
    let mut first = lab.process("queue", &variables).await?;
    let endpoint = lab.suite.engine.endpoint().to_owned();
    variables.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), endpoint);
    let second = lab.process("queue", &variables).await?;
    send(lab, &["held"]);
    let (batch, gate) = (lab.queues.receive(WORK, 1), Gate::new());
    // The mark, on its way when its worker is killed.
    lab.dynamodb.plan("UpdateItem", [Step::Hold(gate.clone())]);
    let event = batch.event();
    {
        let work = first.invoke_within(&event, Duration::from_secs(4));
        tokio::pin!(work);
        tokio::select! {
            ended = &mut work => anyhow::bail!("it ended before its mark was written: {ended:?}"),
            () = gate.reached(1) => {}
        }
    }
    first.kill().await?;
    assert_eq!(lab.target.received().len(), 0);
    ensure!(
        lab.record("queue#held").await?.untouched(),
        "nothing says that it went out"
    );
    lab.queues.abandon(&batch);
    poll::until("the takeover", Duration::from_secs(30), async || {
        let answer = lab.work(&second, 1).await?;
        Ok(returned(&answer)?.is_empty().then_some(()))
    })
    .await?;
    let record = lab.record("queue#held").await?;
    assert_eq!((record.status, record.attempt), (Status::Completed, 2));
    gate.open();
    lab.dynamodb.arrived(1).await;
    assert_eq!(lab.record("queue#held").await?, record);
    assert_eq!(lab.target.effect_count(), 1);
    assert_eq!(lab.queues.messages(DEAD).len(), 0);
    Ok(())
}

async fn n31_redriven_messages_run_again_only_once_they_are_settled(
    lab: &Lab,
) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    send(lab, &["a", "b"]);
    lab.target.always(Behaviour::Answer(422));
    lab.work(&worker, 2).await?;
    assert_eq!(lab.queues.messages(DEAD).len(), 2);
    lab.target.always(Behaviour::Apply);
    let claims = Claims::new(lab.store(), Config::default())?;
    let seen = lab.record("queue#b").await?;
    let settled = claims
        .settle(
            &seen,
            Resolution::Rerun {
                new_generation: true,
            },
            "ada",
            "the target is mended",
        )
        .await?;
    ensure!(
        matches!(settled, firstclaim::claims::Settling::Recorded(_)),
        "{settled:?}"
    );

    // Under new message ids, and to a worker that remembers nothing.
    assert_eq!(lab.queues.redrive(DEAD, WORK), 2);
    let cold = lab.queue().await?;
    let batch = lab.queues.receive(WORK, 2);
    assert_eq!(text(&cold, &batch.event()).await?, listing([]));
    assert_eq!(lab.record("queue#a").await?.status, Status::Failed);
    assert_eq!(lab.record("queue#b").await?.status, Status::Completed);
    assert_eq!(
        lab.target.effect_count(),
        1,
        "what was settled has run, and nothing else"
    );
    assert_eq!(lab.queues.messages(DEAD).len(), 0, "and nothing died twice");
    Ok(())
}

/// What runs at the deadline is returned, and the process does nothing more for it.
async fn nothing_goes_on_behind_the_answer(lab: &Lab) -> anyhow::Result<()> {
    let mut variables = lab.queue_variables();
    variables.insert("BATCH_CONCURRENCY".to_owned(), "2".to_owned());
    let worker = lab.process("queue", &variables).await?;
    let keys: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    send(lab, &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let batch = lab.queues.receive(WORK, 8);
    let gate = Gate::new();
    lab.target.plan([Behaviour::Apply, Behaviour::Apply]);
    lab.target.always(Behaviour::Hang(gate.clone()));
    let answer = worker
        .invoke_within(&batch.event(), Duration::from_secs(5))
        .await?;
    let back = returned(&answer)?;
    assert_eq!(back.len(), 6, "{answer}");
    let (calls, received) = (lab.dynamodb.total(), lab.target.received().len());
    gate.open();
    lab.target.always(Behaviour::Apply);
    send(lab, &["next"]);
    let next = lab.queues.receive(WORK, 1);
    assert_eq!(text(&worker, &next.event()).await?, listing([]));
    assert_eq!(
        lab.dynamodb.total(),
        calls + 2,
        "the next operation's own two calls"
    );
    assert_eq!(lab.target.received().len(), received + 1);
    Ok(())
}

async fn ten_calls_of_the_target_are_in_flight_at_once(_: &Lab) -> anyhow::Result<()> {
    let gate = Gate::new();
    let opened = async {
        gate.reached(10).await;
        gate.open();
    };
    let (measured, ()) = tokio::join!(measure(40, 10, Behaviour::Hang(gate.clone())), opened);
    assert_eq!(measured?.peak, 10);
    Ok(())
}

async fn a_short_soak_doubles_and_loses_nothing(lab: &Lab) -> anyhow::Result<()> {
    let plan = Plan {
        messages: 400,
        workers: 3,
        seed: 7,
    };
    let worker = lab.suite.binaries.path("queue")?;
    let report = run(plan, &worker, |_| ()).await.context("the soak")?;
    assert_eq!(
        (report.doubled, report.lost, report.left),
        (0, 0, 0),
        "{report:?}"
    );
    assert_eq!((report.messages, report.dead), (400, 0), "{report:?}");
    assert_eq!(report.effects, report.keys, "{report:?}");
    ensure!(
        report.keys < 400 && report.calls > report.keys,
        "{report:?}"
    );
    ensure!(report.killed >= 2, "{report:?}");
    Ok(())
}
