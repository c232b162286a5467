//! A history: steps of several processes, done for real and by the rules side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use firstclaim::clock::{EpochMillis, ManualSource, Source};
use firstclaim::protocol::Rule;
use firstclaim::record::Policy;
use firstclaim::store::memory::{Failing, Fault, Memory};
use firstclaim::store::{Read, Store};
use firstclaim::{Claim, ClaimError, Claimed, Claims, Config};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::reference::rules::{self, Entry, GRACE_MS, SILENT_LIMIT, WINDOW_MS};
use crate::reference::table::{answer, fingerprint, key_of, rules_say, table_says};

/// Not on a whole second.
const START: EpochMillis = EpochMillis(1_794_478_900_250);

/// How far the clock is moved for somebody who waits.
pub(crate) const WAIT_MS: u32 = 50;

/// One step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Claim(Asking, Option<At>),
    Complete {
        slot: usize,
        value: u8,
        fault: Option<At>,
    },
    Fail {
        slot: usize,
        fault: Option<At>,
    },
    Release {
        slot: usize,
        fault: Option<At>,
    },
    GiveUp {
        slot: usize,
        fault: Option<At>,
    },
    /// The claim in the slot is dropped.
    Crash {
        slot: usize,
    },
    Pass {
        millis: u32,
    },
    /// The TTL deletes what is over.
    Expire,
}

/// A request for a key; the claim, if it is one, goes into a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) slot: usize,
    pub(crate) process: usize,
    pub(crate) key: usize,
    pub(crate) payload: Option<u8>,
    pub(crate) hold: bool,
    pub(crate) lease_ms: u32,
}

/// A fault at one of the calls that a step makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) fault: Fault,
    pub(crate) call: usize,
}

/// What a history came to see.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) outcomes: BTreeSet<&'static str>,
    /// How often one key was performed in one window, at the most.
    pub(crate) performed_in_a_window: usize,
}

/// Does the steps, and compares after each.
pub(crate) fn replay(steps: &[Step]) -> Result<Seen, TestCaseError> {
    replay_without(None, steps)
}

/// The same with one rule of the decision taken away.
pub(crate) fn replay_without(removed: Option<Rule>, steps: &[Step]) -> Result<Seen, TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| TestCaseError::fail(error.to_string()))?;
    runtime.block_on(async {
        let mut history = History::new(removed);
        for step in steps {
            history.step(step).await?;
            history.compare()?;
        }
        Ok(history.seen)
    })
}

/// A claim that is held, for real and by the rules.
pub(crate) struct Holding {
    pub(crate) claim: Claim<Failing<Memory>>,
    pub(crate) number: usize,
    pub(crate) key: usize,
    pub(crate) payload: Option<u8>,
    pub(crate) hold: bool,
    pub(crate) lease: i64,
}

pub(crate) struct History {
    memory: Memory,
    failing: Failing<Memory>,
    pub(crate) source: ManualSource,
    processes: Vec<Claims<Failing<Memory>>>,
    pub(crate) slots: [Option<Holding>; 3],
    pub(crate) entries: BTreeMap<usize, Entry>,
    /// How often each key was performed since its window began.
    pub(crate) performed: BTreeMap<usize, usize>,
    requests: usize,
    pub(crate) seen: Seen,
}

/// What became of the fault of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// There was none, or the step made no such call, or it makes no difference.
    Nothing,
    /// This call did not reach the store.
    Refused(usize),
    /// This call did, and was not answered.
    Unanswered(usize),
}

impl History {
    fn new(removed: Option<Rule>) -> Self {
        let memory = Memory::new();
        let failing = Failing::new(memory.clone());
        let source = ManualSource::at(START).driven();
        let config = Config {
            window: Duration::from_millis(WINDOW_MS.into()),
            grace: Duration::from_millis(GRACE_MS.into()),
            longest_lease: Duration::from_secs(5),
            silent_limit: SILENT_LIMIT,
            ..Config::default()
        };
        let process = || {
            let claims = Claims::new(failing.clone(), config.clone()).unwrap();
            let claims = claims.with_source(source.clone());
            match removed {
                Some(rule) => claims.without_rule(rule),
                None => claims,
            }
        };
        Self {
            processes: vec![process(), process()],
            memory,
            failing,
            source,
            slots: [const { None }; 3],
            entries: BTreeMap::new(),
            performed: BTreeMap::new(),
            requests: 0,
            seen: Seen::default(),
        }
    }

    pub(crate) fn now(&self) -> i64 {
        self.source.now().0
    }

    async fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Claim(asking, fault) => self.claim(*asking, *fault).await,
            Step::Complete { slot, value, fault } => self.complete(*slot, *value, *fault).await,
            Step::Fail { slot, fault } => self.fail(*slot, *fault).await,
            Step::Release { slot, fault } => self.release(*slot, *fault, false).await,
            Step::GiveUp { slot, fault } => self.release(*slot, *fault, true).await,
            Step::Crash { slot } => {
                self.slots[*slot] = None;
                Ok(())
            }
            Step::Pass { millis } => {
                self.source.advance(Duration::from_millis((*millis).into()));
                Ok(())
            }
            Step::Expire => {
                let now = self.source.now();
                for record in self.memory.records() {
                    if !record.in_window(now) {
                        self.memory.remove(&record.id);
                    }
                }
                let now = now.0;
                self.entries.retain(|_, entry| entry.in_window(now));
                Ok(())
            }
        }
    }

    async fn claim(&mut self, asking: Asking, fault: Option<At>) -> Result<(), TestCaseError> {
        let Asking { slot, key, .. } = asking;
        if self.slots[slot].is_some() {
            return Ok(());
        }
        self.requests += 1;
        let request = rules::Request {
            number: self.requests,
            payload: asking.payload,
            hold: asking.hold,
            lease: self.now() + i64::from(asking.lease_ms),
        };
        let before = self.entries.get(&key).cloned();
        let (expected, after) = rules::ask(before.as_ref(), request, self.now());
        let mut once = self.processes[asking.process]
            .once(key_of(key))
            .lease(Duration::from_millis(asking.lease_ms.into()))
            .policy(if asking.hold {
                Policy::Hold
            } else {
                Policy::Rerun
            });
        if let Some(payload) = asking.payload {
            once = once.fingerprint(fingerprint(payload));
        }
        let (got, met) = self.disturbed(fault, once.claim()).await;
        let new = matches!(expected, rules::Answer::Acquired { attempt: 1 });
        let acquired = matches!(expected, rules::Answer::Acquired { .. });
        // The write that acquires is the first call for a new record, the second for a takeover.
        let stands = match met {
            Met::Refused(_) => false,
            Met::Unanswered(call) => acquired && call == usize::from(!new),
            Met::Nothing => acquired,
        };
        if stands {
            if new {
                self.performed.insert(key, 0);
            }
            self.entries.insert(key, after);
        }
        if met != Met::Nothing {
            self.seen.outcomes.insert("unavailable");
            let unavailable = matches!(got, Err(ClaimError::Store(_)));
            prop_assert!(unavailable, "{met:?} but {got:?}");
            return Ok(());
        }
        let got = match got {
            Ok(Claimed::Held(claim)) => {
                let attempt = claim.attempt();
                if attempt > 1 {
                    self.seen.outcomes.insert("takeover");
                }
                self.slots[slot] = Some(Holding {
                    claim,
                    number: request.number,
                    key,
                    payload: self.entries.get(&key).and_then(|entry| entry.payload),
                    hold: self.entries.get(&key).is_some_and(|entry| entry.hold),
                    lease: request.lease,
                });
                rules::Answer::Acquired { attempt }
            }
            Ok(Claimed::Answered(outcome)) => {
                self.seen.outcomes.insert(outcome.name());
                answer(outcome)?
            }
            Err(error) => return Err(TestCaseError::fail(format!("{error:?}"))),
        };
        prop_assert_eq!(got, expected, "{:?}", before);
        Ok(())
    }

    /// Does something with a fault at one of its calls, and moves the clock while it waits.
    pub(crate) async fn disturbed<T>(
        &self,
        fault: Option<At>,
        doing: impl Future<Output = T>,
    ) -> (T, Met) {
        let before = self.failing.calls();
        if let Some(At { fault, call }) = fault {
            let calm = std::iter::repeat_n(Fault::None, call);
            self.failing.plan(calm.chain([fault]));
        }
        let mut doing = std::pin::pin!(doing);
        let result = loop {
            tokio::select! {
                biased;
                result = &mut doing => break result,
                () = tokio::task::yield_now() => self.source.advance(Duration::from_millis(WAIT_MS.into())),
            }
        };
        let calls = self.failing.calls() - before;
        let Some(At { fault, call }) = fault else {
            return (result, Met::Nothing);
        };
        // What is left of the plan must not meet the next step.
        for _ in calls..=call {
            let _ = self.failing.read("nobody's", Read::Consistent).await;
        }
        let met = match fault {
            _ if call >= calls => Met::Nothing,
            Fault::Refuse => Met::Refused(call),
            Fault::LoseReply => Met::Unanswered(call),
            // A call that is repeated, and an item that is missing from a refusal, make none.
            Fault::None | Fault::Repeat | Fault::NoItem => Met::Nothing,
            Fault::Hang => unreachable!("a history never hangs"),
        };
        (result, met)
    }

    /// The table is as the rules say.
    fn compare(&self) -> Result<(), TestCaseError> {
        let records = self.memory.records();
        prop_assert_eq!(records.len(), self.entries.len());
        for (key, entry) in &self.entries {
            let id = key_of(*key).stored();
            let record = records.iter().find(|record| record.id == id);
            prop_assert_eq!(record.map(table_says), Some(rules_say(entry)));
        }
        Ok(())
    }
}
