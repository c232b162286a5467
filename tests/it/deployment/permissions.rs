//! The rights that a run of the functions uses, and those that the template grants: the same.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use integration::Lab;
use integration::deliveries::{Delivery, PUBLIC_URL};
use integration::lab::{DEAD, WORK};
use integration::process::Process;
use integration::proxy::{Proxy, Step};
use integration::queue_stub::returned;
use integration::target::Behaviour;
use integration::template::{Stack, root, text};

use super::{REQUIRED, stack};
use crate::registry::{Test, tests};
use crate::whole::{deliver, key_of};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            the_webhook_uses_what_it_is_granted,
            the_queue_uses_what_it_is_granted,
            nothing_is_granted_on_everything_but_traces,
            operators_read_settle_and_redrive,
            the_runbook_asks_for_no_right_unsaid,
        ;
        race:
    ]
}

const TOKEN: (&str, &str) = (
    "TargetTokenSecretArn",
    "arn:aws:secretsmanager:eu-central-1:000000000000:secret:token-AbCdEf",
);

/// An action on a resource.
type Right = (String, String);

/// What Lambda does in the function's name: its log, its traces.
fn of_lambda(logs: &str) -> BTreeSet<Right> {
    rights(&[
        ("logs:CreateLogStream", logs),
        ("logs:PutLogEvents", logs),
        ("xray:PutTraceSegments", "*"),
        ("xray:PutTelemetryRecords", "*"),
    ])
}

fn rights(list: &[(&str, &str)]) -> BTreeSet<Right> {
    let owned = |(action, resource): &(&str, &str)| ((*action).to_owned(), (*resource).to_owned());
    list.iter().map(owned).collect()
}

/// What the statements of a policy allow.
fn granted(document: &serde_json::Value) -> anyhow::Result<BTreeSet<Right>> {
    let list = |value: &serde_json::Value| match value.as_array() {
        Some(items) => items.iter().map(text).collect::<Vec<_>>(),
        None => vec![text(value)],
    };
    let mut all = BTreeSet::new();
    for statement in document["Statement"].as_array().context("no statements")? {
        assert_eq!(statement["Effect"], "Allow");
        for action in list(&statement["Action"]) {
            for resource in list(&statement["Resource"]) {
                all.insert((action.clone(), resource));
            }
        }
    }
    Ok(all)
}

fn granted_to(stack: &Stack, role: &str) -> anyhow::Result<BTreeSet<Right>> {
    let role = stack.properties(role)?;
    ensure!(
        role["ManagedPolicyArns"].is_null(),
        "a managed policy grants more than is listed"
    );
    granted(&role["Policies"][0]["PolicyDocument"])
}

fn used(service: &str, calls: &BTreeMap<String, usize>, resource: &str) -> BTreeSet<Right> {
    let right = |operation: &String| (format!("{service}:{operation}"), resource.to_owned());
    calls.keys().map(right).collect()
}

/// A Secrets Manager that is asked and does not answer.
async fn secrets(lab: &Lab) -> anyhow::Result<Proxy> {
    let secrets = Proxy::start(&lab.queues.endpoint()).await?;
    secrets.always("GetSecretValue", Step::DropRequest);
    Ok(secrets)
}

async fn the_webhook_uses_what_it_is_granted(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    // Accepted, looked up, accepted again by an engine that returns no item.
    let operation = lab.suite.deliveries.load("token/operation")?.signed()?;
    let accepted = deliver(&webhook, &operation).await?;
    key_of(&accepted)?;
    let location = accepted.header("location").strip_prefix(PUBLIC_URL);
    let look_up = Delivery {
        method: "GET".to_owned(),
        path: location.context("Location")?.to_owned(),
        body: Vec::new(),
        ..operation.clone()
    };
    assert_eq!(deliver(&webhook, &look_up).await?.status, 200);
    lab.dynamodb.always("PutItem", Step::StripItem);
    key_of(&deliver(&lab.webhook().await?, &operation).await?)?;
    // With the senders in Secrets Manager.
    let secrets = secrets(lab).await?;
    let mut variables = lab.webhook_variables();
    variables.remove("SENDERS");
    variables.insert("SENDERS_SECRET_ARN".to_owned(), REQUIRED[0].1.to_owned());
    variables.insert("AWS_ENDPOINT_URL_SECRETS_MANAGER".to_owned(), secrets.url());
    let unread = lab.process("webhook", &variables).await?;
    assert_eq!(deliver(&unread, &operation).await?.status, 503);

    let mut all = of_lambda("WebhookLogs.Arn");
    all.extend(used("dynamodb", &lab.dynamodb.calls(), "ClaimsTable.Arn"));
    all.extend(used("sqs", &lab.sqs.calls(), "WorkQueue.Arn"));
    all.extend(used("secretsmanager", &secrets.calls(), REQUIRED[0].1));
    assert_eq!(granted_to(&stack(&[])?, "WebhookRole")?, all);
    Ok(())
}

async fn the_queue_uses_what_it_is_granted(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    for key in ["done", "refused", "again"] {
        let message = serde_json::json!({"key": key, "payload": {}});
        lab.queues.send(WORK, &message.to_string());
    }
    lab.target.plan([Behaviour::Apply]);
    lab.work(&worker, 1).await?;
    lab.target.plan([Behaviour::Answer(422)]);
    lab.work(&worker, 1).await?;
    lab.target.plan([Behaviour::Answer(500)]);
    assert_eq!(returned(&lab.work(&worker, 1).await?)?.len(), 1);
    assert_eq!(lab.queues.messages(DEAD).len(), 1);
    // A duplicate on an engine that returns no item.
    lab.dynamodb.always("PutItem", Step::StripItem);
    lab.queues.send(WORK, r#"{"key":"done","payload":{}}"#);
    lab.drain(std::slice::from_ref(&worker)).await?;
    // With the target's token in Secrets Manager.
    let secrets = secrets(lab).await?;
    let unread = reading_secret(lab, &secrets).await?;
    lab.queues.send(WORK, r#"{"key":"token","payload":{}}"#);
    assert_eq!(returned(&lab.work(&unread, 1).await?)?.len(), 1);

    let mut all = of_lambda("QueueLogs.Arn");
    // The event source mapping, which takes and deletes what the answer does not list.
    all.extend(rights(&[
        ("sqs:ReceiveMessage", "WorkQueue.Arn"),
        ("sqs:DeleteMessage", "WorkQueue.Arn"),
        ("sqs:GetQueueAttributes", "WorkQueue.Arn"),
    ]));
    all.extend(used("dynamodb", &lab.dynamodb.calls(), "ClaimsTable.Arn"));
    all.extend(used("secretsmanager", &secrets.calls(), TOKEN.1));
    let mut queues = lab.sqs.calls();
    ensure!(
        queues.remove("SendMessage").is_some(),
        "no dead letter was sent"
    );
    all.extend(rights(&[("sqs:SendMessage", "DeadLetterQueue.Arn")]));
    all.extend(used("sqs", &queues, "WorkQueue.Arn"));
    assert_eq!(granted_to(&stack(&[TOKEN])?, "QueueRole")?, all);
    // No secret, no right to read one.
    let plain = granted_to(&stack(&[])?, "QueueRole")?;
    ensure!(
        !plain
            .iter()
            .any(|(action, _)| action.starts_with("secretsmanager:")),
        "{plain:?}"
    );
    Ok(())
}

async fn reading_secret(lab: &Lab, secrets: &Proxy) -> anyhow::Result<Process> {
    let mut variables = lab.queue_variables();
    variables.insert("TARGET_TOKEN_SECRET_ARN".to_owned(), TOKEN.1.to_owned());
    variables.insert("AWS_ENDPOINT_URL_SECRETS_MANAGER".to_owned(), secrets.url());
    lab.process("queue", &variables).await
}

async fn nothing_is_granted_on_everything_but_traces(_: &Lab) -> anyhow::Result<()> {
    let stack = stack(&[TOKEN])?;
    let mut policies = vec![stack.properties("OperatorPolicy")?["PolicyDocument"].clone()];
    for role in stack.resources("AWS::IAM::Role")?.values() {
        policies.push(role["Properties"]["Policies"][0]["PolicyDocument"].clone());
    }
    for policy in policies {
        for (action, resource) in granted(&policy)? {
            ensure!(!action.contains('*'), "{action}");
            ensure!(
                !resource.contains('*') || action.starts_with("xray:Put"),
                "{action} on {resource}"
            );
        }
    }
    // Else SAM would make a role with rights on every queue and log.
    for (name, function) in stack.resources("AWS::Serverless::Function")? {
        ensure!(
            function["Properties"]["Role"].is_string(),
            "{name} has no role of its own"
        );
    }
    Ok(())
}

async fn operators_read_settle_and_redrive(_: &Lab) -> anyhow::Result<()> {
    let granted = granted(&stack(&[])?.properties("OperatorPolicy")?["PolicyDocument"])?;
    for (action, resource) in [
        ("dynamodb:GetItem", "ClaimsTable.Arn"),
        ("dynamodb:Scan", "ClaimsTable.Arn"),
        ("dynamodb:UpdateItem", "ClaimsTable.Arn"),
        ("sqs:StartMessageMoveTask", "DeadLetterQueue.Arn"),
        ("sqs:ReceiveMessage", "DeadLetterQueue.Arn"),
        ("sqs:DeleteMessage", "DeadLetterQueue.Arn"),
        ("sqs:GetQueueAttributes", "DeadLetterQueue.Arn"),
        ("sqs:SendMessage", "WorkQueue.Arn"),
    ] {
        ensure!(
            granted.contains(&(action.to_owned(), resource.to_owned())),
            "{action} on {resource}"
        );
    }
    // Only TTL deletes records.
    ensure!(
        !granted
            .iter()
            .any(|(action, _)| action == "dynamodb:DeleteItem")
    );
    Ok(())
}

/// What a page of the runbook calls, operators may, or the page says which right it takes.
async fn the_runbook_asks_for_no_right_unsaid(_: &Lab) -> anyhow::Result<()> {
    let granted = granted(&stack(&[])?.properties("OperatorPolicy")?["PolicyDocument"])?;
    let granted: BTreeSet<_> = granted.into_iter().map(|(action, _)| action).collect();
    let runbook = std::fs::read_to_string(root().join("docs/runbook.md"))?;
    let mut called = BTreeSet::new();
    for page in runbook.split("\n## ") {
        let title = page.lines().next().unwrap_or_default();
        let commands = page.split("aws ").skip(1).filter_map(|rest| {
            let mut words = rest.split_whitespace();
            let (service, command) = (words.next()?, words.next()?);
            let word = |text: &str| {
                text.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            };
            (word(service) && word(command)).then(|| action(service, command))
        });
        for action in commands {
            ensure!(
                granted.contains(&action) || page.contains(&format!("`{action}`")),
                "the page {title:?} does not say that it takes {action}"
            );
            called.insert(action);
        }
    }
    for known in ["sqs:StartMessageMoveTask", "secretsmanager:PutSecretValue"] {
        ensure!(called.contains(known), "{called:?}");
    }
    Ok(())
}

/// The right that a command of the AWS CLI takes.
fn action(service: &str, command: &str) -> String {
    if (service, command) == ("logs", "tail") {
        return "logs:FilterLogEvents".to_owned();
    }
    let words = command.split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        format!("{}{rest}", first.to_uppercase())
    });
    format!("{service}:{}", words.collect::<String>())
}
