//! A Lambda function in this process: a deadline, a task of its own, an end to its panics.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use firstclaim::clock::{Source, SystemSource};
use lambda_runtime::{Config, Context, LambdaEvent};
use serde_json::Value;
use tokio::sync::Semaphore;

/// How many invocations run at once: Lambda's own default for an account.
const CONCURRENCY: u32 = 1000;

/// A function: the handler that runs in Lambda, and how long it may take. Clones share their
/// invocations.
#[derive(Clone, Debug)]
pub(super) struct Function<H> {
    handler: H,
    timeout: Duration,
    config: Arc<Config>,
    invocations: Invocations,
}

/// The running invocations of one function.
#[derive(Clone, Debug)]
pub(super) struct Invocations(Arc<Semaphore>);

/// A handler: an event's JSON in, the answer's JSON out. Any such closure is one.
pub(super) trait Handler: Clone + Send + Sync + 'static {
    /// Starts to handle one event.
    fn handle(
        &self,
        event: LambdaEvent<Value>,
    ) -> impl Future<Output = Result<Value, serde_json::Error>> + Send + 'static;
}

impl<H, F> Handler for H
where
    H: Fn(LambdaEvent<Value>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Value, serde_json::Error>> + Send + 'static,
{
    fn handle(
        &self,
        event: LambdaEvent<Value>,
    ) -> impl Future<Output = Result<Value, serde_json::Error>> + Send + 'static {
        self(event)
    }
}

/// Why an invocation has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvokeError {
    #[error("the function was stopped after {0:?}")]
    TimedOut(Duration),
    #[error("the function panicked")]
    Panicked,
    #[error("the function's answer is no JSON")]
    Answer(#[source] serde_json::Error),
    #[error("no invocation starts any more")]
    Stopping,
}

impl<H: Handler> Function<H> {
    pub(super) fn new(name: &str, timeout: Duration, handler: H) -> Self {
        let config = Config {
            function_name: name.to_owned(),
            version: "$LATEST".to_owned(),
            ..Config::default()
        };
        Self {
            handler,
            timeout,
            config: Arc::new(config),
            invocations: Invocations(Arc::new(Semaphore::new(CONCURRENCY as usize))),
        }
    }

    /// Runs the handler on one event. It runs on when the caller is dropped, as in Lambda: whoever
    /// hangs up cancels nothing. At its deadline it is dropped.
    pub(super) async fn invoke(&self, event: Value) -> Result<Value, InvokeError> {
        let place = Arc::clone(&self.invocations.0)
            .acquire_owned()
            .await
            .map_err(|_| InvokeError::Stopping)?;
        let timeout = self.timeout;
        let answer = self.handler.handle(LambdaEvent::new(event, self.context()));
        let invocation = tokio::spawn(async move {
            let answer = tokio::time::timeout(timeout, answer).await;
            drop(place);
            answer
        });
        match invocation.await {
            Ok(Ok(answer)) => answer.map_err(InvokeError::Answer),
            Ok(Err(_)) => Err(InvokeError::TimedOut(timeout)),
            // Nobody aborts it; only the end of the runtime cancels it.
            Err(error) if error.is_panic() => Err(InvokeError::Panicked),
            Err(_) => Err(InvokeError::Stopping),
        }
    }

    /// Its running invocations.
    pub(super) fn invocations(&self) -> Invocations {
        self.invocations.clone()
    }

    fn context(&self) -> Context {
        let now = SystemSource.now();
        let id = uuid::Uuid::new_v4();
        let mut context = Context::default();
        context.request_id = id.to_string();
        context.deadline = u64::try_from(now.after(self.timeout).0).unwrap_or(0);
        context.invoked_function_arn = format!(
            "arn:aws:lambda:us-east-1:000000000000:function:{}",
            self.config.function_name
        );
        let random = id.simple().to_string();
        context.xray_trace_id = Some(format!(
            "Root=1-{:08x}-{};Parent={};Sampled=0",
            now.seconds().0,
            &random[..24],
            &random[16..]
        ));
        context.env_config = Arc::clone(&self.config);
        context
    }
}

impl Invocations {
    /// Waits at most `bound` for all of them to end, and lets none start any more. Whether all have
    /// ended.
    pub(super) async fn drain(&self, bound: Duration) -> bool {
        let all = tokio::time::timeout(bound, self.0.acquire_many(CONCURRENCY)).await;
        self.0.close();
        all.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;

    const BOUND: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn the_handler_gets_the_event_and_a_deadline() {
        let before = SystemSource.now();
        let function = Function::new("webhook", BOUND, |event: LambdaEvent<Value>| async move {
            Ok(json!([
                event.payload,
                event.context.deadline,
                event.context.env_config.function_name
            ]))
        });
        let answer = function.invoke(json!({"a": 1})).await.unwrap();
        assert_eq!(answer[0], json!({"a": 1}));
        let deadline = answer[1].as_i64().unwrap();
        let after = SystemSource.now();
        assert!(
            (before.after(BOUND).0..=after.after(BOUND).0).contains(&deadline),
            "{deadline}"
        );
        assert_eq!(answer[2], "webhook");
    }

    #[tokio::test]
    async fn n48_a_caller_that_hangs_up_cancels_nothing() {
        let (started, has_started) = oneshot::channel();
        let (go, may_go) = oneshot::channel::<()>();
        let (ended, has_ended) = oneshot::channel();
        let channels = Arc::new(std::sync::Mutex::new(Some((started, may_go, ended))));
        let function = Function::new("webhook", BOUND, move |_| {
            let (started, may_go, ended) = channels.lock().unwrap().take().unwrap();
            async move {
                started.send(()).unwrap();
                may_go.await.unwrap();
                ended.send(()).unwrap();
                Ok(Value::Null)
            }
        });
        let caller = tokio::spawn({
            let function = function.clone();
            async move { function.invoke(Value::Null).await }
        });
        has_started.await.unwrap();
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        go.send(()).unwrap();
        assert!(function.invocations().drain(BOUND).await);
        has_ended.await.unwrap();
        let late = function.invoke(Value::Null).await.unwrap_err();
        assert!(matches!(late, InvokeError::Stopping), "{late:?}");
    }

    #[tokio::test]
    async fn a_panic_and_an_overlong_run_are_told_apart_and_free_their_place() {
        let panics = Function::new("webhook", BOUND, |event: LambdaEvent<Value>| async move {
            assert_ne!(event.payload, Value::Null, "on purpose");
            Ok(Value::Null)
        });
        let error = panics.invoke(Value::Null).await.unwrap_err();
        assert!(matches!(error, InvokeError::Panicked), "{error:?}");
        assert!(panics.invocations().drain(BOUND).await);

        let short = Duration::from_millis(1);
        let hangs = Function::new("webhook", short, |_| std::future::pending());
        let error = hangs.invoke(Value::Null).await.unwrap_err();
        assert!(
            matches!(error, InvokeError::TimedOut(bound) if bound == short),
            "{error:?}"
        );
        assert!(hangs.invocations().drain(BOUND).await);
    }

    #[tokio::test]
    async fn draining_ends_at_its_bound() {
        let hangs = Function::new("webhook", BOUND, |_| std::future::pending());
        let invocation = hangs.invoke(Value::Null);
        let mut invocation = std::pin::pin!(invocation);
        assert!(futures_pending(&mut invocation).await);
        assert!(!hangs.invocations().drain(Duration::from_millis(1)).await);
    }

    /// Polls once, so that the invocation has started.
    async fn futures_pending<F: Future>(future: &mut std::pin::Pin<&mut F>) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(future.as_mut().poll(context).is_pending())
        })
        .await
    }
}
