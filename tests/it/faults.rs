//! The fault campaign in short; see `integration::faults` for the long one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use firstclaim::clock::{EpochMillis, ManualSource};
use firstclaim::{Answer, Claims, Config, Failure, Key};
use integration::Lab;
use integration::faults::{Campaign, Mutant, Processes, Report};
use integration::proxy::{Gate, Step};

pub(crate) fn tests() -> Vec<crate::registry::Test> {
    crate::registry::tests![
        shape:
            no_schedule_violates_an_invariant,
            a_seed_replays_its_schedule,
            a_campaign_finds_mutants,
            every_mutant_has_a_name_that_reads_back,
            a_result_whose_reply_was_lost_answers_no_longer_than_its_window;
        race:
            killed_processes_violate_no_invariant,
    ]
}

/// As many as debug builds run in a few seconds.
const SCHEDULES: u64 = 500;

/// Mutants that a few hundred schedules must find: each is another kind of guard.
const FOUND_SOON: [&str; 8] = [
    "claim:WindowEndedBefore",
    "takeover:LeaseIs",
    "renew:LeaseBetween",
    "finish:OwnerIs",
    "OwnClaim",
    "OwnWrite",
    "WindowOver",
    "HoldOfRecord",
];

async fn no_schedule_violates_an_invariant(_lab: &Lab) -> anyhow::Result<()> {
    let report = campaign(SCHEDULES, None).await?;
    ensure!(report.schedules == SCHEDULES, "{report:#?}");
    ensure!(report.violations == 0, "{:#?}", report.found.first());
    Ok(())
}

async fn a_seed_replays_its_schedule(_lab: &Lab) -> anyhow::Result<()> {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let campaign = Campaign {
            keep_all: true,
            workers: 1,
            ..of(9, None)
        };
        let report = on_a_thread(campaign).await?;
        let events = report.found.into_iter().map(|found| found.events);
        runs.push(events.collect::<Vec<_>>());
    }
    ensure!(runs[0].len() == 9, "not all schedules were kept");
    for (first, second) in runs[0].iter().zip(&runs[1]) {
        assert_eq!(first, second);
    }
    Ok(())
}

async fn a_campaign_finds_mutants(_lab: &Lab) -> anyhow::Result<()> {
    for name in FOUND_SOON {
        let report = campaign(3000, Some(name.parse()?)).await?;
        ensure!(report.violations > 0, "{name} was not found");
    }
    Ok(())
}

async fn every_mutant_has_a_name_that_reads_back(_lab: &Lab) -> anyhow::Result<()> {
    for mutant in Mutant::all() {
        ensure!(mutant.to_string().parse::<Mutant>()? == mutant, "{mutant}");
    }
    Ok(())
}

/// Found by seed 2896 of the first campaign: the process remembered the window as counted from the
/// late reply, not the one that the record has.
async fn a_result_whose_reply_was_lost_answers_no_longer_than_its_window(
    lab: &Lab,
) -> anyhow::Result<()> {
    let source = ManualSource::at(EpochMillis(4_000_000_000_000));
    let config = Config {
        window: Duration::from_secs(40),
        longest_lease: Duration::from_secs(12),
        ..Config::default()
    };
    let store = lab.store_through_proxy().await;
    let claims = Claims::new(store, config)?.with_source(source.clone());
    let key = Key::new("faults", "late-reply")?;
    let run = |value: &'static str| {
        let once = claims.once(key.clone()).lease(Duration::from_secs(8));
        once.run(move |_| async move { Ok::<_, Failure<String>>(value.to_owned()) })
    };
    // The completion lands, and its copy is answered when the window that it wrote is over.
    let gate = Gate::new();
    let steps = [Step::DropReply, Step::Hold(gate.clone())];
    lab.dynamodb.plan("UpdateItem", steps);
    let late = async {
        gate.reached(1).await;
        source.advance(Duration::from_secs(42));
        gate.open();
    };
    let (first, ()) = tokio::join!(run("first"), late);
    ensure!(first?.answer == Answer::Performed("first".to_owned()));
    source.advance(Duration::from_secs(1));
    let second = run("second").await?;
    ensure!(
        second.answer == Answer::Performed("second".to_owned()),
        "{second:?}"
    );
    Ok(())
}

async fn killed_processes_violate_no_invariant(_lab: &Lab) -> anyhow::Result<()> {
    let processes = Processes {
        seed: 1,
        schedules: 12,
        mutant: None,
        at_once: 6,
        program: PathBuf::from(env!("CARGO_BIN_EXE_faults")),
    };
    let (report, count) = processes.run(|_, _| {}).await?;
    ensure!(report.violations == 0, "{:#?}", report.found.first());
    ensure!(count.killed > 0 && count.entries > 0, "{count:?}");
    Ok(())
}

fn of(schedules: u64, mutant: Option<Mutant>) -> Campaign {
    Campaign {
        seed: 1,
        schedules,
        mutant,
        workers: 2,
        until_found: mutant.is_some(),
        keep_all: false,
    }
}

async fn campaign(schedules: u64, mutant: Option<Mutant>) -> anyhow::Result<Report> {
    on_a_thread(of(schedules, mutant)).await
}

/// A campaign has its own runtimes.
async fn on_a_thread(campaign: Campaign) -> anyhow::Result<Report> {
    let campaign = Arc::new(campaign);
    tokio::task::spawn_blocking(move || campaign.run(|_, _| {})).await?
}
