//! The same event arrives twice, and the work is done once.

pub mod claims;
pub mod clock;
pub mod config;
pub mod envelope;
pub mod error;
pub mod fingerprint;
pub mod invocation;
pub mod key;
pub mod outcome;
pub mod protocol;
pub mod record;
pub mod store;
mod telemetry;

#[cfg(feature = "dynamodb")]
pub mod aws;
#[cfg(feature = "lambda")]
pub mod lambda;

pub use claims::{Claim, Claimed, Claims, Inspection, Once, Work, downstream_key};
pub use config::{Config, ConfigError};
pub use envelope::Envelope;
pub use error::{ClaimError, RunError, StepError};
pub use fingerprint::Fingerprint;
pub use invocation::Invocation;
pub use key::{Key, KeyError, Scope};
pub use outcome::{Answer, Ending, Failure, Outcome, StoredFailure};
pub use record::{Owner, Policy, Record, Status};
pub use store::{Store, StoreError};
