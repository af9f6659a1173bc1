//! The settings block `identity`: how machines have to prove that they are themselves.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_pattern::fits_beginning;
use rackwright_store::NodeRecord;
use rackwright_tpm::firmware;
use serde::Deserialize;

/// The TPM requirement for a class of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TpmRequirement {
    /// A machine is accepted only with the enrolled TPM. "address only" is refused.
    Required,
    /// From its first inspection on, a machine with a TPM is accepted only with this TPM. A machine without one needs another
    /// proof, or is "address only".
    #[default]
    Preferred,
    /// The TPM is not asked.
    None,
}

/// Whether a machine may be "address only": known by its addresses, without a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressOnly {
    /// A machine is accepted only with a proof.
    #[default]
    Refuse,
    /// A machine without a proof is accepted, and shown as "address only".
    Allow,
}

/// Whether the BMC of a machine without an enrolled TPM has to deliver a secret to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BmcRequirement {
    /// A machine is accepted with its TPM or with the secret. "address only" is refused.
    Required,
    /// Where the BMC takes the medium, the machine is accepted only with the secret. Elsewhere it is "address only".
    Preferred,
    /// No medium is inserted.
    #[default]
    None,
}

/// The requirement on what a machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredBoot {
    /// The TPM's report is stored and shown.
    #[default]
    Recorded,
    /// A machine is accepted only if its TPM attests that it started what was served.
    Required,
}

/// What follows when a machine's firmware has none of the golden values of its SKU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FirmwarePolicy {
    /// The difference is shown.
    #[default]
    Recorded,
    /// An event reports the difference.
    Alarm,
    /// An event reports the difference, and the machine is refused.
    Hold,
}

/// The PCRs that are compared with golden values.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<u8>")]
pub struct ComparedRegisters(pub BTreeSet<u8>);

impl Default for ComparedRegisters {
    fn default() -> Self {
        Self([0, 2, 3, 7].into())
    }
}

impl TryFrom<Vec<u8>> for ComparedRegisters {
    type Error = String;

    fn try_from(list: Vec<u8>) -> Result<Self, String> {
        match list.iter().find(|pcr| !firmware::REGISTERS.contains(pcr)) {
            Some(pcr) => Err(format!(
                "PCR {pcr} is not the firmware's: name some of 0, 1, 2, 3 and 7"
            )),
            None if list.is_empty() => Err("no PCR is named: name some of 0, 1, 2, 3 and 7".to_owned()),
            None => Ok(Self(list.into_iter().collect())),
        }
    }
}

/// The requirements on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// The requirement on its TPM.
    pub tpm: TpmRequirement,
    /// The requirement on the software that it started.
    pub measured_boot: MeasuredBoot,
    /// The requirement on its firmware.
    pub firmware: FirmwarePolicy,
    /// The requirement on its BMC.
    pub bmc: BmcRequirement,
    /// Whether it may be known by its addresses only.
    pub address_only: AddressOnly,
}

impl Policy {
    /// Whether the BMC of this node has to deliver a secret to its machine. Not needed for a node that has to show an
    /// enrolled TPM.
    #[must_use]
    pub fn asks_bmc(self, record: &NodeRecord) -> bool {
        let is_by_tpm = self.tpm != TpmRequirement::None && !record.spec.tpm_ek.is_empty();
        self.bmc != BmcRequirement::None && !is_by_tpm
    }
}

/// The settings block `identity`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The TPM requirement of every SKU without an entry in `skus`.
    pub tpm: TpmRequirement,
    /// Exceptions from `tpm`, by SKU.
    pub skus: BTreeMap<String, TpmRequirement>,
    /// Whether a machine of a SKU without an entry in `address_only_skus` may be known by its addresses only.
    pub address_only: AddressOnly,
    /// Exceptions from `address_only`, by SKU.
    pub address_only_skus: BTreeMap<String, AddressOnly>,
    /// The BMC requirement of every SKU without an entry in `bmc_skus`.
    pub bmc: BmcRequirement,
    /// Exceptions from `bmc`, by SKU.
    pub bmc_skus: BTreeMap<String, BmcRequirement>,
    /// The requirement on the start of every SKU without an entry in `measured_boot_skus`.
    pub measured_boot: MeasuredBoot,
    /// Exceptions from `measured_boot`, by SKU.
    pub measured_boot_skus: BTreeMap<String, MeasuredBoot>,
    /// The firmware policy of every SKU without an entry in `firmware_skus`.
    pub firmware: FirmwarePolicy,
    /// Exceptions from `firmware`, by SKU.
    pub firmware_skus: BTreeMap<String, FirmwarePolicy>,
    /// The PCRs that are compared with golden values. PCR 1 is left out by default: it often differs between machines.
    pub firmware_registers: ComparedRegisters,
    /// Whether an erase also clears the machine's TPM.
    pub clear_tpm: bool,
    /// Component measurements that are not compared with golden values: some differ between machines.
    pub firmware_ignored_measurements: Ignored,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tpm: TpmRequirement::default(),
            skus: BTreeMap::new(),
            address_only: AddressOnly::default(),
            address_only_skus: BTreeMap::new(),
            bmc: BmcRequirement::default(),
            bmc_skus: BTreeMap::new(),
            measured_boot: MeasuredBoot::default(),
            measured_boot_skus: BTreeMap::new(),
            firmware: FirmwarePolicy::default(),
            firmware_skus: BTreeMap::new(),
            firmware_registers: ComparedRegisters::default(),
            clear_tpm: true,
            firmware_ignored_measurements: Ignored::default(),
        }
    }
}

impl Settings {
    /// The requirements on machines of a SKU.
    #[must_use]
    pub fn of(&self, sku: &str) -> Policy {
        let measured_boot = self.measured_boot_skus.get(sku).copied();
        Policy {
            tpm: self.skus.get(sku).copied().unwrap_or(self.tpm),
            measured_boot: measured_boot.unwrap_or(self.measured_boot),
            firmware: self.firmware_skus.get(sku).copied().unwrap_or(self.firmware),
            bmc: self.bmc_skus.get(sku).copied().unwrap_or(self.bmc),
            address_only: self.address_only_skus.get(sku).copied().unwrap_or(self.address_only),
        }
    }

    /// Whether any SKU has its BMCs deliver a secret.
    #[must_use]
    pub fn asks_any_bmc(&self) -> bool {
        let mut requirements = self.bmc_skus.values();
        self.bmc != BmcRequirement::None || requirements.any(|requirement| *requirement != BmcRequirement::None)
    }

    /// Whether any SKU has its TPM asked.
    #[must_use]
    pub fn asks(&self) -> bool {
        let mut requirements = self.skus.values();
        self.tpm != TpmRequirement::None || requirements.any(|requirement| *requirement != TpmRequirement::None)
    }
}

/// Measurements that are not compared, each `COMPONENT#INDEX`. A component that ends in `*` matches links by their
/// beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Ignored(Vec<(String, u8)>);

impl TryFrom<Vec<String>> for Ignored {
    type Error = String;

    fn try_from(list: Vec<String>) -> Result<Self, String> {
        let parsed = list.iter().map(|text| {
            let (component, index) = text.rsplit_once('#')?;
            let index = index.parse().ok()?;
            (!component.is_empty()).then(|| (component.to_owned(), index))
        });
        let all: Option<Vec<(String, u8)>> = parsed.collect();
        all.map(Self)
            .ok_or_else(|| "write COMPONENT#INDEX, as \"/redfish/v1/Chassis/GPU_*#12\"".to_owned())
    }
}

impl Ignored {
    /// Whether a measurement of a component is ignored.
    #[must_use]
    pub fn names(&self, component: &str, index: u8) -> bool {
        self.0
            .iter()
            .any(|(name, of)| *of == index && fits_beginning(name, component))
    }
}
