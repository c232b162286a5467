//! The `webhook` function: wiring.

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;
use webhook::ServeError;

fn main() -> anyhow::Result<ExitCode> {
    let environment: HashMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let lookup = |name: &str| environment.get(name).cloned();
    let filter = lookup("RUST_LOG").filter(|filter| !filter.is_empty());
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(EnvFilter::new(filter.as_deref().unwrap_or("info")))
        .init();
    // One thread: an invocation is one request, and what it waits for is the network.
    let served = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(webhook::serve(lookup));
    match served {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ServeError::Faults(faults)) => {
            writeln!(std::io::stderr(), "{faults}")?;
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error.into()),
    }
}
