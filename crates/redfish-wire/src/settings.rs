//! The parts of a client's settings that concern the conversation with a BMC.

use std::sync::Arc;
use std::time::Duration;

use crate::environment::Environment;
use crate::gate::Gates;

/// When and how often a request is repeated. Pauses double and are spread by ±50 %.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Repeats after a broken connection, a time-out or a 5xx.
    pub retries: u32,
    /// First pause.
    pub first: Duration,
    /// Longest pause.
    pub cap: Duration,
    /// Repeats when the BMC reports that it is busy (SYS518, POST under way, …).
    pub busy_retries: u32,
    /// First pause of a busy BMC; sushy's experience with iLO and iDRAC is 5 to 30 s.
    pub busy_first: Duration,
    /// Longest pause of a busy BMC.
    pub busy_cap: Duration,
    /// Longest `Retry-After` that is honoured in full.
    pub retry_after_cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 3,
            first: Duration::from_millis(500),
            cap: Duration::from_secs(8),
            busy_retries: 6,
            busy_first: Duration::from_secs(5),
            busy_cap: Duration::from_secs(30),
            retry_after_cap: Duration::from_secs(60),
        }
    }
}

/// Limits on a BMC's answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest answer, in bytes.
    pub body_bytes: usize,
    /// Deepest nesting of an answer. Must stay below serde_json's own 128.
    pub depth: usize,
    /// Most values in an answer.
    pub values: usize,
    /// Most pages of a collection.
    pub pages: usize,
    /// Most members of a collection.
    pub members: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 8 << 20,
            depth: 64,
            values: 500_000,
            pages: 128,
            members: 4096,
        }
    }
}

/// Bytes of a body that extend [`TransportSettings::body_timeout`] by a second.
pub const BODY_RATE: usize = 16 << 10;

/// Settings of the transport to one BMC.
#[derive(Debug, Clone)]
pub struct TransportSettings {
    /// Limit for TCP and TLS together.
    pub connect_timeout: Duration,
    /// Limit for one request with its answer.
    pub request_timeout: Duration,
    /// Limit for the body of an answer, from its head on. Each [`BODY_RATE`] bytes that have arrived add a second.
    pub body_timeout: Duration,
    /// Concurrent requests without shared gates, clamped to 1..=4.
    pub max_concurrent: usize,
    /// The gates that all clients of a program share. None for a single client.
    pub gates: Option<Arc<Gates>>,
    /// Limits on a BMC's answers.
    pub limits: Limits,
    /// Clock and randomness.
    pub environment: Arc<dyn Environment>,
}
