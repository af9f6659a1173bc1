//! The connection to the control plane: endpoints tried in order, retries, and renewal of our own certificate.
//!
//! A call that fails because the server is unavailable (`UNAVAILABLE`, a lost connection) or late (`DEADLINE_EXCEEDED`) is
//! sent again unchanged, with the same idempotency key: the server answers a repeat with the first answer.

use std::error::Error as StdError;
use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::{RenewCredentialRequest, WhoAmIRequest};
use secrecy::{ExposeSecret as _, SecretString};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

use crate::config::{ConfigDir, Context, Credential};
use crate::error::CliError;
use crate::options::Global;
use crate::output::Ui;
use crate::retry::Backoff;
use crate::tls::{self, Server, Validity};
use crate::units;

/// Largest answer: enough for a page of 1000 nodes with their inventories.
pub const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Renewal checks between two requests for the authorities that the server names.
const FOLLOW_CHECKS: u32 = 10;

/// The header of answers that names the authorities that clients must trust.
const AUTHORITIES: &str = "rackwright-authorities";

/// Additional limit of time for a MiB that a call sends.
const TIME_PER_MIB: Duration = Duration::from_secs(1);

/// How often a long-running command checks whether its certificate needs renewal.
const RENEWAL_CHECK: Duration = Duration::from_secs(60);

/// Calls one method: `rpc!(client, NodeServiceClient.get_node, "read node gpu-001", request)` is a future of the answer.
#[macro_export]
macro_rules! rpc {
    ($client:expr, $service:ident.$method:ident, $doing:expr, $request:expr) => {
        $client.call($doing, $request, |channel, request| async move {
            $service::new(channel)
                .max_decoding_message_size($crate::client::MAX_ANSWER_BYTES)
                .$method(request)
                .await
        })
    };
}

/// Opens one server stream; like `rpc!`, but the time limit applies only to the opening.
#[macro_export]
macro_rules! open_stream {
    ($client:expr, $service:ident.$method:ident, $doing:expr, $request:expr) => {
        $client.open($doing, $request, |channel, request| async move {
            $service::new(channel)
                .max_decoding_message_size($crate::client::MAX_ANSWER_BYTES)
                .$method(request)
                .await
        })
    };
}

pub use {open_stream, rpc};

/// A client of one control plane.
#[derive(Debug)]
pub struct Client {
    servers: Vec<Server>,
    tls_name: Option<String>,
    ca_pem: Mutex<String>,
    identity: Mutex<Option<SecretString>>,
    /// The server's list of authorities at the last attempt to renew.
    followed: Mutex<String>,
    call_timeout: Duration,
    connection: tokio::sync::Mutex<Connection>,
    home: Option<Home>,
}

/// The source of the credential, where renewals are stored.
#[derive(Debug)]
struct Home {
    dir: ConfigDir,
    context: String,
}

#[derive(Debug, Default)]
struct Connection {
    channel: Option<Channel>,
    /// Counts connections, so that a failure of an old one does not end a new one.
    generation: u64,
    /// The endpoint to try first.
    server: usize,
}

/// Why no connection could be made.
struct ConnectFailure {
    tried: Vec<(String, String)>,
    /// Whether a certificate was wrong: a retry cannot help.
    untrusted: bool,
}

impl Client {
    /// A client for the context that the options choose. Renews the certificate if necessary.
    pub async fn of_context(ui: &Ui, global: &Global) -> Result<Arc<Self>, CliError> {
        let dir = ConfigDir::locate()?;
        let (name, context) = dir.pick(&dir.load()?, global.context.as_deref())?;
        let credential = dir.credential(&name)?;
        let validity = Validity::of_pem(credential.identity_pem.expose_secret()).ok_or_else(|| {
            CliError::credential(
                format!("the certificate of context `{name}` cannot be read"),
                "log in again with a new token (`rackwright login`)",
            )
        })?;
        if validity.ended(units::now()) {
            let message = format!(
                "the credential of context `{name}` ended at {}",
                units::stamp_seconds(validity.not_after)
            );
            if context.oidc {
                let hint = format!("run `rackwright login --oidc --name {name}`");
                return Err(CliError::credential(message, hint));
            }
            return Err(CliError::credential(
                message,
                "ask an operator for a token (`rackwright token create`) and run `rackwright login` with it; if no operator \
                 can log in any more, run `rackwrightd invite-operator --reason TEXT` on the control plane's host",
            ));
        }
        let servers = if global.server.is_empty() {
            &context.servers
        } else {
            &global.server
        };
        let is_renewed = !context.oidc;
        let home = is_renewed.then_some(Home { dir, context: name });
        let client = Self::new(servers, &context, credential, global.call_timeout, home)?;
        if is_renewed
            && validity.due(units::now())
            && let Err(error) = client.renew().await
        {
            let ends = units::stamp_seconds(validity.not_after);
            let left = units::duration(validity.not_after - units::now());
            ui.note(&format!(
                "note: the credential could not be renewed: {error}; the credential ends at {ends} (in {left}), after that \
                 you need a new token to log in"
            ));
        }
        let client = Arc::new(client);
        if is_renewed {
            tokio::spawn(Self::keep_renewed(Arc::downgrade(&client)));
        }
        Ok(client)
    }

    /// A client without its own certificate, for the first contact.
    pub fn without_identity(
        servers: &[String],
        tls_name: Option<&str>,
        ca_pem: String,
        call_timeout: Duration,
    ) -> Result<Self, CliError> {
        let context = Context {
            servers: servers.to_vec(),
            tls_name: tls_name.map(str::to_owned),
            member: String::new(),
            role: String::new(),
            oidc: false,
        };
        let credential = Credential {
            ca_pem,
            identity_pem: SecretString::default(),
        };
        Self::new(servers, &context, credential, call_timeout, None)
    }

    /// A client with a credential that is not in a file and is not renewed.
    pub fn of_credential(context: &Context, credential: Credential, call_timeout: Duration) -> Result<Self, CliError> {
        Self::new(&context.servers, context, credential, call_timeout, None)
    }

    fn new(
        servers: &[String],
        context: &Context,
        credential: Credential,
        call_timeout: Duration,
        home: Option<Home>,
    ) -> Result<Self, CliError> {
        let servers = servers
            .iter()
            .map(|s| Server::parse(s))
            .collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            return Err(CliError::usage(
                "no server is configured",
                "give a server with --server https://HOST:7070",
            ));
        }
        let identity = (!credential.identity_pem.expose_secret().is_empty()).then_some(credential.identity_pem);
        Ok(Self {
            servers,
            tls_name: context.tls_name.clone(),
            ca_pem: Mutex::new(credential.ca_pem),
            identity: Mutex::new(identity),
            followed: Mutex::default(),
            call_timeout,
            connection: tokio::sync::Mutex::default(),
            home,
        })
    }

    /// Whether this client renews its certificate.
    pub fn is_renewing(&self) -> bool {
        self.home.is_some()
    }

    /// The first endpoint, as a URL.
    pub fn first_server(&self) -> String {
        self.servers.first().map(Server::url).unwrap_or_default()
    }

    /// Calls one method, with limited retries while the server is unavailable. Use the `rpc!` macro.
    pub async fn call<Q, A, F, R>(&self, doing: impl Display, request: Q, send: F) -> Result<A, CliError>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        self.call_with_data(doing, 0, request, send).await
    }

    /// Calls one method that sends `bytes` bytes. The server receives and checks them before it answers, so the limit of
    /// time is longer by [`TIME_PER_MIB`].
    pub async fn call_with_data<Q, A, F, R>(
        &self,
        doing: impl Display,
        bytes: usize,
        request: Q,
        send: F,
    ) -> Result<A, CliError>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let limit = self.call_timeout + TIME_PER_MIB.saturating_mul(u32::try_from(bytes >> 20).unwrap_or(u32::MAX));
        let once = |channel| {
            let mut request = Request::new(request.clone());
            request.set_timeout(limit);
            send(channel, request)
        };
        self.attempts(doing, limit, once).await
    }

    /// Opens a stream of answers. Use the `open_stream!` macro.
    pub async fn open<Q, A, F, R>(&self, doing: impl Display, request: Q, send: F) -> Result<A, CliError>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let once = |channel| send(channel, Request::new(request.clone()));
        self.attempts(doing, self.call_timeout, once).await
    }

    async fn attempts<A, F, R>(&self, doing: impl Display, limit: Duration, once: F) -> Result<A, CliError>
    where
        F: Fn(Channel) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let mut backoff = Backoff::for_call();
        loop {
            let (channel, generation) = self.channel(&doing).await?;
            let status = match tokio::time::timeout(limit, once(channel)).await {
                Ok(Ok(answer)) => {
                    let (metadata, answer, _) = answer.into_parts();
                    if let Some(named) = metadata.get(AUTHORITIES).and_then(|named| named.to_str().ok()) {
                        self.follow(named).await;
                    }
                    return Ok(answer);
                }
                Ok(Err(status)) => classify(status, limit),
                Err(_) => late(limit),
            };
            if status.code() == Code::Unavailable {
                self.forget(generation).await;
            }
            if !is_transient(&status) {
                return Err(CliError::rpc(doing, status));
            }
            let retry_delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
            match backoff.delay() {
                Some(delay) => tokio::time::sleep(retry_delay.unwrap_or(delay).min(Duration::from_secs(10))).await,
                None => return Err(CliError::rpc(doing, status)),
            }
        }
    }

    /// The current connection, or a new one to the first endpoint that answers.
    ///
    /// # Errors
    /// `Unreachable` after a few rounds over all endpoints, `Untrusted` at once if certificates do not match.
    pub async fn channel(&self, doing: impl Display) -> Result<(Channel, u64), CliError> {
        let mut connection = self.connection.lock().await;
        if let Some(channel) = &connection.channel {
            return Ok((channel.clone(), connection.generation));
        }
        // An operator with a mistyped address should not wait; a server that answered a moment ago is worth waiting for.
        let mut backoff = if connection.generation == 0 {
            Backoff::new(Duration::from_millis(100), Duration::from_millis(500), 3)
        } else {
            Backoff::for_call()
        };
        loop {
            match self.connect(connection.server).await {
                Ok((channel, server)) => {
                    connection.channel = Some(channel.clone());
                    connection.generation += 1;
                    connection.server = server;
                    return Ok((channel, connection.generation));
                }
                Err(failure) if failure.untrusted => {
                    let why: Vec<_> = failure
                        .tried
                        .iter()
                        .map(|(server, why)| format!("{server}: {why}"))
                        .collect();
                    return Err(CliError::untrusted(
                        format!("cannot {doing}: {}", why.join("; ")),
                        "log in again (`rackwright login`) if the site's authority was changed on purpose; \
                         if the certificate is for another name, log in with --tls-name",
                    ));
                }
                Err(failure) => {
                    if !backoff.pause().await {
                        return Err(CliError::Unreachable {
                            doing: doing.to_string(),
                            tried: failure.tried,
                        });
                    }
                }
            }
        }
    }

    async fn connect(&self, first: usize) -> Result<(Channel, usize), ConnectFailure> {
        let mut failure = ConnectFailure {
            tried: Vec::new(),
            untrusted: false,
        };
        for step in 0..self.servers.len() {
            let index = (first + step) % self.servers.len();
            let server = &self.servers[index];
            let connected = match self.endpoint(server) {
                Ok(endpoint) => endpoint.connect().await,
                Err(e) => Err(e),
            };
            match connected {
                Ok(channel) => return Ok((channel, index)),
                Err(error) => {
                    failure.untrusted |= find_tls_error(&error).is_some_and(is_certificate_trouble);
                    failure.tried.push((server.url(), innermost(&error)));
                }
            }
        }
        Err(failure)
    }

    /// Renews the credential if the server names other authorities than the trusted ones. The current call already has its
    /// answer, so a failure is left to the next command.
    async fn follow(&self, named: &str) {
        let own = tls::pins_of(&self.ca_pem.lock().unwrap_or_else(PoisonError::into_inner));
        if self.home.is_none() || !tls::is_outdated(&own, named) {
            return;
        }
        // Once for each list: the renewal is itself a call.
        let tried = {
            let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *followed, named.to_owned())
        };
        if tried != named {
            // The future is boxed because the renewal is a call, which may recurse to here.
            let _ = Box::pin(self.renew()).await;
        }
    }

    fn endpoint(&self, server: &Server) -> Result<Endpoint, tonic::transport::Error> {
        let ca_pem = self.ca_pem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(ca_pem))
            .domain_name(self.tls_name.as_deref().unwrap_or(&server.host));
        let identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(identity) = identity {
            // Each of the two parsers picks its own blocks and ignores the others.
            tls = tls.identity(Identity::from_pem(identity.expose_secret(), identity.expose_secret()));
        }
        Ok(Endpoint::from_shared(server.url())?
            .tls_config(tls)?
            .connect_timeout(tls::CONNECT_TIMEOUT)
            .user_agent(concat!("rackwright/", env!("CARGO_PKG_VERSION")))?
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(15))
            .keep_alive_timeout(Duration::from_secs(15))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(8 << 20))
    }

    /// Drops a connection, unless it was already replaced; the next one starts with the next endpoint.
    pub async fn forget(&self, generation: u64) {
        let mut connection = self.connection.lock().await;
        if connection.generation == generation && connection.channel.take().is_some() {
            connection.server = (connection.server + 1) % self.servers.len();
        }
    }

    /// Interprets a failure of the connection itself: the server is gone, or refused our certificate.
    pub fn classify(&self, status: Status) -> Status {
        classify(status, self.call_timeout)
    }

    /// Gets a new certificate for a new key and stores both.
    async fn renew(&self) -> Result<(), CliError> {
        let Some(home) = &self.home else { return Ok(()) };
        let (key, csr_pem) = tls::new_key()?;
        let request = RenewCredentialRequest { csr_pem };
        let answer = rpc!(
            self,
            AuthServiceClient.renew_credential,
            "renew the credential",
            request
        )
        .await?;
        if Validity::of_pem(&answer.certificate_pem).is_none() {
            return Err(CliError::BadAnswer("the renewed certificate cannot be read".to_owned()));
        }
        let identity = tls::identity_pem(&answer.certificate_pem, &key);
        let trusted = answer.ca_certificate_pem;
        if !tls::pins_of(&trusted).is_empty() {
            // An older certificate is valid for both lists: in either order of writes, a crash leaves a working credential.
            home.dir.store_authorities(&home.context, &trusted)?;
            *self.ca_pem.lock().unwrap_or_else(PoisonError::into_inner) = trusted;
        }
        home.dir.store_identity(&home.context, &identity)?;
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
        Ok(())
    }

    /// Renews the certificate of a long-running command. Ends with the client.
    async fn keep_renewed(client: std::sync::Weak<Self>) {
        let mut checks: u32 = 0;
        loop {
            tokio::time::sleep(RENEWAL_CHECK).await;
            let Some(client) = client.upgrade() else { return };
            checks = checks.wrapping_add(1);
            if checks.is_multiple_of(FOLLOW_CHECKS) {
                // The answer names the authorities to trust. An open stream does not show that a rotation has begun.
                let request = WhoAmIRequest {};
                let _ = rpc!(
                    client,
                    AuthServiceClient.who_am_i,
                    "follow the site's authority",
                    request
                )
                .await;
            }
            let identity = client.identity.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let validity = identity.and_then(|pem| Validity::of_pem(pem.expose_secret()));
            if validity.is_some_and(|validity| validity.due(units::now())) {
                // The next attempt is a minute later; a command that ends earlier needs no renewal.
                let _ = client.renew().await;
            }
        }
    }
}

fn late(limit: Duration) -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", limit.as_secs()))
}

fn classify(status: Status, limit: Duration) -> Status {
    let Some(source) = StdError::source(&status) else {
        return status;
    };
    if let Some(rustls::Error::AlertReceived(alert)) = find_tls_error(source) {
        return Status::unauthenticated(format!("the server refused the client certificate ({alert:?})"));
    }
    if status.code() == Code::DeadlineExceeded {
        return late(limit);
    }
    Status::unavailable(format!("the connection was lost: {}", innermost(source)))
}

/// Whether the server is unavailable or late: the same request may be sent again.
pub fn is_transient(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}

fn find_tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // `source` of an io::Error returns the source of the wrapped error, not the wrapped error itself.
        next = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => error.source(),
        };
    }
    None
}

fn is_certificate_trouble(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(_) | rustls::Error::InconsistentKeys(_)
    )
}

/// The last error of the chain, which is the most specific one.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    if let Some(tls) = find_tls_error(error) {
        return tls.to_string();
    }
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
