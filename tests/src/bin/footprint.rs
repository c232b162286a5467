//! Measures the functions' binaries against the limits that the project sets itself:
//!
//! ```text
//! sam build && (cd tests/empty && cargo lambda build --release)
//! cargo run -p integration --bin footprint
//! ```
//!
//! The exit code is 1 where a limit is passed. Start times are those of this machine; the limit is
//! on what a function takes over the empty one, started in turn with it.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use integration::footprint::{Function, Yes, work};

/// The most that an archive may have, in bytes.
const ARCHIVE: u64 = 4 * 1024 * 1024;

/// The most that a start may take over that of an empty function.
const START: Duration = Duration::from_millis(8);

/// How often all the starts are made at the most, until they are within their limit.
const ROUNDS: u32 = 12;

/// The pause between two rounds: a machine that has just built something is slow for a while.
const PAUSE: Duration = Duration::from_secs(5);

/// The most memory at the first question for work, in KiB.
const FIRST_MEMORY: u64 = 12 * 1024;

/// The most memory of a worker after all events, in KiB.
const WARM_MEMORY: u64 = 30 * 1024;

/// What a function's binary weighs.
#[derive(Parser, Debug)]
struct Arguments {
    /// Where `cargo lambda build` puts its binaries.
    #[arg(long, default_value = "target/lambda")]
    binaries: PathBuf,
    /// How often each function is started.
    #[arg(long, default_value_t = 40)]
    starts: usize,
    /// How many events a worker handles before its memory is looked at again.
    #[arg(long, default_value_t = 10_000)]
    events: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    // reqwest is built without a TLS provider of its own choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measure(&arguments))
}

async fn measure(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let yes = Yes::start().await?;
    let functions = functions(arguments, &yes.url());
    let mut within = true;
    let mut said = |what: String, held: bool| {
        println!("{} {what}", if held { "ok  " } else { "OVER" });
        within &= held;
    };

    for function in [&functions[1], &functions[3]] {
        let bytes = function.archived()?;
        let name = &function.name;
        said(
            format!("{name}: archive {bytes} bytes, at most {ARCHIVE}"),
            bytes <= ARCHIVE,
        );
    }

    // The fastest counts: what else the machine does at the time can only add. So a limit that is
    // passed may be the machine's doing, and more starts tell.
    let mut fastest = vec![Duration::MAX; functions.len()];
    let mut memory = vec![0; functions.len()];
    for round in 0..ROUNDS {
        if round > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        for _ in 0..arguments.starts {
            // In turn, so that what disturbs one disturbs all.
            for (at, function) in functions.iter().enumerate() {
                let (process, took) = function.start().await?;
                fastest[at] = fastest[at].min(took);
                memory[at] = memory[at].max(process.resident_kib()?);
            }
        }
        if fastest.iter().all(|took| *took <= fastest[0] + START) {
            break;
        }
    }
    println!("     empty: first question for work after {:?}", fastest[0]);
    for (at, function) in functions.iter().enumerate().skip(1) {
        let over = fastest[at].saturating_sub(fastest[0]);
        let (name, took) = (&function.name, fastest[at]);
        said(
            format!(
                "{name}: first question for work after {took:?}, {over:?} over empty, at most {START:?}"
            ),
            over <= START,
        );
        let held = memory[at];
        said(
            format!("{name}: {held} KiB then, at most {FIRST_MEMORY}"),
            held <= FIRST_MEMORY,
        );
    }

    let worker = functions.last().context("no worker")?;
    let (process, _) = worker.start().await?;
    work(&process, arguments.events / 10).await?;
    let early = process.resident_kib()?;
    work(&process, arguments.events).await?;
    let late = process.resident_kib()?;
    said(
        format!(
            "{}: {late} KiB after {} events ({early} after a tenth), at most {WARM_MEMORY}",
            worker.name, arguments.events
        ),
        late <= WARM_MEMORY,
    );
    Ok(if within {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The empty function, the webhook, the worker with a threads server, and without one.
fn functions(arguments: &Arguments, services: &str) -> [Function; 4] {
    let binary = |name: &str| arguments.binaries.join(name).join("bootstrap");
    let common = [
        ("CLAIMS_TABLE", "claims"),
        ("AWS_ENDPOINT_URL", services),
        ("RUST_LOG", "info"),
    ];
    let senders = r#"{"github":{"scheme":"github","secrets":["sixteen bytes at least"]}}"#;
    let queue_url = format!("{services}/000000000000/work");
    let target = format!("{services}/apply");
    let webhook = [
        common.as_slice(),
        &[("QUEUE_URL", queue_url.as_str()), ("SENDERS", senders)],
    ];
    let queue = [common.as_slice(), &[("TARGET_URL", target.as_str())]].concat();
    let threads = [queue.as_slice(), &[("THREADS_URL", services)]];
    [
        Function::new("empty", &binary("empty"), &[]),
        Function::new("webhook", &binary("webhook"), &webhook.concat()),
        Function::new("queue with threads", &binary("queue"), &threads.concat()),
        Function::new("queue", &binary("queue"), &queue),
    ]
}
