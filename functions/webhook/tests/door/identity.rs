//! What is one event, and what are two: pairs that only look alike, and groups that are the same.

mod alike;
mod apart;
pub(crate) mod events;
