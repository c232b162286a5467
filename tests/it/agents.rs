//! Agents whose client is the protocol's own library (Python's), on a real table: what they are told
//! when they race, die, and when the store does not answer.

use anyhow::{Context, ensure};
use firstclaim::Status;
use integration::Lab;
use integration::peers::Agent;
use integration::process::command_line;
use integration::proxy::{Failure, Step};
use serde_json::{Value, json};

use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        peers:
            n10_two_agents_of_one_event_end_with_the_same_result,
            n41_p21_a_claim_whose_reply_was_lost_is_found_by_the_next_call,
            n43_a_store_that_does_not_answer_is_unavailable_and_never_lost,
            n48_a_client_that_is_killed_leaves_a_claim_that_lapses,
            read_only_and_scope_hold_for_the_library_too,
        ;
    ]
}

const KEY: &str = "thread#teams/platform/website:42:a1b2c3";

/// A client with a server on the lab's table.
async fn agent(lab: &Lab, mode: &str, options: &[&str]) -> anyhow::Result<Agent> {
    let program = command_line()?;
    let program = program.to_str().context("a path that is no text")?;
    let endpoint = lab.dynamodb.url();
    let mut server = vec![program, "mcp", "-q", "--table", &lab.table];
    server.extend(["--endpoint", &endpoint]);
    server.extend(options);
    lab.suite.peers.agent(mode, &server).await
}

/// A call with its answer, which must have this outcome.
async fn get(
    agent: &mut Agent,
    tool: &str,
    arguments: Value,
    outcome: &str,
) -> anyhow::Result<Value> {
    let heard = agent.call(tool, arguments).await?;
    ensure!(heard["told"]["outcome"] == outcome, "{tool}: {heard:#}");
    Ok(heard["told"].clone())
}

fn key() -> Value {
    json!({ "key": KEY })
}

async fn n10_two_agents_of_one_event_end_with_the_same_result(lab: &Lab) -> anyhow::Result<()> {
    let mut one = agent(lab, "legacy", &[]).await?;
    let mut other = agent(lab, "auto", &[]).await?;
    ensure!(
        one.hello["protocol"] == "2025-11-25",
        "{:?}",
        one.hello["protocol"]
    );
    ensure!(
        other.hello["protocol"] == "2026-07-28",
        "{:?}",
        other.hello["protocol"]
    );
    for agent in [&mut one, &mut other] {
        let instructions = agent.hello["instructions"].as_str().unwrap_or_default();
        ensure!(instructions.contains("claim the key before"), "{agent:?}");
        get(agent, "get_claim", key(), "absent").await?;
    }
    get(&mut one, "claim", key(), "claimed").await?;
    get(&mut other, "claim", key(), "in_flight").await?;
    let waiting = json!({ "key": KEY, "seconds": 60 });
    other.begin("wait", waiting).await?;
    let heard = other.hear().await?;
    ensure!(heard["total"] == 60.0, "{heard}");
    let result = json!({ "branch": "codex/thread-42" });
    let arguments = json!({ "key": KEY, "result": result });
    get(&mut one, "complete", arguments, "completed").await?;
    let told = loop {
        let heard = other.hear().await?;
        if heard.get("progress").is_none() {
            break heard["told"].clone();
        }
    };
    ensure!(told["outcome"] == "completed", "{told:#}");
    for agent in [&mut one, &mut other] {
        let told = get(agent, "claim", key(), "completed").await?;
        ensure!(told["untrusted"]["result"] == result, "{told:#}");
    }
    Ok(())
}

async fn n41_p21_a_claim_whose_reply_was_lost_is_found_by_the_next_call(
    lab: &Lab,
) -> anyhow::Result<()> {
    let mut agent = agent(lab, "legacy", &[]).await?;
    lab.dynamodb.always("PutItem", Step::DropReply);
    get(&mut agent, "claim", key(), "unavailable").await?;
    lab.dynamodb.heal();
    // It stands, and is the agent's own.
    ensure!(lab.record(KEY).await?.status == Status::InProgress);
    let mine = json!({ "key": KEY, "result": 1 });
    get(&mut agent, "complete", mine.clone(), "not_yours").await?;
    let told = get(&mut agent, "claim", key(), "claimed").await?;
    ensure!(told["attempt"] == 1, "{told:#}");

    lab.dynamodb.always("UpdateItem", Step::DropReply);
    get(&mut agent, "complete", mine.clone(), "unavailable").await?;
    lab.dynamodb.heal();
    get(&mut agent, "complete", mine, "completed").await?;
    ensure!(lab.record(KEY).await?.status == Status::Completed);
    Ok(())
}

async fn n43_a_store_that_does_not_answer_is_unavailable_and_never_lost(
    lab: &Lab,
) -> anyhow::Result<()> {
    let mut agent = agent(lab, "legacy", &[]).await?;
    get(&mut agent, "claim", key(), "claimed").await?;
    let calls = [
        ("get_claim", json!({})),
        ("claim", json!({})),
        ("wait", json!({ "seconds": 1 })),
        ("update_activity", json!({ "activity": "going on" })),
        ("checkpoint", json!({ "name": "branch", "value": 1 })),
        ("complete", json!({ "result": 1 })),
        ("release", json!({})),
    ];
    lab.dynamodb
        .always("GetItem", Step::Fail(Failure::AccessDenied));
    for (tool, mut arguments) in calls {
        arguments["key"] = KEY.into();
        let heard = agent.call(tool, arguments).await?;
        ensure!(
            heard["told"]["outcome"] == "unavailable" && heard["is_error"] == true,
            "{tool}: {heard:#}"
        );
        // To ask again is of no use here, which it must say.
        let problem = heard["told"]["problem"].as_str().unwrap_or_default();
        ensure!(problem.contains("a person must"), "{tool}: {heard:#}");
    }
    lab.dynamodb.heal();
    // Nothing of that has ended it.
    let told = get(&mut agent, "claim", key(), "claimed").await?;
    ensure!(told["held_before"] == true, "{told:#}");
    let value = json!({ "key": KEY, "name": "branch", "value": 1 });
    get(&mut agent, "checkpoint", value, "recorded").await?;
    Ok(())
}

async fn n48_a_client_that_is_killed_leaves_a_claim_that_lapses(lab: &Lab) -> anyhow::Result<()> {
    let mut one = agent(lab, "auto", &[]).await?;
    let mut other = agent(lab, "auto", &[]).await?;
    let short = json!({ "key": KEY, "lease_seconds": 3 });
    get(&mut one, "claim", short, "claimed").await?;
    let branch = json!({ "key": KEY, "name": "branch", "value": "codex/thread-42" });
    get(&mut one, "checkpoint", branch, "recorded").await?;
    other
        .begin("wait", json!({ "key": KEY, "seconds": 60 }))
        .await?;
    other.hear().await?;
    one.kill().await?;
    let told = loop {
        let heard = other.hear().await?;
        if heard.get("progress").is_none() {
            break heard["told"].clone();
        }
    };
    ensure!(told["outcome"] == "lapsed", "{told:#}");
    let told = get(&mut other, "claim", key(), "claimed").await?;
    ensure!(told["attempt"] == 2, "{told:#}");
    let checkpoints = &told["untrusted"]["checkpoints"];
    ensure!(checkpoints["branch"] == "codex/thread-42", "{told:#}");
    Ok(())
}

async fn read_only_and_scope_hold_for_the_library_too(lab: &Lab) -> anyhow::Result<()> {
    let mut agent = agent(lab, "auto", &["--read-only", "--scope", "thread"]).await?;
    let tools = json!(["get_claim", "wait"]);
    ensure!(agent.hello["tools"] == tools, "{:?}", agent.hello["tools"]);
    get(&mut agent, "get_claim", key(), "absent").await?;
    let told = get(&mut agent, "get_claim", json!({ "key": "own" }), "refused").await?;
    ensure!(told["problem"].is_string(), "{told:#}");
    Ok(())
}
