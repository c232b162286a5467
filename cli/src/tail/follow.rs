//! The loop: connect, read, hand on, remember, connect again.

use std::time::Duration;

use firstclaim::clock::Source;
use queue::event_stream::{Block, Data, Parser};
use reqwest::Response;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use super::destination::{Destination, Handed};
use super::event::{self, Event, Filter, Read};
use super::lines::Lines;
use super::position::{Kept, Letter, Position, can_be_sent};
use super::stream::{Opened, Stream};
use super::{Error, OnGap};
use crate::check::root;
use crate::claims::duration::about;

/// The longest data of an event, in bytes: what a queue takes.
const EVENT_LIMIT: usize = 1024 * 1024;

/// The first pause before a connection is made again, until the stream says another.
const RECONNECT: Duration = Duration::from_secs(1);

/// The first pause before an event is handed over again.
const HAND_OVER: Duration = Duration::from_millis(500);

/// How long a hand-over that runs at the end may take.
const LAST: Duration = Duration::from_secs(5);

/// Follows one stream.
#[derive(Debug)]
pub(super) struct Follower<S> {
    pub(super) stream: Stream,
    pub(super) filter: Filter,
    pub(super) destination: Destination,
    pub(super) position: Position,
    pub(super) idle: Duration,
    pub(super) on_gap: OnGap,
    pub(super) lines: Lines,
    pub(super) source: S,
    /// True when the process is to end.
    pub(super) stop: watch::Receiver<bool>,
    pub(super) count: Count,
}

/// What became of the events, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    handed_on: u64,
    others: u64,
    refused: u64,
}

/// Why something ended.
enum Over {
    /// The process is to end.
    Stopped,
    /// The connection is of no use any more.
    Lost(String),
}

impl<S: Source> Follower<S> {
    /// Follows until it is stopped or the server wants no more connections.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        let done = self.follow().await;
        // Also after an error: what was not wanted need not come again.
        let written = self.position.write();
        done?;
        written?;
        let Count {
            handed_on,
            others,
            refused,
        } = self.count;
        let refused = match refused {
            0 => String::new(),
            _ => format!(", {refused} refused"),
        };
        self.lines.note(&format!(
            "ended at {}: {handed_on} handed on{refused}, {others} not of this scope and kind",
            named(self.position.id())
        ));
        Ok(())
    }

    async fn follow(&mut self) -> Result<(), Error> {
        if let Some(Kept {
            id,
            own_id,
            event,
            data,
        }) = self.position.kept()
        {
            // What an earlier process has begun comes first: the stream may not say it again.
            let begun = match id.as_str() {
                "" => "an event without an id".to_owned(),
                id => named(id),
            };
            self.lines
                .note(&format!("handing over what was begun earlier: {begun}"));
            let block = Block {
                id,
                own_id,
                event,
                data: Some(Data::Text(data)),
            };
            if self.take(block).await?.is_some() {
                return Ok(());
            }
        }
        let mut backoff = Backoff::new(RECONNECT);
        loop {
            let mut stop = self.stop.clone();
            let opened = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                opened = self.stream.open(self.position.id(), &self.source) => opened?,
            };
            let asked = match opened {
                Opened::Following(response) => {
                    let from = named(self.position.id());
                    self.lines
                        .note(&format!("following {} from {from}", self.stream.shown()));
                    match self.read(response, &mut backoff).await? {
                        Over::Stopped => return Ok(()),
                        Over::Lost(why) => {
                            self.lines.note(&format!("the connection ended: {why}"));
                            None
                        }
                    }
                }
                Opened::Over => {
                    self.lines
                        .important("the server wants no more connections (204)");
                    return Ok(());
                }
                Opened::Gap(why) => {
                    self.gap(&why)?;
                    self.position.forget();
                    None
                }
                Opened::Later { why, asked } => {
                    self.lines.important(&format!("no stream: {why}"));
                    asked
                }
            };
            let pause = backoff.next(asked, &self.source);
            if !asked_to_wait(&mut self.stop, pause).await {
                return Ok(());
            }
        }
    }

    async fn read(&mut self, mut response: Response, backoff: &mut Backoff) -> Result<Over, Error> {
        let mut parser = Parser::new(self.position.id().to_owned(), EVENT_LIMIT);
        loop {
            let mut stop = self.stop.clone();
            let chunk = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(Over::Stopped),
                chunk = timeout(self.idle, response.chunk()) => chunk,
            };
            let bytes = match chunk {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => return Ok(Over::Lost("the server closed it".to_owned())),
                Ok(Err(error)) => return Ok(Over::Lost(root(&error))),
                Err(_) => {
                    let silent = format!("not even a comment for {}", about(self.idle));
                    return Ok(Over::Lost(silent));
                }
            };
            backoff.reset();
            let mut input = &bytes[..];
            while let Some(block) = parser.next(&mut input) {
                if let Some(over) = self.take(block).await? {
                    return Ok(over);
                }
            }
            if let Some(retry) = parser.retry() {
                backoff.set_base(retry);
            }
        }
    }

    /// Deals with a block to its end: only then does the position go on, and the next one follow.
    async fn take(&mut self, block: Block) -> Result<Option<Over>, Error> {
        let source = event::Source {
            stream: self.stream.shown(),
            id: block.own_id.then_some(block.id.as_str()),
            event: &block.event,
        };
        match &block.data {
            None => self.pass(&block.id)?,
            Some(Data::TooLong { bytes }) => {
                let why = format!("its {bytes} bytes are more than {EVENT_LIMIT}");
                self.refuse(&block, None, &why, None)?;
            }
            Some(Data::Text(data)) => match self.filter.read(source, data) {
                Read::Other => {
                    self.count.others += 1;
                    self.pass(&block.id)?;
                }
                Read::Gap(said) => {
                    self.gap(&said)?;
                    self.advance(&block.id)?;
                }
                Read::Broken(why) => self.refuse(&block, Some(data), why, None)?,
                Read::Wanted(event) => {
                    self.position.secure(&Kept {
                        id: block.id.clone(),
                        own_id: block.own_id,
                        event: block.event.clone(),
                        data: data.clone(),
                    })?;
                    match self.hand_over(&block, &event).await? {
                        None => return Ok(Some(Over::Stopped)),
                        Some(Ok(())) => self.advance(&block.id)?,
                        Some(Err(why)) => self.refuse(&block, Some(data), &why, Some(&event))?,
                    }
                }
            },
        }
        Ok((*self.stop.borrow()).then_some(Over::Stopped))
    }

    /// Hands an event over until it is taken, or refused for good: then why. `None` if the process
    /// is to end before.
    async fn hand_over(
        &mut self,
        block: &Block,
        event: &Event,
    ) -> Result<Option<Result<(), String>>, Error> {
        let id = &block.id;
        let started = Instant::now();
        let mut backoff = Backoff::new(HAND_OVER);
        for tries in 1_u32.. {
            let mut stop = self.stop.clone();
            let handed = tokio::select! {
                handed = self.destination.hand_over(event, &self.source) => handed,
                () = async { let _ = stop.wait_for(|stop| *stop).await; sleep(LAST).await } => {
                    return Ok(None);
                }
            };
            let asked = match handed {
                Handed::Done => {
                    self.count.handed_on += 1;
                    self.lines.handed_on(id, event, tries, started.elapsed());
                    return Ok(Some(Ok(())));
                }
                Handed::Never(why) => return Ok(Some(Err(why))),
                Handed::Wrong(why) => {
                    let leads_on = !self.position.id().is_empty() || can_be_sent_back(block);
                    return Err(Error::HandOver {
                        id: match id.as_str() {
                            "" => "without an id".to_owned(),
                            id => format!("id {id}"),
                        },
                        key: event.key.clone(),
                        why,
                        lost: match leads_on {
                            true => "nothing is lost",
                            false => {
                                "the stream has named no id to go on from, so that what it says \
                                 until then is missed"
                            }
                        },
                    });
                }
                Handed::Later { why, asked } => {
                    let key = &event.key;
                    self.lines
                        .important(&format!("not taken yet: {id} {key}: {why}"));
                    asked
                }
            };
            let pause = backoff.next(asked, &self.source);
            if !asked_to_wait(&mut self.stop, pause).await {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Keeps an event that can't be handed on, and goes on behind it.
    fn refuse(
        &mut self,
        block: &Block,
        data: Option<&str>,
        why: &str,
        event: Option<&Event>,
    ) -> Result<(), Error> {
        let at = jiff::Timestamp::from_millisecond(self.source.now().0).unwrap_or_default();
        self.position.keep(&Letter {
            at: at.to_string(),
            id: &block.id,
            event: &block.event,
            why,
            data,
        })?;
        self.count.refused += 1;
        self.lines.not_handed_on("refused", &block.id, why, event);
        self.lines.important(&format!(
            "refused, and kept in {}: {}: {why}",
            self.position.letters().display(),
            named(&block.id)
        ));
        self.advance(&block.id)
    }

    /// Events are missing: says so, and ends unless that is not wanted.
    fn gap(&mut self, said: &str) -> Result<(), Error> {
        let id = self.position.id().to_owned();
        self.lines.not_handed_on("gap", &id, said, None);
        let told = Error::Gap {
            id: named(&id),
            said: said.chars().take(200).collect(),
            scopes: self.filter.scopes.join(", "),
        };
        match self.on_gap {
            OnGap::Stop => Err(told),
            OnGap::Continue => {
                self.lines.important(&told.to_string());
                Ok(())
            }
        }
    }

    fn advance(&mut self, id: &str) -> Result<(), Error> {
        let id = self.usable(id).then_some(id);
        self.position.advance(id)
    }

    fn pass(&mut self, id: &str) -> Result<(), Error> {
        let id = self.usable(id).then_some(id);
        self.position.pass(id)
    }

    fn usable(&self, id: &str) -> bool {
        let usable = can_be_sent(id);
        if !usable {
            self.lines.important(&format!(
                "an id can't be sent back to the server, so that the position stays at {}: {:.80}",
                named(self.position.id()),
                id
            ));
        }
        usable
    }
}

/// Waits; false if the process is to end.
async fn asked_to_wait(stop: &mut watch::Receiver<bool>, pause: Duration) -> bool {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => false,
        () = sleep(pause) => true,
    }
}

/// Whether the stream can be asked for what follows this block.
fn can_be_sent_back(block: &Block) -> bool {
    !block.id.is_empty() && can_be_sent(&block.id)
}

fn named(id: &str) -> String {
    match id {
        "" => "now on".to_owned(),
        id => format!("id {id}"),
    }
}
