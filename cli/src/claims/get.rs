//! `firstclaim get`: the record of a key.

use clap::Args;
use firstclaim::Config;

use super::{Error, exit, key, print, print_json, store, view};
use crate::escape::Escaped;

/// The options of `firstclaim get`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit codes: 0 shown, 1 there is no record, 64 usage, 69 the store did not \
answer, or is not there. A key without '#' is in the scope 'cli'."
)]
pub struct Options {
    /// The key
    pub key: String,
    /// Where claims are, and how much is said
    #[command(flatten)]
    pub store: store::Options,
}

pub(super) async fn get(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let key = key(&options.key)?;
    let colours = colours(&environment);
    let (claims, _) = options.store.open(Config::default(), environment).await?;
    let Some(record) = claims.read(&key).await? else {
        let absent = format!("there is no record of {}", Escaped(key.as_str()));
        options.store.said().important(&absent);
        return Ok(exit::NO);
    };
    let result = claims.result(&record).await?;
    let now = claims.now();
    match options.store.json {
        true => print_json(&view::json(&record, result.as_deref(), now))?,
        false => print(&view::text(&record, result.as_deref(), now, colours))?,
    };
    Ok(0)
}

/// Whether stdout is a terminal whose user wants colours.
pub(super) fn colours(environment: impl Fn(&str) -> Option<String>) -> bool {
    wants_colours(&std::io::stdout(), environment)
}

/// Whether this is a terminal whose user wants colours.
pub(super) fn wants_colours(
    shown: &impl std::io::IsTerminal,
    environment: impl Fn(&str) -> Option<String>,
) -> bool {
    let set = |name| environment(name).filter(|value: &String| !value.is_empty());
    shown.is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_none_or(|terminal| terminal != "dumb")
}
