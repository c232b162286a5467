//! Wakes several responders by each event of a few threads and kills them, see
//! [`integration::responders`]:
//!
//! ```text
//! cargo build -p queue && cargo run -p integration --bin responders -- --events 200
//! ```
//!
//! The exit code is 0 where each event has one effect, one reply and one result, and nobody says
//! that he is at it any more.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people"
)]

use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use integration::responders::{Plan, run};

/// The responders: several workers for each event, killed workers, a threads server that loses
/// answers, a target that fails.
#[derive(Parser, Debug)]
struct Arguments {
    /// How many events there are; each is delivered to every responder.
    #[arg(long, default_value_t = 200)]
    events: usize,
    /// How many responders there are.
    #[arg(long, default_value_t = 5)]
    responders: usize,
    /// The seed of everything random; an odd one takes a threads server of an older revision.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The queue function's binary; else the one beside this program.
    #[arg(long)]
    queue: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let plan = Plan {
        events: arguments.events,
        responders: arguments.responders.max(1),
        seed: arguments.seed,
    };
    let queue = match arguments.queue {
        Some(queue) => queue,
        None => {
            let own = std::env::current_exe()?;
            own.parent().context("no directory")?.join("queue")
        }
    };
    ensure!(
        queue.is_file(),
        "{} is missing: run `cargo build -p queue`",
        queue.display()
    );
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()?;
    let (started, last) = (Instant::now(), Cell::new(Instant::now()));
    let show = |left: usize| {
        if last.get().elapsed() > Duration::from_secs(10) {
            last.set(Instant::now());
            let seconds = started.elapsed().as_secs();
            eprintln!("{seconds:>5} s  {left} deliveries are left");
        }
    };
    let report = runtime.block_on(run(plan, &queue, show))?;
    println!("{:?}, {} calls of the target", report.took, report.calls);
    println!("responders: {report}");
    let wrong = report.wrong();
    for one in &wrong {
        println!("wrong: {one}");
    }
    Ok(match wrong.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
