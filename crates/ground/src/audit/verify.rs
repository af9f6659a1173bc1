//! `rackwrightd audit verify`: checks the chain in the database, or in an exported file.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rackwright_identity::{
    AuditChainError, AuditFault, AuditHead, AuditRecord, AuditVerifier, KeyFileError, KeyFiles, SigningKey, SystemRng,
};
use rackwright_lifecycle::Timestamp;
use rackwright_store::{AuditFilter, AuditRow, BackupError, Store, StoreError};

use super::head::{HeadFile, hex};
use super::{GAP, entry_of, export};
use crate::clock;
use crate::config::Config;

/// Rows read at once.
const PAGE: i64 = 1000;
/// Longest line of an exported file, in bytes.
const LINE_MAX: usize = 512 << 10;

/// Why a check fails.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The chain is broken.
    #[error("the audit is not intact: {0}")]
    Broken(#[from] AuditChainError),
    /// The database failed.
    #[error("the database does not answer, so nothing can be checked")]
    Store(#[from] StoreError),
    /// This host has no keys of a control plane.
    #[error(
        "{} is not a folder: run this command on a host with the keys of a control plane, or with --file and --key",
        .0.display()
    )]
    NoKeys(PathBuf),
    /// The database cannot be read.
    #[error(transparent)]
    Unread(#[from] BackupError),
    /// The database is missing or empty.
    #[error("the database {0} contains no site, so it has no audit, and nothing was changed: name the right --config")]
    NoSite(String),
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// A line of a file is invalid.
    #[error("{}, line {line}: {fault}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong with the line.
        fault: String,
    },
    /// The public key is malformed.
    #[error(
        "--key: 64 hex digits of a public signing key of the site are needed; `rackwright audit export` shows the \
             key"
    )]
    Key,
}

/// The range of records that was found intact.
#[derive(Debug, Default)]
struct CheckedRecords {
    records: u64,
    first: i64,
    last: i64,
}

impl CheckedRecords {
    fn add(&mut self, record: &AuditRecord) {
        if self.records == 0 {
            self.first = record.time_us;
        }
        self.records += 1;
        self.last = record.time_us;
    }

    fn summary(&self, head: &AuditHead) -> String {
        if self.records == 0 {
            return "the audit is intact: it has no records\n".into();
        }
        let time = |us| export::time(Timestamp(us));
        format!(
            "the audit is intact: {} records, from {} to {}\nthe last record is {} with hash {}\n",
            self.records,
            time(self.first),
            time(self.last),
            head.position,
            head.hash_hex()
        )
    }
}

/// Refuses a record that reports lost records, unless the caller names its position as known.
fn check_gap(record: &AuditRecord, known_gaps: &[u64]) -> Result<(), AuditChainError> {
    if record.method != GAP || known_gaps.contains(&record.position) {
        return Ok(());
    }
    Err(AuditChainError {
        position: record.position,
        fault: AuditFault::Gap(record.message.clone()),
    })
}

fn check_columns(row: &AuditRow, record: &AuditRecord) -> Result<(), AuditChainError> {
    let in_columns = (
        row.at.0,
        &row.caller,
        &row.customer,
        &row.method,
        &row.target,
        &row.outcome,
    );
    let in_record = (
        record.time_us,
        &record.caller,
        &record.customer,
        &record.method,
        &record.target,
        &record.outcome,
    );
    match in_columns == in_record {
        true => Ok(()),
        false => Err(AuditChainError {
            position: record.position,
            fault: AuditFault::Columns,
        }),
    }
}

/// Checks the chain in the database of a control plane, on its own host. Returns lines for the terminal.
///
/// # Errors
/// [`VerifyError`]; `Broken` names the first position where the chain does not hold.
pub async fn database(config: &Config, known_gaps: &[u64]) -> Result<String, VerifyError> {
    let folder = config.data_dir.join("keys");
    if !folder.is_dir() {
        return Err(VerifyError::NoKeys(folder));
    }
    // Read before the database is opened, which would make its file and tables.
    if config.database.authority().await?.is_none() {
        return Err(VerifyError::NoSite(config.database.to_string()));
    }
    let now = clock::system_time(clock::now());
    let keys = KeyFiles::load_or_create(&config.data_dir, "", now, Arc::new(SystemRng))?;
    let file = HeadFile::new(&config.data_dir);
    // Read before the database, because a running daemon adds records meanwhile.
    let kept = file.read(&keys.signer).map_err(|source| VerifyError::File {
        path: file.path().to_owned(),
        source,
    })?;
    let store = Store::open(config.database.clone()).await?;
    let checked = check(&store, &keys, kept, known_gaps).await;
    store.close().await;
    let mut summary = checked?;
    if kept.is_none() {
        summary.push_str(&format!(
            "{} does not exist, so missing records at the end cannot be detected\n",
            file.path().display()
        ));
    }
    summary.push_str(&format!("public key {}\n", hex(&keys.signer.public_key())));
    Ok(summary)
}

/// Does the same as [`database`] with an open database and the head from the head file.
///
/// # Errors
/// As [`database`].
pub async fn check(
    store: &Store,
    keys: &KeyFiles,
    kept: Option<AuditHead>,
    known_gaps: &[u64],
) -> Result<String, VerifyError> {
    let genesis = AuditHead::genesis(&keys.authority.site_id());
    let (position, hash) = store.audit_head().await?;
    let position = u64::try_from(position).unwrap_or(0);
    // A malformed hash in the row becomes a hash that no record has.
    let row = AuditHead::from_hex(position, &hash).unwrap_or(AuditHead {
        position,
        hash: [0; 32],
    });
    let anchors: Vec<AuditHead> = kept.into_iter().chain((position > 0).then_some(row)).collect();
    let public = keys.signer.keys().into_iter().map(|key| key.public_key);
    let mut verifier = AuditVerifier::new(genesis, public);
    let mut checked = CheckedRecords::default();
    loop {
        let after = i64::try_from(verifier.head().position).unwrap_or(i64::MAX);
        // The page starts at the verified head, so a replaced record is not skipped.
        let rows = store.audit(&AuditFilter::default(), after, PAGE).await?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            let record = verifier.verify_next(&entry_of(row))?;
            check_columns(row, &record)?;
            check_gap(&record, known_gaps)?;
            check_anchors(&anchors, &verifier.head())?;
            checked.add(&record);
        }
    }
    let head = verifier.head();
    let missing = anchors.iter().find(|anchor| anchor.position > head.position);
    if let Some(missing) = missing {
        return Err(AuditChainError {
            position: missing.position,
            fault: AuditFault::Cut { last: head.position },
        }
        .into());
    }
    Ok(checked.summary(&head))
}

fn check_anchors(anchors: &[AuditHead], head: &AuditHead) -> Result<(), AuditChainError> {
    let differs = |anchor: &&AuditHead| anchor.position == head.position && anchor.hash != head.hash;
    match anchors.iter().find(differs) {
        None => Ok(()),
        Some(anchor) => Err(AuditChainError {
            position: anchor.position,
            fault: AuditFault::Replaced,
        }),
    }
}

/// Checks an exported file with only a public key of the site. Returns lines for the terminal.
///
/// # Errors
/// As [`database`].
#[expect(clippy::disallowed_methods, reason = "a command, and no daemon")]
pub fn file(path: &Path, key: &str, known_gaps: &[u64]) -> Result<String, VerifyError> {
    let failed = |source| VerifyError::File {
        path: path.to_owned(),
        source,
    };
    let key = bytes32(key).ok_or(VerifyError::Key)?;
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut reader = std::io::BufReader::new(file);
    let mut verifier: Option<AuditVerifier> = None;
    let mut checked = CheckedRecords::default();
    for number in 1.. {
        let mut line = Vec::new();
        let mut bounded = std::io::Read::take(&mut reader, LINE_MAX as u64);
        if bounded.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        let at = |fault: String| VerifyError::Line {
            path: path.to_owned(),
            line: number,
            fault,
        };
        let line: export::Line = serde_json::from_slice(&line).map_err(|error| at(error.to_string()))?;
        match (line, &mut verifier) {
            (export::Line::Chain(chain), verifier) => {
                *verifier = Some(begin(&chain, &key, verifier.as_ref()).map_err(at)?);
            }
            (export::Line::Record(_), None) => {
                return Err(at("the first line must name the chain and its keys".into()));
            }
            (export::Line::Record(line), Some(verifier)) => {
                let record = verifier.verify_next(&line.entry())?;
                check_gap(&record, known_gaps)?;
                checked.add(&record);
            }
        }
    }
    let head = verifier.map(|verifier| verifier.head());
    let head = head.ok_or_else(|| VerifyError::Line {
        path: path.to_owned(),
        line: 1,
        fault: "the file is empty".into(),
    })?;
    let mut summary = checked.summary(&head);
    summary.push_str(
        "a file does not show whether later records exist: compare its last record with the last record of the \
                   control plane\n",
    );
    Ok(summary)
}

/// A verifier for the records after a line that names the chain.
fn begin(chain: &export::ChainLine, key: &[u8; 32], former: Option<&AuditVerifier>) -> Result<AuditVerifier, String> {
    let mut keys = Vec::new();
    for one in &chain.keys {
        let (public_key, signature) = (bytes32(&one.public_key), bytes(&one.signature));
        let (Some(public_key), Some(signature)) = (public_key, signature) else {
            return Err(format!("signing key {} is not written in hex digits", one.number));
        };
        keys.push(SigningKey {
            number: one.number,
            public_key,
            signature,
        });
    }
    SigningKey::check_chain(&keys).map_err(|_| "a signing key is not signed by the previous signing key".to_owned())?;
    let known = keys.iter().position(|one| one.public_key == *key);
    let Some(known) = known else {
        return Err(format!("the site of this file has no signing key {}", hex(key)));
    };
    let head = match former {
        // The same chain goes on, possibly with more keys.
        Some(former) => former.head(),
        None if chain.previous_hash.is_empty() => AuditHead::genesis(&chain.authority),
        None => AuditHead::from_hex(chain.after_position, &chain.previous_hash)
            .ok_or_else(|| "previous_hash is not 64 hex digits".to_owned())?,
    };
    Ok(AuditVerifier::new(
        head,
        keys.into_iter().skip(known).map(|key| key.public_key),
    ))
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = hex.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high * 16 + low).ok(),
        _ => None,
    });
    pairs.collect()
}

fn bytes32(hex: &str) -> Option<[u8; 32]> {
    bytes(hex)?.try_into().ok()
}
