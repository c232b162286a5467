//! The thread scenario, with the worker as a process and a threads server that has no idempotency:
//! `docs/threads.md` has a row for each of the failures here.

mod protocol;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use firstclaim::record::Status;
use integration::lab::{DEAD, WORK};
use integration::process::Process;
use integration::proxy::Gate;
use integration::queue_stub::returned;
use integration::responders::{Plan, run};
use integration::target::Behaviour;
use integration::threads::{Act, ThreadsServer};
use integration::{Lab, poll};
use serde_json::{Value, json};

use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = tests![
        shape:
            an_event_of_a_thread_is_read_claimed_applied_told_and_completed,
            a_lost_race_ends_with_the_winners_result,
            a_crash_before_the_claim_leaves_nothing,
            a_crash_after_the_claim_is_followed_and_its_stale_activity_cleared,
            a_crash_after_apply_and_before_the_reply_is_finished_without_a_second_call,
            a_crash_behind_the_reply_is_completed_without_a_second_reply,
            n41_a_reply_whose_answer_is_lost_or_late_is_not_posted_again,
            an_unknown_outcome_is_asked_again_under_one_key,
            an_unknown_outcome_is_held_under_hold,
            a_claim_that_is_held_is_settled_by_the_threads_reply,
            under_hold_a_crash_after_apply_needs_nobody,
            a_thread_that_was_closed_since_the_event_stops_it,
            a_thread_that_is_closed_during_the_event_gets_no_reply,
            the_same_key_with_other_parameters_is_a_dead_letter,
            a_late_owner_does_not_post_beside_the_new_one,
            n9_two_events_of_one_purpose_have_one_reply_and_others_one_each,
            a_reply_that_says_something_else_is_updated,
            a_target_that_refuses_is_answered_as_ever,
            a_thread_server_that_is_away_or_misconfigured_returns_the_event,
            activity_decides_nothing,
            what_a_thread_says_is_not_logged,
        ;
        race:
            five_responders_make_one_effect_and_one_reply,
    ];
    tests.extend(protocol::tests());
    tests
}

pub(crate) const REPO: &str = "teams/platform/website";

pub(crate) const BRANCH: &str = r#"[{"kind":"branch","target":"codex/thread-42"}]"#;

/// The time of an invocation that a test lets lapse.
const SHORT: Duration = Duration::from_secs(5);

/// How long a takeover is waited for: the rest of a lease, and then some.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn event(number: u64, revision: &str) -> Value {
    json!({
        "scopes": [format!("thread:{REPO}/{number}")],
        "revision": revision,
        "payload": {"revision": revision},
    })
}

pub(crate) fn key(number: u64, revision: &str) -> String {
    format!("thread#{REPO}:{number}:{revision}")
}

fn mark(number: u64, revision: &str) -> String {
    format!("firstclaim-key: {}", key(number, revision))
}

pub(crate) fn variables(lab: &Lab, server: &ThreadsServer) -> BTreeMap<String, String> {
    let mut variables = lab.queue_variables();
    variables.insert("THREADS_URL".to_owned(), server.url());
    variables
}

async fn server(lab: &Lab) -> anyhow::Result<ThreadsServer> {
    lab.target.links(BRANCH);
    ThreadsServer::start().await
}

async fn worker(lab: &Lab, server: &ThreadsServer) -> anyhow::Result<Process> {
    lab.process("queue", &variables(lab, server)).await
}

async fn holding(lab: &Lab, server: &ThreadsServer) -> anyhow::Result<Process> {
    let mut variables = variables(lab, server);
    variables.insert("CLAIMS_ON_LAPSE".to_owned(), "hold".to_owned());
    lab.process("queue", &variables).await
}

/// Hands one message to a worker and settles the answer; whether it was acknowledged.
async fn work(lab: &Lab, worker: &Process) -> anyhow::Result<bool> {
    let batch = lab.queues.receive(WORK, 1);
    ensure!(batch.messages.len() == 1, "there is nothing to work on");
    let answer = worker
        .invoke_within(&batch.event(), Duration::from_secs(10))
        .await?;
    lab.queues.settle(&batch, &answer)?;
    Ok(returned(&answer)?.is_empty())
}

async fn deliver(lab: &Lab, worker: &Process, body: &Value) -> anyhow::Result<bool> {
    lab.queues.send(WORK, &body.to_string());
    work(lab, worker).await
}

/// Hands the message that is left to a worker until it is acknowledged: the lease has to lapse.
async fn follow(lab: &Lab, worker: &Process) -> anyhow::Result<()> {
    poll::until("the takeover", LIMIT, async || {
        Ok(work(lab, worker).await?.then_some(()))
    })
    .await
}

/// Kills a worker while its event waits at the gate; its message can be received again.
async fn kill_at(lab: &Lab, mut worker: Process, gate: &Gate, body: &Value) -> anyhow::Result<()> {
    lab.queues.send(WORK, &body.to_string());
    let batch = lab.queues.receive(WORK, 1);
    let event = batch.event();
    {
        let work = worker.invoke_within(&event, SHORT);
        tokio::pin!(work);
        tokio::select! {
            ended = &mut work => anyhow::bail!("it ended before the gate: {ended:?}"),
            () = gate.reached(1) => {}
        }
    }
    worker.kill().await?;
    lab.queues.abandon(&batch);
    Ok(())
}

/// One effect, one reply with the branch, a completed record, and nobody says that he works.
async fn is_done_once(lab: &Lab, server: &ThreadsServer, revision: &str) -> anyhow::Result<()> {
    assert_eq!(lab.target.effects().into_values().collect::<Vec<_>>(), [1]);
    let replies = server.replies(REPO, 42);
    let [reply] = replies.as_slice() else {
        anyhow::bail!("{replies:?}");
    };
    ensure!(
        reply
            .body
            .ends_with(&format!("\n\n{}\n", mark(42, revision))),
        "{reply:?}"
    );
    assert_eq!(reply.kind, "implementation");
    assert_eq!(reply.links.to_string(), BRANCH);
    let record = lab.record(&key(42, revision)).await?;
    assert_eq!(record.status, Status::Completed);
    assert_eq!(result(lab, revision).await?["reply"], json!(reply.id));
    assert_eq!(server.activity(), "");
    assert_eq!(server.faults(), Vec::<String>::new());
    ensure!(
        lab.queues.messages(DEAD).is_empty(),
        "{:?}",
        lab.queues.messages(DEAD)
    );
    Ok(())
}

/// Waits for a line of a process, whose output is read beside the test.
async fn logged(lab: &Lab, text: &str) -> anyhow::Result<()> {
    poll::until(text, Duration::from_secs(10), async || {
        Ok(lab.log.contains(text).then_some(()))
    })
    .await
}

async fn result(lab: &Lab, revision: &str) -> anyhow::Result<Value> {
    let record = lab.record(&key(42, revision)).await?;
    match record.data.context("no result")? {
        firstclaim::record::Data::Inline(text) => Ok(serde_json::from_str(&text)?),
        other => anyhow::bail!("{other:?}"),
    }
}

async fn an_event_of_a_thread_is_read_claimed_applied_told_and_completed(
    lab: &Lab,
) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = worker(lab, &server).await?;
    ensure!(deliver(lab, &worker, &event(42, "a1b2c3")).await?);
    is_done_once(lab, &server, "a1b2c3").await?;
    let activity = "Revalidating teams/platform/website thread #42 before mutation.";
    assert_eq!(server.activities(), [activity, ""]);
    assert_eq!(
        server.calls("get_thread_context"),
        2,
        "before the claim, and before the reply"
    );
    let applied = &lab.target.received()[0];
    assert_eq!(applied.body, br#"{"revision":"a1b2c3"}"#);
    assert_eq!(
        applied.header("firstclaim-key"),
        "thread%23teams%2Fplatform%2Fwebsite%3A42%3Aa1b2c3"
    );
    // A duplicate: its record answers, and the thread is only read.
    ensure!(deliver(lab, &worker, &event(42, "a1b2c3")).await?);
    is_done_once(lab, &server, "a1b2c3").await?;
    assert_eq!(server.calls("update_activity"), 2);
    // Another revision is another event, and its key is not found in the first one's.
    ensure!(deliver(lab, &worker, &event(42, "a1b2c")).await?);
    assert_eq!(server.replies(REPO, 42).len(), 2);
    assert_eq!(lab.target.effect_count(), 2);
    // What names no thread is none of the server's business.
    let calls = server.calls("get_thread_context");
    ensure!(deliver(lab, &worker, &json!({"key": "k"})).await?);
    assert_eq!(server.calls("get_thread_context"), calls);
    Ok(())
}

async fn a_lost_race_ends_with_the_winners_result(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let (first, second) = (worker(lab, &server).await?, worker(lab, &server).await?);
    let gate = Gate::new();
    lab.target.plan([Behaviour::Hang(gate.clone())]);
    lab.queues.send(WORK, &event(42, "1").to_string());
    lab.queues.send(WORK, &event(42, "1").to_string());
    let winners = lab.queues.receive(WORK, 1);
    let winners_event = winners.event();
    let winner = first.invoke_within(&winners_event, Duration::from_secs(10));
    tokio::pin!(winner);
    tokio::select! {
        ended = &mut winner => anyhow::bail!("{ended:?}"),
        () = gate.reached(1) => {}
    }
    ensure!(
        !work(lab, &second).await?,
        "it is in flight: it comes back later"
    );
    let asked = lab.queues.visibilities();
    ensure!(
        asked.iter().any(|one| (2..=13).contains(&one.seconds)),
        "{asked:?}"
    );
    gate.open();
    lab.queues.settle(&winners, &winner.await?)?;
    ensure!(work(lab, &second).await?);
    is_done_once(lab, &server, "1").await?;
    logged(lab, r#""outcome":"replayed""#).await?;
    Ok(())
}

async fn a_crash_before_the_claim_leaves_nothing(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let gate = Gate::new();
    server.plan("get_thread_context", [Act::DoThenWait(gate.clone())]);
    let first = worker(lab, &server).await?;
    kill_at(lab, first, &gate, &event(42, "1")).await?;
    assert_eq!(lab.ids().await?, Vec::<String>::new());
    let second = worker(lab, &server).await?;
    ensure!(work(lab, &second).await?, "nothing is in its way");
    assert_eq!(lab.record(&key(42, "1")).await?.attempt, 1);
    is_done_once(lab, &server, "1").await
}

async fn a_crash_after_the_claim_is_followed_and_its_stale_activity_cleared(
    lab: &Lab,
) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let gate = Gate::new();
    server.plan("update_activity", [Act::DoThenWait(gate.clone())]);
    let first = worker(lab, &server).await?;
    kill_at(lab, first, &gate, &event(42, "1")).await?;
    ensure!(
        server.activity().starts_with("Revalidating"),
        "nobody has cleared it"
    );
    let second = worker(lab, &server).await?;
    // The activity says that somebody is at it, and so does the lease: only that counts.
    follow(lab, &second).await?;
    assert_eq!(lab.record(&key(42, "1")).await?.attempt, 2);
    is_done_once(lab, &server, "1").await
}

async fn a_crash_after_apply_and_before_the_reply_is_finished_without_a_second_call(
    lab: &Lab,
) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let gate = Gate::new();
    server.plan(
        "get_thread_context",
        [Act::Do, Act::WaitThenDo(gate.clone())],
    );
    let first = worker(lab, &server).await?;
    kill_at(lab, first, &gate, &event(42, "1")).await?;
    assert_eq!(lab.target.effect_count(), 1);
    assert_eq!(server.replies(REPO, 42), []);
    let second = worker(lab, &server).await?;
    follow(lab, &second).await?;
    assert_eq!(
        lab.target.received().len(),
        1,
        "the target is not called again"
    );
    is_done_once(lab, &server, "1").await?;
    assert_eq!(result(lab, "1").await?["applied"]["status"], 200);
    Ok(())
}

async fn a_crash_behind_the_reply_is_completed_without_a_second_reply(
    lab: &Lab,
) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let gate = Gate::new();
    server.plan("create_reply", [Act::DoThenWait(gate.clone())]);
    let first = worker(lab, &server).await?;
    kill_at(lab, first, &gate, &event(42, "1")).await?;
    assert_eq!(server.replies(REPO, 42).len(), 1);
    let second = worker(lab, &server).await?;
    follow(lab, &second).await?;
    assert_eq!(server.calls("create_reply"), 1);
    assert_eq!(server.calls("update_reply"), 0, "it says what it should");
    assert_eq!(lab.target.received().len(), 1);
    is_done_once(lab, &server, "1").await
}

async fn n41_a_reply_whose_answer_is_lost_or_late_is_not_posted_again(
    lab: &Lab,
) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = worker(lab, &server).await?;
    // Lost: it is there.
    server.plan("create_reply", [Act::DoAndClose]);
    ensure!(deliver(lab, &worker, &event(42, "1")).await?);
    is_done_once(lab, &server, "1").await?;
    // Behind the caller's patience: it is there too, and found by this attempt or the next.
    let gate = Gate::new();
    server.plan("create_reply", [Act::DoThenWait(gate.clone())]);
    lab.queues.send(WORK, &event(43, "1").to_string());
    let batch = lab.queues.receive(WORK, 1);
    let answer = worker.invoke_within(&batch.event(), SHORT).await?;
    lab.queues.settle(&batch, &answer)?;
    gate.open();
    if !returned(&answer)?.is_empty() {
        follow(lab, &worker).await?;
    }
    assert_eq!(server.replies(REPO, 43).len(), 1);
    // Neither done nor answered: the next attempt posts it.
    server.plan("create_reply", [Act::Close]);
    if !deliver(lab, &worker, &event(44, "1")).await? {
        follow(lab, &worker).await?;
    }
    assert_eq!(server.replies(REPO, 44).len(), 1);
    assert_eq!(
        lab.target.effects().into_values().collect::<Vec<_>>(),
        [1, 1, 1]
    );
    Ok(())
}

async fn an_unknown_outcome_is_asked_again_under_one_key(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = worker(lab, &server).await?;
    lab.target.plan([Behaviour::ApplyAndClose]);
    ensure!(!deliver(lab, &worker, &event(42, "1")).await?);
    assert_eq!(server.replies(REPO, 42), []);
    assert_eq!(server.activity(), "", "cleared after a failure too");
    ensure!(work(lab, &worker).await?);
    // This target tells nothing by the key; one that does has one effect.
    assert_eq!(lab.target.effects().into_values().collect::<Vec<_>>(), [2]);
    assert_eq!(server.replies(REPO, 42).len(), 1);
    Ok(())
}

async fn an_unknown_outcome_is_held_under_hold(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = holding(lab, &server).await?;
    lab.target.plan([Behaviour::ApplyAndClose]);
    ensure!(deliver(lab, &worker, &event(42, "1")).await?);
    let letters = lab.queues.messages(DEAD);
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].attributes["reason"], "held");
    ensure!(
        deliver(lab, &worker, &event(42, "1")).await?,
        "it stays held"
    );
    assert_eq!(lab.target.received().len(), 1);
    assert_eq!(server.replies(REPO, 42), []);
    assert_eq!(server.activity(), "");
    Ok(())
}

async fn a_claim_that_is_held_is_settled_by_the_threads_reply(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let gate = Gate::new();
    lab.target.plan([Behaviour::Hang(gate.clone())]);
    let first = holding(lab, &server).await?;
    kill_at(lab, first, &gate, &event(42, "1")).await?;
    let second = holding(lab, &server).await?;
    follow(lab, &second).await?;
    assert_eq!(
        lab.queues.messages(DEAD).len(),
        1,
        "nobody knows whether it was applied"
    );
    assert_eq!(lab.record(&key(42, "1")).await?.status, Status::InProgress);
    // A person has found out that it was, and says so where everybody reads it.
    let id = server.post(
        REPO,
        42,
        &format!("I looked: it was deployed.\n\n{}", mark(42, "1")),
    );
    assert_eq!(lab.queues.redrive(DEAD, WORK), 1);
    ensure!(work(lab, &second).await?);
    assert_eq!(lab.record(&key(42, "1")).await?.status, Status::Completed);
    assert_eq!(
        result(lab, "1").await?,
        json!({"applied": null, "reply": id})
    );
    assert_eq!(server.replies(REPO, 42).len(), 1);
    assert_eq!(lab.target.received().len(), 1);
    Ok(())
}

async fn under_hold_a_crash_after_apply_needs_nobody(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let gate = Gate::new();
    server.plan(
        "get_thread_context",
        [Act::Do, Act::WaitThenDo(gate.clone())],
    );
    let first = holding(lab, &server).await?;
    kill_at(lab, first, &gate, &event(42, "1")).await?;
    let second = holding(lab, &server).await?;
    follow(lab, &second).await?;
    assert_eq!(lab.target.received().len(), 1);
    is_done_once(lab, &server, "1").await
}

async fn a_thread_that_was_closed_since_the_event_stops_it(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = worker(lab, &server).await?;
    server.close(REPO, 42);
    for _ in 0..2 {
        ensure!(deliver(lab, &worker, &event(42, "1")).await?);
    }
    let record = lab.record(&key(42, "1")).await?;
    assert_eq!((record.status, record.attempt), (Status::Failed, 1));
    assert_eq!(result(lab, "1").await?["code"], "stale");
    assert_eq!(lab.target.received().len(), 0);
    assert_eq!(server.replies(REPO, 42), []);
    assert_eq!(server.activities(), Vec::<String>::new());
    ensure!(lab.queues.messages(DEAD).is_empty());
    Ok(())
}

async fn a_thread_that_is_closed_during_the_event_gets_no_reply(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = worker(lab, &server).await?;
    let gate = Gate::new();
    lab.target.plan([Behaviour::Hang(gate.clone())]);
    let closed = async {
        gate.reached(1).await;
        server.close(REPO, 42);
        gate.open();
        anyhow::Ok(())
    };
    let body = event(42, "1");
    let (done, closed) = tokio::join!(deliver(lab, &worker, &body), closed);
    closed?;
    ensure!(done?);
    assert_eq!(server.replies(REPO, 42), []);
    let result = result(lab, "1").await?;
    assert_eq!(
        (&result["reply"], &result["applied"]["status"]),
        (&json!(null), &json!(200))
    );
    assert_eq!(server.activity(), "");
    Ok(())
}

async fn the_same_key_with_other_parameters_is_a_dead_letter(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = worker(lab, &server).await?;
    ensure!(deliver(lab, &worker, &event(42, "1")).await?);
    let mut other = event(42, "1");
    other["payload"] = json!({"revision": "another"});
    ensure!(deliver(lab, &worker, &other).await?);
    let letters = lab.queues.messages(DEAD);
    assert_eq!(letters[0].attributes["reason"], "mismatch");
    assert_eq!(letters[0].attributes["firstclaim_key"], key(42, "1"));
    assert_eq!(server.replies(REPO, 42).len(), 1);
    assert_eq!(lab.target.effect_count(), 1);
    Ok(())
}

/// A worker is suspended between its last look at the thread and its reply, longer than its lease.
async fn a_late_owner_does_not_post_beside_the_new_one(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let late = worker(lab, &server).await?;
    let gate = Gate::new();
    server.plan(
        "get_thread_context",
        [Act::Do, Act::DoThenWait(gate.clone())],
    );
    lab.queues.send(WORK, &event(42, "1").to_string());
    let batch = lab.queues.receive(WORK, 1);
    let batchs_event = batch.event();
    let lates = late.invoke_within(&batchs_event, Duration::from_secs(8));
    tokio::pin!(lates);
    tokio::select! {
        ended = &mut lates => anyhow::bail!("{ended:?}"),
        () = gate.reached(1) => {}
    }
    late.suspend().await?;
    // It has the answer that there is no reply, and will read it when it goes on.
    gate.open();
    lab.queues.abandon(&batch);
    let second = worker(lab, &server).await?;
    follow(lab, &second).await?;
    late.resume().await?;
    // Its answer, whatever it is, says that it has come to an end.
    let _ = lates.await;
    assert_eq!(server.calls("create_reply"), 1);
    assert_eq!(lab.target.received().len(), 1);
    is_done_once(lab, &server, "1").await
}

async fn n9_two_events_of_one_purpose_have_one_reply_and_others_one_each(
    lab: &Lab,
) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let workers = [worker(lab, &server).await?, worker(lab, &server).await?];
    // "Close with comment" makes two events at once; a rule of the sender gives both the key of
    // what they are about.
    let envelope = |kind: &str, key: &str| {
        json!({
            "v": 1, "key": key, "sender": "github", "delivery": kind, "kind": kind,
            "thread": {"repo": REPO, "number": 42}, "fingerprint": null, "body": kind,
        })
        .to_string()
    };
    lab.queues
        .send(WORK, &envelope("issue_comment.created", "github#close:42"));
    lab.queues
        .send(WORK, &envelope("issues.closed", "github#close:42"));
    let batches = [lab.queues.receive(WORK, 1), lab.queues.receive(WORK, 1)];
    let both = workers
        .iter()
        .zip(&batches)
        .map(|(worker, batch)| async move {
            let answer = worker.invoke(&batch.event()).await?;
            lab.queues.settle(batch, &answer)
        });
    futures_util::future::try_join_all(both).await?;
    if !lab.queues.messages(WORK).is_empty() {
        ensure!(work(lab, &workers[0]).await?);
    }
    is_done_once(lab, &server, "github#close:42").await?;
    // Without such a rule they are two events, with a reply each.
    for kind in ["issue_comment.created", "issues.closed"] {
        lab.queues
            .send(WORK, &envelope(kind, &format!("github#{kind}")));
        ensure!(work(lab, &workers[1]).await?);
    }
    assert_eq!(server.replies(REPO, 42).len(), 3);
    assert_eq!(lab.target.effect_count(), 3);
    Ok(())
}

async fn a_reply_that_says_something_else_is_updated(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = worker(lab, &server).await?;
    let gate = Gate::new();
    lab.target.plan([Behaviour::Hang(gate.clone())]);
    let posted = async {
        gate.reached(1).await;
        let id = server.post(REPO, 42, &format!("at it\n\n{}\n", mark(42, "1")));
        gate.open();
        id
    };
    let body = event(42, "1");
    let (done, id) = tokio::join!(deliver(lab, &worker, &body), posted);
    ensure!(done?);
    let replies = server.replies(REPO, 42);
    assert_eq!(replies.len(), 1);
    assert_eq!((&replies[0].id, replies[0].updates), (&id, 1));
    ensure!(
        replies[0].body.contains("the target answered 200"),
        "{replies:?}"
    );
    assert_eq!(replies[0].links.to_string(), BRANCH);
    Ok(())
}

async fn a_target_that_refuses_is_answered_as_ever(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = worker(lab, &server).await?;
    lab.target.plan([
        Behaviour::Answer(422),
        Behaviour::RetryAfter(429, 77),
        Behaviour::Answer(401),
    ]);
    ensure!(deliver(lab, &worker, &event(42, "1")).await?);
    assert_eq!(
        lab.queues.messages(DEAD)[0].attributes["code"],
        "target_422"
    );
    assert_eq!(lab.record(&key(42, "1")).await?.status, Status::Failed);
    ensure!(!deliver(lab, &worker, &event(42, "2")).await?);
    assert_eq!(
        lab.queues.visibilities().last().map(|one| one.seconds),
        Some(77)
    );
    ensure!(!work(lab, &worker).await?);
    logged(lab, r#""outcome":"target_misconfigured""#).await?;
    ensure!(work(lab, &worker).await?);
    assert_eq!(server.replies(REPO, 42).len(), 1);
    assert_eq!(server.activity(), "");
    Ok(())
}

async fn a_thread_server_that_is_away_or_misconfigured_returns_the_event(
    lab: &Lab,
) -> anyhow::Result<()> {
    let server = server(lab).await?;
    server.require_token("right");
    let mut variables = variables(lab, &server);
    variables.insert("THREADS_TOKEN".to_owned(), "wrong-s3cr3t".to_owned());
    let wrong = lab.process("queue", &variables).await?;
    ensure!(!deliver(lab, &wrong, &event(42, "1")).await?);
    logged(lab, r#""outcome":"target_misconfigured""#).await?;
    logged(lab, r#""code":"threads_401""#).await?;
    variables.insert("THREADS_TOKEN".to_owned(), "right".to_owned());
    let right = lab.process("queue", &variables).await?;
    for act in [Act::Close, Act::Answer(503), Act::Fail] {
        server.plan("get_thread_context", [act]);
        ensure!(!work(lab, &right).await?);
    }
    let asked = lab.queues.visibilities();
    ensure!(
        asked.len() == 4 && asked.iter().all(|one| one.seconds >= 26),
        "{asked:?}"
    );
    assert_eq!(
        lab.ids().await?,
        Vec::<String>::new(),
        "nothing was claimed"
    );
    assert_eq!(lab.target.received().len(), 0);
    ensure!(work(lab, &right).await?);
    is_done_once(lab, &server, "1").await?;
    let lines = lab.log.text();
    let told = lines.lines().filter(|line| !line.contains("env -i"));
    ensure!(!told.collect::<String>().contains("wrong-s3cr3t"));
    Ok(())
}

async fn activity_decides_nothing(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let worker = worker(lab, &server).await?;
    server.plan(
        "update_activity",
        [Act::Fail, Act::Close, Act::Answer(500), Act::Answer(404)],
    );
    ensure!(deliver(lab, &worker, &event(42, "1")).await?);
    assert_eq!(server.activities(), Vec::<String>::new());
    is_done_once(lab, &server, "1").await
}

async fn what_a_thread_says_is_not_logged(lab: &Lab) -> anyhow::Result<()> {
    let server = server(lab).await?;
    let mut variables = variables(lab, &server);
    variables.insert("RUST_LOG".to_owned(), "debug".to_owned());
    let worker = lab.process("queue", &variables).await?;
    server.post(
        REPO,
        42,
        "s3cr3t: firstclaim-key: x\nfirstclaim-key: s3cr3t#\u{1b}[31m",
    );
    server.plan("create_reply", [Act::Fail]);
    ensure!(!deliver(lab, &worker, &event(42, "1")).await?);
    ensure!(work(lab, &worker).await?);
    logged(lab, r#""reply":"r-2""#).await?;
    ensure!(!lab.log.contains("s3cr3t"), "{}", lab.log.text());
    Ok(())
}

async fn five_responders_make_one_effect_and_one_reply(lab: &Lab) -> anyhow::Result<()> {
    let plan = Plan {
        events: 12,
        responders: 5,
        seed: 7,
    };
    let binary = lab.suite.binaries.path("queue")?;
    let report = run(plan, &binary, |_| {}).await?;
    ensure!(
        report.wrong().is_empty(),
        "{:?} in {report}",
        report.wrong()
    );
    ensure!(
        report.killed > 0 && report.dropped > 0,
        "nothing went wrong: {report}"
    );
    Ok(())
}
