//! What is printed: one line of JSON each.

use serde::Serialize;

/// A server listens.
#[derive(Debug, Serialize)]
pub struct Ready {
    /// Where.
    pub port: u16,
    /// Its process.
    pub pid: u32,
    /// Adapters of this machine by which it can be reached, beside its address.
    pub lanes: Vec<Lane>,
}

/// An adapter of a fabric with an address of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lane {
    /// `mlx5_0`; `mlx5_0:2` for another port than the first.
    pub name: String,
    /// GUID of the port, as `0x...`.
    pub guid: String,
    /// Its link-local address; none: it can be used by RDMA only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::Ipv6Addr>,
    /// Its network interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// In the order of the command line.
    pub lanes: Vec<Measured>,
}

/// What carried the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Connections.
    #[default]
    Tcp,
    /// Writes of queue pairs.
    Rdma,
}

/// Of one lane.
#[derive(Debug, Default, Serialize)]
pub struct Measured {
    /// Its name.
    pub lane: String,
    /// How.
    pub transport: Transport,
    /// Why it was not by RDMA, where an adapter was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_rdma: Option<String>,
    /// Why it could not be measured to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// From here to the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Rate>,
    /// From the server to here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<Rate>,
    /// A byte there and back, by the same transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<RoundTrip>,
}

/// Of one direction, all streams together: what has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// Bytes.
    pub bytes: u64,
    /// Of the stream that took longest.
    pub seconds: f64,
    /// 10^9 bits a second.
    pub gbit_per_s: f64,
    /// TCP segments that were sent again; 0 by RDMA, where the adapter does that and does not tell.
    pub retransmits: u64,
}

/// Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoundTrip {
    /// Half of them are quicker.
    pub p50_us: f64,
    /// 99 of 100 are.
    pub p99_us: f64,
}
