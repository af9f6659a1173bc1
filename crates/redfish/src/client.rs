//! The client: one per BMC, cheap to clone, closed at the end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use http::Method;
use reqwest::Response;
use serde_json::Value;
use tokio::sync::OnceCell;
use url::Url;

use crate::address::{self, BmcAddress};
use crate::error::{Exchange, RedfishError};
use crate::etag;
use crate::quirks::{self, Evidence, Profile};
use crate::resource::Resource;
use crate::retry::{Attempts, Repeat};
use crate::session::{self, Login};
use crate::settings::{BmcTarget, Settings};
use crate::tls::{CertificateFingerprint, PinVerifier};
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
    /// It refuses name and password outside of a session.
    pub needs_session: bool,
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

    /// A client for whoever looks at a BMC now and then, which asks nothing before it is asked. Name and password go with
    /// each request, which spares the BMC a session for each look; only where it refuses that is a session opened, which
    /// [`close`](Self::close) ends. `known` is what an earlier client of the same BMC has learned.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn sparing(target: BmcTarget, settings: Settings, known: &Shortcut) -> Result<Self, RedfishError> {
        let address = BmcAddress::parse(&target.address)?;
        let sessions = address.resolve(None, &address.standard_sessions_path())?;
        let login = Login::sparing(
            target.username.clone(),
            target.password.clone(),
            sessions,
            known.needs_session,
        );
        let mut client = Self::with_login(target, settings, login)?;
        if let (Some(path), Some(inner)) = (&known.system, Arc::get_mut(&mut client.inner)) {
            inner.system_path = OnceCell::new_with(Some(path.clone()));
        }
        Ok(client)
    }

    /// What the next client of this BMC need not find out again.
    pub async fn shortcut(&self) -> Shortcut {
        Shortcut {
            system: self.inner.system_path.get().cloned(),
            needs_session: self.inner.login.has_session().await,
        }
    }

    fn with_login(target: BmcTarget, settings: Settings, login: Login) -> Result<Self, RedfishError> {
        let address = BmcAddress::parse(&target.address)?;
        let pin = PinVerifier::new(target.certificate_sha256);
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
        let mut url = self.bmc().resolve(None, link)?;
        let mut visited: Vec<Url> = Vec::new();
        let mut members: Vec<String> = Vec::new();
        loop {
            let endless = |limit, unit| RedfishError::EndlessCollection {
                at: self.inner.wire.transport.exchange(&Method::GET, &url),
                limit,
                unit,
            };
            if visited.len() >= limits.pages || visited.contains(&url) {
                return Err(endless(limits.pages, "pages"));
            }
            let page = self.get_url(link, url.clone()).await?;
            members.extend(page.links(&["Members"]));
            if members.len() > limits.members {
                return Err(endless(limits.members, "members"));
            }
            let next = page
                .link(&["Members@odata.nextLink"])
                .or_else(|| page.link(&["@odata.nextLink"]));
            let Some(next) = next else { break };
            let next = self.bmc().resolve(Some(&url), &next)?;
            visited.push(std::mem::replace(&mut url, next));
        }
        Ok(members)
    }

    /// Fetches several resources, as many at once as the BMC bears; each with its own outcome, in the given order.
    pub async fn get_each(&self, links: &[String]) -> Vec<(String, Result<Resource, RedfishError>)> {
        let at_once = self.inner.settings.max_concurrent.clamp(1, 4);
        // Owned links: a closure over borrowed ones would make every caller's future one that cannot be spawned.
        let links: Vec<String> = links.to_vec();
        let fetches = links.into_iter().map(|link| async move {
            let fetched = self.get(&link).await;
            (link, fetched)
        });
        futures::stream::iter(fetches).buffered(at_once).collect().await
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

    async fn get_without_proof(&self, link: &str) -> Result<Resource, RedfishError> {
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
            Body::Json(body @ Value::Object(_)) => Ok(Resource::new(link, reply.etag, body)),
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
    async fn call(&self, outgoing: &Outgoing<'_>, repeat: Repeat) -> Result<Reply, RedfishError> {
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
                Ok(reply) => return Ok(reply),
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

    /// Asks for a stream of events as whoever is logged in. None where what comes is none.
    pub(crate) async fn open_stream(
        &self,
        url: Url,
        last_id: Option<&str>,
    ) -> Result<Option<(Box<Exchange>, Response)>, RedfishError> {
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

    async fn find_system(&self) -> Result<String, RedfishError> {
        let root = self.service_root().await?;
        let Some(systems) = root.systems() else {
            return Err(RedfishError::MissingProperty {
                bmc: self.address(),
                path: root.path().to_owned(),
                property: "Systems",
                consequence: "there is no machine to work with",
            });
        };
        let mut members = self.member_links(&systems).await?;
        let ids = || {
            members
                .iter()
                .map(|link| address::last_segment(link).to_owned())
                .collect::<Vec<_>>()
        };
        let Some(wanted) = &self.inner.wanted_system else {
            return match members.len() {
                1 => Ok(members.remove(0)),
                0 => Err(RedfishError::NoSuchSystem {
                    bmc: self.address(),
                    wanted: String::new(),
                    members: ids(),
                }),
                _ => Err(RedfishError::SeveralSystems {
                    bmc: self.address(),
                    members: ids(),
                }),
            };
        };
        let is_wanted =
            |link: &&String| address::same_resource(link, wanted) || address::last_segment(link) == wanted.as_str();
        members
            .iter()
            .find(is_wanted)
            .cloned()
            .ok_or_else(|| RedfishError::NoSuchSystem {
                bmc: self.address(),
                wanted: wanted.clone(),
                members: ids(),
            })
    }

    pub(crate) async fn manager_links(&self, system: &System) -> Result<Vec<String>, RedfishError> {
        let named = system.managed_by();
        if !named.is_empty() {
            return Ok(named);
        }
        // Only where there is no doubt which one it is.
        match self.service_root().await?.managers() {
            Some(collection) => {
                let members = self.member_links(&collection).await?;
                Ok(if members.len() == 1 { members } else { Vec::new() })
            }
            None => Ok(Vec::new()),
        }
    }

    /// The system's manager: its link where there is one, and the resource unless just that cannot be read.
    pub(crate) async fn manager_of(&self, system: &System) -> Result<(Option<String>, Option<Resource>), RedfishError> {
        let Some(link) = self.manager_links(system).await?.into_iter().next() else {
            return Ok((None, None));
        };
        match self.get(&link).await {
            Ok(manager) => Ok((Some(link), Some(manager))),
            Err(failure) if failure.ends_a_walk() => Err(failure),
            Err(_) => Ok((Some(link), None)),
        }
    }

    async fn find_profile(&self) -> Result<Profile, RedfishError> {
        let system = self.system().await?;
        let (_, manager) = self.manager_of(&system).await?;
        self.profile_by(&system, manager.as_ref()).await
    }

    async fn profile_by(&self, system: &System, manager: Option<&Resource>) -> Result<Profile, RedfishError> {
        let root = self.service_root().await?;
        let evidence = Evidence::gather(root.resource(), Some(system.resource()), manager);
        let profile = quirks::profile_for(&evidence)?;
        tracing::debug!(bmc = %self.bmc(), profiles = ?profile.names, "redfish profile");
        Ok(profile)
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
