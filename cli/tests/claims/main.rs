//! The commands for claims from outside: the real program as processes, on one file.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failure is the test's failure")]

mod agent;
mod by_hand;
mod ends;
mod lab;
mod look;
mod mcp;
mod messages;
mod output;
mod races;
mod run;
mod settle;
mod signals;
mod stores;
mod walk;
