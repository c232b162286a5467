//! Wiring.

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use queue::Settings;
use tracing_subscriber::EnvFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the function's log; if it is closed, there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let environment: HashMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let settings = Settings::read_in_lambda(|name| environment.get(name).cloned())?;
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_span_list(false)
        .with_env_filter(EnvFilter::try_new(&settings.log_filter)?)
        .init();
    queue::serve(settings)
        .await
        .context("the queue function can't serve")
}
