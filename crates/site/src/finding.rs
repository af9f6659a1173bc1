//! Findings about a file: fault, place and fix.

use std::collections::HashSet;
use std::fmt;

pub use rackwright_yaml::Spot;
use serde::Serialize;

/// Limits for reading a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of names from all patterns of a site. A site of 100,000 nodes with eight rails has about 4
    /// million.
    pub names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { names: 1 << 24 }
    }
}

/// Maximum number of stored findings. More findings are only counted.
pub const MAX_FINDINGS: usize = 1000;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but an operator should look at the finding.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One fault in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// The file, by the name that the caller gave.
    pub file: Box<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Such as `racks[3].units`. List indices start at 0 in each document.
    pub path: String,
    /// The fault.
    pub what: String,
    /// The remedy. Empty if it is obvious.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            severity,
            file,
            line,
            column,
            path,
            what,
            ..
        } = self;
        write!(f, "{file}:{line}:{column}: {severity}: {path}: {what}")
    }
}

/// All findings of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Findings {
    /// At most [`MAX_FINDINGS`], ordered by place.
    pub list: Vec<Finding>,
    /// Number of errors, including those not stored.
    pub errors: usize,
    /// Number of warnings, including those not stored.
    pub warnings: usize,
}

impl Findings {
    /// Number of findings that were counted but not stored.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.errors + self.warnings - self.list.len()
    }
}

/// Collects findings, one for each place and path. A later finding there is a consequence of the first, or concerns
/// another item of the same line.
#[derive(Debug)]
pub struct Sink {
    files: Vec<Box<str>>,
    found: Vec<(Spot, Finding)>,
    seen: HashSet<(Spot, String)>,
    errors: usize,
    warnings: usize,
    /// Number of searches for similar names left. Each search walks all names.
    searches: usize,
    limits: Limits,
    /// Number of names left for patterns. `None` once a pattern exceeded it.
    names_left: Option<usize>,
}

impl Sink {
    /// A sink for findings in these files, with the default limits.
    #[must_use]
    pub fn new(files: Vec<Box<str>>) -> Self {
        Self::within(files, Limits::default())
    }

    pub(crate) fn within(files: Vec<Box<str>>, limits: Limits) -> Self {
        Self {
            limits,
            names_left: Some(limits.names),
            files,
            found: Vec::new(),
            seen: HashSet::new(),
            errors: 0,
            warnings: 0,
            searches: 100,
        }
    }

    /// Adds an error: what is wrong at `path`, and how to fix it.
    pub fn error(&mut self, at: Spot, path: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Error, at, path.into(), what.into(), fix.into());
    }

    /// Adds a warning.
    pub fn warning(&mut self, at: Spot, path: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Warning, at, path.into(), what.into(), fix.into());
    }

    /// Whether an error was added.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.errors + self.warnings == 0
    }

    /// The place in words, such as `site.yaml:12`.
    #[must_use]
    pub fn place(&self, at: Spot) -> String {
        format!("{}:{}", self.file(at), at.line)
    }

    /// Whether another search is allowed. The number of searches is bounded.
    pub(crate) fn may_search(&mut self) -> bool {
        self.searches = self.searches.saturating_sub(1);
        self.searches > 0
    }

    pub(crate) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Number of names left for patterns. `None` once a pattern exceeded it, which has its finding already.
    pub(crate) const fn names_left(&self) -> Option<usize> {
        self.names_left
    }

    /// Subtracts the names of a pattern. `None` as `count`: the pattern has more names than are left.
    pub(crate) fn take_names(&mut self, count: Option<usize>) {
        self.names_left = self.names_left.zip(count).and_then(|(left, n)| left.checked_sub(n));
    }

    fn file(&self, at: Spot) -> &str {
        self.files.get(at.file as usize).map_or("", |file| file)
    }

    fn add(&mut self, severity: Severity, at: Spot, path: String, what: String, fix: String) {
        // Above this limit duplicates are no longer detected, so that memory stays bounded.
        if self.seen.len() < 4 * MAX_FINDINGS && !self.seen.insert((at, path.clone())) {
            return;
        }
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
        if self.found.len() < MAX_FINDINGS {
            let file = self.file(at).into();
            let (line, column) = (at.line, at.column);
            self.found.push((
                at,
                Finding {
                    severity,
                    file,
                    line,
                    column,
                    path,
                    what,
                    fix,
                },
            ));
        }
    }

    /// The findings, by place.
    #[must_use]
    pub fn finish(mut self) -> Findings {
        self.found.sort_by(|(a, x), (b, y)| (a, &x.path).cmp(&(b, &y.path)));
        Findings {
            list: self.found.into_iter().map(|(_, finding)| finding).collect(),
            errors: self.errors,
            warnings: self.warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_sorted_bounded_and_one_a_place() {
        let mut sink = Sink::new(vec!["a.yaml".into()]);
        let spot = |line| Spot {
            file: 0,
            line,
            column: 1,
        };
        sink.error(spot(2), "racks[1]", "second", "");
        sink.warning(spot(1), "racks[0]", "first", "");
        sink.error(spot(2), "racks[1]", "the same place again", "");
        let found = sink.finish();
        assert_eq!((found.errors, found.warnings, found.left_out()), (1, 1, 0));
        assert_eq!(found.list[0].to_string(), "a.yaml:1:1: warning: racks[0]: first");
        let mut sink = Sink::new(Vec::new());
        for line in 0..5000 {
            sink.error(spot(line), "x", "y", "");
        }
        let found = sink.finish();
        assert_eq!((found.list.len(), found.left_out()), (MAX_FINDINGS, 4000));
    }
}
