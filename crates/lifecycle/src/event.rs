//! The kinds of events, and which of them a customer may see.

use std::fmt;

use crate::chart::Edge;
use crate::cluster::Edge as ClusterEdge;

/// The callers that may see events of a kind. Operators see every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Operators, and the customer that has the event's target.
    Customers,
    /// Operators alone.
    Operators,
}

/// Makes [`EventKind`] from a table: variant, stored name, audience.
macro_rules! event_kinds {
    ($($variant:ident $name:literal $audience:ident),+ $(,)?) => {
        /// The kind of an event. `name` gives the form in which kinds are stored, sent and documented.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventKind {
            /// A node took an edge of the chart of nodes.
            Edge(Edge),
            /// A cluster took an edge of the chart of clusters.
            Cluster(ClusterEdge),
            /// An alarm of power or cooling equipment: the kind of its finding, alone, or with `-cleared` or `-ignored`.
            Facility(String),
            $(#[doc = concat!("`", $name, "`")] $variant,)+
            /// A kind that this version does not know: from an event of another version.
            Unknown(String),
        }

        /// The kinds with a fixed name.
        const FIXED: &[(EventKind, &str, Audience)] = &[$((EventKind::$variant, $name, Audience::$audience)),+];

        impl EventKind {
            /// The name, for a kind with a fixed name.
            fn fixed_name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some($name),)+
                    Self::Edge(_) | Self::Cluster(_) | Self::Facility(_) | Self::Unknown(_) => None,
                }
            }
        }
    };
}

event_kinds! {
    Requested "requested" Customers,
    Deleted "deleted" Customers,
    MaintenanceWindow "maintenance-window" Customers,
    PowerOn "power.on" Customers,
    PowerOff "power.off" Customers,
    BmcAcCycle "bmc.ac-cycle" Operators,
    BmcClear "bmc.clear" Operators,
    BmcAccountDisabled "bmc.account-disabled" Operators,
    BmcBack "bmc.back" Operators,
    BmcCredentialAdded "bmc.credential-added" Operators,
    BmcCredentialRemoved "bmc.credential-removed" Operators,
    BmcLost "bmc.lost" Operators,
    BmcPasswordChanged "bmc.password-changed" Operators,
    BootUnknownMachine "boot.unknown-machine" Operators,
    BootUnknownMachineReported "boot.unknown-machine-reported" Operators,
    ClusterFewerSpares "cluster.fewer-spares" Customers,
    ClusterIsolationBreach "cluster.isolation-breach" Customers,
    ClusterIsolationRestored "cluster.isolation-restored" Customers,
    ClusterLease "cluster.lease" Customers,
    ClusterLeaseEnds "cluster.lease-ends" Customers,
    ClusterNetworkFault "cluster.network-fault" Customers,
    ClusterNetworkTested "cluster.network-tested" Customers,
    ClusterNoReplacement "cluster.no-replacement" Customers,
    ClusterPorts "cluster.ports" Operators,
    ClusterReimageStopped "cluster.reimage-stopped" Customers,
    ClusterReimaging "cluster.reimaging" Customers,
    ClusterReplaced "cluster.replaced" Customers,
    ClusterRolledBack "cluster.rolled-back" Customers,
    ClusterShrunk "cluster.shrunk" Customers,
    ConsoleAttached "console.attached" Operators,
    DiscoveryEnded "discovery.ended" Operators,
    DrivesAccepted "drives.accepted" Operators,
    DrivesChanged "drives.changed" Operators,
    DrivesDiffer "drives.differ" Operators,
    EffectFailed "effect.failed" Operators,
    EthernetCabling "ethernet.cabling" Operators,
    EthernetCablingRight "ethernet.cabling-right" Operators,
    EthernetReadAgain "ethernet.read-again" Operators,
    EthernetUnread "ethernet.unread" Operators,
    FabricAdapterConfirmed "fabric.adapter-confirmed" Operators,
    FabricCable "fabric.cable" Operators,
    FabricCableMended "fabric.cable-mended" Operators,
    FabricFault "fabric.fault" Operators,
    FabricFaults "fabric.faults" Operators,
    FabricPortAbsent "fabric.port-absent" Operators,
    FabricPortBack "fabric.port-back" Operators,
    FabricProven "fabric.proven" Operators,
    FacilityCluster "facility.cluster" Operators,
    FacilityReadAgain "facility.read-again" Operators,
    FacilityUnread "facility.unread" Operators,
    FirmwareAdded "firmware.added" Operators,
    FirmwareLeft "firmware.left" Operators,
    FirmwareRemoved "firmware.removed" Operators,
    FirmwareUpdated "firmware.updated" Operators,
    ImageDeleted "image.deleted" Customers,
    ImageImported "image.imported" Customers,
    ImageRefused "image.refused" Customers,
    ImageWritten "image.written" Customers,
    NodeSettingsDrift "node.settings-drift" Operators,
    NodeSettingsVerified "node.settings-verified" Operators,
    SecurityAddressConflict "security.address-conflict" Operators,
    SecurityAgentRefused "security.agent-refused" Operators,
    SecurityAttestationRefused "security.attestation-refused" Operators,
    SecurityAuditGap "security.audit-gap" Operators,
    SecurityBackedUp "security.backed-up" Operators,
    SecurityBmcAccountLeft "security.bmc-account-left" Operators,
    SecurityBmcCertificateChanged "security.bmc-certificate-changed" Operators,
    SecurityBmcForeign "security.bmc-foreign" Operators,
    SecurityBmcForeignRemoved "security.bmc-foreign-removed" Operators,
    SecurityBmcHostKeyChanged "security.bmc-host-key-changed" Operators,
    SecurityApiKeyCreated "security.api-key-created" Operators,
    SecurityApiKeyDeleted "security.api-key-deleted" Operators,
    SecurityBmcHostKeySet "security.bmc-host-key-set" Operators,
    SecurityBmcLoginRefused "security.bmc-login-refused" Operators,
    SecurityBmcPasswordShown "security.bmc-password-shown" Operators,
    SecurityBootContested "security.boot-contested" Operators,
    SecurityConsoleTokenCreated "security.console-token-created" Operators,
    SecurityControlResumed "security.control-resumed" Operators,
    SecurityDatabaseRestored "security.database-restored" Operators,
    SecurityFabricBreach "security.fabric-breach" Operators,
    SecurityFabricBreachEnded "security.fabric-breach-ended" Operators,
    SecurityFirmwareNotGolden "security.firmware-not-golden" Operators,
    SecurityGoldenFirmwareAdded "security.golden-firmware-added" Operators,
    SecurityGoldenFirmwareRemoved "security.golden-firmware-removed" Operators,
    SecurityKeysRotated "security.keys-rotated" Operators,
    SecurityLoginsRefused "security.logins-refused" Operators,
    SecurityMemberCertificateEnds "security.member-certificate-ends" Operators,
    SecurityMemberDeleted "security.member-deleted" Operators,
    SecurityMemberJoined "security.member-joined" Operators,
    SecurityMemberRevoked "security.member-revoked" Operators,
    SecurityMemberRoleSet "security.member-role-set" Operators,
    SecurityNoBmcSecret "security.no-bmc-secret" Operators,
    SecurityNodeBelieved "security.node-believed" Operators,
    SecurityNodeDoubted "security.node-doubted" Operators,
    SecurityOperatorInvitedLocally "security.operator-invited-locally" Operators,
    SecurityPortMoved "security.port-moved" Operators,
    SecurityRogueDhcp "security.rogue-dhcp" Operators,
    SecuritySecretsResealed "security.secrets-resealed" Operators,
    SecuritySeedNotScrubbed "security.seed-not-scrubbed" Operators,
    SecuritySessionEnded "security.session-ended" Operators,
    SecuritySessionOpened "security.session-opened" Operators,
    SecuritySshKeyAdded "security.ssh-key-added" Operators,
    SecuritySshKeyRemoved "security.ssh-key-removed" Operators,
    SecuritySshKeyTaken "security.ssh-key-taken" Operators,
    SecurityTokenCreated "security.token-created" Operators,
    SecurityTokenDeleted "security.token-deleted" Operators,
    SecurityTpmAccepted "security.tpm-accepted" Operators,
    SecurityTpmEnrolled "security.tpm-enrolled" Operators,
    SecurityUserDataSealed "security.user-data-sealed" Operators,
    SiteApplied "site.applied" Operators,
    TermDeleted "term.deleted" Operators,
    TermSet "term.set" Operators,
    ValidationFailed "validation.failed" Operators,
    ValidationPassed "validation.passed" Operators,
}

impl EventKind {
    /// The kind with this name.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        if let Some((kind, ..)) = FIXED.iter().find(|(_, fixed, _)| *fixed == name) {
            return kind.clone();
        }
        if let Some(edge) = Edge::parse(name) {
            return Self::Edge(edge);
        }
        match name.split_once('.') {
            Some(("facility", alarm)) => Self::Facility(alarm.to_owned()),
            Some(("cluster", edge)) if let Some(edge) = ClusterEdge::parse(edge) => Self::Cluster(edge),
            _ => Self::Unknown(name.to_owned()),
        }
    }

    /// True when the customer that has the event's target may see events of this kind. Kinds unknown to this version are
    /// hidden.
    #[must_use]
    pub fn is_for_customers(&self) -> bool {
        match self {
            Self::Edge(_) | Self::Cluster(_) => true,
            Self::Facility(_) | Self::Unknown(_) => false,
            fixed => FIXED
                .iter()
                .any(|(kind, _, audience)| kind == fixed && *audience == Audience::Customers),
        }
    }
}

impl Default for EventKind {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edge(edge) => f.write_str(edge.as_str()),
            Self::Cluster(edge) => write!(f, "cluster.{edge}"),
            Self::Facility(alarm) => write!(f, "facility.{alarm}"),
            Self::Unknown(name) => f.write_str(name),
            fixed => f.write_str(fixed.fixed_name().unwrap_or_default()),
        }
    }
}

/// Compares names.
impl PartialEq<str> for EventKind {
    fn eq(&self, name: &str) -> bool {
        *self == Self::parse(name)
    }
}

/// Compares names.
impl PartialEq<&str> for EventKind {
    fn eq(&self, name: &&str) -> bool {
        self == *name
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_is_found_by_its_name_and_no_two_share_one() {
        let edges = Edge::ALL.iter().map(|edge| EventKind::Edge(*edge));
        let of_clusters = ClusterEdge::ALL.iter().map(|edge| EventKind::Cluster(*edge));
        let fixed = FIXED.iter().map(|(kind, ..)| kind.clone());
        let alarms = ["leak", "leak-cleared"].map(|alarm| EventKind::Facility(alarm.into()));
        let kinds: Vec<EventKind> = edges.chain(of_clusters).chain(fixed).chain(alarms).collect();
        let names: BTreeSet<String> = kinds.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), kinds.len());
        for kind in kinds {
            assert_eq!(EventKind::parse(&kind.to_string()), kind);
        }
    }

    #[test]
    fn a_kind_that_is_not_known_is_hidden_from_customers() {
        for name in ["", "new", "power.drawn", "cluster.plan", "image.source"] {
            let kind = EventKind::parse(name);
            assert_eq!(kind, EventKind::Unknown(name.into()));
            assert!(!kind.is_for_customers(), "{name}");
        }
        for name in [
            "written",
            "cluster.handedover",
            "power.off",
            "requested",
            "image.imported",
        ] {
            assert!(EventKind::parse(name).is_for_customers(), "{name}");
        }
        for name in ["bmc.lost", "security.member-joined", "facility.leak", "site.applied"] {
            assert!(!EventKind::parse(name).is_for_customers(), "{name}");
        }
    }
}
