//! The program `ipmitool`: its command line, the bounds of its output, and the meaning of its messages.
//!
//! The messages are those of version 1.8.19 (`src/plugins/lanplus/lanplus.c`, `lib/ipmi_sol.c` there), tried against
//! OpenIPMI's `ipmi_sim`. The program runs with `-v`, because only then it distinguishes a wrong password from a dead
//! BMC. The verbose output goes to stderr.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use crate::client::Account;
use crate::error::IpmiError;
use crate::{IpmiAddress, RequestLimiter};

/// The name of the program, found by `PATH`.
pub const PROGRAM: &str = "ipmitool";
/// Time limit of one run: a session of some ten packets, each sent up to four times.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Seconds until a packet is sent again, and the number of repetitions.
const RESEND: [&str; 4] = ["-N", "1", "-R", "3"];
/// Maximum output of a command, in bytes: a full event log has some thousand lines of 100 bytes.
const OUTPUT_MAX: usize = 1 << 20;
/// Maximum length of stderr, in bytes.
const STDERR_MAX: usize = 16 << 10;
/// Maximum length of the program's text in an error, in characters.
const MESSAGE_MAX: usize = 200;

/// The program with all arguments except the IPMI command.
pub(crate) fn command(program: &Path, address: &IpmiAddress, account: &Account) -> Command {
    let mut command = Command::new(program);
    prepare(&mut command, account);
    arguments(&mut command, address, account);
    command
}

/// The same with line-buffered output: with a pipe, the program would hold back its first line.
pub(crate) fn unbuffered(program: &Path, address: &IpmiAddress, account: &Account) -> Command {
    let mut command = Command::new("stdbuf");
    prepare(&mut command, account);
    command.arg("-oL").arg(program);
    arguments(&mut command, address, account);
    command
}

/// The child inherits only `PATH`. The rest of the environment may hold secrets or settings of ipmitool.
fn prepare(command: &mut Command, account: &Account) {
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
        .env("LC_ALL", "C")
        .env("IPMI_PASSWORD", account.password.expose_secret())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
}

fn arguments(command: &mut Command, address: &IpmiAddress, account: &Account) {
    command
        .args(["-I", "lanplus", "-H", address.host(), "-p", &address.port().to_string()])
        .args(["-U", &account.username, "-E", "-L", address.privilege().as_str()])
        .args(RESEND)
        .arg("-v");
    if let Some(cipher) = address.cipher() {
        command.args(["-C", &cipher.to_string()]);
    }
}

/// The result of a run.
struct Ended {
    is_success: bool,
    output: Vec<u8>,
    error_output: String,
}

/// Runs the program once.
pub(crate) async fn run(
    mut program: Command,
    arguments: &[&str],
    address: &IpmiAddress,
    limit: Duration,
) -> Result<String, IpmiError> {
    let command = arguments.join(" ");
    let mut child = program.args(arguments).spawn().map_err(not_run)?;
    // A caller that stops waiting drops the child, which ends the program.
    let Ok(ended) = tokio::time::timeout(limit, wait(&mut child)).await else {
        let _ = child.kill().await;
        return Err(IpmiError::TimedOut {
            bmc: address.place(),
            command,
            limit_s: limit.as_secs(),
        });
    };
    let ended = ended.map_err(|source| IpmiError::NotRun { source })?;
    if ended.output.len() > OUTPUT_MAX {
        return Err(IpmiError::Unreadable {
            bmc: address.place(),
            command,
            answer: format!("more than {OUTPUT_MAX} bytes"),
        });
    }
    if ended.is_success {
        return Ok(String::from_utf8_lossy(&ended.output).into_owned());
    }
    Err(
        known_error(&ended.error_output, &command, address).unwrap_or_else(|| IpmiError::Failed {
            bmc: address.place(),
            command,
            words: last_lines(&ended.error_output, &ended.output),
        }),
    )
}

/// The error for a program that did not start.
pub(crate) fn not_run(source: io::Error) -> IpmiError {
    match source.kind() {
        io::ErrorKind::NotFound => IpmiError::NotInstalled,
        _ => IpmiError::NotRun { source },
    }
}

async fn wait(child: &mut Child) -> io::Result<Ended> {
    let (mut output, mut error_output) = (Vec::new(), Vec::new());
    let stdout = read(child.stdout.take(), OUTPUT_MAX, &mut output);
    let stderr = read(child.stderr.take(), STDERR_MAX, &mut error_output);
    let (out, err) = tokio::join!(stdout, stderr);
    if (out?, err?) != (true, true) {
        child.start_kill()?;
    }
    let status = child.wait().await?;
    Ok(Ended {
        is_success: status.success(),
        output,
        error_output: String::from_utf8_lossy(&error_output).into_owned(),
    })
}

/// Reads at most `most` + 1 bytes. Returns true if the stream ended within `most` bytes. Closes the stream in either
/// case.
async fn read(stream: Option<impl AsyncRead + Unpin>, most: usize, into: &mut Vec<u8>) -> io::Result<bool> {
    if let Some(stream) = stream {
        stream.take(most as u64 + 1).read_to_end(into).await?;
    }
    Ok(into.len() <= most)
}

/// The known error in the messages on stderr. Specific messages are checked first, because "no session" follows most of
/// them.
pub(crate) fn known_error(error_output: &str, command: &str, address: &IpmiAddress) -> Option<IpmiError> {
    let has = |texts: &[&str]| texts.iter().any(|text| error_output.contains(text));
    let bmc = address.place();
    if has(&[
        "RAKP 2 HMAC is invalid",
        "unauthorized name",
        "Invalid user name",
        "unauthorized GUID",
    ]) {
        return Some(IpmiError::Refused { bmc, hold_s: 0 });
    }
    if has(&["unauthorized role", "invalid role", "Set Session Privilege Level to"]) {
        let privilege = address.privilege().as_str();
        return Some(IpmiError::Privilege { bmc, privilege });
    }
    let no_cipher = [
        "invalid authentication algorithm",
        "invalid integrity algorithm",
        "invalid confidentiality algorithm",
        "no matching integrity payload",
        "no matching authentication payload",
        "no cipher suite match",
        "No matching cipher suite",
    ];
    if has(&no_cipher) {
        return Some(IpmiError::Cipher { bmc });
    }
    if has(&["insufficient resources"]) {
        let what = "all of its sessions are in use";
        return Some(IpmiError::Busy { bmc, what });
    }
    if has(&["SOL payload already active on another session"]) {
        let what = "another client has the serial console open";
        return Some(IpmiError::Busy { bmc, what });
    }
    if has(&["Address lookup for"]) {
        return Some(IpmiError::NoSuchHost { bmc });
    }
    let no_session = [
        "Unable to establish IPMI v2",
        "Unable to establish LAN session",
        "Could not open socket",
        "Error issuing Get Channel Authentication Capabilities",
    ];
    if has(&no_session) {
        return Some(IpmiError::NoAnswer { bmc });
    }
    if error_output.contains("password is longer than") {
        return Some(IpmiError::Failed {
            bmc,
            command: command.to_owned(),
            words: "ipmitool does not support a password of this length".to_owned(),
        });
    }
    None
}

/// The last line that the program printed.
pub(crate) fn last_lines(error_output: &str, output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output);
    let last = |text: &str| {
        let mut lines = text.lines().map(str::trim);
        lines
            .rfind(|line| !line.is_empty() && !is_noise(line))
            .map(str::to_owned)
    };
    let words = last(error_output).or_else(|| last(&output)).unwrap_or_default();
    if words.is_empty() {
        return "ipmitool reports no reason".to_owned();
    }
    excerpt(&words)
}

/// Lines that `-v` prints on every run.
fn is_noise(line: &str) -> bool {
    let begins = [
        "Loading IANA",
        "Running Get ",
        "Discovered IPMB",
        "Unable to Get Channel Cipher Suites",
    ];
    begins.iter().any(|begin| line.starts_with(begin)) || line == "Invalid completion code received: Invalid command"
}

/// The beginning of a text, without control characters, for a log.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars()
        .take(MESSAGE_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Remembers a refused account, and adds the hold time to the error.
pub(crate) fn record_error(error: IpmiError, limiter: &RequestLimiter, account: u64) -> IpmiError {
    match error {
        IpmiError::Refused { bmc, .. } => {
            let hold_s = limiter.record_refusal(&bmc, account).as_secs();
            IpmiError::Refused { bmc, hold_s }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error_output: &str) -> String {
        let address: IpmiAddress = "ipmi://bmc".parse().unwrap();
        known_error(error_output, "power status", &address).map_or_else(String::new, |error| error.to_string())
    }

    /// Messages of ipmitool 1.8.19 for ipmi_sim 2.0.33 and for an address without a BMC.
    #[test]
    fn error_messages_are_classified() {
        let no_session = "Error: Unable to establish IPMI v2 / RMCP+ session";
        for (first, word) in [
            ("> RAKP 2 HMAC is invalid", "refused user name or password"),
            (
                "RAKP 2 message indicates an error : unauthorized name",
                "refused user name or password",
            ),
            (
                "Error in open session response message : invalid authentication algorithm",
                "cipher suite",
            ),
            (
                "Error in open session response message : insufficient resources for session",
                "sessions are in use",
            ),
            (
                "RAKP 2 message indicates an error : unauthorized role or privilege level requested",
                "does not have the privilege ADMINISTRATOR",
            ),
            ("Get Auth Capabilities error", "does not answer"),
            (
                "Address lookup for bmc failed\nCould not open socket!",
                "cannot be resolved",
            ),
        ] {
            let error = of(&format!("Loading IANA PEN Registry...\n{first}\n{no_session}\n"));
            assert!(error.contains(word) && error.contains("bmc:623"), "{first}: {error}");
        }
        assert_eq!(of("something else"), "");
    }

    #[test]
    fn the_message_is_the_last_meaningful_line() {
        let error_output = "Set Chassis Power Control to Up/On failed: Command not supported in present state\n\
                          Discovered IPMB address 0x0\n\n";
        assert!(last_lines(error_output, b"x").contains("not supported in present state"));
        assert_eq!(
            last_lines("Discovered IPMB address 0x0", b" Device \x1bnot present\n"),
            "Device  not present"
        );
        assert!(last_lines("", b"").contains("reports no reason"));
    }
}
