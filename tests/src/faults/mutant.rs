//! Mutants: the crate with one guard taken away. A campaign that does not find them proves little.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use firstclaim::clock::{EpochMillis, EpochSeconds};
use firstclaim::protocol::{Rule, Seen, Settlement, Write};
use firstclaim::record::{Data, Origin, Owner, Policy, Record, Settled, Status};

/// A guard that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A part of a write's condition.
    Part {
        /// The write's name.
        write: &'static str,
        /// The part's name: the kind of its term or group.
        part: &'static str,
    },
    /// A rule of the decision.
    Rule(Rule),
}

impl Mutant {
    /// Every part of every write's condition, and every rule.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for write in writes() {
            let condition = write.condition();
            for at in 0..condition.parts() {
                let gone = condition.without(at).map(|(_, gone)| gone.name());
                let mutant = gone.map(|part| Self::Part {
                    write: write.name(),
                    part,
                });
                all.extend(mutant.filter(|new| !all.contains(new)));
            }
        }
        all.extend(Rule::ALL.iter().copied().map(Self::Rule));
        all
    }

    /// Why the campaign does not notice that it is missing, where that is known.
    #[must_use]
    pub fn unnoticed(&self) -> Option<Unnoticed> {
        unnoticed(self)
    }
}

/// Why a mutant is not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnoticed {
    /// Other guards cover it, as the model shows (`shared/model/src/mutants.rs`).
    Redundant(&'static str),
    /// The campaign's callers can't see it; the model's can, and it finds it.
    LeftToTheModel(&'static str),
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { write, part } => write!(f, "{write}:{part}"),
            Self::Rule(rule) => write!(f, "{rule:?}"),
        }
    }
}

impl FromStr for Mutant {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = Self::all()
            .into_iter()
            .find(|mutant| mutant.to_string() == text);
        match found {
            Some(mutant) => Ok(mutant),
            None => bail!("no mutant is called {text:?}; `--mutants` tells all names"),
        }
    }
}

fn unnoticed(mutant: &Mutant) -> Option<Unnoticed> {
    let reason = match mutant.to_string().as_str() {
        "takeover:AttemptIs" | "settle:AttemptIs" => {
            "owner tokens never recur: the owner names the attempt"
        }
        "takeover:NoOwner" => "whoever takes the record from the other tool writes another lease",
        "finish:LeaseAbove" | "suspend:LeaseAbove" => {
            "an owner that has released sends no other ending"
        }
        "settle:NoLease" => "an owner's record that is final stays so until it has another owner",
        "ForeignFingerprint" => "the store reads no fingerprint from a record without owner",
        "GoneIsReleased" => {
            return Some(Unnoticed::LeftToTheModel(
                "a caller of `run` gets its operation's error, whether or not the release stood",
            ));
        }
        _ => return None,
    };
    Some(Unnoticed::Redundant(reason))
}

/// One write of each kind, and for each kind of record that it may have seen; only their conditions
/// matter.
fn writes() -> Vec<Write> {
    let owner = Owner::new("owner");
    let expiration = EpochSeconds(2);
    let record = Box::new(Record {
        id: "scope#id".to_owned(),
        status: Status::InProgress,
        expiration: Some(expiration),
        lease: Some(EpochMillis(2)),
        owner: Some(owner.clone()),
        attempt: 1,
        policy: Policy::Rerun,
        unentered: Some(1),
        generation: 0,
        fingerprint: None,
        data: None,
        checkpoints: std::collections::BTreeMap::new(),
        activity: None,
        error: None,
        origin: Origin::default(),
        settled: None,
    });
    let seen = Seen::of(&record);
    let theirs = Seen::of(&Record {
        owner: None,
        ..(*record).clone()
    });
    let last = Seen::of(&Record {
        status: Status::Completed,
        lease: None,
        ..(*record).clone()
    });
    let mut writes: Vec<Write> = [seen.clone(), theirs.clone()]
        .map(|seen| Write::Takeover {
            seen,
            owner: owner.clone(),
            lease: EpochMillis(3),
            expiration,
            fingerprint: None,
            activity: None,
            policy: Policy::Rerun,
            marks: false,
            enters: true,
        })
        .into();
    writes.extend([seen, theirs, last].map(|seen| Write::Settle {
        seen,
        owner: owner.clone(),
        settlement: Settlement::Forget,
        settled: Settled {
            who: String::new(),
            at: EpochMillis(1),
            why: String::new(),
            attempt: 2,
        },
        expiration,
    }));
    writes.extend([
        Write::Claim {
            record: record.clone(),
            now: EpochMillis(1),
        },
        Write::Renew {
            owner: owner.clone(),
            lease: EpochMillis(3),
            expiration,
        },
        Write::Enter {
            owner: owner.clone(),
        },
        Write::Checkpoint {
            owner: owner.clone(),
            name: String::new(),
            text: String::new(),
        },
        Write::Activity {
            owner: owner.clone(),
            activity: None,
        },
        Write::Finish {
            owner: owner.clone(),
            status: Status::Completed,
            data: Data::Inline(String::new()),
            expiration,
        },
        Write::Restore { record },
        Write::Suspend {
            owner: owner.clone(),
            error: None,
        },
        Write::Release { owner, error: None },
    ]);
    writes
}
