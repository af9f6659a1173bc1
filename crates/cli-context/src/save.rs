//! Files with names from a server, written only below one directory.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::Builder;

use crate::error::{CliError, plural};

/// Longest name of one folder or file, in bytes: the limit of Linux file systems.
const NAME_MAX: usize = 255;

/// Deepest nesting of folders.
const DEPTH_MAX: usize = 16;

/// Names that are listed in an error.
const LISTED: usize = 5;

/// What to do with an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Present {
    /// Keep it, and write nothing at all.
    Kept,
    /// Replace it.
    Replaced,
}

/// Writes `files` (name and text) below `folder`, which is made if it does not exist. Nothing is written unless all
/// names are harmless and, with [`Present::Kept`], free. Each file appears complete or not at all.
///
/// # Errors
/// `BadAnswer` for a name that leads out of the folder or is not a valid name, `Usage` if a file exists, `Io`.
pub fn below(folder: &Path, files: &[(&str, &str)], present: Present) -> Result<(), CliError> {
    let paths = paths(folder, files)?;
    let (mut folders, mut taken) = (BTreeSet::new(), Vec::new());
    for path in &paths {
        look(folder, path, &mut folders)?;
        // A link counts as existing, whatever its target.
        if path.symlink_metadata().is_ok() {
            taken.push(path.display().to_string());
        }
    }
    if present == Present::Kept && !taken.is_empty() {
        let more = taken.len().saturating_sub(LISTED);
        taken.truncate(LISTED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        return Err(CliError::usage(
            format!("{}{more} would be overwritten; nothing was written", taken.join(", ")),
            "give --force to replace the files, or give another directory",
        ));
    }
    std::fs::create_dir_all(folder).map_err(|e| CliError::given("make", folder, e))?;
    for part in &folders {
        std::fs::create_dir_all(part).map_err(|e| CliError::file("make", part, e))?;
    }
    for (path, (_, text)) in paths.iter().zip(files) {
        write(path, text, present).map_err(|e| CliError::file("write", path, e))?;
    }
    Ok(())
}

/// The path of each file; an error for any bad name, so that nothing is written.
fn paths(folder: &Path, files: &[(&str, &str)]) -> Result<Vec<PathBuf>, CliError> {
    let (mut seen, mut paths) = (BTreeSet::new(), Vec::new());
    for (name, _) in files {
        let parts = parts(name).ok_or_else(|| {
            let message = format!("{name:?} is not a valid name of a file below a directory; nothing was written");
            CliError::BadAnswer(message)
        })?;
        if !seen.insert(parts.clone()) {
            let message = format!("two files have the name {name:?}; nothing was written");
            return Err(CliError::BadAnswer(message));
        }
        paths.push(parts.iter().fold(folder.to_owned(), |path, part| path.join(part)));
    }
    let is_folder = |parts: &Vec<&str>| {
        seen.iter()
            .any(|other| other.len() > parts.len() && other.starts_with(parts))
    };
    match seen.iter().find(|parts| is_folder(parts)) {
        Some(parts) => Err(CliError::BadAnswer(format!(
            "{:?} is a file and a directory; nothing was written",
            parts.join("/")
        ))),
        None => Ok(paths),
    }
}

/// The folders and the file of a name; `None` if it is absolute, leads upwards or is not a plain name.
fn parts(name: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = name.split('/').collect();
    let is_plain = |part: &&str| {
        !matches!(*part, "" | "." | "..")
            && part.len() <= NAME_MAX
            && !part.contains(|c: char| c.is_control() || c == '\\')
    };
    (parts.len() <= DEPTH_MAX && parts.iter().all(is_plain)).then_some(parts)
}

/// Collects the folders between `folder` and `path`. A link among them is an error: it could lead anywhere.
fn look(folder: &Path, path: &Path, folders: &mut BTreeSet<PathBuf>) -> Result<(), CliError> {
    let between = path.ancestors().skip(1).take_while(|part| *part != folder);
    for part in between {
        if !folders.insert(part.to_owned()) {
            continue;
        }
        match part.symlink_metadata() {
            Ok(found) if !found.is_dir() => {
                return Err(CliError::usage(
                    format!("{} is not a directory; nothing was written", part.display()),
                    "give another directory",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str, present: Present) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // The user's umask still applies.
    let permissions = Permissions::from_mode(0o666);
    let mut file = Builder::new().permissions(permissions).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    let renamed = match present {
        Present::Kept => file.persist_noclobber(path),
        Present::Replaced => file.persist(path),
    };
    renamed.map(drop).map_err(|e| e.error)
}

/// `3 files written to DIR`
pub fn written(count: usize, folder: &Path) -> String {
    format!("{} written to {}", plural(count, "file"), folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_with_their_folders_and_never_overwrite() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("out");
        below(&folder, &[("a.yaml", "1"), ("x/y/b.yaml", "2")], Present::Kept).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("x/y/b.yaml")).unwrap(), "2");
        let again = below(&folder, &[("new", "3"), ("a.yaml", "3")], Present::Kept).unwrap_err();
        assert!(again.to_string().contains("a.yaml would be overwritten"), "{again}");
        assert!(!folder.join("new").exists(), "all or nothing");
        below(&folder, &[("a.yaml", "3")], Present::Replaced).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("a.yaml")).unwrap(), "3");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused_before_anything_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("out");
        let long = "x".repeat(256);
        let deep = "x/".repeat(16) + "x";
        for hostile in [
            "",
            "/etc/passwd",
            "../up",
            "a/../../up",
            ".",
            "..",
            "a//b",
            "a/",
            "a/./b",
            "a\\b",
            "a\0b",
            "a\nb",
            &long,
            &deep,
        ] {
            let refused = below(&folder, &[("fine", ""), (hostile, "")], Present::Replaced);
            assert!(matches!(refused, Err(CliError::BadAnswer(_))), "{hostile:?}");
        }
        for twice in [&[("a", ""), ("a", "")], &[("a", ""), ("a/b", "")]] {
            assert!(matches!(
                below(&folder, twice, Present::Kept),
                Err(CliError::BadAnswer(_))
            ));
        }
        assert!(!folder.exists() && std::fs::read_dir(temp.path()).unwrap().next().is_none());
    }

    #[test]
    fn links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, outside) = (temp.path().join("out"), temp.path().join("outside"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("kept"), "kept").unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("d")).unwrap();
        std::os::unix::fs::symlink(outside.join("kept"), folder.join("f")).unwrap();
        assert!(below(&folder, &[("d/x", "")], Present::Replaced).is_err());
        assert!(below(&folder, &[("f", "")], Present::Kept).is_err());
        // The link is replaced, not its target.
        below(&folder, &[("f", "new")], Present::Replaced).unwrap();
        assert_eq!(std::fs::read_to_string(outside.join("kept")).unwrap(), "kept");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    }
}
