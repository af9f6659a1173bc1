//! `ConsoleService`: live and recorded consoles, SSH keys of members, and one-time tokens.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::attach_console_request::Message as ClientMessage;
use rackwright_api::v1::attach_console_response::Message as ServerMessage;
use rackwright_api::v1::console_service_server::ConsoleService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::rights::Grant;
use rackwright_lifecycle::{EventKind, Timestamp, seconds};
use rackwright_nodes::console::Consoles;
use rackwright_nodes::console::access::ConsoleAccess;
use rackwright_nodes::console::{dial, log, session, token};
use rackwright_serial::record::Piece;
use rackwright_serial::{ConsoleChannels, ConsoleOutput, Entry, public_key};
use rackwright_store::{SSH_KEYS_MAX, Scope, SshKeyRow, WriteTx};
use secrecy::ExposeSecret as _;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::call::MutatingCall;
use super::caller::Caller;
use super::connection::Login;
use super::{caller, convert, names};

/// Messages that may wait for a slow reader.
const QUEUE: usize = 64;
/// Largest input in one message.
const INPUT_MAX: usize = 64 << 10;
/// Lifetime of a token in seconds: the default and the maximum.
const TOKEN_S: i64 = 600;
const TOKEN_MAX_S: i64 = 86_400;
/// Interval of looks for more of a followed recording, because another replica may write it.
const FOLLOW: Duration = Duration::from_millis(250);

/// Implements `ConsoleService`.
#[derive(Debug, Clone)]
pub struct Console(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;
type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn entry(wanted: &v1::ConsoleEntry) -> Result<Entry, ApiError> {
    match (wanted.read_only, wanted.take_over) {
        (true, true) => Err(ApiError::invalid(
            "enter.take_over",
            "cannot be combined with read_only",
        )),
        (true, false) => Ok(Entry::ReadOnly),
        (false, true) => Ok(Entry::TakeOver),
        (false, false) => Ok(Entry::Write),
    }
}

/// Moves a key from a member of a customer to a member of the site. Registration proves no possession of a key, so a
/// customer must not be able to block a key of the site's members. Returns false if the key is not registered, belongs
/// to another member of the site, or the caller is a customer's.
async fn take_key(
    core: &Core,
    tx: &mut WriteTx,
    call: &MutatingCall<'_>,
    caller: &Caller,
    row: &SshKeyRow,
) -> Result<bool, ApiError> {
    if caller.scope != Scope::Site {
        return Ok(false);
    }
    let Some(former) = core.store.ssh_key(&row.fingerprint).await? else {
        return Ok(false);
    };
    let owner = tx.member(&former.member).await?;
    if owner.is_some_and(|owner| owner.given.customer.is_empty()) {
        return Ok(false);
    }
    tx.remove_ssh_key(&former.fingerprint, Some(&former.member)).await?;
    let message = format!(
        "{} took over the SSH key {}, which {} had registered",
        caller.name, row.fingerprint, former.member
    );
    let event = call.event(
        EventKind::SecuritySshKeyTaken,
        &format!("members/{}", former.member),
        message,
    );
    tx.add_event(&event).await?;
    Ok(tx.add_ssh_key(row).await?)
}

/// Passes the client's input on.
async fn listen(mut typed: Streaming<v1::AttachConsoleRequest>, input: mpsc::Sender<Vec<u8>>) {
    while let Ok(Some(request)) = typed.message().await {
        let Some(ClientMessage::Input(bytes)) = request.message else {
            continue;
        };
        if bytes.len() > INPUT_MAX || input.send(bytes).await.is_err() {
            return;
        }
    }
}

/// Sends the console's output to the client.
async fn show(
    guest: ConsoleChannels,
    typed: Streaming<v1::AttachConsoleRequest>,
    answers: Sender<v1::AttachConsoleResponse>,
) {
    let ConsoleChannels { input, mut output } = guest;
    let listening = listen(typed, input);
    tokio::pin!(listening);
    loop {
        let item = tokio::select! {
            () = &mut listening => return,
            () = answers.closed() => return,
            item = output.recv() => item,
        };
        let response = match item {
            None => return,
            Some(ConsoleOutput::Data(bytes)) => Ok(ServerMessage::Output(bytes)),
            Some(ConsoleOutput::Notice(text)) => Ok(ServerMessage::Notice(text)),
            Some(ConsoleOutput::End(why)) => Err(Status::aborted(why)),
        };
        let is_end = response.is_err();
        let answer = response.map(|response| v1::AttachConsoleResponse {
            message: Some(response),
        });
        if answers.send(answer).await.is_err() || is_end {
            return;
        }
    }
}

type Sender<T> = mpsc::Sender<Result<T, Status>>;

fn time(at_us: i64) -> Option<prost_types::Timestamp> {
    (at_us != 0).then(|| convert::time(Timestamp(at_us))).flatten()
}

fn micros(field: &str, time: Option<&prost_types::Timestamp>) -> Result<Option<i64>, ApiError> {
    Ok(names::given_time(field, time)?.map(|time| time.0))
}

fn response(piece: Piece) -> v1::ReadConsoleLogResponse {
    v1::ReadConsoleLogResponse {
        time: time(piece.at_us),
        boot_time: time(piece.boot_us),
        output: piece.bytes,
    }
}

/// Sends a recording. With `follow` it continues until the client leaves or loses the permission.
async fn send(
    core: Arc<Core>,
    access: ConsoleAccess,
    wanted: log::LogFilter,
    follow: bool,
    answers: Sender<v1::ReadConsoleLogResponse>,
) -> Result<(), ApiError> {
    let mut pages = log::LogPages::new(
        core.feature::<Consoles>().folder(&access.record.uid),
        access.clone(),
        wanted,
    );
    let mut ticks = tokio::time::interval(FOLLOW);
    let mut looked = 0_u32;
    loop {
        let found = pages.next().await?;
        let is_all = found.is_empty();
        for piece in found {
            if answers.send(Ok(response(piece))).await.is_err() {
                return Ok(());
            }
        }
        if !is_all {
            continue;
        }
        if !follow {
            return Ok(());
        }
        tokio::select! {
            () = answers.closed() => return Ok(()),
            () = core.stop.cancelled() => return Ok(()),
            _ = ticks.tick() => {}
        }
        looked = looked.wrapping_add(1);
        if looked.is_multiple_of(8) {
            access.recheck(&core, false).await.map_err(ApiError::Forbidden)?;
        }
    }
}

fn key_message(row: SshKeyRow) -> v1::SshKey {
    v1::SshKey {
        create_time: convert::time(row.created_at),
        fingerprint: row.fingerprint,
        public_key: row.public_key,
        member: row.member,
    }
}

/// Checks a fingerprint in the form of OpenSSH: 32 bytes in base64 without padding.
fn is_fingerprint(text: &str) -> bool {
    let letters = |digest: &str| {
        digest.len() == 43
            && digest
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
    };
    text.strip_prefix("SHA256:").is_some_and(letters)
}

impl Console {
    /// The access to the console of the node that a field of the request names.
    async fn access(&self, caller: Caller, field: &str, name: &str, types: bool) -> Result<ConsoleAccess, ApiError> {
        let id = &names::node_id(field, name)?;
        ConsoleAccess::new(&self.0, caller, id, types).await
    }
}

#[tonic::async_trait]
impl ConsoleService for Console {
    type AttachConsoleStream = BoxStream<v1::AttachConsoleResponse>;
    type ReadConsoleLogStream = BoxStream<v1::ReadConsoleLogResponse>;

    async fn attach_console(
        &self,
        request: Request<Streaming<v1::AttachConsoleRequest>>,
    ) -> Answer<Self::AttachConsoleStream> {
        let caller = caller::tenant(&self.0, &request).await?;
        let login = (
            request.extensions().get::<Grant>().cloned(),
            Login::of(&request).and_then(|login| login.role),
        );
        let mut typed = request.into_inner();
        let first = typed.message().await?.and_then(|first| first.message);
        let Some(ClientMessage::Enter(wanted)) = first else {
            return Err(ApiError::invalid("enter", "the first message must be enter, with node and mode").into());
        };
        let id = &names::node_id("enter.node", &wanted.node)?;
        let guest = session::enter(&self.0, caller, id, entry(&wanted)?, login).await?;
        let (answers, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(show(guest, typed, answers));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn read_console_log(
        &self,
        request: Request<v1::ReadConsoleLogRequest>,
    ) -> Answer<Self::ReadConsoleLogStream> {
        let caller = caller::tenant(&self.0, &request).await?;
        let request = request.into_inner();
        let access = self.access(caller, "node", &request.node, false).await?;
        let mut wanted = log::LogFilter {
            since_us: micros("since_time", request.since_time.as_ref())?,
            until_us: micros("until_time", request.until_time.as_ref())?,
            boot_us: None,
        };
        if request.boot != 0 {
            let boots = log::list(&self.0, &access).await?;
            wanted.boot_us = Some(log::numbered(&boots, request.boot)?.boot_us);
        }
        let (answers, receiver) = mpsc::channel(QUEUE);
        let core = Arc::clone(&self.0);
        tokio::spawn(async move {
            if let Err(error) = send(core, access, wanted, request.follow, answers.clone()).await {
                let _ = answers.send(Err(error.into())).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn list_console_boots(
        &self,
        request: Request<v1::ListConsoleBootsRequest>,
    ) -> Answer<v1::ListConsoleBootsResponse> {
        let caller = caller::tenant(&self.0, &request).await?;
        let access = self.access(caller, "node", &request.get_ref().node, false).await?;
        let boots = log::list(&self.0, &access).await?;
        let boots = (1..).zip(boots).map(|(number, boot)| v1::ConsoleBoot {
            boot: number,
            power_on_time: time(boot.boot_us),
            first_output_time: time(boot.first_us),
            size_bytes: i64::try_from(boot.bytes).unwrap_or(i64::MAX),
        });
        Ok(Response::new(v1::ListConsoleBootsResponse { boots: boots.collect() }))
    }

    async fn set_console_host_key(&self, request: Request<v1::SetConsoleHostKeyRequest>) -> Answer<v1::ConsoleHostKey> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(
            &self.0,
            &caller,
            "SetConsoleHostKey",
            request.mutation.as_ref(),
            &request,
        )?;
        let id = &names::node_id("node", &request.node)?;
        let key = request.host_key_sha256.as_str();
        if !key.is_empty() && !is_fingerprint(key) {
            let fault = "must be SHA256: and 43 characters, as `ssh-keygen -lf` shows it, or empty";
            return Err(ApiError::invalid("host_key_sha256", fault).into());
        }
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let record = self.0.store.node(&Scope::Site, id).await.map_err(ApiError::from)?;
        let host = dial::host_of(&record).ok_or_else(|| {
            let message = format!("node {id} has no BMC address with a host");
            ApiError::precondition(format!("nodes/{id}"), message, "`rackwright node update` sets it")
        })?;
        let pinned = tx.set_console_pin(&record.uid, &host, key).await;
        pinned.map_err(ApiError::from)?;
        let what = if key.is_empty() {
            "the key of the next connection"
        } else {
            key
        };
        let message = format!("{}: the console's SSH host key of {id} is {what}", caller.name);
        let event = call.event(EventKind::SecurityBmcHostKeySet, &format!("nodes/{id}"), message);
        tx.add_event(&event).await.map_err(ApiError::from)?;
        let answer = v1::ConsoleHostKey {
            node: request.node.clone(),
            host_key_sha256: request.host_key_sha256.clone(),
        };
        Ok(Response::new(call.end(tx, answer).await?))
    }

    async fn add_ssh_key(&self, request: Request<v1::AddSshKeyRequest>) -> Answer<v1::SshKey> {
        let caller = caller::user(&self.0, &request).await?;
        caller::check_no_api_key(&request)?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "AddSshKey", request.mutation.as_ref(), &request)?;
        let (fingerprint, text) =
            public_key(&request.public_key).map_err(|fault| ApiError::invalid("public_key", fault))?;
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let row = SshKeyRow {
            fingerprint,
            member: caller.name.clone(),
            public_key: text,
            created_at: call.now(),
            epoch: caller.epoch,
        };
        let is_added = tx.add_ssh_key(&row).await.map_err(ApiError::from)?
            || take_key(&self.0, &mut tx, &call, &caller, &row).await?;
        if !is_added {
            let fault = format!("is registered already, or you have {SSH_KEYS_MAX} keys: remove a key first");
            return Err(ApiError::Taken(vec![("public_key".into(), fault)]).into());
        }
        let message = format!("{} registered the SSH key {}", caller.name, row.fingerprint);
        let event = call.event(
            EventKind::SecuritySshKeyAdded,
            &format!("members/{}", caller.name),
            message,
        );
        tx.add_event(&event).await.map_err(ApiError::from)?;
        Ok(Response::new(call.end(tx, key_message(row)).await?))
    }

    async fn list_ssh_keys(&self, request: Request<v1::ListSshKeysRequest>) -> Answer<v1::ListSshKeysResponse> {
        let caller = caller::tenant(&self.0, &request).await?;
        let rows = self.0.store.ssh_keys(&caller.name).await.map_err(ApiError::from)?;
        let keys = rows.into_iter().map(key_message).collect();
        Ok(Response::new(v1::ListSshKeysResponse { keys }))
    }

    async fn remove_ssh_key(&self, request: Request<v1::RemoveSshKeyRequest>) -> Answer<()> {
        let caller = caller::user(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "RemoveSshKey", request.mutation.as_ref(), &request)?;
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let of = (caller.scope != Scope::Site).then_some(caller.name.as_str());
        let removed = tx.remove_ssh_key(&request.fingerprint, of).await;
        if !removed.map_err(ApiError::from)? {
            let name = request.fingerprint;
            return Err(ApiError::NotFound { kind: "ssh key", name }.into());
        }
        let message = format!("{} removed the SSH key {}", caller.name, request.fingerprint);
        let event = call.event(
            EventKind::SecuritySshKeyRemoved,
            &format!("members/{}", caller.name),
            message,
        );
        tx.add_event(&event).await.map_err(ApiError::from)?;
        Ok(Response::new(call.end(tx, ()).await?))
    }

    async fn create_console_token(
        &self,
        request: Request<v1::CreateConsoleTokenRequest>,
    ) -> Answer<v1::CreateConsoleTokenResponse> {
        let caller = caller::user(&self.0, &request).await?;
        caller::check_no_api_key(&request)?;
        let request = request.into_inner();
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::new(&self.0, &caller, "CreateConsoleToken", mutation, &request)?;
        let access = self.access(caller.clone(), "node", &request.node, false).await?;
        if !self.0.config.console_ssh.as_ref().is_some_and(|ssh| ssh.tokens) {
            let message = "the site has no SSH port that takes tokens";
            let hint = "`console_ssh: {listen: ..., tokens: true}` in the settings of rackwrightd";
            return Err(ApiError::precondition("site", message, hint).into());
        }
        let lifetime_s = match request.lifetime.as_ref().map_or(0, |lifetime| lifetime.seconds) {
            0 => TOKEN_S,
            s @ 1..=TOKEN_MAX_S => s,
            _ => return Err(ApiError::invalid("lifetime", "must be 1 s to 1 day").into()),
        };
        let mut tx = call.begin_once().await?;
        let expires_at = call.now().plus(seconds(lifetime_s));
        let token = token::make(&self.0, &mut tx, &caller, &access.record, expires_at).await?;
        let message = format!("{} made a token for one login at the console", caller.name);
        let event = call.event(EventKind::SecurityConsoleTokenCreated, &request.node, message);
        tx.add_event(&event).await.map_err(ApiError::from)?;
        call.end(tx, v1::CreateConsoleTokenResponse::default()).await?;
        Ok(Response::new(v1::CreateConsoleTokenResponse {
            token: token.expose_secret().to_owned(),
            expire_time: convert::time(expires_at),
        }))
    }
}

#[cfg(test)]
mod tests;
