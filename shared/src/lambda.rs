//! For Lambda: a `tower` layer that guards a whole handler, and one that only sets the lease.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lambda_runtime::{Diagnostic, LambdaEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::{Layer, Service};

use crate::claims::Claims;
use crate::error::RunError;
use crate::invocation::Invocation;
use crate::key::{Key, KeyError};
use crate::outcome::{Answer, Failure, Outcome};
use crate::store::Store;

/// Guards a `lambda_runtime` handler: each event's operation is done once, every duplicate gets the
/// stored response, and the invocation's deadline is the lease.
///
/// The key comes from a function of the event. The handler's error is a [`Failure`], which tells
/// permanent failures from others; `?` turns any error into one whose outcome is unknown.
///
/// ```
/// use firstclaim::lambda::OnceLayer;
/// use firstclaim::{Claims, Config, Failure, Key};
/// use lambda_runtime::{LambdaEvent, service_fn};
/// use serde::{Deserialize, Serialize};
/// use tower::{Layer, Service};
///
/// #[derive(Deserialize)]
/// struct Order {
///     id: String,
/// }
///
/// #[derive(Serialize, Deserialize, PartialEq, Debug)]
/// struct Receipt {
///     order: String,
/// }
///
/// async fn handle(event: LambdaEvent<Order>) -> Result<Receipt, Failure<std::io::Error>> {
///     Ok(Receipt { order: event.payload.id })
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// # let store = firstclaim::store::memory::Memory::new();
/// // In a function: firstclaim::store::dynamodb::DynamoDb::new(client, table)
/// let claims = Claims::new(store, Config::default())?;
/// let layer = OnceLayer::new(claims, |order: &Order| Key::new("orders", &order.id));
/// let mut service = layer.layer(service_fn(handle));
///
/// # let mut context = lambda_runtime::Context::default();
/// # context.deadline = std::time::SystemTime::now()
/// #     .duration_since(std::time::UNIX_EPOCH)?
/// #     .as_millis() as u64 + 10_000;
/// # let event = |id: &str| LambdaEvent::new(Order { id: id.to_owned() }, context.clone());
/// let first = service.call(event("order-42")).await?;
/// let again = service.call(event("order-42")).await?;
/// assert_eq!(first, again);
/// // lambda_runtime::run(service).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OnceLayer<S, K> {
    claims: Claims<S>,
    key: Arc<K>,
}

impl<S, K> OnceLayer<S, K> {
    /// A layer over `claims`, with `key` to make each event's key.
    pub fn new<P>(claims: Claims<S>, key: K) -> Self
    where
        K: Fn(&P) -> Result<Key, KeyError>,
    {
        Self {
            claims,
            key: Arc::new(key),
        }
    }
}

impl<S: Clone, K, H> Layer<H> for OnceLayer<S, K> {
    type Service = OnceService<S, K, H>;

    fn layer(&self, handler: H) -> Self::Service {
        OnceService {
            claims: self.claims.clone(),
            key: Arc::clone(&self.key),
            handler,
        }
    }
}

/// A guarded handler; see [`OnceLayer`].
#[derive(Clone, Debug)]
pub struct OnceService<S, K, H> {
    claims: Claims<S>,
    key: Arc<K>,
    handler: H,
}

/// Why a guarded invocation has no response. Lambda sees it as a failed invocation with a stable
/// error type, and sends an asynchronous event again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError<E: fmt::Debug + fmt::Display> {
    /// The event has no key. The handler did not run.
    #[error("the event has no idempotency key")]
    Key(#[from] KeyError),
    /// The key could not be claimed (the handler did not run), or the handler failed.
    #[error(transparent)]
    Run(#[from] RunError<E>),
    /// The record is no response: somebody is at it, it is held, bound to another payload, failed
    /// for good, superseded, or its response was not kept.
    #[error("no response: {outcome} (key {key}, attempt {attempt})")]
    NoResponse {
        /// [`Outcome::name`].
        outcome: &'static str,
        /// The key.
        key: Key,
        /// The attempt.
        attempt: u32,
    },
}

impl<E: fmt::Debug + fmt::Display> From<OnceError<E>> for Diagnostic {
    fn from(error: OnceError<E>) -> Self {
        let error_type = match &error {
            OnceError::Key(_) => "firstclaim.NoKey",
            OnceError::Run(RunError::Claim(_)) => "firstclaim.NotClaimed",
            OnceError::Run(_) => "firstclaim.OperationFailed",
            OnceError::NoResponse { outcome, .. } => match *outcome {
                "in_flight" => "firstclaim.InProgress",
                "held" => "firstclaim.Held",
                "mismatch" => "firstclaim.Mismatch",
                "replayed_failure" => "firstclaim.ReplayedFailure",
                "result_omitted" => "firstclaim.ResultOmitted",
                _ => "firstclaim.Superseded",
            },
        };
        Self {
            error_type: error_type.to_owned(),
            error_message: error.to_string(),
        }
    }
}

type Answered<T, E> = Pin<Box<dyn Future<Output = Result<T, OnceError<E>>> + Send>>;

impl<S, K, H, P, T, E> Service<LambdaEvent<P>> for OnceService<S, K, H>
where
    S: Store,
    K: Fn(&P) -> Result<Key, KeyError>,
    H: Service<LambdaEvent<P>, Response = T, Error = Failure<E>> + Clone + Send + 'static,
    H::Future: Send,
    P: Send + 'static,
    T: Serialize + DeserializeOwned + Send + 'static,
    E: fmt::Debug + fmt::Display + Send + 'static,
{
    type Response = T;
    type Error = OnceError<E>;
    type Future = Answered<T, E>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // The handler's own readiness is awaited where it is called: asking for it here and not
        // calling it (a duplicate) would keep a place taken.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaEvent<P>) -> Self::Future {
        let key = (self.key)(&event.payload);
        let claims = self.claims.clone();
        let mut handler = self.handler.clone();
        Box::pin(async move {
            let key = key?;
            let invocation = Invocation::from(&event.context);
            let run = claims.once(key).run(|_work| async move {
                std::future::poll_fn(|context| handler.poll_ready(context)).await?;
                handler.call(event).await
            });
            response(invocation.scope(run).await?)
        })
    }
}

fn response<T, E: fmt::Debug + fmt::Display>(outcome: Outcome<T>) -> Result<T, OnceError<E>> {
    let name = outcome.name();
    match outcome.answer {
        Answer::Performed(value) | Answer::Replayed(value) | Answer::NotRecorded(value) => {
            Ok(value)
        }
        _ => Err(OnceError::NoResponse {
            outcome: name,
            key: outcome.key,
            attempt: outcome.attempt,
        }),
    }
}
