//! `firstclaim run`: a command, once per key.
//!
//! While the command runs, this process renews the lease. If the lease is lost, the command and its
//! children are ended before anybody else may begin. If this process is killed, the operating system
//! ends the command, and a watchdog its children; if this process is merely stopped, the watchdog
//! ends both when the lease is over. What outlives all three is found by the next attempt on the
//! same machine, and ended before that one starts.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use firstclaim::claims::{Claim, Claimed, Ended};
use firstclaim::clock::Source;
use firstclaim::record::Owner;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Answer, Key, Outcome, StoredFailure};

mod attend;
mod child;
mod ending;
mod orphans;
mod output;
mod replay;
mod signals;
mod stored;
mod watchdog;

pub use child::{ExecOptions, exec};
pub use watchdog::run as watchdog;

use super::by_hand::origin;
use super::duration::{about, parse};
use super::said::Said;
use super::terms::Terms;
use super::{Error, FileOrTable, SOURCE, exit, key, store};
use attend::{Attended, Bounds, Course};
use child::Program;
use ending::Ending;
use signals::Signals;
use stored::Stored;

/// How long a claim that is being made when a signal comes is waited for, so that it can be given
/// back.
const CLAIMING: Duration = Duration::from_secs(1);

/// How long a lease can be renewed beyond the command's longest time: what ending earlier processes,
/// starting the command and ending it may take.
const BEYOND: Duration = Duration::from_secs(30);

/// The options of `firstclaim run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
The first one runs the command; duplicates get its stdout, stderr and exit code. At most 128 KiB of \
each stream are stored, and a replay says where they were cut. The command's environment has \
FIRSTCLAIM_KEY, FIRSTCLAIM_OWNER, FIRSTCLAIM_ATTEMPT, FIRSTCLAIM_DOWNSTREAM_KEY and the store's \
variables, so that `firstclaim activity` and the like just work inside. It has no terminal of its \
own, and Ctrl-C reaches it through this process.

Exit codes: the command's own when it ran or is replayed; 64 usage, 69 the store did not answer, 75 \
somebody is at it, 80 held, 81 bound to another payload, 82 superseded or lease lost; 126, 127 and \
128+n as shells do. 1 too, where the command ended with 0 and its output could not be written.")]
pub struct Options {
    /// The key: what the command is to be done once for; one that begins with a hyphen is given as
    /// --key=-x
    // A hyphen begins an option here: with an empty variable for the key, the next option would
    // become the one key of every event.
    #[arg(long, value_name = "KEY")]
    pub key: String,
    /// How to claim it
    #[command(flatten)]
    pub terms: Terms,
    /// End the command when it has run for so long; the key is given back (held with --hold)
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse)]
    pub max: Duration,
    /// What is stored for duplicates
    #[arg(long, value_name = "WHAT", value_enum, default_value = "output")]
    pub store: StoreWhat,
    /// What an exit code other than 0 means
    #[arg(long, value_name = "WHAT", value_enum, default_value = "release")]
    pub on_failure: OnFailure,
    /// Where claims are, and how much is said
    #[command(flatten)]
    pub place: store::Options,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What is stored for duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreWhat {
    /// stdout, stderr and the exit code
    Output,
    /// Only the exit code
    Exit,
}

/// What an exit code other than 0 means for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnFailure {
    /// The key is given back, and the next one runs the command again (under --hold it is held)
    Release,
    /// It is remembered as the result, and duplicates get it
    Remember,
}

/// What this process knows while it goes through a run.
struct Run<'a> {
    options: &'a Options,
    claims: FileOrTable,
    place: store::Place,
    said: Said,
}

pub(super) async fn run(
    options: Options,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let key = key(&options.key)?;
    let fingerprint = options.terms.fingerprint()?;
    let mut signals = Signals::new().map_err(|source| Error::Io {
        what: "signals can't be listened to".to_owned(),
        source,
    })?;
    let config = options.terms.config();
    let (claims, place) = options.place.open_to_claim(config, environment).await?;
    let mut once = claims
        .once(key)
        .lease(options.terms.lease)
        // The command is ended at --max by this process; a lease that went before would end it as
        // one that is lost.
        .renewed(
            options
                .max
                .saturating_add(BEYOND)
                .saturating_add(options.terms.grace * 2),
        )
        .window(options.terms.window)
        .policy(options.terms.policy())
        .wait_for(options.terms.wait)
        .activity(format!("running {}", Program::name(&options.command)));
    if let Some(fingerprint) = fingerprint {
        once = once.fingerprint(fingerprint);
    }
    let run = Run {
        said: options.place.said(),
        options: &options,
        claims,
        place,
    };
    let mut claiming = std::pin::pin!(origin("run", environment).scope(once.claim()));
    let claimed = tokio::select! {
        claimed = &mut claiming => claimed?,
        signal = signals.next_end() => {
            // It may just be landing, and would block the key until its lease is over.
            if let Ok(Ok(Claimed::Held(claim))) = tokio::time::timeout(CLAIMING, claiming).await {
                run.not_run(claim, "interrupted", "a signal came before the command").await;
            }
            run.said.important("a signal came before the command: nothing ran");
            return Ok(signal.exit_code());
        }
    };
    let ending = match claimed {
        Claimed::Held(claim) => run.perform(claim, &mut signals, environment).await?,
        Claimed::Answered(outcome) => run.answer(outcome).await?,
    };
    ending.show(run.said, &mut signals).await
}

impl Run<'_> {
    /// The claim is ours: runs the command, and ends the claim.
    async fn perform(
        &self,
        claim: Claim<DynamoDb>,
        signals: &mut Signals,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Ending, Error> {
        if let Err(error) = orphans::end(claim.key(), claim.attempt(), &self.place).await {
            let text = error.to_string();
            self.not_run(claim, "orphan", &text).await;
            return Ok(Ending::important(exit::IN_FLIGHT, text));
        }
        let program = match Program::find(&self.options.command, environment) {
            Ok(program) => program,
            Err(error) => {
                self.not_run(claim, "not_started", &error.to_string()).await;
                return Ok(Ending::important(error.exit_code(), error.to_string()));
            }
        };
        let started = program.start(&claim, &self.place, self.options.place.json);
        let (child, watchdog) = match started {
            Ok(started) => started,
            Err(error) => {
                let text = format!("the command could not be started: {error}");
                self.not_run(claim, "not_started", &text).await;
                return Ok(Ending::important(exit::NOT_EXECUTABLE, text));
            }
        };
        let bounds = Bounds {
            grace: self.options.terms.grace,
            max: self.options.max,
        };
        let attending = attend::attend(&self.claims, &claim, child, watchdog, signals, bounds);
        let attended = claim.renewing(attending).await;
        let key = claim.key().clone();
        let mut ending = std::pin::pin!(self.end(claim, attended));
        let signal = tokio::select! {
            ending = &mut ending => return Ok(ending),
            signal = signals.next_end() => signal,
        };
        // It may just be landing, and would block the key until its lease is over.
        match tokio::time::timeout(CLAIMING, ending).await {
            Ok(ending) => Ok(ending),
            Err(_) => Ok(Ending::important(
                signal.exit_code(),
                format!(
                    "a signal came while the end of {key} was being recorded; once the lease is \
                     over, the command may run again"
                ),
            )),
        }
    }

    /// The command has ended: records how, and says it.
    async fn end(&self, claim: Claim<DynamoDb>, attended: Attended) -> Ending {
        let (key, attempt, owner) = (claim.key().clone(), claim.attempt(), claim.owner().clone());
        let code = attended.exit_code;
        let stored = attended.stored(self.options.store);
        let remember = self.options.on_failure == OnFailure::Remember;
        let course = attended.course;
        let streams = Some((attended.stdout, attended.stderr));
        let recorded = match course {
            Course::Lost => {
                let failure = failure("lease_lost", "the lease was lost, and the command ended");
                // The store may still not answer; then the lease, which is over, says enough.
                let _ =
                    tokio::time::timeout(self.options.terms.grace, claim.give_up(failure)).await;
                return Ending {
                    streams,
                    ..self.lost(&key, attempt, &stored)
                };
            }
            Course::EndedItself => Recorded::ByTheCommand,
            _ if code == 0 => match claim.complete(stored.clone()).await {
                Outcome {
                    answer: Answer::Performed(_),
                    ..
                } => Recorded::Result,
                Outcome {
                    answer: Answer::NotRecorded(_),
                    ..
                } => Recorded::Nothing("the store did not answer".to_owned()),
                outcome => self.whose(&key, attempt, &owner, outcome.attempt).await,
            },
            course => {
                let (name, message) = match course {
                    Course::TooLong => ("max".to_owned(), self.too_long()),
                    _ => (format!("exit_{code}"), told(code)),
                };
                let ended = match course {
                    Course::Plain if remember => {
                        claim
                            .fail_with(&stored.clone().failed(&name, &message))
                            .await
                    }
                    _ => claim.give_up(failure(&name, &message)).await,
                };
                match ended {
                    Ok(Ended::Recorded) if remember && course == Course::Plain => Recorded::Result,
                    Ok(Ended::Recorded) => Recorded::GivenBack,
                    Ok(Ended::Superseded) => self.whose(&key, attempt, &owner, attempt).await,
                    Err(error) => Recorded::Nothing(error.to_string()),
                }
            }
        };
        Ending {
            streams,
            ..self.ending(&key, attempt, &stored, course, recorded)
        }
    }

    fn too_long(&self) -> String {
        format!("ended after {} by --max", about(self.options.max))
    }

    /// Somebody else's word stands in the record, or the command's own: it has the token too. `told`
    /// is the attempt that the refused write met, as far as it was told.
    async fn whose(&self, key: &Key, attempt: u32, owner: &Owner, told: u32) -> Recorded {
        match self.claims.read(key).await {
            Ok(Some(record)) if record.owner.as_ref() == Some(owner) => Recorded::ByTheCommand,
            Ok(Some(record)) => Recorded::Superseded(record.attempt),
            Ok(None) => Recorded::Superseded(told),
            // Who it was can't be told; that it was not recorded here is certain.
            Err(_) if told == attempt => Recorded::ByTheCommand,
            Err(_) => Recorded::Superseded(told),
        }
    }

    fn ending(
        &self,
        key: &Key,
        attempt: u32,
        stored: &Stored,
        course: Course,
        recorded: Recorded,
    ) -> Ending {
        let ran = match course {
            Course::TooLong => format!("{}, {}", self.too_long(), told(stored.exit_code())),
            _ => told(stored.exit_code()),
        };
        let (outcome, code, text) = match recorded {
            Recorded::Result => (
                "performed",
                stored.exit_code(),
                format!("performed {key}, attempt {attempt}: {ran}"),
            ),
            Recorded::ByTheCommand => (
                "ended_by_command",
                stored.exit_code(),
                format!("{key}, attempt {attempt}: the command itself ended the claim; {ran}"),
            ),
            Recorded::GivenBack if self.options.terms.hold => (
                "held",
                stored.exit_code(),
                format!("{key}, attempt {attempt}: {ran}; it is held until somebody settles it"),
            ),
            Recorded::GivenBack => (
                "given_back",
                stored.exit_code(),
                format!("gave {key} back, attempt {attempt}: {ran}; the next one runs it again"),
            ),
            Recorded::Superseded(winner) => (
                "superseded",
                exit::SUPERSEDED,
                format!(
                    "superseded: {key}, attempt {attempt}: {ran}, but attempt {winner} has the key \
                     now; the result was dropped (SHA-256 {})",
                    stored.digest()
                ),
            ),
            Recorded::Nothing(why) => (
                "not_recorded",
                exit::UNAVAILABLE,
                format!(
                    "not recorded: {key}, attempt {attempt}: {ran}, but {why}; once the lease is \
                     over, the command may run again"
                ),
            ),
        };
        let json = self.options.place.json;
        Ending {
            json: json.then(|| stored.json(key, attempt, outcome, code)),
            matters: matches!(outcome, "superseded" | "not_recorded" | "held")
                || course == Course::TooLong,
            ..Ending::important(code, text)
        }
    }

    fn lost(&self, key: &Key, attempt: u32, stored: &Stored) -> Ending {
        let text = format!(
            "lease lost: {key}, attempt {attempt}: the command and its children were ended"
        );
        let code = exit::SUPERSEDED;
        let json = self.options.place.json;
        Ending {
            json: json.then(|| stored.json(key, attempt, "lease_lost", code)),
            ..Ending::important(code, text)
        }
    }

    /// Nothing ran: the key is given back under both policies.
    async fn not_run(&self, claim: Claim<DynamoDb>, code: &str, message: &str) {
        let key = claim.key().clone();
        if let Err(error) = claim.release(failure(code, message)).await {
            self.said.important(&format!(
                "{key} could not be given back ({error}); it is free when the lease is over"
            ));
        }
    }
}

/// What stands in the record after the command.
enum Recorded {
    /// The command's result, for every duplicate.
    Result,
    /// That the key is free again (or held).
    GivenBack,
    /// What the command wrote there itself.
    ByTheCommand,
    /// Somebody else's attempt of this number.
    Superseded(u32),
    /// Nothing, and why.
    Nothing(String),
}

fn failure(code: &str, message: &str) -> StoredFailure {
    StoredFailure {
        code: code.to_owned(),
        message: message.to_owned(),
    }
}

fn told(code: u8) -> String {
    format!("exit code {code}")
}

/// The time until `end`.
fn left(end: firstclaim::clock::EpochMillis) -> Duration {
    end.since(SOURCE.now())
}
