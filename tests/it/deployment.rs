//! The template and the code say the same: what one of them changes alone fails here.

mod permissions;
mod watching;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, ensure};
use firstclaim::{Claimed, Claims, Config, Key, Policy};
use integration::Lab;
use integration::template::{Stack, Template, root, text};
use serde_json::{Value, json};
use webhook::{ANSWERED_WITHIN, PATIENCE};

use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    let own = tests![
        shape:
            functions_read_what_the_template_gives,
            every_stack_has_settings_that_its_functions_take,
            a26_times_are_in_their_order,
            the_window_outlives_the_longest_way_of_an_event,
            n39_the_table_is_the_one_that_the_code_uses,
            batches_are_answered_in_part,
            what_the_functions_say_reaches_their_logs,
            a_failing_target_is_waited_for_half_a_day,
            wrong_parameters_are_refused_before_anything_is_made,
            stages_set_parameters_that_exist,
        ;
        race:
    ];
    [own, permissions::tests(), watching::tests()].concat()
}

/// What has no default.
const REQUIRED: [(&str, &str); 2] = [
    (
        "SendersSecretArn",
        "arn:aws:secretsmanager:eu-central-1:000000000000:secret:senders-AbCdEf",
    ),
    ("TargetUrl", "https://target.example.com/apply"),
];

const ALARM: (&str, &str) = (
    "AlarmActionArn",
    "arn:aws:sns:eu-central-1:000000000000:night",
);

/// The stack with its defaults and these parameters.
fn stack(given: &[(&str, &str)]) -> anyhow::Result<Stack> {
    Template::load()?.stack(&[REQUIRED.as_slice(), given].concat())
}

/// One stack for each combination of the parameters that change more than a value.
fn stacks() -> anyhow::Result<Vec<Stack>> {
    let mut stacks = Vec::new();
    for lapse in ["rerun", "hold"] {
        for timeout in ["60", "120", "300", "900"] {
            for fifo in ["true", "false"] {
                for front in ["HttpApi", "FunctionUrl"] {
                    stacks.push(stack(&[
                        ("OnLapse", lapse),
                        ("WorkerTimeout", timeout),
                        ("Fifo", fifo),
                        ("Front", front),
                        ALARM,
                    ])?);
                }
            }
        }
    }
    Ok(stacks)
}

/// A function's environment as it would find it: queues have URLs there.
fn environment(stack: &Stack, function: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables = stack.environment(function)?;
    for value in variables.values_mut() {
        if value == "WorkQueue" || value == "DeadLetterQueue" {
            *value = format!("https://sqs.eu-central-1.amazonaws.com/000000000000/{value}");
        }
    }
    Ok(variables)
}

fn webhook_settings(stack: &Stack) -> anyhow::Result<webhook::Settings> {
    let variables = environment(stack, "WebhookFunction")?;
    Ok(webhook::Settings::read(|name| {
        variables.get(name).cloned()
    })?)
}

fn queue_settings(stack: &Stack) -> anyhow::Result<queue::Settings> {
    let variables = environment(stack, "QueueFunction")?;
    Ok(queue::Settings::read(|name| variables.get(name).cloned())?)
}

fn number(value: &Value) -> anyhow::Result<u64> {
    text(value).parse().with_context(|| value.to_string())
}

fn seconds(value: &Value) -> anyhow::Result<Duration> {
    number(value).map(Duration::from_secs)
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn functions_read_what_the_template_gives(_: &Lab) -> anyhow::Result<()> {
    // What the template leaves out on purpose.
    let left_out_of_the_webhook = [
        // Secrets stay in Secrets Manager.
        "SENDERS",
        // Its default is all that Lambda passes on.
        "BODY_LIMIT",
        // A delivery is accepted until the last moment.
        "MIN_REMAINING",
    ];
    let left_out_of_the_queue = [
        "TARGET_TOKEN",
        "THREADS_TOKEN",
        // It is read only to say that it must not be set.
        "SENDERS_SECRET_ARN",
        // The template's own pattern for the target's address is stricter.
        "ALLOW_HTTP",
        // Its default is the batch size: see below.
        "BATCH_CONCURRENCY",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_SQS",
    ];
    // Read by `main`, before there are settings.
    let read_by_main = ["RUST_LOG"];

    let asked = RefCell::new(BTreeSet::new());
    let nothing = |name: &str| {
        asked.borrow_mut().insert(name.to_owned());
        None
    };
    ensure!(webhook::Settings::read(nothing).is_err());
    let webhook = asked.take();
    ensure!(queue::Settings::read(nothing).is_err());
    let queue = asked.take();

    let stack = stack(&[])?;
    for (function, mut read, left_out) in [
        (
            "WebhookFunction",
            webhook,
            left_out_of_the_webhook.as_slice(),
        ),
        ("QueueFunction", queue, left_out_of_the_queue.as_slice()),
    ] {
        read.extend(read_by_main.map(str::to_owned));
        for name in left_out {
            ensure!(read.remove(*name), "{function} does not read {name} at all");
        }
        let given: BTreeSet<String> = stack.environment(function)?.into_keys().collect();
        assert_eq!(
            given, read,
            "{function}: given by the template, and read by the code"
        );
    }
    Ok(())
}

async fn every_stack_has_settings_that_its_functions_take(_: &Lab) -> anyhow::Result<()> {
    for stack in stacks()? {
        let (webhook, queue) = (webhook_settings(&stack)?, queue_settings(&stack)?);
        assert_eq!(webhook.table, "ClaimsTable");
        assert_eq!(queue.table, "ClaimsTable");
        ensure!(webhook.queue_url.ends_with("/WorkQueue"));
        let dead = queue.dead_letter_url.as_deref().unwrap_or_default();
        ensure!(dead.ends_with("/DeadLetterQueue"), "{dead}");
        let policy = match stack.parameter("OnLapse")? {
            "hold" => Policy::Hold,
            _ => Policy::Rerun,
        };
        assert_eq!(queue.claims.policy, policy);
        assert_eq!(webhook.claims.policy, Policy::Rerun);
        // Both agree on how long a key is answered.
        assert_eq!(webhook.claims.window, queue.claims.window);
        assert_eq!(
            webhook.options.public_url.is_some(),
            stack.parameter("Front")? == "HttpApi"
        );
    }
    let own = stack(&[
        ("PublicUrl", "https://hooks.example.com"),
        ("Front", "FunctionUrl"),
    ])?;
    let public = webhook_settings(&own)?.options.public_url;
    assert_eq!(public.as_deref(), Some("https://hooks.example.com"));
    let targets = r#"{"github":{"target":"https://github.example.com/"}}"#;
    let own = queue_settings(&stack(&[("SenderTargets", targets)])?)?;
    assert_eq!(own.target.senders.len(), 1);
    Ok(())
}

/// The target's call, the function, its lease, the queue's visibility: each ends before the next.
async fn a26_times_are_in_their_order(_: &Lab) -> anyhow::Result<()> {
    for stack in stacks()? {
        let settings = queue_settings(&stack)?;
        let timeout = seconds(&stack.properties("QueueFunction")?["Timeout"])?;
        let visibility = seconds(&stack.properties("WorkQueue")?["VisibilityTimeout"])?;
        let lease = timeout + settings.claims.grace;
        let call = settings.target.timeout;
        ensure!(
            call < timeout,
            "the target's {call:?}, the function's {timeout:?}"
        );
        ensure!(
            timeout <= lease && lease <= settings.claims.longest_lease,
            "{lease:?}"
        );
        ensure!(
            lease <= visibility,
            "the lease {lease:?}, the visibility {visibility:?}"
        );
        ensure!(
            visibility >= 6 * timeout,
            "six times {timeout:?}, not {visibility:?}"
        );
        let floor = settings.claims.min_remaining;
        match settings.claims.policy {
            // What is cut off would be held, though nothing went wrong.
            Policy::Hold => ensure!(call < floor && floor < timeout, "the floor {floor:?}"),
            Policy::Rerun => assert_eq!(floor, Duration::ZERO),
        }

        // The door answers in the time of the fastest sender (Slack, 3 s), and one call leaves time
        // for the next; the function has that of the ones that wait for ten; the gateway waits for
        // the function.
        let timeout = seconds(&stack.properties("WebhookFunction")?["Timeout"])?;
        ensure!(ANSWERED_WITHIN < Duration::from_secs(3));
        ensure!(2 * PATIENCE.total < ANSWERED_WITHIN);
        ensure!(timeout <= Duration::from_secs(10), "{timeout:?}");
        if let Some(api) = stack
            .resources("AWS::ApiGatewayV2::Integration")?
            .values()
            .next()
        {
            let waits = Duration::from_millis(number(&api["Properties"]["TimeoutInMillis"])?);
            ensure!(
                waits > timeout,
                "the gateway {waits:?}, the function {timeout:?}"
            );
        }
    }
    Ok(())
}

async fn the_window_outlives_the_longest_way_of_an_event(_: &Lab) -> anyhow::Result<()> {
    // Stripe's events can be sent again by hand for 30 days; of the large senders none is later.
    let latest_redelivery = 30 * DAY;
    let template = Template::load()?;
    let least = number(&template.parameters()?["WindowDays"]["MinValue"])?;
    let stack = stack(&[("WindowDays", &least.to_string())])?;
    let kept = |queue: &str| seconds(&stack.properties(queue)?["MessageRetentionPeriod"]);
    let way = kept("WorkQueue")? + kept("DeadLetterQueue")? + latest_redelivery;
    for claims in [
        webhook_settings(&stack)?.claims,
        queue_settings(&stack)?.claims,
    ] {
        ensure!(
            claims.window >= way,
            "a window of {:?}, a way of {way:?}",
            claims.window
        );
        ensure!(claims.window > claims.longest_lease);
    }
    Ok(())
}

/// The table that `firstclaim dev` and these tests make by the code, and the template's; and the
/// attributes that a record really has.
async fn n39_the_table_is_the_one_that_the_code_uses(lab: &Lab) -> anyhow::Result<()> {
    let client = lab.suite.engine.client();
    let described = client
        .describe_table()
        .table_name(&lab.table)
        .send()
        .await?;
    let table = described.table.context("no table")?;
    let keys: Vec<_> = table
        .key_schema()
        .iter()
        .map(|key| json!({"AttributeName": key.attribute_name, "KeyType": key.key_type.as_str()}))
        .collect();
    let types: Vec<_> = table
        .attribute_definitions()
        .iter()
        .map(|one| {
            json!({"AttributeName": one.attribute_name, "AttributeType": one.attribute_type.as_str()})
        })
        .collect();
    let stack = stack(&[])?;
    let properties = stack.properties("ClaimsTable")?;
    assert_eq!(properties["KeySchema"], json!(keys));
    assert_eq!(properties["AttributeDefinitions"], json!(types));

    let ttl = client
        .describe_time_to_live()
        .table_name(&lab.table)
        .send()
        .await?;
    let ttl = ttl.time_to_live_description.context("no TTL")?;
    let declared = &properties["TimeToLiveSpecification"];
    assert_eq!(declared["AttributeName"].as_str(), ttl.attribute_name());
    assert_eq!(declared["Enabled"], true);

    let claims = Claims::new(lab.store(), Config::default())?;
    let claimed = claims
        .once(Key::new("drift", "1")?)
        .lease(Duration::from_secs(10))
        .claim();
    ensure!(matches!(claimed.await?, Claimed::Held(_)));
    let items = client.scan().table_name(&lab.table).send().await?;
    let item = items.items().first().context("no item")?;
    let attribute = |name: &Value| item.get(name.as_str().unwrap_or_default());
    ensure!(attribute(&properties["KeySchema"][0]["AttributeName"]).is_some_and(|id| id.is_s()));
    ensure!(attribute(&declared["AttributeName"]).is_some_and(|end| end.is_n()));

    // What nobody may lose with a stack.
    for (name, resource) in stack.resources("AWS::DynamoDB::Table")? {
        assert_eq!(resource["DeletionPolicy"], "Retain", "{name}");
        assert_eq!(resource["UpdateReplacePolicy"], "Retain", "{name}");
        let recovery = &resource["Properties"]["PointInTimeRecoverySpecification"];
        assert_eq!(recovery["PointInTimeRecoveryEnabled"], true, "{name}");
    }
    for (name, resource) in stack.resources("AWS::SQS::Queue")? {
        assert_eq!(resource["DeletionPolicy"], "Retain", "{name}");
        assert_eq!(resource["UpdateReplacePolicy"], "Retain", "{name}");
    }
    Ok(())
}

async fn batches_are_answered_in_part(_: &Lab) -> anyhow::Result<()> {
    for stack in stacks()? {
        let mapping = &stack.properties("QueueFunction")?["Events"]["Work"]["Properties"];
        assert_eq!(
            mapping["FunctionResponseTypes"],
            json!(["ReportBatchItemFailures"])
        );
        assert_eq!(mapping["Queue"], "WorkQueue.Arn");
        let size = usize::try_from(number(&mapping["BatchSize"])?)?;
        if stack.parameter("Fifo")? == "true" {
            // What comes back takes nothing of its group with it.
            assert_eq!(size, 1);
        } else {
            // A whole batch at once: none of its records waits for another one's time.
            assert_eq!(size, queue_settings(&stack)?.concurrency);
            assert_eq!(size, queue::config::CONCURRENCY);
        }
        ensure!(number(&mapping["ScalingConfig"]["MaximumConcurrency"])? >= 2);

        let (work, dead) = (
            stack.properties("WorkQueue")?,
            stack.properties("DeadLetterQueue")?,
        );
        assert_eq!(
            work["RedrivePolicy"]["deadLetterTargetArn"],
            "DeadLetterQueue.Arn"
        );
        // A queue and its dead-letter queue are of one kind.
        assert_eq!(work["FifoQueue"], dead["FifoQueue"]);
        assert_eq!(
            work["FifoQueue"] == true,
            stack.parameter("Fifo")? == "true"
        );
        ensure!(
            number(&dead["MessageRetentionPeriod"])? >= number(&work["MessageRetentionPeriod"])?
        );
    }
    Ok(())
}

/// Lambda takes lines away by their level, and one without a level, as those with the metrics are,
/// for an INFO one.
async fn what_the_functions_say_reaches_their_logs(_: &Lab) -> anyhow::Result<()> {
    for (level, let_through) in [
        ("error", "INFO"),
        ("warn", "INFO"),
        ("info", "INFO"),
        ("debug", "DEBUG"),
    ] {
        let stack = stack(&[("LogLevel", level)])?;
        for function in ["WebhookFunction", "QueueFunction"] {
            assert_eq!(stack.environment(function)?["RUST_LOG"], level);
            let logging = &stack.properties(function)?["LoggingConfig"];
            assert_eq!(logging["LogFormat"], "JSON");
            assert_eq!(logging["ApplicationLogLevel"], let_through, "{level}");
        }
    }
    Ok(())
}

/// The waits of the worker, as often as the queue hands a message out, come to half a day at least.
async fn a_failing_target_is_waited_for_half_a_day(_: &Lab) -> anyhow::Result<()> {
    let receives =
        number(&stack(&[])?.properties("WorkQueue")?["RedrivePolicy"]["maxReceiveCount"])?;
    assert_eq!(receives, 20);
    // min(30 s × 2^(receives−1), 1 h), less a sixteenth of jitter at the most. What the first three
    // wait is up to the target. After the last receive nothing is tried any more.
    let waits = (4..receives).map(|receive| {
        let full = Duration::from_secs((30 << (receive - 1).min(20)).min(60 * 60));
        full - full / 16
    });
    let shortest: Duration = waits.sum();
    ensure!(shortest >= DAY / 2, "{shortest:?}");
    Ok(())
}

async fn wrong_parameters_are_refused_before_anything_is_made(_: &Lab) -> anyhow::Result<()> {
    for (given, said) in [
        (vec![("OnLapse", "hold")], "HoldNeedsSomebodyWhoIsTold"),
        (vec![("OnLapse", "perhaps")], "OnLapse"),
        (vec![("WorkerTimeout", "61")], "WorkerTimeout"),
        (
            vec![(
                "ThreadsTokenSecretArn",
                "arn:aws:secretsmanager:eu-central-1:000000000000:secret:threads-AbCdEf",
            )],
            "ThreadsTokenNeedsThreads",
        ),
    ] {
        let refused = stack(&given)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        ensure!(
            refused.contains(said),
            "{given:?} were refused with {refused:?}"
        );
    }
    // Every free text has a pattern, so that a slip does not become a stack.
    for (name, declared) in Template::load()?.parameters()? {
        let checked = ["AllowedValues", "AllowedPattern", "MinValue"];
        ensure!(
            checked.iter().any(|check| !declared[*check].is_null()),
            "{name} takes anything"
        );
    }
    Ok(())
}

async fn stages_set_parameters_that_exist(_: &Lab) -> anyhow::Result<()> {
    let path = root().join("samconfig.toml");
    let samconfig = std::fs::read_to_string(&path)?;
    let mut stages = BTreeSet::new();
    let mut stage = String::new();
    for line in samconfig.lines() {
        if let Some(section) = line.strip_prefix('[') {
            stage = section.split('.').next().unwrap_or_default().to_owned();
            stages.insert(stage.clone());
        }
        let Some(overrides) = line.strip_prefix("parameter_overrides = ") else {
            continue;
        };
        let given: Vec<_> = overrides
            .trim_matches('"')
            .split(' ')
            .filter_map(|one| one.split_once('='))
            .collect();
        stack(&given).with_context(|| stage.clone())?;
        if stage == "prod" {
            ensure!(given.contains(&("DeletionProtection", "true")), "{given:?}");
        }
    }
    let expected = ["default", "prod", "staging"].map(str::to_owned);
    ensure!(
        expected.iter().all(|stage| stages.contains(stage)),
        "{stages:?}"
    );
    Ok(())
}
