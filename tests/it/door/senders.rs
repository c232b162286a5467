//! The deliveries of every sender, through both functions as processes.

use std::time::Duration;

use anyhow::ensure;
use integration::Lab;
use integration::deliveries::{Delivery, PUBLIC_URL, SECRETS};
use integration::lab::WORK;
use integration::poll;
use serde_json::{Value, json};

use crate::registry::{Test, tests};
use crate::whole::{deliver, key_of};

pub(super) fn tests() -> Vec<Test> {
    tests![
        shape:
            every_sender_is_verified_and_its_event_applied_once,
            n13_what_no_sender_signed_is_refused_without_a_call,
            a29_a_retry_of_slack_is_the_same_event,
            slack_learns_that_somebody_is_there,
            a36_n6_what_only_looks_alike_is_applied_each_time,
            a37_what_comes_through_two_subscriptions_is_applied_once,
            n18_n32_twilio_is_verified_at_the_address_that_it_called,
            n21_forms_keep_their_bytes,
            the_first_ping_of_github_is_an_event,
            a_sender_that_signs_its_address_needs_it_at_start,
        ;
        race:
    ]
}

/// How long a process's lines may take to get here.
const LINES: Duration = Duration::from_secs(15);

/// A delivery of each scheme.
const ONE_OF_EACH: [&str; 8] = [
    "github/pull_request.opened",
    "gitlab/note",
    "stripe/invoice.paid",
    "slack/event_callback.message",
    "shopify/orders-create",
    "standard/user.created",
    "twilio/message-status.delivered",
    "token/operation",
];

fn signed(lab: &Lab, file: &str) -> anyhow::Result<Delivery> {
    let delivery = lab.suite.deliveries.load(file)?.signed()?;
    Ok(match file {
        "token/operation" => Delivery {
            path: "/webhooks/token".to_owned(),
            ..delivery
        },
        _ => delivery,
    })
}

async fn every_sender_is_verified_and_its_event_applied_once(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, cold) = (lab.webhook().await?, lab.webhook().await?);
    let worker = lab.queue().await?;
    assert_eq!(ONE_OF_EACH.len(), SECRETS.len());
    for file in ONE_OF_EACH {
        let delivery = signed(lab, file)?;
        let first = deliver(&webhook, &delivery).await?;
        let key = key_of(&first)?;
        // A retry is signed anew; in another process, as base64.
        let retry = signed(lab, file)?;
        let again = cold.invoke(&retry.event_base64()).await?;
        let again = integration::deliveries::HttpAnswer::read(&again)?;
        assert_eq!((again.status, &again.body), (202, &first.body), "{file}");
        ensure!(again.replayed(), "{file}: {again:?}");
        lab.drain(std::slice::from_ref(&worker)).await?;
        assert_eq!(lab.record(&key).await?.attempt, 1, "{file}");
        let received = lab.target.received();
        ensure!(
            received.iter().any(|request| request.body == delivery.body),
            "{file}: the bytes did not arrive as they were sent"
        );
    }
    assert_eq!(lab.target.effect_count(), ONE_OF_EACH.len());
    Ok(())
}

async fn n13_what_no_sender_signed_is_refused_without_a_call(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    for file in ONE_OF_EACH {
        let good = signed(lab, file)?;
        let mut forged = vec![lab.suite.deliveries.load(file)?];
        // Where nothing is signed, the token is all that counts.
        if !["gitlab/note", "token/operation"].contains(&file) {
            let mut body = good.body.clone();
            body[0] ^= 1;
            forged.push(good.clone().with_body(body));
        }
        for header in [
            "authorization",
            "x-gitlab-token",
            "stripe-signature",
            "webhook-signature",
        ] {
            if let Some(value) = good.headers.get(header) {
                let value = format!("{}x", &value[..value.len() - 1]);
                forged.push(good.clone().with_header(header, &value));
            }
        }
        for delivery in forged {
            let answer = deliver(&webhook, &delivery).await?;
            assert_eq!(answer.status, 401, "{file}: {answer:?}");
            ensure!(!answer.header("www-authenticate").is_empty(), "{answer:?}");
        }
    }
    assert_eq!((lab.dynamodb.total(), lab.sqs.total()), (0, 0));
    Ok(())
}

async fn a29_a_retry_of_slack_is_the_same_event(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    let first = deliver(&webhook, &signed(lab, "slack/event_callback.message")?).await?;
    let retry = deliver(
        &webhook,
        &signed(lab, "slack/event_callback.message.retry-1")?,
    )
    .await?;
    assert_eq!(key_of(&first)?, "slack#Ev08FCSAMPLE1");
    ensure!(retry.replayed(), "{retry:?}");
    assert_eq!(lab.queues.messages(WORK).len(), 1);
    Ok(())
}

async fn slack_learns_that_somebody_is_there(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    let probe = signed(lab, "slack/url_verification")?;
    let answer = deliver(&webhook, &probe).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), "text/plain");
    let challenge: Value = serde_json::from_slice(&probe.body)?;
    assert_eq!(challenge["challenge"], answer.body.as_str());
    let forged = probe.with_body(r#"{"type":"url_verification","challenge":"mine"}"#);
    assert_eq!(deliver(&webhook, &forged).await?.status, 401);
    assert_eq!((lab.dynamodb.total(), lab.sqs.total()), (0, 0));
    Ok(())
}

async fn a36_n6_what_only_looks_alike_is_applied_each_time(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let payout = lab.suite.deliveries.load("stripe/connect.payout.paid")?;
    let elsewhere = payout
        .clone()
        .with_changed_body(|body| body["account"] = json!("acct_other"))?;
    let deliveries = [
        signed(lab, "stripe/charge.succeeded")?,
        signed(lab, "stripe/charge.succeeded.second-event")?,
        payout.signed()?,
        elsewhere.signed()?,
        signed(lab, "shopify/orders-create")?,
        signed(lab, "shopify/orders-paid.same-event-id")?,
        signed(lab, "twilio/message-status.sent")?,
        signed(lab, "twilio/message-status.delivered")?,
        signed(lab, "github/issue_comment.created")?,
        signed(lab, "github/issue_comment.edited")?,
    ];
    for delivery in &deliveries {
        let answer = deliver(&webhook, delivery).await?;
        key_of(&answer)?;
        ensure!(!answer.replayed(), "{}: {answer:?}", delivery.scheme);
    }
    lab.drain(&[worker]).await?;
    assert_eq!(lab.target.effect_count(), deliveries.len());
    Ok(())
}

async fn a37_what_comes_through_two_subscriptions_is_applied_once(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let group = lab.suite.deliveries.load("gitlab/note")?;
    let group = group.with_header("idempotency-key", "the-group's");
    let pairs = [
        [
            signed(lab, "shopify/orders-create")?,
            signed(lab, "shopify/orders-create.second-subscription")?,
        ],
        [signed(lab, "gitlab/note")?, group.signed()?],
        [
            signed(lab, "github/issue_comment.created")?,
            signed(lab, "github/issue_comment.created.app")?,
        ],
        [
            signed(lab, "standard/user.created")?,
            signed(lab, "standard/user.created.svix")?,
        ],
    ];
    for [first, second] in &pairs {
        let first = key_of(&deliver(&webhook, first).await?)?;
        assert_eq!(key_of(&deliver(&webhook, second).await?)?, first);
    }
    lab.drain(&[worker]).await?;
    assert_eq!(lab.target.effect_count(), pairs.len());
    Ok(())
}

async fn n18_n32_twilio_is_verified_at_the_address_that_it_called(lab: &Lab) -> anyhow::Result<()> {
    let events = [
        (
            "lambda/function-url.twilio-message.base64",
            "https://fcs4mpl3url1d00000000000000000ab.lambda-url.us-east-1.on.aws",
        ),
        (
            "lambda/http-api.stage-prod.twilio-message.base64",
            "https://fcs4mpl3id.execute-api.us-east-1.amazonaws.com/prod",
        ),
        ("lambda/http-api.custom-domain.twilio-json", PUBLIC_URL),
    ];
    for (file, public_url) in events {
        let event = lab.suite.deliveries.json(file)?;
        for (public_url, status) in [(public_url, 202), ("https://elsewhere.example.com", 401)] {
            let mut variables = lab.webhook_variables();
            variables.insert("PUBLIC_URL".to_owned(), public_url.to_owned());
            let webhook = lab.process("webhook", &variables).await?;
            let answer = webhook.invoke(&event).await?;
            assert_eq!(
                answer["statusCode"], status,
                "{file} at {public_url}: {answer}"
            );
        }
    }
    // Each of the processes that could not verify said once at which address.
    let url = "\"url\":\"https://elsewhere.example.com";
    poll::until("what they said", LINES, async || {
        let said = lab.log.text().matches(url).count();
        Ok((said == events.len()).then_some(()))
    })
    .await
}

async fn n21_forms_keep_their_bytes(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let forms = [
        signed(lab, "slack/slash_command")?,
        signed(lab, "slack/interactive.block_actions")?,
        signed(lab, "github/push.form")?,
        signed(lab, "twilio/voice-status.completed")?,
    ];
    for form in &forms {
        let plain = deliver(&webhook, form).await?;
        // To a command and an interaction nothing is said.
        match form.scheme.as_str() {
            "slack" => assert_eq!((plain.status, plain.body.len()), (200, 0)),
            _ => {
                key_of(&plain)?;
            }
        }
        let text = String::from_utf8(form.body.clone())?;
        let rewritten = form.clone().with_body(text.replace('+', "%20"));
        let answer = deliver(&webhook, &rewritten).await?;
        // Twilio signs the parameters, and all others the bytes.
        let status = match form.scheme.as_str() {
            "twilio" => 202,
            _ => 401,
        };
        assert_eq!(answer.status, status, "{}: {answer:?}", form.path);
    }
    lab.drain(&[worker]).await?;
    let received = lab.target.received();
    for form in &forms {
        ensure!(
            received.iter().any(|request| request.body == form.body),
            "{}",
            form.path
        );
    }
    assert_eq!(lab.target.effect_count(), forms.len());
    Ok(())
}

async fn the_first_ping_of_github_is_an_event(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let ping = signed(lab, "github/ping")?;
    key_of(&deliver(&webhook, &ping).await?)?;
    ensure!(deliver(&webhook, &ping).await?.replayed());
    lab.drain(&[worker]).await?;
    assert_eq!(lab.target.effect_count(), 1);
    // No rule knows it: the delivery stands in, which is counted.
    let told = ["\"KeyFallback\":1", "\"key_fallback\":\"default\""];
    poll::until("the fallback to be told", LINES, async || {
        Ok(told.iter().all(|text| lab.log.contains(text)).then_some(()))
    })
    .await
}

async fn a_sender_that_signs_its_address_needs_it_at_start(lab: &Lab) -> anyhow::Result<()> {
    let mut variables = lab.webhook_variables();
    variables.remove("PUBLIC_URL");
    let code = lab.refused("webhook", &variables).await?;
    ensure!(code.is_some_and(|code| code != 0), "exit code {code:?}");
    poll::until("the fault to be told", LINES, async || {
        let told = lab
            .log
            .contains("PUBLIC_URL: is not set; sender \"twilio\"");
        Ok(told.then_some(()))
    })
    .await
}
