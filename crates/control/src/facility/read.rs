//! Reads one node, PDU or cooling unit, and converts the answer to the readings of the site's calculations.

use std::time::Duration;

use rackwright_ground::bmc::{self, BmcError};
use rackwright_ground::core::Core;
use rackwright_nodes::credentials;
use rackwright_redfish::{
    BmcClient, BmcHints, BmcTarget, Breaker, CduReadings, CertificateFingerprint, CircuitReading, ConnectorSide,
    InventoryGap, LeakReading, LeakState, NodeReadings, PduReadings, PowerState,
};
use rackwright_site::power::readings::{
    BreakerState, CircuitState, CoolingReading, Leak, LeakLevel, NodeReading, PduReading, Reading, Sensor,
};
use rackwright_store::NodeRecord;
use secrecy::SecretString;

/// Longest answer, in bytes: ten times the sensors of the largest machines.
const BODY_BYTES: usize = 512 << 10;
/// Longest wait for the end of a session. After it the session is left to time out.
const CLOSE: Duration = Duration::from_secs(5);
/// Most sensors kept of a node: those nearest to their limits.
const SENSORS: usize = 8;
/// Most leak detectors kept.
const DETECTORS: usize = 64;
/// Most circuits kept of each side of a PDU.
const CIRCUITS: usize = 48;

/// Kind of the read equipment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Node,
    Pdu,
    Cooling,
}

impl Kind {
    /// Name of the kind in the database.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pdu => "pdu",
            Self::Cooling => "cooling",
        }
    }
}

/// A PDU or cooling unit, with its address and certificate.
#[derive(Debug, Clone)]
pub(super) struct Equipment {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) address: String,
    /// Certificate from the settings.
    pub(super) certificate: Option<String>,
}

/// Reads a node over its BMC, within `limit`.
pub(super) async fn node(
    core: &Core,
    record: &NodeRecord,
    known: &mut BmcHints,
    limit: Duration,
) -> Result<Reading, String> {
    let address = &record.spec.bmc_address;
    let description = |error: BmcError| error.description(address);
    if let Some(doubt) = &record.node.doubt {
        return Err(description(BmcError::Doubted(doubt.why.clone())));
    }
    let target = bmc::target(&record.id, &record.spec, &core.keys.sealer).map_err(description)?;
    let client = BmcClient::for_polling(target, client_settings(core), known).map_err(|e| description(e.into()))?;
    let reading = async {
        let read = client.node_readings().await.map_err(BmcError::from);
        if let Err(error) = &read
            && let Err(failure) = credentials::store_refusal(core, &record.id, &record.spec, error).await
        {
            tracing::warn!(node = record.id.as_str(), %failure, "the refusal of the login by a BMC could not be stored");
        }
        read
    };
    let read = with_limit(limit, address, reading).await;
    *known = client.hints().await;
    close(&client).await;
    Ok(Reading::Node(of_node(read?)))
}

/// Result of reading a PDU or cooling unit.
#[derive(Debug)]
pub(super) struct EquipmentReading {
    /// The reading, or the reason for the failure.
    pub(super) reading: Result<Reading, String>,
    /// Address and certificate that were seen. They are trusted from then on, unless the settings name a certificate.
    pub(super) pin: Option<String>,
}

/// Reads a PDU or cooling unit, within `limit`. `pin` is the stored address and certificate.
pub(super) async fn equipment(
    core: &Core,
    one: &Equipment,
    account: (String, SecretString),
    pin: Option<&str>,
    known: &mut BmcHints,
    limit: Duration,
) -> EquipmentReading {
    let client = match client_of(core, one, account, pin, known) {
        Ok(client) => client,
        Err(error) => {
            return EquipmentReading {
                reading: Err(error.description(&one.address)),
                pin: None,
            };
        }
    };
    let reading = match one.kind {
        Kind::Cooling => {
            let read = with_limit(limit, &one.address, client.cdu_readings(&one.name)).await;
            read.map(|read| Reading::Cooling(of_cdu(read)))
        }
        _ => {
            let read = with_limit(limit, &one.address, client.pdu_readings(&one.name)).await;
            read.map(|read| Reading::Pdu(of_pdu(read)))
        }
    };
    // Also after a failed reading: the first certificate seen is the trusted one from then on.
    let seen = client.observed_fingerprint();
    *known = client.hints().await;
    close(&client).await;
    EquipmentReading {
        reading,
        pin: seen.map(|seen| format!("{} {seen}", one.address)),
    }
}

fn client_of(
    core: &Core,
    one: &Equipment,
    account: (String, SecretString),
    pin: Option<&str>,
    known: &BmcHints,
) -> Result<BmcClient, BmcError> {
    let kept = pin.and_then(|pin| pin.strip_prefix(&format!("{} ", one.address)).map(str::to_owned));
    let pin = match one.certificate.clone().or(kept).filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(
            text.parse::<CertificateFingerprint>()
                .map_err(|_| BmcError::Pin(text))?,
        ),
    };
    let target = BmcTarget {
        address: one.address.clone(),
        username: account.0,
        password: account.1,
        certificate_sha256: pin,
        system: None,
    };
    Ok(BmcClient::for_polling(target, client_settings(core), known)?)
}

fn client_settings(core: &Core) -> rackwright_redfish::Settings {
    let mut settings = rackwright_ground::bmc::watch_settings(core);
    settings.limits.body_bytes = BODY_BYTES;
    settings
}

/// Limits a reading, so that a slow BMC does not keep others from being read.
async fn with_limit<T, E: Into<BmcError>>(
    limit: Duration,
    address: &str,
    reading: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout(limit, reading).await {
        Ok(read) => read.map_err(|error| error.into().description(address)),
        Err(_) => Err(format!(
            "BMC {address}: one reading took longer than {} s and was stopped",
            limit.as_secs_f64()
        )),
    }
}

async fn close(client: &BmcClient) {
    match tokio::time::timeout(CLOSE, client.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(bmc = client.address(), %error, "a session could not be closed; it will time out");
        }
        Err(_) => tracing::debug!(
            bmc = client.address(),
            "a session was not closed in time; it will time out"
        ),
    }
}

fn of_node(read: NodeReadings) -> NodeReading {
    let mut sensors: Vec<Sensor> = read
        .temperatures
        .into_iter()
        .filter_map(|one| {
            Some(Sensor {
                name: one.name,
                celsius: one.celsius,
                limit_celsius: one.upper_critical?,
            })
        })
        .collect();
    sensors.sort_by(|a, b| (b.celsius - b.limit_celsius).total_cmp(&(a.celsius - a.limit_celsius)));
    sensors.truncate(SENSORS);
    let is_failed = |health: &Option<String>| {
        health
            .as_deref()
            .is_some_and(|one| one.eq_ignore_ascii_case("critical"))
    };
    let failed = read.supplies.iter().filter(|one| is_failed(&one.health));
    let failed = failed.map(|one| one.name.clone()).collect();
    NodeReading {
        on: match read.power {
            PowerState::On => Some(true),
            PowerState::Off => Some(false),
            _ => None,
        },
        watts: read.watts,
        sensors,
        leaks: leaks(read.leaks),
        failed_supplies: (!read.supplies.is_empty()).then_some(failed),
        has_gaps: !read.gaps.is_empty(),
    }
}

/// The reports of leak detectors, worst first.
fn leaks(read: Vec<LeakReading>) -> Vec<Leak> {
    let level = |state| match state {
        LeakState::Dry => LeakLevel::Dry,
        LeakState::Unknown => LeakLevel::Unknown,
        LeakState::Warning => LeakLevel::Moist,
        LeakState::Leak => LeakLevel::Wet,
    };
    let mut all: Vec<Leak> = read
        .into_iter()
        .map(|one| Leak {
            name: one.name,
            level: level(one.state),
        })
        .collect();
    // Wet detectors come first, so the limit does not drop them.
    all.sort_by_key(|one| std::cmp::Reverse(one.level as u8));
    all.truncate(DETECTORS);
    all
}

fn of_pdu(read: PduReadings) -> PduReading {
    let circuits = |read: Vec<CircuitReading>, outlets: &dyn Fn(&CircuitReading) -> Vec<String>| {
        read.into_iter()
            .take(CIRCUITS)
            .map(|one| CircuitState {
                outlets: outlets(&one),
                breaker: match one.breaker {
                    Breaker::Closed => BreakerState::Closed,
                    Breaker::Tripped => BreakerState::Tripped,
                    Breaker::Off => BreakerState::Off,
                    Breaker::Unknown => BreakerState::Unknown,
                },
                volts: one.volts,
                name: one.name,
            })
            .collect()
    };
    // The site names outlets by label, Redfish by id: both are accepted. On some PDUs only the outlet has a link to its
    // branch.
    let on_branch = |circuit: &CircuitReading| {
        let is_on = |outlet: &&rackwright_redfish::OutletReading| {
            circuit.outlets.contains(&outlet.id) || outlet.branch.as_deref() == Some(circuit.id.as_str())
        };
        let on = read.outlets.iter().filter(is_on);
        let mut names: Vec<String> = on
            .flat_map(|outlet| [Some(outlet.id.clone()), Some(outlet.name.clone()), outlet.label.clone()])
            .flatten()
            .collect();
        names.extend(circuit.outlets.iter().cloned());
        names.sort();
        names.dedup();
        names
    };
    PduReading {
        watts: read.watts,
        has_gaps: !read.gaps.is_empty(),
        mains: circuits(read.mains, &|_| Vec::new()),
        branches: circuits(read.branches, &on_branch),
    }
}

fn of_cdu(read: CduReadings) -> CoolingReading {
    let racks = || {
        read.connectors
            .iter()
            .filter(|one| one.side == ConnectorSide::Secondary)
    };
    // All connectors in use must report a flow, otherwise the sum would be too small.
    let flows: Vec<f64> = racks().map_while(|one| one.flow_lpm).collect();
    let is_unread = |gap: &InventoryGap| gap.path.to_ascii_lowercase().contains("connector");
    let is_whole = !flows.is_empty() && flows.len() == racks().count() && !read.gaps.iter().any(is_unread);
    CoolingReading {
        supply_celsius: racks().filter_map(|one| one.supply_celsius).reduce(f64::max),
        return_celsius: racks().filter_map(|one| one.return_celsius).reduce(f64::max),
        flow_lpm: is_whole.then(|| flows.iter().sum()),
        has_gaps: !read.gaps.is_empty(),
        leaks: leaks(read.leaks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(path: &str) -> Vec<InventoryGap> {
        vec![InventoryGap {
            path: path.into(),
            why: "timed out".into(),
        }]
    }

    #[test]
    fn each_kind_of_unreadable_value_is_marked() {
        let dry = || LeakReading {
            name: "tray".into(),
            state: LeakState::Dry,
        };
        let node = |gaps| {
            of_node(NodeReadings {
                power: PowerState::On,
                watts: None,
                temperatures: Vec::new(),
                leaks: vec![dry()],
                supplies: Vec::new(),
                gaps,
            })
        };
        assert!(!node(Vec::new()).has_gaps);
        assert!(node(gap("/redfish/v1/Chassis/2")).has_gaps);
        let cdu = |gaps| {
            of_cdu(CduReadings {
                connectors: vec![rackwright_redfish::ConnectorReading {
                    name: "1".into(),
                    side: ConnectorSide::Secondary,
                    supply_celsius: None,
                    return_celsius: None,
                    flow_lpm: Some(60.0),
                }],
                leaks: vec![dry()],
                gaps,
            })
        };
        let description = |read: CoolingReading| (read.flow_lpm, read.has_gaps);
        assert_eq!(description(cdu(Vec::new())), (Some(60.0), false));
        assert_eq!(description(cdu(gap("/x/LeakDetection"))), (Some(60.0), true));
        // A missing connector makes the sum too small.
        assert_eq!(description(cdu(gap("/x/SecondaryCoolantConnectors/2"))), (None, true));
    }
}
