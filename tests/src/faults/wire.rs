//! The network between the owners and the engine: every HTTP request that the SDK sends waits here
//! until the schedule decides what becomes of it.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::{
    AsyncSleep, HttpClient, RuntimeComponents, SharedAsyncSleep, Sleep,
};
use aws_sdk_dynamodb::error::ConnectorError;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use firstclaim::clock::{EpochMillis, EpochSeconds, ManualSource, Sleep as Pause, Source};
use firstclaim::protocol::Write;
use firstclaim::record::{Owner, Record};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::store::{Read, Store, StoreError, Written};
use hyper::body::Bytes;
use tokio::sync::oneshot;

/// What a request is for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// A write of the protocol.
    Write(Arc<Write>),
    /// A read of the record.
    Read,
    /// A large result, there or back.
    Companion,
}

impl Purpose {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Write(write) => write.name(),
            Self::Read => "read",
            Self::Companion => "companion",
        }
    }
}

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) number: usize,
    /// Which call of the schedule sent it.
    pub(crate) call: usize,
    pub(crate) purpose: Purpose,
    /// The sender's own time when it was decided on.
    pub(crate) decided: i64,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Message {
    /// Whether it marks the entry of an operation.
    pub(crate) fn marks(&self) -> bool {
        matches!(&self.purpose, Purpose::Write(write) if matches!(**write, Write::Enter { .. }))
    }
}

/// An answer of the engine, or one that the network makes up.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// A request whose sender waits for an answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) message: Message,
    reply: oneshot::Sender<Answer>,
}

impl Waiting {
    pub(crate) fn answer(self, answer: Answer) {
        // A sender that has been dropped meanwhile hears nothing.
        let _ = self.reply.send(answer);
    }

    /// The connection breaks: the sender gets an error.
    pub(crate) fn cut(self) -> Message {
        self.message
    }

    pub(crate) fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }
}

/// Takes the SDK's requests in place of its HTTP client. Clones share one network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire(Arc<Mutex<Traffic>>);

#[derive(Debug, Default)]
struct Traffic {
    /// The call whose future is being polled.
    call: usize,
    /// What that call is asking its store for, and since when.
    asking: Option<(Purpose, i64)>,
    sent: usize,
    arrived: Vec<Waiting>,
}

impl Wire {
    /// From now on requests come from this call.
    pub(crate) fn enter(&self, call: usize) {
        self.traffic().call = call;
    }

    pub(crate) fn reset(&self) {
        *self.traffic() = Traffic::default();
    }

    /// Requests that have arrived since the last look.
    pub(crate) fn arrived(&self) -> Vec<Waiting> {
        std::mem::take(&mut self.traffic().arrived)
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (reply, answered) = oneshot::channel();
        let mut traffic = self.traffic();
        let (purpose, decided) = traffic.asking.clone().unwrap_or((Purpose::Read, 0));
        let headers = request.headers().iter();
        let headers = headers.filter(|(name, _)| !matches!(*name, "host" | "content-length"));
        let message = Message {
            number: traffic.sent,
            call: traffic.call,
            purpose,
            decided,
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            body: Bytes::copy_from_slice(request.body().bytes().unwrap_or_default()),
        };
        traffic.sent += 1;
        traffic.arrived.push(Waiting { message, reply });
        HttpConnectorFuture::new(async move {
            let answer = answered.await;
            let answer = answer.map_err(|_| ConnectorError::io("the connection was cut".into()))?;
            let status = answer.status.try_into();
            let status = status.map_err(|error| ConnectorError::other(Box::new(error), None))?;
            let mut response = HttpResponse::new(status, answer.body.to_vec().into());
            response
                .headers_mut()
                .insert("content-type", "application/x-amz-json-1.0");
            Ok(response)
        })
    }
}

impl HttpClient for Wire {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// The SDK's back-off takes no time: when things happen, the schedule decides.
#[derive(Debug)]
pub(crate) struct NoDelay;

impl AsyncSleep for NoDelay {
    fn sleep(&self, _duration: std::time::Duration) -> Sleep {
        Sleep::new(std::future::ready(()))
    }
}

impl From<NoDelay> for SharedAsyncSleep {
    fn from(none: NoDelay) -> Self {
        Self::new(none)
    }
}

/// The real store, which tells the network what each request is for.
#[derive(Clone, Debug)]
pub(crate) struct Tapped {
    store: DynamoDb,
    wire: Wire,
    source: CallSource,
}

impl Tapped {
    pub(crate) fn new(store: DynamoDb, wire: Wire, source: CallSource) -> Self {
        Self {
            store,
            wire,
            source,
        }
    }

    /// Names the purpose during each poll: a call may ask for two things at once.
    async fn during<T>(&self, purpose: Purpose, asked: impl Future<Output = T> + Send) -> T {
        let decided = self.source.now().0;
        let mut asked = std::pin::pin!(asked);
        std::future::poll_fn(|context| {
            self.wire.traffic().asking = Some((purpose.clone(), decided));
            let polled = asked.as_mut().poll(context);
            self.wire.traffic().asking = None;
            polled
        })
        .await
    }
}

impl Store for Tapped {
    async fn write(&self, id: &str, write: &Write) -> Result<Written, StoreError> {
        let purpose = Purpose::Write(Arc::new(write.clone()));
        self.during(purpose, self.store.write(id, write)).await
    }

    async fn read(&self, id: &str, read: Read) -> Result<Option<Record>, StoreError> {
        self.during(Purpose::Read, self.store.read(id, read)).await
    }

    async fn put_companion(
        &self,
        id: &str,
        packed: Vec<u8>,
        expiration: EpochSeconds,
    ) -> Result<(), StoreError> {
        let put = self.store.put_companion(id, packed, expiration);
        self.during(Purpose::Companion, put).await
    }

    async fn companion(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let read = self.store.companion(id);
        self.during(Purpose::Companion, read).await
    }
}

/// A process's clock; its tokens name the call that asks for them.
#[derive(Clone, Debug)]
pub(crate) struct CallSource {
    clock: ManualSource,
    wire: Wire,
}

impl CallSource {
    pub(crate) fn new(clock: ManualSource, wire: Wire) -> Self {
        Self { clock, wire }
    }
}

impl Source for CallSource {
    fn now(&self) -> EpochMillis {
        self.clock.now()
    }

    fn token(&self) -> Owner {
        Owner::new(token(self.wire.traffic().call))
    }

    fn sleep(&self, duration: std::time::Duration) -> Pause {
        self.clock.sleep(duration)
    }
}

/// The owner token of a call.
pub(crate) fn token(call: usize) -> String {
    format!("call-{call}")
}
