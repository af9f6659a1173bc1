//! Chooses the program that a machine loads first.

use std::fmt;

use super::request::{Architecture, Kind, Request};
use crate::config::{BootLoader, Settings, names};
use crate::directory::{BootIntent, Lookup};

/// The first stage of a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstStage {
    /// A file over TFTP.
    Tftp(&'static str),
    /// A file over HTTP, for UEFI HTTP Boot.
    Http(&'static str),
    /// The node's own iPXE script, for a one-time token.
    Script,
    /// Debian's shim over TFTP. shim loads grub, and grub requests the node's own configuration.
    Shim(&'static str),
}

impl fmt::Display for FirstStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tftp(name) | Self::Shim(name) => write!(f, "{name} by TFTP"),
            Self::Http(name) => write!(f, "{name} by HTTP"),
            Self::Script => f.write_str("its iPXE script"),
        }
    }
}

/// Why a machine gets no boot file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoBoot {
    /// The client is not firmware.
    #[error("the machine asks only for an address")]
    NotRequested,
    #[error("the machine is to boot from its disk")]
    Disk,
    #[error("the machine belongs to no node, and unknown machines may not boot here")]
    Unknown,
    #[error("there is no boot program for {0}")]
    Architecture(Architecture),
    #[error("the machine's firmware does not report its architecture (option 93)")]
    NoArchitecture,
    #[error("Debian's signed grub cannot load over HTTP: with Secure Boot, set the firmware to boot by PXE")]
    SecureHttp,
    #[error("first_stages.{name} is not configured, but {architecture} needs it")]
    NotConfigured {
        name: &'static str,
        architecture: Architecture,
    },
}

/// Returns the first stage for this client, or the reason for none.
pub(crate) fn first_stage(request: &Request, lookup: &Lookup, settings: &Settings) -> Result<FirstStage, NoBoot> {
    let client = &request.client;
    if client.kind == Kind::Plain {
        return Err(NoBoot::NotRequested);
    }
    let loader = match lookup {
        Lookup::Known {
            boot: BootIntent::Disk, ..
        } => return Err(NoBoot::Disk),
        Lookup::Known {
            boot: BootIntent::Network { loader },
            ..
        } => loader.unwrap_or(settings.boot_loader),
        Lookup::Unknown { boot_allowed, .. } if *boot_allowed && settings.boot_unknown => settings.boot_loader,
        Lookup::Unknown { .. } => return Err(NoBoot::Unknown),
    };
    if client.kind == Kind::Ipxe {
        return Ok(FirstStage::Script);
    }
    let architecture = client.architecture.ok_or(NoBoot::NoArchitecture)?;
    let needed: &[&'static str] = match (architecture, loader) {
        (Architecture::Bios, _) => &[names::BIOS],
        (Architecture::UefiX64, BootLoader::Ipxe) => &[names::UEFI_X64],
        (Architecture::UefiX64, BootLoader::ShimGrub) => &[names::SHIM_X64, names::GRUB_X64],
        (Architecture::UefiArm64, BootLoader::Ipxe) => &[names::UEFI_ARM64],
        (Architecture::UefiArm64, BootLoader::ShimGrub) => &[names::SHIM_ARM64, names::GRUB_ARM64],
        (Architecture::UefiHttpX64, BootLoader::Ipxe) => &[names::HTTP_X64],
        (Architecture::UefiHttpArm64, BootLoader::Ipxe) => &[names::HTTP_ARM64],
        (Architecture::UefiHttpX64 | Architecture::UefiHttpArm64, BootLoader::ShimGrub) => {
            return Err(NoBoot::SecureHttp);
        }
        (Architecture::Other(_), _) => return Err(NoBoot::Architecture(architecture)),
    };
    if let Some(name) = needed.iter().find(|name| !settings.first_stages.contains_key(**name)) {
        return Err(NoBoot::NotConfigured { name, architecture });
    }
    let name = needed[0];
    Ok(match architecture {
        Architecture::UefiHttpX64 | Architecture::UefiHttpArm64 => FirstStage::Http(name),
        _ if needed.len() == 2 => FirstStage::Shim(name),
        _ => FirstStage::Tftp(name),
    })
}
