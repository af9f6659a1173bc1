//! One QEMU machine and its serial console.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::lab::{Lab, MAC};

/// The machine's UUID, for QEMU's `-uuid`.
pub const UUID: &str = "6b1c0f4e-9d2a-4c55-8e6f-0123456789ab";
const OVMF: &str = "/usr/share/OVMF";

pub enum Firmware {
    /// UEFI's own PXE: the ROM of the network card is removed.
    OvmfPxe,
    /// UEFI HTTP Boot: PXE is disabled.
    OvmfHttp,
    /// As `OvmfPxe`, with Microsoft's keys enrolled.
    OvmfSecureBoot,
    /// BIOS with the card's iPXE ROM.
    SeaBios,
    /// As `SeaBios`, with a disk as the second boot entry.
    SeaBiosThenDisk,
}

pub struct Vm {
    _process: Child,
    console: BufReader<ChildStdout>,
    text: String,
}

impl Vm {
    pub fn start(lab: &Lab, firmware: &Firmware) -> Self {
        let words: Vec<_> = lab.enter.iter().copied().chain(["qemu-system-x86_64"]).collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args([
                "-accel",
                "tcg,thread=multi,tb-size=64",
                "-cpu",
                "qemu64",
                "-m",
                "512",
                "-smp",
                "1",
            ])
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
                "-serial",
                "stdio",
            ])
            .args(["-uuid", UUID, "-device", "virtio-rng-pci", "-netdev"])
            .arg(format!("tap,id=n0,ifname={},script=no,downscript=no", lab.tap))
            .args(arguments(lab, firmware))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command
            .spawn()
            .expect("qemu-system-x86_64 (Debian package qemu-system-x86) runs");
        let console = BufReader::new(process.stdout.take().unwrap());
        Self {
            _process: process,
            console,
            text: String::new(),
        }
    }

    /// Reads the console up to a line that contains `wanted`.
    pub async fn wait_for_line(&mut self, wanted: &str, limit: Duration, trace: impl Fn() -> String) -> String {
        let wait = async {
            loop {
                let mut line = Vec::new();
                let read = self.console.read_until(b'\n', &mut line).await.unwrap();
                let line = String::from_utf8_lossy(&line).into_owned();
                self.text.push_str(&line);
                if line.contains(wanted) {
                    return Some(line);
                }
                if read == 0 {
                    return None;
                }
            }
        };
        let found = tokio::time::timeout(limit, wait).await;
        let missing = match found {
            Ok(Some(line)) => return line,
            Ok(None) => "the machine ended".to_owned(),
            Err(_) => format!("{} s passed", limit.as_secs()),
        };
        panic!(
            "{missing} without {wanted:?} on the console; seen:\n{}\nconsole:\n{}",
            trace(),
            self.text
        )
    }
}

fn arguments(lab: &Lab, firmware: &Firmware) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    let card = format!("virtio-net-pci,netdev=n0,mac={MAC},bootindex=1");
    let no_rom = format!("{card},romfile=");
    let switched_off = |what: &str| format!("name=opt/org.tianocore/{what},string=n");
    match firmware {
        Firmware::OvmfPxe => {
            add(&["-machine", "q35", "-device", &no_rom]);
            add(&pflash(lab, "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd")
                .each_ref()
                .map(String::as_str));
        }
        Firmware::OvmfHttp => {
            add(&["-machine", "q35", "-device", &no_rom]);
            add(&pflash(lab, "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd")
                .each_ref()
                .map(String::as_str));
            add(&[
                "-fw_cfg",
                &switched_off("IPv4PXESupport"),
                "-fw_cfg",
                &switched_off("IPv6PXESupport"),
            ]);
        }
        Firmware::OvmfSecureBoot => {
            add(&["-machine", "q35,smm=on", "-device", &no_rom]);
            add(&[
                "-global",
                "driver=cfi.pflash01,property=secure,value=on",
                "-global",
                "ICH9-LPC.disable_s3=1",
            ]);
            add(&pflash(lab, "OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd")
                .each_ref()
                .map(String::as_str));
        }
        Firmware::SeaBios => add(&["-machine", "q35,graphics=off", "-device", &card]),
        Firmware::SeaBiosThenDisk => {
            let disk = lab.scratch.path().join("disk.raw");
            fs::write(&disk, boot_sector()).unwrap();
            add(&["-machine", "q35,graphics=off", "-device", &card]);
            add(&["-drive", &format!("if=none,id=d0,format=raw,file={}", disk.display())]);
            add(&["-device", "virtio-blk-pci,drive=d0,bootindex=2"]);
        }
    }
    arguments
}

/// QEMU options for the firmware and a private copy of its variables.
fn pflash(lab: &Lab, code: &str, variables: &str) -> [String; 4] {
    let copy = lab.scratch.path().join(variables);
    fs::copy(format!("{OVMF}/{variables}"), &copy).expect("OVMF (Debian package ovmf) is there");
    [
        "-drive".to_owned(),
        format!("if=pflash,unit=0,format=raw,readonly=on,file={OVMF}/{code}"),
        "-drive".to_owned(),
        format!("if=pflash,unit=1,format=raw,file={}", copy.display()),
    ]
}

/// An "installed system": 16-bit code that writes a word to the first serial port.
fn boot_sector() -> Vec<u8> {
    let word = b"\r\nINSTALLED\r\n\0";
    let mut sector = vec![
        0xfc, // cld
        0x31, 0xc0, // xor ax, ax
        0x8e, 0xd8, // mov ds, ax
        0xbe, 0x13, 0x7c, // mov si, 0x7c13: the word, after this code
        0xba, 0xf8, 0x03, // mov dx, 0x3f8 (COM1)
        0xac, // next: lodsb
        0x84, 0xc0, // test al, al
        0x74, 0xfe, // jz here: for ever, after the word
        0xee, // out dx, al
        0xeb, 0xf8, // jmp next: back by 8 from 0x13
    ];
    sector.extend(word);
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector.resize(1 << 20, 0);
    sector
}
