//! When the client closes its side, whoever waits for something learns of it.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

/// A stream that says when it has come to its end.
#[derive(Debug)]
pub(super) struct UntilClosed<R> {
    inner: R,
    closed: watch::Sender<bool>,
}

/// The same stream; the receiver becomes true at its end.
pub(super) fn until_closed<R>(inner: R) -> (UntilClosed<R>, watch::Receiver<bool>) {
    let (closed, receiver) = watch::channel(false);
    (UntilClosed { inner, closed }, receiver)
}

impl<R: AsyncRead + Unpin> AsyncRead for UntilClosed<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let (filled, asked) = (buffer.filled().len(), buffer.remaining() > 0);
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let over = match &polled {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => asked && buffer.filled().len() == filled,
            Poll::Ready(Err(_)) => true,
        };
        if over {
            self.closed.send_replace(true);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn the_end_is_said_once_all_is_read() {
        let (mut stream, closed) = until_closed(&b"one line\n"[..]);
        let mut line = [0; 9];
        stream.read_exact(&mut line).await.unwrap();
        assert!(!*closed.borrow());
        assert_eq!(stream.read(&mut line).await.unwrap(), 0);
        assert!(*closed.borrow());
    }
}
