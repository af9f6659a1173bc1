//! The client: one per BMC, cheap to clone, closed at the end.

mod find;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use http::Method;
use hyper::upgrade::Upgraded;
use serde_json::Value;
use tokio::sync::OnceCell;
use url::Url;

use crate::address::BmcAddress;
use crate::error::{Exchange, RedfishError};
use crate::etag::{self, EtagRung};
use crate::firmware::Upload;
use crate::quirks::Profile;
use crate::resource::Resource;
use crate::retry::{Attempts, Repeat};
use crate::sender::Answer;
use crate::session::{self, Login, LoginWay};
use crate::settings::{BmcTarget, Settings};
use crate::tls::{CertificateFingerprint, Pin};
use crate::transport::{Body, Outgoing, Proof, Reply, Transport};
use crate::views::{Manager, ServiceRoot, System};
use crate::wire::Wire;

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
    /// Ids of all systems, once they were listed.
    system_ids: OnceCell<Vec<String>>,
    profile: OnceCell<Profile>,
    lately: Mutex<Lately>,
}

/// How old what was read of a system may be where it only decides what to send: what is sent is read back.
const LATELY: Duration = Duration::from_secs(1);

/// The system as it was read last, forgotten with each request that may change it.
#[derive(Debug, Default)]
struct Lately {
    /// Requests that may change something, when they begin and when they end: what is read across one is not kept.
    changes: u64,
    read: Option<(Duration, Resource)>,
}

/// What a client has learned of a BMC that a later one need not ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shortcut {
    /// Path of the system.
    pub system: Option<String>,
    /// How it lets one in.
    pub login: LoginWay,
}

impl BmcClient {
    /// Reads the service root and logs in. Where the BMC offers no sessions, a wrong password shows only with the
    /// first resource that is read.
    ///
    /// # Errors
    /// Any: the address, the network, the certificate, the credentials, or an answer that is no Redfish.
    pub async fn connect(target: BmcTarget, settings: Settings) -> Result<Self, RedfishError> {
        let login = Login::new(target.username.clone(), target.password.clone());
        let client = Self::with_login(target, settings, login)?;
        client.enter().await?;
        Ok(client)
    }

    /// A client for whoever looks at a BMC now and then, which asks nothing before it is asked. Where that is known to work,
    /// name and password go with each request, which spares the BMC a session for each look; else a session is opened,
    /// which [`close`](Self::close) ends. A wrong password is sent once. `known` is what an earlier client of the same BMC
    /// has learned.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn sparing(target: BmcTarget, settings: Settings, known: &Shortcut) -> Result<Self, RedfishError> {
        let address = BmcAddress::parse(&target.address)?;
        let sessions = address.resolve(None, &address.standard_sessions_path())?;
        let login = Login::sparing(target.username.clone(), target.password.clone(), sessions, known.login);
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

    /// What the next client of this BMC need not find out again.
    pub async fn shortcut(&self) -> Shortcut {
        Shortcut {
            system: self.inner.system_path.get().cloned(),
            login: self.inner.login.way().await,
        }
    }

    /// The certificate that a BMC shows; none over plain HTTP. Nothing but its root is asked for, without credentials.
    ///
    /// # Errors
    /// The address and the network's.
    pub async fn certificate_of(
        address: &str,
        settings: Settings,
    ) -> Result<Option<CertificateFingerprint>, RedfishError> {
        let client = Self::nobody(address, settings)?;
        match client.get_without_proof(&client.bmc().root_path()).await {
            Ok(_) => {}
            // Whatever it answers, it has shown its certificate.
            Err(_) if client.observed_fingerprint().is_some() => {}
            Err(failure) => return Err(failure),
        }
        Ok(client.observed_fingerprint())
    }

    /// A client of nobody's, which has no credentials to send.
    pub(crate) fn nobody(address: &str, settings: Settings) -> Result<Self, RedfishError> {
        let target = BmcTarget {
            address: address.to_owned(),
            username: String::new(),
            password: String::new().into(),
            certificate_sha256: None,
            system: None,
        };
        Self::with_login(target, settings, Login::new(String::new(), String::new().into()))
    }

    /// The root as everybody may read it.
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
            transport: Transport::new(address, pin, &settings)?,
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
                lately: Mutex::default(),
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

    /// Closes the connections and keeps the session and what is known of the BMC: little enough to wait for whoever asks next.
    pub fn rest(&self) {
        self.lately().read = None;
        self.inner.wire.transport.rest();
    }

    /// Deletes the session. Every later call fails with [`RedfishError::Closed`].
    ///
    /// # Errors
    /// When the BMC could not be told; the session then ends by its own time-out.
    pub async fn close(&self) -> Result<(), RedfishError> {
        self.inner.login.close(&self.inner.wire).await
    }

    /// The service root, as it was read first.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub async fn service_root(&self) -> Result<ServiceRoot, RedfishError> {
        self.inner.root.get_or_try_init(|| self.read_root()).await.cloned()
    }

    /// Fetches the system that was named, or the only one there is.
    ///
    /// # Errors
    /// [`RedfishError::SeveralSystems`] or [`RedfishError::NoSuchSystem`] list what there is.
    pub async fn system(&self) -> Result<System, RedfishError> {
        let path = self.inner.system_path.get_or_try_init(|| self.find_system()).await?;
        self.get(path).await.map(System::from)
    }

    /// The system as it was read a moment ago by this client, if nothing was sent since, and else as it reads now: enough to
    /// choose what to send. Where it says that nothing is to be sent (`is_settled`), it is read in any case.
    pub(crate) async fn system_to_change(
        &self,
        is_settled: impl FnOnce(&System) -> bool,
    ) -> Result<System, RedfishError> {
        let now = self.settings().environment.now();
        let read = self.lately().read.clone();
        let read = read.filter(|(at, _)| now.saturating_sub(*at) <= LATELY);
        match read.map(|(_, resource)| System::from(resource)) {
            Some(system) if !is_settled(&system) => Ok(system),
            _ => self.system().await,
        }
    }

    fn lately(&self) -> MutexGuard<'_, Lately> {
        self.inner.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that may change something begins or has ended.
    fn note_change(&self) {
        let mut lately = self.lately();
        lately.changes += 1;
        lately.read = None;
    }

    /// Fetches the manager of the system: the one that it names, or the only one there is.
    ///
    /// # Errors
    /// [`RedfishError::MissingProperty`] where neither names one.
    pub async fn manager(&self) -> Result<Manager, RedfishError> {
        let system = self.system().await?;
        let managers = self.manager_links(&system).await?;
        let Some(first) = managers.first() else {
            return Err(RedfishError::MissingProperty {
                bmc: self.address(),
                path: system.path().to_owned(),
                property: "Links.ManagedBy",
                consequence: "its manager is not known",
            });
        };
        self.get(first).await.map(Manager::from)
    }

    /// Fetches one resource by a link from another.
    ///
    /// # Errors
    /// The network's, the BMC's, or [`RedfishError::NotJson`].
    pub async fn get(&self, link: &str) -> Result<Resource, RedfishError> {
        let url = self.bmc().resolve(None, link)?;
        let changes = self.lately().changes;
        let resource = self.get_url(link, url).await?;
        if self.inner.system_path.get().is_some_and(|path| path == link) {
            let mut lately = self.lately();
            if lately.changes == changes {
                lately.read = Some((self.settings().environment.now(), resource.clone()));
            }
        }
        Ok(resource)
    }

    /// The links of all members of a collection, over all its pages; bogus members are left out.
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

    /// Reads the pages of a collection, at most so many, and has each taken; `take` answers how many members there are so far.
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

    /// Fetches several resources, as many at once as the BMC bears; each with its own outcome, in the given order.
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

    /// What this BMC needs done differently, found by its own description of itself.
    ///
    /// # Errors
    /// Those of [`system`](Self::system); a manager that cannot be read is left out.
    pub async fn profile(&self) -> Result<&Profile, RedfishError> {
        self.inner.profile.get_or_try_init(|| self.find_profile()).await
    }

    /// The same for whoever has read the system and its manager anyway.
    pub(crate) async fn profile_of(
        &self,
        system: &System,
        manager: Option<&Resource>,
    ) -> Result<&Profile, RedfishError> {
        let find = || self.profile_by(system, manager);
        self.inner.profile.get_or_try_init(find).await
    }

    /// Sends a PATCH, trying one `If-Match` after the other while the BMC answers 412 or 428.
    pub(crate) async fn patch(&self, resource: &Resource, body: &Value) -> Result<Reply, RedfishError> {
        let order = &self.profile().await?.etag_order;
        self.patch_in(resource, body, order).await
    }

    /// The same in a given order, for who cannot ask the BMC what it is.
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
                // Perhaps the resource has changed since it was read.
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

    /// Sends a file, once; only where the proof was refused is it sent again, with a new one.
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

    /// Sends a GET and gives the whole answer.
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

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The BMC's address, which turns links into URLs.
    pub(crate) fn bmc(&self) -> &BmcAddress {
        &self.inner.wire.transport.address
    }

    async fn enter(&self) -> Result<(), RedfishError> {
        let root = self.inner.root.get_or_try_init(|| self.read_root()).await?;
        let sessions = match (root.sessions(), root.session_service()) {
            (Some(link), _) => Some(self.bmc().resolve(None, &link)?),
            // Some roots link only the service, which some BMCs show to nobody without credentials.
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

    /// Reads the root: openly as the standard has it, with credentials where the BMC insists, with and without
    /// the trailing slash.
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
                why: "a JSON object must stand here".to_owned(),
                beginning: match other {
                    Body::Json(value) => value.to_string().chars().take(60).collect(),
                    Body::Text(text) => text.chars().filter(|c| !c.is_control()).take(60).collect(),
                    Body::Empty => String::new(),
                },
            }),
        }
    }

    /// One request as whoever is logged in; after one that may change something, nothing of before is believed.
    pub(crate) async fn call(&self, outgoing: &Outgoing<'_>, repeat: Repeat) -> Result<Reply, RedfishError> {
        if outgoing.method == Method::GET {
            return self.ask(outgoing, repeat).await;
        }
        self.note_change();
        let answer = self.ask(outgoing, repeat).await;
        self.note_change();
        answer
    }

    /// One request; a refused proof is renewed once.
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

    /// Asks for a WebSocket as whoever is logged in; a refused proof is renewed once.
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

    /// Asks for a stream of events as whoever is logged in. None where what comes is none.
    pub(crate) async fn open_stream(
        &self,
        url: Url,
        last_id: Option<&str>,
    ) -> Result<Option<(Box<Exchange>, Answer)>, RedfishError> {
        let Inner { wire, login, .. } = &*self.inner;
        let credential = login.credential(wire).await?;
        let at = wire.transport.exchange(&Method::GET, &url);
        match wire.transport.stream(&url, &credential.proof, last_id).await? {
            Ok(response) => Ok(Some((at, response))),
            // It was asked for other resources before: what it refuses here it refuses for good.
            Err(head) if head.status.is_success() || head.status.is_client_error() => Ok(None),
            Err(head) => Err(RedfishError::Status {
                at,
                status: head.status.as_u16(),
                detail: head.messages(),
                retry_after: head.retry_after,
            }),
        }
    }
}

impl Drop for Inner {
    /// A client that nobody closed still gives its session back, if there is a runtime to do it in.
    fn drop(&mut self) {
        if let (Some((outgoing, proof)), Ok(runtime)) = (self.login.left_over(), tokio::runtime::Handle::try_current())
        {
            let wire = Arc::clone(&self.wire);
            runtime.spawn(async move {
                if let Err(failure) = wire.attempt(&outgoing, &proof).await {
                    tracing::debug!(%failure, "a Redfish session was left to its time-out");
                }
            });
        }
    }
}
