//! A serial port over a WebSocket of the BMC's web server: RFC 6455, opened by DSP0266 ("WebSocket inbound access"), with
//! the same pinned TLS and the same login as every request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::{Sink, Stream};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rackwright_redfish_wire::error::RedfishError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Error};

use crate::client::BmcClient;

/// Longest message that is accepted: serial data comes in small messages.
const MESSAGE_MAX: usize = 1 << 20;
/// Most bytes that are sent in one message.
const TYPED_MAX: usize = 4096;

/// A serial port behind a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebConsole {
    /// The address on the BMC.
    pub uri: String,
}

/// An open serial port: bytes in both directions. The end of the output is the end of the connection.
pub struct WebLine {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    /// The unread rest of the last message.
    left: Bytes,
    /// Keeps the session alive, if there is one.
    _client: BmcClient,
}

impl BmcClient {
    /// Opens a serial port with the client's login.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), and [`RedfishError::NotOffered`] if the answer is not a WebSocket.
    pub async fn open_console(&self, console: &WebConsole) -> Result<WebLine, RedfishError> {
        let url = self.bmc().resolve_location(&console.uri)?;
        let upgraded = self.open_web_socket(url).await?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await;
        Ok(WebLine {
            socket,
            left: Bytes::new(),
            _client: self.clone(),
        })
    }
}

fn broken(fault: tungstenite::Error) -> io::Error {
    match fault {
        Error::Io(fault) => fault,
        other => io::Error::other(other),
    }
}

impl AsyncRead for WebLine {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let line = self.get_mut();
        while line.left.is_empty() {
            match ready!(Pin::new(&mut line.socket).poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => line.left = bytes,
                Some(Ok(Message::Text(text))) => line.left = text.into(),
                None | Some(Ok(Message::Close(_)) | Err(Error::ConnectionClosed | Error::AlreadyClosed)) => {
                    return Poll::Ready(Ok(()));
                }
                // Pings; the library answers them.
                Some(Ok(_)) => {}
                Some(Err(fault)) => return Poll::Ready(Err(broken(fault))),
            }
        }
        let length = line.left.len().min(into.remaining());
        into.put_slice(&line.left.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WebLine {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut socket = Pin::new(&mut self.get_mut().socket);
        ready!(socket.as_mut().poll_ready(context)).map_err(broken)?;
        let typed = &bytes[..bytes.len().min(TYPED_MAX)];
        let message = Message::Binary(Bytes::copy_from_slice(typed));
        socket.start_send(message).map_err(broken)?;
        Poll::Ready(Ok(typed.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context).map_err(broken)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_close(context).map_err(broken)
    }
}
