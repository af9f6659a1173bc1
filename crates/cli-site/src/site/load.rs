//! Site files from disk, and their findings in the style of a compiler.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::given::{read_beginning, read_bytes, yaml_files};
use rackwright_cli_context::output::{Paint, Tone, clean};
use rackwright_site::file::{Checked, MAX_TOTAL_BYTES, Source, TooLarge, check};
use rackwright_site::finding::{Finding, Findings, Severity};
use rackwright_site::model::Site;

/// Longest source line that is shown.
const MAX_SHOWN: usize = 160;

/// The files of a site, by name.
#[derive(Debug)]
pub struct Files(Vec<(String, String)>);

impl Files {
    /// Reads files and directories.
    pub fn read(paths: &[PathBuf]) -> Result<Self, CliError> {
        // The check reports the place of bytes that are not UTF-8, together with the faults of other files.
        let read = |path: &Path| {
            let bytes = read_bytes("read", path, MAX_TOTAL_BYTES as u64 + 1)?;
            let lossy = |error: FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
            Ok(String::from_utf8(bytes).unwrap_or_else(lossy))
        };
        let files = read_site_files_with(paths, read)?;
        let named = files.into_iter().map(|(path, text)| (path.display().to_string(), text));
        Ok(Self(named.collect()))
    }

    /// Files that are already read, by name.
    pub fn of(files: Vec<(String, String)>) -> Self {
        Self(files)
    }

    pub fn check(&self) -> Checked {
        let sources: Vec<Source<'_>> = self.0.iter().map(|(name, text)| Source { name, text }).collect();
        check(&sources)
    }

    /// Like [`Files::check`], with warnings about the fabric that the files describe.
    pub fn check_fabric(&self) -> Checked {
        let sources: Vec<Source<'_>> = self.0.iter().map(|(name, text)| Source { name, text }).collect();
        rackwright_planner::check(&sources)
    }

    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// All findings: position, sentence, source line with a caret, and hint.
    pub fn render(&self, findings: &Findings, paint: Paint) -> String {
        let mut lines: HashMap<&str, Vec<&str>> = HashMap::new();
        for (name, text) in &self.0 {
            lines.entry(name).or_insert_with(|| text.lines().collect());
        }
        let mut out = String::new();
        for finding in &findings.list {
            let line = lines
                .get(&*finding.file)
                .and_then(|lines| lines.get((finding.line as usize).checked_sub(1)?));
            render(&mut out, finding, line.copied(), paint);
        }
        if findings.left_out() > 0 {
            let _ = writeln!(out, "{} more", plural(findings.left_out(), "finding"));
        }
        out
    }
}

/// The texts of site files and of directories of site files. Files that are too large for a site are not read.
///
/// # Errors
/// A file cannot be read or is not UTF-8 text, or the files are too large.
pub fn read_site_files(paths: &[PathBuf]) -> Result<Vec<(PathBuf, String)>, CliError> {
    read_site_files_with(paths, read_file)
}

/// The same with the text of each file from `read`.
fn read_site_files_with(
    paths: &[PathBuf],
    read: impl Fn(&Path) -> Result<String, CliError>,
) -> Result<Vec<(PathBuf, String)>, CliError> {
    let mut found = Vec::new();
    for path in paths {
        found.extend(yaml_files(path)?);
    }
    // The size of standard input is known only after it is read.
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
    check_size(found.iter().map(size).sum())?;
    let (mut texts, mut total) = (Vec::new(), 0);
    for path in found {
        let text = read(&path)?;
        total += text.len() as u64;
        check_size(total)?;
        texts.push((path, text));
    }
    Ok(texts)
}

fn check_size(bytes: u64) -> Result<(), CliError> {
    TooLarge::check(bytes).map_err(|error| CliError::usage(error.to_string(), TooLarge::FIX))
}

/// A file, or standard input.
pub fn read_file(path: &Path) -> Result<String, CliError> {
    // One byte more, so that the caller notices a file that is too large.
    read_beginning("read", path, MAX_TOTAL_BYTES as u64 + 1)
}

/// `racks.yaml:19:9: `, or less if a finding has no position.
fn place(finding: &Finding) -> String {
    match (clean(&finding.file), finding.line) {
        (file, _) if file.is_empty() => file,
        (file, 0) => format!("{file}: "),
        (file, line) => format!("{file}:{line}:{}: ", finding.column),
    }
}

fn render(out: &mut String, finding: &Finding, line: Option<&str>, paint: Paint) {
    let tone = match finding.severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Busy,
    };
    let severity = paint.tone(tone, &format!("{}:", finding.severity));
    let path = if finding.path.is_empty() {
        String::new()
    } else {
        format!(" ({})", clean(&finding.path))
    };
    let what = paint.tone(Tone::Strong, &clean(&finding.what));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}{severity} {what}{path}", place(finding));
    let number = finding.line.to_string();
    let margin = " ".repeat(number.len());
    if let Some(line) = line.filter(|line| !line.trim().is_empty()) {
        let before = (finding.column as usize).saturating_sub(1);
        let shown: String = line
            .chars()
            .take(MAX_SHOWN)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let _ = writeln!(out, " {} {shown}", paint.tone(Tone::Dim, &format!("{number} |")));
        if before < MAX_SHOWN {
            let caret = paint.tone(tone, "^");
            let _ = writeln!(
                out,
                " {} {}{caret}",
                paint.tone(Tone::Dim, &format!("{margin} |")),
                " ".repeat(before)
            );
        }
    }
    if !finding.fix.is_empty() {
        let _ = writeln!(
            out,
            " {margin} {} {}",
            paint.tone(Tone::Dim, "fix:"),
            clean(&finding.fix)
        );
    }
}

/// A site without errors; otherwise its findings go to stderr.
pub fn site(cx: &Cx, paths: &[PathBuf]) -> Result<Site, CliError> {
    let files = Files::read(paths)?;
    let checked = files.check();
    match checked.site {
        Some(site) => Ok(site),
        None => {
            eprint!("{}", files.render(&checked.findings, cx.ui.paint_errors()));
            Err(refused(&checked.findings))
        }
    }
}

/// The error for invalid input, with the number of faults.
pub fn refused(findings: &Findings) -> CliError {
    CliError::usage(format!("{} in the site", plural(findings.errors, "error")), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_too_large_are_refused_before_they_are_read() {
        let temp = tempfile::tempdir().unwrap();
        for (name, bytes) in [("a.yaml", MAX_TOTAL_BYTES as u64), ("b.yaml", 1)] {
            // The file takes no room on the disk.
            let file = std::fs::File::create(temp.path().join(name)).unwrap();
            file.set_len(bytes).unwrap();
        }
        let paths = [temp.path().to_owned()];
        match read_site_files(&paths) {
            Err(CliError::Usage { message, hint }) => {
                let wanted = "the site description is too large: 256.1 MiB of at most 256 MiB";
                assert_eq!((message.as_str(), hint.as_str()), (wanted, TooLarge::FIX));
            }
            other => panic!("{:?}", other.map(|files| files.len())),
        }
        let small = [temp.path().join("b.yaml")];
        assert_eq!(read_site_files(&small).unwrap()[0].1, "\0");
    }
}
