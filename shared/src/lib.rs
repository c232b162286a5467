//! The same event arrives twice, and the work is done once: idempotency claims on DynamoDB.
//!
//! ```
//! use std::time::Duration;
//! use firstclaim::{Answer, Claims, Config, Failure, Fingerprint, Key};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! # let store = firstclaim::store::memory::Memory::new();
//! // In a service: firstclaim::store::dynamodb::DynamoDb::new(client, "claims")
//! let claims = Claims::new(store, Config::default())?;
//!
//! let order = r#"{"order": 42, "amount": 1999}"#;
//! let charge = || {
//!     claims
//!         .once(Key::new("charge", "order-42").unwrap())
//!         .fingerprint(Fingerprint::of_bytes(order.as_bytes()))
//!         .lease(Duration::from_secs(30))
//!         .run(|work| async move {
//!             // Hand `work.downstream_key("charge")` to the payment service as its
//!             // Idempotency-Key: it is the same on every attempt.
//!             Ok::<_, Failure<std::io::Error>>(format!("receipt {}", work.attempt()))
//!         })
//! };
//!
//! let first = charge().await?;
//! let duplicate = charge().await?;
//! assert_eq!(first.answer, Answer::Performed("receipt 1".to_owned()));
//! assert_eq!(duplicate.answer, Answer::Replayed("receipt 1".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In a Lambda, a layer guards the whole handler, and the invocation's deadline is the lease:
//! [`lambda::OnceLayer`]. Code that has no [`Work`] at hand finds its claim with
//! [`Attempt::current`].
//!
//! # The model
//!
//! Each logical operation has a [`Key`], and each key one [`Record`] in a DynamoDB table. A request
//! *claims* the key with a conditional `PutItem` that makes it the record's **owner** for the time
//! of a **lease**; it does the work and writes the result into the same item. A duplicate's
//! `PutItem` is refused, and the refusal brings the record: a stored result is **replayed**, a
//! running lease is [`InProgress`](Answer::InProgress), a lapsed one is **taken over** with the
//! next **attempt** number. Every later write names its owner, so that a late one is refused
//! (fencing). A first execution costs two calls, a duplicate one.
//!
//! What an operation's failure means for its key, the operation says: [`Failure`]. What may happen
//! after a crash or an unknown outcome says the [`Policy`]: `Rerun`, or `Hold` for effects that
//! must not happen twice and can't be asked about.
//!
//! An operation of several effects checkpoints each of them as a [step](Work::step): a later
//! attempt gets the recorded values and goes on behind them.
//!
//! # The promise
//!
//! One live owner per key at a time in one Region, on clocks that differ by less than the grace;
//! one recorded result per key and window; every duplicate gets it; the same downstream key on
//! every attempt. The outside effect is at least once under `rerun`, at most once under `hold`, and
//! exactly once where the target honours its `Idempotency-Key`.
//!
//! [`design`] tells how each sentence is kept, and which test shows it.
//!
//! # What it does not do
//!
//! - It is no lock service: a lease says who may *record* a result. A process that was suspended
//!   between its last look at the clock and its effect can still overlap with its successor; only a
//!   target that honours the downstream key closes that gap.
//! - It makes no key out of a whole event. Which fields name the operation, the caller says.
//! - It does not span Regions: with last-writer-wins replication two Regions can both win, so that
//!   a key has one home Region.
//! - The DynamoDB TTL only cleans up. Whether a record still answers is decided by its own
//!   `expiration`.

pub mod claims;
pub mod clock;
pub mod config;
pub mod envelope;
pub mod error;
pub mod fingerprint;
pub mod invocation;
pub mod key;
pub mod metrics;
pub mod outcome;
pub mod protocol;
pub mod record;
pub mod store;
mod telemetry;

#[cfg(feature = "dynamodb")]
pub mod aws;
#[cfg(feature = "lambda")]
pub mod lambda;

#[doc = include_str!("../DESIGN.md")]
pub mod design {}

pub use claims::{
    Attempt, Claim, Claimed, Claims, Ended, Inspection, Once, Resumed, Work, downstream_key,
};
pub use config::{Config, ConfigError};
pub use envelope::Envelope;
pub use error::{ClaimError, EntryError, RunError, StepError};
pub use fingerprint::Fingerprint;
pub use invocation::Invocation;
pub use key::{Key, KeyError, Scope};
pub use outcome::{Answer, Ending, Failure, Outcome, StoredFailure};
pub use record::{Owner, Policy, Record, Status};
pub use store::{Store, StoreError};
