//! The webhook function: verified webhooks in, each accepted once and put on the queue.
//!
//! An event goes through one door, in this order: size, known sender, verified, parsed, keyed,
//! claimed. Until it is claimed no AWS service is called, so that a request which is refused costs
//! nothing. The door claims the *delivery* and puts an [`Envelope`](firstclaim::Envelope) on the
//! queue; the worker behind the queue claims the *operation*, and it alone decides whether work is
//! done.

mod accept;
mod budget;
mod door;
mod inspect;
mod keys;
mod operations;
mod request;
mod response;
mod rule;
mod sender;
mod serve;

pub mod config;
pub mod outbox;
pub mod senders;
pub mod signing;

pub use budget::{ANSWERED_WITHIN, PATIENCE};
pub use config::{Faults, Options, Settings};
pub use door::Webhook;
pub use inspect::Inspected;
pub use outbox::{Message, Outbox, SendError, Sqs};
pub use response::Response;
pub use senders::Senders;
pub use serve::{ServeError, serve};
