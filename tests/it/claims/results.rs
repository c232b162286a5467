//! Results that are awkward to keep: the operation never runs again for them.

use anyhow::{bail, ensure};
use firstclaim::protocol::Write;
use firstclaim::store::{Store, Written};
use firstclaim::{Answer, Key};
use integration::Lab;

use super::{claims_on, clock, held, replays, run};
use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            p75_a12_a_large_result_does_not_run_again,
            p75_a_result_beside_large_checkpoints_does_not_run_again,
            p64_falsy_results_are_replayed_exactly,
        ;
        race:
    ]
}

async fn p75_a12_a_large_result_does_not_run_again(lab: &Lab) -> anyhow::Result<()> {
    let claims = claims_on(lab.store(), &clock())?;
    for kilobytes in [399, 401, 1024] {
        let key = Key::new("large", kilobytes.to_string())?;
        let result = "x".repeat(kilobytes * 1024);
        let outcome = run(&claims, &key, &result).await?;
        ensure!(
            outcome.answer == Answer::Performed(result),
            "{kilobytes} KB"
        );
        not_run_again(&run(&claims, &key, "run again").await?.answer)?;
    }
    Ok(())
}

/// The result alone would fit, but not beside what the record already holds.
async fn p75_a_result_beside_large_checkpoints_does_not_run_again(lab: &Lab) -> anyhow::Result<()> {
    let store = lab.store();
    let claims = claims_on(store.clone(), &clock())?;
    let key = Key::new("large", "checkpoints")?;
    let claim = held(&claims, &key).await?;
    let checkpoint = Write::Checkpoint {
        owner: claim.owner().clone(),
        name: "page".to_owned(),
        text: format!("\"{}\"", "x".repeat(390 * 1024)),
    };
    let written = store.write(&key.stored(), &checkpoint).await?;
    ensure!(matches!(written, Written::Applied(_)), "{written:?}");
    let result = "y".repeat(200 * 1024);
    let outcome = claim.complete(result.clone()).await;
    ensure!(
        outcome.answer == Answer::Performed(result),
        "attempt {}",
        outcome.attempt
    );
    not_run_again(&run(&claims, &key, "run again").await?.answer)
}

/// Replayed, or known to have been done.
fn not_run_again(answer: &Answer<String>) -> anyhow::Result<()> {
    match answer {
        Answer::Replayed(text) if text.len() > 1024 => Ok(()),
        Answer::ResultOmitted(omitted) if omitted.bytes > 100 * 1024 => Ok(()),
        other => bail!(
            "{}",
            format!("{other:?}").chars().take(200).collect::<String>()
        ),
    }
}

async fn p64_falsy_results_are_replayed_exactly(lab: &Lab) -> anyhow::Result<()> {
    let claims = claims_on(lab.store(), &clock())?;
    for (number, result) in ["", "0", "false", "null", "[]", "{}", "\u{0}", "ä\\u0041"]
        .into_iter()
        .enumerate()
    {
        let key = Key::new("falsy", number.to_string())?;
        let outcome = run(&claims, &key, result).await?;
        ensure!(
            outcome.answer == Answer::Performed(result.to_owned()),
            "{result:?}"
        );
        replays(&claims, &key, result).await?;
    }
    Ok(())
}
