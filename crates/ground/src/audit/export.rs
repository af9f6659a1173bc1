//! Exports: the lines of a file, and the tasks that follow the chain to a file, a syslog server or a collector.
//!
//! Each line is a JSON object. The first line names the chain and its signing keys. Each further line is a record with
//! its hash and signature. `rackwrightd audit verify --file` checks such a file with only a public key.

#![expect(
    clippy::disallowed_methods,
    reason = "runs in spawn_blocking: a file that is appended to, and syslog"
)]

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rackwright_identity::{AuditEntry, AuditRecord};
use rackwright_lifecycle::Timestamp;
use rackwright_store::{AuditFilter, AuditRow};
use serde::{Deserialize, Serialize};

use super::head::hex;
use super::otlp::ToOtlp;
use crate::core::Core;
use crate::parts::Parts;
use crate::telemetry::Collector;

/// Rows read per page.
const PAGE: i64 = 500;
/// Pause between two looks for new records.
const POLL_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a failed export is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// Bytes at the end of a file that are certain to hold its last line.
const TAIL: u64 = 512 << 10;
/// Longest syslog message in bytes: it fits a UDP packet everywhere, and RFC 5426 recommends that receivers accept
/// 2048.
const SYSLOG_MAX: usize = 2048;

/// Where records are exported to, besides the database.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Absolute path of a file to which records are appended.
    pub file: Option<PathBuf>,
    /// Address of a syslog server that accepts RFC 5424 over UDP.
    pub syslog: Option<SocketAddr>,
    /// A collector that accepts logs by OTLP over gRPC.
    pub otlp: Option<Collector>,
}

impl Settings {
    /// Adds one line to `faults` for each invalid setting.
    pub(crate) fn check(&self, faults: &mut Vec<String>) {
        if self.file.as_ref().is_some_and(|file| !file.is_absolute()) {
            faults.push("audit.file: must be an absolute path".into());
        }
        if let Some(otlp) = &self.otlp {
            otlp.check("audit.otlp", "url", faults);
        }
    }
}

/// A line of an export.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// The chain and its keys.
    Chain(ChainLine),
    /// A record of the chain.
    Record(Box<RecordLine>),
}

/// The line that names the chain.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainLine {
    /// Identifier of the site's authority.
    pub authority: String,
    /// Position of the record before the file's first record.
    pub after_position: u64,
    /// Hash of that record; empty if there is no such record.
    pub previous_hash: String,
    /// Signing keys, oldest first.
    pub keys: Vec<KeyLine>,
}

/// A signing key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyLine {
    /// Number of the key, from 1.
    pub number: u32,
    /// Public key, 64 hex digits.
    pub public_key: String,
    /// Signature by the key before, 128 hex digits.
    pub signature: String,
}

/// The line of a record. Its fields are those of the audit record.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RecordLine {
    pub position: u64,
    pub time: String,
    pub time_us: i64,
    pub call: String,
    pub caller: String,
    pub role: String,
    pub epoch: String,
    pub customer: String,
    pub address: String,
    pub client: String,
    pub method: String,
    pub request: String,
    pub target: String,
    pub site: String,
    pub outcome: String,
    pub message: String,
    pub operation: String,
    pub trace: String,
    pub replica: String,
    pub calls: u64,
    pub hash: String,
    pub key: String,
    pub signature: String,
}

impl RecordLine {
    fn of(record: AuditRecord, row: &AuditRow) -> Self {
        Self {
            position: record.position,
            time: time(Timestamp(record.time_us)),
            time_us: record.time_us,
            call: record.call,
            caller: record.caller,
            role: record.role,
            epoch: record.epoch,
            customer: record.customer,
            address: record.address,
            client: record.client,
            method: record.method,
            request: record.request,
            target: record.target,
            site: record.site,
            outcome: record.outcome,
            message: record.message,
            operation: record.operation,
            trace: record.trace,
            replica: record.replica,
            calls: record.calls,
            hash: row.hash.clone(),
            key: row.key.clone(),
            signature: row.signature.clone(),
        }
    }

    /// The chain entry of this line. The readable time is not part of the entry.
    #[must_use]
    pub fn entry(&self) -> AuditEntry {
        let record = AuditRecord {
            position: self.position,
            time_us: self.time_us,
            call: self.call.clone(),
            caller: self.caller.clone(),
            role: self.role.clone(),
            epoch: self.epoch.clone(),
            customer: self.customer.clone(),
            address: self.address.clone(),
            client: self.client.clone(),
            method: self.method.clone(),
            request: self.request.clone(),
            target: self.target.clone(),
            site: self.site.clone(),
            outcome: self.outcome.clone(),
            message: self.message.clone(),
            operation: self.operation.clone(),
            trace: self.trace.clone(),
            replica: self.replica.clone(),
            calls: self.calls,
        };
        AuditEntry {
            position: self.position,
            record: record.encode(),
            hash: self.hash.clone(),
            key: self.key.clone(),
            signature: self.signature.clone(),
        }
    }
}

/// A readable time: RFC 3339, UTC.
#[must_use]
pub fn time(at: Timestamp) -> String {
    let (seconds, micros) = (at.0.div_euclid(1_000_000), at.0.rem_euclid(1_000_000));
    let nanos = i32::try_from(micros * 1000).unwrap_or(0);
    prost_types::Timestamp { seconds, nanos }.to_string()
}

/// Starts the exports that the settings name.
pub fn begin(core: &Arc<Core>, parts: &mut Parts) {
    if let Some(path) = core.config.audit.file.clone() {
        parts.begin("audit file", follow(core.clone(), ToFile::new(path)));
    }
    if let Some(server) = core.config.audit.syslog {
        let position = core.config.data_dir.join("audit-syslog");
        parts.begin("audit syslog", follow(core.clone(), ToSyslog::new(server, position)));
    }
    if let Some(collector) = core.config.audit.otlp.clone() {
        let target = ToOtlp::new(collector, &core.config);
        parts.begin("audit OTLP", follow(core.clone(), target));
    }
}

/// The last record that a target has.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// 0: the target has no record.
    position: i64,
    /// Empty: unknown.
    hash: String,
}

/// A place to which records go in order.
pub(super) trait Target: Send + 'static {
    /// Name for the log.
    fn name(&self) -> String;
    /// The last record that the target has.
    fn last(&mut self) -> std::io::Result<Last>;
    /// Adds records at the end.
    fn add(&mut self, core: &Core, rows: &[AuditRow]) -> std::io::Result<()>;
}

/// Brings records to a target until the core stops. After a failure it tries again from the target's last record.
async fn follow(core: Arc<Core>, target: impl Target) {
    let (mut target, mut failing) = (Some(target), false);
    loop {
        let done = step(&core, &mut target).await;
        let pause = match &done {
            Ok(true) => Duration::ZERO,
            Ok(false) => POLL_PAUSE,
            Err(_) => RETRY,
        };
        match done {
            Ok(_) if failing => {
                tracing::info!("an export of the audit works again");
                core.metrics.audit_exports_failing.dec();
                failing = false;
            }
            Err(error) if !failing => {
                tracing::error!(%error, "an export of the audit fails; records stay in the database and are exported later");
                core.metrics.audit_exports_failing.inc();
                failing = true;
            }
            _ => {}
        }
        tokio::select! {
            biased;
            () = core.stop.cancelled() => {
                // At the stop, the records that exist are still exported.
                let _ = step(&core, &mut target).await;
                return;
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Brings a page of records to a target. Returns true if there may be more.
async fn step<T: Target>(core: &Arc<Core>, slot: &mut Option<T>) -> std::io::Result<bool> {
    let Some(mut target) = slot.take() else {
        return Err(std::io::Error::other("the export ended"));
    };
    let moved = tokio::task::spawn_blocking(move || {
        let last = target.last();
        (target, last)
    });
    let (mut target, last) = moved.await.map_err(std::io::Error::other)?;
    let name = target.name();
    let named = |error: std::io::Error| std::io::Error::new(error.kind(), format!("{name}: {error}"));
    let rows = match last {
        Ok(last) => rows_after(core, &last).await,
        Err(error) => Err(error),
    };
    let rows = match rows {
        Ok(rows) if !rows.is_empty() => rows,
        other => {
            *slot = Some(target);
            return other.map(|_| false).map_err(named);
        }
    };
    let is_more = i64::try_from(rows.len()).unwrap_or(0) == PAGE;
    let core = core.clone();
    let moved = tokio::task::spawn_blocking(move || {
        let added = target.add(&core, &rows);
        (target, added)
    });
    let (target, added) = moved.await.map_err(std::io::Error::other)?;
    *slot = Some(target);
    added.map(|()| is_more).map_err(named)
}

/// A page of the records after the target's last record.
async fn rows_after(core: &Core, last: &Last) -> std::io::Result<Vec<AuditRow>> {
    let all = AuditFilter::default();
    if last.position > 0 && !last.hash.is_empty() {
        let there = core.store.audit(&all, last.position - 1, 1).await;
        let there = there.map_err(std::io::Error::other)?;
        if there
            .first()
            .is_none_or(|row| row.position != last.position || row.hash != last.hash)
        {
            let position = last.position;
            return Err(std::io::Error::other(format!(
                "the database does not contain the exported record {position}: the database was restored, or records \
                 were deleted. Keep the exported records, and move them away to start a new export"
            )));
        }
    }
    let rows = core.store.audit(&all, last.position, PAGE).await;
    rows.map_err(std::io::Error::other)
}

/// A file of lines. Its last line gives the position of the export.
struct ToFile {
    path: PathBuf,
    /// Number of keys that the file names; 0: unknown.
    keys: usize,
}

impl ToFile {
    fn new(path: PathBuf) -> Self {
        Self { path, keys: 0 }
    }
}

impl Target for ToFile {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn last(&mut self) -> std::io::Result<Last> {
        let mut file = match std::fs::File::options().read(true).write(true).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Last::default()),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        let begin = length.saturating_sub(TAIL);
        file.seek(SeekFrom::Start(begin))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        // A crash may have cut the last line short: it is removed here and written again.
        let end = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if end < tail.len() {
            file.set_len(begin + u64::try_from(end).unwrap_or(0))?;
        }
        let lines = tail[..end].split(|byte| *byte == b'\n').rev();
        let mut found = lines.filter_map(|line| match serde_json::from_slice(line) {
            Ok(Line::Record(record)) => Some((record.position, record.hash)),
            Ok(Line::Chain(chain)) => Some((chain.after_position, String::new())),
            Err(_) => None,
        });
        match found.next() {
            Some((position, hash)) => Ok(Last {
                position: i64::try_from(position).unwrap_or(i64::MAX),
                hash,
            }),
            None if length == 0 => Ok(Last::default()),
            None => Err(std::io::Error::other("the end of the file is not an audit record")),
        }
    }

    fn add(&mut self, core: &Core, rows: &[AuditRow]) -> std::io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = std::fs::File::options();
        let mut file = options.create(true).append(true).mode(0o600).open(&self.path)?;
        let mut text = Vec::new();
        let keys = core.keys.signer.keys();
        if self.keys != keys.len() {
            let is_new = file.metadata()?.len() == 0;
            let before = rows.first().map_or(0, |row| row.position - 1);
            let line = Line::Chain(ChainLine {
                authority: core.keys.authority.site_id(),
                // A new file begins with the first record of the chain. A later chain line only names the keys again.
                after_position: if is_new { 0 } else { u64::try_from(before).unwrap_or(0) },
                previous_hash: String::new(),
                keys: keys
                    .iter()
                    .map(|key| KeyLine {
                        number: key.number,
                        public_key: hex(&key.public_key),
                        signature: hex(&key.signature),
                    })
                    .collect(),
            });
            push(&mut text, &line)?;
        }
        for row in rows {
            push(&mut text, &Line::Record(Box::new(line(row)?)))?;
        }
        file.write_all(&text)?;
        file.sync_data()?;
        self.keys = keys.len();
        Ok(())
    }
}

fn push(text: &mut Vec<u8>, line: &Line) -> std::io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}

pub(super) fn line(row: &AuditRow) -> std::io::Result<RecordLine> {
    let record = AuditRecord::decode(&row.record);
    let record = record.map_err(|error| std::io::Error::other(format!("record {}: {error}", row.position)))?;
    Ok(RecordLine::of(record, row))
}

/// A syslog server. A file in the data folder stores the position of the export.
struct ToSyslog {
    server: SocketAddr,
    exported: ExportPosition,
    socket: Option<std::net::UdpSocket>,
}

impl ToSyslog {
    fn new(server: SocketAddr, position: PathBuf) -> Self {
        Self {
            server,
            exported: ExportPosition(position),
            socket: None,
        }
    }
}

impl Target for ToSyslog {
    fn name(&self) -> String {
        format!("syslog server {}", self.server)
    }

    fn last(&mut self) -> std::io::Result<Last> {
        self.exported.last()
    }

    fn add(&mut self, _: &Core, rows: &[AuditRow]) -> std::io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let any = if self.server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = std::net::UdpSocket::bind(any)?;
                socket.connect(self.server)?;
                socket
            }
        };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        for row in rows {
            socket.send(syslog(&line(row)?, host.trim())?.as_bytes())?;
            self.exported.keep(row)?;
        }
        self.socket = Some(socket);
        Ok(())
    }
}

/// A file that stores the position of an export.
pub(super) struct ExportPosition(pub(super) PathBuf);

impl ExportPosition {
    pub(super) fn last(&self) -> std::io::Result<Last> {
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Last::default()),
            Err(error) => return Err(error),
        };
        let (position, hash) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        Ok(Last {
            position: position.parse().map_err(std::io::Error::other)?,
            hash: hash.to_owned(),
        })
    }

    pub(super) fn keep(&self, row: &AuditRow) -> std::io::Result<()> {
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("{} {}\n", row.position, row.hash))?;
        std::fs::rename(&new, &self.0)
    }
}

/// A record as a message of RFC 5424: facility 13 (log audit), severity 5 (notice) or 4 (warning).
fn syslog(line: &RecordLine, host: &str) -> std::io::Result<String> {
    let severity = if line.outcome == "OK" { 5 } else { 4 };
    let mut line = line.clone();
    let message = |line: &RecordLine| {
        let json = serde_json::to_string(line)?;
        Ok::<_, std::io::Error>(format!(
            "<{}>1 {} {} rackwrightd - audit - \u{feff}{json}",
            13 * 8 + severity,
            line.time,
            if host.is_empty() { "-" } else { host }
        ))
    };
    let whole = message(&line)?;
    if whole.len() <= SYSLOG_MAX {
        return Ok(whole);
    }
    // The hash covers the whole record. The omitted request can be read in the database.
    line.request = "(left out: too long for syslog)".into();
    message(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_syslog_message_with_its_hash() {
        let mut line = RecordLine::of(
            AuditRecord {
                position: 7,
                time_us: 1_790_000_000_123_456,
                caller: "members/ann".into(),
                outcome: "PERMISSION_DENIED".into(),
                ..AuditRecord::default()
            },
            &AuditRow {
                hash: "ab".into(),
                ..AuditRow::default()
            },
        );
        let text = syslog(&line, "cp-1").unwrap();
        let (head, json) = text.split_once('\u{feff}').unwrap();
        assert_eq!(head, "<108>1 2026-09-21T14:13:20.123456Z cp-1 rackwrightd - audit - ");
        let read: RecordLine = serde_json::from_str(json).unwrap();
        assert_eq!((read.position, read.hash.as_str()), (7, "ab"));
        line.request = "x".repeat(4000);
        assert!(syslog(&line, "cp-1").unwrap().len() <= SYSLOG_MAX);
    }
}
