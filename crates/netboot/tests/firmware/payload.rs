//! The boot payload: Debian's signed kernel and boot loaders as `images/netboot/build.sh` unpacks them, and a busybox
//! ramdisk that prints its command line and powers off.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::built;

/// Prints one line on the console and ends the machine.
const INIT: &str = "\
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t efivarfs efivarfs /sys/firmware/efi/efivars 2>/dev/null
secure=$(/bin/busybox od -An -t u1 -j 4 /sys/firmware/efi/efivars/SecureBoot-* 2>/dev/null)
echo \"PAYLOAD secureboot=${secure##* } $(/bin/busybox cat /proc/cmdline)\"
/bin/busybox sleep 1
/bin/busybox poweroff -f
";

/// A folder for the output of tests.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("netboot");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Boot loaders by the names in `rackwright_netboot::config::names`.
pub fn first_stages() -> PathBuf {
    built().join("netboot")
}

/// Debian's cloud kernel and our ramdisk.
pub fn kernel_and_ramdisk() -> (PathBuf, PathBuf) {
    let builder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/netboot/build.sh");
    let built_now = || first_stages().join("grubx64.efi").is_file() && built().join("payload/root/boot").is_dir();
    // The namespace has no network: all downloads must be complete.
    assert!(
        built_now(),
        "{} has to run before these tests: `make test` does it",
        builder.display()
    );
    let root = built().join("payload/root");
    let mut kernels: Vec<_> = fs::read_dir(root.join("boot"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    kernels.retain(|path| {
        path.to_string_lossy().ends_with("-cloud-amd64") && path.to_string_lossy().contains("/vmlinuz-")
    });
    let kernel = kernels.pop().expect("a cloud kernel among the unpacked packages");
    let ramdisk = folder().join(format!("payload-{}.cpio", std::process::id()));
    fs::write(&ramdisk, archive(&root.join("bin/busybox"), &efivarfs(&root, &kernel))).unwrap();
    (kernel, ramdisk)
}

/// The module's file; `None` if the module is built in.
fn efivarfs(root: &Path, kernel: &Path) -> Option<PathBuf> {
    let version = kernel.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let output = Command::new("modprobe")
        .args(["-d", root.to_str()?, "-S", version, "--show-depends", "efivarfs"])
        .output()
        .expect("modprobe (Debian package kmod) runs");
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines()
        .filter_map(|line| line.strip_prefix("insmod "))
        .map(|path| PathBuf::from(path.trim()))
        .next_back()
}

/// Builds an initramfs in the kernel's "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).
fn archive(busybox: &Path, module: &Option<PathBuf>) -> Vec<u8> {
    let mut archive = Vec::new();
    for folder in ["bin", "dev", "proc", "sys"] {
        add(&mut archive, folder, 0o040_755, &[], (0, 0));
    }
    // The kernel's standard output before the first mount.
    add(&mut archive, "dev/console", 0o020_600, &[], (5, 1));
    add(
        &mut archive,
        "bin/busybox",
        0o100_755,
        &fs::read(busybox).unwrap(),
        (0, 0),
    );
    let mut init = INIT.to_owned();
    if let Some(module) = module {
        assert!(fs::metadata(module).unwrap().size() > 0);
        add(
            &mut archive,
            "efivarfs.ko",
            0o100_644,
            &fs::read(module).unwrap(),
            (0, 0),
        );
        init = init.replacen(
            "/bin/busybox mount -t efi",
            "/bin/busybox insmod /efivarfs.ko\n/bin/busybox mount -t efi",
            1,
        );
    }
    add(&mut archive, "init", 0o100_755, init.as_bytes(), (0, 0));
    add(&mut archive, "TRAILER!!!", 0, &[], (0, 0));
    archive
}

fn add(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8], device: (u32, u32)) {
    let ino = archive.len() as u32 + 1;
    let size = content.len() as u32;
    let fields = [
        ino,
        mode,
        0,
        0,
        1,
        0,
        size,
        0,
        0,
        device.0,
        device.1,
        name.len() as u32 + 1,
        0,
    ];
    archive.extend(b"070701");
    for field in fields {
        archive.extend(format!("{field:08x}").bytes());
    }
    archive.extend(name.bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}
