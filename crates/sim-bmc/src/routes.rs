//! The routes, and the layers that every request passes: faults, authentication, common headers.

use super::accounts::{self, Accounts, Login};
use super::components::{self, Device};
use super::events::Streams;
use super::host::Host;
use super::in_band::{self, InBand};
use super::log::{self, Log};
use super::reply::{Fault, empty, json, tagged};
use super::request_fault::ConnectionClosed;
use super::resources;
use super::session::{Refused, Sessions, basic};
use super::update::Updates;
use super::{Limits, events, expand, firmware, request_fault, system, tasks, update, web_console};
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Map, Value, json};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Largest request body.
const BODY_BYTES: usize = 64 * 1024;
/// Bytes of a larger body that are read before the refusal.
const DRAINED_BYTES: usize = 4 << 20;
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
/// DSP0266 also allows a POST to the collection's members property.
const MEMBERS: &str = "/redfish/v1/SessionService/Sessions/Members";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");

/// A BMC: its machine and its sessions.
pub struct Bmc {
    pub(super) host: Arc<dyn Host>,
    sessions: Mutex<Sessions>,
    accounts: Mutex<Accounts>,
    in_band: Mutex<InBand>,
    pub(super) devices: Mutex<Vec<Device>>,
    pub(super) streams: Streams,
    pub(super) log: Log,
    pub updates: Updates,
}

impl Bmc {
    pub fn new(host: Arc<dyn Host>, limits: Limits) -> Self {
        let sessions = Mutex::new(Sessions::new(limits.sessions, limits.session_timeout));
        Self {
            host,
            sessions,
            accounts: Mutex::new(Accounts::new(limits.accounts)),
            in_band: Mutex::default(),
            devices: Mutex::default(),
            streams: Streams::default(),
            log: Log::default(),
            updates: Updates::default(),
        }
    }

    pub(super) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn in_band(&self) -> MutexGuard<'_, InBand> {
        self.in_band.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The BMC that a request is for. It is part of the request, so that one router serves any number of BMCs.
#[derive(Clone)]
pub(super) struct To(pub(super) Arc<Bmc>);

impl<S: Send + Sync> FromRequestParts<S> for To {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        let to = parts.extensions.get::<Self>().cloned();
        to.ok_or_else(|| Fault::internal("the request is for no BMC"))
    }
}

/// The whole service of a BMC, for hyper.
#[derive(Clone)]
pub struct Service {
    router: Router,
    bmc: Arc<Bmc>,
}

impl Service {
    pub fn new(router: Router, bmc: Arc<Bmc>) -> Self {
        Self { router, bmc }
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response;
    type Error = ConnectionClosed;
    type Future = Pin<Box<dyn Future<Output = Result<Response, ConnectionClosed>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut request = without_slash(request.map(Body::new));
        request.extensions_mut().insert(To(Arc::clone(&self.bmc)));
        let router = self.router.clone();
        Box::pin(expand::answer(router, request))
    }
}

/// Removes a trailing slash from the path, as DSP0266 requires of services.
fn without_slash(mut request: Request) -> Request {
    let path = request.uri().path();
    if path.len() > 1 && path.ends_with('/') {
        let mut target = path.trim_end_matches('/').to_owned();
        if let Some(query) = request.uri().query() {
            target.push('?');
            target.push_str(query);
        }
        if let Ok(uri) = target.parse() {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// The routes of all BMCs.
pub fn router() -> Router {
    let documents = resources::READ_ONLY.iter().fold(Router::new(), |router, (path, body)| {
        router.route(path, get(async |to, uri| read_only(to, uri, *body)))
    });
    let documents = resources::MEMBERS.iter().fold(documents, |router, (path, body)| {
        router.route(path, get(async |to, id, uri| read_member(to, id, uri, *body)))
    });
    firmware::routes(documents)
        .route("/redfish/v1/$metadata", get(metadata))
        .route(
            "/redfish/v1/SessionService",
            get(session_service).patch(change_session_service),
        )
        .route(SESSIONS, get(list_sessions).post(open_session))
        .route(MEMBERS, post(open_session))
        .route(
            "/redfish/v1/SessionService/Sessions/{id}",
            get(read_session).delete(close_session),
        )
        .route(accounts::SERVICE, get(accounts::service).patch(in_band::change_service))
        .route("/redfish/v1/AccountService/Accounts/{id}/Keys", get(in_band::keys))
        .route(
            "/redfish/v1/AccountService/Accounts/{id}/Keys/{key}",
            get(in_band::key).delete(in_band::delete_key),
        )
        .route(
            in_band::SUBSCRIPTIONS,
            get(in_band::subscriptions).post(in_band::subscribe),
        )
        .route(
            "/redfish/v1/EventService/Subscriptions/{id}",
            get(in_band::subscription).delete(in_band::end_subscription),
        )
        .route(in_band::HOST_INTERFACES, get(in_band::host_interfaces))
        .route(
            "/redfish/v1/Managers/1/HostInterfaces/1",
            get(in_band::host_interface).patch(in_band::change_host_interface),
        )
        .route(in_band::KCS, get(in_band::kcs).patch(in_band::change_kcs))
        .route(accounts::ACCOUNTS, get(accounts::list).post(accounts::make))
        .route(
            "/redfish/v1/AccountService/Accounts/{id}",
            get(accounts::read).patch(accounts::change).delete(accounts::delete),
        )
        .route("/redfish/v1/Systems/1", get(system::read).patch(system::change))
        .route(
            "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
            post(system::reset),
        )
        .route("/redfish/v1/Managers/1/VirtualMedia/Cd", get(system::media))
        .route(
            "/redfish/v1/Managers/1/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia",
            post(system::insert),
        )
        .route(
            "/redfish/v1/Managers/1/VirtualMedia/Cd/Actions/VirtualMedia.EjectMedia",
            post(system::eject),
        )
        .route(components::COLLECTION, get(components::list))
        .route(components::COMPONENT, get(components::read))
        .route(components::CERTIFICATE, get(components::certificate))
        .route(components::SIGN, post(components::sign))
        .route(components::TASK, get(components::task))
        .route(components::SIGNED, get(components::signed))
        .route(log::SERVICES, get(log::services))
        .route(log::SERVICE, get(log::service))
        .route(log::ENTRIES, get(log::entries))
        .route("/redfish/v1/Managers/1/LogServices/SEL/Entries/{id}", get(log::entry))
        .route(log::CLEAR, post(log::clear))
        .route(events::STREAM, get(events::stream))
        .route(web_console::PATH, get(web_console::open))
        .route(update::RESET_CHASSIS, post(update::reset_chassis))
        .route("/redfish/v1/UpdateService", get(update::service).patch(update::change))
        .route("/redfish/v1/UpdateService/multipart", post(update::multipart))
        .route("/redfish/v1/UpdateService/push", post(update::push))
        .route(
            "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate",
            post(update::simple),
        )
        .route("/redfish/v1/UpdateService/FirmwareInventory", get(update::inventory))
        .route("/redfish/v1/UpdateService/FirmwareInventory/{id}", get(update::entry))
        .route("/redfish/v1/TaskService", get(tasks::service))
        .route(tasks::TASKS, get(tasks::list))
        .route(
            "/redfish/v1/TaskService/Tasks/{id}",
            get(tasks::read).delete(tasks::forget),
        )
        .route("/redfish/v1/TaskService/TaskMonitors/{id}", get(tasks::monitor))
        .fallback(async |uri: Uri| Fault::not_found(uri.path()))
        .method_not_allowed_fallback(async |method: Method| Fault::method(method.as_str()))
        .layer(middleware::from_fn(in_band::obstruct))
        .layer(middleware::from_fn(authenticate))
        .layer(middleware::from_fn(common_headers))
        .layer(middleware::from_fn(request_fault::inject_fault))
}

// ---- what every request passes through ----

async fn common_headers(request: Request, next: Next) -> Response {
    let version = request.headers().get(ODATA_VERSION).cloned();
    let allow = allowed(request.uri().path());
    let query = request.uri().query().unwrap_or_default();
    let unknown = query
        .split('&')
        .find(|parameter| parameter.starts_with('$'))
        .map(str::to_owned);
    let mut response = match (version, unknown) {
        (Some(version), _) if version != "4.0" => {
            Fault::odata_version(version.to_str().unwrap_or("unreadable")).into_response()
        }
        (_, Some(parameter)) => Fault::query(&parameter).into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.entry(header::ALLOW).or_insert(HeaderValue::from_static(allow));
    headers.insert(ODATA_VERSION, HeaderValue::from_static("4.0"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::SERVER, HeaderValue::from_static("rackwright-lab"));
    response
}

/// The methods of a resource, for the `Allow` header of reads; the router sets it on refused methods.
fn allowed(path: &str) -> &'static str {
    match path.strip_prefix("/redfish/v1/").unwrap_or_default() {
        "Systems/1" | "SessionService" | "UpdateService" | "AccountService" => "GET, HEAD, PATCH",
        "Managers/1/HostInterfaces/1" | "Managers/1/Oem/Rackwright/KCSInterface" => "GET, HEAD, PATCH",
        "Systems/1/Bios/Settings" | "Systems/1/SecureBoot" => "GET, HEAD, PATCH",
        "SessionService/Sessions" | "AccountService/Accounts" | "EventService/Subscriptions" => "GET, HEAD, POST",
        key if key.contains("/Keys/") || key.starts_with("EventService/Subscriptions/") => "GET, HEAD, DELETE",
        keys if keys.ends_with("/Keys") => "GET, HEAD",
        account if account.starts_with("AccountService/Accounts/") => "GET, HEAD, PATCH, DELETE",
        session if session.starts_with("SessionService/Sessions/") => "GET, HEAD, DELETE",
        task if task.starts_with("TaskService/Tasks/") => "GET, HEAD, DELETE",
        action if action.contains("/Actions/") => "POST",
        option if option.starts_with("Systems/1/BootOptions/") => "GET, HEAD, DELETE",
        key if key.contains("/SecureBootDatabases/") && key.contains("/Certificates/") => "GET, HEAD, DELETE",
        _ => "GET, HEAD",
    }
}

async fn authenticate(To(bmc): To, request: Request, next: Next) -> Response {
    if is_public(&request) {
        return next.run(request).await;
    }
    let (login, user) = login_of(&bmc, request.headers());
    match login {
        Login::Admitted if !accounts::may(&bmc, &user, request.method(), request.uri().path()) => {
            Fault::insufficient_privilege().into_response()
        }
        Login::Admitted => next.run(request).await,
        Login::MustChange(id) if accounts::is_allowed(request.method(), request.uri().path(), id) => {
            next.run(request).await
        }
        Login::MustChange(id) => Fault::password_change_required(id).into_response(),
        Login::Refused => Fault::unauthorized().into_response(),
    }
}

/// The requests that DSP0266 (13.3.4) allows without a login: the root documents, and opening a session.
fn is_public(request: &Request) -> bool {
    let path = request.uri().path();
    match *request.method() {
        Method::GET | Method::HEAD => {
            ["/redfish", "/redfish/v1", "/redfish/v1/odata", "/redfish/v1/$metadata"].contains(&path)
        }
        Method::POST => path == SESSIONS || path == MEMBERS,
        _ => false,
    }
}

/// The login of the sender, and the account's name.
fn login_of(bmc: &Bmc, headers: &HeaderMap) -> (Login, String) {
    if let Some(token) = headers.get(TOKEN) {
        let token = token.to_str().unwrap_or_default();
        let Some(user) = bmc.sessions().admit(token, Instant::now()) else {
            return (Login::Refused, String::new());
        };
        let must_change = bmc.accounts().must_change(bmc.host.as_ref(), &user);
        return (must_change.map_or(Login::Admitted, Login::MustChange), user);
    }
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((user, password)) = header.and_then(basic) else {
        return (Login::Refused, String::new());
    };
    let login = bmc
        .accounts()
        .log_in(bmc.host.as_ref(), &user, &password, Instant::now());
    (login, user)
}

/// A request body that is a JSON object.
pub(super) struct Object(pub(super) Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for Object {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fault> {
        let bytes = read(request.into_body()).await?;
        if bytes.is_empty() {
            return Ok(Self(Map::new()));
        }
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(object)) => Ok(Self(object)),
            _ => Err(Fault::malformed()),
        }
    }
}

/// Reads a body. A body that is too large is read for a while and discarded: a client that is still sending does not see
/// the refusal.
async fn read(mut body: Body) -> Result<Vec<u8>, Fault> {
    let (mut bytes, mut size) = (Vec::new(), 0);
    while size <= DRAINED_BYTES {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|_| Fault::malformed())?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if size <= BODY_BYTES {
            bytes.extend_from_slice(&data);
        }
    }
    if size <= BODY_BYTES {
        Ok(bytes)
    } else {
        Err(Fault::too_large())
    }
}

/// Checks `If-Match` against the resource's ETag; a missing header is fine.
pub(super) fn check_match(headers: &HeaderMap, etag: &str) -> Result<(), Fault> {
    let Some(wanted) = headers.get(header::IF_MATCH) else {
        return Ok(());
    };
    let wanted = wanted.to_str().unwrap_or_default();
    let matches = wanted
        .split(',')
        .map(str::trim)
        .any(|wanted| wanted == etag || wanted == "*");
    if matches {
        Ok(())
    } else {
        Err(Fault::precondition_failed())
    }
}

// ---- root and sessions ----

fn read_only(To(bmc): To, uri: Uri, body: resources::Document) -> Result<Response, Fault> {
    let mut body = body(bmc.host.as_ref()).ok_or_else(|| Fault::not_found(uri.path()))?;
    if uri.path() == "/redfish/v1" && bmc.attests() {
        body["ComponentIntegrity"] = json!({"@odata.id": components::COLLECTION});
    }
    Ok(digested(&body))
}

fn read_member(To(bmc): To, Path(id): Path<String>, uri: Uri, body: resources::Member) -> Result<Response, Fault> {
    let body = body(bmc.host.as_ref(), &id).ok_or_else(|| Fault::not_found(uri.path()))?;
    Ok(digested(&body))
}

/// A document with an ETag from its text. The time of day does not count as a change (DSP0266, "ETags").
pub(super) fn digested(body: &Value) -> Response {
    let mut lasting = body.clone();
    if let Some(members) = lasting.as_object_mut() {
        members.remove("DateTime");
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, lasting.to_string().as_bytes());
    let etag = format!("\"{}\"", hex::encode(&digest.as_ref()[..8]));
    tagged(json(StatusCode::OK, body), &etag)
}

async fn metadata() -> Response {
    let mut response = Response::new(resources::METADATA.into());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/xml;charset=utf-8"),
    );
    response
}

async fn session_service(To(bmc): To) -> Response {
    let timeout_s = bmc.sessions().timeout.as_secs();
    let body = json!({
        "@odata.id": "/redfish/v1/SessionService",
        "@odata.type": "#SessionService.v1_1_9.SessionService",
        "Id": "SessionService",
        "Name": "Session Service",
        "ServiceEnabled": true,
        "SessionTimeout": timeout_s,
        "Status": {"State": "Enabled", "Health": "OK"},
        "Sessions": {"@odata.id": SESSIONS},
    });
    tagged(json(StatusCode::OK, &body), &format!("\"{timeout_s}\""))
}

async fn change_session_service(To(bmc): To, headers: HeaderMap, Object(body): Object) -> Result<Response, Fault> {
    check_match(&headers, &format!("\"{}\"", bmc.sessions().timeout.as_secs()))?;
    for (name, value) in body {
        if name != "SessionTimeout" {
            return Err(Fault::unknown_property(&name));
        }
        let seconds = value.as_u64().ok_or_else(|| Fault::wrong_type(&name, &value))?;
        // The range of the SessionService schema.
        if !(30..=86_400).contains(&seconds) {
            return Err(Fault::not_in_list(&name, &seconds.to_string()));
        }
        bmc.sessions().timeout = Duration::from_secs(seconds);
    }
    Ok(session_service(To(bmc)).await)
}

async fn list_sessions(To(bmc): To) -> Response {
    let members = bmc.sessions().ids(Instant::now());
    let body = resources::collection(
        SESSIONS,
        "#SessionCollection.SessionCollection",
        "Sessions",
        members.iter().map(String::as_str),
    );
    json(StatusCode::OK, &body)
}

async fn open_session(To(bmc): To, Object(body): Object) -> Result<Response, Fault> {
    let text = |name: &str| match body.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(value) => Err(Fault::wrong_type(name, value)),
        None => Err(Fault::missing_property(name)),
    };
    let (user, password) = (text("UserName")?, text("Password")?);
    let login = bmc
        .accounts()
        .log_in(bmc.host.as_ref(), &user, &password, Instant::now());
    if login == Login::Refused || bmc.updates.refuses() {
        return Err(Fault::unauthorized());
    }
    let (id, token) = bmc
        .sessions()
        .open(&user, Instant::now())
        .map_err(|refused| match refused {
            Refused::Full => Fault::sessions_full(),
            Refused::NoRandomness => Fault::internal("no randomness for a token"),
        })?;
    let mut body = session_body(&id, &user);
    if let Login::MustChange(account) = login {
        body["@Message.ExtendedInfo"] = Fault::password_change_required(account).annotation();
    }
    let mut response = json(StatusCode::CREATED, &body);
    for (name, value) in [(TOKEN, token), (header::LOCATION, format!("{SESSIONS}/{id}"))] {
        let value = HeaderValue::from_str(&value).map_err(|_| Fault::internal("a header value"))?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

async fn read_session(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    if !bmc.sessions().ids(Instant::now()).contains(&id) {
        return Err(Fault::not_found(uri.path()));
    }
    let user = bmc.sessions().user(&id).unwrap_or_default();
    Ok(tagged(json(StatusCode::OK, &session_body(&id, &user)), "\"1\""))
}

async fn close_session(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    if bmc.sessions().close(&id) {
        Ok(empty(StatusCode::NO_CONTENT))
    } else {
        Err(Fault::not_found(uri.path()))
    }
}

fn session_body(id: &str, user: &str) -> Value {
    json!({
        "@odata.id": format!("{SESSIONS}/{id}"),
        "@odata.type": "#Session.v1_7_0.Session",
        "Id": id,
        "Name": "User Session",
        "UserName": user,
        "SessionType": "Redfish",
    })
}
