//! The webhook handler from outside: events in, answers, claims and queued messages out.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't go on has failed"
)]

mod bench;
mod endpoint;

mod answers;
mod events;
mod failures;
mod fuzz;
mod github;
mod identity;
mod logs;
mod operations;
mod rules;
mod secrets;
mod settings;
mod shops;
mod signatures;
mod slack;
mod tables;
mod tamper;
mod twilio;
