//! `firstclaim settle`: what a person decides about a record, on exactly what that person saw.

use std::io::BufRead;
use std::io::Write;

use clap::Args;
use firstclaim::claims::{Resolution, Settling};
use firstclaim::{Config, Record};

use super::by_hand::json_or_text;
use super::get::{colours, wants_colours};
use super::view::State;
use super::{Error, exit, key, print, print_json, store, view, who};
use crate::check::chain;
use crate::escape::Escaped;
use crate::stdout::Reader;

/// The options of `firstclaim settle`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
It shows the record and asks. What it writes, it writes only if the record is still what was shown: \
its owner, attempt, status and lease. Whoever owned it can't write any more.

Exit codes: 0 settled, 1 no record or not confirmed, or settled and the record could not be printed \
(stderr says so), 64 usage, 69 the store did not answer, 82 the record changed meanwhile, and nothing \
was settled.")]
pub struct Options {
    /// The key
    pub key: String,
    /// It is done, and this is its result as JSON; what is no JSON is taken as a text
    #[arg(long, value_name = "RESULT", group = "resolution")]
    pub result: Option<String>,
    /// It is to run again: the next request may have the key at once
    #[arg(long, group = "resolution")]
    pub rerun: bool,
    /// With --rerun: another downstream key, so that a target does not replay a stored failure
    #[arg(long, requires = "rerun", conflicts_with_all = ["result", "forget"])]
    pub new_downstream_key: bool,
    /// Result, checkpoints and payload are forgotten: the next request starts from nothing
    #[arg(long, group = "resolution")]
    pub forget: bool,
    /// The reason, kept in the record
    #[arg(long, value_name = "TEXT", required = true)]
    pub why: String,
    /// Who decides, kept in the record (default: $USER@host)
    #[arg(long, value_name = "NAME")]
    pub who: Option<String>,
    /// Only if the record is at this attempt, for scripts that looked before
    #[arg(long, value_name = "NUMBER")]
    pub attempt: Option<u32>,
    /// Don't ask
    #[arg(long, short)]
    pub yes: bool,
    /// Where claims are, and how much is said
    #[command(flatten)]
    pub store: store::Options,
}

impl Options {
    fn resolution(&self) -> Result<(Resolution, &'static str), Error> {
        if self.why.trim().is_empty() {
            return Err(Error::Usage(
                "--why is empty; say what the decision rests on, for whoever reads the record"
                    .to_owned(),
            ));
        }
        Ok(match (&self.result, self.rerun, self.forget) {
            (Some(result), false, false) => {
                let result = Resolution::Result(json_or_text(result));
                (result, "record this result")
            }
            (None, true, false) => {
                let rerun = Resolution::Rerun {
                    new_generation: self.new_downstream_key,
                };
                match self.new_downstream_key {
                    true => (rerun, "let it run again, with a new downstream key"),
                    false => (rerun, "let it run again"),
                }
            }
            (None, false, true) => (
                Resolution::Forget,
                "forget its result, checkpoints and payload",
            ),
            _ => {
                return Err(Error::Usage(
                    "say what to do: --result RESULT, --rerun or --forget".to_owned(),
                ));
            }
        })
    }
}

pub(super) async fn settle(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let key = key(&options.key)?;
    let (resolution, deed) = options.resolution()?;
    let said = options.store.said();
    let colours = colours(&environment);
    let who = options.who.clone().unwrap_or_else(|| who(&environment));
    let (claims, _) = options.store.open(Config::default(), &environment).await?;
    let Some(seen) = claims.read(&key).await? else {
        let absent = format!("there is no record of {}", Escaped(key.as_str()));
        said.important(&absent);
        return Ok(exit::NO);
    };
    if let Some(attempt) = options.attempt.filter(|attempt| *attempt != seen.attempt) {
        said.important(&format!(
            "not settled: it is at attempt {}, not {attempt}",
            seen.attempt
        ));
        return Ok(exit::SUPERSEDED);
    }
    let result = claims.result(&seen).await?;
    let now = claims.now();
    if !options.yes {
        // Shown on stderr, which may be a terminal where stdout is none, and the other way round.
        let on_stderr = wants_colours(&std::io::stderr(), &environment);
        let shown = view::text(&seen, result.as_deref(), now, on_stderr);
        ask(&shown, &seen, State::of(&seen, now), deed);
        if !confirmed() {
            said.important("not settled");
            return Ok(exit::NO);
        }
    }
    let settling = claims.settle(&seen, resolution, who, &*options.why).await?;
    match settling {
        Settling::Recorded(record) => {
            let shown = match (options.store.json, &record) {
                (true, Some(record)) => print_json(&view::json(record, None, claims.now())),
                _ => Ok(Reader::There),
            };
            let settled = format!("settled: {key}, attempt {}", seen.attempt.saturating_add(1));
            said.stands(&settled, shown)?;
            Ok(0)
        }
        Settling::Changed(record) => {
            said.important(
                "not settled: the record is not what was shown any more; nothing was changed",
            );
            let now = claims.now();
            let shown = match (options.store.json, &record) {
                (_, None) => Ok(Reader::There),
                (true, Some(record)) => print_json(&view::json(record, None, now)),
                (false, Some(record)) => print(&view::text(record, None, now, colours)),
            };
            // That nothing was settled counts for more than how it was shown.
            if let Err(error) = shown {
                said.important(&chain(&error));
            }
            Ok(exit::SUPERSEDED)
        }
    }
}

/// Shows the record and the question on stderr, so that stdout stays the program's.
fn ask(shown: &str, seen: &Record, state: State, deed: &str) {
    let warning = match state {
        State::Running => {
            "\nSomebody is presumed to be at it: they lose the key, and go on until they notice.\n"
        }
        State::Completed => "\nIts result answers duplicates; what was replayed stays replayed.\n",
        _ => "",
    };
    let key = Escaped(&seen.id);
    let mut stderr = std::io::stderr();
    // With nobody to read the question nobody answers it.
    let _ = write!(stderr, "{shown}{warning}\nSettle {key}: {deed}? [y/N] ");
    let _ = stderr.flush();
}

fn confirmed() -> bool {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes")
}
