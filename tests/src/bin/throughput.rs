//! Measures what working side by side brings, see [`integration::throughput`]:
//!
//! ```text
//! cargo run --profile campaign -p integration --bin throughput
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::process::ExitCode;

use integration::target::Behaviour;
use integration::throughput::{STORE, TARGET, measure};

/// How many messages are worked through.
const MESSAGES: usize = 500;

/// What is promised of ten records at once.
const LEAST: f64 = 7.0;

fn main() -> anyhow::Result<ExitCode> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    println!("store {STORE:?}, target {TARGET:?}, {MESSAGES} messages");
    let mut rates = Vec::new();
    for concurrency in [1, 10] {
        let measured = runtime.block_on(measure(MESSAGES, concurrency, Behaviour::Slow(TARGET)))?;
        #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
        let rate = MESSAGES as f64 / measured.took.as_secs_f64();
        println!(
            "concurrency {concurrency:>2}: {rate:>6.1} messages a second, at most {} calls of the \
             target at once",
            measured.peak
        );
        rates.push(rate);
    }
    let times = rates[1] / rates[0];
    println!("throughput: {times:.1} times");
    Ok(match times >= LEAST {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
