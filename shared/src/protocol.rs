//! The claim protocol as pure functions: the conditional writes, what each asks for and does, and
//! the one decision after a refusal.
//!
//! Nothing here reads a clock, talks to a store or draws a token. The DynamoDB store writes the
//! same [`Condition`]s as expressions; the in-memory store and the model checker evaluate them; all
//! of them share [`decide`].

mod condition;
mod decide;
mod write;

pub use condition::{Condition, Term};
pub use decide::{
    Decision, Intent, Request, Rule, Terms, Verdict, decide, decide_without, window_end,
};
pub use write::{Seen, Settlement, Write};
