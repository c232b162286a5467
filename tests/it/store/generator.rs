//! Random histories of one table: few ids, owners and instants, so that writes meet each other.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use firstclaim::Fingerprint;
use firstclaim::clock::{EpochMillis, EpochSeconds};
use firstclaim::protocol::{Seen, Settlement, Write};
use firstclaim::record::{
    Activity, AttemptError, Data, Omitted, Origin, Owner, Policy, RELEASED, Record, SUSPENDED,
    Settled, Status,
};

/// The second around which everything happens. Far in the future, so that no engine's TTL deletes
/// what a history needs.
const BASE: i64 = 4_000_000_000;

/// What happens next.
#[derive(Debug)]
pub(crate) enum Move {
    /// A write of the protocol.
    Write(Write),
    /// Another tool puts its record, whatever stood there.
    Foreign {
        item: HashMap<String, AttributeValue>,
        record: Box<Record>,
    },
    /// The TTL deletes the record.
    Vanish,
}

/// A seeded source of moves (SplitMix64).
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The ids that a history uses.
    pub(crate) fn ids() -> Vec<String> {
        (0..3).map(|number| format!("random#{number}")).collect()
    }

    pub(crate) fn id(&mut self) -> String {
        format!("random#{}", self.below(3))
    }

    /// A move on `id`, which often fits to what stands there.
    pub(crate) fn next_move(&mut self, id: &str, before: Option<&Record>) -> Move {
        match self.below(24) {
            0 => self.foreign(id),
            1 => Move::Vanish,
            _ => Move::Write(self.write(id, before)),
        }
    }

    /// A record with everything in it that a record can have.
    pub(crate) fn whole_record(&mut self, id: &str) -> Record {
        Record {
            activity: Some(self.some_activity()),
            error: Some(self.error()),
            settled: Some(self.settled()),
            generation: 3,
            data: Some(self.data()),
            ..self.claimed(id)
        }
    }

    fn write(&mut self, id: &str, before: Option<&Record>) -> Write {
        let owner = self.fitting_owner(before);
        let expiration = self.second();
        match self.below(12) {
            0 | 1 => Write::Claim {
                record: Box::new(self.claimed(id)),
                now: self.instant(),
            },
            2 => Write::Takeover {
                seen: self.seen(before),
                owner: self.owner(),
                lease: self.lease(),
                expiration,
                fingerprint: self.fingerprint(),
                activity: self.activity(),
                policy: self.policy(),
                marks: self.coin(),
                enters: self.coin(),
            },
            3 => Write::Renew {
                owner,
                // Nobody asks for less, and a range whose end lies before its start is refused as
                // a request, not as a condition.
                lease: self.lease().max(SUSPENDED),
                expiration,
            },
            4 => Write::Checkpoint {
                owner,
                name: self.pick(&["charge", "a.b", "status"]).to_owned(),
                text: self.pick(&["1", "\"ä\"", "{}"]).to_owned(),
            },
            5 => Write::Activity {
                owner,
                activity: self.activity(),
            },
            6 => Write::Finish {
                owner,
                status: self.pick(&[Status::Completed, Status::Failed]),
                data: self.data(),
                expiration,
            },
            7 => Write::Restore {
                record: Box::new(Record {
                    status: Status::Completed,
                    lease: None,
                    data: Some(self.data()),
                    ..self.claimed(id)
                }),
            },
            8 => Write::Suspend {
                owner,
                error: self.coin().then(|| self.error()),
            },
            9 => Write::Release {
                owner,
                error: self.coin().then(|| self.error()),
            },
            10 => Write::Enter { owner },
            _ => Write::Settle {
                seen: self.seen(before),
                owner: self.owner(),
                settlement: self.settlement(),
                settled: self.settled(),
                expiration,
            },
        }
    }

    fn claimed(&mut self, id: &str) -> Record {
        Record {
            id: id.to_owned(),
            status: Status::InProgress,
            expiration: Some(self.second()),
            lease: Some(self.lease()),
            owner: Some(self.owner()),
            attempt: 1,
            policy: self.policy(),
            unentered: self.coin().then_some(1),
            generation: 0,
            fingerprint: self.fingerprint(),
            data: None,
            checkpoints: BTreeMap::new(),
            activity: self.activity(),
            error: None,
            origin: Origin {
                function: Some("function".to_owned()),
                request: self.coin().then(|| "request".to_owned()),
                trace: None,
                event: Some("event ✓".to_owned()),
            },
            settled: None,
        }
    }

    /// A record as another tool writes it: no owner, no attempt, perhaps no lease, a fraction in
    /// its expiration, a hash that looks like ours and is none.
    fn foreign(&mut self, id: &str) -> Move {
        let second = self.second();
        let status = self.pick(&[Status::InProgress, Status::Completed]);
        let lease = (status == Status::InProgress && self.coin()).then(|| self.lease());
        let data = (status == Status::Completed).then(|| "{\"statusCode\":200}".to_owned());
        let fraction = self.pick(&["", ".0", ".75"]);
        let mut item = HashMap::from([
            ("id".to_owned(), AttributeValue::S(id.to_owned())),
            (
                "status".to_owned(),
                AttributeValue::S(status.as_str().to_owned()),
            ),
            (
                "expiration".to_owned(),
                AttributeValue::N(format!("{}{fraction}", second.0)),
            ),
            (
                "validation".to_owned(),
                AttributeValue::S("0cc175b9c0f1b6a831c399e269772661".repeat(2)),
            ),
        ]);
        if let Some(lease) = lease {
            item.insert(
                "in_progress_expiration".to_owned(),
                AttributeValue::N(lease.0.to_string()),
            );
        }
        if let Some(text) = &data {
            item.insert("data".to_owned(), AttributeValue::S(text.clone()));
        }
        let record = Box::new(Record {
            id: id.to_owned(),
            status,
            expiration: Some(second),
            lease,
            owner: None,
            attempt: 1,
            policy: Policy::Rerun,
            unentered: None,
            generation: 0,
            fingerprint: None,
            data: data.map(Data::Inline),
            checkpoints: BTreeMap::new(),
            activity: None,
            error: None,
            origin: Origin::default(),
            settled: None,
        });
        Move::Foreign { item, record }
    }

    /// What stands there, three times of four; else a state that was seen some time ago.
    fn seen(&mut self, before: Option<&Record>) -> Seen {
        match before {
            Some(record) if self.below(4) > 0 => Seen::of(record),
            _ => Seen {
                owner: self.coin().then(|| self.owner()),
                attempt: 1,
                status: Status::InProgress,
                lease: self.coin().then(|| self.lease()),
                generation: 0,
                untouched: self.coin(),
            },
        }
    }

    fn fitting_owner(&mut self, before: Option<&Record>) -> Owner {
        match before.and_then(|record| record.owner.clone()) {
            Some(owner) if self.below(4) > 0 => owner,
            _ => self.owner(),
        }
    }

    fn settlement(&mut self) -> Settlement {
        match self.below(3) {
            0 => Settlement::Result(self.data()),
            1 => Settlement::Rerun {
                new_generation: self.coin(),
            },
            _ => Settlement::Forget,
        }
    }

    fn data(&mut self) -> Data {
        let note = Omitted {
            bytes: 5_000_000,
            sha256: "ab".repeat(32),
            reason: "larger than the store takes".to_owned(),
        };
        match self.below(4) {
            0 => Data::Companion {
                id: "random#0#data#owner-1".to_owned(),
                note,
            },
            1 => Data::Omitted(note),
            _ => Data::Inline(
                self.pick(&["null", "\"\"", "{\"a\":1.50}", "[\"ä\\u0000\"]"])
                    .to_owned(),
            ),
        }
    }

    fn error(&mut self) -> AttemptError {
        AttemptError {
            code: "timeout".to_owned(),
            message: self.pick(&["", "no answer"]).to_owned(),
            attempt: 1,
        }
    }

    fn settled(&mut self) -> Settled {
        Settled {
            who: "ada".to_owned(),
            at: self.instant(),
            why: "looked it up".to_owned(),
            attempt: 2,
        }
    }

    fn activity(&mut self) -> Option<Activity> {
        self.coin().then(|| self.some_activity())
    }

    fn some_activity(&mut self) -> Activity {
        Activity {
            text: self.pick(&["charging", "mailing"]).to_owned(),
            at: self.instant(),
        }
    }

    fn fingerprint(&mut self) -> Option<Fingerprint> {
        self.coin()
            .then(|| Fingerprint::of_raw(self.pick(&["one", "two"]).as_bytes()))
    }

    fn policy(&mut self) -> Policy {
        self.pick(&[Policy::Rerun, Policy::Hold])
    }

    fn owner(&mut self) -> Owner {
        Owner::new(format!("owner-{}", self.below(3)))
    }

    fn second(&mut self) -> EpochSeconds {
        EpochSeconds(BASE + self.pick(&[-1, 0, 1]))
    }

    fn instant(&mut self) -> EpochMillis {
        EpochMillis((BASE + self.pick(&[-1, 0, 1, 2])) * 1000 + self.pick(&[0, 1, 999]))
    }

    fn lease(&mut self) -> EpochMillis {
        match self.below(6) {
            0 => RELEASED,
            1 => SUSPENDED,
            _ => self.instant(),
        }
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % limit as u64).unwrap_or(0)
    }
}
