//! Waiting for a condition with a deadline, in place of sleeping and hoping.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::bail;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until `look` has an answer, at most for `limit`.
///
/// # Errors
///
/// The limit has passed, or `look` itself failed.
pub async fn until<T, F, Fut>(what: &str, limit: Duration, mut look: F) -> anyhow::Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<Option<T>>>,
{
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() >= end {
            bail!("waited {limit:?} for {what}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
