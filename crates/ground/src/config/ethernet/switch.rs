//! The entries of `ethernet.switches`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rackwright_ports::{
    Address, Fingerprint, HostKey, Login, Netconf, NetconfSettings, OpenVSwitch, OvsSettings, OwnCertificate,
    PortDriver, SshAddress, SshSettings, TlsSettings,
};
use serde::Deserialize;

/// A faulty field and its fault.
type Fault = (&'static str, String);

/// An entry of `ethernet.switches`: a switch with OVSDB or with NETCONF.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchSettings {
    /// Address of the OVSDB server: `ssl:HOST:PORT`, `tcp:HOST:PORT` or `unix:/PATH`.
    ovsdb: Option<String>,
    /// SHA-256 of the switch's certificate, for an address `ssl:`.
    certificate_sha256: Option<String>,
    /// The bridge with the ports, for `ovsdb`. Default: `br0`.
    bridge: Option<String>,
    /// Address of the NETCONF server: `ssh://HOST:PORT`.
    netconf: Option<String>,
    /// SHA-256 of the switch's host key, for `netconf`.
    host_key_sha256: Option<String>,
    /// The control plane's user on the switch, for `netconf`.
    user: Option<String>,
    /// File of the user's private key, for `netconf`.
    key_file: Option<PathBuf>,
    /// File of the user's password, for `netconf`.
    password_file: Option<PathBuf>,
    /// What isolates the ports of the networks whose machines do not reach each other, for `netconf`.
    isolated_by: Option<IsolatedBy>,
    /// System Name or Chassis ID that the switch sends by LLDP; `None`: its name in the site file.
    pub(super) lldp_name: Option<String>,
}

/// The value of `isolated_by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum IsolatedBy {
    /// The site's own configuration of the switch.
    Site,
}

/// A checked entry.
enum Connection {
    Ovsdb(Address, Option<Fingerprint>),
    Netconf(SshSettings),
}

impl SwitchSettings {
    /// Whether the address is on another host and has neither TLS nor SSH.
    pub(super) fn is_unprotected(&self) -> bool {
        let Some(Ok(Address::Tcp(address))) = self.ovsdb.as_deref().map(str::parse) else {
            return false;
        };
        let socket = address.parse::<SocketAddr>();
        !socket.is_ok_and(|socket| socket.ip().is_loopback())
    }

    /// Whether the address is of the form `ssl:`.
    pub(super) fn uses_tls(&self) -> bool {
        self.ovsdb.as_deref().is_some_and(|address| address.starts_with("ssl:"))
    }

    /// The faulty fields and their faults. Machines in the VLANs of `isolated` do not reach each other.
    pub(super) fn faults(&self, isolated: &BTreeSet<u16>) -> Vec<Fault> {
        let mut faults = self.connection().err().unwrap_or_default();
        if self.netconf.is_some() && self.isolated_by.is_none() {
            let vlans = isolated.iter().map(u16::to_string).collect::<Vec<_>>().join(" and ");
            faults.push((
                "isolated_by",
                format!(
                    "OpenConfig has no port isolation, so Rackwright cannot isolate the ports in VLAN {vlans} on this switch. \
                     Write `site` if the switch itself isolates them, for example by private VLANs. With \
                     `isolate_provisioning: false` this applies only to the quarantine VLAN"
                ),
            ));
        }
        if self.lldp_name.as_deref() == Some("") {
            faults.push(("lldp_name", "write the name, or leave the field out".to_owned()));
        }
        faults
    }

    fn connection(&self) -> Result<Connection, Vec<Fault>> {
        let of_ovsdb = [
            ("certificate_sha256", self.certificate_sha256.is_some()),
            ("bridge", self.bridge.is_some()),
        ];
        let of_netconf = [
            ("host_key_sha256", self.host_key_sha256.is_some()),
            ("user", self.user.is_some()),
            ("key_file", self.key_file.is_some()),
            ("password_file", self.password_file.is_some()),
            ("isolated_by", self.isolated_by.is_some()),
        ];
        let idle = |fields: &[(&'static str, bool)], kind: &str| -> Vec<Fault> {
            let set = fields.iter().filter(|(_, is_set)| *is_set);
            set.map(|(field, _)| (*field, format!("has no effect with {kind}")))
                .collect()
        };
        let (idle, connection) = match (&self.ovsdb, &self.netconf) {
            (Some(address), None) => (idle(&of_netconf, "ovsdb"), self.ovsdb(address)),
            (None, Some(address)) => (idle(&of_ovsdb, "netconf"), self.ssh(address).map(Connection::Netconf)),
            (Some(_), Some(_)) => {
                let words = "a switch has either `ovsdb` or `netconf`; remove one of them";
                return Err(vec![("netconf", words.to_owned())]);
            }
            (None, None) => {
                let words = "write the address of the switch: `ovsdb` or `netconf`";
                return Err(vec![("ovsdb", words.to_owned())]);
            }
        };
        match connection {
            Ok(connection) if idle.is_empty() => Ok(connection),
            Ok(_) => Err(idle),
            Err(fault) => Err(idle.into_iter().chain([fault]).collect()),
        }
    }

    /// The address, and the switch's certificate for an address with TLS.
    fn ovsdb(&self, address: &str) -> Result<Connection, Fault> {
        let field = "certificate_sha256";
        let address: Address = address.parse().map_err(|fault| ("ovsdb", format!("{fault}")))?;
        match (&address, &self.certificate_sha256) {
            (Address::Tls(_), Some(text)) => {
                let certificate = text.parse().map_err(|fault| (field, format!("{fault}")))?;
                Ok(Connection::Ovsdb(address, Some(certificate)))
            }
            (Address::Tls(_), None) => {
                let fault = "must be set with an address ssl:, so that no other host can answer as the switch";
                Err((field, fault.to_owned()))
            }
            (_, Some(_)) => Err((field, "has no effect without an address ssl:".to_owned())),
            (_, None) => Ok(Connection::Ovsdb(address, None)),
        }
    }

    fn ssh(&self, address: &str) -> Result<SshSettings, Fault> {
        let address: SshAddress = address.parse().map_err(|fault| ("netconf", format!("{fault}")))?;
        let host_key = self.host_key_sha256.as_deref().ok_or_else(|| {
            let fault = "must be set with netconf, so that no other host can answer as the switch";
            ("host_key_sha256", fault.to_owned())
        })?;
        let host_key: HostKey = host_key
            .parse()
            .map_err(|fault| ("host_key_sha256", format!("{fault}")))?;
        let user = self.user.clone().filter(|user| !user.is_empty());
        let user = user.ok_or_else(|| {
            (
                "user",
                "must be set with netconf: the user of Rackwright on the switch".to_owned(),
            )
        })?;
        let (field, file, login) = match (&self.key_file, &self.password_file) {
            (Some(file), None) => ("key_file", file, Login::Key(file.clone())),
            (None, Some(file)) => ("password_file", file, Login::Password(file.clone())),
            (Some(_), Some(_)) => {
                return Err((
                    "password_file",
                    "has no effect with key_file; remove one of them".to_owned(),
                ));
            }
            (None, None) => {
                return Err(("key_file", "must be set with netconf, or password_file".to_owned()));
            }
        };
        if !file.is_file() {
            return Err((field, format!("{} is not a file", file.display())));
        }
        Ok(SshSettings {
            address,
            host_key,
            user,
            login,
        })
    }

    /// The driver; `None` if the entry is faulty.
    pub(super) fn driver(
        &self,
        switch: &str,
        own: Option<OwnCertificate>,
        isolated: BTreeSet<u16>,
        timeout: Duration,
    ) -> Option<Arc<dyn PortDriver>> {
        let switch = switch.to_owned();
        Some(match self.connection().ok()? {
            Connection::Ovsdb(address, certificate) => Arc::new(OpenVSwitch::new(OvsSettings {
                switch,
                address,
                tls: certificate.map(|certificate| TlsSettings { certificate, own }),
                bridge: self.bridge.clone().unwrap_or_else(|| "br0".to_owned()),
                timeout,
            })),
            Connection::Netconf(ssh) => Arc::new(Netconf::new(NetconfSettings {
                switch,
                ssh,
                isolated,
                timeout,
            })),
        })
    }
}
