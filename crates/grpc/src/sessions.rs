//! `SessionService`: sessions of browsers, and API keys.

use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::session_service_server::SessionService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::audit::call;
use rackwright_ground::clock;
use rackwright_ground::config::web;
use rackwright_ground::core::Core;
use rackwright_ground::login_provider::ProviderLogin;
use rackwright_identity::{Token, TokenHash};
use rackwright_lifecycle::{CustomerId, EventKind, seconds};
use rackwright_store::{EventRow, MemberRow, SessionFilter, SessionKind, SessionRow, TokenRow, WriteTx};
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status};

use super::call::MutatingCall;
use super::caller::{self, Caller};
use super::connection::{Login, Peer};
use super::names::{self, Pages};
use super::{convert, grants};

/// The purpose of login tokens in the common token table.
const LOGIN: &str = "login";
/// Validity of a login token: a browser opens the page at once.
const LOGIN_TOKEN_S: i64 = 60;
/// Lifetime of an API key in seconds: the least, the usual and the most.
const KEY_S: (i64, i64, i64) = (3600, 90 * 86400, 366 * 86400);
/// Most valid API keys of a member.
const KEYS_MAX: i64 = 100;
/// Longest label of an API key, in characters.
const LABEL_MAX: usize = 100;
/// Longest name of a browser that is stored, in characters.
const CLIENT_MAX: usize = 200;

/// Implements `SessionService`.
#[derive(Debug, Clone)]
pub struct Sessions(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;
type Opened = v1::OpenSessionResponse;

/// The browser of a login.
#[derive(Debug)]
struct Browser {
    address: String,
    client: String,
}

/// The caller sees the sessions of this member; empty: all sessions in the caller's scope.
fn visible_member(caller: &Caller) -> &str {
    match caller.role {
        v1::Role::Operator | v1::Role::CustomerAdmin => "",
        _ => &caller.name,
    }
}

fn filter(caller: &Caller) -> SessionFilter<'_> {
    SessionFilter {
        scope: &caller.scope,
        member: visible_member(caller),
    }
}

fn session_message(row: SessionRow, own: Option<&str>) -> v1::Session {
    v1::Session {
        current: own == Some(row.id.as_str()),
        name: format!("sessions/{}", row.id),
        member: row.member,
        customer: row.customer.to_string(),
        create_time: convert::time(row.created_at),
        last_use_time: convert::time(row.used_at),
        expire_time: convert::time(row.ends_at),
        address: row.address,
        client: row.client,
    }
}

fn key_message(row: SessionRow) -> v1::ApiKey {
    let given = MemberRow {
        role: row.role,
        customer: row.customer,
    };
    let role = caller::rights_of(&given).map_or(v1::Role::Unspecified, |(role, _)| role);
    let is_used = row.used_at > row.created_at;
    v1::ApiKey {
        name: format!("apiKeys/{}", row.id),
        member: row.member,
        customer: given.customer.to_string(),
        role: role.into(),
        label: row.label,
        create_time: convert::time(row.created_at),
        last_use_time: is_used.then(|| convert::time(row.used_at)).flatten(),
        expire_time: convert::time(row.ends_at),
    }
}

impl Sessions {
    fn web(&self) -> Result<&web::Settings, ApiError> {
        self.0.config.web.as_ref().ok_or_else(|| {
            ApiError::precondition(
                "web",
                "this control plane serves no web console",
                "`web: {}` in the settings of rackwrightd turns it on",
            )
        })
    }

    fn secret(&self, mint: Mint) -> Result<(String, TokenHash), ApiError> {
        let (secret, hash) = mint(self.0.rng.as_ref()).map_err(|e| ApiError::Internal(e.to_string()))?;
        Ok((secret.expose_secret().to_owned(), hash))
    }

    async fn open(&self, token: &str, browser: Browser) -> Result<Opened, ApiError> {
        let refuse = || {
            let message =
                "the token is not valid: unknown, used before, or too old; `rackwright console open` makes another";
            ApiError::Unauthenticated(message.into())
        };
        let hash = TokenHash::of(token).map_err(|_| refuse())?.to_hex();
        let now = clock::now();
        // Unknown tokens need no turn of the writer.
        if !self.0.store.has_token(&hash, LOGIN).await? {
            return Err(refuse());
        }
        let mut tx = self.0.store.write().await?;
        let (known, _) = tx.token(&hash, LOGIN).await?.ok_or_else(refuse)?;
        // Locks the member before the token, in the same order as the revocation of a member.
        let member = tx.member(&known.subject).await?.ok_or_else(refuse)?;
        call::note_target(&format!("members/{}", member.name));
        let token = tx.use_token(&hash, LOGIN, now).await?.ok_or_else(refuse)?;
        if token.body != member.epoch.to_string() {
            return Err(refuse());
        }
        let of = (member.name.as_str(), member.epoch, &member.given.customer);
        self.open_session_of(tx, of, browser).await
    }

    /// Opens a session for a person of the identity provider, as the person's member.
    async fn open_by_provider(&self, login: &ProviderLogin, browser: Browser) -> Result<Opened, ApiError> {
        let (tx, of) = login.member(&self.0).await?;
        self.open_session_of(tx, (&of.member, of.epoch, &of.rights.customer), browser)
            .await
    }

    /// Opens a session of a member: name, epoch and customer.
    async fn open_session_of(
        &self,
        mut tx: WriteTx,
        (member, epoch, customer): (&str, u64, &CustomerId),
        browser: Browser,
    ) -> Result<Opened, ApiError> {
        let (web, now) = (self.web()?, clock::now());
        let (secret, hash) = self.secret(Token::mint)?;
        let row = SessionRow {
            id: self.0.new_id(),
            kind: SessionKind::Browser,
            member: member.to_owned(),
            epoch,
            customer: customer.clone(),
            role: String::new(),
            label: String::new(),
            created_at: now,
            used_at: now,
            ends_at: now.plus(seconds(i64::from(web.session_hours) * 3600)),
            address: browser.address,
            client: browser.client,
        };
        tx.put_session(&hash.to_hex(), &row).await?;
        let message = format!("{} logged in to the web console from {}", row.member, row.address);
        tx.add_event(&EventRow {
            at: now,
            kind: EventKind::SecuritySessionOpened,
            target: format!("members/{}", row.member),
            message,
            attributes: [("session".to_owned(), row.id.clone())].into(),
            ..EventRow::default()
        })
        .await?;
        self.0.commit(tx).await?;
        Ok(v1::OpenSessionResponse {
            secret,
            expire_time: convert::time(row.ends_at),
        })
    }

    /// Rows of a list, and the token of the next page.
    async fn list(
        &self,
        caller: &Caller,
        kind: SessionKind,
        (list, page_size, page_token): (&str, i32, &str),
    ) -> Result<(Vec<SessionRow>, String), ApiError> {
        let limit = names::page_size(page_size)?;
        let pages = Pages {
            list,
            narrowed: "",
            limit,
        };
        let page = (pages.after(page_token)?, limit);
        let rows = self.0.store.sessions(filter(caller), kind, clock::now(), page).await?;
        let next = pages.token(rows.len(), rows.last().map(|row| row.id.clone()));
        Ok((rows, next))
    }

    async fn end(&self, call: &MutatingCall<'_>, kind: SessionKind, id: &str) -> Result<(), ApiError> {
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(former),
        };
        let (event, noun) = match kind {
            SessionKind::Browser => (EventKind::SecuritySessionEnded, "session"),
            SessionKind::ApiKey => (EventKind::SecurityApiKeyDeleted, "API key"),
        };
        let caller = call.caller();
        let ended = tx.end_session(filter(caller), kind, id, call.now()).await?;
        let ended = ended.ok_or_else(|| ApiError::NotFound {
            kind: noun,
            name: id.to_owned(),
        })?;
        let message = format!("{} ended the {noun} {id} of {}", caller.name, ended.member);
        let event = call.event(event, &format!("members/{}", ended.member), message);
        tx.add_event(&event).await?;
        call.end(tx, ()).await
    }
}

type Mint =
    fn(&dyn rackwright_identity::Rng) -> Result<(secrecy::SecretString, TokenHash), rackwright_identity::RngError>;

/// The role of a new API key: the caller's, or one with fewer rights.
fn key_role(caller: &Caller, wanted: v1::Role) -> Result<v1::Role, ApiError> {
    match (caller.role, wanted) {
        (own, v1::Role::Unspecified) => Ok(own),
        (own, wanted) if own == wanted => Ok(own),
        (v1::Role::Operator, v1::Role::Viewer) | (v1::Role::CustomerAdmin, v1::Role::CustomerUser) => Ok(wanted),
        (own, _) => {
            let own = caller::word(own);
            Err(ApiError::invalid(
                "role",
                format!("must be {own}, or viewer for operators and customer-user for customer admins"),
            ))
        }
    }
}

fn key_lifetime(lifetime: Option<&prost_types::Duration>) -> Result<i64, ApiError> {
    let (least, usual, most) = KEY_S;
    match lifetime.map_or(0, |lifetime| lifetime.seconds) {
        0 => Ok(usual),
        s if (least..=most).contains(&s) => Ok(s),
        _ => Err(ApiError::invalid("lifetime", "must be 1 hour to 366 days")),
    }
}

fn check_label(label: &str) -> Result<(), ApiError> {
    let length = label.trim().chars().count();
    if length == 0 || length > LABEL_MAX || label.chars().any(is_hidden) {
        let fault = "must be 1 to 100 characters that say what the key is for";
        return Err(ApiError::invalid("label", fault));
    }
    Ok(())
}

/// A control character, or one that changes the direction of the text around it.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Text of a client's header for the list of sessions: printable and short.
fn shown(text: Option<&str>) -> String {
    let printable = text.unwrap_or_default().chars().filter(|c| !is_hidden(*c));
    printable.take(CLIENT_MAX).collect()
}

#[tonic::async_trait]
impl SessionService for Sessions {
    async fn create_login_token(
        &self,
        request: Request<v1::CreateLoginTokenRequest>,
    ) -> Answer<v1::CreateLoginTokenResponse> {
        let caller = caller::certified(&self.0, &request).await?;
        caller::check_invited(&self.0, &caller).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(
            &self.0,
            &caller,
            "CreateLoginToken",
            request.mutation.as_ref(),
            &request,
        )?;
        let url = self.web()?.url(&self.0.config.names);
        let (token, hash) = self.secret(Token::mint)?;
        let expires_at = call.now().plus(seconds(LOGIN_TOKEN_S));
        let mut tx = call.begin_once().await?;
        caller::check_still(&mut tx, &caller).await?;
        let row = TokenRow {
            hash: hash.to_hex(),
            purpose: LOGIN.to_owned(),
            subject: caller.name.clone(),
            body: caller.epoch.to_string(),
            expires_at,
        };
        tx.put_token(&row).await.map_err(ApiError::from)?;
        call.end(tx, v1::CreateLoginTokenResponse::default()).await?;
        Ok(Response::new(v1::CreateLoginTokenResponse {
            url: format!("{url}/login#{token}"),
            token,
            expire_time: convert::time(expires_at),
        }))
    }

    async fn open_session(&self, request: Request<v1::OpenSessionRequest>) -> Answer<v1::OpenSessionResponse> {
        let address = Peer::of(&request).and_then(Peer::address);
        let address = address.map(|address| address.to_canonical().to_string());
        let client = request
            .metadata()
            .get("user-agent")
            .and_then(|agent| agent.to_str().ok());
        let browser = Browser {
            address: address.unwrap_or_default(),
            client: shown(client),
        };
        let opened = match request.extensions().get::<ProviderLogin>() {
            Some(login) => self.open_by_provider(login, browser).await?,
            None => self.open(&request.get_ref().token, browser).await?,
        };
        Ok(Response::new(opened))
    }

    async fn list_sessions(&self, request: Request<v1::ListSessionsRequest>) -> Answer<v1::ListSessionsResponse> {
        let caller = caller::anyone(&self.0, &request).await?;
        let own = Login::of(&request).map(|login| login.session.as_str());
        let of = request.get_ref();
        let page = ("ListSessions", of.page_size, of.page_token.as_str());
        let (rows, next_page_token) = self.list(&caller, SessionKind::Browser, page).await?;
        let sessions = rows.into_iter().map(|row| session_message(row, own)).collect();
        Ok(Response::new(v1::ListSessionsResponse {
            sessions,
            next_page_token,
        }))
    }

    async fn end_session(&self, request: Request<v1::EndSessionRequest>) -> Answer<()> {
        let caller = caller::anyone(&self.0, &request).await?;
        caller::check_no_api_key(&request)?;
        grants::detach(&request);
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "EndSession", request.mutation.as_ref(), &request)?;
        let id = names::id_of("name", &request.name, "sessions")?;
        Ok(Response::new(self.end(&call, SessionKind::Browser, id).await?))
    }

    async fn create_api_key(&self, request: Request<v1::CreateApiKeyRequest>) -> Answer<v1::CreateApiKeyResponse> {
        let caller = caller::anyone(&self.0, &request).await?;
        caller::check_no_api_key(&request)?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "CreateApiKey", request.mutation.as_ref(), &request)?;
        self.web()?;
        check_label(&request.label)?;
        let role = key_role(&caller, request.role())?;
        let lifetime = key_lifetime(request.lifetime.as_ref())?;
        let (key, hash) = self.secret(Token::mint_api_key)?;
        let mut tx = call.begin_once().await?;
        caller::check_still(&mut tx, &caller).await?;
        let count = tx.api_keys_of(&caller.name, call.now()).await.map_err(ApiError::from)?;
        if count >= KEYS_MAX {
            let message = format!("{} has {count} API keys, the most that a member may have", caller.name);
            let hint = "`rackwright api-key delete` ends a key";
            return Err(ApiError::precondition(format!("members/{}", caller.name), message, hint).into());
        }
        let row = SessionRow {
            id: self.0.new_id(),
            kind: SessionKind::ApiKey,
            member: caller.name.clone(),
            epoch: caller.epoch,
            customer: caller.customer(),
            role: caller::word(role).to_owned(),
            label: request.label.trim().to_owned(),
            created_at: call.now(),
            used_at: call.now(),
            ends_at: call.now().plus(seconds(lifetime)),
            address: String::new(),
            client: String::new(),
        };
        tx.put_session(&hash.to_hex(), &row).await.map_err(ApiError::from)?;
        let message = format!(
            "{} created the API key {} as {}: {}",
            caller.name, row.id, row.role, row.label
        );
        let target = format!("members/{}", caller.name);
        let event = call.event(EventKind::SecurityApiKeyCreated, &target, message);
        tx.add_event(&event).await.map_err(ApiError::from)?;
        call.end(tx, v1::CreateApiKeyResponse::default()).await?;
        Ok(Response::new(v1::CreateApiKeyResponse {
            key,
            api_key: Some(key_message(row)),
        }))
    }

    async fn list_api_keys(&self, request: Request<v1::ListApiKeysRequest>) -> Answer<v1::ListApiKeysResponse> {
        let caller = caller::anyone(&self.0, &request).await?;
        let of = request.get_ref();
        let page = ("ListApiKeys", of.page_size, of.page_token.as_str());
        let (rows, next_page_token) = self.list(&caller, SessionKind::ApiKey, page).await?;
        let api_keys = rows.into_iter().map(key_message).collect();
        Ok(Response::new(v1::ListApiKeysResponse {
            api_keys,
            next_page_token,
        }))
    }

    async fn delete_api_key(&self, request: Request<v1::DeleteApiKeyRequest>) -> Answer<()> {
        let caller = caller::anyone(&self.0, &request).await?;
        // A key may end itself.
        if Login::of(&request).is_none_or(|login| login.name() != request.get_ref().name) {
            caller::check_no_api_key(&request)?;
        }
        grants::detach(&request);
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "DeleteApiKey", request.mutation.as_ref(), &request)?;
        let id = names::id_of("name", &request.name, "apiKeys")?;
        Ok(Response::new(self.end(&call, SessionKind::ApiKey, id).await?))
    }
}
