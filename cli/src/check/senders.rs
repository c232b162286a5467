//! The senders: readable, and well formed. No secret is ever shown.

use aws_sdk_secretsmanager::Client;
use serde_json::Value;
use webhook::Senders;

use super::finding::{Finding, bounded};
use super::settings::{SendersFrom, Settings};
use super::trouble::Trouble;

/// Reads the senders as the webhook does.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let (subject, json) = match &settings.senders {
        SendersFrom::Nowhere => {
            return vec![Finding::skipped(
                "senders",
                "neither SENDERS nor SENDERS_SECRET_ARN is set, and there is no --senders",
            )];
        }
        SendersFrom::TargetsOnly => {
            return vec![Finding::skipped(
                "senders",
                "SENDERS holds targets only, as the worker has it",
            )];
        }
        SendersFrom::Json(json) => ("SENDERS", Ok(json.clone())),
        SendersFrom::Secret(arn) => {
            let endpoint = settings.secrets_manager.as_deref();
            let read = bounded("senders", settings.limit, async {
                let client = Client::new(&settings.sdk(endpoint).await);
                read_secret(&client, "senders", arn).await
            });
            (arn.as_str(), read.await.unwrap_or_else(Err))
        }
    };
    let findings = match json {
        Ok(json) => well_formed(settings, &json),
        Err(finding) => vec![finding],
    };
    findings
        .into_iter()
        .map(|finding| finding.of(subject))
        .collect()
}

/// The text of a secret.
pub(super) async fn read_secret(
    client: &Client,
    check: &'static str,
    arn: &str,
) -> Result<String, Finding> {
    match client.get_secret_value().secret_id(arn).send().await {
        Ok(secret) => secret.secret_string.ok_or_else(|| {
            Finding::fault(check, "the secret is binary, not text", "store it as text")
        }),
        Err(error) => Err(Trouble::of(&error).finding(
            check,
            "secretsmanager:GetSecretValue",
            (
                "there is no such secret in this account and Region",
                "correct the ARN, or create the secret",
            ),
        )),
    }
}

fn well_formed(settings: &Settings, json: &str) -> Vec<Finding> {
    let senders = match Senders::from_json(json, settings.longest_lease) {
        Ok(senders) => senders,
        Err(faults) => {
            return faults
                .list()
                .iter()
                .map(|fault| {
                    Finding::fault(
                        "senders",
                        &fault.text,
                        "the webhook accepts nothing until then",
                    )
                })
                .collect();
        }
    };
    let names = named(json).join(", ");
    let generation = senders.generation().unwrap_or_default();
    let found = format!("{names}; generation {generation}, as the log names it");
    vec![Finding::ok("senders", found)]
}

/// Name and scheme of each sender.
fn named(json: &str) -> Vec<String> {
    let Ok(Value::Object(senders)) = serde_json::from_str(json) else {
        return Vec::new();
    };
    let scheme = |sender: &Value| sender.get("scheme")?.as_str().map(str::to_owned);
    senders
        .iter()
        .map(|(name, sender)| format!("{name} ({})", scheme(sender).unwrap_or_default()))
        .collect()
}
