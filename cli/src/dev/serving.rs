//! A server on this machine that runs beside others and can be stopped.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server. Dropping it stops it without waiting for its connections.
#[derive(Debug)]
pub(super) struct Serving {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Serves `router` on `listener`; handlers can ask for the caller's address.
    pub(super) fn router(listener: TcpListener, router: Router) -> std::io::Result<Self> {
        Self::spawn(listener, |listener, stopped| async move {
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            let served = axum::serve(listener, service)
                .with_graceful_shutdown(stopped)
                .await;
            if let Err(error) = served {
                tracing::error!(error = &error as &dyn std::error::Error, "a server ended");
            }
        })
    }

    /// Runs `serve` with `listener` and a future that resolves when it shall stop.
    pub(super) fn spawn<S, F>(listener: TcpListener, serve: S) -> std::io::Result<Self>
    where
        S: FnOnce(TcpListener, Stopped) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let stopped = Stopped(stopped);
        let task = tokio::spawn(serve(listener, stopped));
        Ok(Self {
            address,
            stop,
            task,
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting and waits at most `bound` for the connections to end; then ends them.
    pub(super) async fn stop(mut self, bound: Duration) {
        // It may have ended already, and then nobody listens.
        let _ = self.stop.send(());
        if tokio::time::timeout(bound, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

/// Resolves when the server shall stop, also when its handle is gone.
#[derive(Debug)]
pub(super) struct Stopped(oneshot::Receiver<()>);

impl Future for Stopped {
    type Output = ();

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<()> {
        std::pin::Pin::new(&mut self.0).poll(context).map(|_| ())
    }
}
