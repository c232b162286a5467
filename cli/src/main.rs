//! Reads the arguments, runs the command, says what went wrong.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use firstclaim_cli::arguments::{Arguments, Command, USAGE};
#[cfg(unix)]
use firstclaim_cli::claims;
use firstclaim_cli::escape::{Escaped, one_line};
#[cfg(unix)]
use firstclaim_cli::tail;
use firstclaim_cli::{check, dev, send};

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(done) = claims::inside_run(&std::env::args_os().collect::<Vec<_>>()) {
        return ended(done.map_err(Into::into));
    }
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
    ended(run(arguments.chosen()))
}

fn ended(done: anyhow::Result<u8>) -> ExitCode {
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Some of the causes have several lines.
            let text = one_line(&format!("{error:#}"));
            let _ = writeln!(std::io::stderr(), "firstclaim: {}", Escaped(&text));
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    let code = error.downcast_ref().map(dev::Error::exit_code);
    let code = code.or_else(|| error.downcast_ref().map(check::Error::exit_code));
    let code = code.or_else(|| error.downcast_ref().map(send::Error::exit_code));
    #[cfg(unix)]
    let code = code
        .or_else(|| error.downcast_ref().map(claims::Error::exit_code))
        .or_else(|| error.downcast_ref().map(tail::Error::exit_code));
    code.unwrap_or(1)
}

/// The command's exit code, or why it did nothing.
fn run(command: Command) -> anyhow::Result<u8> {
    let command = match command {
        // These need one thread, and start it themselves.
        #[cfg(unix)]
        Command::Claims(command) => return Ok(claims::execute(*command, environment)?),
        command => command,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(async {
        match command {
            Command::Dev(options) => Ok(dev::run(options, environment).await.map(|()| 0)?),
            Command::Check(options) => Ok(check::run(options, environment).await?),
            Command::Send(options) => Ok(send::run(options, environment).await?),
            #[cfg(unix)]
            Command::Tail(options) => Ok(tail::run(*options, environment).await.map(|()| 0)?),
            #[cfg(unix)]
            Command::Claims(_) => Ok(0),
        }
    });
    // Whatever still runs was given its time.
    runtime.shutdown_timeout(Duration::from_millis(500));
    done
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the lookup that is passed in everywhere"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
