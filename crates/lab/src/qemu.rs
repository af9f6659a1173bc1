//! The command line of QEMU for one power-on. The functions here have no side effects; `process.rs` starts QEMU.

use super::{Accelerator, Firmware, NetworkRom};
use rackwright_sim_bmc::BootTarget;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The emulator's program name.
pub(crate) const EMULATOR: &str = "qemu-system-x86_64";

/// Code and fresh variables of a UEFI firmware, as Debian's `ovmf` package installs them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirmwareFiles {
    pub(crate) code: &'static str,
    pub(crate) vars: &'static str,
}

/// The files of a firmware; `None` for SeaBIOS, which is part of QEMU.
pub(crate) fn firmware_files(firmware: Firmware) -> Option<FirmwareFiles> {
    match firmware {
        Firmware::Uefi | Firmware::UefiHttp => Some(FirmwareFiles {
            code: "/usr/share/OVMF/OVMF_CODE_4M.fd",
            vars: "/usr/share/OVMF/OVMF_VARS_4M.fd",
        }),
        Firmware::UefiSecureBoot => Some(FirmwareFiles {
            code: "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd",
            vars: "/usr/share/OVMF/OVMF_VARS_4M.ms.fd",
        }),
        Firmware::Bios => None,
    }
}

/// How one drive is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriveBus {
    VirtioBlk,
    Nvme,
    /// NVMe with a second namespace, which is detached.
    NvmeDetached,
}

impl DriveBus {
    /// Model name as the guest sees it.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::VirtioBlk => "Virtio block device",
            Self::Nvme | Self::NvmeDetached => "QEMU NVMe Ctrl",
        }
    }

    /// Redfish's `Protocol`; virtio has none there.
    pub(crate) fn protocol(self) -> Option<&'static str> {
        match self {
            Self::VirtioBlk => None,
            Self::Nvme | Self::NvmeDetached => Some("NVMe"),
        }
    }
}

/// One drive of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drive {
    pub(crate) bus: DriveBus,
    pub(crate) path: PathBuf,
    pub(crate) serial: String,
    pub(crate) bytes: u64,
    /// Number of a 512-byte sector; writes to it fail.
    pub(crate) broken: Option<u64>,
}

impl Drive {
    /// The file of the detached namespace.
    pub(crate) fn detached_path(&self) -> PathBuf {
        self.path.with_extension("detached.raw")
    }
}

/// The constant parts of a machine, and the paths of its files.
#[derive(Debug, Clone)]
pub(crate) struct Hardware {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) serial: String,
    pub(crate) mac: String,
    pub(crate) tap: String,
    pub(crate) firmware: Firmware,
    pub(crate) network_rom: NetworkRom,
    pub(crate) memory_mb: u64,
    pub(crate) accelerator: Accelerator,
    /// Firmware variables, disks, serial log and QEMU's own output.
    pub(crate) dir: PathBuf,
    /// Sockets, which need short paths.
    pub(crate) run_dir: PathBuf,
    pub(crate) tpm: bool,
}

impl Hardware {
    pub(crate) fn serial_log(&self) -> PathBuf {
        self.dir.join("serial.log")
    }
    pub(crate) fn console(&self) -> PathBuf {
        self.run_dir.join("console.sock")
    }
    pub(crate) fn qmp_socket(&self) -> PathBuf {
        self.run_dir.join("qmp.sock")
    }
    pub(crate) fn tpm_socket(&self) -> PathBuf {
        self.run_dir.join("tpm.sock")
    }
    pub(crate) fn vars(&self) -> PathBuf {
        self.dir.join("vars.fd")
    }
    pub(crate) fn output(&self) -> PathBuf {
        self.dir.join("qemu.log")
    }
}

/// The parts that may differ between power-ons.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PowerOn<'a> {
    pub(crate) drives: &'a [Drive],
    pub(crate) media: Option<&'a Path>,
    pub(crate) target: Option<BootTarget>,
    /// Starts with the CPU stopped: the power is on, but the machine never boots.
    pub(crate) hang: bool,
    /// Whether the firmware's network boot is HTTP instead of PXE.
    pub(crate) http_boot: bool,
}

/// Manufacturer and model, as SMBIOS and Redfish report them.
pub(crate) const MANUFACTURER: &str = "Rackwright";
pub(crate) const MODEL: &str = "Lab Node";

/// QEMU device names in boot order. Default: drives, network, virtual media; a target moves its devices to the front.
///
/// Drives come first because a blank drive falls through to the network at once, while an unanswered network boot
/// costs a minute and more.
pub(crate) fn boot_order(drives: usize, target: Option<BootTarget>) -> Vec<String> {
    let disks = (0..drives).map(|index| format!("disk{index}"));
    let (net, cd) = ("net0".to_owned(), "cd0".to_owned());
    match target {
        None | Some(BootTarget::Hdd) => disks.chain([net, cd]).collect(),
        Some(BootTarget::Pxe | BootTarget::UefiHttp) => std::iter::once(net).chain(disks).chain([cd]).collect(),
        Some(BootTarget::Cd) => std::iter::once(cd).chain(disks).chain([net]).collect(),
    }
}

/// The whole command line.
pub(crate) fn arguments(hardware: &Hardware, on: &PowerOn<'_>) -> Vec<OsString> {
    let mut args = Arguments::default();
    machine(&mut args, hardware, on);
    firmware(&mut args, hardware, on);
    network(&mut args, hardware, on);
    storage(&mut args, on);
    if hardware.tpm {
        args.pair(
            "-chardev",
            format!("socket,id=tpmsock,path={}", escape(&hardware.tpm_socket())),
        );
        args.pair("-tpmdev", "emulator,id=tpm0,chardev=tpmsock");
        args.pair("-device", "tpm-crb,tpmdev=tpm0");
    }
    args.0
}

fn machine(args: &mut Arguments, hardware: &Hardware, on: &PowerOn<'_>) {
    let machine = match hardware.firmware {
        Firmware::Bios => "q35,graphics=off", // SeaBIOS and iPXE then print to the serial port
        Firmware::UefiSecureBoot => "q35,smm=on",
        Firmware::Uefi | Firmware::UefiHttp => "q35",
    };
    args.pair("-name", format!("guest={}", hardware.name));
    args.pair("-machine", machine);
    args.0.extend(hardware.accelerator.arguments().map(OsString::from));
    args.pair("-m", hardware.memory_mb.to_string());
    args.flags(&["-nodefaults", "-no-user-config", "-display", "none"]);
    // After a guest's power-off or reset QEMU is paused, so that its counters can be read before the process ends.
    args.pair("-action", "reboot=shutdown,shutdown=pause");
    if on.hang {
        args.flags(&["-S"]);
    }
    let (log, console) = (escape(&hardware.serial_log()), escape(&hardware.console()));
    args.pair(
        "-chardev",
        format!("socket,id=ser0,path={console},server=on,wait=off,logfile={log},logappend=on"),
    );
    args.pair("-serial", "chardev:ser0");
    // QEMU connects to this process when it is ready, so no connection attempts are repeated.
    args.pair(
        "-chardev",
        format!("socket,id=qmp0,path={},server=off", escape(&hardware.qmp_socket())),
    );
    args.pair("-mon", "chardev=qmp0,mode=control");
    args.pair("-uuid", &hardware.uuid);
    let serial = &hardware.serial;
    args.pair(
        "-smbios",
        format!(
            "type=1,manufacturer={MANUFACTURER},product={MODEL},version=1,serial={serial},uuid={}",
            hardware.uuid
        ),
    );
    args.pair(
        "-smbios",
        format!("type=2,manufacturer={MANUFACTURER},product=Lab Board,serial={serial}"),
    );
    args.pair("-smbios", format!("type=3,manufacturer={MANUFACTURER},serial={serial}"));
    args.pair("-device", "virtio-rng-pci");
}

fn firmware(args: &mut Arguments, hardware: &Hardware, on: &PowerOn<'_>) {
    let Some(files) = firmware_files(hardware.firmware) else {
        return;
    };
    args.pair(
        "-drive",
        format!("if=pflash,unit=0,format=raw,readonly=on,file={}", files.code),
    );
    args.pair(
        "-drive",
        format!("if=pflash,unit=1,format=raw,file={}", escape(&hardware.vars())),
    );
    if hardware.firmware == Firmware::UefiSecureBoot {
        args.pair("-global", "driver=cfi.pflash01,property=secure,value=on");
        args.pair("-global", "ICH9-LPC.disable_s3=1");
    }
    // Each unanswered kind of network boot costs a minute: only the wanted kind stays enabled. OVMF cannot disable
    // HTTP, but HTTP comes after PXE.
    args.pair("-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n");
    if on.http_boot {
        args.pair("-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n");
    }
}

fn network(args: &mut Arguments, hardware: &Hardware, on: &PowerOn<'_>) {
    args.pair(
        "-netdev",
        format!("tap,id=n0,ifname={},script=no,downscript=no", hardware.tap),
    );
    let no_rom = hardware.firmware.is_uefi() && (hardware.network_rom == NetworkRom::Firmware || on.http_boot);
    let rom = if no_rom { ",romfile=" } else { "" };
    let index = index_of("net0", on);
    args.pair(
        "-device",
        format!(
            "virtio-net-pci,netdev=n0,id=net0,mac={},bootindex={index}{rom}",
            hardware.mac
        ),
    );
}

fn storage(args: &mut Arguments, on: &PowerOn<'_>) {
    for (n, drive) in on.drives.iter().enumerate() {
        let model = match drive.bus {
            DriveBus::VirtioBlk => "virtio-blk-pci",
            DriveBus::Nvme | DriveBus::NvmeDetached => "nvme",
        };
        let (file, serial, id) = (escape(&drive.path), &drive.serial, format!("disk{n}"));
        let options = format!("if=none,id=d{n},cache=unsafe,discard=unmap,detect-zeroes=off");
        match drive.broken {
            None => args.pair("-drive", format!("{options},format=raw,file={file}")),
            // QEMU's own fault injection (block/blkdebug.c), between the raw format and the file.
            Some(sector) => args.pair(
                "-drive",
                format!(
                    "{options},werror=report,driver=raw,file.driver=blkdebug,file.image.driver=file,\
                     file.image.filename={file},file.inject-error.0.event=none,file.inject-error.0.iotype=write,\
                     file.inject-error.0.sector={sector}"
                ),
            ),
        }
        let index = index_of(&id, on);
        if drive.bus == DriveBus::NvmeDetached {
            namespaces(args, drive, n, index);
            continue;
        }
        args.pair(
            "-device",
            format!("{model},drive=d{n},id={id},serial={serial},bootindex={index}"),
        );
    }
    let index = index_of("cd0", on);
    let medium = match on.media {
        Some(path) => {
            args.pair(
                "-drive",
                format!("if=none,id=m0,media=cdrom,format=raw,readonly=on,file={}", escape(path)),
            );
            "drive=m0,"
        }
        None => "",
    };
    args.pair("-device", format!("ide-cd,{medium}id=cd0,bus=ide.0,bootindex={index}"));
}

/// A controller with two namespaces. The second one is detached, which needs a subsystem.
fn namespaces(args: &mut Arguments, drive: &Drive, n: usize, index: usize) {
    let (serial, second) = (&drive.serial, escape(&drive.detached_path()));
    args.pair(
        "-drive",
        format!("if=none,id=d{n}x,cache=unsafe,discard=unmap,format=raw,file={second}"),
    );
    args.pair("-device", format!("nvme-subsys,id=subsys{n},nqn={serial}"));
    args.pair("-device", format!("nvme,id=disk{n},serial={serial},subsys=subsys{n}"));
    args.pair(
        "-device",
        format!("nvme-ns,drive=d{n},bus=disk{n},nsid=1,bootindex={index}"),
    );
    args.pair("-device", format!("nvme-ns,drive=d{n}x,bus=disk{n},nsid=2,detached=on"));
}

fn index_of(device: &str, on: &PowerOn<'_>) -> usize {
    let order = boot_order(on.drives.len(), on.target);
    1 + order.iter().position(|name| name == device).unwrap_or(order.len())
}

/// A path inside an option value: QEMU requires doubled commas.
fn escape(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn pair(&mut self, option: &str, value: impl AsRef<str>) {
        self.0.extend([OsString::from(option), OsString::from(value.as_ref())]);
    }

    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(OsString::from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware(firmware: Firmware) -> Hardware {
        Hardware {
            name: "lab-0".into(),
            uuid: "6c616200-0000-4000-8000-000000000000".into(),
            serial: "LAB0000".into(),
            mac: "52:54:00:77:00:00".into(),
            tap: "tap0".into(),
            firmware,
            network_rom: NetworkRom::Firmware,
            memory_mb: 512,
            accelerator: Accelerator::Emulation,
            dir: "/lab/a,b".into(),
            run_dir: "/run/m0".into(),
            tpm: false,
        }
    }

    fn line(firmware: Firmware, target: Option<BootTarget>, http_boot: bool) -> String {
        let drive = Drive {
            bus: DriveBus::Nvme,
            path: "/lab/a,b/disk0.raw".into(),
            serial: "S0".into(),
            bytes: 512,
            broken: None,
        };
        let on = PowerOn {
            drives: &[drive],
            media: None,
            target,
            hang: false,
            http_boot,
        };
        let args = arguments(&hardware(firmware), &on);
        args.iter()
            .map(|arg| arg.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn drives_come_first_unless_a_target_says_otherwise() {
        assert_eq!(boot_order(2, None), ["disk0", "disk1", "net0", "cd0"]);
        assert_eq!(boot_order(1, Some(BootTarget::Pxe)), ["net0", "disk0", "cd0"]);
        assert_eq!(boot_order(0, Some(BootTarget::Cd)), ["cd0", "net0"]);
    }

    #[test]
    fn only_the_wanted_kind_of_network_boot_is_left_on() {
        let off = "IPv4PXESupport,string=n";
        assert!(!line(Firmware::Uefi, Some(BootTarget::Pxe), false).contains(off));
        assert!(line(Firmware::Uefi, Some(BootTarget::UefiHttp), true).contains(off));
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        assert!(line(Firmware::Uefi, None, false).contains("file=/lab/a,,b/disk0.raw"));
    }

    #[test]
    fn bios_machines_print_to_the_serial_port_and_keep_the_option_rom() {
        let line = line(Firmware::Bios, None, false);
        assert!(line.contains("q35,graphics=off"), "{line}");
        assert!(!line.contains("romfile=") && !line.contains("pflash"), "{line}");
    }
}
