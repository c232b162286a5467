//! `firstclaim tail` from outside: the real program against a thread server's stream that breaks off,
//! repeats itself, falls silent and forgets.
#![cfg(unix)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is the test's failure"
)]

mod answers;
mod first;
mod kills;
mod lab;
mod server;
mod stack;
