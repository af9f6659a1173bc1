//! The client: one per BMC, cheap to clone, closed at the end.

mod find;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use http::Method;
use hyper::upgrade::Upgraded;
use rackwright_redfish_wire::address::BmcAddress;
use rackwright_redfish_wire::error::{Exchange, RedfishError};
use rackwright_redfish_wire::etag::{self, EtagRung};
use rackwright_redfish_wire::retry::{Attempts, Repeat};
use rackwright_redfish_wire::sender::Answer;
use rackwright_redfish_wire::session::{self, Login, LoginMethod};
use rackwright_redfish_wire::tls::{CertificateFingerprint, Pin};
use rackwright_redfish_wire::transport::{Body, Opening, Outgoing, Proof, Reply, Transport};
use rackwright_redfish_wire::upload::Upload;
use rackwright_redfish_wire::wire::Wire;
use serde_json::Value;
use tokio::sync::OnceCell;
use url::Url;

use crate::quirks::Profile;
use crate::resource::Resource;
use crate::settings::{BmcTarget, Settings};
use crate::views::{Manager, ServiceRoot, System};

/// A client for one BMC. Clones share the session and the limit of concurrent requests.
#[derive(Debug, Clone)]
pub struct BmcClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    wire: Arc<Wire>,
    login: Login,
    settings: Settings,
    wanted_system: Option<String>,
    root: OnceCell<ServiceRoot>,
    system_path: OnceCell<String>,
    /// Ids of all systems, filled by the first listing.
    system_ids: OnceCell<Vec<String>>,
    profile: OnceCell<Profile>,
    recent: Mutex<RecentRead>,
}

/// Maximum age of a system reading that only decides what to send: each change is read back.
const RECENT_AGE: Duration = Duration::from_secs(1);

/// The last reading of the system. Each request that may change the system clears it.
#[derive(Debug, Default)]
struct RecentRead {
    /// Counts the begins and ends of requests that may change something. A reading during such a request is not kept.
    changes: u64,
    read: Option<(Duration, Resource)>,
}

/// Facts about a BMC that a later client can reuse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BmcHints {
    /// Path of the system.
    pub system: Option<String>,
    /// How the BMC accepts a login.
    pub login: LoginMethod,
}

impl BmcClient {
    /// Reads the service root and logs in. If the BMC offers no sessions, a wrong password shows only with the
    /// first resource that is read.
    ///
    /// # Errors
    /// Any error of the address, network, certificate or credentials, or an answer that is not Redfish.
    pub async fn connect(target: BmcTarget, settings: Settings) -> Result<Self, RedfishError> {
        let login = Login::new(target.username.clone(), target.password.clone());
        let client = Self::with_login(target, settings, login)?;
        client.enter().await?;
        Ok(client)
    }

    /// A client for occasional reads, which sends nothing until the first call. Where Basic authentication is known to work,
    /// each request carries name and password, which spares the BMC a session for each read. Otherwise the client opens a
    /// session, which [`close`](Self::close) ends. A wrong password is sent once. `known` holds what an earlier client of
    /// the same BMC learned.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn for_polling(target: BmcTarget, settings: Settings, known: &BmcHints) -> Result<Self, RedfishError> {
        let address = BmcAddress::parse(&target.address)?;
        let sessions = address.resolve(None, &address.standard_sessions_path())?;
        let login = Login::for_polling(target.username.clone(), target.password.clone(), sessions, known.login);
        let mut client = Self::with_login(target, settings, login)?;
        if let (Some(path), Some(inner)) = (&known.system, Arc::get_mut(&mut client.inner)) {
            inner.system_path = OnceCell::new_with(Some(path.clone()));
        }
        Ok(client)
    }

    /// The path of the session that this client has open.
    pub(crate) async fn own_session(&self) -> Option<String> {
        self.inner.login.session_path().await
    }

    /// The facts that the next client of this BMC can reuse.
    pub async fn hints(&self) -> BmcHints {
        BmcHints {
            system: self.inner.system_path.get().cloned(),
            login: self.inner.login.login_method().await,
        }
    }

    /// The certificate of a BMC; none over plain HTTP. Requests only the service root, without credentials.
    ///
    /// # Errors
    /// Errors of the address and of the network.
    pub async fn certificate_of(
        address: &str,
        settings: Settings,
    ) -> Result<Option<CertificateFingerprint>, RedfishError> {
        let client = Self::anonymous(address, settings)?;
        match client.get_without_proof(&client.bmc().root_path()).await {
            Ok(_) => {}
            // Any answer is good enough: the certificate was already shown.
            Err(_) if client.observed_fingerprint().is_some() => {}
            Err(failure) => return Err(failure),
        }
        Ok(client.observed_fingerprint())
    }

    /// A client without credentials.
    pub(crate) fn anonymous(address: &str, settings: Settings) -> Result<Self, RedfishError> {
        let target = BmcTarget {
            address: address.to_owned(),
            username: String::new(),
            password: String::new().into(),
            certificate_sha256: None,
            system: None,
        };
        Self::with_login(target, settings, Login::new(String::new(), String::new().into()))
    }

    /// The root, read without credentials.
    pub(crate) async fn open_root(&self) -> Result<Resource, RedfishError> {
        let path = self.bmc().root_path();
        match self.get_without_proof(&path).await {
            Err(failure) if failure.status() == Some(404) => {
                let bare = self.get_without_proof(path.trim_end_matches('/')).await;
                bare.map_err(|_| failure)
            }
            other => other,
        }
    }

    pub(crate) fn with_login(target: BmcTarget, settings: Settings, login: Login) -> Result<Self, RedfishError> {
        let address = BmcAddress::parse(&target.address)?;
        let pin = Pin::new(target.certificate_sha256);
        let wire = Wire {
            transport: Transport::new(address, pin, settings.of_transport())?,
            environment: Arc::clone(&settings.environment),
            policy: settings.retry.clone(),
            password: target.password,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                wire: Arc::new(wire),
                login,
                settings,
                wanted_system: target.system,
                root: OnceCell::new(),
                system_path: OnceCell::new(),
                system_ids: OnceCell::new(),
                profile: OnceCell::new(),
                recent: Mutex::default(),
            }),
        })
    }

    /// The address, without credentials.
    pub fn address(&self) -> String {
        self.bmc().to_string()
    }

    /// Whether requests travel unencrypted.
    pub fn is_plain(&self) -> bool {
        self.bmc().is_plain()
    }

    /// The certificate that the BMC showed; none over plain HTTP.
    pub fn observed_fingerprint(&self) -> Option<CertificateFingerprint> {
        self.inner.wire.transport.pin().observed()
    }

    /// Closes the connections. Keeps the session and the facts about the BMC, which are small, for the next call.
    pub fn rest(&self) {
        self.recent().read = None;
        self.inner.wire.transport.close_connections();
    }

    /// Deletes the session. Every later call fails with [`RedfishError::Closed`].
    ///
    /// # Errors
    /// The BMC could not be reached; the session then ends by its own time-out.
    pub async fn close(&self) -> Result<(), RedfishError> {
        self.inner.login.close(&self.inner.wire).await
    }

    /// The service root, from its first reading.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub async fn service_root(&self) -> Result<ServiceRoot, RedfishError> {
        self.inner.root.get_or_try_init(|| self.read_root()).await.cloned()
    }

    /// Fetches the named system, or the only one.
    ///
    /// # Errors
    /// [`RedfishError::SeveralSystems`] or [`RedfishError::NoSuchSystem`], with the list of systems.
    pub async fn system(&self) -> Result<System, RedfishError> {
        let path = self.inner.system_path.get_or_try_init(|| self.find_system()).await?;
        self.get(path).await.map(System::from)
    }

    /// This client's last reading of the system if it is recent and nothing was sent since; otherwise a new reading. Good
    /// enough to choose what to send. If the reading shows that nothing need be sent (`is_settled`), the system is read
    /// again.
    pub(crate) async fn system_to_change(
        &self,
        is_settled: impl FnOnce(&System) -> bool,
    ) -> Result<System, RedfishError> {
        let now = self.settings().environment.now();
        let read = self.recent().read.clone();
        let read = read.filter(|(at, _)| now.saturating_sub(*at) <= RECENT_AGE);
        match read.map(|(_, resource)| System::from(resource)) {
            Some(system) if !is_settled(&system) => Ok(system),
            _ => self.system().await,
        }
    }

    fn recent(&self) -> MutexGuard<'_, RecentRead> {
        self.inner.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the begin or the end of a request that may change something.
    fn note_change(&self) {
        let mut recent = self.recent();
        recent.changes += 1;
        recent.read = None;
    }

    /// Fetches the manager of the system: the one that the system names, or the only one.
    ///
    /// # Errors
    /// [`RedfishError::MissingProperty`] if neither is known.
    pub async fn manager(&self) -> Result<Manager, RedfishError> {
        let system = self.system().await?;
        let managers = self.manager_links(&system).await?;
        let Some(first) = managers.first() else {
            return Err(RedfishError::MissingProperty {
                bmc: self.address(),
                path: system.path().to_owned(),
                property: "Links.ManagedBy",
                consequence: "its manager is unknown",
            });
        };
        self.get(first).await.map(Manager::from)
    }

    /// Fetches one resource by a link from another.
    ///
    /// # Errors
    /// Errors of the network and the BMC, or [`RedfishError::NotJson`].
    pub async fn get(&self, link: &str) -> Result<Resource, RedfishError> {
        let url = self.bmc().resolve(None, link)?;
        let changes = self.recent().changes;
        let resource = self.get_url(link, url).await?;
        if self.inner.system_path.get().is_some_and(|path| path == link) {
            let mut recent = self.recent();
            if recent.changes == changes {
                recent.read = Some((self.settings().environment.now(), resource.clone()));
            }
        }
        Ok(resource)
    }

    /// The links of all members of a collection, over all its pages. Invalid members are left out.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), and [`RedfishError::EndlessCollection`].
    pub async fn member_links(&self, link: &str) -> Result<Vec<String>, RedfishError> {
        let limits = &self.inner.settings.limits;
        let mut members: Vec<String> = Vec::new();
        let each = |page: Resource| {
            members.extend(page.links(&["Members"]));
            members.len()
        };
        self.pages(link, limits.pages, each).await?;
        Ok(members)
    }

    /// Reads at most `most` pages of a collection and calls `take` with each; `take` returns the number of members so far.
    pub(crate) async fn pages(
        &self,
        link: &str,
        most: usize,
        mut take: impl FnMut(Resource) -> usize + Send,
    ) -> Result<(), RedfishError> {
        let limits = &self.inner.settings.limits;
        let mut url = self.bmc().resolve(None, link)?;
        let mut visited: Vec<Url> = Vec::new();
        let (began, time) = (self.settings().environment.now(), self.settings().walk_timeout);
        loop {
            let endless = |limit, unit| RedfishError::EndlessCollection {
                at: self.inner.wire.transport.exchange(&Method::GET, &url),
                limit,
                unit,
            };
            if visited.len() >= most || visited.contains(&url) {
                return Err(endless(most, "pages"));
            }
            if self.settings().environment.now().saturating_sub(began) >= time {
                return Err(endless(time.as_secs() as usize, "seconds"));
            }
            let page = self.get_url(link, url.clone()).await?;
            let next = page
                .link(&["Members@odata.nextLink"])
                .or_else(|| page.link(&["@odata.nextLink"]));
            if take(page) > limits.members {
                return Err(endless(limits.members, "members"));
            }
            let Some(next) = next else { break };
            let next = self.bmc().resolve(Some(&url), &next)?;
            visited.push(std::mem::replace(&mut url, next));
        }
        Ok(())
    }

    /// Fetches several resources with as much concurrency as the BMC allows. Results are per resource, in the given order.
    pub async fn get_each(&self, links: &[String]) -> Vec<(String, Result<Resource, RedfishError>)> {
        self.fetch_each(links.to_vec()).collect().await
    }

    /// As [`get_each`](Self::get_each), one outcome after the other.
    pub(crate) fn fetch_each(
        &self,
        links: Vec<String>,
    ) -> impl Stream<Item = (String, Result<Resource, RedfishError>)> + Send + Unpin + '_ {
        let at_once = self.inner.wire.transport.gate().at_once();
        let fetches = links.into_iter().map(move |link| async move {
            let fetched = self.get(&link).await;
            (link, fetched)
        });
        Box::pin(futures::stream::iter(fetches).buffered(at_once))
    }

    /// The profile of this BMC's peculiarities, found by its own description.
    ///
    /// # Errors
    /// Those of [`system`](Self::system). An unreadable manager is left out.
    pub async fn profile(&self) -> Result<&Profile, RedfishError> {
        self.inner.profile.get_or_try_init(|| self.find_profile()).await
    }

    /// Like [`profile`](Self::profile), for callers that have read the system and its manager already.
    pub(crate) async fn profile_of(
        &self,
        system: &System,
        manager: Option<&Resource>,
    ) -> Result<&Profile, RedfishError> {
        let find = || self.profile_by(system, manager);
        self.inner.profile.get_or_try_init(find).await
    }

    /// Sends a PATCH and tries the `If-Match` values in turn while the BMC answers 412 or 428.
    pub(crate) async fn patch(&self, resource: &Resource, body: &Value) -> Result<Reply, RedfishError> {
        let order = &self.profile().await?.etag_order;
        self.patch_in(resource, body, order).await
    }

    /// Like [`patch`](Self::patch), with a given order, for a BMC that does not report its model.
    pub(crate) async fn patch_in(
        &self,
        resource: &Resource,
        body: &Value,
        order: &[EtagRung],
    ) -> Result<Reply, RedfishError> {
        let url = self.bmc().resolve(None, resource.path())?;
        let mut rungs = etag::ladder(order, resource.etag());
        let mut refreshed = false;
        let mut next = 0;
        loop {
            let if_match = rungs.get(next).and_then(Option::as_deref);
            let outgoing = Outgoing {
                method: Method::PATCH,
                url: url.clone(),
                body: Some(body),
                if_match,
            };
            let failure = match self.call(&outgoing, Repeat::Always).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            next += 1;
            if !matches!(failure.status(), Some(412 | 428)) {
                return Err(failure);
            }
            if !refreshed && resource.etag().is_some() {
                // The resource may have changed since its reading.
                refreshed = true;
                let fresh = self.get(resource.path()).await?;
                if fresh.etag() != resource.etag() {
                    rungs = etag::ladder(order, fresh.etag());
                    next = 0;
                }
            }
            if next >= rungs.len() {
                return Err(failure);
            }
        }
    }

    /// Sends a POST.
    pub(crate) async fn post(&self, link: &str, body: &Value, repeat: Repeat) -> Result<Reply, RedfishError> {
        let url = self.bmc().resolve(None, link)?;
        self.call(
            &Outgoing {
                method: Method::POST,
                url,
                body: Some(body),
                if_match: None,
            },
            repeat,
        )
        .await
    }

    /// How often this client has logged in.
    pub(crate) async fn logins(&self) -> u64 {
        self.inner.login.logins().await
    }

    /// Sends a POST without a body.
    pub(crate) async fn post_nothing(&self, link: &str, repeat: Repeat) -> Result<Reply, RedfishError> {
        let url = self.bmc().resolve(None, link)?;
        let outgoing = Outgoing {
            method: Method::POST,
            url,
            body: None,
            if_match: None,
        };
        self.call(&outgoing, repeat).await
    }

    /// Sends a file once. Only if the session is refused does it send the file again, with a new session.
    pub(crate) async fn upload(&self, upload: &Upload) -> Result<Reply, RedfishError> {
        let Inner { wire, login, .. } = &*self.inner;
        let credential = login.credential(wire).await?;
        self.note_change();
        let sent = match wire.upload(upload, &credential.proof).await {
            Err(failure) if session::is_refusal_of_proof(&failure) => {
                match login.renew(wire, credential.generation).await? {
                    Some(renewed) => wire.upload(upload, &renewed.proof).await,
                    None => Err(failure),
                }
            }
            sent => sent,
        };
        self.note_change();
        sent
    }

    /// Sends a GET and returns the whole answer.
    pub(crate) async fn get_reply(&self, url: Url) -> Result<Reply, RedfishError> {
        self.call(
            &Outgoing {
                method: Method::GET,
                url,
                body: None,
                if_match: None,
            },
            Repeat::Always,
        )
        .await
    }

    /// The client's settings.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The BMC's address, which turns links into URLs.
    pub fn bmc(&self) -> &BmcAddress {
        &self.inner.wire.transport.address
    }

    async fn enter(&self) -> Result<(), RedfishError> {
        let root = self.inner.root.get_or_try_init(|| self.read_root()).await?;
        let sessions = match (root.sessions(), root.session_service()) {
            (Some(link), _) => Some(self.bmc().resolve(None, &link)?),
            // Some roots link only the service, and some BMCs show the service only with credentials.
            (None, Some(service)) => match self.get_without_proof(&service).await {
                Ok(service) => service
                    .link(&["Sessions"])
                    .map(|link| self.bmc().resolve(None, &link))
                    .transpose()?,
                Err(failure) if matches!(failure.status(), Some(401 | 403)) => Some(self.standard_sessions()?),
                Err(failure) if failure.status().is_some() => None,
                Err(failure) => return Err(failure),
            },
            (None, None) => None,
        };
        self.inner.login.offer_sessions(sessions).await;
        self.inner.login.credential(&self.inner.wire).await.map(drop)
    }

    fn standard_sessions(&self) -> Result<Url, RedfishError> {
        self.bmc().resolve(None, &self.bmc().standard_sessions_path())
    }

    /// Reads the root: without credentials as the standard defines it, with credentials if the BMC requires
    /// them, with and without the trailing slash.
    async fn read_root(&self) -> Result<ServiceRoot, RedfishError> {
        let path = self.bmc().root_path();
        let root = match self.get_without_proof(&path).await {
            Err(failure) if failure.status() == Some(404) => self
                .get_without_proof(path.trim_end_matches('/'))
                .await
                .map_err(|_| failure),
            Err(failure) if matches!(failure.status(), Some(401 | 403)) => {
                self.inner.login.offer_sessions(Some(self.standard_sessions()?)).await;
                self.get(&path).await
            }
            other => other,
        };
        root.map(ServiceRoot::from)
    }

    pub(crate) async fn get_without_proof(&self, link: &str) -> Result<Resource, RedfishError> {
        let url = self.bmc().resolve(None, link)?;
        let outgoing = Outgoing {
            method: Method::GET,
            url,
            body: None,
            if_match: None,
        };
        let reply = self
            .inner
            .wire
            .repeat(&outgoing, &Proof::Nothing, Repeat::Always)
            .await?;
        self.resource(link, reply)
    }

    async fn get_url(&self, link: &str, url: Url) -> Result<Resource, RedfishError> {
        let reply = self.get_reply(url).await?;
        self.resource(link, reply)
    }

    fn resource(&self, link: &str, reply: Reply) -> Result<Resource, RedfishError> {
        match reply.body {
            Body::Json(body @ Value::Object(_)) => Ok(Resource::new(link, reply.etag, body).of_bytes(reply.bytes)),
            other => Err(RedfishError::NotJson {
                at: self.inner.wire.transport.exchange(&Method::GET, &reply.url),
                why: "expected a JSON object".to_owned(),
                beginning: match other {
                    Body::Json(value) => value.to_string().chars().take(60).collect(),
                    Body::Text(text) => text.chars().filter(|c| !c.is_control()).take(60).collect(),
                    Body::Empty => String::new(),
                },
            }),
        }
    }

    /// Sends one request with the client's login. A request that may change something invalidates earlier readings.
    pub(crate) async fn call(&self, outgoing: &Outgoing<'_>, repeat: Repeat) -> Result<Reply, RedfishError> {
        if outgoing.method == Method::GET {
            return self.ask(outgoing, repeat).await;
        }
        self.note_change();
        let answer = self.ask(outgoing, repeat).await;
        self.note_change();
        answer
    }

    /// Sends one request. A refused login is renewed once.
    async fn ask(&self, outgoing: &Outgoing<'_>, repeat: Repeat) -> Result<Reply, RedfishError> {
        let Inner { wire, login, .. } = &*self.inner;
        let mut attempts = Attempts::default();
        let mut credential = login.credential(wire).await?;
        let mut may_renew = true;
        loop {
            match wire.attempt(outgoing, &credential.proof).await {
                Ok(reply) => {
                    login.worked(&credential.proof);
                    return Ok(reply);
                }
                Err(failure) if session::is_refusal_of_proof(&failure) => {
                    let renewed = if may_renew {
                        login.renew(wire, credential.generation).await?
                    } else {
                        None
                    };
                    may_renew = false;
                    credential = match renewed {
                        Some(credential) => credential,
                        None => return Err(session::unauthorized(wire, outgoing, failure)),
                    };
                }
                Err(failure) => wire.pause_or_fail(repeat, &mut attempts, failure).await?,
            }
        }
    }

    /// Opens a WebSocket with the client's login. A refused login is renewed once.
    pub(crate) async fn open_web_socket(&self, url: Url) -> Result<Upgraded, RedfishError> {
        let Inner { wire, login, .. } = &*self.inner;
        let credential = login.credential(wire).await?;
        let mut answer = wire.web_socket(&url, &credential.proof).await;
        if answer.as_ref().is_err_and(session::is_refusal_of_proof)
            && let Some(renewed) = login.renew(wire, credential.generation).await?
        {
            answer = wire.web_socket(&url, &renewed.proof).await;
        }
        answer
    }

    /// Opens an event stream with the client's login. None: the answer is not an event stream.
    pub(crate) async fn open_stream(
        &self,
        url: Url,
        last_id: Option<&str>,
    ) -> Result<Option<(Box<Exchange>, Answer)>, RedfishError> {
        let Inner { wire, login, .. } = &*self.inner;
        let credential = login.credential(wire).await?;
        let at = wire.transport.exchange(&Method::GET, &url);
        match wire.transport.stream(&url, &credential.proof, last_id).await? {
            Opening::Opened(response) => Ok(Some((at, response))),
            // The BMC accepted the session for other resources, so a refusal here is final.
            Opening::Other(head) if head.status.is_success() || head.status.is_client_error() => Ok(None),
            Opening::Other(head) => Err(RedfishError::Status {
                at,
                status: head.status.as_u16(),
                detail: head.messages(),
                retry_after: head.retry_after,
            }),
        }
    }
}

impl Drop for Inner {
    /// A client dropped without `close` still deletes its session, if there is a runtime for the request.
    fn drop(&mut self) {
        if let (Some((outgoing, proof)), Ok(runtime)) =
            (self.login.session_to_delete(), tokio::runtime::Handle::try_current())
        {
            let wire = Arc::clone(&self.wire);
            runtime.spawn(async move {
                if let Err(failure) = wire.attempt(&outgoing, &proof).await {
                    tracing::debug!(%failure, "cannot delete a Redfish session; the session ends at its time-out");
                }
            });
        }
    }
}
