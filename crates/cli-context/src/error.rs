//! All errors, with the sentence for the operator and the exit code for scripts.

use std::fmt::{self, Write as _};
use std::io;
use std::path::Path;

use prost::Message as _;
use rackwright_api::google::rpc;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, RpcStatusExt as _, StatusExt as _};

use crate::paint::{Paint, Tone};

/// Exit codes, as listed in `docs/cli.md`.
pub mod exit {
    /// Any error without its own code.
    pub const OTHER: u8 = 1;
    /// Wrong arguments or a request the server calls malformed.
    pub const USAGE: u8 = 2;
    /// The named thing does not exist.
    pub const NOT_FOUND: u8 = 3;
    /// The thing exists but its state, version or idempotency key does not allow the request.
    pub const CONFLICT: u8 = 4;
    /// Not logged in, not allowed, or the server could not prove its identity.
    pub const DENIED: u8 = 5;
    /// The server cannot be reached or did not answer in time.
    pub const UNAVAILABLE: u8 = 6;
    /// The request was accepted, but the operation failed during the wait.
    pub const OPERATION_FAILED: u8 = 7;
}

/// One fault of an input file. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// The errors with which a command can end.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The arguments or their combination are invalid.
    #[error("{message}")]
    Usage { message: String, hint: String },
    /// No resource matches a selection.
    #[error("{0}")]
    NotFound(String),
    /// All faults of the input files.
    #[error("{} in the input, nothing was sent", plural(.0.len(), "fault"))]
    Manifest(Vec<Fault>),
    /// A file, the terminal or the network's sockets.
    #[error("cannot {doing}: {source}")]
    Io { doing: String, source: io::Error },
    /// A file or directory that an argument names, or standard input: it cannot be used, and nothing was done.
    #[error("cannot {doing}: {source}")]
    Given { doing: String, source: io::Error },
    /// An error of the contexts or credentials on this machine.
    #[error("{message}")]
    Credential { message: String, hint: String },
    /// The server could not prove its identity.
    #[error("{message}")]
    Untrusted { message: String, hint: String },
    /// The server answered with an error.
    #[error("cannot {doing}: {}", sentence(.status.message(), .status.code()))]
    Rpc { doing: String, status: Box<Status> },
    /// No endpoint could be connected to.
    #[error("cannot {doing}: no server can be reached")]
    Unreachable {
        doing: String,
        tried: Vec<(String, String)>,
    },
    /// The time limit of a wait was exceeded.
    #[error("{what} is not done after {after}")]
    TimedOut { what: String, after: String, hint: String },
    /// An operation failed during the wait.
    #[error("{what} failed after {after}: {}", sentence(&.error.message, Code::from(.error.code)))]
    OperationFailed {
        what: String,
        after: String,
        error: Box<rpc::Status>,
    },
    /// A node reached a state from which it does not reach `--until` by itself.
    #[error("{what}")]
    Missed { what: String, hint: String },
    /// An error of a BMC that was accessed without a control plane.
    #[error("{message}")]
    Bmc { message: String, hint: String, exit: u8 },
    /// Several errors; each is shown, and the first one gives the exit code.
    #[error("{} errors occurred", .0.len())]
    Several(Vec<CliError>),
    /// The server's answer is unusable.
    #[error("the server's answer cannot be used: {0}")]
    BadAnswer(String),
}

impl CliError {
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage {
            message: message.into(),
            hint: hint.into(),
        }
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound(message.into())
    }

    pub fn credential(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Credential {
            message: message.into(),
            hint: hint.into(),
        }
    }

    pub fn untrusted(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Untrusted {
            message: message.into(),
            hint: hint.into(),
        }
    }

    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            doing: doing.into(),
            source,
        }
    }

    pub fn file(verb: &str, path: &Path, source: io::Error) -> Self {
        Self::io(format!("{verb} {}", path.display()), source)
    }

    /// As [`file`](Self::file), for a file or directory that an argument names, before anything is done.
    pub fn given(verb: &str, path: &Path, source: io::Error) -> Self {
        Self::Given {
            doing: format!("{verb} {}", path.display()),
            source,
        }
    }

    pub fn rpc(doing: impl fmt::Display, status: Status) -> Self {
        Self::Rpc {
            doing: doing.to_string(),
            status: Box::new(status),
        }
    }

    /// Ok for no error, the error itself for one, `Several` for more.
    pub fn gather(mut errors: Vec<CliError>) -> Result<(), CliError> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }

    /// Whether the reader of our output has gone away (`rackwright ... | head`): no message is needed.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The server's status code, if the error came from the server.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Rpc { status, .. } => Some(status.code()),
            _ => None,
        }
    }

    /// Whether the server could not be reached or did not answer.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
            || matches!(self.code(), Some(Code::Unavailable | Code::DeadlineExceeded))
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. } | Self::Manifest(_) | Self::Given { .. } => exit::USAGE,
            Self::NotFound(_) => exit::NOT_FOUND,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Io { .. } | Self::BadAnswer(_) => exit::OTHER,
            Self::Bmc { exit, .. } => *exit,
            Self::Credential { .. } | Self::Untrusted { .. } => exit::DENIED,
            Self::Unreachable { .. } | Self::TimedOut { .. } => exit::UNAVAILABLE,
            Self::OperationFailed { .. } | Self::Missed { .. } => exit::OPERATION_FAILED,
            Self::Several(errors) => errors.first().map_or(exit::OTHER, Self::exit_code),
            Self::Rpc { status, .. } => match status.code() {
                Code::InvalidArgument => exit::USAGE,
                Code::NotFound => exit::NOT_FOUND,
                Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition | Code::OutOfRange => exit::CONFLICT,
                Code::PermissionDenied | Code::Unauthenticated => exit::DENIED,
                Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted => exit::UNAVAILABLE,
                _ => exit::OTHER,
            },
        }
    }

    /// The sentence, its details and the hint, ready for stderr.
    pub fn render(&self, paint: Paint) -> String {
        let mut out = String::new();
        if let Self::Several(errors) = self {
            for error in errors {
                out.push_str(&error.render(paint));
            }
            return out;
        }
        let _ = writeln!(out, "{} {self}", paint.tone(Tone::Bad, "error:"));
        for line in self.details() {
            let _ = writeln!(out, "  {line}");
        }
        for hint in self.hints() {
            let _ = writeln!(out, "  {} {hint}", paint.tone(Tone::Dim, "hint:"));
        }
        out
    }

    fn details(&self) -> Vec<String> {
        match self {
            Self::Manifest(faults) => faults.iter().map(Fault::to_string).collect(),
            Self::Unreachable { tried, .. } => tried.iter().map(|(server, why)| format!("{server}: {why}")).collect(),
            Self::Rpc { status, .. } => detail_lines(&status.get_error_details(), status.message()),
            Self::OperationFailed { error, .. } => detail_lines(&operation_details(error), &error.message),
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Usage { hint, .. }
            | Self::Credential { hint, .. }
            | Self::Untrusted { hint, .. }
            | Self::TimedOut { hint, .. }
            | Self::Missed { hint, .. }
            | Self::Bmc { hint, .. }
                if !hint.is_empty() =>
            {
                vec![hint.clone()]
            }
            Self::Rpc { status, .. } => {
                let hints = server_hints(&status.get_error_details());
                if hints.is_empty() {
                    own_hint(status.code()).into_iter().collect()
                } else {
                    hints
                }
            }
            Self::Unreachable { .. } => {
                vec!["check that rackwrightd runs there and that no firewall blocks TCP".to_owned()]
            }
            Self::OperationFailed { error, .. } => server_hints(&operation_details(error)),
            _ => Vec::new(),
        }
    }
}

/// The error details of an operation's `google.rpc.Status`, in the form that `tonic-types` reads.
fn operation_details(error: &rpc::Status) -> ErrorDetails {
    tonic_types::Status::decode(error.encode_to_vec().as_slice())
        .map(|status| status.get_error_details())
        .unwrap_or_default()
}

/// Fields, preconditions and devices that the server names, one per line.
fn detail_lines(details: &ErrorDetails, message: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for violation in details
        .bad_request()
        .map(|b| b.field_violations.as_slice())
        .unwrap_or_default()
    {
        lines.push(format!("{}: {}", violation.field, violation.description));
    }
    for violation in details
        .precondition_failure()
        .map(|p| p.violations.as_slice())
        .unwrap_or_default()
    {
        lines.push(format!("{}: {}", violation.subject, violation.description));
    }
    if let Some(info) = details.error_info() {
        let mut pairs: Vec<_> = info.metadata.iter().collect();
        pairs.sort();
        for (key, value) in pairs {
            if key != "hint" && !message.contains(value.as_str()) {
                lines.push(format!("{key}: {value}"));
            }
        }
    }
    lines.retain(|line| !message.ends_with(line.as_str()));
    lines.dedup();
    lines
}

fn server_hints(details: &ErrorDetails) -> Vec<String> {
    let mut hints = Vec::new();
    if let Some(hint) = details.error_info().and_then(|info| info.metadata.get("hint")) {
        hints.push(hint.clone());
    }
    if let Some(localized) = details.localized_message() {
        hints.push(localized.message.clone());
    }
    for link in details.help().map(|h| h.links.as_slice()).unwrap_or_default() {
        hints.push(if link.url.is_empty() {
            link.description.clone()
        } else {
            format!("{} ({})", link.description, link.url)
        });
    }
    hints.retain(|hint| !hint.is_empty());
    hints.dedup();
    hints
}

/// The hint for a code if the server gives none.
fn own_hint(code: Code) -> Option<String> {
    let hint = match code {
        Code::Unauthenticated => {
            "ask an operator for a token (`rackwright token create`) and run `rackwright login` with it"
        }
        Code::PermissionDenied => {
            "`rackwright whoami` shows your role; an operator can change it with `member set-role`"
        }
        Code::Aborted => "the resource changed after it was read: read it again, then repeat the command",
        Code::ResourceExhausted => "the server is busy: try again in a moment",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn sentence(message: &str, code: Code) -> String {
    if message.is_empty() {
        code.description().to_owned()
    } else {
        message.to_owned()
    }
}

/// `1 fault`, `2 faults`, `3 entries`, `4 switches`.
pub fn plural(count: usize, noun: &str) -> String {
    if count == 1 {
        return format!("1 {noun}");
    }
    // Two keys, but two entries.
    match noun
        .strip_suffix('y')
        .filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']))
    {
        Some(stem) => format!("{count} {stem}ies"),
        None if noun.ends_with("ch") => format!("{count} {noun}es"),
        None => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_have_their_plural() {
        let many = |noun| plural(2, noun);
        assert_eq!(
            ["node", "entry", "SSH key", "switch"].map(many),
            ["2 nodes", "2 entries", "2 SSH keys", "2 switches"]
        );
        assert_eq!(plural(1, "SSH key"), "1 SSH key");
    }

    #[test]
    fn every_code_has_its_exit_code() {
        let table = [
            (Code::InvalidArgument, 2),
            (Code::NotFound, 3),
            (Code::AlreadyExists, 4),
            (Code::Aborted, 4),
            (Code::FailedPrecondition, 4),
            (Code::OutOfRange, 4),
            (Code::PermissionDenied, 5),
            (Code::Unauthenticated, 5),
            (Code::Unavailable, 6),
            (Code::DeadlineExceeded, 6),
            (Code::ResourceExhausted, 6),
            (Code::Internal, 1),
            (Code::Unimplemented, 1),
        ];
        for (code, exit) in table {
            assert_eq!(CliError::rpc("x", Status::new(code, "")).exit_code(), exit, "{code:?}");
        }
    }

    #[test]
    fn the_page_lists_the_exit_code_of_every_code() {
        let page = include_str!("../../../docs/cli.md");
        let table = page
            .split("## Exit codes")
            .nth(1)
            .and_then(|rest| rest.split("\n## ").next());
        let rows: Vec<Vec<&str>> = table
            .unwrap()
            .lines()
            .map(|row| row.split(['|', ',']).map(str::trim).collect())
            .collect();
        let listed = |name: &str| -> Option<u8> { rows.iter().find(|row| row.contains(&name))?.get(1)?.parse().ok() };
        for code in (1_i32..=16).map(Code::from) {
            let words = format!("{code:?}").chars().fold(String::new(), |mut words, letter| {
                if letter.is_uppercase() && !words.is_empty() {
                    words.push('_');
                }
                words.push(letter.to_ascii_uppercase());
                words
            });
            let ends_with = CliError::rpc("x", Status::new(code, "")).exit_code();
            assert_eq!(listed(&words).unwrap_or(exit::OTHER), ends_with, "{words}");
        }
        for code in exit::OTHER..=exit::OPERATION_FAILED {
            let code = code.to_string();
            assert!(rows.iter().any(|row| row.get(1) == Some(&code.as_str())), "{code}");
        }
    }

    #[test]
    fn an_argument_that_names_an_unusable_file_is_wrong_usage() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let given = CliError::given("read", Path::new("site.yaml"), missing());
        assert_eq!(given.exit_code(), exit::USAGE);
        let ours = CliError::file("read", Path::new("config.yaml"), missing());
        assert_eq!(ours.exit_code(), exit::OTHER);
        assert_eq!(given.to_string(), ours.to_string().replace("config", "site"));
    }

    #[test]
    fn one_thing_is_named_in_the_singular() {
        for (count, noun, words) in [
            (0, "node", "0 nodes"),
            (1, "node", "1 node"),
            (2, "node", "2 nodes"),
            (1, "entry", "1 entry"),
            (2, "entry", "2 entries"),
            (1, "switch", "1 switch"),
            (2, "switch", "2 switches"),
        ] {
            assert_eq!(plural(count, noun), words);
        }
    }

    #[test]
    fn several_errors_keep_the_first_exit_code() {
        let errors = vec![
            CliError::rpc("a", Status::not_found("x")),
            CliError::rpc("b", Status::unavailable("y")),
        ];
        assert_eq!(CliError::gather(errors).unwrap_err().exit_code(), exit::NOT_FOUND);
        assert!(CliError::gather(Vec::new()).is_ok());
    }

    #[test]
    fn an_error_without_a_message_still_has_a_text() {
        let error = CliError::rpc("list nodes", Status::new(Code::NotFound, ""));
        assert_eq!(
            error.to_string(),
            "cannot list nodes: Some requested entity was not found"
        );
    }
}
