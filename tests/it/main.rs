//! The integration tests: the store, the claims and the handlers over a real DynamoDB engine.

// That a test which drives the worker is `Send` follows from its whole tree of calls, down to the
// SDK's connection, which is deeper than the compiler looks by itself.
#![recursion_limit = "256"]

mod registry;

mod agents;
mod claims;
mod command_line;
mod deployment;
mod door;
mod faults;
mod hostile;
mod outcomes;
mod peers;
mod powertools;
mod recovery;
mod store;
mod threads;
mod whole;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use integration::Engine;
use integration::deliveries::Deliveries;
use integration::engine::SelfTest;
use integration::lab::Suite;
use integration::peers::Peers;
use integration::process::Binaries;
use libtest_mimic::Arguments;

/// How many tests run at once unless the arguments say otherwise. They mostly wait for each other's
/// processes, so that more than the number of cores pays.
const THREADS: usize = 6;

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    // reqwest is built without a TLS provider of its own choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()?;
    let tests = [
        store::tests(),
        agents::tests(),
        claims::tests(),
        command_line::tests(),
        deployment::tests(),
        door::tests(),
        faults::tests(),
        hostile::tests(),
        outcomes::tests(),
        recovery::tests(),
        peers::tests(),
        powertools::tests(),
        threads::tests(),
        worker::tests(),
        whole::tests(),
    ]
    .concat();

    if arguments.list {
        libtest_mimic::run(&arguments, registry::listed(tests)).exit_if_failed();
        return Ok(ExitCode::SUCCESS);
    }

    let engine = runtime.block_on(Engine::start(variable("FIRSTCLAIM_TEST_ENDPOINT")))?;
    let verdict = runtime
        .block_on(engine.self_test())
        .with_context(|| format!("the engine at {} failed its self test", engine.endpoint()))?;
    let suite = Suite {
        engine: engine.clone(),
        binaries: Binaries::find(variable("FIRSTCLAIM_TEST_BIN_DIR").map(Into::into))?,
        deliveries: Deliveries::new(),
        peers: Peers::find(variable("FIRSTCLAIM_TEST_PEERS").is_some())?,
    };
    let races = verdict == SelfTest::OneWinnerEach;
    let runtime = Arc::new(runtime);
    let conclusion =
        libtest_mimic::run(&arguments, registry::trials(tests, &suite, &runtime, races));
    say(&engine.report(&verdict));
    Ok(conclusion.exit_code())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the tests read their environment"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[expect(clippy::print_stdout, reason = "the suite's last line")]
fn say(line: &str) {
    println!("{line}");
}
