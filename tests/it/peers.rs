//! The senders' own libraries as judges: they verify what `firstclaim send` signs, and the webhook
//! verifies what they sign.

use anyhow::{Context, ensure};
use clap::Parser;
use firstclaim::clock::SystemSource;
use firstclaim_cli::arguments::{Arguments, Command};
use firstclaim_cli::send::{self, Answer};
use integration::Lab;
use integration::deliveries::SECRETS;

use crate::registry::{Test, tests};
use crate::whole::deliver;

pub(crate) fn tests() -> Vec<Test> {
    tests![
        peers:
            gidgethub_verifies_what_we_send,
            gidgetlab_verifies_what_we_send,
            stripe_verifies_what_we_send,
            slack_sdk_verifies_what_we_send,
            standardwebhooks_verifies_what_we_send,
            svix_verifies_what_we_send,
            twilio_verifies_what_we_send,
            we_verify_what_stripe_signs,
            we_verify_what_slack_sdk_signs,
            we_verify_what_standardwebhooks_signs,
            we_verify_what_svix_signs,
            we_verify_what_twilio_signs,
        ;
    ]
}

async fn gidgethub_verifies_what_we_send(lab: &Lab) -> anyhow::Result<()> {
    let samples = ["ping", "push", "push-form", "issue_comment", "workflow_run"];
    verified(lab, "github", "gidgethub", &samples).await
}

async fn gidgetlab_verifies_what_we_send(lab: &Lab) -> anyhow::Result<()> {
    verified(
        lab,
        "gitlab",
        "gidgetlab",
        &["push", "note", "merge_request"],
    )
    .await
}

async fn stripe_verifies_what_we_send(lab: &Lab) -> anyhow::Result<()> {
    verified(
        lab,
        "stripe",
        "stripe",
        &["charge.succeeded", "payout.paid"],
    )
    .await
}

async fn slack_sdk_verifies_what_we_send(lab: &Lab) -> anyhow::Result<()> {
    let samples = [
        "message",
        "slash_command",
        "block_actions",
        "url_verification",
    ];
    verified(lab, "slack", "slack_sdk", &samples).await
}

async fn standardwebhooks_verifies_what_we_send(lab: &Lab) -> anyhow::Result<()> {
    verified(lab, "standard", "standardwebhooks", &["user.created"]).await
}

async fn svix_verifies_what_we_send(lab: &Lab) -> anyhow::Result<()> {
    verified(lab, "standard", "svix", &["user.created"]).await
}

async fn twilio_verifies_what_we_send(lab: &Lab) -> anyhow::Result<()> {
    let samples = ["message-status", "voice-status", "event-streams"];
    verified(lab, "twilio", "twilio", &samples).await
}

async fn we_verify_what_stripe_signs(lab: &Lab) -> anyhow::Result<()> {
    let deliveries = ["charge.succeeded", "invoice.paid", "connect.payout.paid"];
    signed(lab, "stripe", "stripe", &deliveries).await
}

async fn we_verify_what_slack_sdk_signs(lab: &Lab) -> anyhow::Result<()> {
    let deliveries = [
        "event_callback.message",
        "slash_command",
        "interactive.block_actions",
        "url_verification",
    ];
    signed(lab, "slack", "slack_sdk", &deliveries).await
}

async fn we_verify_what_standardwebhooks_signs(lab: &Lab) -> anyhow::Result<()> {
    signed(lab, "standard", "standardwebhooks", &["user.created"]).await
}

async fn we_verify_what_svix_signs(lab: &Lab) -> anyhow::Result<()> {
    signed(lab, "standard", "svix", &["user.created"]).await
}

async fn we_verify_what_twilio_signs(lab: &Lab) -> anyhow::Result<()> {
    let deliveries = [
        "message-status.delivered",
        "message-status.sent",
        "voice-status.completed",
        "event-streams",
    ];
    signed(lab, "twilio", "twilio", &deliveries).await
}

/// Sends each sample to the library, which must accept it; signed with another secret it must not,
/// which shows that the library looks.
async fn verified(lab: &Lab, scheme: &str, library: &str, samples: &[&str]) -> anyhow::Result<()> {
    let judge = lab.suite.peers.judge(library, secret_of(scheme)?).await?;
    for sample in samples {
        let accepted = send(scheme, sample, &judge.url, secret_of(scheme)?).await?;
        ensure!(accepted.status == Some(202), "{sample}: {accepted:?}");
        ensure!(
            accepted.key.as_ref() == Some(&judge.library),
            "{accepted:?}"
        );
        let refused = send(scheme, sample, &judge.url, other_secret(scheme)).await?;
        ensure!(refused.status == Some(401), "{sample}: {refused:?}");
    }
    Ok(())
}

/// Delivers what the library signed, which must be accepted; with another bit in the body it must
/// not, and neither if it signed with another secret.
async fn signed(lab: &Lab, scheme: &str, library: &str, names: &[&str]) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    let peers = &lab.suite.peers;
    let mut signer = peers.signer(library, secret_of(scheme)?).await?;
    let mut stranger = peers.signer(library, other_secret(scheme)).await?;
    for name in names {
        let delivery = lab.suite.deliveries.load(&format!("{scheme}/{name}"))?;
        let forged = stranger.sign(delivery.clone()).await?;
        ensure!(deliver(&webhook, &forged).await?.status == 401, "{name}");

        let signed = signer.sign(delivery).await?;
        let mut changed = signed.clone();
        let last = changed.body.last_mut().context("an empty body")?;
        *last ^= 1;
        ensure!(deliver(&webhook, &changed).await?.status == 401, "{name}");

        let answer = deliver(&webhook, &signed).await?;
        let taken = match *name {
            "url_verification" | "slash_command" | "interactive.block_actions" => 200,
            _ => 202,
        };
        ensure!(answer.status == taken, "{name}: {answer:?}");
    }
    Ok(())
}

/// What `firstclaim send` does.
async fn send(scheme: &str, sample: &str, url: &str, secret: &str) -> anyhow::Result<Answer> {
    let arguments = ["firstclaim", "send", scheme, sample, "--url", url];
    let Command::Send(options) = Arguments::try_parse_from(arguments)?.chosen() else {
        anyhow::bail!("another command");
    };
    let environment = |name: &str| (name == "FIRSTCLAIM_SECRET").then(|| secret.to_owned());
    let answers = send::send(options, environment, &SystemSource).await?;
    answers.answers.into_iter().next().context("no answer")
}

fn secret_of(scheme: &str) -> anyhow::Result<&'static str> {
    let mut secrets = SECRETS.iter();
    let found = secrets.find(|(of, _)| *of == scheme);
    Ok(found.context("no secret")?.1)
}

/// Another secret, in the scheme's form.
fn other_secret(scheme: &str) -> &'static str {
    match scheme {
        "standard" => "whsec_b3RoZXItYmVuY2gtc2VjcmV0LTAxMjM0NTY3ODkwMTI=",
        "stripe" => "whsec_another-secret-of-the-bench",
        _ => "another-secret-of-the-bench",
    }
}
