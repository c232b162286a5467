//! Runs the soak, see [`integration::soak`]:
//!
//! ```text
//! cargo run --release -p integration --bin soak -- --messages 100000
//! ```
//!
//! `--profile campaign` in place of `--release` builds faster. The workers are this program too,
//! started as the queue function is, so that they are always of the same build. The exit code is 0 where no effect was doubled, nothing was lost, the queue is
//! empty and the worker's memory did not grow.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people"
)]

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use integration::soak::{Plan, Progress, run};

/// From so many messages on, a tenth of them fills what a worker keeps on purpose.
const STEADY: usize = 20_000;

/// How much the memory may grow between a tenth of the way and the end.
const GROWTH: f64 = 1.1;

/// The soak: many messages, duplicates, a failing target, killed workers.
#[derive(Parser, Debug)]
struct Arguments {
    /// How many messages are sent; three of ten are duplicates.
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
    /// How many workers there are; all but the first are killed now and then.
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// The seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> anyhow::Result<ExitCode> {
    let environment: HashMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    if environment.contains_key("AWS_LAMBDA_RUNTIME_API") {
        return work(&environment);
    }
    let arguments = Arguments::parse();
    let plan = Plan {
        messages: arguments.messages,
        workers: arguments.workers.max(1),
        seed: arguments.seed,
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let own = std::env::current_exe()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()?;
    let shown = Shown::new(plan.messages);
    let report = runtime.block_on(run(plan, &own, |progress| shown.show(progress)))?;
    shown.end();
    println!(
        "{:?}, {} calls of the target, {} workers killed, {} dead letters, {} messages left",
        report.took, report.calls, report.killed, report.dead, report.left
    );
    let mut grew = false;
    if let Some((tenth, end)) = report.resident {
        #[expect(clippy::cast_precision_loss, reason = "sizes of processes")]
        let times = end as f64 / tenth as f64;
        println!(
            "resident memory of worker 0, which is never killed: {} KiB at a tenth, {} KiB at the \
             end, {times:.2} times",
            tenth / 1024,
            end / 1024
        );
        grew = plan.messages >= STEADY && times > GROWTH;
    }
    println!(
        "soak: {} messages, {} keys, {} effects, {} doubled, {} lost",
        report.messages, report.keys, report.effects, report.doubled, report.lost
    );
    let wrong = report.doubled > 0 || report.lost > 0 || report.left > 0 || grew;
    Ok(if wrong {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// What the queue function's own `main` does, less its log.
fn work(environment: &HashMap<String, String>) -> anyhow::Result<ExitCode> {
    let settings = queue::Settings::read_in_lambda(|name| environment.get(name).cloned())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(queue::serve(settings))?;
    Ok(ExitCode::SUCCESS)
}

/// The progress on standard error: one line that changes on a terminal, else a line now and then.
struct Shown {
    messages: usize,
    started: Instant,
    last: Cell<Option<Instant>>,
}

impl Shown {
    fn new(messages: usize) -> Self {
        Self {
            messages,
            started: Instant::now(),
            last: Cell::new(None),
        }
    }

    fn show(&self, progress: Progress) {
        let terminal = std::io::stderr().is_terminal();
        let pause = Duration::from_secs(if terminal { 0 } else { 10 });
        if self.last.get().is_some_and(|last| last.elapsed() < pause) {
            return;
        }
        self.last.set(Some(Instant::now()));
        let Progress { sent, done, killed } = progress;
        let line = format!(
            "{:>5} s  {sent} of {} sent, {done} done, {killed} workers killed",
            self.started.elapsed().as_secs(),
            self.messages
        );
        if terminal {
            eprint!("\r{line}");
            // What can't be shown is no reason to stop.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    fn end(&self) {
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}
