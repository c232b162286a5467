//! For Lambda: a `tower` layer that guards a whole handler.

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
use crate::fingerprint::Fingerprint;
use crate::invocation::Invocation;
use crate::key::{Key, KeyError};
use crate::outcome::{Answer, Failure, Outcome};
use crate::store::Store;

/// Guards a `lambda_runtime` handler: each event's operation is done once, every duplicate gets the
/// stored response, and the invocation's deadline is the lease.
///
/// The key comes from a function of the event. **Bind the payload too**, with
/// [`fingerprint`](Self::fingerprint): without it, two events with one key and different contents
/// are one operation, and the second gets the first one's response as a success.
///
/// The handler's error is a `Failure<E>`, which tells permanent failures from others. `?` turns an
/// error of the type `E` into one whose outcome is unknown; another error becomes an `E` first
/// (`.map_err(E::from)?`).
///
/// The handler finds its claim with [`Attempt::current`](crate::Attempt::current): the attempt, the
/// time that is left, and the key for a downstream service's `Idempotency-Key`.
///
/// ```
/// use firstclaim::lambda::OnceLayer;
/// use firstclaim::{Attempt, Claims, Config, Failure, Fingerprint, Key};
/// use lambda_runtime::{LambdaEvent, service_fn};
/// use serde::{Deserialize, Serialize};
/// use tower::{Layer, Service};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     id: String,
///     amount: u64,
/// }
///
/// #[derive(Serialize, Deserialize, PartialEq, Debug)]
/// struct Receipt {
///     order: String,
///     charged: u64,
/// }
///
/// async fn handle(event: LambdaEvent<Order>) -> Result<Receipt, Failure<std::io::Error>> {
///     // The same on every attempt: what a payment service gets as its Idempotency-Key.
///     let downstream = Attempt::current().map(|attempt| attempt.downstream_key("charge"));
/// #   assert!(downstream.is_some());
///     Ok(Receipt { order: event.payload.id, charged: event.payload.amount })
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// # let store = firstclaim::store::memory::Memory::new();
/// // In a function: firstclaim::store::dynamodb::DynamoDb::new(client, table)
/// let claims = Claims::new(store, Config::default())?;
/// let layer = OnceLayer::new(claims, |order: &Order| Key::new("orders", &order.id))
///     .fingerprint(Fingerprint::of::<Order>);
/// let mut service = layer.layer(service_fn(handle));
///
/// # let mut context = lambda_runtime::Context::default();
/// # context.deadline = std::time::SystemTime::now()
/// #     .duration_since(std::time::UNIX_EPOCH)?
/// #     .as_millis() as u64 + 10_000;
/// # let event = |id: &str, amount| {
/// #     LambdaEvent::new(Order { id: id.to_owned(), amount }, context.clone())
/// # };
/// let first = service.call(event("order-42", 5)).await?;
/// let again = service.call(event("order-42", 5)).await?;
/// assert_eq!(first, again);
/// // Another order under the same id is refused, and not answered with the first one's receipt.
/// assert!(service.call(event("order-42", 500)).await.is_err());
/// // lambda_runtime::run(service).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is guarded until the layer is around a handler"]
pub struct OnceLayer<S, K, F = Unbound> {
    claims: Claims<S>,
    key: Arc<K>,
    fingerprint: F,
}

impl<S, K> OnceLayer<S, K> {
    /// A layer over `claims`, with `key` to make each event's key. It binds no payload before
    /// [`fingerprint`](Self::fingerprint) is called.
    pub fn new<P>(claims: Claims<S>, key: K) -> Self
    where
        K: Fn(&P) -> Result<Key, KeyError>,
    {
        Self {
            claims,
            key: Arc::new(key),
            fingerprint: Unbound,
        }
    }
}

impl<S, K, F> OnceLayer<S, K, F> {
    /// Binds each key to the payload that `fingerprint` makes of the event: a later event with the
    /// same key and another payload is refused as a mismatch, whatever became of the first one.
    /// Leave out what differs between two deliveries of one event (time stamps, attempts).
    /// [`Fingerprint::of::<P>`](Fingerprint::of) takes all that the event's type `P` has.
    pub fn fingerprint<P, G>(self, fingerprint: G) -> OnceLayer<S, K, Bound<G>>
    where
        G: Fn(&P) -> Result<Fingerprint, serde_json::Error>,
    {
        OnceLayer {
            claims: self.claims,
            key: self.key,
            fingerprint: Bound(Arc::new(fingerprint)),
        }
    }
}

/// The payload of a layer that binds none: a key answers every event that has it.
#[derive(Clone, Copy, Debug)]
pub struct Unbound;

/// The payload of a layer that was given a [`fingerprint`](OnceLayer::fingerprint).
#[derive(Debug)]
pub struct Bound<F>(Arc<F>);

impl<F> Clone for Bound<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What a layer binds a key to. Only this crate's own types are it.
pub trait Payload<P>: sealed::Sealed {
    /// The fingerprint of an event, where there is one.
    ///
    /// # Errors
    ///
    /// The event can't be written as JSON.
    fn of(&self, event: &P) -> Result<Option<Fingerprint>, serde_json::Error>;
}

impl<P> Payload<P> for Unbound {
    fn of(&self, _event: &P) -> Result<Option<Fingerprint>, serde_json::Error> {
        Ok(None)
    }
}

impl<P, F: Fn(&P) -> Result<Fingerprint, serde_json::Error>> Payload<P> for Bound<F> {
    fn of(&self, event: &P) -> Result<Option<Fingerprint>, serde_json::Error> {
        (self.0)(event).map(Some)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Unbound {}
    impl<F> Sealed for super::Bound<F> {}
}

impl<S: Clone, K, F: Clone, H> Layer<H> for OnceLayer<S, K, F> {
    type Service = OnceService<S, K, F, H>;

    fn layer(&self, handler: H) -> Self::Service {
        OnceService {
            layer: OnceLayer {
                claims: self.claims.clone(),
                key: Arc::clone(&self.key),
                fingerprint: self.fingerprint.clone(),
            },
            handler,
        }
    }
}

/// A guarded handler; see [`OnceLayer`].
#[derive(Clone, Debug)]
pub struct OnceService<S, K, F, H> {
    layer: OnceLayer<S, K, F>,
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
    /// The event's payload has no fingerprint. The handler did not run.
    #[error("the event's payload can't be written as JSON to be fingerprinted")]
    Payload(#[source] serde_json::Error),
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
            OnceError::Payload(_) => "firstclaim.NoFingerprint",
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

impl<S, K, F, H, P, T, E> Service<LambdaEvent<P>> for OnceService<S, K, F, H>
where
    S: Store,
    K: Fn(&P) -> Result<Key, KeyError>,
    F: Payload<P>,
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
        let key = (self.layer.key)(&event.payload);
        let fingerprint = self.layer.fingerprint.of(&event.payload);
        let claims = self.layer.claims.clone();
        let mut handler = self.handler.clone();
        Box::pin(async move {
            let mut once = claims.once(key?);
            if let Some(fingerprint) = fingerprint.map_err(OnceError::Payload)? {
                once = once.fingerprint(fingerprint);
            }
            let invocation = Invocation::from(&event.context);
            let run = once.run(|_work| async move {
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
