//! The `webhook` function: wiring.

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::anyhow;
use tracing_subscriber::EnvFilter;
use webhook::Settings;

fn main() -> anyhow::Result<ExitCode> {
    let environment: HashMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let lookup = |name: &str| environment.get(name).cloned();
    let settings = match Settings::read(lookup) {
        Ok(settings) => settings,
        Err(faults) => {
            writeln!(std::io::stderr(), "{faults}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let filter = lookup("RUST_LOG").unwrap_or_else(|| "info".to_owned());
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(EnvFilter::new(filter))
        .init();
    // One thread: an invocation is one request, and what it waits for is the network.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(webhook::serve(settings))
        .map_err(|error| anyhow!(error))?;
    Ok(ExitCode::SUCCESS)
}
