//! The printed results, each as one line of JSON.

use serde::Serialize;

/// The first line of a server that listens.
#[derive(Debug, Serialize)]
pub struct Ready {
    pub port: u16,
    /// Its process id.
    pub pid: u32,
    /// Adapters through which this machine can be reached, beside its address.
    pub lanes: Vec<Lane>,
}

/// A fabric adapter with an address of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lane {
    /// `mlx5_0`; `mlx5_0:2` for a port other than the first.
    pub name: String,
    /// GUID of the port, as `0x...`.
    pub guid: String,
    /// Its link-local address; none: usable only by RDMA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::Ipv6Addr>,
    /// Its network interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// The result of a measurement.
#[derive(Debug, Serialize)]
pub struct Report {
    /// In the order of the command line.
    pub lanes: Vec<Measured>,
}

/// The transport of the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP connections.
    #[default]
    Tcp,
    /// RDMA writes of queue pairs.
    Rdma,
}

/// The result of one lane.
#[derive(Debug, Default, Serialize)]
pub struct Measured {
    /// Name of the lane.
    pub lane: String,
    /// The transport used.
    pub transport: Transport,
    /// Why RDMA was not used, where the order named an adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_rdma: Option<String>,
    /// Why the measurement failed.
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

/// The received bytes of one direction, over all streams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// Number of bytes.
    pub bytes: u64,
    /// Time of the slowest stream.
    pub seconds: f64,
    /// Rate in 10^9 bits a second.
    pub gbit_per_s: f64,
    /// TCP retransmissions; 0 by RDMA, where the adapter retransmits and does not report it.
    pub retransmits: u64,
}

/// Round-trip times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoundTrip {
    /// Half of the round trips take at most this time.
    pub p50_us: f64,
    /// 99 % of the round trips take at most this time.
    pub p99_us: f64,
}
