//! `rackwright discover start`

use std::path::{Path, PathBuf};

use clap::Args;
use rackwright_api::v1::discovery_service_client::DiscoveryServiceClient;
use rackwright_api::v1::{DiscoveryLogin, DiscoveryTarget, StartDiscoveryRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::read_password;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, operation};
use rackwright_import::discovery::{TableFault, TargetRow, parse_leases, parse_targets};
use secrecy::ExposeSecret as _;

/// The largest file that is read, in bytes.
const FILE_MAX: u64 = 64 << 20;

/// `rackwright discover start`
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Address range to search: 10.0.0.0/22, 10.0.0.5-10.0.0.90, 10.0.0.5 or fd00::/118; repeat the option for several
    #[arg(long = "range", value_name = "RANGE", value_delimiter = ',')]
    ranges: Vec<String>,
    /// Port to check in ranges (default: 443); repeat the option for several
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u32).range(1..=65535))]
    ports: Vec<u32>,
    /// CSV table of BMCs with the columns address, user, password, credential, name, rack, unit, sku, system, labels
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Lease file of a DHCP server (ISC dhcpd, Kea, dnsmasq) on this computer; repeat the option for several
    #[arg(long = "leases", value_name = "FILE")]
    leases: Vec<PathBuf>,
    /// Read the lease files in the settings of rackwrightd, and the leases of its own DHCP server
    #[arg(long)]
    server_leases: bool,
    /// Search the network of rackwrightd by SSDP
    #[arg(long)]
    ssdp: bool,
    /// User to try at BMCs
    #[arg(long, value_name = "NAME", requires = "password")]
    user: Option<String>,
    /// File with that user's password
    #[arg(long, value_name = "FILE", group = "password", requires = "user")]
    password_file: Option<PathBuf>,
    /// Read that user's password from standard input
    #[arg(long, group = "password", requires = "user")]
    password_stdin: bool,
    /// Login for the column `credential` of tables: NAME:USER:FILE, with the password in FILE; repeat the option for several
    #[arg(long = "credential", value_name = "NAME:USER:FILE", value_parser = credential)]
    credentials: Vec<Credential>,
    /// Maximum number of logins tried at one BMC (at most 5, because BMCs lock accounts)
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=5))]
    login_tries: u32,
    /// After the given logins, try the matching factory credentials (`rackwright bmc credentials list`)
    #[arg(long)]
    factory_credentials: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

#[derive(Debug, Clone)]
struct Credential {
    name: String,
    user: String,
    file: PathBuf,
}

fn credential(text: &str) -> Result<Credential, String> {
    let mut parts = text.splitn(3, ':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), Some(user), Some(file)) if ![name, user, file].contains(&"") => Ok(Credential {
            name: name.to_owned(),
            user: user.to_owned(),
            file: file.into(),
        }),
        _ => Err(format!("`{text}` is not NAME:USER:FILE")),
    }
}

/// Begins a discovery.
pub async fn run(cx: &Cx, args: StartArgs) -> Result<(), CliError> {
    let mut logins = logins(&args)?;
    let mut targets = Vec::new();
    if let Some(path) = &args.csv {
        let rows = parse_targets(&read(path)?).map_err(|faults| faulty(path, &faults))?;
        let mut own = RowLogins::default();
        targets.extend(rows.into_iter().map(|row| own.target(row)));
        logins.extend(own.logins);
    }
    for path in &args.leases {
        let leases = parse_leases(&read(path)?).map_err(|fault| {
            let what = format!("{}: {fault}", path.display());
            CliError::usage(what, "no discovery was started")
        })?;
        targets.extend(leases.into_iter().map(|lease| DiscoveryTarget {
            address: lease.address.to_string(),
            source: "lease".into(),
            ..DiscoveryTarget::default()
        }));
    }
    let request = StartDiscoveryRequest {
        ranges: args.ranges,
        ports: args.ports,
        targets,
        ssdp: args.ssdp,
        leases: args.server_leases,
        logins,
        login_tries: args.login_tries,
        factory_credentials: args.factory_credentials,
        mutation: Some(args.mutation.once()),
    };
    let client = cx.client().await?;
    let doing = "start a discovery";
    let started = rpc!(client, DiscoveryServiceClient.start_discovery, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}

fn logins(args: &StartArgs) -> Result<Vec<DiscoveryLogin>, CliError> {
    let login = |name: &str, user: &str, file: Option<&Path>| -> Result<DiscoveryLogin, CliError> {
        Ok(DiscoveryLogin {
            name: name.to_owned(),
            username: user.to_owned(),
            password: read_password(file)?.expose_secret().to_owned(),
        })
    };
    let mut logins = Vec::new();
    if let Some(user) = &args.user {
        logins.push(login("", user, args.password_file.as_deref())?);
    }
    for one in &args.credentials {
        logins.push(login(&one.name, &one.user, Some(&one.file))?);
    }
    Ok(logins)
}

/// Logins in a table's rows, without repetition.
#[derive(Default)]
struct RowLogins {
    logins: Vec<DiscoveryLogin>,
}

impl RowLogins {
    fn target(&mut self, row: TargetRow) -> DiscoveryTarget {
        let login = match row.user.as_str() {
            "" => row.credential,
            user => self.name_of(user, &row.password),
        };
        DiscoveryTarget {
            address: row.address,
            login,
            node_id: row.name,
            rack: row.rack,
            unit: row.unit.into(),
            sku: row.sku,
            system: row.system,
            labels: row.labels.into_iter().collect(),
            source: "csv".into(),
        }
    }

    fn name_of(&mut self, user: &str, password: &str) -> String {
        let is_it = |one: &&DiscoveryLogin| one.username == user && one.password == password;
        if let Some(known) = self.logins.iter().find(is_it) {
            return known.name.clone();
        }
        let name = format!("table login {}", self.logins.len() + 1);
        self.logins.push(DiscoveryLogin {
            name: name.clone(),
            username: user.to_owned(),
            password: password.to_owned(),
        });
        name
    }
}

fn read(path: &Path) -> Result<String, CliError> {
    let length = std::fs::metadata(path)
        .map_err(|e| CliError::given("read", path, e))?
        .len();
    if length > FILE_MAX {
        let what = format!("{} is larger than {} MiB", path.display(), FILE_MAX >> 20);
        return Err(CliError::usage(what, "split the file"));
    }
    std::fs::read_to_string(path).map_err(|e| CliError::given("read", path, e))
}

fn faulty(path: &Path, faults: &[TableFault]) -> CliError {
    let lines: Vec<String> = faults.iter().map(|fault| format!("  {fault}")).collect();
    let what = format!("{}: no discovery was started\n{}", path.display(), lines.join("\n"));
    CliError::usage(what, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_name_user_and_file() {
        let good = credential("factory:root:/etc/x:y").unwrap();
        assert_eq!(
            (good.name.as_str(), good.user.as_str(), good.file.to_str()),
            ("factory", "root", Some("/etc/x:y"))
        );
        for bad in ["", "a", "a:b", "a::c", ":b:c"] {
            assert!(credential(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn logins_of_rows_are_sent_once_each() {
        let rows = parse_targets("address,user,password,credential\na,u,p,\nb,u,p,\nc,u,q,\nd,,,factory\n").unwrap();
        let mut own = RowLogins::default();
        let names: Vec<String> = rows.into_iter().map(|row| own.target(row).login).collect();
        assert_eq!(names, ["table login 1", "table login 1", "table login 2", "factory"]);
        assert_eq!(own.logins.len(), 2);
    }
}
