//! A NETCONF session over a stream (RFC 6241): the exchange of capabilities, then one request and one answer at a time.

use std::any::Any;
use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::error::PortsError;
use crate::wire::{ANSWER_BYTES, Stream, excerpt};

use super::frame::{Deframer, frame};
use super::xml::{Document, Element, Space, parse};

const BASE_1_0: &str = "urn:ietf:params:netconf:base:1.0";
const BASE_1_1: &str = "urn:ietf:params:netconf:base:1.1";

/// The abilities of the switch that the driver uses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Capabilities {
    /// A candidate configuration, which `<commit>` applies as a whole.
    pub(crate) candidate: bool,
    /// The running configuration can be edited directly.
    pub(crate) writable_running: bool,
    /// A failed edit is undone as a whole.
    pub(crate) rollback_on_error: bool,
    /// The switch starts with another configuration than the running one.
    pub(crate) startup: bool,
}

/// An `<rpc-error>` of the switch.
#[derive(Debug)]
struct RpcError {
    tag: String,
    path: String,
    message: String,
    session: Option<String>,
}

/// A NETCONF session with one switch.
pub(crate) struct Session {
    switch: String,
    stream: Box<dyn Stream>,
    deframer: Deframer,
    received: usize,
    last_id: u64,
    /// The messages have the framing of NETCONF 1.1.
    pub(crate) is_chunked: bool,
    /// The abilities of the switch.
    pub(crate) capabilities: Capabilities,
    /// The connection below the stream. It ends when this is dropped.
    _connection: Box<dyn Any + Send>,
}

impl Session {
    /// Exchanges the capabilities over an open stream. `offers_chunks`: the framing of NETCONF 1.1 is offered, too.
    pub(crate) async fn over(
        switch: &str,
        stream: Box<dyn Stream>,
        connection: Box<dyn Any + Send>,
        offers_chunks: bool,
    ) -> Result<Self, PortsError> {
        let mut session = Self {
            switch: switch.to_owned(),
            stream,
            deframer: Deframer::default(),
            received: 0,
            last_id: 0,
            is_chunked: false,
            capabilities: Capabilities::default(),
            _connection: connection,
        };
        let chunks = format!("<capability>{BASE_1_1}</capability>");
        let chunks = if offers_chunks { &chunks } else { "" };
        let hello = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><hello xmlns=\"{}\"><capabilities><capability>{BASE_1_0}</capability>\
             {chunks}</capabilities></hello>",
            Space::Base.name()
        );
        session.send(&hello).await?;
        let hello = session.receive().await?.root;
        let list = hello
            .child(Space::Base, "capabilities")
            .filter(|_| hello.is(Space::Base, "hello"));
        let list = list.ok_or_else(|| session.not_understood("its first message is not a hello with capabilities"))?;
        let has = |name: &str| {
            // Parameters may follow a capability's name.
            let mut names = list.all(Space::Base, "capability").map(Element::text);
            names.any(|found| found.split('?').next() == Some(name))
        };
        let has_any = |name: &str| {
            ["1.0", "1.1"]
                .iter()
                .any(|version| has(&format!("urn:ietf:params:netconf:capability:{name}:{version}")))
        };
        if !(has(BASE_1_0) || offers_chunks && has(BASE_1_1)) {
            return Err(session.not_understood("it has neither NETCONF 1.0 nor 1.1"));
        }
        session.is_chunked = offers_chunks && has(BASE_1_1);
        session.capabilities = Capabilities {
            candidate: has_any("candidate"),
            writable_running: has_any("writable-running"),
            rollback_on_error: has_any("rollback-on-error"),
            startup: has_any("startup"),
        };
        Ok(session)
    }

    /// Sends an operation and returns the answer. The operation's element may use the prefix `nc` for NETCONF's namespace.
    pub(crate) async fn call(&mut self, operation: &str) -> Result<Element, PortsError> {
        if self.deframer.has_rest() {
            return Err(self.not_understood("it sent an answer without a request"));
        }
        self.last_id += 1;
        let (id, base) = (self.last_id.to_string(), Space::Base.name());
        self.send(&format!(
            "<rpc xmlns=\"{base}\" xmlns:nc=\"{base}\" message-id=\"{id}\">{operation}</rpc>"
        ))
        .await?;
        let Document { root, message_id } = self.receive().await?;
        if !root.is(Space::Base, "rpc-reply") {
            return Err(self.not_understood("it is not an rpc-reply"));
        }
        // The answer to a request that the switch could not parse has no id.
        let fault = fault(&root);
        if message_id.as_ref().is_some_and(|found| *found != id) || (message_id.is_none() && fault.is_none()) {
            return Err(self.not_understood("it is the answer to another request (message-id)"));
        }
        match fault {
            Some(error) if error.tag == "lock-denied" => Err(PortsError::Locked {
                switch: self.switch.clone(),
                holder: match error.session.as_deref() {
                    None | Some("" | "0") => "a program or person on the switch".to_owned(),
                    Some(session) => format!("session {}", excerpt(session)),
                },
            }),
            Some(RpcError { tag, path, message, .. }) => {
                let path = if path.is_empty() {
                    String::new()
                } else {
                    format!(" at {path}")
                };
                Err(PortsError::Refused {
                    switch: self.switch.clone(),
                    words: excerpt(&format!("{tag}{path}: {message}")),
                })
            }
            None => Ok(root),
        }
    }

    /// Sends an operation that has no result but success.
    pub(crate) async fn order(&mut self, operation: &str) -> Result<(), PortsError> {
        let answer = self.call(operation).await?;
        match answer.child(Space::Base, "ok") {
            Some(_) => Ok(()),
            None => Err(self.not_understood("it has neither ok nor an error")),
        }
    }

    /// Ends the session in order. The connection ends anyway.
    pub(crate) async fn close(mut self) {
        let _: Result<Element, _> = self.call("<close-session/>").await;
    }

    async fn send(&mut self, message: &str) -> Result<(), PortsError> {
        let framed = frame(message, self.is_chunked);
        let sent = async {
            self.stream.write_all(framed.as_bytes()).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|source| self.broken(source))
    }

    async fn receive(&mut self) -> Result<Document, PortsError> {
        loop {
            let message = self
                .deframer
                .next(self.is_chunked)
                .map_err(|what| self.not_understood(what))?;
            if let Some(message) = message {
                return parse(&message).map_err(|what| self.not_understood(&what));
            }
            if self.received >= ANSWER_BYTES {
                return Err(PortsError::TooLong {
                    switch: self.switch.clone(),
                    limit: ANSWER_BYTES,
                });
            }
            let read = self.stream.read_buf(&mut self.deframer.buffer).await;
            match read.map_err(|source| self.broken(source))? {
                0 => return Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
                length => self.received += length,
            }
        }
    }

    fn broken(&self, source: io::Error) -> PortsError {
        PortsError::Broken {
            switch: self.switch.clone(),
            source,
        }
    }

    pub(crate) fn not_understood(&self, what: &str) -> PortsError {
        PortsError::Answer {
            switch: self.switch.clone(),
            what: excerpt(what),
        }
    }
}

/// The first error of an answer. A warning is none.
fn fault(reply: &Element) -> Option<RpcError> {
    let mut errors = reply.all(Space::Base, "rpc-error");
    let error = errors.find(|error| error.leaf(Space::Base, "error-severity") != Some("warning"))?;
    let leaf = |name| error.leaf(Space::Base, name).unwrap_or_default().to_owned();
    let info = error.child(Space::Base, "error-info");
    Some(RpcError {
        tag: leaf("error-tag"),
        path: leaf("error-path"),
        message: leaf("error-message"),
        session: info
            .and_then(|info| info.leaf(Space::Base, "session-id"))
            .map(str::to_owned),
    })
}
