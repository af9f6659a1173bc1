//! Open vSwitch, and other switches with its management protocol: OVSDB (RFC 7047) with the schema `Open_vSwitch`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::driver::{Applied, PortDriver};
use crate::error::PortsError;
use crate::model::{Access, Change, PortState, SwitchConfig, SwitchReading, Version, Vlan, difference, verify};
use crate::tls::TlsSettings;
use crate::wire::{Address, Connection, excerpt};

const DATABASE: &str = "Open_vSwitch";
/// The key in a port's `external_ids` for the version of the last wish.
const VERSION_KEY: &str = "rackwright-version";
/// The columns of a port that determine its VLANs, isolation and version.
const COLUMNS: [&str; 6] = ["tag", "trunks", "cvlans", "vlan_mode", "protected", "external_ids"];
/// Number of tries while another client changes the same ports.
const TRIES: usize = 3;
/// The switch delays an answer for at most this long, in milliseconds, until its configuration changes.
const WAIT_MS: u64 = 2000;

/// The settings of an Open vSwitch.
#[derive(Debug, Clone)]
pub struct OvsSettings {
    /// The switch's name in the site.
    pub switch: String,
    /// The address of its OVSDB server.
    pub address: Address,
    /// The certificates for an address with TLS.
    pub tls: Option<TlsSettings>,
    /// The bridge of the ports.
    pub bridge: String,
    /// The time limit of one call.
    pub timeout: Duration,
}

/// A driver for an Open vSwitch.
#[derive(Debug, Clone)]
pub struct OpenVSwitch(OvsSettings);

/// The state of the switch, as read in one answer.
struct SwitchSnapshot {
    reading: SwitchReading,
    /// By port: the row's id, and its columns in the switch's encoding.
    rows: BTreeMap<String, (Value, serde_json::Map<String, Value>)>,
    /// The number of the configuration in effect.
    current: i64,
    /// The number of the stored configuration.
    stored: i64,
}

impl OpenVSwitch {
    /// Creates a driver with these settings. It does not connect yet.
    #[must_use]
    pub fn new(settings: OvsSettings) -> Self {
        Self(settings)
    }

    async fn with_timeout<T>(&self, work: impl Future<Output = Result<T, PortsError>>) -> Result<T, PortsError> {
        let late = || PortsError::Timeout {
            switch: self.0.switch.clone(),
            seconds: self.0.timeout.as_secs(),
        };
        tokio::time::timeout(self.0.timeout, work).await.map_err(|_| late())?
    }

    async fn connect(&self) -> Result<Connection, PortsError> {
        Connection::open(&self.0.switch, &self.0.address, self.0.tls.as_ref()).await
    }

    async fn snapshot(&self, connection: &mut Connection) -> Result<SwitchSnapshot, PortsError> {
        let mut columns = vec!["_uuid", "name"];
        columns.extend(COLUMNS);
        let operations = vec![
            json!({"op": "select", "table": "Bridge", "where": [["name", "==", self.0.bridge]], "columns": ["ports"]}),
            json!({"op": "select", "table": "Port", "where": [], "columns": columns}),
            json!({"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["cur_cfg", "next_cfg"]}),
        ];
        let results = connection.transact(DATABASE, operations).await?;
        let [bridges, ports, config] = results.as_slice() else {
            return Err(connection.not_understood("the answer does not have three results"));
        };
        let Some([bridge]) = rows(bridges) else {
            return Err(PortsError::NoBridge {
                switch: self.0.switch.clone(),
                bridge: self.0.bridge.clone(),
            });
        };
        let own: BTreeSet<String> = set(&bridge["ports"]).iter().filter_map(uuid).collect();
        let mut snapshot = SwitchSnapshot {
            reading: SwitchReading::default(),
            rows: BTreeMap::new(),
            current: 0,
            stored: 0,
        };
        let listed = rows(ports).ok_or_else(|| connection.not_understood("the ports are not a list"))?;
        for row in listed {
            let Value::Object(row) = row else {
                return Err(connection.not_understood("a port is not a row"));
            };
            let id = row.get("_uuid").cloned().unwrap_or_default();
            if !uuid(&id).is_some_and(|id| own.contains(&id)) {
                continue;
            }
            let name = row.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| connection.not_understood("a port has no name"))?;
            let state =
                state(row).map_err(|what| connection.not_understood(&format!("port {}: {what}", excerpt(name))))?;
            snapshot.reading.ports.insert(name.to_owned(), state);
            let mut row = row.clone();
            row.retain(|column, _| COLUMNS.contains(&column.as_str()));
            snapshot.rows.insert(name.to_owned(), (id, row));
        }
        let config = rows(config).and_then(|rows| rows.first());
        let number = |column| config.and_then(|row| row[column].as_i64());
        let (Some(current), Some(stored)) = (number("cur_cfg"), number("next_cfg")) else {
            return Err(connection.not_understood("the configuration in effect is missing"));
        };
        (snapshot.current, snapshot.stored) = (current, stored);
        snapshot.reading.in_effect = current >= stored;
        Ok(snapshot)
    }

    /// Waits until the stored configuration is in effect. Returns the present state if it does not take effect in time.
    async fn settled_snapshot(&self, connection: &mut Connection) -> Result<SwitchSnapshot, PortsError> {
        loop {
            let snapshot = self.snapshot(connection).await?;
            if snapshot.reading.in_effect {
                return Ok(snapshot);
            }
            let until = json!({
                "op": "wait", "table": "Open_vSwitch", "where": [], "columns": ["cur_cfg"], "until": "!=",
                "rows": [{"cur_cfg": snapshot.current}], "timeout": WAIT_MS,
            });
            match connection.transact(DATABASE, vec![until]).await {
                Ok(_) => {}
                // The switch has not changed within the wait.
                Err(PortsError::Contended { .. }) => return Ok(snapshot),
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) async fn reading(&self, connection: &mut Connection) -> Result<SwitchReading, PortsError> {
        Ok(self.settled_snapshot(connection).await?.reading)
    }

    async fn apply_config(&self, config: &SwitchConfig) -> Result<Applied, PortsError> {
        let mut connection = self.connect().await?;
        let mut before = self.snapshot(&mut connection).await?;
        let mut changed = false;
        for tries in 1.. {
            let changes = difference(&self.0.switch, config, &before.reading)?;
            if changes.is_empty() {
                break;
            }
            match write(&mut connection, &before, &changes, config.version).await {
                Ok(()) => {
                    changed = true;
                    break;
                }
                Err(PortsError::Contended { .. }) if tries < TRIES => {
                    before = self.snapshot(&mut connection).await?;
                }
                Err(error) => return Err(error),
            }
        }
        let after = self.settled_snapshot(&mut connection).await?;
        verify(&self.0.switch, config, &after.reading)?;
        Ok(Applied {
            changed,
            // The configuration in effect has the number of the stored one.
            operational: true,
            reading: after.reading,
        })
    }
}

#[async_trait]
impl PortDriver for OpenVSwitch {
    fn switch(&self) -> &str {
        &self.0.switch
    }

    async fn apply(&self, config: &SwitchConfig) -> Result<Applied, PortsError> {
        self.with_timeout(self.apply_config(config)).await
    }

    async fn read(&self) -> Result<SwitchReading, PortsError> {
        let read = async {
            let mut connection = self.connect().await?;
            self.reading(&mut connection).await
        };
        self.with_timeout(read).await
    }
}

/// Sets ports in one transaction. The transaction fails if a port has changed since it was read.
async fn write(
    connection: &mut Connection,
    before: &SwitchSnapshot,
    changes: &[Change],
    version: Version,
) -> Result<(), PortsError> {
    let mut operations = Vec::new();
    for Change { port, access } in changes {
        let Some((id, row)) = before.rows.get(port) else {
            continue;
        };
        operations.push(json!({
            "op": "wait", "table": "Port", "where": [["_uuid", "==", id]], "columns": COLUMNS, "until": "==",
            "rows": [row], "timeout": 0,
        }));
        let row = requested_row(*access, row.get("external_ids"), version);
        operations.push(json!({"op": "update", "table": "Port", "where": [["_uuid", "==", id]], "row": row}));
    }
    // The switch reports this number in `cur_cfg` once it has carried out the stored configuration.
    operations
        .push(json!({"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}));
    operations.push(json!({"op": "comment", "comment": format!("rackwright: ports of version {version}")}));
    connection.transact(DATABASE, operations).await.map(|_| ())
}

fn requested_row(access: Access, external_ids: Option<&Value>, version: Version) -> Value {
    let mut ids: Vec<Value> = external_ids.map(pairs).unwrap_or_default().to_vec();
    ids.retain(|pair| pair[0] != VERSION_KEY);
    ids.push(json!([VERSION_KEY, version.to_string()]));
    json!({
        "tag": access.vlan,
        "trunks": ["set", []],
        "cvlans": ["set", []],
        "vlan_mode": "access",
        "protected": access.isolated,
        "external_ids": ["map", ids],
    })
}

/// Parses a port's row.
fn state(row: &serde_json::Map<String, Value>) -> Result<PortState, &'static str> {
    let column = |name: &str| row.get(name).ok_or("a column is missing");
    let vlans = |name: &str| -> Result<BTreeSet<u16>, &'static str> {
        let vlan = |value: &Value| value.as_u64().and_then(|vlan| u16::try_from(vlan).ok());
        let vlans: Option<_> = set(column(name)?).iter().map(vlan).collect();
        vlans.ok_or("a VLAN is not a number")
    };
    let tag = vlans("tag")?;
    let trunks = vlans("trunks")?;
    let mode = set(column("vlan_mode")?);
    let mode = mode.first().and_then(Value::as_str);
    let vlan = match (mode, tag.first(), trunks.is_empty()) {
        (None | Some("access"), Some(vlan), true) => Vlan::Access(*vlan),
        (None | Some("trunk"), None, _) => Vlan::Trunk(trunks),
        (mode, ..) => Vlan::Other(format!("mode {:?}, tag {tag:?}", excerpt(mode.unwrap_or("none")))),
    };
    let ids = column("external_ids")?;
    let version = pairs(ids).iter().find(|pair| pair[0] == VERSION_KEY);
    let version = version.and_then(|pair| pair[1].as_str());
    Ok(PortState {
        vlan,
        isolated: column("protected")?.as_bool().ok_or("`protected` is not a boolean")?,
        // A malformed version was not written by Rackwright.
        version: version.and_then(|text| text.parse().ok()),
    })
}

/// The rows of a `select`.
fn rows(result: &Value) -> Option<&[Value]> {
    result.get("rows")?.as_array().map(Vec::as_slice)
}

/// The members of a set. A set with one member may be written as that member.
fn set(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) if items.first().and_then(Value::as_str) == Some("set") => {
            items.get(1).and_then(Value::as_array).map_or(&[], Vec::as_slice)
        }
        one => std::slice::from_ref(one),
    }
}

/// The pairs of a map.
fn pairs(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) if items.first().and_then(Value::as_str) == Some("map") => {
            items.get(1).and_then(Value::as_array).map_or(&[], Vec::as_slice)
        }
        _ => &[],
    }
}

fn uuid(value: &Value) -> Option<String> {
    match value.as_array().map(Vec::as_slice) {
        Some([kind, id]) if kind == "uuid" => id.as_str().map(str::to_owned),
        _ => None,
    }
}
