//! The work queue and its dead-letter queue.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use serde::Deserialize;

use super::finding::{Finding, bounded};
use super::settings::Settings;
use super::trouble::Trouble;

/// How often a message should be received before it is given up; AWS's advice for Lambda.
const RECEIVES: u32 = 5;

/// How many times the worker's time-out a queue's visibility should be; AWS's advice for Lambda.
const TIMES: u32 = 6;

/// The checks that ask nothing of the service but the work queue's attributes.
const OF_THE_QUEUE: [&str; 4] = ["visibility", "redrive", "retention", "dead-letters"];

/// A queue's attributes.
struct Queue {
    arn: Option<String>,
    visibility: Option<Duration>,
    retention: Option<Duration>,
    waiting: Option<u64>,
    /// The redrive policy as it is written.
    redrive: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Redrive {
    dead_letter_target_arn: String,
    max_receive_count: Count,
}

/// The policy's author may have written the number as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u32),
    Text(String),
}

impl Count {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

/// Looks at both queues.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let Some(url) = &settings.queue_url else {
        let found = "QUEUE_URL is not set, or at fault, and there is no --queue-url";
        let mut findings = vec![Finding::skipped("queue", found)];
        findings.extend(skip_rest());
        return findings;
    };
    let limit = settings.limit;
    let read = bounded("queue", limit, async {
        let client = Client::new(&settings.sdk(settings.sqs.as_deref()).await);
        let queue = attributes(&client, "queue", url).await;
        (client, queue)
    });
    let (client, queue) = match read.await {
        Ok((client, Ok(queue))) => (client, queue),
        Ok((_, Err(finding))) | Err(finding) => {
            let mut findings = vec![finding.of(url)];
            findings.extend(skip_rest());
            return findings;
        }
    };
    let waiting = match queue.waiting {
        Some(waiting) => format!("is there, {waiting} waiting"),
        None => "is there".to_owned(),
    };
    let dead = bounded(
        "dead-letters",
        limit,
        dead_letters(settings, &client, url, &queue),
    );
    let (dead, dead_queue) = dead.await.unwrap_or_else(|hung| (hung, None));
    vec![
        Finding::ok("queue", waiting).of(url),
        check_visibility(&queue, settings.worker_timeout),
        check_redrive(&queue),
        check_retention(&queue, dead_queue.as_ref(), settings.window),
        dead,
    ]
}

fn skip_rest() -> impl Iterator<Item = Finding> {
    let skip = |check| Finding::skipped(check, "there is no queue to look at");
    OF_THE_QUEUE.into_iter().map(skip)
}

async fn attributes(client: &Client, check: &'static str, url: &str) -> Result<Queue, Finding> {
    let asked = client.get_queue_attributes().queue_url(url);
    let answer = asked
        .attribute_names(Name::All)
        .send()
        .await
        .map_err(|error| {
            Trouble::of(&error).finding(
                check,
                "sqs:GetQueueAttributes",
                (
                    "does not exist in this account and Region",
                    "correct the URL, or deploy the stack, which creates it",
                ),
            )
        })?;
    let attributes = answer.attributes.unwrap_or_default();
    let text = |name: &Name| attributes.get(name).cloned();
    let number = |name: &Name| text(name)?.parse::<u64>().ok();
    Ok(Queue {
        arn: text(&Name::QueueArn),
        visibility: number(&Name::VisibilityTimeout).map(Duration::from_secs),
        retention: number(&Name::MessageRetentionPeriod).map(Duration::from_secs),
        waiting: number(&Name::ApproximateNumberOfMessages),
        redrive: text(&Name::RedrivePolicy),
    })
}

impl Queue {
    /// The redrive policy; `Some(None)` if it can't be read.
    fn redrive(&self) -> Option<Option<Redrive>> {
        let policy = self.redrive.as_deref()?;
        Some(serde_json::from_str(policy).ok())
    }
}

fn check_visibility(queue: &Queue, worker: Option<Duration>) -> Finding {
    let Some(visibility) = queue.visibility else {
        return Finding::skipped("visibility", "the service does not say it");
    };
    let seconds = visibility.as_secs();
    let Some(worker) = worker else {
        return Finding::ok(
            "visibility",
            format!("{seconds} s; --worker-timeout compares it with the worker's"),
        );
    };
    let (timeout, advised) = (worker.as_secs_f64(), (worker * TIMES).as_secs());
    if visibility < worker {
        return Finding::fault(
            "visibility",
            format!(
                "{seconds} s, shorter than the worker's time-out of {timeout} s: a message comes \
                 back while it is still worked on"
            ),
            format!("set the queue's VisibilityTimeout to {advised} s"),
        );
    }
    if visibility < worker * TIMES {
        return Finding::warning(
            "visibility",
            format!(
                "{seconds} s, less than {TIMES} times the worker's time-out of {timeout} s: a \
                 throttled worker loses receives"
            ),
            format!("set the queue's VisibilityTimeout to {advised} s"),
        );
    }
    Finding::ok(
        "visibility",
        format!("{seconds} s, for a worker's time-out of {timeout} s"),
    )
}

fn check_redrive(queue: &Queue) -> Finding {
    let redrive = match queue.redrive() {
        None => {
            return Finding::fault(
                "redrive",
                "there is no redrive policy: a message that ends its worker each time comes back \
                 until its retention ends, and is then gone",
                "set a RedrivePolicy with a deadLetterTargetArn and a maxReceiveCount of 20",
            );
        }
        Some(None) => {
            return Finding::fault(
                "redrive",
                "the redrive policy can't be read",
                "set it anew, with a deadLetterTargetArn and a maxReceiveCount",
            );
        }
        Some(Some(redrive)) => redrive,
    };
    let Some(count) = redrive.max_receive_count.number() else {
        return Finding::fault(
            "redrive",
            "the redrive policy has no number for maxReceiveCount",
            "set it anew, with a maxReceiveCount of 20",
        );
    };
    let found = format!(
        "after {count} receives to {}",
        name_in(&redrive.dead_letter_target_arn)
    );
    if count < RECEIVES {
        return Finding::warning(
            "redrive",
            format!("{found}: a target that is away for a moment is given up"),
            format!("raise maxReceiveCount to {RECEIVES} at least; 20 last about a day"),
        );
    }
    Finding::ok("redrive", found)
}

/// A message that comes back once its record is forgotten is done again.
fn check_retention(queue: &Queue, dead: Option<&Queue>, window: Duration) -> Finding {
    let Some(retention) = queue.retention else {
        return Finding::skipped("retention", "the service does not say it");
    };
    let dead = dead.and_then(|dead| dead.retention).unwrap_or_default();
    let longest = retention + dead;
    let found = format!(
        "messages live {} and {} as dead letters, the window is {}",
        days(retention),
        days(dead),
        days(window)
    );
    if longest < window {
        return Finding::ok("retention", found);
    }
    Finding::fault(
        "retention",
        format!("{found}: one that is redriven late is done a second time"),
        format!("set CLAIMS_WINDOW to more than {}", days(longest)),
    )
}

/// The finding, and the dead-letter queue if there is one.
async fn dead_letters(
    settings: &Settings,
    client: &Client,
    work_url: &str,
    work: &Queue,
) -> (Finding, Option<Queue>) {
    const CHECK: &str = "dead-letters";
    let policy = work.redrive().flatten();
    let of_policy = policy
        .as_ref()
        .map(|redrive| redrive.dead_letter_target_arn.as_str());
    let url = match (&settings.dead_letter_url, of_policy) {
        (Some(url), _) => url.clone(),
        (None, Some(arn)) => match url_of(client, arn).await {
            Ok(url) => url,
            Err(finding) => return (finding.of(arn), None),
        },
        (None, None) => {
            let found = "neither DEAD_LETTER_URL nor a redrive policy names one";
            return (Finding::skipped(CHECK, found), None);
        }
    };
    let dead = match attributes(client, CHECK, &url).await {
        Ok(dead) => dead,
        Err(finding) => return (finding.of(url), None),
    };
    let same = match (&dead.arn, &work.arn) {
        (Some(dead), Some(work)) => dead == work,
        _ => url == work_url,
    };
    let finding = if same {
        Finding::fault(
            CHECK,
            "is the work queue itself: what can't succeed goes round for ever",
            "set DEAD_LETTER_URL to a queue of its own",
        )
    } else {
        judge_dead(&dead, work, of_policy)
    };
    (finding.of(url), (!same).then_some(dead))
}

fn judge_dead(dead: &Queue, work: &Queue, of_policy: Option<&str>) -> Finding {
    const CHECK: &str = "dead-letters";
    if let (Some(kept), Some(retention)) = (dead.retention, work.retention)
        && kept < retention
    {
        // SQS counts from the first sending.
        return Finding::fault(
            CHECK,
            format!(
                "keeps messages {}, the work queue {}: one that failed late is gone at once",
                days(kept),
                days(retention)
            ),
            "set its MessageRetentionPeriod to 14 d",
        );
    }
    let fifo = |queue: &Queue| queue.arn.as_ref().map(|arn| arn.ends_with(".fifo"));
    if let (Some(dead), Some(work)) = (fifo(dead), fifo(work))
        && dead != work
    {
        return Finding::fault(
            CHECK,
            "of the two queues one is FIFO: SQS moves nothing between them",
            "make both of one kind",
        );
    }
    if let (Some(arn), Some(of_policy)) = (dead.arn.as_deref(), of_policy)
        && arn != of_policy
    {
        return Finding::warning(
            CHECK,
            format!(
                "the worker sends to {}, the redrive policy to {}",
                name_in(arn),
                name_in(of_policy)
            ),
            "look into both, or name one in both places",
        );
    }
    match dead.waiting {
        Some(waiting @ 1..) => Finding::warning(
            CHECK,
            format!("is there, {waiting} waiting"),
            "each tells its `reason`; mend the cause, then redrive it",
        ),
        _ => Finding::ok(CHECK, "is there, empty"),
    }
}

async fn url_of(client: &Client, arn: &str) -> Result<String, Finding> {
    let account = arn.split(':').nth(4).filter(|account| !account.is_empty());
    let answer = client
        .get_queue_url()
        .queue_name(name_in(arn))
        .set_queue_owner_aws_account_id(account.map(str::to_owned))
        .send()
        .await;
    match answer {
        Ok(answer) => Ok(answer.queue_url.unwrap_or_default()),
        Err(error) => Err(Trouble::of(&error).finding(
            "dead-letters",
            "sqs:GetQueueUrl",
            (
                "the redrive policy names a queue that does not exist",
                "create it, or correct the policy",
            ),
        )),
    }
}

fn name_in(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}

/// A time in the largest whole unit.
fn days(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => "0 d".to_owned(),
        _ if seconds.is_multiple_of(86_400) => format!("{} d", seconds / 86_400),
        _ if seconds.is_multiple_of(3_600) => format!("{} h", seconds / 3_600),
        _ => format!("{seconds} s"),
    }
}
