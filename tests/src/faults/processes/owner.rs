//! An owner: a process that claims, works, and says so.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context;
use aws_sdk_dynamodb::Client;
use firstclaim::aws::{Patience, loopback_config};
use firstclaim::outcome::{Answer, Failure};
use firstclaim::record::Policy;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, Key, RunError, StepError, Work};
use serde_json::{Value, json};

use super::config;
use crate::faults::Mutant;

/// What an owner does; also the arguments that a process becomes it by.
#[derive(Clone, Debug)]
pub struct Owner {
    pub(super) endpoint: String,
    pub(super) table: String,
    pub(super) key: String,
    pub(super) hold: bool,
    /// Milliseconds.
    pub(super) lease: u64,
    /// How long it works, in milliseconds.
    pub(super) work: u64,
    /// How long it waits for another owner, in milliseconds.
    pub(super) wait: u64,
    pub(super) renewed: bool,
    /// Whether its operation does not happen.
    pub(super) fails: bool,
    pub(super) mutant: Option<String>,
}

/// The operation's error.
#[derive(Debug)]
struct Trouble(String);

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StepError> for Trouble {
    fn from(error: StepError) -> Self {
        Self(error.to_string())
    }
}

/// How often a working owner looks whether its end has moved.
const LOOK: Duration = Duration::from_millis(20);

/// The first argument of a process that is to become an owner.
const WORD: &str = "owner";

impl Owner {
    pub(super) fn policy(&self) -> Policy {
        if self.hold {
            Policy::Hold
        } else {
            Policy::Rerun
        }
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        let plan = json!({
            "endpoint": self.endpoint,
            "table": self.table,
            "key": self.key,
            "hold": self.hold,
            "lease": self.lease,
            "work": self.work,
            "wait": self.wait,
            "renewed": self.renewed,
            "fails": self.fails,
            "mutant": self.mutant,
        });
        vec![WORD.to_owned(), plan.to_string()]
    }

    /// The owner that these arguments of a process ask for, if they do.
    ///
    /// # Errors
    ///
    /// They ask for an owner, but don't describe one.
    pub fn from_arguments(arguments: &[String]) -> anyhow::Result<Option<Self>> {
        let [_, word, plan] = arguments else {
            return Ok(None);
        };
        if word != WORD {
            return Ok(None);
        }
        let plan: Value = serde_json::from_str(plan)?;
        let text = |name: &str| plan[name].as_str().map(str::to_owned).context("a text");
        let number = |name: &str| plan[name].as_u64().context("a number");
        let flag = |name: &str| plan[name].as_bool().context("a flag");
        Ok(Some(Self {
            endpoint: text("endpoint")?,
            table: text("table")?,
            key: text("key")?,
            hold: flag("hold")?,
            lease: number("lease")?,
            work: number("work")?,
            wait: number("wait")?,
            renewed: flag("renewed")?,
            fails: flag("fails")?,
            mutant: plan["mutant"].as_str().map(str::to_owned),
        }))
    }

    /// Is the owner: claims, works, and says on standard output what happens.
    ///
    /// # Errors
    ///
    /// It could not begin, or nobody listens to it.
    pub fn run(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.go())
    }

    async fn go(&self) -> anyhow::Result<()> {
        let patience = Patience {
            attempts: 3,
            attempt: Duration::from_millis(250),
            total: Duration::from_millis(700),
        };
        let client = Client::new(&loopback_config(&self.endpoint, patience).await);
        let mut store = DynamoDb::new(client, &self.table);
        let mutant = self.mutant.as_deref().map(str::parse::<Mutant>);
        let mutant = mutant.transpose()?;
        if let Some(Mutant::Part { write, part }) = mutant {
            store = store.without_part(write, part);
        }
        let mut claims = Claims::new(store, config(self.policy()))?;
        if let Some(Mutant::Rule(rule)) = mutant {
            claims = claims.without_rule(rule);
        }
        let key = Key::parse(&self.key)?;
        let mut once = claims
            .once(key)
            .lease(Duration::from_millis(self.lease))
            .wait_for(Duration::from_millis(self.wait));
        if self.renewed {
            once = once.renewed(Duration::from_secs(5));
        }
        say(&json!({"starts": claims.now().0}))?;
        let outcome = once.run(|work| self.operate(&claims, work)).await;
        let ended = match outcome {
            Ok(outcome) => {
                let name = outcome.name();
                let value = match outcome.answer {
                    Answer::Performed(value) | Answer::Replayed(value) => Some(value),
                    _ => None,
                };
                json!({"ended": name, "value": value})
            }
            Err(RunError::Claim(error)) => {
                json!({"ended": "not_claimed", "why": error.to_string()})
            }
            Err(error) => json!({"ended": "operation", "why": error.to_string()}),
        };
        say(&ended)
    }

    async fn operate(
        &self,
        claims: &Claims<DynamoDb>,
        work: Work<DynamoDb>,
    ) -> Result<String, Failure<Trouble>> {
        let unheard = |error: anyhow::Error| Trouble(error.to_string());
        say(&json!({
            "entered": claims.now().0,
            "attempt": work.attempt(),
            "ends": work.ends().0,
            "downstream": work.downstream_key("effect"),
        }))
        .map_err(unheard)?;
        let made = format!("step of attempt {}", work.attempt());
        let value = work
            .step("effect", || async {
                Ok::<_, Failure<Trouble>>(made.clone())
            })
            .await;
        let value = match value {
            Ok(value) => value,
            Err(failure) => {
                say(&json!({"left": claims.now().0})).map_err(unheard)?;
                return Err(failure);
            }
        };
        say(&json!({"step": value})).map_err(unheard)?;
        self.work(claims, &work).await.map_err(unheard)?;
        let lost = work.is_lost();
        say(&json!({
            "left": claims.now().0,
            "ends": work.ends().0,
            "lost": lost,
            "failed": self.fails,
        }))
        .map_err(unheard)?;
        if lost {
            return Err(Failure::unknown("lost", Trouble("lost".to_owned())));
        }
        if self.fails {
            let trouble = Trouble("not now".to_owned());
            return Err(Failure::did_not_happen("busy", trouble));
        }
        Ok(format!("result of attempt {}, {value}", work.attempt()))
    }
}

impl Owner {
    /// Works for its time, and not beyond the end of its claim; says when that end has moved.
    async fn work(&self, claims: &Claims<DynamoDb>, work: &Work<DynamoDb>) -> anyhow::Result<()> {
        let done = claims.now().after(Duration::from_millis(self.work));
        let mut ends = work.ends();
        while claims.now() < done && !work.is_lost() {
            let rest = done.since(claims.now()).min(work.remaining());
            tokio::time::sleep(rest.clamp(Duration::from_millis(1), LOOK)).await;
            if work.ends() != ends {
                ends = work.ends();
                say(&json!({"ends": ends.0}))?;
            }
        }
        Ok(())
    }
}

/// One line, written at once: a kill later can't take it back.
fn say(what: &Value) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{what}").and_then(|()| stdout.flush())?;
    Ok(())
}
