//! The tools of `infiniband-diags`: read the topology of a fabric, and tables and counters from the ports themselves.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use rackwright_infiniband::dump::{self, Limits};
use rackwright_infiniband::{Dump, Fabric, Guid, Tables};

use crate::error::FabricError;
use crate::manager::Master;
use crate::tool::{ToolError, Tools};

/// Most unexpected tables that [`Diags::confirm`] reads again: reading all ports of an open fabric twice would delay its
/// repair.
const MAX_REREAD_TABLES: usize = 64;
/// Longest text of a tool's unreadable output in an error, in characters.
const MAX_OUTPUT_CHARS: usize = 200;

/// Reads a fabric through a port of this machine.
#[derive(Debug, Clone)]
pub struct Diags {
    tools: Tools,
}

/// The error counters of a port that are not zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortErrors {
    /// Node GUID of the device.
    pub device: Guid,
    /// Port number of the device.
    pub port: u8,
    /// Values by the counter names of `ibqueryerrors`.
    pub counters: BTreeMap<String, u64>,
}

impl Diags {
    /// Reads with these tools.
    pub fn new(tools: Tools) -> Self {
        Self { tools }
    }

    /// Devices and links, by `ibnetdiscover`.
    ///
    /// # Errors
    /// The tool fails, or its output is not a valid dump.
    pub async fn discover(&self) -> Result<Dump, FabricError> {
        let text = self.tools.run_on_fabric("ibnetdiscover", &[]).await?;
        Ok(dump::read(&text, Limits::default())?)
    }

    /// The master subnet manager, by `sminfo`.
    ///
    /// # Errors
    /// [`FabricError::NoMaster`] if there is no master, or it does not answer; the tool fails in another way.
    pub async fn master(&self) -> Result<Master, FabricError> {
        let text = match self.tools.run_on_fabric("sminfo", &[]).await {
            Err(ToolError::Failed { error_output, .. }) if is_silence(&error_output) => {
                tracing::debug!(error_output, "sminfo gets no answer");
                return Err(FabricError::NoMaster(None));
            }
            other => other?,
        };
        let text = String::from_utf8_lossy(&text);
        master(&text).ok_or_else(|| unreadable("sminfo", &text))
    }

    /// The port GUIDs of this machine's own adapters, by `ibstat`.
    ///
    /// # Errors
    /// The tool fails.
    pub async fn local_ports(&self) -> Result<BTreeSet<Guid>, FabricError> {
        let text = self.tools.run("ibstat", &["-p"]).await?;
        let text = String::from_utf8_lossy(&text);
        let guids = text.lines().map(str::trim).filter(|line| line.starts_with("0x"));
        Ok(guids.filter_map(|guid| guid.parse().ok()).collect())
    }

    /// The P_Key tables of these ports, by `smpquery`: each from the port itself. The result names the ports that do not
    /// answer.
    pub async fn tables(&self, ports: &BTreeSet<Guid>) -> Tables {
        let mut tables = Tables::default();
        let queries: Vec<_> = ports.iter().map(|port| self.port_and_table(*port)).collect();
        let mut answers = stream::iter(queries).buffer_unordered(self.tools.at_once());
        while let Some((port, answer)) = answers.next().await {
            match answer {
                Ok(table) => {
                    tables.read.insert(port, table);
                }
                Err(error) => {
                    tables.unread.insert(port, error.to_string());
                }
            }
        }
        tables
    }

    async fn port_and_table(&self, port: Guid) -> (Guid, Result<Vec<u16>, FabricError>) {
        (port, self.table(port).await)
    }

    /// The P_Key table of a port. The query names the port by its GUID: another port may have got its LID meanwhile.
    async fn table(&self, port: Guid) -> Result<Vec<u16>, FabricError> {
        let text = self
            .tools
            .run_on_fabric("smpquery", &["-G", "pkeys", &port.to_string()])
            .await?;
        let text = String::from_utf8_lossy(&text);
        p_keys(&text).ok_or_else(|| unreadable("smpquery", &text))
    }

    /// Reads unexpected tables again, and returns the present tables of those ports that are active and answer. Of many
    /// tables, only the first 64 are read again; if one of these still has its unexpected entries, the result has all
    /// further tables as they were.
    pub async fn confirm(&self, unexpected: &Tables) -> Tables {
        let first = unexpected.read.keys().take(MAX_REREAD_TABLES).copied();
        let active = self.active_ports(first.collect()).await;
        let mut confirmed = self.tables(&active).await;
        confirmed.unread.clear();
        // An unexpected table may lack the entries that the caller does not manage, so the port may have more.
        let has_unexpected_entries = |(port, table): (&Guid, &Vec<u16>)| {
            let former = unexpected.read.get(port);
            former.is_some_and(|former| former.iter().all(|entry| table.contains(entry)))
        };
        if confirmed.read.iter().any(has_unexpected_entries) {
            let others = unexpected.read.iter().skip(MAX_REREAD_TABLES);
            let others: BTreeMap<Guid, Vec<u16>> = others.map(|(port, table)| (*port, table.clone())).collect();
            confirmed.read.extend(others);
        }
        confirmed
    }

    /// The active ones of these ports, by `smpquery`. A port that does not answer counts as not active.
    async fn active_ports(&self, ports: BTreeSet<Guid>) -> BTreeSet<Guid> {
        let queries: Vec<_> = ports.into_iter().map(|port| self.port_if_active(port)).collect();
        let mut answers = stream::iter(queries).buffer_unordered(self.tools.at_once());
        let mut active = BTreeSet::new();
        while let Some(port) = answers.next().await {
            active.extend(port);
        }
        active
    }

    async fn port_if_active(&self, port: Guid) -> Option<Guid> {
        let text = self
            .tools
            .run_on_fabric("smpquery", &["-G", "portinfo", &port.to_string()])
            .await;
        let text = text.ok()?;
        is_active(&String::from_utf8_lossy(&text)).then_some(port)
    }

    /// Ports with error counters that are not zero, by `ibqueryerrors`.
    ///
    /// # Errors
    /// The tool fails.
    pub async fn errors(&self) -> Result<Vec<PortErrors>, FabricError> {
        let text = self.tools.run_on_fabric("ibqueryerrors", &[]).await?;
        Ok(port_errors(&String::from_utf8_lossy(&text)))
    }
}

/// The GUIDs of the ports that are up at all channel adapters, without aggregation nodes.
pub fn end_ports(fabric: &Fabric) -> BTreeSet<Guid> {
    let adapters = fabric.devices().filter(|(_, device)| device.is_adapter());
    let ports = adapters.flat_map(|(index, _)| fabric.ports(index).iter().filter(|port| port.up));
    ports.filter_map(|port| port.guid).collect()
}

fn unreadable(tool: &'static str, text: &str) -> FabricError {
    FabricError::Output {
        tool,
        text: text.chars().take(MAX_OUTPUT_CHARS).collect(),
    }
}

/// Whether `sminfo` ran and got no answer: `failed: query`, `failed: can't resolve sm port ...`.
fn is_silence(error_output: &str) -> bool {
    ["failed: query", "resolve sm port"]
        .iter()
        .any(|words| error_output.contains(words))
}

/// Parses `sminfo: sm lid 1 sm guid 0xa1, activity count 7 priority 0 state 3 SMINFO_MASTER`.
fn master(text: &str) -> Option<Master> {
    let after = |words: &str| text.split_once(words)?.1.split([',', ' ']).next();
    Some(Master {
        port: after("sm guid ")?.parse().ok()?,
        priority: after("priority ")?.parse().ok()?,
    })
}

/// Parses `LinkState:.......................Active`.
fn is_active(text: &str) -> bool {
    let states = text.lines().filter_map(|line| line.strip_prefix("LinkState:"));
    states.map(|state| state.trim_start_matches('.').trim()).eq(["Active"])
}

/// Parses a table of P_Keys: rows of eight such as `   8: 0xffff 0x8001 0x0000 ...`, then `64 pkeys capacity for this port`.
/// A table with a gap between its rows is refused: the entries in the gap are unknown.
fn p_keys(text: &str) -> Option<Vec<u16>> {
    let mut table = Vec::new();
    let mut capacity = None;
    for line in text.lines() {
        if let Some(number) = line.strip_suffix(" pkeys capacity for this port") {
            capacity = number.trim().parse::<usize>().ok();
            continue;
        }
        let Some((index, keys)) = line.split_once(':') else {
            continue;
        };
        if index.trim().parse::<usize>().ok()? != table.len() {
            return None;
        }
        for key in keys.split_whitespace() {
            table.push(u16::from_str_radix(key.strip_prefix("0x")?, 16).ok()?);
        }
    }
    // The last block is printed whole, even if the port has fewer entries.
    (capacity? <= table.len()).then_some(table)
}

/// Parses lines such as `   GUID 0xfc6a1c0301000000 port 3: [SymbolErrorCounter == 77] [LinkDownedCounter == 1]`, and skips
/// all others.
fn port_errors(text: &str) -> Vec<PortErrors> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.trim_start().strip_prefix("GUID ") else {
            continue;
        };
        let Some((place, counters)) = rest.split_once(':') else {
            continue;
        };
        let Some((guid, port)) = place.split_once(" port ") else {
            continue;
        };
        // The line with port ALL is the sum over all ports.
        let (Ok(device), Ok(port)) = (guid.parse(), port.trim().parse()) else {
            continue;
        };
        let pairs = counters.split('[').skip(1).filter_map(|counter| {
            let (name, value) = counter.split(']').next()?.split_once(" == ")?;
            let digits = value.split([' ', '(']).next()?;
            Some((name.to_owned(), digits.parse().ok()?))
        });
        found.push(PortErrors {
            device,
            port,
            counters: pairs.collect(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_whole_or_not_at_all() {
        let text = "   0: 0xffff 0x8001 0x0000 0x0000 0x0000 0x0000 0x0000 0x0000\n   8: 0x0010 0x0000 0x0000 0x0000 0x0000 \
                    0x0000 0x0000 0x0000\n16 pkeys capacity for this port\n";
        let table = p_keys(text).expect("a table");
        assert_eq!(
            (table.len(), table[0], table[1], table[8]),
            (16, 0xffff, 0x8001, 0x0010)
        );
        for broken in [
            "",
            "16 pkeys capacity for this port\n",
            &text.replace("   8:", "  16:"),
            &text.replace("0x0010", "16"),
            &text.replace("16 pkeys", "32 pkeys"),
            text.split("16 pkeys").next().unwrap_or_default(),
        ] {
            assert_eq!(p_keys(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_port_is_active_only_in_the_active_state() {
        let text = "Lid:.............................8\nLinkState:.......................Active\n\
                    PhysLinkState:...................LinkUp\n";
        assert!(is_active(text));
        for other in [
            "",
            "Active",
            &text.replace("Active", "Init"),
            &text.replace("LinkState", "State"),
        ] {
            assert!(!is_active(other), "{other}");
        }
    }

    #[test]
    fn error_counters_are_read() {
        let text = "Errors for \"leaf-1\"\n   GUID 0xa1 port ALL: [SymbolErrorCounter == 78]\n   GUID 0xa1 port 3: \
                    [SymbolErrorCounter == 77] [PortXmitWait == 12 (12.000)]\n## Summary: 3 nodes checked\n";
        let found = port_errors(text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].device.get(), found[0].port), (0xa1, 3));
        assert_eq!(found[0].counters["SymbolErrorCounter"], 77);
        assert_eq!(found[0].counters["PortXmitWait"], 12);
    }
}
