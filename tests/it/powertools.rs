//! Records that Powertools for AWS Lambda (Python) wrote, as `tests/events/powertools.py` had it
//! write them, met by this crate: the way of a team that moves over.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use aws_sdk_dynamodb::types::AttributeValue;
use firstclaim::claims::{Resolution, Settling};
use firstclaim::clock::{EpochMillis, ManualSource};
use firstclaim::record::Status;
use firstclaim::{Answer, Claims, Config, Failure, Fingerprint, Key, Outcome};
use integration::Lab;
use serde_json::{Value, json};

use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            a_completed_record_is_replayed,
            a_validation_that_is_not_ours_binds_nothing,
            a_record_in_progress_is_in_flight_and_then_taken_over,
            a_record_without_a_lease_is_locked_until_its_window_ends,
            a_record_that_was_settled_takes_checkpoints,
        ;
        race:
    ]
}

const MINUTE: Duration = Duration::from_secs(60);

/// A record of Powertools in the table of a lab.
struct Adopted {
    key: Key,
    clock: ManualSource,
    claims: Claims<firstclaim::store::dynamodb::DynamoDb>,
}

impl Adopted {
    /// Puts the record `name` into the table as it was written, on a clock that stands where it was
    /// written.
    async fn put(lab: &Lab, name: &str) -> anyhow::Result<Self> {
        let written = lab.suite.deliveries.json("powertools")?;
        let fields = written["records"][name]
            .as_object()
            .context("no such record")?;
        let mut put = lab.suite.engine.client().put_item().table_name(&lab.table);
        for (attribute, value) in fields {
            put = put.item(attribute, typed(value)?);
        }
        put.send().await?;
        // What Powertools writes: the window that it was configured with, 31 days, from then on.
        let end: i64 = fields["expiration"]["N"]
            .as_str()
            .context("no window")?
            .parse()?;
        let now = EpochMillis((end - 31 * 24 * 60 * 60) * 1000);
        let clock = ManualSource::at(now);
        let config = Config {
            cache_bytes: 0,
            ..Config::default()
        };
        Ok(Self {
            key: Key::parse(fields["id"]["S"].as_str().context("no id")?)?,
            claims: Claims::new(lab.store(), config)?.with_source(clock.clone()),
            clock,
        })
    }

    async fn run(&self, fingerprint: Option<Fingerprint>) -> anyhow::Result<Outcome<Value>> {
        let mut once = self.claims.once(self.key.clone()).lease(MINUTE);
        if let Some(fingerprint) = fingerprint {
            once = once.fingerprint(fingerprint);
        }
        let outcome = once.run(|_| async { Ok::<_, Failure<Infallible>>(json!("ran here")) });
        Ok(outcome.await?)
    }
}

fn typed(value: &Value) -> anyhow::Result<AttributeValue> {
    let text = |kind: &str| value[kind].as_str().map(str::to_owned);
    match (text("S"), text("N")) {
        (Some(text), None) => Ok(AttributeValue::S(text)),
        (None, Some(number)) => Ok(AttributeValue::N(number)),
        _ => bail!("{value} is of another type"),
    }
}

async fn a_completed_record_is_replayed(lab: &Lab) -> anyhow::Result<()> {
    let paid = json!({"amount": 5, "paid": true});
    for (name, result) in [("completed", paid), ("nothing", Value::Null)] {
        let adopted = Adopted::put(lab, name).await?;
        let outcome = adopted.run(None).await?;
        ensure!(
            outcome.answer == Answer::Replayed(result),
            "{name}: {outcome:?}"
        );
        // The window is Powertools' own; after it the key is free.
        adopted.clock.advance(32 * 24 * 60 * MINUTE);
        let outcome = adopted.run(None).await?;
        ensure!(
            matches!(outcome.answer, Answer::Performed(_)),
            "{name}: {outcome:?}"
        );
    }
    Ok(())
}

async fn a_validation_that_is_not_ours_binds_nothing(lab: &Lab) -> anyhow::Result<()> {
    let adopted = Adopted::put(lab, "validated").await?;
    let outcome = adopted
        .run(Some(Fingerprint::of_bytes(b"whatever")))
        .await?;
    ensure!(
        outcome.answer == Answer::Replayed(json!({"paid": true})),
        "{outcome:?}"
    );
    Ok(())
}

async fn a_record_in_progress_is_in_flight_and_then_taken_over(lab: &Lab) -> anyhow::Result<()> {
    let adopted = Adopted::put(lab, "killed").await?;
    let outcome = adopted.run(None).await?;
    ensure!(
        matches!(outcome.answer, Answer::InProgress { .. }),
        "{outcome:?}"
    );
    // Lambda's deadline was half a minute away.
    adopted.clock.advance(MINUTE);
    let outcome = adopted.run(None).await?;
    ensure!(
        outcome.answer == Answer::Performed(json!("ran here")),
        "{outcome:?}"
    );
    assert_eq!(outcome.attempt, 2);
    let record = lab.record(adopted.key.as_str()).await?;
    assert_eq!(record.status, Status::Completed);
    ensure!(record.owner.is_some(), "the record has no owner yet");
    Ok(())
}

async fn a_record_without_a_lease_is_locked_until_its_window_ends(lab: &Lab) -> anyhow::Result<()> {
    let adopted = Adopted::put(lab, "killed_without_context").await?;
    adopted.clock.advance(30 * 24 * 60 * MINUTE);
    let outcome = adopted.run(None).await?;
    ensure!(
        matches!(outcome.answer, Answer::InProgress { .. }),
        "{outcome:?}"
    );
    adopted.clock.advance(2 * 24 * 60 * MINUTE);
    let outcome = adopted.run(None).await?;
    ensure!(
        outcome.answer == Answer::Performed(json!("ran here")),
        "{outcome:?}"
    );
    Ok(())
}

/// A settle makes it ours, so that the takeover behind it can't tell any more that it was not.
async fn a_record_that_was_settled_takes_checkpoints(lab: &Lab) -> anyhow::Result<()> {
    let again = Resolution::Rerun {
        new_generation: false,
    };
    let done = Resolution::Result(serde_json::value::to_raw_value(&json!("by hand"))?);
    for (resolution, window) in [
        (again, Duration::ZERO),
        (Resolution::Forget, Duration::ZERO),
        // Then claimed anew, with a record of its own.
        (done, 32 * 24 * 60 * MINUTE),
    ] {
        let adopted = Adopted::put(lab, "killed").await?;
        let seen = adopted.claims.read(&adopted.key).await?;
        let seen = seen.context("there is no record")?;
        let settled = adopted.claims.settle(&seen, resolution, "ada", "a test");
        ensure!(matches!(settled.await?, Settling::Recorded(_)));
        adopted.clock.advance(window);
        let once = adopted.claims.once(adopted.key.clone()).lease(MINUTE);
        let outcome = once.run(|work| async move {
            let charged = work.step("charge", || async { Ok::<_, Failure<NotStepped>>(7) });
            charged.await
        });
        let outcome = outcome.await?;
        ensure!(outcome.answer == Answer::Performed(7), "{outcome:?}");
    }
    Ok(())
}

/// The charge, or what became of it, is not in the record.
#[derive(Debug)]
struct NotStepped(firstclaim::StepError);

impl From<firstclaim::StepError> for NotStepped {
    fn from(error: firstclaim::StepError) -> Self {
        Self(error)
    }
}

impl std::fmt::Display for NotStepped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
