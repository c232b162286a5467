//! `firstclaim dev`: the whole system on this machine.

pub mod engine;
pub mod sqs;

mod serving;
