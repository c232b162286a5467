//! The cases of `CASES.md`, as black-box tests of the library: each is named by its number there.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test's own helpers end it where they can't go on"
)]

mod bounded;
mod cache;
mod cost;
mod endings;
mod entry;
mod envelope;
mod fingerprints;
mod flight;
mod handed;
mod inspection;
mod keys;
mod lab;
mod large;
mod layer;
mod leases;
mod mismatch;
mod owners;
mod renewal;
mod repeats;
mod results;
mod said;
mod steps;
mod table;
mod vanished;
mod waiting;
