#![doc = include_str!("../README.md")]
//! # The code
//!
//! The modules follow the data: a message is read from the batch, decoded into its operations, claimed
//! and applied to the [`target`] by the [`Worker`], and answered in a [`BatchAnswer`]; what can't
//! succeed goes to the dead-letter [queue](queues). An event that names a thread is told to its
//! [`threads`] server too.
//!
//! The same [`Worker`] runs in Lambda (`main.rs`, [`serve()`]) and in the local stack.

pub mod config;
pub mod event_stream;
pub mod queues;
pub mod target;
pub mod threads;

mod answer;
mod log;
mod message;
mod operation;
mod serve;
mod token;
mod worker;

pub use answer::{BatchAnswer, ItemFailure};
pub use config::{Fault, Faults, Settings};
pub use operation::FOREIGN_SCOPE;
pub use serve::{ServeError, serve};
pub use target::Target;
pub use threads::Threads;
pub use worker::Worker;
