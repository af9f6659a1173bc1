//! The hardware probe on a machine with an open login: copied, run once, removed; and its facts as checks of the report.

use std::time::Duration;

use rackwright_api::v1::{Check, Verdict};
use rackwright_health::facts::Facts;
use rackwright_health::passive::{Finding, PASSIVE_CHECKS, Rules, State};

use crate::carried::{CarriedProgram, FOLDERS, SEND_LIMIT, shortened};
use crate::profile::{Profile, Unexpected};
use crate::ssh::{Output, RunLimits, Session, SshError};

const SCRIPT: &str = include_str!("hardware.sh");
/// Added to the program's own deadline: its start on a slow machine, and its removal.
const SLACK: Duration = Duration::from_secs(60);
/// Most bytes of an output: some hundred devices and lines of the log.
const OUTPUT_MAX_BYTES: usize = 2 * 1024 * 1024;
/// The check of the probe itself.
pub const PROBE_CHECK: &str = "hardware-probe";

/// The ids of all checks of hardware, in the order of a report.
pub fn hardware_checks() -> impl Iterator<Item = &'static str> {
    std::iter::once(PROBE_CHECK).chain(PASSIVE_CHECKS)
}

/// What the probe found.
#[derive(Debug, Clone)]
pub struct HardwareReading {
    /// The facts, or why there are none; text for people.
    pub facts: Result<Facts, String>,
    /// Why a part of the probe may still be on the machine.
    pub left: Option<String>,
}

/// Copies the program to the machine of an open session, runs it below the first folder that may run it, and removes it.
///
/// # Errors
/// The connection failed. A program that does not run is no error: the reading has the reason.
pub async fn read_hardware(
    session: &Session,
    program: &CarriedProgram,
    id: &str,
    deadline: Duration,
) -> Result<HardwareReading, SshError> {
    read_hardware_below(session, program, id, deadline, &FOLDERS).await
}

/// As [`read_hardware`], below the first of these folders that may run a program. Their paths must be plain words.
///
/// # Errors
/// Those of [`read_hardware`].
pub async fn read_hardware_below(
    session: &Session,
    program: &CarriedProgram,
    id: &str,
    deadline: Duration,
    parents: &[&str],
) -> Result<HardwareReading, SshError> {
    let (mut why, mut left) = (Vec::new(), None);
    for parent in parents {
        let folder = format!("{parent}/rackwright-probe-{id}");
        let put = session.put(&folder, "program", &program.bytes, SEND_LIMIT).await?;
        let output = if put.status == 0 {
            run(session, program, &folder, deadline).await?
        } else {
            if remove(session, &folder).await?.status != 0 {
                left = Some(format!("{folder} could not be removed"));
            }
            put
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let removed = text.lines().any(|line| line == "removed=yes");
        if output.status == 7 || output.stderr_tail().contains("could not be removed") {
            left = Some(format!("{folder} could not be removed"));
        }
        match Facts::parse(&text) {
            Ok(facts) if removed || left.is_some() => {
                return Ok(HardwareReading { facts: Ok(facts), left });
            }
            Ok(_) => why.push(format!("{parent}: exit status {}", output.status)),
            Err(error) => {
                let message = shortened(&output.stderr_tail());
                why.push(format!("{parent}: {error}; exit status {}; {message}", output.status));
            }
        }
    }
    Ok(HardwareReading {
        facts: Err(why.join("; ")),
        left,
    })
}

async fn run(
    session: &Session,
    program: &CarriedProgram,
    folder: &str,
    deadline: Duration,
) -> Result<Output, SshError> {
    let variables = format!(
        "folder='{folder}'\nsha256='{}'\nbytes={}\ndeadline_ms={}\n",
        program.sha256,
        program.bytes.len(),
        deadline.as_millis()
    );
    let limits = RunLimits {
        timeout: deadline + SLACK,
        output_max_bytes: OUTPUT_MAX_BYTES,
    };
    session.run(&format!("{variables}{SCRIPT}"), limits).await
}

async fn remove(session: &Session, folder: &str) -> Result<Output, SshError> {
    let limits = RunLimits {
        timeout: SLACK,
        output_max_bytes: 64 * 1024,
    };
    session.run(&format!("rm -rf '{folder}' </dev/null\n"), limits).await
}

/// The checks of hardware. `reading`: `Err` states why the probe was not run, for example because no program is set.
pub fn judge_hardware(profile: &Profile, reading: Result<&HardwareReading, &str>) -> Vec<Check> {
    let skips = |id: &str| profile.skip.iter().any(|skipped| skipped == id);
    let skipped = |id: &str| {
        let why = "the profile skips this check".to_owned();
        check(
            id,
            Verdict::NotApplicable,
            "",
            "",
            &format!("profile {}", profile.name),
            why,
        )
    };
    let reading = match reading {
        _ if skips(PROBE_CHECK) => return vec![skipped(PROBE_CHECK)],
        Err(why) => {
            return vec![check(
                PROBE_CHECK,
                Verdict::NotApplicable,
                "not run",
                "",
                "",
                why.to_owned(),
            )];
        }
        Ok(reading) => reading,
    };
    let wanted = "runs, ends in time, is removed";
    let probe =
        |verdict, measured: &str, detail: String| check(PROBE_CHECK, verdict, measured, wanted, "the probe", detail);
    let facts = match &reading.facts {
        Err(why) => return vec![probe(Verdict::Fail, "no output", why.clone())],
        Ok(facts) => facts,
    };
    let rules = match Rules::embedded() {
        Err(error) => return vec![probe(Verdict::Fail, "no rules", error.to_string())],
        Ok(rules) => rules,
    };
    let (sections, hung) = sections(facts);
    let first = match (&reading.left, hung.is_empty()) {
        (None, true) => probe(Verdict::Pass, &sections, String::new()),
        (left, _) => {
            let faults = hung.into_iter().chain(left.clone());
            probe(Verdict::Fail, &sections, faults.collect::<Vec<_>>().join("; "))
        }
    };
    let findings = rules.judge(facts);
    let others = findings.iter().map(|finding| match skips(finding.check) {
        true => skipped(finding.check),
        false => check_of(profile, finding),
    });
    std::iter::once(first).chain(others).collect()
}

/// The number of sections with the slowest one's time, and the sections that hang.
fn sections(facts: &Facts) -> (String, Vec<String>) {
    let (mut count, mut slowest, mut hung) = (0, 0, Vec::new());
    for row in facts.rows("section") {
        count += 1;
        slowest = slowest.max(row.number::<u64>("ms").unwrap_or_default());
        if row.get("state") == Some("hung") {
            hung.extend(facts.missing(row.text("name")));
        }
    }
    (format!("{count} sections, {slowest} ms"), hung)
}

fn check(id: &str, verdict: Verdict, measured: &str, threshold: &str, source: &str, detail: String) -> Check {
    Check {
        id: id.into(),
        verdict: verdict as i32,
        measured: measured.into(),
        threshold: threshold.into(),
        source: source.into(),
        detail,
    }
}

/// A finding as a check. The profile decides whether unproven hardware and settings that are not ready fail the node.
fn check_of(profile: &Profile, finding: &Finding) -> Check {
    let of = |verdict, detail| {
        let (measured, threshold) = (&finding.measured, &finding.threshold);
        check(finding.check, verdict, measured, threshold, &finding.source, detail)
    };
    let by = |rule: Unexpected| match rule {
        Unexpected::Fail => Verdict::Fail,
        Unexpected::Allow => Verdict::NotApplicable,
    };
    match &finding.state {
        State::Passed => of(Verdict::Pass, String::new()),
        State::Failed if finding.is_readiness() => {
            of(by(profile.readiness), format!("not ready: {}", finding.detail()))
        }
        State::Failed => of(Verdict::Fail, finding.detail()),
        State::NotApplicable(why) => of(Verdict::NotApplicable, why.clone()),
        State::NotProven(why) => of(by(profile.unproven), format!("not proven, because {why}")),
    }
}

#[cfg(test)]
mod tests;
