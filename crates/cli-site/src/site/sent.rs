//! Site files as they are sent: under names that can be written to any directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rackwright_api::v1::{SiteFile, SiteFilePart, SiteFinding};
use rackwright_cli_context::error::CliError;
use rackwright_site::file::MAX_TOTAL_BYTES;
use rackwright_site::finding::{Finding, Findings, Severity};
use tonic::Status;

use super::load::{Files, read_site_files};

/// Largest answer about site files, in bytes: room for one finding or change per line of all files.
pub const MAX_PLAN_BYTES: usize = MAX_TOTAL_BYTES + (16 << 20);
/// Largest part of a file in one message.
const PART_BYTES: usize = 1 << 20;

/// The files with their local and their sent names.
#[derive(Debug)]
pub struct SentFiles {
    pub files: Arc<[SiteFile]>,
    /// By the sent name: the given name.
    shown: HashMap<String, String>,
    /// The files under the given names, for showing their lines.
    local: Files,
}

impl SentFiles {
    /// Reads files and directories. A file is sent under its own name. Only if several files share a name, the name of
    /// the directory is added, so that the site does not depend on the place from which it was applied.
    pub fn read(paths: &[PathBuf]) -> Result<Self, CliError> {
        let found = read_site_files(paths)?;
        let mut count: HashMap<String, usize> = HashMap::new();
        for (path, _) in &found {
            *count.entry(name(path)).or_default() += 1;
        }
        let (mut files, mut local, mut shown) = (Vec::new(), Vec::new(), HashMap::new());
        for (path, text) in found {
            let mut name = name(&path);
            if count.get(&name).is_some_and(|count| *count > 1) {
                name = format!("{}-{name}", folder(&path));
            }
            let given = path.display().to_string();
            if let Some(other) = shown.insert(name.clone(), given.clone()) {
                let message = format!("{other} and {given} would both get the name {name}");
                return Err(CliError::usage(message, "give each file once, or rename one of them"));
            }
            local.push((given, text.clone()));
            files.push(SiteFile { name, text });
        }
        Ok(Self {
            files: files.into(),
            shown,
            local: Files::of(local),
        })
    }

    /// The size of all files together.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(|file| file.text.len()).sum()
    }

    /// The files under the given names.
    pub fn local(&self) -> &Files {
        &self.local
    }

    /// The server's findings, with the local names of the files.
    pub fn findings(&self, found: &[SiteFinding]) -> Findings {
        let finding = |found: &SiteFinding| Finding {
            severity: if found.is_error {
                Severity::Error
            } else {
                Severity::Warning
            },
            file: self.shown.get(&found.file).unwrap_or(&found.file).as_str().into(),
            line: found.line,
            column: found.column,
            path: found.path.clone(),
            what: found.what.clone(),
            fix: found.fix.clone(),
        };
        let errors = found.iter().filter(|finding| finding.is_error).count();
        Findings {
            list: found.iter().map(finding).collect(),
            errors,
            warnings: found.len() - errors,
        }
    }
}

/// The files in parts for sending.
pub fn parts(files: Arc<[SiteFile]>) -> impl Iterator<Item = SiteFilePart> + Send + 'static {
    let (mut place, mut at) = (0, 0);
    std::iter::from_fn(move || {
        let file = files.get(place)?;
        // The name is in the first part; an empty file has one part.
        let name = if at == 0 { file.name.clone() } else { String::new() };
        let end = (at + PART_BYTES).min(file.text.len());
        let data = file.text.as_bytes()[at..end].to_vec();
        at = end;
        if at == file.text.len() {
            (place, at) = (place + 1, 0);
        }
        Some(SiteFilePart { name, data })
    })
}

/// Files that arrive in parts.
#[derive(Debug, Default)]
pub struct ReceivedFiles {
    files: Vec<(String, Vec<u8>)>,
    total: usize,
}

impl ReceivedFiles {
    /// Adds a part.
    pub fn take(&mut self, part: SiteFilePart) -> Result<(), Status> {
        self.total += part.data.len();
        if self.total > MAX_TOTAL_BYTES {
            let message = format!("the files have more than {} MiB together", MAX_TOTAL_BYTES >> 20);
            return Err(Status::out_of_range(message));
        }
        match self.files.last_mut() {
            Some((_, text)) if part.name.is_empty() => text.extend_from_slice(&part.data),
            _ => self.files.push((part.name, part.data)),
        }
        Ok(())
    }

    /// The files, after all parts have arrived.
    pub fn files(self) -> Result<Vec<SiteFile>, Status> {
        let file = |(name, text)| match String::from_utf8(text) {
            Ok(text) => Ok(SiteFile { name, text }),
            Err(error) => Err(Status::data_loss(format!("file {name:?} is not text: {error}"))),
        };
        self.files.into_iter().map(file).collect()
    }
}

/// The name of the file in a directory of site files.
fn name(path: &Path) -> String {
    let name = match path.file_name() {
        Some(name) if path.as_os_str() != "-" => name.to_string_lossy().into_owned(),
        _ => "stdin".to_owned(),
    };
    let is_yaml = [".yaml", ".yml"].iter().any(|end| name.ends_with(end));
    if is_yaml { name } else { format!("{name}.yaml") }
}

/// The name of the directory of a file.
fn folder(path: &Path) -> String {
    let folder = path.parent().and_then(Path::file_name);
    folder.map_or_else(|| "here".to_owned(), |folder| folder.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackwright_cli_context::output::Paint;

    fn names(paths: &[PathBuf]) -> Result<Vec<String>, String> {
        let sent = SentFiles::read(paths).map_err(|e| e.to_string())?;
        Ok(sent.files.iter().map(|file| file.name.clone()).collect())
    }

    #[test]
    fn names_do_not_tell_where_files_lay() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for folder in ["a", "b", "c/a"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        for file in [
            "a/racks.yaml",
            "a/power.yml",
            "b/racks.yaml",
            "c/a/racks.yaml",
            "b/site.txt",
        ] {
            std::fs::write(at(file), file).unwrap();
        }
        assert_eq!(names(&[at("a")]).unwrap(), ["power.yml", "racks.yaml"]);
        assert_eq!(
            names(&[at("a"), at("b")]).unwrap(),
            ["power.yml", "a-racks.yaml", "b-racks.yaml"]
        );
        assert_eq!(names(&[at("b/site.txt")]).unwrap(), ["site.txt.yaml"]);
        let both = names(&[at("a/racks.yaml"), at("c/a/racks.yaml")]).unwrap_err();
        assert!(both.ends_with("would both get the name a-racks.yaml"), "{both}");
        assert!(names(&[at("a"), at("a")]).is_err());
    }

    #[test]
    fn parts_of_files_become_the_files_again() {
        let file = |name: &str, text: String| SiteFile {
            name: name.into(),
            text,
        };
        // Two bytes each: a part ends inside a character.
        let long = format!("x{}", "\u{e9}".repeat(PART_BYTES));
        let files: Arc<[SiteFile]> = [
            file("a", long),
            file("b", String::new()),
            file("c", "y".repeat(PART_BYTES)),
        ]
        .into();
        let mut received = ReceivedFiles::default();
        let (mut count, mut largest) = (0, 0);
        for part in parts(files.clone()) {
            (count, largest) = (count + 1, largest.max(part.data.len()));
            received.take(part).unwrap();
        }
        assert_eq!((count, largest), (5, PART_BYTES));
        assert_eq!(received.files().unwrap(), files.to_vec());
    }

    #[test]
    fn findings_name_files_as_they_were_given() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("racks.yaml");
        std::fs::write(&path, "racks: 1\n").unwrap();
        let sent = SentFiles::read(std::slice::from_ref(&path)).unwrap();
        let found = |file: &str, is_error, line| SiteFinding {
            is_error,
            file: file.into(),
            line,
            column: line,
            what: "wrong\x1b[2J".into(),
            ..SiteFinding::default()
        };
        let all = [
            found("racks.yaml", true, 1),
            found("racks.yaml", false, 0),
            found("", true, u32::MAX),
        ];
        let findings = sent.findings(&all);
        assert_eq!((findings.errors, findings.warnings, findings.left_out()), (2, 1, 0));
        let text = sent.local().render(&findings, Paint::PLAIN);
        let path = path.display();
        assert_eq!(
            text,
            format!(
                "{path}:1:1: error: wrong [2J\n 1 | racks: 1\n   | ^\n{path}: warning: wrong [2J\nerror: wrong [2J\n"
            )
        );
    }
}
