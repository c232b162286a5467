//! The arguments. Each command has a file of its own, with its options.

use clap::{Parser, Subcommand};

#[cfg(unix)]
use crate::claims;
#[cfg(unix)]
use crate::tail;
use crate::{check, dev, send};

/// The exit code for arguments that can't be read.
pub const USAGE: u8 = 64;

/// The same event arrives twice, and the work is done once.
#[derive(Debug, Parser)]
#[command(
    name = "firstclaim",
    version,
    after_help = "Without a command, `dev` is run."
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole system on this machine: webhook, queue, worker, DynamoDB and a target
    Dev(dev::Options),
    /// Look whether a deployment can do its work: table, claims, queues, secrets, target
    Check(check::Options),
    /// Sign a sample as its sender would, send it, and show the answers
    Send(send::Options),
    /// Follow a thread server's event stream, and hand each event to a queue or a webhook
    #[cfg(unix)]
    Tail(Box<tail::Options>),
    /// The commands for claims.
    #[cfg(unix)]
    #[command(flatten)]
    Claims(Box<claims::Command>),
}

impl Arguments {
    /// The command, which is `dev` with its defaults where none is given.
    #[must_use]
    pub fn chosen(self) -> Command {
        self.command
            .unwrap_or_else(|| Command::Dev(dev::Options::default()))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_holds() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn no_command_is_dev_with_its_defaults() {
        let parse = |arguments: &[&str]| Arguments::try_parse_from(arguments).unwrap().chosen();
        let (without, with) = (parse(&["firstclaim"]), parse(&["firstclaim", "dev"]));
        let (Command::Dev(without), Command::Dev(with)) = (without, with) else {
            panic!("another command");
        };
        assert_eq!(without, with);
    }
}
