//! Figures of the fan-out in simulated halls: one line of JSON for each hall, and a picture. `docs/scale.md` shows them.

use std::process::ExitCode;
use std::time::Instant;

use rackwright_fanout::simulation::{Figures, Hall, picture, run};

const USAGE: &str = "\
Usage: rackwright-bench-fanout [--agents N,N,...] [--chunks K] [--rack N] [--seed N] [--cases NAME,...] [--svg FILE]

Simulates the spread of an image among agents, and prints one line of JSON for each number of agents and case.
  --agents   numbers of agents (64,1024,10000)
  --chunks   chunks of the image (450)
  --rack     agents of a rack (32)
  --seed     seed of everything that is by chance (1)
  --cases    plain, slow, die, replica, liars, spread (all but spread, which needs minutes above 1,000 agents)
  --svg      writes a picture of the case `plain` over the numbers of agents
";

/// Changes a plain hall.
type Change = fn(&mut Hall);

/// The cases by name.
const CASES: &[(&str, Change)] = &[
    ("plain", |_| {}),
    ("slow", |hall| hall.slow_percent = 5),
    ("die", |hall| hall.die_percent = 10),
    ("replica", |hall| hall.lose_table_percent = 50),
    ("liars", |hall| hall.liars_per_mille = 20),
    ("spread", |hall| hall.spread = 20),
];

struct Arguments {
    agents: Vec<u32>,
    chunks: u32,
    rack: u32,
    seed: u64,
    cases: Vec<(&'static str, Change)>,
    svg: Option<String>,
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut found = Arguments {
        agents: vec![64, 1024, 10_000],
        chunks: 450,
        rack: 32,
        seed: 1,
        cases: CASES.iter().filter(|(name, _)| *name != "spread").copied().collect(),
        svg: None,
    };
    while let Some(name) = given.next() {
        if name == "--help" {
            return Err(String::new());
        }
        let value = given.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = |text: &str| -> Result<u32, String> {
            let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
            number.ok_or_else(|| format!("{name}: {text:?} is no number from 1 to 1000000"))
        };
        match name.as_str() {
            "--agents" => found.agents = value.split(',').map(number).collect::<Result<_, _>>()?,
            "--chunks" => found.chunks = number(&value)?,
            "--rack" => found.rack = number(&value)?,
            "--seed" => found.seed = u64::from(number(&value)?),
            "--cases" => found.cases = value.split(',').map(case).collect::<Result<_, _>>()?,
            "--svg" => found.svg = Some(value),
            _ => return Err(format!("there is no option {name}")),
        }
    }
    if found.rack > 48 {
        return Err("--rack: at most 48, as the claim table divides larger racks".to_owned());
    }
    Ok(found)
}

fn case(name: &str) -> Result<(&'static str, Change), String> {
    let found = CASES.iter().find(|(known, _)| *known == name);
    let known = || CASES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found
        .copied()
        .ok_or_else(|| format!("--cases: there is no case {name:?}; the cases are {}", known()))
}

/// Peak memory of this process so far, in bytes.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn measure(arguments: &Arguments) -> Result<(), String> {
    let mut points = Vec::new();
    let mut unfinished = 0;
    for agents in &arguments.agents {
        for (name, change) in &arguments.cases {
            let mut hall = Hall::plain(*agents, arguments.chunks, arguments.rack);
            hall.seed = arguments.seed;
            change(&mut hall);
            let begun = Instant::now();
            let figures: Figures = run(&hall);
            println!("{}", figures.json(name, begun.elapsed().as_secs_f64(), peak_memory()));
            unfinished += figures.unfinished;
            if *name == "plain" {
                points.push((*agents, hall.bound(), figures.last()));
            }
        }
    }
    if let Some(path) = &arguments.svg {
        std::fs::write(path, picture(&points)).map_err(|error| format!("{path}: {error}"))?;
    }
    match unfinished {
        0 => Ok(()),
        count => Err(format!(
            "{count} agents did not get the image: this is an error of the decisions"
        )),
    }
}

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) if why.is_empty() => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprint!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
