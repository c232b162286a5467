//! What `firstclaim run` costs beside the bare command, as whole processes: `true` alone, behind
//! `flock`, run under a new key, and replayed.
//!
//! The store is a file on the disk that `target/` is on; a file system in memory would hide what the
//! writes cost.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench that fails has no figures"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tempfile::TempDir;

/// A folder on the disk, with a store in it.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// `run --key KEY -- true` on the store in `folder`.
fn guarded(folder: &Path, key: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstclaim"));
    command
        .args(["run", "-q", "--key", key, "--", "true"])
        .env("FIRSTCLAIM_DATA", folder);
    command
}

/// Runs it to its end, which must be a good one.
fn end(mut command: Command) {
    let command = command.stdin(Stdio::null());
    let status = command.status().expect("a command that can be started");
    assert!(status.success());
}

fn run(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("true");
    group.measurement_time(Duration::from_secs(10));
    group.bench_function("bare", |bencher| {
        bencher.iter(|| end(Command::new("true")));
    });
    let locks = folder();
    let flock = || {
        let mut command = Command::new("flock");
        command.arg(locks.path().join("lock")).arg("true");
        command
    };
    // Not every system has one.
    if flock().status().is_ok_and(|status| status.success()) {
        group.bench_function("flock", |bencher| bencher.iter(|| end(flock())));
    }
    let store = folder();
    let mut number = 0;
    let mut new_key = || {
        number += 1;
        guarded(store.path(), &format!("key-{number}"))
    };
    group.bench_function("run, a new key", |bencher| {
        bencher.iter_batched(&mut new_key, end, BatchSize::PerIteration);
    });
    group.bench_function("run, replayed", |bencher| {
        bencher.iter(|| end(guarded(store.path(), "key-1")));
    });
    group.finish();
}

criterion_group!(benches, run);
criterion_main!(benches);
