//! The customer's view of its own resources. The store has left out other resources.
//!
//! Messages are built from scratch, so a new field stays hidden until it is added here on purpose. Fields that reveal
//! the hall or its other users are left out: BMCs, labels (they contain a machine's place), asset serials, and free
//! text for operators. Customers see a failed call or check by its code and by the node's reports. What a cluster waits for
//! is shown for kinds that `WaitKind::is_for_customers` names.

use std::collections::HashMap;

use rackwright_api::google::rpc;
use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_lifecycle::EventKind;
use rackwright_lifecycle::cluster::WaitKind;
use rackwright_store::Scope;

use super::names;

/// Replaces a text for operators.
const ASK: &str =
    "the operation failed; the reports of the nodes show failed checks; for other causes, ask the site's operators";
/// Fields of the site's filter over nodes.
const SITE_NODE_FILTER: &[&str] = &[
    "state", "health", "power", "agent", "name", "sku", "customer", "cluster", "image", "wait", "labels",
];
/// Fields of a customer's filter over nodes. Labels are hidden, so a filter must not search them.
pub const NODE_FILTER: &[&str] = &["state", "power", "agent", "name", "sku", "cluster", "image"];

/// Fields that a filter over nodes may use.
#[must_use]
pub fn node_filter(scope: &Scope) -> &'static [&'static str] {
    match scope {
        Scope::Site => SITE_NODE_FILTER,
        Scope::Customer(_) => NODE_FILTER,
    }
}

/// A node in the view of `scope`.
#[must_use]
pub fn node(scope: &Scope, node: v1::Node) -> v1::Node {
    if *scope == Scope::Site {
        return node;
    }
    v1::Node {
        name: node.name,
        spec: node.spec.map(|spec| v1::NodeSpec {
            sku: spec.sku,
            ..v1::NodeSpec::default()
        }),
        status: node.status.map(status),
        metadata: node.metadata.map(metadata),
    }
}

fn status(status: v1::NodeStatus) -> v1::NodeStatus {
    v1::NodeStatus {
        state: status.state,
        state_since: status.state_since,
        state_deadline: status.state_deadline,
        claim: status.claim,
        claim_generation: status.claim_generation,
        power: status.power,
        agent_connected: status.agent_connected,
        address: status.address,
        macs: status.macs,
        inventory: status.inventory.map(inventory),
        image_written: status.image_written,
        ..v1::NodeStatus::default()
    }
}

/// Drives keep their serial numbers, because a reimage may name a drive by it.
fn inventory(inventory: v1::Inventory) -> v1::Inventory {
    let module = |module: v1::MemoryModule| v1::MemoryModule {
        serial_number: String::new(),
        ..module
    };
    let nic = |nic: v1::Nic| v1::Nic {
        neighbour: String::new(),
        ..nic
    };
    v1::Inventory {
        dmi: inventory.dmi.map(|dmi| v1::Dmi {
            system_vendor: dmi.system_vendor,
            product_name: dmi.product_name,
            bios_vendor: dmi.bios_vendor,
            bios_version: dmi.bios_version,
            bios_date: dmi.bios_date,
            ..v1::Dmi::default()
        }),
        cpus: inventory.cpus,
        numa_nodes: inventory.numa_nodes,
        memory_bytes: inventory.memory_bytes,
        memory_modules: inventory.memory_modules.into_iter().map(module).collect(),
        pci_devices: inventory.pci_devices,
        nics: inventory.nics.into_iter().map(nic).collect(),
        hcas: inventory.hcas,
        drives: inventory.drives,
        gpus: inventory.gpus,
        architecture: inventory.architecture,
        boot_mode: inventory.boot_mode,
        secure_boot: inventory.secure_boot,
        ..v1::Inventory::default()
    }
}

fn metadata(metadata: v1::Metadata) -> v1::Metadata {
    v1::Metadata {
        labels: HashMap::new(),
        ..metadata
    }
}

/// A cluster in the view of `scope`.
#[must_use]
pub fn cluster(scope: &Scope, cluster: v1::Cluster) -> v1::Cluster {
    if *scope == Scope::Site {
        return cluster;
    }
    v1::Cluster {
        name: cluster.name,
        spec: cluster.spec,
        status: cluster.status.map(cluster_status),
        metadata: cluster.metadata.map(metadata),
    }
}

fn cluster_status(status: v1::ClusterStatus) -> v1::ClusterStatus {
    let member = |member: v1::ClusterMember| v1::ClusterMember {
        reason: String::new(),
        ..member
    };
    let transition = |transition: v1::ClusterTransition| v1::ClusterTransition {
        reason: String::new(),
        ..transition
    };
    let rollout = |rollout: v1::RolloutStatus| v1::RolloutStatus {
        stopped: match rollout.stopped.as_str() {
            "" => String::new(),
            _ => ASK.to_owned(),
        },
        ..rollout
    };
    let replaced = |replaced: v1::ClusterReplacement| v1::ClusterReplacement {
        reason: String::new(),
        ..replaced
    };
    let partition = |partition: v1::ClusterPartition| v1::ClusterPartition {
        fault: match partition.fault.as_str() {
            "" => String::new(),
            _ => "the partition is not proven".to_owned(),
        },
        progress: String::new(),
        ..partition
    };
    let is_shown = WaitKind::parse(&status.waiting_kind).is_some_and(WaitKind::is_for_customers);
    let (waiting_for, waiting_kind) = match is_shown {
        true => (status.waiting_for, status.waiting_kind),
        false => (String::new(), String::new()),
    };
    v1::ClusterStatus {
        state: status.state,
        state_since: status.state_since,
        waiting_for,
        waiting_kind,
        members: status.members.into_iter().map(member).collect(),
        partition: status.partition.map(partition),
        reserved_watts: status.reserved_watts,
        history: status.history.into_iter().map(transition).collect(),
        rollout: status.rollout.map(rollout),
        leaving: status.leaving,
        ready_nodes: status.ready_nodes,
        replaced: status.replaced.into_iter().map(replaced).collect(),
        ..v1::ClusterStatus::default()
    }
}

/// An operation in the view of `scope`.
#[must_use]
pub fn operation(scope: &Scope, operation: v1::Operation) -> v1::Operation {
    if *scope == Scope::Site {
        return operation;
    }
    let error = |error: rpc::Status| rpc::Status {
        code: error.code,
        message: ASK.to_owned(),
        details: Vec::new(),
    };
    v1::Operation {
        error: operation.error.map(error),
        ..operation
    }
}

/// An event in the view of `scope`; `None` for events about the site's own matters, such as a node's BMC.
#[must_use]
pub fn event(scope: &Scope, event: v1::Event) -> Option<v1::Event> {
    if *scope == Scope::Site {
        return Some(event);
    }
    let kind = EventKind::parse(&event.kind);
    if !kind.is_for_customers() {
        return None;
    }
    let of = |first: &str, second: &str| event.attributes.get(first).zip(event.attributes.get(second));
    let message = match (of("from", "to"), of("spares", "requested_spares")) {
        (Some((from, to)), _) => format!("{} went from {from} to {to}", event.target),
        (_, Some((left, wanted))) => format!("{} has {left} of {wanted} requested spares left", event.target),
        // `requested` names the requester: a member of the customer, or the site. The others are written for the customer of
        // the cluster and name nothing of others.
        _ if matches!(
            kind,
            EventKind::Requested | EventKind::ClusterIsolationBreach | EventKind::ClusterIsolationRestored
        ) =>
        {
            event.message.clone()
        }
        _ => format!("{}: {}", event.target, event.kind),
    };
    let is_shown = |(name, _): &(String, String)| {
        matches!(
            name.as_str(),
            "from" | "to" | "generation" | "not_before" | "since" | "until" | "spares" | "requested_spares"
        )
    };
    Some(v1::Event {
        message,
        attributes: event.attributes.clone().into_iter().filter(is_shown).collect(),
        ..event
    })
}

/// Refuses a claim for another customer.
///
/// # Errors
/// The deployment names another customer than the caller's.
pub fn check_deployment(scope: &Scope, deployment: &v1::Deployment) -> Result<(), ApiError> {
    match scope.customer() {
        Some(own) if !deployment.customer.is_empty() && *own != *deployment.customer => {
            let fault = format!("must be empty or {own:?}: the customer of a node does not change");
            Err(ApiError::invalid("deployment.customer", fault))
        }
        _ => Ok(()),
    }
}

/// A refusal in the view of `scope`. Details that a customer cannot act on are left out, because they may name others.
#[must_use]
pub fn refusal(scope: &Scope, error: ApiError) -> ApiError {
    match error {
        ApiError::Precondition { subject, .. } if *scope != Scope::Site && subject == "site" => ApiError::precondition(
            "site",
            "the state of the site does not permit the request now",
            "ask the site's operators",
        ),
        other => other,
    }
}

/// A node in the view of `scope`, with the mask applied.
///
/// # Errors
/// The mask names unknown fields.
pub fn masked(scope: &Scope, shown: v1::Node, mask: Option<&prost_types::FieldMask>) -> Result<v1::Node, ApiError> {
    names::mask_node(node(scope, shown), mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_customer_sees_no_bmcs_racks_or_operator_texts() {
        let scope = Scope::Customer("acme".into());
        let full = v1::Node {
            name: "nodes/n1".into(),
            spec: Some(v1::NodeSpec {
                bmc: Some(v1::Bmc {
                    address: "https://SECRET".into(),
                    username: "SECRET".into(),
                    ..v1::Bmc::default()
                }),
                sku: "dgx".into(),
                boot_macs: vec!["SECRET".into()],
            }),
            status: Some(v1::NodeStatus {
                waiting_for: "SECRET".into(),
                reason: "SECRET".into(),
                address: "10.0.0.7".into(),
                inventory: Some(v1::Inventory {
                    dmi: Some(v1::Dmi {
                        serial_number: "SECRET".into(),
                        chassis_serial: "SECRET".into(),
                        uuid: "SECRET".into(),
                        product_name: "DGX".into(),
                        ..v1::Dmi::default()
                    }),
                    memory_modules: vec![v1::MemoryModule {
                        serial_number: "SECRET".into(),
                        ..v1::MemoryModule::default()
                    }],
                    memory_bytes: 7,
                    ..v1::Inventory::default()
                }),
                ..v1::NodeStatus::default()
            }),
            metadata: Some(v1::Metadata {
                uid: "u".into(),
                labels: [("rack".to_owned(), "SECRET".to_owned())].into(),
                ..v1::Metadata::default()
            }),
        };
        assert_eq!(node(&Scope::Site, full.clone()), full);
        let shown = node(&scope, full);
        assert!(!format!("{shown:?}").contains("SECRET"), "{shown:?}");
        let status = shown.status.unwrap();
        assert_eq!(
            (status.address.as_str(), status.inventory.unwrap().memory_bytes),
            ("10.0.0.7", 7)
        );
        assert_eq!(shown.spec.unwrap().sku, "dgx");
    }

    #[test]
    fn a_customer_sees_the_waits_of_kinds_for_customers_alone() {
        let scope = Scope::Customer("acme".into());
        let shown = |scope: &Scope, kind: &str| {
            let status = v1::ClusterStatus {
                waiting_for: "SECRET".into(),
                waiting_kind: kind.into(),
                partition: Some(v1::ClusterPartition {
                    progress: "PROGRESS".into(),
                    ..v1::ClusterPartition::default()
                }),
                ..v1::ClusterStatus::default()
            };
            let full = v1::Cluster {
                status: Some(status),
                ..v1::Cluster::default()
            };
            let status = cluster(scope, full).status.unwrap();
            let progress = status.partition.unwrap().progress;
            (status.waiting_for, status.waiting_kind, progress)
        };
        let mut for_customers = Vec::new();
        for kind in WaitKind::ALL {
            let whole = ("SECRET".into(), kind.to_string(), "PROGRESS".into());
            assert_eq!(shown(&Scope::Site, kind.as_str()), whole);
            let (waiting_for, waiting_kind, progress) = shown(&scope, kind.as_str());
            assert_eq!(progress, "");
            if !waiting_kind.is_empty() {
                assert_eq!((waiting_for.as_str(), waiting_kind.as_str()), ("SECRET", kind.as_str()));
                for_customers.push(kind.as_str());
                continue;
            }
            assert_eq!(waiting_for, "", "{kind}");
        }
        assert_eq!(for_customers, ["rest", "nodes", "network-test", "erase", "reimage"]);
        // A kind that this version does not know, or none.
        for unknown in ["moon", ""] {
            assert_eq!(shown(&scope, unknown), Default::default(), "{unknown:?}");
        }
    }

    #[test]
    fn customer_events_have_fixed_texts() {
        let scope = Scope::Customer("acme".into());
        let of = |kind: &str, attributes: &[(&str, &str)]| v1::Event {
            kind: kind.into(),
            target: "nodes/n1".into(),
            message: "SECRET".into(),
            attributes: attributes
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..v1::Event::default()
        };
        for kind in [
            "bmc.lost",
            "security.bmc-certificate-changed",
            "site.applied",
            "boot.unknown",
        ] {
            assert_eq!(event(&scope, of(kind, &[])), None, "{kind}");
            assert!(event(&Scope::Site, of(kind, &[])).is_some());
        }
        let edge = [("from", "active"), ("to", "imaging"), ("by", "SECRET")];
        let shown = event(&scope, of("reimaged", &edge)).unwrap();
        assert_eq!(shown.message, "nodes/n1 went from active to imaging");
        assert!(!format!("{shown:?}").contains("SECRET"), "{shown:?}");
        let shown = event(&scope, of("power.off", &[])).unwrap();
        assert_eq!(shown.message, "nodes/n1: power.off");
        let counts = [("spares", "0"), ("requested_spares", "2"), ("by", "SECRET")];
        let shown = event(&scope, of("cluster.fewer-spares", &counts)).unwrap();
        assert_eq!(shown.message, "nodes/n1 has 0 of 2 requested spares left");
        assert!(!format!("{shown:?}").contains("SECRET"), "{shown:?}");
        // Breaches of isolation have a text for the customer of the cluster.
        let times = [("since", "2026-01-02T03:04:05Z"), ("ports", "SECRET")];
        let shown = event(&scope, of("cluster.isolation-breach", &times)).unwrap();
        assert_eq!(shown.message, "SECRET");
        assert_eq!(
            shown.attributes.into_iter().collect::<Vec<_>>(),
            [(times[0].0.to_owned(), times[0].1.to_owned())]
        );
    }
}
