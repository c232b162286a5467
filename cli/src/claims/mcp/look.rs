//! The tools that change nothing: `get_claim` and `wait`.

use std::time::Duration;

use firstclaim::clock::{EpochMillis, Source};
use firstclaim::protocol::{Decision, Request, Terms, Verdict, decide};
use firstclaim::record::{Data, Origin};
use firstclaim::{Key, Record, Status, StoreError};
use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use serde::Deserialize;

use super::super::SOURCE;
use super::super::view::State;
use super::answer::{Answer, LastError, LeaseEnd, Text, Told, Untrusted, Word};
use super::tools::{LONGEST_WAIT, USUAL_WAIT};
use super::{Server, advice, arguments};

/// The first pause between two looks; doubled each time.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// The longest one.
const LAST_LOOK: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetClaim {
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    key: String,
    seconds: Option<u64>,
}

impl Server {
    pub(super) async fn get_claim(&self, given: serde_json::Value) -> Told {
        let GetClaim { key } = arguments(given)?;
        let key = self.accepted(&key)?;
        Ok(self.look(&key).await)
    }

    /// Looks again until nobody is at it, the time is over, the call is cancelled, or the client
    /// has gone.
    pub(super) async fn wait(
        &self,
        given: serde_json::Value,
        context: &RequestContext<RoleServer>,
    ) -> Told {
        let Wait { key, seconds } = arguments(given)?;
        let key = self.accepted(&key)?;
        let budget = seconds.map_or(USUAL_WAIT, Duration::from_secs);
        if budget > LONGEST_WAIT {
            let longest = LONGEST_WAIT.as_secs();
            return Err(Box::new(Answer {
                problem: Some(format!("seconds is at most {longest}; call again after it")),
                ..Answer::about(&key, Word::Refused, advice::ARGUMENTS)
            }));
        }
        let started = SOURCE.now();
        let end = started.after(budget);
        let mut closed = self.closed.clone();
        let mut pause = FIRST_LOOK;
        loop {
            let answer = self.look(&key).await;
            let now = SOURCE.now();
            if answer.outcome != Word::InFlight || now >= end {
                return Ok(answer);
            }
            tell(context, now.since(started), budget).await;
            tokio::select! {
                () = SOURCE.sleep(pause.min(end.since(now))) => {}
                () = context.ct.cancelled() => return Ok(answer),
                // Nobody is left to wait for it, or nothing can end the wait any more.
                _ = closed.wait_for(|closed| *closed) => return Ok(answer),
            }
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    async fn look(&self, key: &Key) -> Answer {
        let looked = async {
            let record = self.claims.read(key).await?;
            self.seen(key, record.as_ref()).await
        };
        match looked.await {
            Ok(answer) => answer,
            Err(error) => self.unavailable(key, &error, advice::LOOK_UNKNOWN),
        }
    }

    /// A record as an answer.
    async fn seen(&self, key: &Key, record: Option<&Record>) -> Result<Answer, StoreError> {
        let now = self.claims.now();
        let (outcome, advice) = self.meaning(key, record, now);
        let answer = Answer::about(key, outcome, advice);
        let Some(record) = record.filter(|_| outcome != Word::Absent) else {
            return Ok(answer);
        };
        let lease = record.lease.filter(|end| *end > now);
        let mut answer = Answer {
            attempt: Some(record.attempt),
            lease: lease.map(|end| LeaseEnd::of(end, now)),
            untrusted: Some(written(record, now)),
            ..answer
        };
        if record.status != Status::InProgress {
            self.add_end(&mut answer, record).await?;
        }
        Ok(answer)
    }

    /// What a record means for one who might want to claim its key, by the protocol's own decision.
    fn meaning(
        &self,
        key: &Key,
        record: Option<&Record>,
        now: EpochMillis,
    ) -> (Word, &'static str) {
        let config = self.claims.config();
        let far = now.after(config.longest_lease);
        let newcomer = Request::Acquire(Terms {
            id: key.stored(),
            owner: SOURCE.token(),
            lease: far,
            ends: far,
            window: config.window,
            policy: config.policy,
            fingerprint: None,
            activity: None,
            origin: Origin::default(),
            silent_limit: config.silent_limit,
            inspects: false,
            marks: false,
        });
        let decision = decide(record, &newcomer, now);
        let Some(record) = record else {
            return (Word::Absent, advice::ABSENT);
        };
        match (decision, State::of(record, now)) {
            (_, State::Over) => (Word::Absent, advice::ABSENT),
            (_, State::Completed) => (Word::Completed, advice::COMPLETED),
            (_, State::Failed) => (Word::Failed, advice::FAILED),
            (_, State::Running) if self.is_ours(key, record) => (Word::Claimed, advice::YOURS),
            (_, State::Running | State::Locked) => (Word::InFlight, advice::IN_FLIGHT),
            (Decision::Answer(Verdict::Held), _) => (Word::Held, advice::HELD),
            (_, State::Released) => (Word::Released, advice::RELEASED),
            (_, State::Lapsed | State::Suspended) => (Word::Lapsed, advice::LAPSED),
        }
    }

    fn is_ours(&self, key: &Key, record: &Record) -> bool {
        record.owner.is_some() && record.owner == self.held.owner(key)
    }

    /// The result or the failure of a final record.
    pub(super) async fn add_end(
        &self,
        answer: &mut Answer,
        record: &Record,
    ) -> Result<(), StoreError> {
        let text = self.claims.result(record).await?;
        let untrusted = answer.untrusted.get_or_insert_default();
        // Another tool stores nothing for an empty result.
        let text = text.or_else(|| record.data.is_none().then(|| "null".to_owned()));
        let text = text.as_deref().map(Text::of);
        match (record.status, text, &record.data) {
            (Status::Failed, Some(failure), _) => untrusted.failure = Some(failure),
            (_, Some(result), _) => untrusted.result = Some(result),
            (_, None, Some(Data::Companion { note, .. } | Data::Omitted(note))) => {
                untrusted.result_omitted = Some(note.into());
                if answer.outcome == Word::Completed {
                    answer.advice = advice::COMPLETED_WITHOUT_RESULT;
                }
            }
            (_, None, _) => {}
        }
        Ok(())
    }
}

/// What others wrote into a record, without its end.
fn written(record: &Record, now: EpochMillis) -> Untrusted {
    let activity = record.activity.as_ref();
    Untrusted {
        activity: activity.map(|activity| activity.text.clone()),
        activity_seconds_ago: activity.map(|activity| now.since(activity.at).as_secs()),
        last_error: record.error.as_ref().map(|error| LastError {
            code: error.code.clone(),
            message: error.message.clone(),
            attempt: error.attempt,
        }),
        ..Untrusted::claimed_by(&record.origin).with_checkpoints(&record.checkpoints)
    }
}

/// Tells the client that the wait goes on, if it wants to know. Clients begin their time-out anew.
async fn tell(context: &RequestContext<RoleServer>, waited: Duration, budget: Duration) {
    let Some(token) = context.meta.get_progress_token() else {
        return;
    };
    let progress = ProgressNotificationParam::new(token, waited.as_secs_f64())
        .with_total(budget.as_secs_f64())
        .with_message("somebody is at it");
    // A client that can't be reached any more is noticed elsewhere.
    let _ = context.peer.notify_progress(progress).await;
}
