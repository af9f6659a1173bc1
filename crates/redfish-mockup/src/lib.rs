//! Reads a recorded Redfish service: a folder of `redfish/v1/.../index.json`, as `rackwright bmc record` and DMTF's tools
//! write it, or one JSON file in which each path names the body of its resource.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Most resources of a recording.
const MAX_RESOURCES: usize = 100_000;
/// Largest resource of a folder, in bytes.
const MAX_RESOURCE_BYTES: u64 = 16 << 20;
/// Largest recording in one file, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Path of the service root.
const ROOT: &str = "/redfish/v1";

/// The resources of a recording, by [`key`].
pub type Resources = BTreeMap<String, Value>;

/// Why a recording is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The path of the file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A recording in one file is not a JSON object.
    #[error("{} holds no recording: {source}; write one JSON object of paths and bodies", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// The fault and its line.
        source: serde_json::Error,
    },
    /// There is no service root.
    #[error("{} holds no recording: {ROOT} is no resource of it", path.display())]
    NoRoot {
        /// The file or folder.
        path: PathBuf,
    },
    /// The limit of resources or bytes is exceeded.
    #[error("{} is larger than a recording may be: {MAX_RESOURCES} resources, {MAX_FILE_BYTES} bytes", path.display())]
    TooLarge {
        /// The file or folder.
        path: PathBuf,
    },
}

/// A path as [`Resources`] store it: in lower case, because links and files differ in letter case on some BMCs, and without
/// slashes at the end.
pub fn key(path: &str) -> String {
    path.trim_end_matches('/').to_lowercase()
}

/// Reads a recording from a folder or from one file.
///
/// A folder has the paths of the service: `redfish/v1` and what else the BMC answers, such as registries. Without
/// `redfish/v1` it is the folder of the service root. A file of a folder that is not JSON is left out. Symbolic links
/// in a folder are not followed, because a recording may come from an untrusted source.
///
/// # Errors
/// [`ReadError`].
pub fn read(path: &Path) -> Result<Resources, ReadError> {
    let metadata = std::fs::metadata(path).map_err(failed(path))?;
    let resources = if metadata.is_dir() { folder(path)? } else { file(path)? };
    if resources.len() > MAX_RESOURCES {
        return Err(ReadError::TooLarge { path: path.to_owned() });
    }
    if !resources.contains_key(ROOT) {
        return Err(ReadError::NoRoot { path: path.to_owned() });
    }
    Ok(resources)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ReadError {
    move |source| ReadError::Read {
        path: path.to_owned(),
        source,
    }
}

fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed(path))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed(path))?;
    Ok(bytes)
}

fn file(path: &Path) -> Result<Resources, ReadError> {
    let bytes = bytes(path, MAX_FILE_BYTES)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ReadError::TooLarge { path: path.to_owned() });
    }
    let found: Resources = serde_json::from_slice(&bytes).map_err(|source| ReadError::NotJson {
        path: path.to_owned(),
        source,
    })?;
    Ok(found.into_iter().map(|(path, body)| (key(&path), body)).collect())
}

fn folder(root: &Path) -> Result<Resources, ReadError> {
    let is_whole = root.join("redfish").join("v1").is_dir();
    let prefix = if is_whole { "" } else { ROOT };
    let mut found = Resources::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        // Sorted: two folders that differ in letter case are one resource, and the same one of them counts in every run.
        let entries: Result<Vec<_>, _> = std::fs::read_dir(&folder)
            .and_then(Iterator::collect)
            .map_err(failed(&folder));
        let mut entries = entries?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let kind = entry.file_type().map_err(failed(&path))?;
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() && entry.file_name() == "index.json" {
                let bytes = bytes(&path, MAX_RESOURCE_BYTES)?;
                let relative = folder.strip_prefix(root).unwrap_or(Path::new("")).to_string_lossy();
                if bytes.len() as u64 <= MAX_RESOURCE_BYTES
                    && let Ok(body) = serde_json::from_slice(&bytes)
                {
                    found.insert(key(&format!("{prefix}/{relative}")), body);
                }
            }
        }
        if found.len() > MAX_RESOURCES {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(folder: &Path, body: &str) {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("index.json"), body).unwrap();
    }

    #[test]
    fn folders_and_a_file_are_the_same_recording() {
        let temporary = tempfile::tempdir().unwrap();
        let (whole, root) = (temporary.path().join("whole"), temporary.path().join("root"));
        for base in [whole.join("redfish/v1"), root.clone()] {
            put(&base, r#"{"Id": "RootService", "b": 1, "a": 2}"#);
            put(&base.join("Systems/Self"), r#"{"Id": "Self"}"#);
            put(&base.join("Broken"), "no json");
            std::fs::write(base.join("Systems/other.json"), "{}").unwrap();
        }
        let one = temporary.path().join("one.json");
        std::fs::write(
            &one,
            r#"{"/redfish/v1/": {"Id": "RootService", "b": 1, "a": 2}, "/redfish/v1/Systems/Self": {"Id": "Self"}}"#,
        )
        .unwrap();
        let wanted = [
            ("/redfish/v1", json!({"Id": "RootService", "b": 1, "a": 2})),
            ("/redfish/v1/systems/self", json!({"Id": "Self"})),
        ];
        let wanted: Resources = wanted.map(|(path, body)| (path.to_owned(), body)).into();
        for path in [&whole, &root, &one] {
            assert_eq!(read(path).unwrap(), wanted, "{}", path.display());
        }
    }

    #[test]
    fn a_resource_outside_redfish_belongs_to_the_recording() {
        let temporary = tempfile::tempdir().unwrap();
        put(&temporary.path().join("redfish/v1"), "{}");
        put(&temporary.path().join("registries/Bios.json"), "{}");
        let paths: Vec<String> = read(temporary.path()).unwrap().into_keys().collect();
        assert_eq!(paths, ["/redfish/v1", "/registries/bios.json"]);
    }

    #[test]
    fn folders_that_differ_in_letter_case_are_one_resource_in_every_run() {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path();
        put(base, "{}");
        put(&base.join("systems/1"), r#"{"from": "systems"}"#);
        put(&base.join("Systems/1"), r#"{"from": "Systems"}"#);
        assert_eq!(read(base).unwrap()["/redfish/v1/systems/1"], json!({"from": "Systems"}));
    }

    #[test]
    fn links_to_other_files_are_not_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let outside = temporary.path().join("outside");
        put(&outside, r#"{"secret": true}"#);
        let base = temporary.path().join("base");
        put(&base, "{}");
        std::os::unix::fs::symlink(&outside, base.join("Folder")).unwrap();
        std::fs::create_dir(base.join("File")).unwrap();
        std::os::unix::fs::symlink(outside.join("index.json"), base.join("File/index.json")).unwrap();
        assert_eq!(read(&base).unwrap().len(), 1);
    }

    #[test]
    fn other_folders_are_refused_with_the_reason() {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path();
        assert!(matches!(read(base), Err(ReadError::NoRoot { .. })));
        assert!(matches!(read(&base.join("nowhere")), Err(ReadError::Read { .. })));
        let file = base.join("one.json");
        std::fs::write(&file, "{\n\"/redfish/v1\": {},\n\"/redfish/v1/Systems\" {}\n}").unwrap();
        let refused = read(&file).unwrap_err();
        assert!(matches!(refused, ReadError::NotJson { .. }));
        assert!(refused.to_string().contains("line 3"), "{refused}");
        std::fs::write(&file, r#"{"/redfish/v1/Systems": {}}"#).unwrap();
        assert!(matches!(read(&file), Err(ReadError::NoRoot { .. })));
    }
}
