//! The kinds of events, how severe they are, and which of them a customer may see.

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

/// How severe an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// An ordinary event.
    Info,
    /// Needs attention.
    Warning,
    /// Something failed, or is at risk now.
    Error,
}

/// Makes [`EventKind`] from a table: variant, stored name, audience, severity.
macro_rules! event_kinds {
    ($($variant:ident $name:literal $audience:ident $severity:ident),+ $(,)?) => {
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
        const FIXED: &[(EventKind, &str, Audience, Severity)] =
            &[$((EventKind::$variant, $name, Audience::$audience, Severity::$severity)),+];

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
    Requested "requested" Customers Info,
    Deleted "deleted" Customers Info,
    MaintenanceWindow "maintenance-window" Customers Info,
    PowerOn "power.on" Customers Info,
    PowerOff "power.off" Customers Info,
    BmcAcCycle "bmc.ac-cycle" Operators Info,
    BmcClear "bmc.clear" Operators Info,
    BmcAccountDisabled "bmc.account-disabled" Operators Warning,
    BmcBack "bmc.back" Operators Info,
    BmcCredentialAdded "bmc.credential-added" Operators Info,
    BmcCredentialRemoved "bmc.credential-removed" Operators Info,
    BmcLost "bmc.lost" Operators Error,
    BmcPasswordChanged "bmc.password-changed" Operators Info,
    BootUnknownMachine "boot.unknown-machine" Operators Warning,
    BootUnknownMachineReported "boot.unknown-machine-reported" Operators Warning,
    ClusterFewerSpares "cluster.fewer-spares" Customers Warning,
    ClusterIsolationBreach "cluster.isolation-breach" Customers Error,
    ClusterIsolationRestored "cluster.isolation-restored" Customers Info,
    ClusterLease "cluster.lease" Customers Info,
    ClusterLeaseEnds "cluster.lease-ends" Customers Warning,
    ClusterNetworkFault "cluster.network-fault" Customers Error,
    ClusterNetworkTested "cluster.network-tested" Customers Info,
    ClusterNoReplacement "cluster.no-replacement" Customers Error,
    ClusterPorts "cluster.ports" Operators Info,
    ClusterReimageStopped "cluster.reimage-stopped" Customers Warning,
    ClusterReimaging "cluster.reimaging" Customers Info,
    ClusterReplaced "cluster.replaced" Customers Info,
    ClusterRolledBack "cluster.rolled-back" Customers Info,
    ClusterShrunk "cluster.shrunk" Customers Warning,
    ConsoleAttached "console.attached" Operators Info,
    DiscoveryEnded "discovery.ended" Operators Info,
    DrivesAccepted "drives.accepted" Operators Info,
    DrivesChanged "drives.changed" Operators Warning,
    DrivesDiffer "drives.differ" Operators Error,
    EffectFailed "effect.failed" Operators Warning,
    EthernetCabling "ethernet.cabling" Operators Warning,
    EthernetCablingRight "ethernet.cabling-right" Operators Info,
    EthernetReadAgain "ethernet.read-again" Operators Info,
    EthernetUnread "ethernet.unread" Operators Warning,
    FabricAdapterConfirmed "fabric.adapter-confirmed" Operators Info,
    FabricCable "fabric.cable" Operators Warning,
    FabricCableMended "fabric.cable-mended" Operators Info,
    FabricFault "fabric.fault" Operators Warning,
    FabricFaults "fabric.faults" Operators Warning,
    FabricGuidTwice "fabric.guid-twice" Operators Error,
    FabricGuidTwiceOver "fabric.guid-twice-over" Operators Info,
    FabricPortAbsent "fabric.port-absent" Operators Warning,
    FabricPortBack "fabric.port-back" Operators Info,
    FabricProven "fabric.proven" Operators Info,
    FacilityCluster "facility.cluster" Operators Error,
    FacilityReadAgain "facility.read-again" Operators Info,
    FacilityUnread "facility.unread" Operators Warning,
    FirmwareAdded "firmware.added" Operators Info,
    FirmwareLeft "firmware.left" Operators Warning,
    FirmwareRemoved "firmware.removed" Operators Info,
    FirmwareUpdated "firmware.updated" Operators Info,
    ImageDeleted "image.deleted" Customers Info,
    ImageImported "image.imported" Customers Info,
    ImageRefused "image.refused" Customers Warning,
    ImageWritten "image.written" Customers Info,
    NodeSettingsDrift "node.settings-drift" Operators Warning,
    NodeSettingsVerified "node.settings-verified" Operators Info,
    SecurityAddressConflict "security.address-conflict" Operators Error,
    SecurityAgentRefused "security.agent-refused" Operators Warning,
    SecurityAgentSentWrongBytes "security.agent-sent-wrong-bytes" Operators Error,
    SecurityAttestationRefused "security.attestation-refused" Operators Error,
    SecurityAuditGap "security.audit-gap" Operators Error,
    SecurityBackedUp "security.backed-up" Operators Info,
    SecurityBmcAccountLeft "security.bmc-account-left" Operators Warning,
    SecurityBmcCertificateChanged "security.bmc-certificate-changed" Operators Warning,
    SecurityBmcForeign "security.bmc-foreign" Operators Error,
    SecurityBmcForeignRemoved "security.bmc-foreign-removed" Operators Info,
    SecurityBmcHostKeyChanged "security.bmc-host-key-changed" Operators Warning,
    SecurityApiKeyCreated "security.api-key-created" Operators Info,
    SecurityApiKeyDeleted "security.api-key-deleted" Operators Info,
    SecurityBmcHostKeySet "security.bmc-host-key-set" Operators Info,
    SecurityBmcLoginRefused "security.bmc-login-refused" Operators Warning,
    SecurityBmcPasswordShown "security.bmc-password-shown" Operators Warning,
    SecurityBootContested "security.boot-contested" Operators Error,
    SecurityConsoleTokenCreated "security.console-token-created" Operators Info,
    SecurityControlResumed "security.control-resumed" Operators Info,
    SecurityDatabaseRestored "security.database-restored" Operators Error,
    SecurityFabricBreach "security.fabric-breach" Operators Error,
    SecurityFabricBreachEnded "security.fabric-breach-ended" Operators Info,
    SecurityFirmwareNotGolden "security.firmware-not-golden" Operators Error,
    SecurityGoldenFirmwareAdded "security.golden-firmware-added" Operators Info,
    SecurityGoldenFirmwareRemoved "security.golden-firmware-removed" Operators Info,
    SecurityKeysRotated "security.keys-rotated" Operators Info,
    SecurityLoginsRefused "security.logins-refused" Operators Warning,
    SecurityMemberCertificateEnds "security.member-certificate-ends" Operators Warning,
    SecurityMemberDeleted "security.member-deleted" Operators Info,
    SecurityMemberJoined "security.member-joined" Operators Info,
    SecurityMemberRevoked "security.member-revoked" Operators Info,
    SecurityMemberRoleSet "security.member-role-set" Operators Info,
    SecurityNoBmcSecret "security.no-bmc-secret" Operators Warning,
    SecurityNodeBelieved "security.node-believed" Operators Info,
    SecurityNodeDoubted "security.node-doubted" Operators Error,
    SecurityOperatorInvitedLocally "security.operator-invited-locally" Operators Warning,
    SecurityPortMoved "security.port-moved" Operators Warning,
    SecurityRogueDhcp "security.rogue-dhcp" Operators Error,
    SecuritySecretsResealed "security.secrets-resealed" Operators Info,
    SecuritySeedNotScrubbed "security.seed-not-scrubbed" Operators Error,
    SecuritySessionEnded "security.session-ended" Operators Info,
    SecuritySessionOpened "security.session-opened" Operators Info,
    SecuritySshKeyAdded "security.ssh-key-added" Operators Info,
    SecuritySshKeyRemoved "security.ssh-key-removed" Operators Info,
    SecuritySshKeyTaken "security.ssh-key-taken" Operators Warning,
    SecurityTokenCreated "security.token-created" Operators Info,
    SecurityTokenDeleted "security.token-deleted" Operators Info,
    SecurityTpmAccepted "security.tpm-accepted" Operators Info,
    SecurityTpmEnrolled "security.tpm-enrolled" Operators Info,
    SecurityUefiVariables "security.uefi-variables" Operators Warning,
    SecurityUserDataSealed "security.user-data-sealed" Operators Info,
    SiteApplied "site.applied" Operators Info,
    TermDeleted "term.deleted" Operators Info,
    TermSet "term.set" Operators Info,
    ValidationFailed "validation.failed" Operators Error,
    ValidationPassed "validation.passed" Operators Info,
}

impl EventKind {
    /// All kinds that this version knows by name: all but alarms.
    pub fn named() -> impl Iterator<Item = Self> {
        let edges = Edge::ALL.iter().map(|edge| Self::Edge(*edge));
        let of_clusters = ClusterEdge::ALL.iter().map(|edge| Self::Cluster(*edge));
        let fixed = FIXED.iter().map(|(kind, ..)| kind.clone());
        edges.chain(of_clusters).chain(fixed)
    }

    /// All kinds of the severity `Error`.
    pub fn errors() -> impl Iterator<Item = Self> {
        let alarms = GRAVE_ALARMS.iter().map(|alarm| Self::Facility((*alarm).to_owned()));
        Self::named()
            .chain(alarms)
            .filter(|kind| kind.severity() == Severity::Error)
    }

    /// The kind with this name.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        if let Some((kind, ..)) = FIXED.iter().find(|(_, fixed, ..)| *fixed == name) {
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
                .any(|(kind, _, audience, _)| kind == fixed && *audience == Audience::Customers),
        }
    }
}

/// Alarms that threaten machines now.
const GRAVE_ALARMS: [&str; 3] = ["leak", "breaker", "feed-lost"];
/// Suffixes of the names of events that end an alarm.
const ENDED_ALARMS: [&str; 2] = ["-cleared", "-ignored"];

impl EventKind {
    /// How severe an event of this kind is. A kind that this version does not know counts as a warning.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::Edge(Edge::Failed) | Self::Cluster(ClusterEdge::Failed) => Severity::Error,
            Self::Edge(Edge::Condemned) | Self::Cluster(ClusterEdge::Degraded) => Severity::Warning,
            Self::Edge(_) | Self::Cluster(_) => Severity::Info,
            Self::Facility(alarm) if ENDED_ALARMS.iter().any(|end| alarm.ends_with(end)) => Severity::Info,
            Self::Facility(alarm) if GRAVE_ALARMS.contains(&alarm.as_str()) => Severity::Error,
            Self::Facility(_) => Severity::Warning,
            Self::Unknown(_) => Severity::Warning,
            fixed => FIXED
                .iter()
                .find(|(kind, ..)| kind == fixed)
                .map_or(Severity::Warning, |(.., severity)| *severity),
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
        let alarms = ["leak", "leak-cleared"].map(|alarm| EventKind::Facility(alarm.into()));
        let kinds: Vec<EventKind> = EventKind::named().chain(alarms).collect();
        let names: BTreeSet<String> = kinds.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), kinds.len());
        for kind in kinds {
            assert_eq!(EventKind::parse(&kind.to_string()), kind);
        }
    }

    #[test]
    fn failures_and_alarms_are_errors_until_they_end() {
        for (name, severity) in [
            ("failed", Severity::Error),
            ("condemned", Severity::Warning),
            ("validated", Severity::Info),
            ("cluster.failed", Severity::Error),
            ("facility.leak", Severity::Error),
            ("facility.temperature", Severity::Warning),
            ("facility.leak-cleared", Severity::Info),
            ("facility.leak-ignored", Severity::Info),
            ("facility.read-again", Severity::Info),
            ("security.fabric-breach", Severity::Error),
            ("security.session-opened", Severity::Info),
            ("of.another-version", Severity::Warning),
        ] {
            assert_eq!(EventKind::parse(name).severity(), severity, "{name}");
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
