//! Runs the fault campaign, see [`integration::faults`]:
//!
//! ```text
//! cargo run --release -p integration --bin faults -- --schedules 100000
//! cargo run --release -p integration --bin faults -- --processes --schedules 1000
//! cargo run --release -p integration --bin faults -- --mutants
//! ```
//!
//! `--profile campaign` in place of `--release` builds faster. The exit code is 0 where nothing was
//! violated; with a mutant, where something was.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people"
)]

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Parser;
use integration::faults::processes::AT_ONCE;
use integration::faults::{Campaign, Found, Mutant, Owner, Processes, Report, Unnoticed};

/// How many schedules a mutant has to survive in order not to be found.
const TRIES: u64 = 100_000;

/// How often the progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// The fault campaign: the real crate over a real DynamoDB engine and a faulty network.
#[derive(Parser, Debug)]
struct Arguments {
    /// How many schedules run; with --mutants, how many each mutant has to survive at the most
    /// (one that is listed as not to be noticed: a tenth).
    #[arg(long)]
    schedules: Option<u64>,
    /// The seed of the first schedule; the others count up from it. Random unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Takes one guard away: WRITE:PART or the name of a rule. Then violations are expected.
    #[arg(long)]
    mutant: Option<Mutant>,
    /// Runs every mutant until a schedule finds it.
    #[arg(long, conflicts_with_all = ["mutant", "processes"])]
    mutants: bool,
    /// With --mutants: only those whose names begin so.
    #[arg(long, default_value = "")]
    only: String,
    /// Owners are processes that are killed, on the real clock.
    #[arg(long)]
    processes: bool,
    /// Stops at the first violation.
    #[arg(long)]
    first: bool,
    /// How many schedules run at once.
    #[arg(long)]
    workers: Option<usize>,
    /// Shows every event of the schedules, also where nothing was violated.
    #[arg(long)]
    events: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let given: Vec<String> = std::env::args().collect();
    if let Some(owner) = Owner::from_arguments(&given)? {
        owner.run()?;
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| {
        let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
        high >> 16
    });
    if arguments.mutants {
        return mutants(&arguments, seed);
    }
    let schedules = arguments.schedules.unwrap_or(1000);
    let progress = Progress::new(schedules);
    let report = match arguments.processes {
        true => processes(&arguments, seed, schedules, &progress)?,
        false => campaign(&arguments, seed, schedules, &progress)?,
    };
    progress.clear();
    for found in &report.found {
        show(found, &arguments);
    }
    let left_out = report.violations.saturating_sub(report.found.len() as u64);
    if left_out > 0 {
        println!("… and {left_out} more");
    }
    println!(
        "faults: {} schedules, {} violations, seed {seed}",
        report.schedules, report.violations
    );
    let expected = arguments.mutant.is_some();
    Ok(match (report.violations > 0) == expected {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn campaign(
    arguments: &Arguments,
    seed: u64,
    schedules: u64,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let campaign = Campaign {
        seed,
        schedules,
        mutant: arguments.mutant,
        workers: arguments.workers.unwrap_or_else(cores),
        until_found: arguments.first,
        keep_all: arguments.events,
    };
    campaign.run(|ran, violations| progress.show(ran, violations))
}

fn processes(
    arguments: &Arguments,
    seed: u64,
    schedules: u64,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let processes = Processes {
        seed,
        schedules,
        mutant: arguments.mutant,
        at_once: arguments.workers.unwrap_or(AT_ONCE),
        program: std::env::current_exe()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores())
        .enable_all()
        .build()?;
    let run = processes.run(|ran, violations| progress.show(ran, violations));
    let (report, count) = runtime.block_on(run)?;
    progress.clear();
    println!(
        "{} owners, {} of them killed; {} entries, {} of them cut short by it",
        count.owners, count.killed, count.entries, count.cut
    );
    Ok(report)
}

fn mutants(arguments: &Arguments, seed: u64) -> anyhow::Result<ExitCode> {
    let schedules = arguments.schedules.unwrap_or(TRIES);
    let (mut expected, mut known, mut covered, mut left, mut noticed) = (0, 0, 0, 0, 0);
    let all = Mutant::all().into_iter();
    for mutant in all.filter(|one| one.to_string().starts_with(&arguments.only)) {
        let unnoticed = mutant.unnoticed();
        // Nothing stops the search for what is not there.
        let schedules = match unnoticed {
            Some(_) => schedules / 10,
            None => schedules,
        };
        let progress = Progress::new(schedules);
        let campaign = Campaign {
            seed,
            schedules,
            mutant: Some(mutant),
            workers: arguments.workers.unwrap_or_else(cores),
            until_found: true,
            keep_all: false,
        };
        let report = campaign.run(|ran, violations| progress.show(ran, violations))?;
        progress.clear();
        let name = mutant.to_string();
        let verdict = match (report.found.first(), unnoticed) {
            (Some(found), _) => {
                let what = found.violations.first().map_or("", String::as_str);
                let what = what.get(..110).unwrap_or(what);
                format!("found after {} schedules: {what}", report.schedules)
            }
            (None, Some(Unnoticed::Redundant(why))) => format!("not found, redundant: {why}"),
            (None, Some(Unnoticed::LeftToTheModel(why))) => {
                format!("not found, left to the model: {why}")
            }
            (None, None) => format!("NOT FOUND in {} schedules", report.schedules),
        };
        println!("{name:<30} {verdict}");
        let found = u64::from(!report.found.is_empty());
        match unnoticed {
            None => {
                expected += 1;
                known += found;
            }
            Some(Unnoticed::Redundant(_)) => {
                covered += 1;
                noticed += found;
            }
            Some(Unnoticed::LeftToTheModel(_)) => {
                left += 1;
                noticed += found;
            }
        }
    }
    if noticed > 0 {
        println!("{noticed} mutants that are listed as not to be noticed were found");
    }
    println!(
        "mutants: {known} of {expected} found, {covered} redundant, {left} left to the model, \
         seed {seed}"
    );
    Ok(match known == expected && noticed == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn show(found: &Found, arguments: &Arguments) {
    println!("\nseed {}", found.seed);
    for event in &found.events {
        println!("  {event}");
    }
    for violation in &found.violations {
        println!("  VIOLATED {violation}");
    }
    let processes = if arguments.processes {
        " --processes"
    } else {
        ""
    };
    let mutant = arguments.mutant.map(|mutant| format!(" --mutant {mutant}"));
    println!(
        "  replay: cargo run --release -p integration --bin faults --{processes} --schedules 1 \
         --seed {}{}\n",
        found.seed,
        mutant.unwrap_or_default()
    );
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, Into::into)
}

/// A line that is drawn again and again, on a terminal only.
struct Progress {
    schedules: u64,
    drawn: Mutex<Option<Instant>>,
    terminal: bool,
    started: Instant,
}

impl Progress {
    fn new(schedules: u64) -> Self {
        Self {
            schedules,
            drawn: Mutex::new(None),
            terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
        }
    }

    fn show(&self, ran: u64, violations: u64) {
        let Ok(mut drawn) = self.drawn.lock() else {
            return;
        };
        if !self.terminal || drawn.is_some_and(|last| last.elapsed() < SHOWN_EVERY) {
            return;
        }
        *drawn = Some(Instant::now());
        let seconds = self.started.elapsed().as_secs();
        let all = self.schedules;
        eprint!("\r{ran} of {all} schedules, {violations} violations, {seconds} s\u{1b}[K");
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\u{1b}[K");
        }
    }
}
