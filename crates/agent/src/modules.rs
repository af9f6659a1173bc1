//! Loads the kernel modules in the ramdisk's list.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

/// The list: one module per line, in loading order; `#` starts a comment.
pub const LIST: &str = "/etc/rackwright/modules";
/// Folder for names without a leading slash.
const FOLDER: &str = "/lib/modules";
const MAX_LIST_BYTES: u64 = 1 << 20;
/// `MODULE_INIT_COMPRESSED_FILE` of `linux/module.h`.
const COMPRESSED_FILE: u32 = 4;
/// Module parameters. With this one libata opens host protected areas when it finds a drive, so that the inventory shows
/// the whole drive.
const PARAMETERS: [(&str, &std::ffi::CStr); 1] = [("libata", c"ignore_hpa=1")];

/// Loads the listed modules. Calls `report` for each module that could not be loaded.
pub fn load(list: &Path, mut report: impl FnMut(String)) {
    for module in listed(list) {
        if let Err(why) = load_one(&module) {
            report(format!("{}: {why}", module.display()));
        }
    }
}

fn listed(list: &Path) -> Vec<PathBuf> {
    let mut text = String::new();
    // A ramdisk without a list has all drivers built in.
    let _ = File::open(list).map(|file| file.take(MAX_LIST_BYTES).read_to_string(&mut text));
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| Path::new(FOLDER).join(line))
        .collect()
}

fn load_one(module: &Path) -> Result<(), String> {
    let file = File::open(module).map_err(|error| error.to_string())?;
    // The kernel decompresses the module itself if this flag is set.
    let compressed = module.extension().is_some_and(|extension| extension != "ko");
    let flags = if compressed {
        ModuleInitFlags::from_bits_retain(COMPRESSED_FILE)
    } else {
        ModuleInitFlags::empty()
    };
    let name = module.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.split('.').next().unwrap_or_default();
    let given = PARAMETERS.iter().find(|(of, _)| *of == name);
    match finit_module(&file, given.map_or(c"", |(_, parameters)| parameters), flags) {
        // Already loaded, built in, or without its device.
        Ok(()) | Err(Errno::EEXIST | Errno::ENODEV) => Ok(()),
        Err(error) => Err(error.desc().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_missing_modules() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("modules");
        std::fs::write(&list, "# comment\n\n  nowhere.ko \n/abs/olute.ko.xz\n").unwrap();
        assert_eq!(
            listed(&list),
            [Path::new("/lib/modules/nowhere.ko"), Path::new("/abs/olute.ko.xz")]
        );
        let mut reports = Vec::new();
        load(&list, |report| reports.push(report));
        assert_eq!(reports.len(), 2);
        assert!(reports[0].starts_with("/lib/modules/nowhere.ko: "), "{reports:?}");
        load(&dir.path().join("no list"), |report| panic!("{report}"));
    }
}
