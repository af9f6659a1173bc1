//! The tools of `infiniband-diags`: read the topology of a fabric, and tables and counters from the ports themselves.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use rackwright_infiniband::dump::{self, Limits};
use rackwright_infiniband::{Dump, Fabric, Guid, Tables};

use crate::error::FabricError;
use crate::tool::Tools;

/// Unexpected tables that are read again. If there are more, and one of these counts, the others count too: reading all
/// ports of an open fabric twice would delay its repair.
const MAX_CONFIRMED: usize = 64;

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
        let text = self.tools.run("ibnetdiscover", &[]).await?;
        Ok(dump::read(&text, Limits::default())?)
    }

    /// The port GUID of the master subnet manager, by `sminfo`.
    ///
    /// # Errors
    /// There is no master, or it does not answer.
    pub async fn master(&self) -> Result<Guid, FabricError> {
        let text = self.tools.run("sminfo", &[]).await?;
        let text = String::from_utf8_lossy(&text);
        let guid = text
            .split_once("sm guid ")
            .and_then(|(_, rest)| rest.split([',', ' ']).next()?.parse().ok());
        guid.ok_or_else(|| FabricError::Output {
            tool: "sminfo",
            text: text.chars().take(200).collect(),
        })
    }

    /// The P_Key tables of these ports, by `smpquery`: each from the port itself. Ports that do not answer are listed in
    /// the result.
    pub async fn tables(&self, ports: &BTreeSet<Guid>) -> Tables {
        let mut tables = Tables::default();
        let asked: Vec<_> = ports.iter().map(|port| self.asked(*port)).collect();
        let mut answers = stream::iter(asked).buffer_unordered(self.tools.at_once());
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

    async fn asked(&self, port: Guid) -> (Guid, Result<Vec<u16>, FabricError>) {
        (port, self.table(port).await)
    }

    /// Addressed by GUID, not by LID: meanwhile another port may have got the LID.
    async fn table(&self, port: Guid) -> Result<Vec<u16>, FabricError> {
        let text = self.tools.run("smpquery", &["-G", "pkeys", &port.to_string()]).await?;
        let text = String::from_utf8_lossy(&text);
        p_keys(&text).ok_or_else(|| FabricError::Output {
            tool: "smpquery",
            text: text.chars().take(200).collect(),
        })
    }

    /// Those of these unexpected tables that count: their ports are active, and are read again.
    pub async fn confirm(&self, unexpected: &Tables) -> Tables {
        let first = unexpected.read.keys().take(MAX_CONFIRMED).copied();
        let active = self.active(first.collect()).await;
        let mut confirmed = self.tables(&active).await;
        confirmed.unread.clear();
        // The unexpected tables may lack entries that the caller does not manage.
        let is_same = |(port, table): (&Guid, &Vec<u16>)| {
            let known = unexpected.read.get(port);
            known.is_some_and(|known| known.iter().all(|entry| table.contains(entry)))
        };
        if confirmed.read.iter().any(is_same) {
            let others = unexpected.read.iter().skip(MAX_CONFIRMED);
            let others: BTreeMap<Guid, Vec<u16>> = others.map(|(port, table)| (*port, table.clone())).collect();
            confirmed.read.extend(others);
        }
        confirmed
    }

    /// Those of these ports that are active, by `smpquery`. A port that does not answer is not.
    async fn active(&self, ports: BTreeSet<Guid>) -> BTreeSet<Guid> {
        let states: Vec<_> = ports.into_iter().map(|port| self.state(port)).collect();
        let mut answers = stream::iter(states).buffer_unordered(self.tools.at_once());
        let mut active = BTreeSet::new();
        while let Some(port) = answers.next().await {
            active.extend(port);
        }
        active
    }

    /// The port, if it is active.
    async fn state(&self, port: Guid) -> Option<Guid> {
        let text = self.tools.run("smpquery", &["-G", "portinfo", &port.to_string()]).await;
        let text = text.ok()?;
        is_active(&String::from_utf8_lossy(&text)).then_some(port)
    }

    /// Ports with error counters that are not zero, by `ibqueryerrors`.
    ///
    /// # Errors
    /// The tool fails.
    pub async fn errors(&self) -> Result<Vec<PortErrors>, FabricError> {
        let text = self.tools.run("ibqueryerrors", &[]).await?;
        Ok(port_errors(&String::from_utf8_lossy(&text)))
    }
}

/// The port GUIDs of all channel adapters that are up, without aggregation nodes.
pub fn end_ports(fabric: &Fabric) -> BTreeSet<Guid> {
    let adapters = fabric.devices().filter(|(_, device)| device.is_adapter());
    let ports = adapters.flat_map(|(ix, _)| fabric.ports(ix).iter().filter(|port| port.up));
    ports.filter_map(|port| port.guid).collect()
}

/// Parses `LinkState:.......................Active`.
fn is_active(text: &str) -> bool {
    let states = text.lines().filter_map(|line| line.strip_prefix("LinkState:"));
    states.map(|state| state.trim_start_matches('.').trim()).eq(["Active"])
}

/// Parses `   0: 0xffff 0x8001 0x0000 ...` in rows of eight, then `64 pkeys capacity for this port`. A gap between rows is
/// refused: its entries would be unknown.
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

/// `   GUID 0xfc6a1c0301000000 port 3: [SymbolErrorCounter == 77] [LinkDownedCounter == 1]`.
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
    fn a_port_is_active_only_if_its_state_says_so() {
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
