//! The rounds: each method once per round, on the same image and target, each in its own process.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::methods::{BASELINE, METHODS, Method};
use crate::{Failure, disk};

/// State that is removed or ended with the run, also after a failure.
struct Bench {
    folder: PathBuf,
    keep: bool,
    own: PathBuf,
    loop_device: Option<String>,
    server: Option<Child>,
    tmpfs: PathBuf,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            drop(server.stdin.take());
            let _ = server.wait();
        }
        if let Some(device) = &self.loop_device {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
        let _ = fs::remove_dir_all(&self.tmpfs);
        if !self.keep {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// The image in all formats.
struct Prepared {
    image: String,
    logical: u64,
    data: u64,
    sha256: String,
    sizes: Value,
}

/// Result of one method.
struct Outcome {
    method: &'static Method,
    /// Whether its first result equals the image byte for byte.
    matches: bool,
    samples: Vec<Sample>,
}

struct Sample {
    seconds: f64,
    cpu_s: f64,
    summary: Value,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = PathBuf::from(arguments.text("--folder").unwrap_or("target/bench-image"));
    fs::create_dir_all(&folder)?;
    let tmpfs = PathBuf::from(format!("/dev/shm/rackwright-bench-{}", std::process::id()));
    fs::create_dir(&tmpfs)?;
    let mut bench = Bench {
        folder: folder.canonicalize()?,
        keep: arguments.flag("--keep"),
        own: std::env::current_exe()?,
        loop_device: None,
        server: None,
        tmpfs,
    };
    let size = arguments.number("--gib", 4u64)? << 30;
    let prepared = bench.prepare(size)?;
    let (target, target_note) = bench.target(arguments.text("--target").unwrap_or("loop"), size)?;
    let url = bench.start_server()?;
    let environment = [
        ("SELF", bench.own.display().to_string()),
        ("URL", url),
        ("IMAGE", prepared.image.clone()),
        ("TARGET", target.clone()),
        ("BMAP", bench.path("disk.bmap")),
        ("TMPFS", bench.tmpfs.display().to_string()),
        ("SHA256", prepared.sha256.clone()),
        (
            "QEMU_FORMAT",
            if target.starts_with("/dev/") {
                "host_device"
            } else {
                "raw"
            }
            .to_owned(),
        ),
    ];
    let rounds = arguments.number("--rounds", 5usize)?.max(1);
    let methods = select_methods(arguments.text("--ways"))?;
    let mut results: Vec<Outcome> = methods
        .into_iter()
        .map(|method| Outcome {
            method,
            matches: false,
            samples: vec![],
        })
        .collect();
    for round in 0..rounds {
        for Outcome {
            method,
            matches,
            samples,
        } in &mut results
        {
            if round == 0 {
                overwrite_target(&target, size)?;
            }
            let sample = measure(method, &environment)?;
            eprintln!(
                "round {}: {}: {:.2} s, {:.2} CPU s",
                round + 1,
                method.name,
                sample.seconds,
                sample.cpu_s
            );
            if round == 0 {
                *matches = bench.compare(&target, size);
                if !*matches && method.must_match {
                    return Err(format!("{} left a disk that differs from the image", method.name).into());
                }
            }
            samples.push(sample);
        }
    }
    let document = report(&prepared, &target_note, rounds, &results);
    println!("{}", serde_json::to_string_pretty(&document)?);
    Ok(())
}

impl Bench {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Builds the files that an earlier run with `--keep` has not left.
    fn prepare(&self, size: u64) -> Result<Prepared, Failure> {
        let raw = self.folder.join("disk.raw");
        let fresh = !fs::metadata(&raw).is_ok_and(|found| found.len() == size);
        if fresh {
            eprintln!("building a disk image of {} GiB from /usr", size >> 30);
            disk::build(&raw, size)?;
            let at = |name: &str| self.path(name);
            self.tool(
                "zstd",
                &["-q", "-f", "-3", "-T0", &at("disk.raw"), "-o", &at("disk.raw.zst")],
            )?;
            self.tool(
                "qemu-img",
                &["convert", "-c", "-O", "qcow2", &at("disk.raw"), &at("disk.qcow2")],
            )?;
            self.tool(
                "bmaptool",
                &["--quiet", "create", &at("disk.raw"), "-o", &at("disk.bmap")],
            )?;
        }
        let mut import = Command::new(&self.own);
        import.args([
            "import",
            "--store",
            &self.path("store"),
            "--source",
            &self.path("disk.raw.zst"),
        ]);
        let summary: Value = serde_json::from_str(&output_of(&mut import)?)?;
        let sum = output_of(Command::new("sha256sum").arg(self.path("disk.qcow2")))?;
        let sha256 = sum.split_whitespace().next().unwrap_or_default().to_owned();
        let number = |key: &str| {
            summary[key]
                .as_u64()
                .ok_or(format!("the import's summary has no {key}"))
        };
        let length = |name: &str| fs::metadata(self.folder.join(name)).map(|found| found.len());
        Ok(Prepared {
            image: summary["image"].as_str().unwrap_or_default().to_owned(),
            logical: number("logical_bytes")?,
            data: number("data_bytes")?,
            sha256,
            sizes: json!({
                "logical_bytes": number("logical_bytes")?,
                "data_bytes": number("data_bytes")?,
                "data_percent": (number("data_bytes")? * 1000 / number("logical_bytes")?) as f64 / 10.0,
                "store_bytes": number("packed_bytes")?,
                "raw_zst_bytes": length("disk.raw.zst")?,
                "qcow2_zlib_bytes": length("disk.qcow2")?,
                "content": "files of /usr in runs of 60 MiB, 80 MiB of zeros between them",
            }),
        })
    }

    fn tool(&self, program: &str, arguments: &[&str]) -> Result<(), Failure> {
        output_of(Command::new(program).args(arguments)).map(drop)
    }

    /// Returns the path of the target and its description.
    fn target(&mut self, kind: &str, size: u64) -> Result<(String, String), Failure> {
        if kind != "loop" && kind != "file" {
            return Ok((kind.to_owned(), format!("{kind}, given by the caller")));
        }
        let path = self.path("target");
        // Written once, so that no method pays for the first allocation of blocks.
        let file = File::create(&path)?;
        file.set_len(size)?;
        overwrite_target(&path, size)?;
        if kind == "file" {
            return Ok((
                path,
                "a regular file with allocated blocks, on the disk below the folder".to_owned(),
            ));
        }
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on", "--sector-size=4096", &path]);
        let device = output_of(&mut losetup)?.trim().to_owned();
        self.loop_device = Some(device.clone());
        let note = format!("{device}: a loop device with direct I/O over a file with allocated blocks");
        Ok((device, note))
    }

    fn start_server(&mut self) -> Result<String, Failure> {
        let mut command = Command::new(&self.own);
        command.args(["serve", "--store", &self.path("store"), "--files", &self.path("")]);
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = server.stdout.take().ok_or("the server has no output")?;
        self.server = Some(server);
        let mut url = String::new();
        BufReader::new(output).read_line(&mut url)?;
        Ok(url.trim().to_owned())
    }

    /// Whether the target now contains the image.
    fn compare(&self, target: &str, size: u64) -> bool {
        self.tool("cmp", &["-n", &size.to_string(), &self.path("disk.raw"), target])
            .is_ok()
    }
}

/// Returns the named methods (separated by commas) and the baseline; without a list, all methods.
fn select_methods(names: Option<&str>) -> Result<Vec<&'static Method>, Failure> {
    let Some(names) = names else {
        return Ok(METHODS.iter().collect());
    };
    let names: Vec<&str> = names.split(',').collect();
    if let Some(unknown) = names
        .iter()
        .find(|name| METHODS.iter().all(|method| method.name != **name))
    {
        return Err(format!("--ways: there is no way named {unknown:?}").into());
    }
    Ok(METHODS
        .iter()
        .filter(|method| method.name == BASELINE || names.contains(&method.name))
        .collect())
}

/// Fills the target with other data, so that bytes left out by a method become visible.
fn overwrite_target(target: &str, size: u64) -> Result<(), Failure> {
    let count = format!("count={}", size >> 20);
    let output = format!("of={target}");
    let command = "tr '\\0' '\\245' < /dev/zero | dd bs=1M iflag=fullblock oflag=direct conv=notrunc,fsync status=none";
    let script = format!("{command} \"$1\" \"$2\"");
    // `tr` ends with a broken pipe, as expected; so no pipefail here.
    output_of(Command::new("bash").args(["-ec", &script, "spoil", &count, &output])).map(drop)
}

fn output_of(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name} cannot be run: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} failed ({}): {}", output.status, errors.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn measure(method: &Method, environment: &[(&str, String)]) -> Result<Sample, Failure> {
    let before = children_cpu_s()?;
    let begun = Instant::now();
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-ec", method.command]);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let summary = output_of(&mut command).map_err(|error| format!("{}: {error}", method.name))?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_s = children_cpu_s()? - before;
    Ok(Sample {
        seconds,
        cpu_s,
        summary: serde_json::from_str(&summary).unwrap_or(Value::Null),
    })
}

/// CPU time (user and system) of all ended descendants (proc(5), fields 16 and 17 of `stat`), seconds.
fn children_cpu_s() -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(") ").ok_or("/proc/self/stat has no name")?.1;
    let mut fields = after_name.split(' ').skip(13);
    let mut ticks = || {
        fields
            .next()
            .and_then(|text| text.parse::<f64>().ok())
            .ok_or("/proc/self/stat is short")
    };
    // USER_HZ is 100 on all known architectures.
    Ok((ticks()? + ticks()?) / 100.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

fn round_to(value: f64, places: i32) -> f64 {
    let factor = 10f64.powi(places);
    (value * factor).round() / factor
}

fn report(prepared: &Prepared, target: &str, rounds: usize, outcomes: &[Outcome]) -> Value {
    let baseline = outcomes.iter().find(|outcome| outcome.method.name == BASELINE);
    // Per round, so that other load on the machine in a round affects both.
    let ratio = |outcome: &Outcome, pick: fn(&Sample) -> f64| {
        let pairs = baseline
            .into_iter()
            .flat_map(|base| &base.samples)
            .zip(&outcome.samples);
        median(pairs.map(|(base, own)| pick(own) / pick(base)).collect())
    };
    let result = |outcome: &Outcome| {
        let Outcome {
            method,
            matches,
            samples,
        } = outcome;
        let seconds = median(samples.iter().map(|sample| sample.seconds).collect());
        let cpu_s = median(samples.iter().map(|sample| sample.cpu_s).collect());
        let real = if method.writes_all {
            prepared.logical
        } else {
            prepared.data
        };
        let rate = |bytes: u64| (bytes as f64 / 1e6 / seconds).round();
        json!({
            "name": method.name,
            "note": method.note,
            "seconds": round_to(seconds, 3),
            "cpu_s": round_to(cpu_s, 2),
            "logical_mb_per_s": rate(prepared.logical),
            "real_mb_per_s": rate(real),
            "times_the_rate_of_baseline": round_to(1.0 / ratio(outcome, |sample| sample.seconds), 2),
            "part_of_the_cpu_of_baseline": round_to(ratio(outcome, |sample| sample.cpu_s), 2),
            "disk_equals_image": matches,
            "seconds_per_round": samples.iter().map(|sample| round_to(sample.seconds, 2)).collect::<Vec<_>>(),
            "cpu_s_per_round": samples.iter().map(|sample| round_to(sample.cpu_s, 2)).collect::<Vec<_>>(),
            "told": samples.last().map_or(Value::Null, |sample| sample.summary.clone()),
        })
    };
    json!({
        "benchmark": "image",
        "machine": {
            "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "cpu": cpu_model(),
            "kernel": read_trimmed("/proc/sys/kernel/osrelease"),
        },
        "image": prepared.sizes,
        "target": target,
        "rounds": rounds,
        "baseline": BASELINE,
        "explanation": "medians over the rounds; CPU is user and system time of the client's processes, the server's \
                        and the loop device's not counted; real bytes are those sent to the target; ratios are medians \
                        of the ratios within each round; disk_equals_image: every way's first run was on a target \
                        filled with other data, and the disk was compared with the image after it",
        "results": outcomes.iter().map(result).collect::<Vec<_>>(),
    })
}

fn read_trimmed(path: impl AsRef<Path>) -> String {
    let mut text = String::new();
    let _ = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    text.trim().to_owned()
}

fn cpu_model() -> String {
    let text = read_trimmed("/proc/cpuinfo");
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.unwrap_or_default().trim_start_matches([' ', '\t', ':']).to_owned()
}
