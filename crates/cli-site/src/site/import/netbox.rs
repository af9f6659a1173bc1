//! `rackwright site import netbox`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, Fault};
use rackwright_cli_context::given::read_beginning;
use rackwright_import::netbox::{NetboxOptions, Roles, Table, TableError, Tables, from_netbox};

use super::{Common, api};

/// Maximum size of an export, in bytes. A list of 4,000,000 interfaces with all columns has about as much.
const MAX_EXPORT_BYTES: u64 = 1 << 30;

/// `rackwright site import netbox`
#[derive(Debug, Args)]
pub struct NetboxArgs {
    /// Directory with CSV exports: devices.csv, cables.csv, ... (or NetBox's own names, `netbox_devices.csv`)
    #[arg(long, value_name = "DIR", group = "source", required = true)]
    csv: Option<PathBuf>,
    /// Address of NetBox, https://HOST[:PORT][/PATH]; http only to this machine
    #[arg(long, value_name = "URL", group = "source", requires = "token_file")]
    url: Option<String>,
    /// File with an API token with permission to read, `-` for standard input
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// PEM file with the trusted authorities of NetBox's certificate (default: those of this system)
    #[arg(long, value_name = "FILE", requires = "url")]
    ca_file: Option<PathBuf>,
    /// Site of NetBox to import; repeat the option for several (default: all)
    #[arg(long, value_name = "NAME")]
    site: Vec<String>,
    /// Role of devices that are nodes; repeat the option for several [default: gpu-server, gpu-node, compute-node, compute]
    #[arg(long, value_name = "ROLE")]
    node_role: Vec<String>,
    /// Role of leaves [default: leaf, leaf-switch, ib-leaf, infiniband-leaf]
    #[arg(long, value_name = "ROLE")]
    leaf_role: Vec<String>,
    /// Role of spines [default: spine, spine-switch, ib-spine, infiniband-spine]
    #[arg(long, value_name = "ROLE")]
    spine_role: Vec<String>,
    /// Role of cores [default: core, core-switch, ib-core, infiniband-core]
    #[arg(long, value_name = "ROLE")]
    core_role: Vec<String>,
    /// Role of switches with a level that follows from the cables [default: ib-switch, infiniband-switch]
    #[arg(long, value_name = "ROLE")]
    switch_role: Vec<String>,
    /// Role of rack PDUs [default: pdu, rack-pdu]
    #[arg(long, value_name = "ROLE")]
    pdu_role: Vec<String>,
    /// SKU of a device type, if the names differ
    #[arg(long, value_name = "TYPE=SKU", value_parser = pair)]
    sku: Vec<(String, String)>,
    /// Feed letter of panels or power feeds by name, `*` for anything (default: A for primary feeds, B for redundant feeds)
    #[arg(long, value_name = "LETTER=NAME", value_parser = feed)]
    feed: Vec<(String, String)>,
    /// Rating of a power panel in watts
    #[arg(long, value_name = "NAME=WATTS", value_parser = panel)]
    panel: Vec<(String, f64)>,
    #[command(flatten)]
    common: Common,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("the form is KEY=VALUE".to_owned()),
    }
}

fn feed(text: &str) -> Result<(String, String), String> {
    let (letter, name) = pair(text)?;
    if matches!(letter.as_bytes(), [b'A'..=b'Z']) {
        return Ok((letter, name));
    }
    Err(format!(
        "`{letter}` is not a feed letter: write one capital letter, such as A or B"
    ))
}

fn panel(text: &str) -> Result<(String, f64), String> {
    let (name, watts) = text.rsplit_once('=').ok_or("the form is NAME=WATTS")?;
    match watts.parse::<f64>() {
        Ok(watts) if (1.0..=1e10).contains(&watts) => Ok((name.to_owned(), watts)),
        _ => Err(format!(
            "`{watts}` is not a number of watts: write a number from 1 to 10000000000"
        )),
    }
}

/// Writes the site file of a NetBox.
pub async fn run(cx: &Cx, args: &NetboxArgs) -> Result<(), CliError> {
    let skus = args.common.skus(cx)?;
    let (tables, sources) = match (&args.csv, &args.url, &args.token_file) {
        (Some(folder), ..) => exports(cx, folder)?,
        (None, Some(url), Some(token)) => {
            let tables = api::read(cx, url, token, args.ca_file.as_deref()).await?;
            (tables, Vec::new())
        }
        _ => return Err(CliError::usage("neither --csv nor --url is given", "")),
    };
    let output = args.common.output();
    let roles = args.roles();
    let options = NetboxOptions {
        options: args.common.options(&output, skus.as_ref()),
        sites: &args.site,
        roles: &roles,
        skus: &args.sku.iter().cloned().collect::<BTreeMap<_, _>>(),
        feeds: &args.feed,
        panels: &args.panel.iter().cloned().collect::<BTreeMap<_, _>>(),
    };
    args.common.finish(cx, from_netbox(&tables, &options), sources)
}

impl NetboxArgs {
    fn roles(&self) -> Roles {
        let usual = Roles::default();
        let or = |given: &Vec<String>, usual: Vec<String>| if given.is_empty() { usual } else { given.clone() };
        Roles {
            nodes: or(&self.node_role, usual.nodes),
            leaves: or(&self.leaf_role, usual.leaves),
            spines: or(&self.spine_role, usual.spines),
            cores: or(&self.core_role, usual.cores),
            switches: or(&self.switch_role, usual.switches),
            pdus: or(&self.pdu_role, usual.pdus),
        }
    }
}

/// Tables without which a site file is useless.
const NEEDED: [Table; 3] = [Table::Racks, Table::Devices, Table::Interfaces];

type Exports = (Tables, Vec<(String, String)>);

/// The tables in a folder, and the texts of their files.
fn exports(cx: &Cx, folder: &Path) -> Result<Exports, CliError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| CliError::given("read", folder, e))? {
        let path = entry.map_err(|e| CliError::given("read", folder, e))?.path();
        let table = path.file_name().and_then(|name| name.to_str()).and_then(Table::of_file);
        files.extend(table.map(|table| (table, path)));
    }
    files.sort_by(|(a, x), (b, y)| (*a as usize, x).cmp(&(*b as usize, y)));
    let missing = |wanted: &[Table]| -> Vec<String> {
        let lacking = wanted
            .iter()
            .filter(|table| !files.iter().any(|(found, _)| found == *table));
        lacking.map(|table| format!("{}.csv", table.endpoint())).collect()
    };
    let needed = missing(&NEEDED);
    if !needed.is_empty() {
        let message = format!("{} contains no {}", folder.display(), needed.join(", no "));
        return Err(CliError::usage(
            message,
            "export each table of NetBox with all its columns as CSV",
        ));
    }
    let others = missing(&Table::ALL);
    if !others.is_empty() {
        cx.ui
            .note(&format!("{} contains no {}", folder.display(), others.join(", no ")));
    }
    let (mut tables, mut sources) = (Tables::default(), Vec::new());
    for (table, path) in files {
        let name = path.display().to_string();
        let text = read_beginning("read", &path, MAX_EXPORT_BYTES + 1)?;
        if text.len() as u64 > MAX_EXPORT_BYTES {
            let message = format!("{name} has more than {} MiB", MAX_EXPORT_BYTES >> 20);
            let hint = "export only the columns of the import form, or import with --url, which reads page after page";
            return Err(CliError::usage(message, hint));
        }
        tables.add_csv(table, &name, &text).map_err(|error| fault(&error))?;
        sources.push((name, text));
    }
    Ok((tables, sources))
}

/// A fault of a file, with its position.
pub(super) fn fault(error: &TableError) -> CliError {
    CliError::Manifest(vec![Fault {
        file: error.file.clone(),
        line: error.line as usize,
        column: error.column as usize,
        message: error.what.clone(),
    }])
}
