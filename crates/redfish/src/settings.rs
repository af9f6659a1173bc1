//! Settings that the caller chooses for a BMC and for the client.

use std::sync::Arc;
use std::time::Duration;

use rackwright_redfish_wire::environment::{Environment, SystemEnvironment};
use rackwright_redfish_wire::gate::Gates;
use rackwright_redfish_wire::settings::{Limits, RetryPolicy, TransportSettings};
use rackwright_redfish_wire::tls::CertificateFingerprint;
use secrecy::SecretString;

use crate::quirks::QuirkSet;

/// One BMC and its login.
#[derive(Debug, Clone)]
pub struct BmcTarget {
    /// `https://host:port/base` or a bare host; see [`BmcAddress::parse`](crate::BmcAddress::parse).
    pub address: String,
    /// User name.
    pub username: String,
    /// Password.
    pub password: SecretString,
    /// The pinned certificate. Without it the client trusts the first certificate, readable by
    /// [`observed_fingerprint`](crate::BmcClient::observed_fingerprint).
    pub certificate_sha256: Option<CertificateFingerprint>,
    /// Id or path of the system, for a BMC with several systems.
    pub system: Option<String>,
}

/// The client's behaviour. [`Default`] suits real BMCs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Limit for TCP and TLS together.
    pub connect_timeout: Duration,
    /// Limit for one request with its answer. Some BMCs need tens of seconds.
    pub request_timeout: Duration,
    /// Concurrent requests of a client without shared gates, if the profile has no value, clamped to 1..=4: a GB200 BMC
    /// allows at most four.
    pub max_concurrent: usize,
    /// The gates that all clients of a program share: clients of the same BMC share its limit of concurrent requests
    /// (two, or the profile's value) and pause together when the BMC does not answer. None for a single client.
    pub gates: Option<Arc<Gates>>,
    /// Limit for the body of an answer, from its head on. Each [`BODY_RATE`](crate::BODY_RATE) bytes that have arrived add
    /// a second.
    pub body_timeout: Duration,
    /// Longest time for an operation that reads many resources: an inventory, readings, a probe, a collection.
    pub walk_timeout: Duration,
    /// A walk ends when it has taken longer than `walk_grace` plus `walk_pace` for each requested resource. By default, with
    /// two requests at once, a BMC that takes 2.5 s for an answer is read to the end, however many resources it has. One
    /// that takes 4 s is given up within three minutes.
    pub walk_grace: Duration,
    /// See `walk_grace`.
    pub walk_pace: Duration,
    /// The policy for repeated requests.
    pub retry: RetryPolicy,
    /// Limits on a BMC's answers.
    pub limits: Limits,
    /// How long a written property may take to read back.
    pub read_back_timeout: Duration,
    /// First pause between two polls of a state.
    pub poll_first: Duration,
    /// Longest pause between two polls of a state.
    pub poll_cap: Duration,
    /// Profiles with the peculiarities of BMCs; none means the built-in ones.
    pub quirks: Option<Arc<QuirkSet>>,
    /// Clock and randomness.
    pub environment: Arc<dyn Environment>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            max_concurrent: 2,
            gates: None,
            body_timeout: Duration::from_secs(20),
            walk_timeout: Duration::from_secs(900),
            walk_grace: Duration::from_secs(60),
            walk_pace: Duration::from_millis(1250),
            retry: RetryPolicy::default(),
            limits: Limits::default(),
            read_back_timeout: Duration::from_secs(20),
            poll_first: Duration::from_millis(250),
            poll_cap: Duration::from_secs(5),
            quirks: None,
            environment: Arc::new(SystemEnvironment),
        }
    }
}

impl Settings {
    /// The settings of the transport.
    pub(crate) fn of_transport(&self) -> TransportSettings {
        TransportSettings {
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            body_timeout: self.body_timeout,
            max_concurrent: self.max_concurrent,
            gates: self.gates.clone(),
            limits: self.limits.clone(),
            environment: Arc::clone(&self.environment),
        }
    }
}
