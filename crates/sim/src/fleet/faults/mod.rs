//! The faults of a fleet: a script of faults, each for some machines, by chance or at an exact step.

mod boot;
mod nodes;
mod script;
#[cfg(test)]
mod tests;

pub use script::{Script, ScriptError, ScriptFault};

use super::dice::{Dice, Purpose};
use super::drive::DriveFault;
use http::Method;
use nodes::Nodes;
use rackwright_sim_bmc::{BadAnswer, RequestFault, RequestLine};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// One line of a script.
#[derive(Debug, Clone, PartialEq)]
struct Rule {
    kind: Kind,
    nodes: Nodes,
    /// The first occasion at which it occurs, counting from 1, and the number of occasions in a row; none: at every one.
    steps: Option<(u64, u64)>,
    /// The probability at each occasion.
    probability: f64,
    /// In milliseconds of the fleet's time.
    from_ms: u64,
    until_ms: u64,
    /// For requests: only those with this method and this beginning of the path.
    method: Option<Method>,
    path: Option<String>,
}

/// The kind of fault.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Down,
    Slow(Duration),
    Wrong(BadAnswer),
    SessionsExhausted,
    Unavailable(u32),
    PowerStuck,
    /// A start loses the pending BIOS settings.
    SettingsIgnored,
    /// BIOS settings are refused, because others are pending.
    SettingsBusy,
    PostHang,
    WrongInventory(Part),
    /// The installed system never answers.
    HostNeverUp,
    /// A unit of the installed system has failed.
    HostDegraded,
    /// The drives are read only this fast, in decimal megabytes a second.
    SlowDisk(f64),
    /// All network interfaces carry only this much, in Gbit/s.
    SlowNic(f64),
    /// One adapter of the fabric, by its index in the profile, carries only this much, in Gbit/s.
    SlowCable(u8, f64),
    Drives(DriveFault),
    /// Seconds by which the BMC's clock is ahead.
    ClockSkew(i64),
    /// DHCP messages of firmware and their answers.
    DhcpLost(Lost),
    /// Packets between firmware and the TFTP server.
    TftpLost(Lost),
    /// Files that firmware fetches by HTTP.
    HttpLost(Lost),
    AgentCrash(During, Then),
    /// The agent is cut off for a while, in the machine's time.
    HeartbeatLost(Duration),
    /// A connection to the image store ends after this many bytes of answers.
    ImageCut(u64),
    /// Writing an image fails.
    WriteErrors,
}

/// The part of an exchange that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    Request,
    /// The server has done the work, but its answer is lost.
    Answer,
}

/// The agent's activity when it crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum During {
    Heartbeat,
    Write,
    Erase,
}

/// The fate of a machine after its agent has crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The agent is restarted, as the ramdisk's PID 1 does.
    Restarts,
    /// The machine stays up without it.
    StaysDead,
    /// The kernel panics, and resets the machine.
    Panics,
}

/// A part of which the machine lacks one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Cpu,
    Gpu,
    Dimm,
    Nic,
    Drive,
}

impl Kind {
    /// Whether a request to the BMC is an occasion for it.
    fn is_about_requests(self) -> bool {
        matches!(
            self,
            Self::Down | Self::Slow(_) | Self::Wrong(_) | Self::SessionsExhausted | Self::Unavailable(_)
        )
    }

    /// Whether the machine has it permanently or not at all.
    fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::WrongInventory(_)
                | Self::SlowDisk(_)
                | Self::SlowNic(_)
                | Self::SlowCable(..)
                | Self::Drives(_)
                | Self::ClockSkew(_)
        )
    }
}

impl Rule {
    fn applies(&self, node: usize, now_ms: u64) -> bool {
        self.nodes.contain(node) && (self.from_ms..self.until_ms).contains(&now_ms)
    }

    fn is_about(&self, request_line: RequestLine<'_>) -> bool {
        let opens_session = *request_line.method == Method::POST
            && request_line.path.starts_with("/redfish/v1/SessionService/Sessions");
        self.kind.is_about_requests()
            && self.method.as_ref().is_none_or(|method| method == request_line.method)
            && self
                .path
                .as_ref()
                .is_none_or(|path| request_line.path.starts_with(path.as_str()))
            && (self.kind != Kind::SessionsExhausted || opens_session)
    }

    /// Whether it occurs every time.
    fn is_unconditional(&self) -> bool {
        self.steps.is_none() && self.probability >= 1.0 && self.method.is_none() && self.path.is_none()
    }
}

/// The number of occasions of each rule at one machine, and the number of faults that occurred.
#[derive(Debug, Default)]
pub(super) struct Chances {
    attempts: Box<[AtomicU32]>,
    triggered: AtomicU32,
}

impl Chances {
    pub(super) fn new(script: &Script) -> Self {
        Self {
            attempts: script.rules.iter().map(|_| AtomicU32::new(0)).collect(),
            triggered: AtomicU32::new(0),
        }
    }

    /// The number of faults that occurred. Permanent faults do not count.
    pub(super) fn triggered(&self) -> u32 {
        self.triggered.load(Ordering::Relaxed)
    }
}

/// One machine at one moment, as input for a script.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) node: usize,
    pub(super) now_ms: u64,
    pub(super) dice: Dice,
    pub(super) chances: &'a Chances,
}

impl Script {
    /// The delay of a request and its fate.
    pub(super) fn request(&self, request_line: RequestLine<'_>, moment: Moment<'_>) -> (Duration, RequestFault) {
        let (mut delay, mut request_fault) = (Duration::ZERO, RequestFault::None);
        for (index, rule) in self.rules.iter().enumerate() {
            if !rule.is_about(request_line) || !self.triggers(index, rule, moment) {
                continue;
            }
            let triggered = match rule.kind {
                Kind::Slow(by) => {
                    delay += by;
                    continue;
                }
                Kind::Down => RequestFault::HangUp,
                Kind::Wrong(bad_answer) => RequestFault::BadAnswer(bad_answer),
                Kind::SessionsExhausted => RequestFault::SessionsFull,
                Kind::Unavailable(retry_after_s) => RequestFault::Unavailable { retry_after_s },
                // Not a fault of requests.
                _ => continue,
            };
            // The first fault that occurs prevails.
            if request_fault == RequestFault::None {
                request_fault = triggered;
            }
        }
        (delay, request_fault)
    }

    /// Whether the BMC refuses all connections.
    pub(super) fn is_down(&self, moment: Moment<'_>) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.kind == Kind::Down && rule.is_unconditional() && rule.applies(moment.node, moment.now_ms))
    }

    /// Whether an accepted reset has no effect.
    pub(super) fn sticks(&self, moment: Moment<'_>) -> bool {
        self.any(Kind::PowerStuck, moment)
    }

    /// Whether this start loses the pending settings.
    pub(super) fn ignores_settings(&self, moment: Moment<'_>) -> bool {
        self.any(Kind::SettingsIgnored, moment)
    }

    /// Whether a change of settings is refused.
    pub(super) fn settings_are_busy(&self, moment: Moment<'_>) -> bool {
        self.any(Kind::SettingsBusy, moment)
    }

    /// Whether POST does not end.
    pub(super) fn hangs(&self, moment: Moment<'_>) -> bool {
        self.any(Kind::PostHang, moment)
    }

    /// Whether the installed system that has booted never answers.
    pub(super) fn host_stays_silent(&self, moment: Moment<'_>) -> bool {
        self.any(Kind::HostNeverUp, moment)
    }

    /// Whether the installed system that has booted lacks a unit.
    pub(super) fn host_is_degraded(&self, moment: Moment<'_>) -> bool {
        self.any(Kind::HostDegraded, moment)
    }

    /// The read speed of slow drives, in decimal megabytes a second; the slowest prevails.
    pub(super) fn read_mb_per_s(&self, moment: Moment<'_>) -> Option<f64> {
        let rules = self.rules.iter().enumerate();
        let rates = rules.filter_map(|(index, rule)| match rule.kind {
            Kind::SlowDisk(rate) => {
                let has = is_drawn(index, rule, moment, 0) && rule.applies(moment.node, moment.now_ms);
                has.then_some(rate)
            }
            _ => None,
        });
        rates.reduce(f64::min)
    }

    /// The reduced rate, in Gbit/s, of an adapter of the fabric (by its index in the profile) or of the machine's other
    /// network (none); the slowest prevails.
    pub(super) fn network_gbit_per_s(&self, moment: Moment<'_>, adapter: Option<u8>) -> Option<f64> {
        let rules = self.rules.iter().enumerate();
        let rates = rules.filter_map(|(index, rule)| {
            let rate = match rule.kind {
                Kind::SlowNic(rate) => rate,
                Kind::SlowCable(slow, rate) if adapter == Some(slow) => rate,
                _ => return None,
            };
            let has = is_drawn(index, rule, moment, 0) && rule.applies(moment.node, moment.now_ms);
            has.then_some(rate)
        });
        rates.reduce(f64::min)
    }

    /// The parts of which the machine lacks one. Every call returns the same.
    pub(super) fn missing_parts(&self, moment: Moment<'_>) -> impl Iterator<Item = Part> {
        let rules = self.rules.iter().enumerate();
        rules.filter_map(move |(index, rule)| match rule.kind {
            Kind::WrongInventory(part) => {
                let is_drawn = is_drawn(index, rule, moment, 0);
                (is_drawn && rule.applies(moment.node, moment.now_ms)).then_some(part)
            }
            _ => None,
        })
    }

    /// Seconds by which the BMC's clock is ahead.
    pub(super) fn clock_skew_s(&self, moment: Moment<'_>) -> i64 {
        let rules = self.rules.iter().enumerate();
        let skews = rules.filter_map(|(index, rule)| match rule.kind {
            Kind::ClockSkew(skew_s) => {
                let has = is_drawn(index, rule, moment, 0) && rule.applies(moment.node, moment.now_ms);
                has.then_some(skew_s)
            }
            _ => None,
        });
        skews.fold(0, i64::saturating_add)
    }

    /// The fault of the machine's drives; the first applicable fault of the script prevails.
    pub(super) fn drive_fault(&self, moment: Moment<'_>) -> DriveFault {
        let rules = self.rules.iter().enumerate();
        let mut found = rules.filter_map(|(index, rule)| match rule.kind {
            Kind::Drives(drive_fault) => {
                let has = rule.nodes.contain(moment.node) && is_drawn(index, rule, moment, 0);
                has.then_some(drive_fault)
            }
            _ => None,
        });
        found.next().unwrap_or(DriveFault::None)
    }

    fn any(&self, kind: Kind, moment: Moment<'_>) -> bool {
        self.first(moment, |rule| (rule.kind == kind).then_some(())).is_some()
    }

    /// The value of the first rule that occurs, among those for which `says` returns a value. The occasion counts for
    /// each of them, even after an earlier one has occurred.
    fn first<T>(&self, moment: Moment<'_>, value: impl Fn(&Rule) -> Option<T>) -> Option<T> {
        let rules = self.rules.iter().enumerate();
        let outcomes = rules.filter_map(|(index, rule)| value(rule).filter(|_| self.triggers(index, rule, moment)));
        outcomes.reduce(|first, _| first)
    }

    fn triggers(&self, index: usize, rule: &Rule, moment: Moment<'_>) -> bool {
        if !rule.applies(moment.node, moment.now_ms) {
            return false;
        }
        let Some(chances) = moment.chances.attempts.get(index) else {
            return false;
        };
        let count = u64::from(chances.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        let step = rule
            .steps
            .is_none_or(|(first, times)| count >= first && count - first < times);
        let triggered = step && is_drawn(index, rule, moment, count);
        if triggered {
            moment.chances.triggered.fetch_add(1, Ordering::Relaxed);
            tracing::info!(node = moment.node, fault = index, count, kind = ?rule.kind, "a fault is triggered");
        }
        triggered
    }
}

fn is_drawn(index: usize, rule: &Rule, moment: Moment<'_>, count: u64) -> bool {
    let purpose = Purpose::Fault(u32::try_from(index).unwrap_or(u32::MAX));
    moment.dice.fraction(moment.node, purpose, count) < rule.probability
}
