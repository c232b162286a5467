//! The MCP client against servers of each revision.

use std::time::Duration;

use anyhow::ensure;
use integration::Lab;
use integration::lab::WORK;
use integration::process::Process;
use integration::queue_stub::returned;
use integration::threads::{Dialect, ThreadsServer};

use super::{REPO, event, variables};
use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            each_revision_and_each_form_of_answer_is_spoken,
            a_session_that_is_over_is_made_again,
            a_server_that_changes_its_revision_is_found_out_at_its_next_event,
            an_argument_that_a_header_must_mirror_is_mirrored,
        ;
        race:
    ]
}

async fn works(lab: &Lab, worker: &Process, number: u64) -> anyhow::Result<bool> {
    lab.queues.send(WORK, &event(number, "1").to_string());
    let batch = lab.queues.receive(WORK, 10);
    let answer = worker
        .invoke_within(&batch.event(), Duration::from_secs(10))
        .await?;
    lab.queues.settle(&batch, &answer)?;
    Ok(returned(&answer)?.is_empty())
}

async fn each_revision_and_each_form_of_answer_is_spoken(lab: &Lab) -> anyhow::Result<()> {
    let older = |revision| Dialect {
        revision,
        ..Dialect::LEGACY
    };
    let dialects = [
        Dialect::MODERN,
        Dialect::MODERN.streaming(),
        Dialect::LEGACY,
        Dialect::LEGACY.streaming(),
        older("2025-06-18"),
        older("2025-03-26"),
    ];
    for (dialect, number) in dialects.into_iter().zip(1..) {
        let server = ThreadsServer::speaking(dialect).await?;
        let worker = lab.process("queue", &variables(lab, &server)).await?;
        ensure!(works(lab, &worker, number).await?, "{dialect:?}");
        assert_eq!(server.replies(REPO, number).len(), 1, "{dialect:?}");
        assert_eq!(server.faults(), Vec::<String>::new(), "{dialect:?}");
    }
    Ok(())
}

async fn a_session_that_is_over_is_made_again(lab: &Lab) -> anyhow::Result<()> {
    let server = ThreadsServer::speaking(Dialect::LEGACY).await?;
    let worker = lab.process("queue", &variables(lab, &server)).await?;
    for number in 1..=3 {
        server.restart();
        ensure!(works(lab, &worker, number).await?);
        assert_eq!(server.replies(REPO, number).len(), 1);
    }
    assert_eq!(server.faults(), Vec::<String>::new());
    Ok(())
}

async fn a_server_that_changes_its_revision_is_found_out_at_its_next_event(
    lab: &Lab,
) -> anyhow::Result<()> {
    let server = ThreadsServer::speaking(Dialect::MODERN).await?;
    let worker = lab.process("queue", &variables(lab, &server)).await?;
    ensure!(works(lab, &worker, 1).await?);
    server.speak(Dialect::LEGACY);
    // The first event finds it out, and comes back.
    ensure!(!works(lab, &worker, 2).await?);
    ensure!(works(lab, &worker, 3).await?);
    server.speak(Dialect::MODERN.streaming());
    ensure!(!works(lab, &worker, 4).await?);
    ensure!(works(lab, &worker, 5).await?);
    for number in 1..=5 {
        assert_eq!(server.replies(REPO, number).len(), 1);
    }
    Ok(())
}

async fn an_argument_that_a_header_must_mirror_is_mirrored(lab: &Lab) -> anyhow::Result<()> {
    let dialect = Dialect {
        mirrors: true,
        ..Dialect::MODERN
    };
    let server = ThreadsServer::speaking(dialect).await?;
    let worker = lab.process("queue", &variables(lab, &server)).await?;
    for number in 1..=2 {
        ensure!(works(lab, &worker, number).await?);
        assert_eq!(server.replies(REPO, number).len(), 1);
    }
    assert_eq!(server.faults(), Vec::<String>::new());
    Ok(())
}
