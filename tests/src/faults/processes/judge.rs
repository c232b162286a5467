//! What owners said, and what the record says in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use firstclaim::outcome::{Answer, Outcome};
use firstclaim::record::{Policy, Record, Status};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, Key, RunError, StepError};
use serde_json::Value;

use super::{Count, GRACE, SILENT_LIMIT};
use crate::faults::Found;

/// Longer than any lease of an owner, and the way of a request that was passed on late.
const LONGEST: Duration = Duration::from_secs(3);

/// What an owner told.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) lines: Vec<String>,
    /// When it was killed, in epoch milliseconds.
    pub(super) killed: Option<i64>,
}

/// An operation that was entered.
struct Entry {
    owner: usize,
    attempt: i64,
    from: i64,
    /// By when its owner had to stop, as far as it has said.
    ends: i64,
    /// When its owner stopped, was killed, or had to stop.
    until: i64,
    /// Whether it said that it did not happen.
    did_not_happen: bool,
}

pub(super) struct Judge {
    policy: Policy,
    count: Count,
    entries: Vec<Entry>,
    downstream: BTreeSet<String>,
    /// Step values that are recorded for sure.
    steps: BTreeSet<String>,
    performed: BTreeSet<String>,
    replayed: BTreeSet<String>,
    violations: Vec<String>,
    events: Vec<String>,
}

impl Judge {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            count: Count::default(),
            entries: Vec::new(),
            downstream: BTreeSet::new(),
            steps: BTreeSet::new(),
            performed: BTreeSet::new(),
            replayed: BTreeSet::new(),
            violations: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn hear(&mut self, owner: usize, told: Told) {
        self.count.owners += 1;
        self.count.killed += u64::from(told.killed.is_some());
        let mut inside: Option<Entry> = None;
        for line in &told.lines {
            self.events.push(format!("owner {owner}: {line}"));
            let Ok(said) = serde_json::from_str::<Value>(line) else {
                self.violations
                    .push(format!("owner {owner} said {line:?}, which is no JSON"));
                continue;
            };
            if let Some(from) = said["entered"].as_i64() {
                self.count.entries += 1;
                let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
                self.downstream.insert(text("downstream"));
                inside = Some(Entry {
                    owner,
                    attempt: said["attempt"].as_i64().unwrap_or(0),
                    from,
                    ends: from,
                    until: i64::MAX,
                    did_not_happen: false,
                });
            }
            if let (Some(entry), Some(ends)) = (&mut inside, said["ends"].as_i64()) {
                entry.ends = ends;
            }
            if let (Some(entry), Some(until)) = (&mut inside, said["left"].as_i64()) {
                entry.until = until;
                entry.did_not_happen = said["failed"] == true && said["lost"] == false;
            }
            if let Some(step) = said["step"].as_str() {
                self.steps.insert(step.to_owned());
            }
            let value = said["value"].as_str().map(str::to_owned);
            match (said["ended"].as_str(), value) {
                (Some("performed"), Some(value)) => drop(self.performed.insert(value)),
                (Some("replayed"), Some(value)) => drop(self.replayed.insert(value)),
                _ => {}
            }
        }
        if let Some(killed) = told.killed {
            self.events
                .push(format!("owner {owner} was killed at {killed}"));
        }
        if let Some(mut entry) = inside {
            if entry.until == i64::MAX {
                self.count.cut += u64::from(told.killed.is_some());
                // It may have been killed a moment before this was noted.
                entry.until = told.killed.unwrap_or(entry.from);
            }
            // An owner that is late to notice its end must not be counted as live for that.
            entry.until = entry.until.min(entry.ends);
            self.entries.push(entry);
        }
    }

    /// Everybody is gone: the record, and what the next request gets.
    pub(super) async fn probe(
        &mut self,
        claims: &Claims<DynamoDb>,
        key: &Key,
    ) -> anyhow::Result<()> {
        self.entries();
        let bound = tokio::time::Instant::now() + LONGEST;
        let (record, answer) = loop {
            let record = claims.read(key).await?;
            self.events.push(format!("the record: {record:?}"));
            let answer = claims
                .once(key.clone())
                .lease(GRACE + Duration::from_secs(5))
                .policy(Policy::Rerun)
                .run(|work| async move {
                    work.step("effect", || async {
                        Ok::<_, firstclaim::Failure<StepError>>(String::new())
                    })
                    .await
                })
                .await;
            self.events.push(format!("the next request: {answer:?}"));
            // A lease that is still running ends; and a held request may land until its sender's
            // gate has opened: all have, but what was passed on may still be on its way.
            let rest = match &answer {
                Ok(Outcome {
                    answer: Answer::InProgress { retry_after, .. },
                    ..
                }) => *retry_after,
                _ => break (record, answer),
            };
            if tokio::time::Instant::now() + rest > bound {
                self.violated("6: the key is locked for longer than any lease".to_owned());
                return Ok(());
            }
            tokio::time::sleep(rest + Duration::from_millis(1)).await;
        };
        let fine = match (&answer, record.as_ref()) {
            (Ok(outcome), record) => self.fits(outcome, record),
            (Err(RunError::Claim(_) | _), _) => false,
        };
        if !fine {
            self.violated(format!("6: the next request ended with {answer:?}"));
        }
        Ok(())
    }

    fn fits(&self, outcome: &Outcome<String>, record: Option<&Record>) -> bool {
        let results = self.performed.union(&self.replayed);
        match (&outcome.answer, record) {
            (Answer::Replayed(value), Some(record)) => {
                // A killed owner leaves its last request on the way: its completion may land after
                // the record was read, as long as nobody else has the record.
                let completed_late = record.status == Status::InProgress
                    && !record.released()
                    && record.attempt == outcome.attempt;
                (record.status == Status::Completed || completed_late)
                    && results.into_iter().all(|one| one == value)
            }
            // Its step gives what was recorded, or the empty text of its own.
            (Answer::Performed(value), record) => {
                let in_progress = record.is_none_or(|one| one.status == Status::InProgress);
                let recorded = self.steps.is_empty() || self.steps.contains(value);
                in_progress && results.count() == 0 && recorded
            }
            (Answer::Held { .. }, Some(record)) => {
                record.status == Status::InProgress
                    && !record.released()
                    && (record.policy == Policy::Hold || record.silent_attempts() >= SILENT_LIMIT)
            }
            _ => false,
        }
    }

    /// Entries among each other.
    fn entries(&mut self) {
        self.entries.sort_by_key(|entry| entry.from);
        let mut wrong = Vec::new();
        for (first, second) in self.entries.iter().zip(self.entries.iter().skip(1)) {
            let both = format!("owners {} and {}", first.owner, second.owner);
            if second.from < first.until {
                wrong.push(format!("1: {both} are live at once"));
            }
            if second.attempt <= first.attempt {
                wrong.push(format!("3: {both} have attempts in a wrong order"));
            }
            if self.policy == Policy::Hold && !first.did_not_happen {
                wrong.push(format!("8: {both} entered under hold"));
            }
        }
        if self.downstream.len() > 1 {
            wrong.push("9: there are two downstream keys".to_owned());
        }
        if self.steps.len() > 1 {
            wrong.push(format!("a step was recorded twice: {:?}", self.steps));
        }
        if self.performed.len() > 1 || self.performed.union(&self.replayed).count() > 1 {
            wrong.push(format!(
                "2: there are two results: {:?}, {:?}",
                self.performed, self.replayed
            ));
        }
        wrong.into_iter().for_each(|what| self.violated(what));
    }

    fn violated(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(super) fn into_found(self, seed: u64) -> (Found, Count) {
        let found = Found {
            seed,
            violations: self.violations,
            events: self.events,
        };
        (found, self.count)
    }
}
