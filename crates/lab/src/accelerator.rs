//! Software emulation, or KVM if a kernel was seen to boot under it.
//!
//! An accessible `/dev/kvm` proves nothing: on hosts that are virtual machines themselves a guest kernel may start
//! under KVM and hang for minutes. So KVM is used only on request, and only after a kernel has passed its own start.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

const PROBE_DEADLINE: Duration = Duration::from_secs(10);

/// The execution of the machines' CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU's own translator (TCG): works everywhere.
    Emulation,
    /// The host's CPU, through KVM.
    Kvm,
}

impl Accelerator {
    /// [`Accelerator::Kvm`] if `RACKWRIGHT_LAB_KVM=probe` is set and the newest kernel in `/boot` reaches the mounting
    /// of its root file system under KVM within 10 s; [`Accelerator::Emulation`] otherwise.
    pub async fn probe() -> Self {
        if std::env::var("RACKWRIGHT_LAB_KVM").as_deref() != Ok("probe") {
            return Self::Emulation;
        }
        let Some(kernel) = newest_kernel() else {
            tracing::warn!("KVM not probed: no readable kernel in /boot");
            return Self::Emulation;
        };
        match tokio::time::timeout(PROBE_DEADLINE, boots(&kernel)).await {
            Ok(true) => Self::Kvm,
            Ok(false) | Err(_) => {
                tracing::warn!(kernel = %kernel.display(), "KVM does not boot a kernel here: using emulation");
                Self::Emulation
            }
        }
    }

    /// QEMU's arguments. The emulated CPU without AVX costs a fifth less to emulate. The translation buffer is
    /// limited, because its default size uses most of the memory.
    pub(crate) fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Emulation => ["-accel", "tcg,thread=multi,tb-size=64", "-cpu", "qemu64"],
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
        }
    }
}

fn newest_kernel() -> Option<PathBuf> {
    let mut kernels: Vec<PathBuf> = fs::read_dir("/boot")
        .ok()?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
        })
        .filter(|path| fs::File::open(path).is_ok())
        .collect();
    kernels.sort();
    kernels.pop()
}

/// Whether the kernel gets as far as to miss its root file system.
async fn boots(kernel: &std::path::Path) -> bool {
    let child = Command::new(super::qemu::EMULATOR)
        .args([
            "-machine",
            "q35",
            "-m",
            "256",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args(Accelerator::Kvm.arguments())
        .args(["-serial", "stdio", "-append", "console=ttyS0 panic=-1", "-kernel"])
        .arg(kernel)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut child) = child else { return false };
    let Some(stdout) = child.stdout.take() else {
        return false;
    };
    let mut lines = BufReader::new(stdout).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        if String::from_utf8_lossy(&line).contains("Unable to mount root fs") {
            return true;
        }
    }
    false
}
