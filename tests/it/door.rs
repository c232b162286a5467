//! The webhook function as a process: what it answers when its own services fail, and that a key
//! keeps its first payload.

mod senders;

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::Lab;
use integration::deliveries::{Delivery, PUBLIC_URL};
use integration::lab::WORK;
use integration::proxy::{ANY, Failure, Gate, Step};

use crate::registry::{Test, tests};
use crate::whole::{deliver, key_of};

pub(crate) fn tests() -> Vec<Test> {
    let own = tests![
        shape:
            p57_two_payloads_under_one_key,
            n36_an_operation_is_answered_twice_alike,
            p91_a28_an_operation_in_flight_is_a_conflict,
            an_unreachable_store_loses_no_event,
            an_unreachable_store_fails_an_operation_closed,
            n24_nothing_is_accepted_that_was_not_queued,
            n24_a_lost_reply_of_the_queue_is_one_effect,
            n24_a_queue_that_does_not_answer_is_unavailable,
            n14_only_the_headers_of_the_scheme_are_read,
            n17_a_malformed_signature_is_unauthorized,
            a44_a_bad_configuration_does_not_start,
        ;
        race:
    ];
    [own, senders::tests()].concat()
}

fn operation(lab: &Lab) -> anyhow::Result<Delivery> {
    lab.suite.deliveries.load("token/operation")?.signed()
}

async fn p57_two_payloads_under_one_key(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let first = operation(lab)?;
    let accepted = deliver(&webhook, &first).await?;
    let key = key_of(&accepted)?;
    let other = first
        .clone()
        .with_body(r#"{"operation":"deploy","target":"another"}"#);
    let refused = deliver(&webhook, &other).await?;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(refused.json()?["type"], "urn:firstclaim:problem:mismatch");
    assert_eq!(refused.header("content-type"), "application/problem+json");

    lab.drain(&[worker]).await?;
    let received = lab.target.received();
    assert_eq!(received.len(), 1);
    ensure!(
        received[0].body == first.body,
        "another payload was applied"
    );
    // Neither the refusal nor its cause is forgotten, in another process too.
    let cold = lab.webhook().await?;
    assert_eq!(deliver(&cold, &other).await?.status, 422);
    let again = deliver(&cold, &first).await?;
    assert_eq!((again.body, again.status), (accepted.body, 202));
    assert_eq!(lab.record(&key).await?.attempt, 1);
    Ok(())
}

async fn n36_an_operation_is_answered_twice_alike(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, cold, worker) = (
        lab.webhook().await?,
        lab.webhook().await?,
        lab.queue().await?,
    );
    let quoted = operation(lab)?;
    let bare = quoted.headers["idempotency-key"]
        .trim_matches('"')
        .to_owned();
    let first = deliver(&webhook, &quoted).await?;
    let second = deliver(&cold, &quoted.clone().with_header("idempotency-key", &bare)).await?;
    ensure!(
        !first.replayed() && second.replayed(),
        "{first:?} {second:?}"
    );
    assert_eq!((first.status, &first.body), (second.status, &second.body));
    for header in ["location", "content-type"] {
        ensure!(!first.header(header).is_empty(), "no {header}");
        assert_eq!(first.header(header), second.header(header));
    }
    let path = first.header("location").strip_prefix(PUBLIC_URL);
    let status = Delivery {
        method: "GET".to_owned(),
        path: path.context("Location")?.to_owned(),
        body: Vec::new(),
        ..quoted
    };
    assert_eq!(deliver(&cold, &status).await?.json()?["status"], "queued");
    lab.drain(&[worker]).await?;
    let done = deliver(&cold, &status).await?;
    assert_eq!(done.json()?["status"], "done", "{done:?}");
    let stranger = status.without_header("authorization");
    assert_eq!(deliver(&cold, &stranger).await?.status, 401);
    Ok(())
}

async fn p91_a28_an_operation_in_flight_is_a_conflict(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, other) = (lab.webhook().await?, lab.webhook().await?);
    let (delivery, gate) = (operation(lab)?, Gate::new());
    // Each attempt, so that the first door can't get through before the second one has asked.
    lab.sqs.always("SendMessage", Step::Hold(gate.clone()));
    let first = deliver(&webhook, &delivery);
    let second = async {
        gate.reached(1).await;
        let answer = deliver(&other, &delivery).await;
        gate.open();
        answer
    };
    let (first, second) = tokio::join!(first, second);
    let (first, second) = (first?, second?);
    assert_eq!(second.status, 409, "{second:?}");
    let seconds: u32 = second
        .header("retry-after")
        .parse()
        .context("Retry-After")?;
    ensure!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(second.json()?["type"], "urn:firstclaim:problem:in-flight");
    key_of(&first)?;
    ensure!(
        deliver(&other, &delivery).await?.replayed(),
        "the first was accepted"
    );
    Ok(())
}

async fn an_unreachable_store_loses_no_event(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let delivery = lab
        .suite
        .deliveries
        .load("github/issue_comment.created")?
        .signed()?;
    lab.dynamodb.shut().await;
    let refused = key_of(&deliver(&webhook, &delivery).await?)?;
    lab.dynamodb.reopen().await?;
    lab.dynamodb.always(ANY, Step::Fail(Failure::Internal));
    let failed = key_of(&deliver(&webhook, &delivery).await?)?;
    lab.dynamodb.heal();
    assert_eq!(refused, failed);
    assert_eq!(lab.queues.messages(WORK).len(), 2, "nothing may be lost");
    lab.drain(&[worker]).await?;
    assert_eq!(lab.target.effect_count(), 1);
    Ok(())
}

async fn an_unreachable_store_fails_an_operation_closed(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    let delivery = operation(lab)?;
    lab.dynamodb.shut().await;
    let answer = deliver(&webhook, &delivery).await?;
    assert_eq!(answer.status, 503, "{answer:?}");
    ensure!(!answer.header("retry-after").is_empty(), "{answer:?}");
    assert_eq!(answer.json()?["type"], "urn:firstclaim:problem:unavailable");
    ensure!(
        lab.queues.messages(WORK).is_empty(),
        "it was queued all the same"
    );
    lab.dynamodb.reopen().await?;
    key_of(&deliver(&webhook, &delivery).await?)?;
    assert_eq!(lab.queues.messages(WORK).len(), 1);
    Ok(())
}

async fn n24_nothing_is_accepted_that_was_not_queued(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    for delivery in [
        lab.suite
            .deliveries
            .load("github/issue_comment.created")?
            .signed()?,
        operation(lab)?,
    ] {
        for step in [
            Step::Fail(Failure::Internal),
            Step::Fail(Failure::AccessDenied),
            Step::DropRequest,
        ] {
            lab.sqs.always(ANY, step.clone());
            let answer = deliver(&webhook, &delivery).await?;
            assert_eq!(answer.status, 503, "{step:?}: {answer:?}");
            ensure!(!answer.header("retry-after").is_empty(), "{answer:?}");
        }
        lab.sqs.shut().await;
        assert_eq!(deliver(&webhook, &delivery).await?.status, 503);
        lab.sqs.reopen().await?;
        lab.sqs.heal();
        ensure!(
            lab.queues.messages(WORK).is_empty(),
            "{:?}",
            lab.queues.messages(WORK)
        );
        key_of(&deliver(&webhook, &delivery).await?)?;
        assert_eq!(
            lab.queues.messages(WORK).len(),
            1,
            "the redelivery must be queued"
        );
        lab.drain(std::slice::from_ref(&worker)).await?;
    }
    assert_eq!(lab.target.effect_count(), 2);
    Ok(())
}

/// The message is in the queue, but nobody said so: whatever the door answers, there is one effect.
async fn n24_a_lost_reply_of_the_queue_is_one_effect(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let delivery = lab
        .suite
        .deliveries
        .load("github/issue_comment.created")?
        .signed()?;
    lab.sqs.always("SendMessage", Step::DropReply);
    let answer = deliver(&webhook, &delivery).await?;
    assert_eq!(answer.status, 503, "{answer:?}");
    lab.sqs.heal();
    key_of(&deliver(&webhook, &delivery).await?)?;
    ensure!(
        lab.queues.messages(WORK).len() > 1,
        "the redelivery must be queued"
    );
    lab.drain(&[worker]).await?;
    assert_eq!(lab.target.effect_count(), 1);
    Ok(())
}

async fn n24_a_queue_that_does_not_answer_is_unavailable(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    let delivery = lab
        .suite
        .deliveries
        .load("github/issue_comment.created")?
        .signed()?;
    let gate = Gate::new();
    lab.sqs.always("SendMessage", Step::Hold(gate.clone()));
    let event = delivery.event();
    let answer = webhook
        .invoke_within(&event, Duration::from_secs(6))
        .await?;
    assert_eq!(answer["statusCode"], 503, "{answer}");
    lab.sqs.heal();
    key_of(&deliver(&webhook, &delivery).await?)?;
    Ok(())
}

async fn n14_only_the_headers_of_the_scheme_are_read(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    let delivery = lab
        .suite
        .deliveries
        .load("standard/user.created")?
        .signed()?;
    let key = key_of(&deliver(&webhook, &delivery).await?)?;
    let forged = delivery
        .with_header("x-github-delivery", "forged")
        .with_header("idempotency-key", "forged")
        .with_header("svix-id", "forged");
    let answer = deliver(&webhook, &forged).await?;
    assert_eq!(key_of(&answer)?, key);
    ensure!(answer.replayed(), "{answer:?}");
    Ok(())
}

async fn n17_a_malformed_signature_is_unauthorized(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    let proofs = [
        ("github/issue_comment.created", "x-hub-signature-256"),
        ("gitlab/note", "x-gitlab-token"),
        ("stripe/invoice.paid", "stripe-signature"),
        ("slack/event_callback.message", "x-slack-signature"),
        ("shopify/orders-create", "x-shopify-hmac-sha256"),
        ("standard/user.created", "webhook-signature"),
        ("twilio/message-status.sent", "x-twilio-signature"),
        ("token/operation", "authorization"),
    ];
    let huge = "a".repeat(2 * 1024 * 1024);
    for (file, header) in proofs {
        let good = lab.suite.deliveries.load(file)?.signed()?;
        for value in [
            "",
            "=",
            ",",
            "sha256=",
            "sha256=é",
            "sha1=00",
            "v1,",
            "v1,=",
            "v1=",
            "t=,v1=",
            "v0=",
            "Bearer ",
            "🦀",
            &huge,
        ] {
            let forged = good.clone().with_header(header, value);
            let answer = deliver(&webhook, &forged).await?;
            assert_eq!(answer.status, 401, "{file} {value:.20}: {answer:?}");
            ensure!(!answer.header("www-authenticate").is_empty(), "{answer:?}");
        }
    }
    assert_eq!((lab.dynamodb.total(), lab.sqs.total()), (0, 0));
    for (file, _) in proofs {
        let good = lab.suite.deliveries.load(file)?.signed()?;
        key_of(&deliver(&webhook, &good).await?)?;
    }
    Ok(())
}

async fn a44_a_bad_configuration_does_not_start(lab: &Lab) -> anyhow::Result<()> {
    let secret = "whsec_!not-base64-at-all!";
    let senders = format!(
        r#"{{"github":{{"scheme":"github","secrets":[""]}},"std":{{"scheme":"standard","secrets":["{secret}"]}}}}"#
    );
    let mut variables = lab.webhook_variables();
    variables.insert("SENDERS".to_owned(), senders);
    variables.remove("CLAIMS_TABLE");
    let code = lab.refused("webhook", &variables).await?;
    ensure!(code.is_some_and(|code| code != 0), "exit code {code:?}");
    // All faults at once, by name, and no secret among them.
    let said: Vec<_> = lab
        .log
        .text()
        .lines()
        .filter(|line| !line.contains("$ env"))
        .map(str::to_owned)
        .collect();
    let said = said.join("\n");
    for name in ["CLAIMS_TABLE", "github", "std"] {
        ensure!(said.contains(name), "{name} is not named in:\n{said}");
    }
    ensure!(!said.contains(secret), "a secret was printed");
    Ok(())
}
