//! Steps: durable intermediate results of an operation, each of which runs once.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Reached;
use super::work::{BACKOFF, Held, Live, TRIES, Work};
use crate::error::{EntryError, StepError};
use crate::outcome::{Ending, Failure, bounded};
use crate::protocol::Write;
use crate::store::{Store, StoreError};

/// The longest name of a step, in bytes.
const NAME_LIMIT: usize = 64;

/// The longest value of a step, in bytes of JSON text. Checkpoints live in the record, which every
/// refused write is billed by.
const STEP_LIMIT: usize = 16 * 1024;

/// The most that all steps together may take of the record, in bytes as DynamoDB counts them: the
/// rest of its 400 KB is for the record itself, and for the end, which must always find room.
const STEPS_LIMIT: usize = 256 * 1024;

/// What DynamoDB counts for a map beside its elements, in bytes.
const MAP: usize = 3;

/// What DynamoDB counts for an element of a map beside its name and its value, in bytes.
const ELEMENT: usize = 1;

impl<S: Store> Work<S> {
    /// Runs `operation` once per key, across attempts: its value is recorded under `name`, and a
    /// later attempt gets the recorded value without running it.
    ///
    /// Within an attempt it may be called again, after a [`StepError::Store`] or when its future was
    /// dropped (by a time-out) while the value was being recorded: what ran is then sent again and
    /// not run again. Of two calls with one name at the same time, the second waits for the first.
    ///
    /// A crash between the end of `operation` and its record makes the next attempt run it again,
    /// and a future that is dropped while `operation` runs makes the next call run it again: give
    /// the downstream service [`downstream_key`](Self::downstream_key).
    ///
    /// A claim that [marks its entry](crate::Once::marks_entry) is [entered](Self::enter) before
    /// `operation` runs, if it has not been before.
    ///
    /// # Errors
    ///
    /// The operation's own failure; or a [`StepError`]: the claim was lost, or the value could not
    /// be kept. A value that can never be kept (too large, no JSON) is a permanent failure, so that
    /// the step does not run again for it.
    pub async fn step<T, E, F, Fut>(&self, name: &str, operation: F) -> Result<T, Failure<E>>
    where
        T: Serialize + DeserializeOwned,
        E: From<StepError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let name = named(name).map_err(failure)?;
        if let Some(text) = self.recorded(name) {
            return read(name, &text);
        }
        let _under_way = self.begin(name).await.map_err(failure)?;
        // Whoever was at it before may have recorded it.
        if let Some(text) = self.recorded(name) {
            return read(name, &text);
        }
        let ran = self.0.live().unconfirmed.get(name).cloned();
        match ran {
            Some(Some(_)) if self.0.is_over() => {
                return Err(failure(StepError::Superseded(name.to_owned())));
            }
            Some(Some(text)) => {
                let sent = self.record_step(name, text.clone()).await;
                sent.map_err(failure)?;
                return read(name, &text);
            }
            Some(None) => return Err(failure(StepError::NotKept(name.to_owned()))),
            None => {}
        }
        if self.0.live().room(name) == 0 {
            return Err(failure(StepError::Full(name.to_owned())));
        }
        self.enter().await.map_err(|error| {
            failure(match error {
                EntryError::Lost | EntryError::Superseded => StepError::Lost(name.to_owned()),
                EntryError::Store(source) => StepError::NotEntered {
                    name: name.to_owned(),
                    source,
                },
            })
        })?;
        let value = operation().await?;
        let text = self.checked(name, &value);
        // Before anything is awaited: whatever becomes of this call, it ran.
        let kept = text.as_ref().ok().cloned();
        self.0.live().unconfirmed.insert(name.to_owned(), kept);
        let text = text.map_err(failure)?;
        self.record_step(name, text).await.map_err(failure)?;
        Ok(value)
    }

    /// What the record has of a step, as JSON text.
    fn recorded(&self, name: &str) -> Option<String> {
        self.0.live().checkpoints.get(name).cloned()
    }

    /// Begins a step, once nobody else of this claim is at it.
    async fn begin<'a>(&'a self, name: &'a str) -> Result<UnderWay<'a, S>, StepError> {
        let held = &*self.0;
        loop {
            let mut left = std::pin::pin!(held.left.notified());
            // Listening before the look, so that nothing is missed in between.
            left.as_mut().enable();
            if held.live().under_way.insert(name.to_owned()) {
                return Ok(UnderWay { held, name });
            }
            let lost = || StepError::Superseded(name.to_owned());
            tokio::select! {
                () = left => {}
                () = self.lost() => return Err(lost()),
                () = held.claims.source.sleep(self.remaining()) => if self.is_lost() {
                    return Err(lost());
                },
            }
        }
    }

    /// Records an intermediate result that was made elsewhere, as JSON text. It replaces what is
    /// recorded under the name.
    ///
    /// # Errors
    ///
    /// See [`StepError`].
    pub async fn checkpoint<T: Serialize>(&self, name: &str, value: &T) -> Result<(), StepError> {
        let name = named(name)?;
        if self.0.is_over() {
            return Err(StepError::Lost(name.to_owned()));
        }
        let text = self.checked(name, value)?;
        self.record_step(name, text).await
    }

    /// A value as JSON text that the record has room for.
    fn checked<T: Serialize>(&self, name: &str, value: &T) -> Result<String, StepError> {
        let text = serde_json::to_string(value).map_err(|source| StepError::Unserialisable {
            name: name.to_owned(),
            source,
        })?;
        let limit = STEP_LIMIT.min(self.0.live().room(name));
        if text.len() > limit {
            return Err(StepError::TooLarge {
                name: name.to_owned(),
                bytes: text.len(),
                limit,
            });
        }
        Ok(text)
    }

    /// Sends a checkpoint, and the same again while it stays unanswered and time is left. What has
    /// just run is sent once, also when the claim has ended meanwhile: the write's own condition
    /// tells whether it may stand.
    async fn record_step(&self, name: &str, text: String) -> Result<(), StepError> {
        let stored = |source| StepError::Store {
            name: name.to_owned(),
            source,
        };
        let mut backoff = BACKOFF;
        for tries in 1.. {
            let write = Write::Checkpoint {
                owner: self.0.owner.clone(),
                name: name.to_owned(),
                text: text.clone(),
            };
            match self.0.send(write, None).await {
                Ok(Reached::Answer(..)) => {
                    self.0.over();
                    return Err(StepError::Superseded(name.to_owned()));
                }
                Ok(_) => break,
                Err(source @ StoreError::TooLarge { .. }) => {
                    return Err(stored(source));
                }
                Err(source)
                    if tries >= TRIES || self.0.is_over() || self.remaining() <= backoff =>
                {
                    return Err(stored(source));
                }
                // The same text under the same name: a copy that lands twice changes nothing.
                Err(_) => self.0.claims.source.sleep(backoff).await,
            }
            backoff *= 2;
        }
        let mut live = self.0.live();
        live.unconfirmed.remove(name);
        live.checkpoints.insert(name.to_owned(), text);
        Ok(())
    }
}

impl Live {
    /// How many bytes of value the record has room for under `name`.
    fn room(&self, name: &str) -> usize {
        let recorded = self.checkpoints.iter();
        let recorded = recorded.map(|(name, text)| (name, text.len()));
        // What is not confirmed may stand there all the same.
        let unconfirmed = self.unconfirmed.iter();
        let unconfirmed =
            unconfirmed.map(|(name, text)| (name, text.as_ref().map_or(0, String::len)));
        let others: usize = recorded
            .chain(unconfirmed)
            .filter(|(other, _)| *other != name)
            .map(|(other, bytes)| ELEMENT + other.len() + bytes)
            .sum();
        STEPS_LIMIT.saturating_sub(MAP + others + ELEMENT + name.len())
    }
}

/// A step that is under way. It has left when this goes, also with a future that is dropped.
struct UnderWay<'a, S> {
    held: &'a Held<S>,
    name: &'a str,
}

impl<S> Drop for UnderWay<'_, S> {
    fn drop(&mut self) {
        self.held.live().under_way.remove(self.name);
        self.held.left.notify_waiters();
    }
}

fn named(name: &str) -> Result<&str, StepError> {
    if name.is_empty() || name.len() > NAME_LIMIT || name.chars().any(char::is_control) {
        return Err(StepError::Name(bounded(name, NAME_LIMIT)));
    }
    Ok(name)
}

/// The value of a step whose JSON text is known.
fn read<T: DeserializeOwned, E: From<StepError>>(name: &str, text: &str) -> Result<T, Failure<E>> {
    serde_json::from_str(text).map_err(|source| {
        failure(StepError::Unreadable {
            name: name.to_owned(),
            source,
        })
    })
}

/// What a step that has no value means for the operation, unless it says something else.
fn failure<E: From<StepError>>(error: StepError) -> Failure<E> {
    let (ending, code) = match &error {
        StepError::Name(_) => (Ending::Permanent, "step_name"),
        StepError::TooLarge { .. }
        | StepError::Unserialisable { .. }
        | StepError::NotKept(_)
        | StepError::Full(_)
        | StepError::Store {
            source: StoreError::TooLarge { .. },
            ..
        } => (Ending::Permanent, "step_value"),
        StepError::Lost(_) => (Ending::Unknown, "lease_lost"),
        StepError::Superseded(_) | StepError::Store { .. } => {
            (Ending::Unknown, "step_not_recorded")
        }
        StepError::Unreadable { .. } => (Ending::Unknown, "step_unreadable"),
        StepError::NotEntered { .. } => (Ending::DidNotHappen, "not_entered"),
    };
    Failure {
        ending,
        code: code.to_owned(),
        error: error.into(),
    }
}
