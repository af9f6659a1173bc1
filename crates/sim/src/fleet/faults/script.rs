//! Fault scripts in YAML. A script is checked as a whole, and all mistakes are reported together, each with line and field.

use super::nodes::{Nodes, range};
use super::{During, Kind, Lost, Part, Rule, Then};
use crate::fleet::drive::DriveFault;
use http::Method;
use rackwright_sim_bmc::BadAnswer;
use rackwright_yaml::{Quote, Spanned};
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// Maximum size of a script, in bytes.
const SCRIPT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of faults in a script.
const FAULTS_MAX: usize = 1000;
/// Maximum time in a script, in seconds: 366 days.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// A script of faults. The default script is empty: no faults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    pub(super) rules: Vec<Rule>,
}

/// The mistakes for which a script is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ScriptError {
    /// The name of the script, as the caller gave it.
    pub file: String,
    /// The mistakes, in the order of their lines.
    pub faults: Vec<ScriptFault>,
}

/// A mistake in a script (not one of the faults that the script describes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFault {
    /// The number of the line, from 1; 0 if the mistake concerns the whole script.
    pub line: u64,
    /// The mistake in words. The text begins with the field, if the mistake is in a field.
    pub message: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}", self.file)?;
            if fault.line > 0 {
                write!(f, ":{}", fault.line)?;
            }
            write!(f, ": {}", fault.message)?;
        }
        Ok(())
    }
}

/// A script as written in YAML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireScript {
    faults: Vec<WireFault>,
}

/// A fault as written in YAML. `docs/sim.md` explains the fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFault {
    fault: Spanned<String>,
    nodes: Option<Vec<Spanned<String>>>,
    at: Option<Spanned<u64>>,
    times: Option<Spanned<u64>>,
    probability: Option<Spanned<f64>>,
    from_s: Option<Spanned<f64>>,
    until_s: Option<Spanned<f64>>,
    method: Option<Spanned<String>>,
    path: Option<Spanned<String>>,
    delay_s: Option<Spanned<f64>>,
    retry_after_s: Option<Spanned<u64>>,
    answer: Option<Spanned<String>>,
    missing: Option<Spanned<String>>,
    skew_s: Option<Spanned<f64>>,
    mb_per_s: Option<Spanned<f64>>,
    gbit_per_s: Option<Spanned<f64>>,
    adapter: Option<Spanned<u64>>,
    lost: Option<Spanned<String>>,
    during: Option<Spanned<String>>,
    then: Option<Spanned<String>>,
    lasts_s: Option<Spanned<f64>>,
    after_bytes: Option<Spanned<u64>>,
}

/// The kinds of fault, for the message about an unknown kind.
const KINDS: &str = "bmc-down, bmc-slow, bmc-wrong, bmc-sessions-exhausted, bmc-unavailable, power-stuck, \
                     settings-ignored, settings-busy, post-hang, wrong-inventory, host-never-up, host-degraded, \
                     slow-disk, slow-nic, slow-cable, disk-errors, erase-unsupported, erase-ignored, clock-skew, \
                     dhcp-lost, tftp-lost, boot-http-error, agent-crash, heartbeat-lost, image-cut, write-errors";

impl Script {
    /// Reads a script for a fleet of `nodes` machines. `file` names the script in the messages.
    ///
    /// # Errors
    /// [`ScriptError`] with all mistakes.
    pub fn parse(file: &str, yaml: &str, nodes: usize) -> Result<Self, ScriptError> {
        let refused = |mistakes| ScriptError {
            file: file.to_owned(),
            faults: mistakes,
        };
        let refused_whole = |message: &str| {
            let message = message.to_owned();
            refused(vec![ScriptFault { line: 0, message }])
        };
        if yaml.len() > SCRIPT_BYTES_MAX {
            return Err(refused_whole("the script is larger than 1 MiB"));
        }
        let wire: WireScript = rackwright_yaml::read(yaml, Quote::Nothing).map_err(|error| {
            refused(vec![ScriptFault {
                line: error.line(),
                message: error.quoting(yaml),
            }])
        })?;
        if wire.faults.len() > FAULTS_MAX {
            return Err(refused_whole("faults: there are more than 1000"));
        }
        let mut validator = Validator {
            nodes,
            mistakes: Vec::new(),
        };
        let rules = wire.faults.iter().map(|fault| validator.rule(fault)).collect();
        if validator.mistakes.is_empty() {
            return Ok(Self { rules });
        }
        validator.mistakes.sort_by_key(|mistake| mistake.line);
        Err(refused(validator.mistakes))
    }
}

/// Converts the faults of a script to rules, one after the other, and collects the mistakes.
struct Validator {
    /// The number of machines in the fleet.
    nodes: usize,
    mistakes: Vec<ScriptFault>,
}

impl Validator {
    fn report(&mut self, line: u64, message: impl Into<String>) {
        let message = message.into();
        self.mistakes.push(ScriptFault { line, message });
    }

    /// The rule for a fault. An invalid field gets a default value: the script is refused anyway.
    fn rule(&mut self, wire: &WireFault) -> Rule {
        let kind = self.kind(wire);
        self.check_fields(wire, kind);
        Rule {
            kind: kind.unwrap_or(Kind::Down),
            nodes: self.nodes(wire),
            steps: self.steps(wire),
            probability: self.number(wire.probability.as_ref(), "probability", 1.0, 0.0..=1.0),
            from_ms: self.milliseconds(wire.from_s.as_ref(), "from_s", 0),
            until_ms: self.until(wire),
            method: self.method(wire),
            path: self.path(wire, kind),
        }
    }

    fn kind(&mut self, wire: &WireFault) -> Option<Kind> {
        let line = wire.fault.referenced.line();
        let name = wire.fault.value.as_str();
        let kind = match name {
            "bmc-down" => Kind::Down,
            "bmc-slow" => {
                if wire.delay_s.is_none() {
                    self.report(
                        line,
                        "delay_s is missing: give the delay of the BMC's answers in seconds",
                    );
                }
                let seconds = self.number(wire.delay_s.as_ref(), "delay_s", 0.0, 0.0..=86_400.0);
                Kind::Slow(Duration::from_secs_f64(seconds))
            }
            "bmc-wrong" => Kind::Wrong(self.answer(wire)),
            "bmc-sessions-exhausted" => Kind::SessionsExhausted,
            "bmc-unavailable" => {
                let seconds = wire.retry_after_s.as_ref().map_or(5, |seconds| seconds.value);
                let seconds = u32::try_from(seconds).ok().filter(|seconds| *seconds <= 86_400);
                if seconds.is_none() {
                    let at = wire.retry_after_s.as_ref().map_or(line, |wire| wire.referenced.line());
                    self.report(at, "retry_after_s must be at most 86400");
                }
                Kind::Unavailable(seconds.unwrap_or_default())
            }
            "power-stuck" => Kind::PowerStuck,
            "settings-ignored" => Kind::SettingsIgnored,
            "settings-busy" => Kind::SettingsBusy,
            "post-hang" => Kind::PostHang,
            "wrong-inventory" => Kind::WrongInventory(self.missing(wire)),
            "host-never-up" => Kind::HostNeverUp,
            "host-degraded" => Kind::HostDegraded,
            "slow-disk" => {
                if wire.mb_per_s.is_none() {
                    self.report(line, "mb_per_s is missing: give the read speed in MB/s");
                }
                Kind::SlowDisk(self.number(wire.mb_per_s.as_ref(), "mb_per_s", 1.0, 0.01..=1_000_000.0))
            }
            "slow-nic" => Kind::SlowNic(self.gbit_per_s(wire)),
            "slow-cable" => {
                let adapter = wire.adapter.as_ref().map_or(0, |adapter| adapter.value);
                let adapter = u8::try_from(adapter).ok().filter(|adapter| *adapter < 64);
                if adapter.is_none() {
                    let at = wire.adapter.as_ref().map_or(line, |wire| wire.referenced.line());
                    self.report(at, "adapter must be at most 63");
                }
                Kind::SlowCable(adapter.unwrap_or_default(), self.gbit_per_s(wire))
            }
            "disk-errors" => Kind::Drives(DriveFault::Errors),
            "erase-unsupported" => Kind::Drives(DriveFault::RefusesToErase),
            "erase-ignored" => Kind::Drives(DriveFault::PretendsToErase),
            "clock-skew" => {
                if wire.skew_s.is_none() {
                    self.report(line, "skew_s is missing: give the clock offset in seconds");
                }
                let seconds = self.number(wire.skew_s.as_ref(), "skew_s", 0.0, -SECONDS_MAX..=SECONDS_MAX);
                Kind::ClockSkew(seconds as i64)
            }
            "dhcp-lost" => Kind::DhcpLost(self.lost(wire)),
            "tftp-lost" => Kind::TftpLost(self.lost(wire)),
            "boot-http-error" => Kind::HttpLost(self.lost(wire)),
            "agent-crash" => Kind::AgentCrash(self.during(wire), self.then(wire)),
            "heartbeat-lost" => {
                if wire.lasts_s.is_none() {
                    self.report(line, "lasts_s is missing: give the seconds without a heartbeat");
                }
                let seconds = self.number(wire.lasts_s.as_ref(), "lasts_s", 0.0, 0.0..=86_400.0);
                Kind::HeartbeatLost(Duration::from_secs_f64(seconds))
            }
            "image-cut" => {
                if wire.after_bytes.is_none() {
                    self.report(line, "after_bytes is missing: give the bytes before the cut");
                }
                Kind::ImageCut(wire.after_bytes.as_ref().map_or(0, |bytes| bytes.value))
            }
            "write-errors" => Kind::WriteErrors,
            other => {
                let other: String = other.chars().take(40).collect();
                self.report(line, format!("fault: `{other}` is not one of {KINDS}"));
                return None;
            }
        };
        Some(kind)
    }

    fn gbit_per_s(&mut self, wire: &WireFault) -> f64 {
        if wire.gbit_per_s.is_none() {
            let line = wire.fault.referenced.line();
            self.report(line, "gbit_per_s is missing: give the bandwidth in Gbit/s");
        }
        self.number(wire.gbit_per_s.as_ref(), "gbit_per_s", 1.0, 0.0..=100_000.0)
    }

    fn lost(&mut self, wire: &WireFault) -> Lost {
        let words = [("request", Lost::Request), ("answer", Lost::Answer)];
        self.word(wire.lost.as_ref(), "lost must be request or answer", words)
    }

    fn during(&mut self, wire: &WireFault) -> During {
        let words = [
            ("heartbeat", During::Heartbeat),
            ("write", During::Write),
            ("erase", During::Erase),
        ];
        self.word(wire.during.as_ref(), "during must be heartbeat, write or erase", words)
    }

    fn then(&mut self, wire: &WireFault) -> Then {
        let words = [
            ("restarts", Then::Restarts),
            ("stays-dead", Then::StaysDead),
            ("panics", Then::Panics),
        ];
        self.word(wire.then.as_ref(), "then must be restarts, stays-dead or panics", words)
    }

    /// The value that belongs to a word. If the field is absent or has another word, the value of the first word.
    fn word<T: Copy, const N: usize>(
        &mut self,
        wire: Option<&Spanned<String>>,
        message: &str,
        words: [(&str, T); N],
    ) -> T {
        let Some(wire) = wire else { return words[0].1 };
        let found = words.iter().find(|(word, _)| *word == wire.value);
        if found.is_none() {
            self.report(wire.referenced.line(), message);
        }
        found.unwrap_or(&words[0]).1
    }

    fn answer(&mut self, wire: &WireFault) -> BadAnswer {
        let line = wire.fault.referenced.line();
        let Some(answer) = &wire.answer else {
            self.report(line, "answer is missing: give html, truncated, internal-error or types");
            return BadAnswer::Html;
        };
        match answer.value.as_str() {
            "html" => BadAnswer::Html,
            "truncated" => BadAnswer::Truncated,
            "internal-error" => BadAnswer::InternalError,
            "types" => BadAnswer::Types,
            _ => {
                self.report(
                    answer.referenced.line(),
                    "answer must be html, truncated, internal-error or types",
                );
                BadAnswer::Html
            }
        }
    }

    fn missing(&mut self, wire: &WireFault) -> Part {
        let line = wire.fault.referenced.line();
        let Some(missing) = &wire.missing else {
            self.report(line, "missing is missing: give cpu, gpu, dimm, nic or drive");
            return Part::Drive;
        };
        match missing.value.as_str() {
            "cpu" => Part::Cpu,
            "gpu" => Part::Gpu,
            "dimm" => Part::Dimm,
            "nic" => Part::Nic,
            "drive" => Part::Drive,
            _ => {
                self.report(
                    missing.referenced.line(),
                    "missing must be cpu, gpu, dimm, nic or drive",
                );
                Part::Drive
            }
        }
    }

    /// Reports the fields that have no effect on a fault of this kind. The author of the script expects an effect.
    fn check_fields(&mut self, wire: &WireFault, kind: Option<Kind>) {
        let Some(kind) = kind else { return };
        let name = wire.fault.value.as_str();
        // The line of a field, by the type of its value.
        let text = |field: &Option<Spanned<String>>| field.as_ref().map(|field| field.referenced.line());
        let number = |field: &Option<Spanned<f64>>| field.as_ref().map(|field| field.referenced.line());
        let count = |field: &Option<Spanned<u64>>| field.as_ref().map(|field| field.referenced.line());
        let requests = kind.is_about_requests();
        let parts = matches!(kind, Kind::WrongInventory(_));
        let drives = matches!(kind, Kind::Drives(_));
        let loses = matches!(kind, Kind::DhcpLost(_) | Kind::TftpLost(_) | Kind::HttpLost(_));
        let crash = matches!(kind, Kind::AgentCrash(..));
        for (field, line, applies) in [
            ("delay_s", number(&wire.delay_s), matches!(kind, Kind::Slow(_))),
            ("skew_s", number(&wire.skew_s), matches!(kind, Kind::ClockSkew(_))),
            ("mb_per_s", number(&wire.mb_per_s), matches!(kind, Kind::SlowDisk(_))),
            (
                "gbit_per_s",
                number(&wire.gbit_per_s),
                matches!(kind, Kind::SlowNic(_) | Kind::SlowCable(..)),
            ),
            ("adapter", count(&wire.adapter), matches!(kind, Kind::SlowCable(..))),
            (
                "retry_after_s",
                count(&wire.retry_after_s),
                matches!(kind, Kind::Unavailable(_)),
            ),
            ("answer", text(&wire.answer), matches!(kind, Kind::Wrong(_))),
            ("missing", text(&wire.missing), parts),
            ("method", text(&wire.method), requests),
            ("path", text(&wire.path), requests || matches!(kind, Kind::HttpLost(_))),
            ("lost", text(&wire.lost), loses),
            ("during", text(&wire.during), crash),
            ("then", text(&wire.then), crash),
            ("lasts_s", number(&wire.lasts_s), matches!(kind, Kind::HeartbeatLost(_))),
            (
                "after_bytes",
                count(&wire.after_bytes),
                matches!(kind, Kind::ImageCut(_)),
            ),
            ("at", count(&wire.at), !kind.is_permanent()),
            ("from_s", number(&wire.from_s), !drives),
            ("until_s", number(&wire.until_s), !drives),
        ] {
            if let Some(line) = line.filter(|_| !applies) {
                self.report(line, format!("{field} does not apply to {name}"));
            }
        }
    }

    fn nodes(&mut self, wire: &WireFault) -> Nodes {
        let Some(named) = &wire.nodes else {
            return Nodes::All;
        };
        if named.is_empty() {
            let line = wire.fault.referenced.line();
            self.report(line, "nodes is empty; omit nodes to select all machines");
        }
        let mut ranges = Vec::new();
        for text in named {
            match range(&text.value, self.nodes) {
                Ok(range) => ranges.push(range),
                Err(why) => {
                    let why: String = why.chars().take(200).collect();
                    self.report(text.referenced.line(), format!("nodes: {why}"));
                }
            }
        }
        Nodes::new(ranges)
    }

    /// The first chance and the number of chances in a row; `None`: every chance.
    fn steps(&mut self, wire: &WireFault) -> Option<(u64, u64)> {
        let first = wire.at.as_ref().map(|at| at.value);
        let times = wire.times.as_ref().map_or(1, |times| times.value);
        if let Some(at) = wire.at.as_ref().filter(|at| at.value == 0) {
            self.report(at.referenced.line(), "at must be at least 1");
        }
        if let Some(wire_times) = &wire.times {
            let line = wire_times.referenced.line();
            if times == 0 {
                self.report(line, "times must be at least 1");
            }
            if first.is_none() {
                self.report(line, "times needs `at`, the number of the first chance");
            }
        }
        first.map(|first| (first, times))
    }

    fn until(&mut self, wire: &WireFault) -> u64 {
        let until_ms = self.milliseconds(wire.until_s.as_ref(), "until_s", u64::MAX);
        let from_s = wire.from_s.as_ref().map_or(0.0, |from| from.value);
        if let Some(until) = wire.until_s.as_ref().filter(|until| until.value <= from_s) {
            self.report(until.referenced.line(), "until_s must be greater than from_s");
        }
        until_ms
    }

    fn method(&mut self, wire: &WireFault) -> Option<Method> {
        let named = wire.method.as_ref()?;
        let known = [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::DELETE];
        let found = known.into_iter().find(|method| method.as_str() == named.value);
        if found.is_none() {
            self.report(
                named.referenced.line(),
                "method must be GET, HEAD, POST, PATCH or DELETE",
            );
        }
        found
    }

    fn path(&mut self, wire: &WireFault, kind: Option<Kind>) -> Option<String> {
        let named = wire.path.as_ref()?;
        let prefix = match kind {
            Some(Kind::HttpLost(_)) => "/boot",
            _ => "/redfish",
        };
        if !named.value.starts_with(prefix) {
            self.report(named.referenced.line(), format!("path must begin with {prefix}"));
        }
        Some(named.value.clone())
    }

    /// A time in milliseconds; `default` if the field is absent.
    fn milliseconds(&mut self, wire: Option<&Spanned<f64>>, field: &str, default: u64) -> u64 {
        match wire {
            Some(_) => (self.number(wire, field, 0.0, 0.0..=SECONDS_MAX) * 1000.0) as u64,
            None => default,
        }
    }

    /// A number in `range`; `default` if the field is absent or outside the range.
    fn number(
        &mut self,
        wire: Option<&Spanned<f64>>,
        field: &str,
        default: f64,
        range: std::ops::RangeInclusive<f64>,
    ) -> f64 {
        let Some(wire) = wire else {
            return default;
        };
        if range.contains(&wire.value) {
            return wire.value;
        }
        let (least, most) = (range.start(), range.end());
        self.report(
            wire.referenced.line(),
            format!("{field} must be between {least} and {most}"),
        );
        default
    }
}
