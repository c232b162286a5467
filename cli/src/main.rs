//! Reads the arguments, runs the command, says what went wrong.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use firstclaim_cli::arguments::{Arguments, Command, USAGE};
use firstclaim_cli::dev;
use firstclaim_cli::escape::Escaped;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(told) => {
            // With nobody to read it there is nothing else to do.
            let _ = told.print();
            return if told.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match run(arguments.chosen()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = one_line(&format!("{error:#}"));
            let _ = writeln!(std::io::stderr(), "firstclaim: {}", Escaped(&text));
            let code = error
                .downcast_ref::<dev::Error>()
                .map_or(1, dev::Error::exit_code);
            ExitCode::from(code)
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(async {
        match command {
            Command::Dev(options) => dev::run(options, environment).await,
        }
    });
    // Whatever still runs was given its time.
    runtime.shutdown_timeout(Duration::from_millis(500));
    Ok(done?)
}

/// Some of the causes below have several lines.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join("; ")
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the lookup that is passed in everywhere"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
