//! How a claim is made: the options that all commands which claim have in common.

use std::time::Duration;

use clap::Args;
use firstclaim::{Config, Fingerprint, Policy};

use super::Error;
use super::duration::parse;

/// How a claim is made; the same for `run`.
#[derive(Args, Clone, Debug)]
pub struct Terms {
    /// Until when the owner is presumed alive, from now on
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse)]
    pub lease: Duration,
    /// Wait so long for somebody who is at it, in place of an immediate exit with 75
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse)]
    pub wait: Duration,
    /// After a crash or an unknown outcome nobody takes over: a person settles it
    #[arg(long)]
    pub hold: bool,
    /// Bind the key to this payload; may be repeated, and several count as a list. JSON counts as its
    /// value, and @FILE as the file's content
    #[arg(long, value_name = "TEXT|@FILE")]
    pub fingerprint: Vec<String>,
    /// For how long the finished record answers duplicates
    #[arg(long, value_name = "TIME", default_value = "31d", value_parser = parse)]
    pub window: Duration,
    /// How far clocks may differ: the work ends so long before its lease
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse)]
    pub grace: Duration,
}

impl Terms {
    /// The configuration that these terms fit in.
    pub(super) fn config(&self) -> Config {
        let usual = Config::default();
        Config {
            window: self.window,
            grace: self.grace,
            // No claim of this process has another one.
            longest_lease: self.lease,
            policy: self.policy(),
            ..usual
        }
    }

    pub(super) fn policy(&self) -> Policy {
        match self.hold {
            true => Policy::Hold,
            false => Policy::Rerun,
        }
    }

    pub(super) fn fingerprint(&self) -> Result<Option<Fingerprint>, Error> {
        let parts = self
            .fingerprint
            .iter()
            .map(|text| match text.strip_prefix('@') {
                None => Ok(text.clone().into_bytes()),
                Some(file) => std::fs::read(file).map_err(|source| {
                    Error::Usage(format!("the payload in {file} can't be read: {source}"))
                }),
            });
        let parts: Vec<Vec<u8>> = parts.collect::<Result<_, _>>()?;
        Ok(match parts.as_slice() {
            [] => None,
            [only] => Some(Fingerprint::of_bytes(only)),
            several => {
                let each = several
                    .iter()
                    .map(|part| Fingerprint::of_bytes(part).to_hex());
                let joined: Vec<String> = each.collect();
                Some(Fingerprint::of_bytes(joined.join("\n").as_bytes()))
            }
        })
    }
}
