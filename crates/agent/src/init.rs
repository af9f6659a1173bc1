//! The agent as PID 1 of the ramdisk.
//!
//! PID 1 stays small. It mounts file systems, loads modules, brings the network up, starts the agent proper as a child, and
//! then only reaps. An agent that crashes is restarted and reports its job as interrupted. If the agent cannot continue, or
//! crashes too often, the machine is switched off or reset. Nothing here waits for ever: every failure ends in [`give_up`],
//! and if PID 1 itself dies, the kernel panics and resets.
//!
//! A thread loads the modules, because the NIC's driver is often among the first and its link takes seconds. The agent's
//! standard input is a pipe: it receives the failed modules, and its end means that all modules are loaded.

use std::fs::{self, File, OpenOptions};
use std::io::{PipeWriter, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::cmdline::{self, OnFatal, Settings};
use crate::console::{line, mark};
use crate::jobs::power::{KernelPower, Power as _, PowerAction};
use crate::modules;
use crate::net::dhcp;
use crate::net::nic::{self, ActiveNic};
use crate::root::SysRoot;

/// Exit status of an agent that must not be restarted.
pub const EXIT_FATAL: u8 = 3;
/// Maximum number of restarts of a crashed agent.
const RESTARTS: u32 = 5;
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Time that the last message stays on the console.
const FATAL_MESSAGE_TIME: Duration = Duration::from_secs(10);
/// Seconds until the kernel resets after a panic (also after the death of PID 1).
const PANIC_RESET_S: &str = "30";

/// Source, target, type and flags of the first mounts.
const MOUNTS: [(&str, &str, &str, MsFlags); 6] = [
    ("proc", "/proc", "proc", QUIET),
    ("sysfs", "/sys", "sysfs", QUIET),
    // Contains the firmware's event log.
    ("securityfs", "/sys/kernel/security", "securityfs", QUIET),
    ("devtmpfs", "/dev", "devtmpfs", MsFlags::MS_NOSUID),
    ("tmpfs", "/run", "tmpfs", QUIET),
    ("tmpfs", "/tmp", "tmpfs", QUIET),
];
const QUIET: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);
const EFIVARS: &str = "/sys/firmware/efi/efivars";

/// Runs until the machine goes down.
pub fn run() -> ! {
    let root = SysRoot::real();
    let mounted: Vec<String> = MOUNTS
        .iter()
        .filter_map(|(source, target, kind, flags)| mount_one(source, target, kind, *flags).err())
        .collect();
    open_console();
    mark(&root, "userspace");
    for fault in mounted {
        line(&fault);
    }
    // Without this the machine would hang after the death of PID 1.
    let _ = fs::write("/proc/sys/kernel/panic", PANIC_RESET_S);
    let cmdline = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let settings = match cmdline::parse(&cmdline) {
        Ok(settings) => settings,
        Err(error) => give_up(&root, OnFatal::PowerOff, &error.to_string()),
    };
    let on_fatal = settings.on_fatal;
    std::panic::set_hook(Box::new(move |panic| {
        give_up(&SysRoot::real(), on_fatal, &format!("PID 1: {panic}"))
    }));
    let why = boot(&root, settings);
    give_up(&root, on_fatal, &why)
}

/// Brings the machine up and supervises the agent. Returns the reason why it cannot continue.
fn boot(root: &SysRoot, settings: Settings) -> String {
    let (reader, writer) = match std::io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return format!("pipe: {error}"),
    };
    let modules_root = root.clone();
    thread::spawn(move || load_modules(&modules_root, writer));
    let up = match nic::bring_up(root, settings.mac, settings.addressing) {
        Ok(up) => up,
        Err(error) => return error.to_string(),
    };
    mark(root, "network");
    line(&format!(
        "{} ({}) has {}/{}",
        up.nic, up.mac, up.addressing.address, up.addressing.prefix
    ));
    keep_lease(up);
    let mut modules = Some(reader);
    // At a restart the loading of modules has ended or is stuck.
    let run = || run_agent(modules.take().map_or_else(Stdio::null, Stdio::from));
    supervise(run, |fault| {
        line(fault);
        #[expect(clippy::disallowed_methods, reason = "PID 1 runs no async code")]
        thread::sleep(RESTART_PAUSE);
    })
}

fn mount_one(source: &str, target: &str, kind: &str, flags: MsFlags) -> Result<(), String> {
    let _ = fs::create_dir_all(target);
    match mount(Some(source), target, Some(kind), flags, None::<&str>) {
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(error) => Err(format!("mounting {target}: {}", error.desc())),
    }
}

/// The kernel opened the console for PID 1 only if the ramdisk contained its node. devtmpfs now provides the node.
fn open_console() {
    let Ok(console) = OpenOptions::new().read(true).write(true).open("/dev/console") else {
        return;
    };
    let _ = nix::unistd::dup2_stdin(&console);
    let _ = nix::unistd::dup2_stdout(&console);
    let _ = nix::unistd::dup2_stderr(&console);
}

fn load_modules(root: &SysRoot, mut agent: PipeWriter) {
    modules::load(Path::new(modules::LIST), |fault| {
        line(&format!("module not loaded: {fault}"));
        // The agent may not be running; the console shows the line in any case.
        let _ = writeln!(agent, "{fault}");
    });
    if root.is_uefi()
        && let Err(fault) = mount_one("efivarfs", EFIVARS, "efivarfs", QUIET)
    {
        line(&format!("{fault}; boot entries cannot be set"));
    }
    mark(root, "modules");
}

/// Renews the lease at half of its time. If DHCP gives another address or the renewal fails, reports that and stops.
fn keep_lease(up: ActiveNic) {
    let (Some(mut lease), std::net::IpAddr::V4(address)) = (up.lease, up.addressing.address) else {
        return;
    };
    thread::spawn(move || {
        loop {
            #[expect(clippy::disallowed_methods, reason = "the thread of the lease does nothing else")]
            thread::sleep(lease.time / 2);
            match dhcp::obtain(&up.nic, up.mac, Some(address), Instant::now() + lease.time / 2) {
                Ok(again) if again.addressing.address == up.addressing.address => lease = again,
                Ok(again) => {
                    return line(&format!(
                        "DHCP now offers {}; this machine keeps {address}",
                        again.addressing.address
                    ));
                }
                Err(error) => return line(&format!("lease not renewed: {error}")),
            }
        }
    });
}

/// Runs the agent, and runs it again after a crash. `before_restart` receives each crash that a restart follows. Returns the
/// reason for the last end.
fn supervise(mut run: impl FnMut() -> Result<ExitStatus, String>, mut before_restart: impl FnMut(&str)) -> String {
    let mut crashes = 0;
    loop {
        let status = match run() {
            Ok(status) => status,
            Err(why) => return why,
        };
        if status.code() == Some(i32::from(EXIT_FATAL)) {
            return "the agent cannot continue".to_owned();
        }
        crashes += 1;
        if crashes > RESTARTS {
            return format!("the agent crashed {crashes} times, the last time with {status}");
        }
        before_restart(&format!("the agent ended ({status}); restart {crashes} of {RESTARTS}"));
    }
}

/// Starts the agent with this standard input, and reaps until the agent ends.
fn run_agent(input: Stdio) -> Result<ExitStatus, String> {
    let child = Command::new("/proc/self/exe")
        .arg("run")
        .arg("--modules-on-stdin")
        .stdin(input)
        .spawn()
        .map_err(|error| format!("starting the agent: {error}"))?;
    Ok(reap_until(Pid::from_raw(child.id().cast_signed())))
}

/// Reaps all ended processes until the agent ends.
fn reap_until(agent: Pid) -> ExitStatus {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == agent => return ExitStatus::from_raw(code << 8),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == agent => return ExitStatus::from_raw(signal as i32),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return ExitStatus::from_raw(0),
        }
    }
}

/// Prints the reason, then switches off or resets the machine, if necessary by a kernel panic.
fn give_up(root: &SysRoot, on_fatal: OnFatal, why: &str) -> ! {
    let action = match on_fatal {
        OnFatal::PowerOff => PowerAction::PowerOff,
        OnFatal::Reset => PowerAction::Reset,
    };
    mark(root, "fatal");
    line(&format!(
        "rackwright-agent: {why}\nrackwright-agent: {action:?} in {} seconds",
        FATAL_MESSAGE_TIME.as_secs()
    ));
    if let Ok(mut log) = File::options().write(true).open("/dev/kmsg") {
        let _ = writeln!(log, "rackwright-agent: {why}");
    }
    #[expect(clippy::disallowed_methods, reason = "PID 1 runs no async code")]
    thread::sleep(FATAL_MESSAGE_TIME);
    let failed = KernelPower::new(&root.proc).perform(action);
    line(&format!("rackwright-agent: {failed:?}"));
    // The end of PID 1 makes the kernel panic and reset.
    #[expect(clippy::disallowed_methods, reason = "PID 1 has nothing left to drop")]
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages before the restarts, and the reason for the last end, of an agent that ends with these codes.
    fn ends(codes: impl IntoIterator<Item = i32>) -> (Vec<String>, String) {
        let (mut codes, mut messages) = (codes.into_iter(), Vec::new());
        let run = || {
            let status = codes.next().map(|code| ExitStatus::from_raw(code << 8));
            status.ok_or_else(|| "the agent is started once too often".to_owned())
        };
        let why = supervise(run, |fault| messages.push(fault.to_owned()));
        (messages, why)
    }

    #[test]
    fn each_restart_is_counted_once_and_the_last_crash_announces_none() {
        let (messages, why) = ends([1; 6]);
        let expected: Vec<String> = (1..=5)
            .map(|n| format!("the agent ended (exit status: 1); restart {n} of 5"))
            .collect();
        assert_eq!(messages, expected);
        assert_eq!(why, "the agent crashed 6 times, the last time with exit status: 1");
    }

    #[test]
    fn an_agent_that_cannot_continue_is_not_restarted() {
        let (messages, why) = ends([1, i32::from(EXIT_FATAL)]);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(why, "the agent cannot continue");
    }
}
