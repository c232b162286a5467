//! The command line of firstclaim: the local stack, and claims for people, scripts and agents.
//!
//! The parts of the local stack can be used on their own, in integration tests for example:
//! [`dev::engine`] is an embedded DynamoDB, [`dev::sqs`] a local queue service.

pub mod arguments;
pub mod check;
#[cfg(unix)]
pub mod claims;
pub mod dev;
pub mod escape;
mod private;
pub mod send;
mod stdout;
#[cfg(unix)]
pub mod tail;
