//! Exit codes that are the program's own; all others are those of the command that `run` ran.

/// Nothing went wrong, and the answer is no: no such record, finished already, not confirmed.
pub const NO: u8 = 1;

/// The arguments can't be used (`EX_USAGE`).
pub const USAGE: u8 = 64;

/// The store did not answer, so that nothing is known (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;

/// Somebody is at it: try again later (`EX_TEMPFAIL`).
pub const IN_FLIGHT: u8 = 75;

/// The outcome of an earlier attempt is unknown, and a person decides.
pub const HELD: u8 = 80;

/// The key is bound to another payload.
pub const MISMATCH: u8 = 81;

/// Somebody else has the key: the lease was lost, the token is not the owner's, or the record is
/// not what was shown any more.
pub const SUPERSEDED: u8 = 82;

/// The command was found and could not be executed, as shells say it.
pub const NOT_EXECUTABLE: u8 = 126;

/// There is no such command, as shells say it.
pub const NOT_FOUND: u8 = 127;

/// What a signal's number is added to, as shells do.
pub const SIGNAL: u8 = 128;
