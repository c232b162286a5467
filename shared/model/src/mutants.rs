//! Everything that the protocol asks for, taken away in turn: some property must notice.

use std::collections::BTreeMap;
use std::sync::Arc;

use firstclaim::clock::{EpochMillis, EpochSeconds};
use firstclaim::protocol::{Condition, Rule, Seen, Settlement, Term, Write};
use firstclaim::record::{Data, Origin, Policy, Settled, Status};
use firstclaim::{Owner, Record};
use stateright::{Checker, HasDiscoveries, Model};

use crate::axes::{Axes, Ending, Settling};
use crate::explorations;
use crate::machine::Machine;
use crate::pool::Pools;
use crate::removal::{Guard, Kind, Removal, Removed};

/// How many threads explore.
pub(crate) const THREADS: usize = 2;

/// Something that is taken away, and whether that is noticed.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    pub(crate) removal: Removal,
}

/// A part that others cover: taking it away alone changes nothing that matters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Redundant {
    pub(crate) removal: Removal,
    /// What covers it; taken away with it, the loss is noticed.
    pub(crate) covered_by: &'static [Removal],
    pub(crate) reason: &'static str,
    /// Where.
    pub(crate) axes: Axes,
}

/// Every part of every write's condition, every rule, every guard of the sender.
pub(crate) fn all() -> Vec<Mutant> {
    let parts = samples().into_iter().flat_map(|write| {
        let kind = Kind::of(&write);
        let condition = write.condition();
        (0..condition.parts()).filter_map(move |at| {
            let (_, gone) = condition.without(at)?;
            Some(Mutant {
                name: format!("{kind:?} without {}", part(&gone)),
                removal: Removal::Part(kind, at),
            })
        })
    });
    let rules = Rule::ALL.iter().copied().map(|rule| Mutant {
        name: format!("decision without {rule:?}"),
        removal: Removal::Rule(rule),
    });
    let guards = Guard::ALL.into_iter().map(|guard| Mutant {
        name: format!("sender without {guard:?}"),
        removal: Removal::Guard(guard),
    });
    parts.chain(rules).chain(guards).collect()
}

/// The parts that are taken away unnoticed, because others cover them.
pub(crate) const REDUNDANT: &[Redundant] = &[
    Redundant {
        removal: Removal::Part(Kind::Takeover, ATTEMPT),
        covered_by: &[Removal::Part(Kind::Takeover, OWNER)],
        reason: "owner tokens never recur, so that the owner names the attempt",
        axes: explorations::PAYLOADS,
    },
    Redundant {
        removal: Removal::Part(Kind::TakeoverOfTheirs, 0),
        covered_by: &[Removal::Part(Kind::TakeoverOfTheirs, 2)],
        reason: "whoever takes the record from the other tool writes another lease",
        axes: explorations::THEIRS,
    },
    Redundant {
        removal: Removal::Part(Kind::Finish, LEASE),
        covered_by: &[Removal::Guard(Guard::OneEnding)],
        reason: "an owner that has released sends no final write, nor the reverse",
        axes: explorations::HOLD,
    },
    Redundant {
        removal: Removal::Part(Kind::Suspend, LEASE),
        covered_by: &[Removal::Guard(Guard::OneEnding)],
        reason: "an owner that has released does not suspend, nor the reverse",
        axes: explorations::HOLD,
    },
    Redundant {
        removal: Removal::Part(Kind::Settle, ATTEMPT),
        covered_by: &[Removal::Part(Kind::Settle, OWNER)],
        reason: "owner tokens never recur, so that the owner names the attempt",
        axes: SETTLING,
    },
    Redundant {
        removal: Removal::Part(Kind::Settle, STATUS),
        covered_by: &[Removal::Part(Kind::Settle, SEEN_LEASE)],
        reason: "a record whose status changes loses its lease",
        axes: SETTLING,
    },
    Redundant {
        removal: Removal::Part(Kind::SettleOfFinal, ATTEMPT),
        covered_by: &[Removal::Part(Kind::SettleOfFinal, OWNER)],
        reason: "owner tokens never recur, so that the owner names the attempt",
        axes: SETTLING,
    },
    Redundant {
        removal: Removal::Part(Kind::SettleOfFinal, STATUS),
        covered_by: &[
            Removal::Part(Kind::SettleOfFinal, OWNER),
            Removal::Part(Kind::SettleOfFinal, ATTEMPT),
            Removal::Part(Kind::SettleOfFinal, SEEN_LEASE),
        ],
        reason: "an owner's record that is final stays so until it has another owner",
        axes: SETTLING,
    },
    Redundant {
        removal: Removal::Part(Kind::SettleOfFinal, SEEN_LEASE),
        covered_by: &[
            Removal::Part(Kind::SettleOfFinal, OWNER),
            Removal::Part(Kind::SettleOfFinal, ATTEMPT),
            Removal::Part(Kind::SettleOfFinal, STATUS),
        ],
        reason: "an owner's record that is final stays so until it has another owner",
        axes: SETTLING,
    },
];

/// The places of the terms in an owner's condition and in that of what was seen. The mark comes
/// last, and only where it was seen: the other places are the same without it.
const OWNER: usize = 0;
const ATTEMPT: usize = 1;
const LEASE: usize = 2;
const STATUS: usize = 2;
const SEEN_LEASE: usize = 3;
const MARK: usize = 4;

/// Two calls and two acts of an operator, smaller than [`explorations::OPERATOR`].
const SETTLING: Axes = Axes {
    name: "settling",
    endings: &[Ending::Complete, Ending::Unknown],
    settlements: &[Settling::Rerun],
    sightings: &[],
    ..explorations::OPERATOR
};

/// What came of the removals.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// How many were noticed.
    pub(crate) found: usize,
    /// What is wrong: unnoticed, or redundant without proof.
    pub(crate) wrong: Vec<String>,
    /// What noticed each.
    pub(crate) lines: Vec<String>,
}

/// Takes everything away in turn.
pub(crate) fn try_all(pools: &Arc<Pools>) -> Findings {
    let mut findings = Findings::default();
    for mutant in all() {
        if let Some(redundant) = REDUNDANT.iter().find(|one| one.removal == mutant.removal) {
            findings.wrong.extend(redundant.disproof(&mutant, pools));
            continue;
        }
        let noticed = where_to_look(mutant.removal).iter().find_map(|axes| {
            let name = notice(*axes, Removed::only(mutant.removal), pools)?;
            Some(format!("{}: \"{name}\" ({})", mutant.name, axes.name))
        });
        match noticed {
            Some(line) => {
                findings.found += 1;
                findings.lines.push(line);
            }
            None => findings
                .wrong
                .push(format!("{}: goes unnoticed", mutant.name)),
        }
    }
    findings
}

impl Redundant {
    /// What is wrong with calling it redundant: it is noticed alone, or not even with its cover.
    fn disproof(&self, mutant: &Mutant, pools: &Arc<Pools>) -> Option<String> {
        if let Some(property) = notice(self.axes, Removed::only(self.removal), pools) {
            return Some(format!("{}: not redundant, \"{property}\"", mutant.name));
        }
        let covered = Removed::covered(self.removal, self.covered_by);
        match notice(self.axes, covered, pools) {
            Some(_) => None,
            None => Some(format!("{}: unnoticed even without its cover", mutant.name)),
        }
    }
}

/// What notices a loss: a property that is broken, or one that says what must be reachable.
fn notice(axes: Axes, removed: Removed, pools: &Arc<Pools>) -> Option<&'static str> {
    let proves = removed.proof().is_some();
    let checker = Machine::new(axes, removed, Arc::clone(pools))
        .checker()
        .threads(THREADS)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let properties = checker.model().properties();
    let of = |failure: bool, discovered: bool| {
        properties.iter().find(|property| {
            property.expectation.discovery_is_failure() == failure
                && found.contains_key(property.name) == discovered
        })
    };
    // Where a cover is gone too, not every way is gone, and what is out of reach proves nothing.
    let unreachable = || of(false, false).filter(|_| !proves);
    of(true, true)
        .or_else(unreachable)
        .map(|property| property.name)
}

/// The explorations that are likely to notice, the likeliest first.
fn where_to_look(removal: Removal) -> Vec<Axes> {
    let first: &[Axes] = match removal {
        Removal::Part(Kind::Takeover, MARK) => &[explorations::MARKED],
        Removal::Part(Kind::Settle, MARK) => &[explorations::OPERATOR_ON_MARKED],
        Removal::Part(Kind::Enter, _) => &[explorations::MARKED, explorations::OUTSIDERS_ON_MARKED],
        Removal::Part(Kind::Claim | Kind::Takeover, _) => &[
            explorations::THEIRS,
            explorations::PAYLOADS,
            explorations::RELAY,
        ],
        Removal::Part(Kind::TakeoverOfTheirs | Kind::SettleOfTheirs, _) => &[explorations::THEIRS],
        Removal::Part(Kind::Settle | Kind::SettleOfFinal, _) => &[explorations::OPERATOR],
        Removal::Part(Kind::Suspend, _) => &[explorations::OUTSIDERS_ON_HOLD, explorations::HOLD],
        Removal::Part(_, _) => &[explorations::OUTSIDERS, explorations::LONG],
        Removal::Rule(rule) => match rule {
            Rule::Mismatch => &[explorations::PAYLOADS],
            Rule::OwnEnd => &[explorations::AGAIN],
            Rule::ForeignFingerprint | Rule::MissingLease => &[explorations::THEIRS],
            Rule::HoldOfRecord | Rule::HoldOfCaller | Rule::Released => &[explorations::MIXED],
            Rule::Untouched => &[explorations::MARKED],
            Rule::SilentLimit => &[explorations::SILENCE],
            Rule::HeldDoesNotEnter => &[explorations::INSPECTION],
            Rule::Restore | Rule::OwnClaimContent => &[explorations::OUTSIDERS],
            Rule::RestoreInWindow | Rule::SendAgain | Rule::OwnWriteContent => {
                &[explorations::LONG]
            }
            _ => &[explorations::STEPS, explorations::LONG],
        },
        Removal::Guard(guard) => match guard {
            Guard::EntrySaidFirst => &[explorations::MARKED],
            Guard::Grace => &[explorations::SKEW],
            Guard::OwnClockBeforeEntry | Guard::OwnClockBeforeStep => &[explorations::STEPS],
            Guard::SuspendUnderHold | Guard::OneEnding => &[explorations::HOLD],
            Guard::SuspendHeldTooLate | Guard::LostTakeoverInspects => &[explorations::INSPECTION],
            Guard::FreshOwner => &[explorations::OPERATOR],
            Guard::WindowBehindLease => &[explorations::RELAY],
        },
    };
    first.to_vec()
}

/// One write of each kind.
fn samples() -> Vec<Write> {
    let owner = || Owner::new("sample");
    let seen = |owner, lease| Seen {
        owner,
        attempt: 1,
        status: Status::InProgress,
        lease,
        generation: 0,
        untouched: false,
    };
    let lease = EpochMillis(2);
    let expiration = EpochSeconds(1);
    let record = Record {
        id: String::new(),
        status: Status::InProgress,
        expiration: Some(expiration),
        lease: Some(lease),
        owner: Some(owner()),
        attempt: 1,
        policy: Policy::Rerun,
        unentered: None,
        generation: 0,
        fingerprint: None,
        data: None,
        checkpoints: BTreeMap::new(),
        activity: None,
        error: None,
        origin: Origin::default(),
        settled: None,
    };
    let takeover = |seen| Write::Takeover {
        seen,
        owner: owner(),
        lease,
        expiration,
        fingerprint: None,
        activity: None,
        policy: Policy::Rerun,
        marks: false,
        enters: true,
    };
    let settle = |seen| Write::Settle {
        seen,
        owner: owner(),
        settlement: Settlement::Forget,
        settled: Settled {
            who: String::new(),
            at: lease,
            why: String::new(),
            attempt: 1,
        },
        expiration,
    };
    let owned = owner();
    let untouched = || Seen {
        untouched: true,
        ..seen(Some(owner()), Some(lease))
    };
    vec![
        Write::Claim {
            record: Box::new(record.clone()),
            now: lease,
        },
        takeover(untouched()),
        takeover(seen(None, Some(lease))),
        Write::Enter { owner: owner() },
        Write::Renew {
            owner: owner(),
            lease,
            expiration,
        },
        Write::Checkpoint {
            owner: owner(),
            name: String::new(),
            text: String::new(),
        },
        Write::Activity {
            owner: owner(),
            activity: None,
        },
        Write::Finish {
            owner: owner(),
            status: Status::Completed,
            data: Data::Inline(String::new()),
            expiration,
        },
        Write::Restore {
            record: Box::new(record),
        },
        Write::Suspend {
            owner: owner(),
            error: None,
        },
        Write::Release {
            owner: owned,
            error: None,
        },
        settle(untouched()),
        settle(seen(Some(owner()), None)),
        settle(seen(None, Some(lease))),
    ]
}

/// A part's name.
fn part(condition: &Condition) -> String {
    let name = |term: &Term| {
        let name = format!("{term:?}");
        name.split('(').next().map(str::to_owned).unwrap_or(name)
    };
    match condition {
        Condition::Is(term) => name(term),
        Condition::All(_) => "its way over an old record".to_owned(),
        Condition::Any(_) => "its alternatives".to_owned(),
        Condition::Not(terms) => format!(
            "not all of {:?}",
            terms.iter().map(name).collect::<Vec<_>>()
        ),
    }
}
