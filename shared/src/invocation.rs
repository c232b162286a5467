//! The invocation that a piece of code runs in: its deadline becomes the lease of every claim in it.

use std::future::Future;

use crate::clock::EpochMillis;
use crate::record::Origin;

tokio::task_local! {
    static CURRENT: Invocation;
}

/// One invocation of a function: until when it may run, and what it is called in the logs.
///
/// Inside [`scope`](Self::scope) every claim takes its lease from the deadline and its origin from
/// the rest, also in nested functions and with many invocations in one process.
///
/// ```
/// use firstclaim::invocation::Invocation;
/// use firstclaim::clock::EpochMillis;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let invocation = Invocation::until(EpochMillis(1_794_478_900_000));
/// invocation
///     .scope(async {
///         assert!(Invocation::current().is_some());
///     })
///     .await;
/// assert!(Invocation::current().is_none());
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// When the platform stops it.
    pub deadline: EpochMillis,
    /// The function's name.
    pub function: Option<String>,
    /// The request id.
    pub request: Option<String>,
    /// The trace id.
    pub trace: Option<String>,
}

impl Invocation {
    /// An invocation that ends at `deadline` and has no names.
    #[must_use]
    pub fn until(deadline: EpochMillis) -> Self {
        Self {
            deadline,
            function: None,
            request: None,
            trace: None,
        }
    }

    /// The invocation that the current task runs in.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs `future` in this invocation. A task spawned inside is not in it.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    pub(crate) fn into_origin(self) -> Origin {
        Origin {
            function: self.function,
            request: self.request,
            trace: self.trace,
            event: None,
        }
    }
}

#[cfg(feature = "lambda")]
impl From<&lambda_runtime::Context> for Invocation {
    fn from(context: &lambda_runtime::Context) -> Self {
        let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            deadline: EpochMillis(i64::try_from(context.deadline).unwrap_or(i64::MAX)),
            function: named(&context.env_config.function_name),
            request: named(&context.request_id),
            trace: context.xray_trace_id.clone(),
        }
    }
}
