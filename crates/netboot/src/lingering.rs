//! Connections that end slowly.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// After its last answer, a connection discards what still comes for this long.
const LINGER: Duration = Duration::from_secs(1);

/// A connection that ends slowly. A client that is refused still sends the rest of its request: if the connection broke at
/// once, the client would lose the answer.
#[derive(Debug)]
pub struct Lingering<T> {
    connection: T,
    /// The end. `None`: the connection is not closed yet.
    until: Option<Pin<Box<Sleep>>>,
}

impl<T> Lingering<T> {
    /// A connection that is open.
    pub fn new(connection: T) -> Self {
        Self {
            connection,
            until: None,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Lingering<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_read(cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.until.is_none() {
            ready!(Pin::new(&mut this.connection).poll_shutdown(cx))?;
        }
        let until = this.until.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut scrap = [0; 4096];
        while until.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut scrap);
            let read = ready!(Pin::new(&mut this.connection).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_after_the_answer_is_discarded_for_a_second() {
        let (mut client, server) = tokio::io::duplex(16);
        let mut server = Lingering::new(server);
        let sends = async {
            // More than the pipe holds: each part waits for the server to read.
            client.write_all(&[7; 1000]).await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"no");
            client
        };
        let refuses = async {
            server.write_all(b"no").await.unwrap();
            server.shutdown().await.unwrap();
        };
        let begun = tokio::time::Instant::now();
        let (_client, ()) = tokio::join!(sends, refuses);
        assert_eq!(
            begun.elapsed(),
            LINGER,
            "the client stays open, so the server waits no longer"
        );
    }
}
