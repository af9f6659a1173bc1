//! The arguments of `rackwright-bench fanout`.

use clap::{Args, ValueEnum};

/// `rackwright-bench fanout`
#[derive(Debug, Clone, Args)]
pub struct FanoutArgs {
    /// Number of agents
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub agents: u32,
    /// Number of racks
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub racks: u32,
    /// Chunks of the image, 4 MiB each
    #[arg(long, default_value_t = 256, value_name = "N")]
    pub chunks: u32,
    /// Noise in each chunk, in KiB; the rest are zeros. A frame is a little longer
    #[arg(long, default_value_t = 256, value_name = "KIB", value_parser = clap::value_parser!(u32).range(4..=4096))]
    pub noise: u32,
    /// Rate of every link of an agent and of the image server, each way, in Mbit/s
    #[arg(long, default_value_t = 4.0, value_name = "MBIT")]
    pub cap: f64,
    /// Chunks in the cases `unicast` and `cache`, which take very long with many
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub few_chunks: u32,
    /// Rate of the links in the cases `spread` and `spread-leave`, in Mbit/s
    #[arg(long, default_value_t = 40.0, value_name = "MBIT")]
    pub spread_cap: f64,
    /// Times in which the starts of these cases are spread, in multiples of the time of one agent
    #[arg(long, default_value_t = 20.0, value_name = "FACTOR")]
    pub spread_over: f64,
    /// Cases, in this order
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "together,uplink,killed,slow,spread,unicast,cache,bittorrent"
    )]
    pub cases: Vec<CaseArg>,
}

/// A case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CaseArg {
    /// All agents begin at once
    Together,
    /// The same, with leaf uplinks of a quarter of the sum of their agents' rates
    Uplink,
    /// 10 % of the agents are killed halfway
    Killed,
    /// 5 % of the agents have a quarter of the rate
    Slow,
    /// The starts are spread; agents serve for up to 60 s after their jobs
    Spread,
    /// The starts are spread; an agent ends after its job, as a machine that restarts
    SpreadLeave,
    /// All agents fetch all chunks from the image server
    Unicast,
    /// A caching proxy (nginx) in each rack
    Cache,
    /// libtorrent in place of the agents, with a file of the same length as all frames
    Bittorrent,
}
