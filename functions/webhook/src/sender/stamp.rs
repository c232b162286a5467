//! Time stamps that are signed with the body.

use std::time::Duration;

use firstclaim::clock::EpochMillis;

use super::Unverified;

/// How far a signature's time stamp may be from the clock, to either side.
const TOLERANCE: Duration = Duration::from_secs(300);

/// Whether a signed time stamp is of now. One from the future is as bad as an old one: it could be
/// used for longer than the tolerance.
pub(super) fn check(timestamp: &str, now: EpochMillis) -> Result<(), Unverified> {
    let sent = seconds(timestamp).ok_or(Unverified::Malformed)?;
    if now.since(sent).max(sent.since(now)) > TOLERANCE {
        return Err(Unverified::Stale);
    }
    Ok(())
}

/// A time stamp in whole seconds: digits only, so that no other text can be signed in its place.
fn seconds(text: &str) -> Option<EpochMillis> {
    let digits = (1..=11).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: i64 = digits.then(|| text.parse().ok())??;
    Some(EpochMillis(seconds.checked_mul(1000)?))
}
