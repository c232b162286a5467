//! `firstclaim completions`: for bash, elvish, fish, PowerShell and zsh.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Error;
use crate::arguments::Arguments;

/// The options of `firstclaim completions`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "For bash: firstclaim completions bash > \
~/.local/share/bash-completion/completions/firstclaim")]
pub struct Options {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the completions to stdout.
pub(super) fn print(options: &Options) -> Result<u8, Error> {
    let mut text = Vec::new();
    clap_complete::generate(
        options.shell,
        &mut Arguments::command(),
        "firstclaim",
        &mut text,
    );
    super::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}
