//! One queue: what may be received when, and what receiving, deleting and hiding do.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstclaim::clock::{EpochMillis, Source};
use tokio::sync::Notify;

use super::folder::{Folder, FolderError};
use super::message::{Draft, Message, Received};
use super::refused::Refused;
use super::{ACCOUNT, REGION, Settings};

/// The longest message, in bytes, with its attributes.
const SIZE_LIMIT: usize = 1024 * 1024;

/// The longest visibility.
const VISIBILITY_LIMIT: Duration = Duration::from_secs(12 * 60 * 60);

/// A queue. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    visibility: Duration,
    redrive: Option<(Queue, u32)>,
    folder: Option<Folder>,
    source: Arc<dyn Source>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By the order of sending.
    messages: BTreeMap<u64, Message>,
    next: u64,
}

/// How many messages a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// May be received now.
    pub visible: usize,
    /// Received, and neither deleted nor visible again.
    pub in_flight: usize,
    /// Sent with a delay that is not over.
    pub delayed: usize,
}

impl Count {
    /// All of them.
    #[must_use]
    pub fn all(self) -> usize {
        self.visible + self.in_flight + self.delayed
    }
}

impl Queue {
    pub(super) fn open(
        settings: &Settings,
        redrive: Option<(Self, u32)>,
        folder: Option<Folder>,
        source: Arc<dyn Source>,
    ) -> Result<Self, FolderError> {
        let messages: BTreeMap<u64, Message> = match &folder {
            Some(folder) => folder.load()?.into_iter().collect(),
            None => BTreeMap::new(),
        };
        let next = messages.last_key_value().map_or(0, |(last, _)| last + 1);
        Ok(Self(Arc::new(Shared {
            name: settings.name.clone(),
            visibility: settings.visibility,
            redrive,
            folder,
            source,
            state: Mutex::new(State { messages, next }),
            changed: Notify::new(),
        })))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its ARN.
    #[must_use]
    pub fn arn(&self) -> String {
        format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{}", self.0.name)
    }

    /// How long a received message stays hidden.
    #[must_use]
    pub fn visibility(&self) -> Duration {
        self.0.visibility
    }

    /// The dead-letter queue, and how often a message is received before it goes there.
    #[must_use]
    pub fn redrive(&self) -> Option<(&Self, u32)> {
        self.0
            .redrive
            .as_ref()
            .map(|(queue, limit)| (queue, *limit))
    }

    /// Puts a message in, visible after `delay`, and returns its id. Once this returns, the message
    /// is kept. Writes a file: not for an asynchronous task's own thread.
    ///
    /// # Errors
    ///
    /// The message is empty, too long, has a character or attribute that SQS refuses, or could not
    /// be kept.
    pub fn send(&self, draft: Draft, delay: Duration) -> Result<String, Refused> {
        check(&draft)?;
        let now = self.0.source.now();
        let id = uuid::Uuid::new_v4().to_string();
        self.put(Message {
            id: id.clone(),
            draft,
            sent_ms: now.0,
            first_received_ms: None,
            receives: 0,
            visible_ms: now.after(delay).0,
            receipt: None,
            source_queue: None,
        })?;
        Ok(id)
    }

    /// Receives up to `max` visible messages, in the order of sending, and hides them for
    /// `visibility` (by default the queue's). What was received too often goes to the dead-letter
    /// queue instead. Writes files, as [`send`](Self::send) does.
    ///
    /// # Errors
    ///
    /// A message's new state could not be kept.
    pub fn receive(
        &self,
        max: usize,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, Refused> {
        let now = self.0.source.now();
        let hidden = now.after(visibility.unwrap_or(self.0.visibility));
        let mut state = self.state();
        let visible: Vec<u64> = state
            .messages
            .iter()
            .filter(|(_, message)| message.visible_ms <= now.0)
            .map(|(number, _)| *number)
            .collect();
        let mut received = Vec::new();
        for number in visible {
            if received.len() == max {
                break;
            }
            let Some(message) = state.messages.get(&number) else {
                continue;
            };
            if let Some((dead, limit)) = &self.0.redrive
                && message.receives >= *limit
            {
                dead.bury(message, &self.0.name, now)?;
                self.forget(&mut state, number)?;
                continue;
            }
            let mut message = message.clone();
            message.receives += 1;
            message.visible_ms = hidden.0;
            let first = *message.first_received_ms.get_or_insert(now.0);
            let receipt = format!("{number}.{}", uuid::Uuid::new_v4().simple());
            message.receipt = Some(receipt.clone());
            self.keep(number, &message)?;
            received.push(Received {
                id: message.id.clone(),
                receipt,
                draft: message.draft.clone(),
                sent: EpochMillis(message.sent_ms),
                first_received: EpochMillis(first),
                receives: message.receives,
                source_arn: message
                    .source_queue
                    .as_ref()
                    .map(|name| format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")),
            });
            state.messages.insert(number, message);
        }
        Ok(received)
    }

    /// Resolves once a message may be received: at once, at the next send, or at the end of the
    /// next visibility. Another receiver may still be faster. Dropping it loses nothing.
    pub async fn ready(&self) {
        loop {
            // Registered before the look, so that a send right after it is not missed.
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let now = self.0.source.now();
            let next = self
                .state()
                .messages
                .values()
                .map(|message| message.visible_ms)
                .min();
            match next {
                Some(at) if at <= now.0 => return,
                Some(at) => {
                    let rest = EpochMillis(at).since(now);
                    // Whether it was woken or the time is over: look again.
                    let _ = tokio::time::timeout(rest, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Removes a message for good. A handle that a later receive has replaced removes nothing, and
    /// that is no error, as in SQS.
    ///
    /// # Errors
    ///
    /// The handle was never one, or the file could not be removed.
    pub fn delete(&self, receipt: &str) -> Result<(), Refused> {
        let number = number_of(receipt)?;
        let mut state = self.state();
        let current = state
            .messages
            .get(&number)
            .and_then(|message| message.receipt.as_deref());
        if current == Some(receipt) {
            self.forget(&mut state, number)?;
        }
        Ok(())
    }

    /// Hides a received message until `visibility` from now; zero makes it visible at once.
    ///
    /// # Errors
    ///
    /// More than 12 hours, or the message is not in flight under this handle.
    pub fn change_visibility(&self, receipt: &str, visibility: Duration) -> Result<(), Refused> {
        if visibility > VISIBILITY_LIMIT {
            return Err(Refused::Invalid(format!(
                "Value {} for parameter VisibilityTimeout is invalid. Reason: must be between 0 \
                 and {} seconds.",
                visibility.as_secs(),
                VISIBILITY_LIMIT.as_secs()
            )));
        }
        let number = number_of(receipt)?;
        let now = self.0.source.now();
        let mut state = self.state();
        let mut message = match state.messages.get(&number) {
            Some(message)
                if message.receipt.as_deref() == Some(receipt) && message.visible_ms > now.0 =>
            {
                message.clone()
            }
            _ => return Err(Refused::NotInFlight),
        };
        message.visible_ms = now.after(visibility).0;
        self.keep(number, &message)?;
        state.messages.insert(number, message);
        drop(state);
        self.0.changed.notify_waiters();
        Ok(())
    }

    /// How many messages it holds.
    #[must_use]
    pub fn count(&self) -> Count {
        let now = self.0.source.now();
        let mut count = Count::default();
        for message in self.state().messages.values() {
            if message.visible_ms <= now.0 {
                count.visible += 1;
            } else if message.receipt.is_some() {
                count.in_flight += 1;
            } else {
                count.delayed += 1;
            }
        }
        count
    }

    /// Takes a message that another queue gives up. A second copy, after a crash between writing
    /// here and removing there, is dropped.
    fn bury(&self, message: &Message, from: &str, now: EpochMillis) -> Result<(), FolderError> {
        if self
            .state()
            .messages
            .values()
            .any(|buried| buried.id == message.id)
        {
            return Ok(());
        }
        self.put(Message {
            first_received_ms: None,
            receives: 0,
            visible_ms: now.0,
            receipt: None,
            source_queue: Some(from.to_owned()),
            ..message.clone()
        })
    }

    fn put(&self, message: Message) -> Result<(), FolderError> {
        let mut state = self.state();
        let number = state.next;
        self.keep(number, &message)?;
        state.next += 1;
        state.messages.insert(number, message);
        drop(state);
        self.0.changed.notify_waiters();
        Ok(())
    }

    fn keep(&self, number: u64, message: &Message) -> Result<(), FolderError> {
        match &self.0.folder {
            Some(folder) => folder.save(number, message),
            None => Ok(()),
        }
    }

    fn forget(&self, state: &mut State, number: u64) -> Result<(), FolderError> {
        if let Some(folder) = &self.0.folder {
            folder.remove(number)?;
        }
        state.messages.remove(&number);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing below panics half-way through a change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message that a handle speaks of.
fn number_of(receipt: &str) -> Result<u64, Refused> {
    let (number, _) = receipt.split_once('.').ok_or(Refused::NoHandle)?;
    number.parse().map_err(|_| Refused::NoHandle)
}

fn check(draft: &Draft) -> Result<(), Refused> {
    if draft.body.is_empty() {
        return Err(Refused::Missing("MessageBody"));
    }
    if draft.size() > SIZE_LIMIT {
        return Err(Refused::Invalid(format!(
            "One or more parameters are invalid. Reason: Message must be shorter than {SIZE_LIMIT} \
             bytes."
        )));
    }
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..);
    if !draft.body.chars().all(allowed) {
        return Err(Refused::Characters);
    }
    if draft.attributes.len() > 10 {
        return Err(Refused::Invalid(
            "Number of message attributes exceeds the allowed maximum of 10.".to_owned(),
        ));
    }
    match draft
        .attributes
        .iter()
        .find(|(_, attribute)| attribute.value().is_none())
    {
        Some((name, _)) => Err(Refused::Invalid(format!(
            "The message attribute {name:?} must have a non-empty value of its type."
        ))),
        None => Ok(()),
    }
}
