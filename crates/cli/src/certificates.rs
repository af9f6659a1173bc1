//! `rackwright certificates`: exports the site's chain of erase certificates to a file and verifies it without a
//! control plane.

mod chain;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{EraseChainEntry, EraseChainHead, ListEraseChainRequest, SigningKey};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::{Cx, pages};
use serde_json::{Value, json};

use crate::node::signing_keys::public_key;

/// Entries of one page.
const PAGE: i32 = 1000;
/// The first field of a file, which names its format.
const FORMAT: &str = "rackwright-erase-chain-v1";

/// `rackwright certificates`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("action").required(true))]
pub struct CertificatesArgs {
    /// Write the chain to this file, oldest certificate first; the file must not exist yet
    #[arg(long, value_name = "FILE", group = "action")]
    export: Option<PathBuf>,
    /// Write the certificates of this customer's machines, and only the hashes of all other certificates
    #[arg(long, value_name = "CUSTOMER", requires = "export")]
    customer: Option<String>,
    /// Verify exported files without a control plane: signatures, the chain, and each file against the others
    #[arg(long, value_name = "FILE", num_args = 1.., group = "action")]
    verify: Vec<PathBuf>,
    /// Public key of the site, or an earlier key that leads to it, 64 hex digits (with --verify; without this option the
    /// site's keys in the file are trusted)
    #[arg(long, value_name = "HEX", value_parser = public_key, requires = "verify")]
    key: Option<String>,
}

pub async fn run(cx: &Cx, args: CertificatesArgs) -> Result<(), CliError> {
    match &args.export {
        Some(file) => export(cx, file, args.customer.unwrap_or_default()).await,
        None => verify(cx, &args.verify, args.key.as_deref()),
    }
}

fn header(keys: &[SigningKey], head: &EraseChainHead) -> Value {
    let key = |key: &SigningKey| {
        json!({
            "number": key.number,
            "public_key": hex::encode(&key.public_key),
            "signature": hex::encode(&key.signature),
        })
    };
    let time = head.time.unwrap_or_default();
    json!({
        "format": FORMAT,
        "signing_keys": keys.iter().map(key).collect::<Vec<_>>(),
        "head": {
            "number": head.number,
            "hash": head.hash,
            "time": format!("{}.{:09}", time.seconds, time.nanos),
            "signature": hex::encode(&head.signature),
            "signer": hex::encode(&head.signer_public_key),
        },
    })
}

fn line(entry: &EraseChainEntry) -> Value {
    match &entry.certificate {
        Some(certificate) => json!({
            "number": entry.number,
            "payload": String::from_utf8_lossy(&certificate.signed_payload),
            "signature": hex::encode(&certificate.signature),
            "signer": hex::encode(&certificate.signer_public_key),
        }),
        None => json!({ "number": entry.number, "payload_sha256": entry.payload_sha256 }),
    }
}

async fn export(cx: &Cx, path: &Path, customer: String) -> Result<(), CliError> {
    let client = cx.client().await?;
    let (mut keys, mut head) = (Vec::new(), EraseChainHead::default());
    let entries = pages::all(async |page_token| {
        let request = ListEraseChainRequest {
            customer: customer.clone(),
            page_size: PAGE,
            page_token,
        };
        let doing = "export the erase certificates";
        let page = rpc!(client, NodeServiceClient.list_erase_chain, doing, request).await?;
        (keys, head) = (page.signing_keys, page.head.unwrap_or_default());
        Ok((page.entries, page.next_page_token))
    })
    .await?;
    let failed = |source| CliError::file("write", path, source);
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    let file = file.map_err(|source| CliError::given("write", path, source))?;
    let mut file = std::io::BufWriter::new(file);
    writeln!(file, "{}", header(&keys, &head)).map_err(failed)?;
    for entry in &entries {
        writeln!(file, "{}", line(entry)).map_err(failed)?;
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    let shown = entries.iter().filter(|entry| entry.certificate.is_some()).count();
    let key = keys.first().map(|key| hex::encode(&key.public_key)).unwrap_or_default();
    cx.ui.say(&format!(
        "{shown} of {} certificates written in full; verify them on any machine with\n  rackwright certificates --verify {} \
         --key {key}",
        entries.len(),
        path.display()
    ))
}

fn verify(cx: &Cx, paths: &[PathBuf], key: Option<&str>) -> Result<(), CliError> {
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    for path in paths {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| CliError::given("read", path, source))?;
        match chain::File::read(&text) {
            Ok(file) => {
                let found = file.verify(key);
                faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
                files.push((name, file));
            }
            Err(why) => faults.push(format!("{name}: {why}")),
        }
    }
    faults.extend(chain::compare(&mut files));
    let faults = faults.into_iter().map(|fault| CliError::untrusted(fault, ""));
    CliError::gather(faults.collect())?;
    for (name, file) in &files {
        cx.ui.say(&format!("{name}: {}", file.summary()))?;
    }
    Ok(())
}
