//! The command line on a store that refuses, hangs and loses replies.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use firstclaim::Status;
use firstclaim::clock::{Source, SystemSource};
use integration::Lab;
use integration::lab::WORK;
use integration::poll::until;
use integration::process::command_line;
use integration::proxy::{ANY, Failure, Gate, Step};
use tokio::process::{Child, Command};

use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            a19_a_store_that_refuses_for_half_a_lease_at_a_time_costs_nothing,
            a19_a_store_that_refuses_for_a_whole_lease_ends_the_command_before_the_lease,
            a19_a_store_that_hangs_for_a_whole_lease_ends_the_command_before_the_lease,
            n43_a_claim_that_can_not_be_read_back_is_unavailable_and_never_lost,
            n43_an_owner_that_can_not_be_read_is_unavailable_and_never_lost,
            p21_a13_a_claim_whose_reply_was_lost_runs_once,
            p28_a_result_that_can_not_be_recorded_is_told,
            n10_what_the_worker_did_is_not_done_again_by_a_command,
            n10_what_a_command_did_is_not_done_again_by_the_worker,
        ;
        race:
    ]
}

/// How long any of these processes may take.
const BOUND: Duration = Duration::from_secs(60);

/// The lease of the long commands, and the grace that they end before it.
const LEASE: Duration = Duration::from_secs(3);
const TERMS: [&str; 4] = ["--lease", "3s", "--grace", "500ms"];

/// A folder for what the commands write. Removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let name = format!("firstclaim-it-{}", SystemSource.token().expose());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    async fn wait_for(&self, name: &str) -> anyhow::Result<()> {
        until(name, BOUND, async || {
            Ok((!self.read(name).is_empty()).then_some(()))
        })
        .await
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind lies in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command line on the lab's table through its proxy.
fn start(lab: &Lab, folder: &Path, arguments: &[&str]) -> anyhow::Result<Child> {
    let binary = command_line()?;
    lab.log
        .line("firstclaim", &format!("$ {}", arguments.join(" ")));
    Command::new(&binary)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("FIRSTCLAIM_TABLE", &lab.table)
        .env("FIRSTCLAIM_ENDPOINT", lab.dynamodb.url())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} could not be started", binary.display()))
}

/// Waits for its end, which must come with this code.
async fn ended(lab: &Lab, child: Child, code: i32) -> anyhow::Result<Output> {
    let output = tokio::time::timeout(BOUND, child.wait_with_output())
        .await
        .context("it did not end")??;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    lab.log.line("firstclaim", &said);
    ensure!(
        output.status.code() == Some(code),
        "ended with {}, not {code}: {said}",
        output.status
    );
    Ok(output)
}

async fn done(lab: &Lab, arguments: &[&str], code: i32) -> anyhow::Result<Output> {
    let folder = Folder::new()?;
    ended(lab, start(lab, &folder.0, arguments)?, code).await
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn run<'a>(key: &'a str, script: &'a str) -> Vec<&'a str> {
    let mut arguments = vec!["run", "--key", key];
    arguments.extend(TERMS);
    arguments.extend(["--", "sh", "-c", script]);
    arguments
}

/// Several leases long; the store refuses for half a lease at a time.
async fn a19_a_store_that_refuses_for_half_a_lease_at_a_time_costs_nothing(
    lab: &Lab,
) -> anyhow::Result<()> {
    let folder = Folder::new()?;
    let script = "echo x >> effects; until [ -e go ]; do sleep 0.05; done; echo through";
    let child = start(lab, &folder.0, &run("cli#long", script))?;
    folder.wait_for("effects").await?;
    let lease = async || Ok::<_, anyhow::Error>(lab.record("cli#long").await?.lease);
    for _ in 0..4 {
        let before = lease().await?;
        lab.dynamodb
            .always("UpdateItem", Step::Fail(Failure::Internal));
        // The outage itself.
        tokio::time::sleep(LEASE / 2).await;
        lab.dynamodb.heal();
        until("a renewal", BOUND, async || {
            Ok((lease().await? > before).then_some(()))
        })
        .await?;
    }
    std::fs::write(folder.0.join("go"), "")?;
    let output = ended(lab, child, 0).await?;
    assert_eq!(stdout(&output), "through");
    assert_eq!(folder.read("effects"), "x\n");
    assert_eq!(lab.record("cli#long").await?.status, Status::Completed);
    Ok(())
}

async fn a19_a_store_that_refuses_for_a_whole_lease_ends_the_command_before_the_lease(
    lab: &Lab,
) -> anyhow::Result<()> {
    outlives_the_store(lab, Step::Fail(Failure::Internal)).await
}

async fn a19_a_store_that_hangs_for_a_whole_lease_ends_the_command_before_the_lease(
    lab: &Lab,
) -> anyhow::Result<()> {
    outlives_the_store(lab, Step::Hold(Gate::new())).await
}

/// The command, which does not listen to SIGTERM, and its child note the time as long as they live.
async fn outlives_the_store(lab: &Lab, step: Step) -> anyhow::Result<()> {
    let folder = Folder::new()?;
    let script = "trap '' TERM; \
                  (while :; do date +%s%3N > child; sleep 0.02; done) & \
                  while :; do date +%s%3N > parent; sleep 0.02; done";
    let child = start(lab, &folder.0, &run("cli#cut-off", script))?;
    folder.wait_for("child").await?;
    lab.dynamodb.always(ANY, step);
    let output = ended(lab, child, 82).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(said.contains("lease lost"), "{said}");
    let stored = lab.record("cli#cut-off").await?;
    let end = stored.lease.context("no lease")?;
    ensure!(end.0 > 1, "nothing could be written: {stored:?}");
    let last = (folder.read("child"), folder.read("parent"));
    for beat in [&last.0, &last.1] {
        // A file that was just being written when its writer was killed is empty.
        let beat = beat.trim().parse::<i64>().unwrap_or(0);
        ensure!(beat < end.0, "{beat} is not before {end:?}");
    }
    // Nobody writes any more.
    until("the lease to be over", BOUND, async || {
        Ok((SystemSource.now() > end).then_some(()))
    })
    .await?;
    ensure!(
        (folder.read("child"), folder.read("parent")) == last,
        "something lives on"
    );
    Ok(())
}

/// The ways in which a read does not tell.
fn unreadable() -> [Step; 4] {
    [
        Step::Fail(Failure::Internal),
        Step::Fail(Failure::Throttled),
        Step::DropReply,
        Step::Empty,
    ]
}

/// A refusal comes without the item, and the read that should bring it tells nothing.
async fn n43_a_claim_that_can_not_be_read_back_is_unavailable_and_never_lost(
    lab: &Lab,
) -> anyhow::Result<()> {
    done(lab, &["claim", "k"], 0).await?;
    let stands = lab.record("cli#k").await?;
    for step in unreadable() {
        lab.dynamodb.always("PutItem", Step::StripItem);
        lab.dynamodb.always("GetItem", step.clone());
        for arguments in [
            &["claim", "k"][..],
            &["run", "--key", "k", "--", "touch", "ran"],
        ] {
            let folder = Folder::new()?;
            let output = ended(lab, start(lab, &folder.0, arguments)?, 69).await;
            output.with_context(|| format!("{step:?}"))?;
            ensure!(!folder.0.join("ran").exists(), "{step:?}: it ran");
        }
        lab.dynamodb.heal();
        // The lost race has another code.
        lab.dynamodb.always("PutItem", Step::StripItem);
        done(lab, &["claim", "k"], 75).await?;
        lab.dynamodb.heal();
    }
    ensure!(
        lab.record("cli#k").await? == stands,
        "something was written"
    );
    Ok(())
}

async fn n43_an_owner_that_can_not_be_read_is_unavailable_and_never_lost(
    lab: &Lab,
) -> anyhow::Result<()> {
    let owner = stdout(&done(lab, &["claim", "k"], 0).await?);
    let completing = ["complete", "k", "1", "--owner", &owner];
    for step in unreadable() {
        lab.dynamodb.always("GetItem", step);
        done(lab, &completing, 69).await?;
        lab.dynamodb.heal();
    }
    done(lab, &["complete", "k", "1", "--owner", "stranger"], 82).await?;
    // Nothing was given up: the owner still is one.
    done(lab, &completing, 0).await?;
    Ok(())
}

async fn p21_a13_a_claim_whose_reply_was_lost_runs_once(lab: &Lab) -> anyhow::Result<()> {
    let folder = Folder::new()?;
    lab.dynamodb.plan("PutItem", [Step::DropReply]);
    lab.dynamodb.plan("UpdateItem", [Step::DropReply]);
    let arguments = run("cli#lost", "echo x >> effects; echo done");
    let output = ended(lab, start(lab, &folder.0, &arguments)?, 0).await?;
    assert_eq!(stdout(&output), "done");
    let again = ended(lab, start(lab, &folder.0, &arguments)?, 0).await?;
    assert_eq!(stdout(&again), "done");
    assert_eq!(folder.read("effects"), "x\n");
    Ok(())
}

async fn p28_a_result_that_can_not_be_recorded_is_told(lab: &Lab) -> anyhow::Result<()> {
    lab.dynamodb
        .always("UpdateItem", Step::Fail(Failure::Internal));
    let output = done(lab, &run("cli#mute", "echo did it"), 69).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        said.contains("not recorded") && said.contains("exit code 0"),
        "{said}"
    );
    assert_eq!(stdout(&output), "did it");
    Ok(())
}

async fn n10_what_the_worker_did_is_not_done_again_by_a_command(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    lab.queues
        .send(WORK, r#"{"key": "k1", "payload": {"n": 1}}"#);
    lab.drain(&[worker]).await?;
    assert_eq!(lab.target.effect_count(), 1);
    let output = done(lab, &run("queue#k1", "echo ran"), 0).await?;
    ensure!(!stdout(&output).contains("ran"), "{}", stdout(&output));
    Ok(())
}

async fn n10_what_a_command_did_is_not_done_again_by_the_worker(lab: &Lab) -> anyhow::Result<()> {
    done(lab, &run("queue#k2", "echo ran"), 0).await?;
    let worker = lab.queue().await?;
    lab.queues
        .send(WORK, r#"{"key": "k2", "payload": {"n": 1}}"#);
    lab.drain(&[worker]).await?;
    assert_eq!(lab.target.effect_count(), 0);
    Ok(())
}
