//! `rackwright-bench fanout`: real agents in network namespaces take an image, and serve each other.
//!
//! | module | content |
//! |---|---|
//! | `network` | namespaces, bridges, shaped links, byte counters |
//! | `image`, `drive` | the image, and the comparison of drives with it |
//! | `keys`, `plane`, `origin` | keys, control plane and image server of a site |
//! | `agent`, `process` | the process of an agent, from inside and from outside |
//! | `other_programs` | nginx and libtorrent |
//! | `case`, `report` | one case, and its line |
//!
//! The program runs itself again in namespaces of its own: nothing in them outlives it, and no link of this computer is
//! touched.

pub mod agent;
pub mod args;
mod case;
mod drive;
mod image;
mod keys;
mod network;
mod origin;
mod other_programs;
mod plane;
mod process;
mod report;

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use tempfile::TempDir;
use tokio::process::Command;

use args::{CaseArg, FanoutArgs};
use case::{Case, Stage, Way};
use image::{Content, Image};
use keys::SiteKeys;
use network::Layout;
use report::{Aims, Alone, CaseReport, LinkReport, NotAvailable};

use crate::fleet::print;

/// Set in the inner process: its folder.
const INSIDE: &str = "RACKWRIGHT_BENCH_FANOUT";
/// Room in memory for drives, stores and programs.
const MEMORY: &str = "size=80%";
/// Least part of a link's rate that one TCP stream must reach.
const STREAM_AIM: f64 = 0.95;
/// The time of a job at least, and as a multiple of the time that all its bytes take on one link.
const LEAST_LIMIT: Duration = Duration::from_secs(120);
const LIMIT_FACTOR: f64 = 6.0;

/// Runs all cases.
pub async fn run(cx: &Cx, args: FanoutArgs) -> Result<(), CliError> {
    if args.agents == 0 || args.racks == 0 || args.chunks == 0 || args.agents > 2000 || args.racks > 200 {
        let message = "--agents takes 1 to 2000, --racks 1 to 200, --chunks 1 or more";
        return Err(CliError::usage(message, ""));
    }
    match env::var_os(INSIDE) {
        None => enter().await,
        Some(folder) => {
            let benched = Bench::new(cx, args, folder.into()).map_err(failed)?;
            benched.run().await
        }
    }
}

fn failed(error: io::Error) -> CliError {
    CliError::io("measure the fan-out", error)
}

/// Runs the program again in its own namespaces.
async fn enter() -> Result<(), CliError> {
    let folder = TempDir::with_prefix("rackwright-bench-").map_err(failed)?;
    let program = env::current_exe().map_err(failed)?;
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let mut command = Command::new("unshare");
    command.args([
        "--map-root-user",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
    ]);
    command
        .arg(program)
        .args(arguments)
        .env(INSIDE, folder.path())
        .kill_on_drop(true);
    let missing =
        |error: io::Error| io::Error::new(error.kind(), format!("unshare (Debian package util-linux): {error}"));
    let status = command.status().await.map_err(missing).map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(CliError::Missed {
        what: format!("the benchmark failed in its namespaces ({status})"),
        hint: "see the message above".to_owned(),
    })
}

/// A run of several cases.
struct Bench<'a> {
    cx: &'a Cx,
    args: FanoutArgs,
    stage: Stage,
    images: Vec<Arc<Image>>,
    /// The time of one agent without others, by content and rate.
    alone: Vec<(Content, u64, Alone)>,
}

fn bits(mbit: f64) -> u64 {
    (mbit * 1e6) as u64
}

/// Every N-th number, with the same distance to both ends, so that about `percent` of all are taken, and one at least.
fn some_of(all: u32, percent: u32) -> Vec<u32> {
    let taken = (all * percent).div_ceil(100).max(1);
    (0..taken).map(|number| (2 * number + 1) * all / (2 * taken)).collect()
}

impl<'a> Bench<'a> {
    fn new(cx: &'a Cx, args: FanoutArgs, folder: PathBuf) -> io::Result<Self> {
        mount(&folder)?;
        let stage = Stage {
            folder,
            program: env::current_exe()?,
            keys: SiteKeys::new()?,
        };
        Ok(Self {
            cx,
            args,
            stage,
            images: Vec::new(),
            alone: Vec::new(),
        })
    }

    async fn run(mut self) -> Result<(), CliError> {
        self.link().await.map_err(failed)?;
        for case in self.args.cases.clone() {
            let failed = |error| CliError::io(format!("measure the case {case:?}"), error);
            if case == CaseArg::Bittorrent && !other_programs::has_torrent().await {
                let why = "not available: Debian package python3-libtorrent";
                self.print(&NotAvailable::new("bittorrent", why))?;
                continue;
            }
            let (case, aims) = self.case(case).map_err(failed)?;
            let alone = self.alone(&case).await.map_err(failed)?;
            // The time of one agent decides about the starts and the deaths.
            let case = Case {
                starts_over: case.starts_over.mul_f64(alone.seconds),
                killed_at: Duration::from_secs_f64(alone.seconds / 2.0),
                ..case
            };
            let outcome = case.run(&self.stage).await.map_err(failed)?;
            self.print(&CaseReport::new(&case, &outcome, &alone, aims))?;
        }
        Ok(())
    }

    fn print(&self, report: &impl serde::Serialize) -> Result<(), CliError> {
        print(self.cx, report)
    }

    /// Proves that a stream reaches the rate of its links.
    async fn link(&self) -> io::Result<()> {
        let layout = self.layout(1, 1);
        // As many bytes as pass in 8 s.
        let rate = case::stream_rate(&layout, layout.cap).await?;
        let report = LinkReport::new(layout.cap, rate, STREAM_AIM);
        self.print(&report).map_err(io::Error::other)
    }

    fn layout(&self, agents: u32, racks: u32) -> Layout {
        Layout {
            racks,
            agents,
            cap: bits(self.args.cap),
            uplink: None,
            slow: Vec::new(),
            has_caches: false,
        }
    }

    fn image(&mut self, chunks: u32) -> io::Result<Arc<Image>> {
        let content = Content {
            chunks,
            noise: self.args.noise << 10,
        };
        if let Some(image) = self.images.iter().find(|image| image.content == content) {
            return Ok(image.clone());
        }
        let image = Image::new(&self.stage.folder.join(format!("image-{chunks}")), content)?;
        self.images.push(image.clone());
        Ok(image)
    }

    /// A case and its aims. Its starts are in multiples of the time of one agent.
    fn case(&mut self, case: CaseArg) -> io::Result<(Case, Aims)> {
        let FanoutArgs {
            agents,
            racks,
            chunks,
            few_chunks,
            ..
        } = self.args;
        let chunks = match case {
            CaseArg::Unicast | CaseArg::Cache => few_chunks.min(chunks),
            _ => chunks,
        };
        let mut made = Case {
            name: "together",
            way: Way::Agents,
            layout: self.layout(agents, racks),
            image: self.image(chunks)?,
            starts_over: Duration::ZERO,
            killed: Vec::new(),
            killed_at: Duration::ZERO,
            leaves: false,
            limit: Duration::ZERO,
        };
        let aims = |ratio, origin| Aims {
            ratio: Some(ratio),
            origin: Some(origin),
            uplink: Some(1.05),
        };
        let mut longest = 1.0;
        let aims = match case {
            CaseArg::Together => aims(1.15, 1.1),
            CaseArg::Uplink => {
                made.name = "uplink";
                made.layout.uplink = Some(u64::from(agents.div_ceil(racks)) * made.layout.cap / 4);
                aims(1.25, 1.1)
            }
            CaseArg::Killed => {
                (made.name, made.killed) = ("killed", some_of(agents, 10));
                aims(1.25, 1.1)
            }
            CaseArg::Slow => {
                (made.name, made.layout.slow) = ("slow", some_of(agents, 5));
                aims(1.2, 1.1)
            }
            CaseArg::Spread | CaseArg::SpreadLeave => {
                made.leaves = case == CaseArg::SpreadLeave;
                made.name = if made.leaves { "spread-leave" } else { "spread" };
                made.layout.cap = bits(self.args.spread_cap);
                made.starts_over = Duration::from_secs(1).mul_f64(self.args.spread_over);
                Aims {
                    origin: Some(1.5),
                    ..Aims::default()
                }
            }
            CaseArg::Unicast => {
                (made.name, made.way) = ("unicast", Way::Server);
                longest = f64::from(agents);
                Aims::default()
            }
            CaseArg::Cache => {
                (made.name, made.way) = ("cache", Way::Caches);
                made.layout.has_caches = true;
                longest = f64::from(agents);
                Aims::default()
            }
            CaseArg::Bittorrent => {
                (made.name, made.way) = ("bittorrent", Way::BitTorrent);
                Aims::default()
            }
        };
        made.limit = self.limit(&made, longest);
        Ok((made, aims))
    }

    /// The time in which a job must end. `longest`: its expected time, in multiples of that of one agent.
    fn limit(&self, case: &Case, longest: f64) -> Duration {
        let alone_s = case.image.frame_bytes as f64 * 8.0 / case.layout.cap as f64;
        LEAST_LIMIT.max(Duration::from_secs_f64(alone_s * longest * LIMIT_FACTOR))
    }

    /// The time of one agent without others, over links of the same rate.
    async fn alone(&mut self, like: &Case) -> io::Result<Alone> {
        let (content, cap) = (like.image.content, like.layout.cap);
        let known = self.alone.iter().find(|known| (known.0, known.1) == (content, cap));
        if let Some((.., alone)) = known {
            return Ok(*alone);
        }
        let mut case = Case {
            name: "alone",
            way: Way::Server,
            layout: Layout {
                cap,
                ..self.layout(1, 1)
            },
            starts_over: Duration::ZERO,
            killed: Vec::new(),
            ..like.clone()
        };
        case.limit = self.limit(&case, 1.0);
        let outcome = case.run(&self.stage).await?;
        let alone = Alone::of(&outcome);
        self.alone.push((content, cap, alone));
        let report = CaseReport::new(&case, &outcome, &alone, Aims::default());
        self.print(&report).map_err(io::Error::other)?;
        Ok(alone)
    }
}

/// Mounts a file system in memory, which only this process and its children see.
fn mount(folder: &Path) -> io::Result<()> {
    let mut command = std::process::Command::new("mount");
    command.args(["-t", "tmpfs", "-o", MEMORY, "tmpfs"]).arg(folder);
    let status = command.status()?;
    if !status.success() {
        return Err(io::Error::other(format!("mount: {status}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_agents_are_spread_over_all() {
        assert_eq!(some_of(64, 10), [4, 13, 22, 32, 41, 50, 59]);
        assert_eq!(some_of(64, 5), [8, 24, 40, 56]);
        assert_eq!(some_of(3, 10), [1]);
        assert_eq!(some_of(1, 5), [0]);
    }
}
