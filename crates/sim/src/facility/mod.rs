//! A simulated rack PDU and a simulated coolant distribution unit, each behind Redfish over HTTPS, with switches for faults:
//! a tripped breaker, a lost feed, a leak, hot water.
//!
//! Written from DMTF's schemas (DSP8010) and from OCP's rack PDU and cooling unit profiles, not from the client.

mod documents;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use rackwright_sim_bmc::{BmcError, Identity, same};

/// The account of every simulated PDU and cooling unit.
pub const USER: &str = "facility";
pub const PASSWORD: &str = "facility-password";

/// The configuration and state of a rack PDU.
#[derive(Debug, Clone, PartialEq)]
pub struct Pdu {
    /// Outlets, evenly on two branches.
    pub outlets: u32,
    /// Power of each outlet, in watts.
    pub outlet_watts: f64,
    /// The second branch's breaker has tripped.
    pub is_tripped: bool,
    /// There is no voltage at its mains.
    pub is_dead: bool,
}

impl Default for Pdu {
    fn default() -> Self {
        Self {
            outlets: 8,
            outlet_watts: 250.0,
            is_tripped: false,
            is_dead: false,
        }
    }
}

/// The state of a coolant distribution unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Cdu {
    /// Supply temperature, in °C.
    pub supply_celsius: f64,
    /// Flow, in litres a minute.
    pub flow_lpm: f64,
    /// Its tray is wet.
    pub is_leaking: bool,
    /// Its leak detector reports no state.
    pub is_leak_unknown: bool,
}

impl Default for Cdu {
    fn default() -> Self {
        Self {
            supply_celsius: 30.0,
            flow_lpm: 120.0,
            is_leaking: false,
            is_leak_unknown: false,
        }
    }
}

/// The simulated device.
#[derive(Debug, Clone, PartialEq)]
enum Device {
    Pdu(Pdu),
    Cdu(Cdu),
}

type Shared = Arc<Mutex<Device>>;

/// A running service. Dropping it stops it.
pub struct Equipment {
    device: Shared,
    address: SocketAddr,
    fingerprint: String,
    task: JoinHandle<()>,
}

impl Drop for Equipment {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Equipment {
    /// Starts a rack PDU on a free port of the loopback interface.
    ///
    /// # Errors
    /// The certificate could not be made, or no port could be opened.
    pub async fn pdu(pdu: Pdu) -> Result<Self, BmcError> {
        Self::start("pdu", Device::Pdu(pdu)).await
    }

    /// Starts a coolant distribution unit.
    ///
    /// # Errors
    /// As [`Equipment::pdu`].
    pub async fn cdu(cdu: Cdu) -> Result<Self, BmcError> {
        Self::start("cdu", Device::Cdu(cdu)).await
    }

    async fn start(name: &str, device: Device) -> Result<Self, BmcError> {
        let failed = |detail: String| BmcError::Tls {
            machine: name.to_owned(),
            detail,
        };
        let identity = Identity::new(name, Ipv4Addr::LOCALHOST)?;
        let fingerprint = identity.fingerprint.clone();
        let acceptor = identity.acceptor(name)?;
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(|e| failed(format!("cannot listen: {e}")))?;
        let address = listener.local_addr().map_err(|e| failed(e.to_string()))?;
        let device = Arc::new(Mutex::new(device));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&device));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                        let (acceptor, router) = (acceptor.clone(), router.clone());
                        connections.spawn(async move {
                            let Ok(stream) = acceptor.accept(stream).await else { return };
                            let service = hyper_util::service::TowerToHyperService::new(router);
                            let io = hyper_util::rt::TokioIo::new(stream);
                            let served = hyper::server::conn::http1::Builder::new().serve_connection(io, service);
                            if let Err(error) = served.await {
                                tracing::debug!(%error, "a connection ended");
                            }
                        });
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            device,
            address,
            fingerprint,
            task,
        })
    }

    /// The service's URL.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Its certificate, as `sha256:` and hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Changes the state of a PDU; does nothing for other devices.
    pub fn change_pdu(&self, change: impl FnOnce(&mut Pdu)) {
        if let Device::Pdu(pdu) = &mut *lock(&self.device) {
            change(pdu);
        }
    }

    /// Changes the state of a cooling unit; does nothing for other devices.
    pub fn change_cdu(&self, change: impl FnOnce(&mut Cdu)) {
        if let Device::Cdu(cdu) = &mut *lock(&self.device) {
            change(cdu);
        }
    }
}

fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(device): State<Shared>, request: Request) -> Response {
    let path = request.uri().path().trim_end_matches('/').to_owned();
    if path != "/redfish/v1" && !is_known(&request) {
        return (
            StatusCode::UNAUTHORIZED,
            Json(json!({"error": {"message": "who are you?"}})),
        )
            .into_response();
    }
    if request.method() != axum::http::Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let body = match &*lock(&device) {
        Device::Pdu(pdu) => documents::of_pdu(pdu, &path),
        Device::Cdu(cdu) => documents::of_cdu(cdu, &path),
    };
    match body {
        Some(body) => Json(body).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Only Basic authentication: there are no sessions.
fn is_known(request: &Request) -> bool {
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let wanted = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
    given.is_some_and(|given| same(given, &wanted))
}
