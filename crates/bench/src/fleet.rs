//! `rackwright-bench fleet`: takes every machine of a simulated fleet through its life, and measures the cost.

use std::time::Instant;

use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::{Cx, units};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::alone::{self, Times};
use crate::args::{FleetArgs, IdentityArg, PhaseArg, name};
use crate::identity::{self, Spending};
use crate::meter::Usage;
use crate::phases;
use crate::progress::{Edge, Passage, Progress, Tally};
use crate::report::{Cost, PhaseReport, TotalReport, Watch};
use crate::test_bed::TestBed;

/// Runs the phases.
pub async fn run(cx: &Cx, args: FleetArgs) -> Result<(), CliError> {
    if args.nodes == 0 || args.parallel == 0 {
        return Err(CliError::usage("--nodes and --parallel must be at least 1", ""));
    }
    let enrols = |phase: &&PhaseArg| matches!(phase, PhaseArg::Life | PhaseArg::Enrol);
    if args.phases.iter().filter(enrols).count() > 1 {
        return Err(CliError::usage(
            "--phases must contain only one phase that enrols: enrol or life",
            "",
        ));
    }
    if args.alone > args.nodes {
        return Err(CliError::usage("--alone must be at most --nodes", ""));
    }
    if args.interval.as_secs() == 0 {
        return Err(CliError::usage("--interval must be at least 1s", ""));
    }
    if args.identity != IdentityArg::Both {
        return compared_with_few(cx, &args).await.map(drop);
    }
    let mut runs = Vec::new();
    for (place, identity) in identity::ORDER.into_iter().enumerate() {
        let args = identity::args(&args, identity, place);
        cx.ui.note(&format!("identity {}", identity.name()));
        runs.push((identity, compared_with_few(cx, &args).await?));
    }
    print(cx, &identity::compared(args.nodes, &runs))
}

/// A run of all machines; with `--alone`, a run of the few machines first. Returns the cost of the run of all.
async fn compared_with_few(cx: &Cx, args: &FleetArgs) -> Result<Spending, CliError> {
    let alone = match args.alone {
        0 => Times::default(),
        nodes => life(cx, &alone::args(args, nodes), true).await?.0,
    };
    let (times, spending) = life(cx, args, false).await?;
    if args.alone > 0 {
        print(cx, &alone::compared(&alone, &times, args.alone))?;
    }
    Ok(spending)
}

/// Takes machines through their phases. Returns the times of the watched machines and the cost of the run. Prints the
/// figures of all machines, unless the run is quiet.
async fn life(cx: &Cx, args: &FleetArgs, is_quiet: bool) -> Result<(Times, Spending), CliError> {
    cx.ui.note(&format!(
        "starting the control plane and {}",
        plural(args.nodes, "machine")
    ));
    let mut test_bed = TestBed::start(cx, args).await?;
    let is_image_needed = |phase: &PhaseArg| matches!(phase, PhaseArg::Deploy | PhaseArg::Life);
    if args.phases.iter().any(is_image_needed) {
        phases::add_image(&cx.ui, &test_bed).await?;
    }
    let watched: Vec<_> = test_bed
        .machines
        .iter()
        .take(args.alone)
        .map(|m| m.id.clone())
        .collect();
    // The watched machines come last, after all others.
    test_bed.machines.reverse();
    let (passed, passages) = mpsc::channel(args.parallel);
    let passed = args.phases.contains(&PhaseArg::Life).then_some(passed);
    let progress = Progress::follow(test_bed.client.clone(), watched.iter().cloned(), passed);
    let mut run = Run {
        cx,
        progress,
        passages,
        begun: Instant::now(),
        start: Spent::of(&test_bed)?,
        peak: Peak::default(),
        right: args.nodes,
        args,
        is_quiet,
        watched,
        times: Times::default(),
    };
    for phase in &args.phases {
        cx.ui.note(&format!("phase {}", name(*phase)));
        run.phase(&mut test_bed, *phase).await?;
    }
    let spending = run.total(&test_bed).await?;
    let tally = run.progress.now();
    if run.right == args.nodes && tally.failed() == 0 {
        return Ok((run.times, spending));
    }
    Err(CliError::Missed {
        what: format!(
            "{} of {} nodes did not reach the final state of the run",
            args.nodes - run.right,
            args.nodes
        ),
        hint: tally.failures().join("; "),
    })
}

/// The resources that both processes have used up to a moment.
#[derive(Debug, Clone, Copy)]
struct Spent {
    control: Usage,
    simulator: Usage,
}

impl Spent {
    fn of(test_bed: &TestBed) -> Result<Self, CliError> {
        Ok(Self {
            control: test_bed.control_plane().usage()?,
            simulator: test_bed.simulator().usage()?,
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Peak {
    control: u64,
    simulator: u64,
}

struct Run<'a> {
    cx: &'a Cx,
    args: &'a FleetArgs,
    progress: Progress,
    /// The passages that the phase `life` follows.
    passages: mpsc::Receiver<Passage>,
    begun: Instant,
    start: Spent,
    peak: Peak,
    /// Nodes that have completed all phases so far.
    right: usize,
    is_quiet: bool,
    /// Machines with times that are stored.
    watched: Vec<String>,
    times: Times,
}

impl Run<'_> {
    async fn phase(&mut self, test_bed: &mut TestBed, phase: PhaseArg) -> Result<(), CliError> {
        test_bed.control_plane().reset_peak()?;
        test_bed.simulator().reset_peak()?;
        let before = Spent::of(test_bed)?;
        let begun = Instant::now();
        let begun_s = units::now();
        let mut listing = None;
        let mut seconds = None;
        match phase {
            PhaseArg::Enrol => phases::enrol(&test_bed.client, &test_bed.machines).await?,
            PhaseArg::Inspect => drop(self.until(Edge::Inspected).await?),
            PhaseArg::List => listing = Some(phases::listing(&test_bed.client).await?),
            // No event is expected in this phase: only the time ends it.
            PhaseArg::Idle => tokio::time::sleep(self.args.idle).await,
            PhaseArg::Deploy => {
                phases::deploy(&test_bed.client, &test_bed.machines, self.args.parallel).await?;
                let tally = self.until(Edge::Validated).await?;
                self.validated(&tally)?;
            }
            PhaseArg::Release => {
                phases::release(&test_bed.client, &test_bed.machines, self.args.parallel).await?;
                self.until(Edge::Erased).await?;
            }
            PhaseArg::Restart => seconds = Some(test_bed.crash().await?),
            PhaseArg::Life => {
                let (args, passages) = (self.args, &mut self.passages);
                let over = self.progress.until(Edge::Erased, args.nodes, args.patience);
                phases::life(&test_bed.client, &test_bed.machines, args.parallel, passages, over).await?;
            }
        }
        let seconds = seconds.unwrap_or_else(|| begun.elapsed().as_secs_f64());
        self.check(test_bed, phase).await?;
        let tally = self.progress.now();
        self.times.take(phase, begun_s, &self.watched, &tally);
        let after = Spent::of(test_bed)?;
        let fresh = phase == PhaseArg::Restart;
        let control_before = if fresh { 0.0 } else { before.control.cpu_s };
        self.peak.control = self.peak.control.max(after.control.peak_resident_bytes);
        self.peak.simulator = self.peak.simulator.max(after.simulator.peak_resident_bytes);
        if fresh {
            // The process is a new one: its usage counts from zero.
            self.start.control.cpu_s -= before.control.cpu_s;
        }
        let control_cpu_s = after.control.cpu_s - control_before;
        let watch = (phase == PhaseArg::Idle).then(|| {
            Watch::new(
                self.args.nodes,
                self.args.interval.as_secs_f64(),
                seconds,
                control_cpu_s,
            )
        });
        let report = PhaseReport {
            phase: name(phase),
            nodes: self.args.nodes,
            right: self.right,
            seconds,
            nodes_per_s: self.args.nodes as f64 / seconds,
            cost: Some(Cost {
                control_cpu_s,
                control_cpu_ms_per_node: control_cpu_s * 1e3 / self.args.nodes as f64,
                control_peak_resident_bytes: after.control.peak_resident_bytes,
                database_bytes: test_bed.database_bytes().await?,
                simulator_cpu_s: after.simulator.cpu_s - before.simulator.cpu_s,
                simulator_peak_resident_bytes: after.simulator.peak_resident_bytes,
            }),
            listing,
            watch,
        };
        self.print(&report)
    }

    /// Validation runs while other machines are still written: its time is from the first system that came up to the
    /// last that passed, and its cost is part of the deployment's cost.
    fn validated(&self, tally: &Tally) -> Result<(), CliError> {
        let seconds = tally.edge(Edge::Validated).last_s - tally.edge(Edge::HostUp).first_s;
        self.print(&PhaseReport {
            phase: "validate",
            nodes: self.args.nodes,
            right: tally.edge(Edge::Validated).count,
            seconds,
            nodes_per_s: tally.edge(Edge::Validated).count as f64 / seconds,
            cost: None,
            listing: None,
            watch: None,
        })
    }

    async fn until(&mut self, edge: Edge) -> Result<Tally, CliError> {
        self.progress.until(edge, self.args.nodes, self.args.patience).await
    }

    /// Checks by the list of nodes that the nodes are in the state to which the phase should bring them.
    async fn check(&mut self, test_bed: &TestBed, phase: PhaseArg) -> Result<(), CliError> {
        let state = match phase {
            PhaseArg::Inspect | PhaseArg::Release | PhaseArg::Life => "available",
            PhaseArg::Deploy => "active",
            PhaseArg::Enrol | PhaseArg::List | PhaseArg::Idle | PhaseArg::Restart => return Ok(()),
        };
        self.right = self.right.min(phases::in_state(&test_bed.client, state).await?);
        Ok(())
    }

    async fn total(&self, test_bed: &TestBed) -> Result<Spending, CliError> {
        let now = Spent::of(test_bed)?;
        let control_cpu_s = now.control.cpu_s - self.start.control.cpu_s;
        let spending = Spending {
            seconds: self.begun.elapsed().as_secs_f64(),
            control_cpu_ms_per_node: control_cpu_s * 1e3 / self.args.nodes as f64,
        };
        self.print(&TotalReport {
            phase: "total",
            nodes: self.args.nodes,
            right: self.right,
            profile: self.args.profile.name(),
            store: test_bed.store().name(),
            identity: self.args.identity.name(),
            seconds: spending.seconds,
            cost: Cost {
                control_cpu_s,
                control_cpu_ms_per_node: spending.control_cpu_ms_per_node,
                control_peak_resident_bytes: self.peak.control,
                database_bytes: test_bed.database_bytes().await?,
                simulator_cpu_s: now.simulator.cpu_s - self.start.simulator.cpu_s,
                simulator_peak_resident_bytes: self.peak.simulator,
            },
            version: env!("CARGO_PKG_VERSION"),
        })?;
        Ok(spending)
    }

    fn print(&self, report: &impl Serialize) -> Result<(), CliError> {
        if self.is_quiet {
            return Ok(());
        }
        print(self.cx, report)
    }
}

/// Prints a line of JSON.
pub fn print(cx: &Cx, report: &impl Serialize) -> Result<(), CliError> {
    let line = serde_json::to_string(report).map_err(|e| CliError::BadAnswer(e.to_string()))?;
    cx.ui.line(&line)
}
