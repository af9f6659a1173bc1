//! What is wrong with a file, where, and what to do about it.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

/// What reading a site may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Names that all patterns of a site stand for together. A site of 100,000 nodes with eight rails has about 4 million.
    pub names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { names: 1 << 24 }
    }
}

/// Findings that are kept; the others are only counted.
pub const MAX_FINDINGS: usize = 1000;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but this is worth a look.
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

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file, as it was named when it was given.
    pub file: Box<str>,
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// Like `racks[3].units`; places in lists count from 0, anew in each document.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// What to do; empty where that is plain.
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

/// A place in one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Spot {
    /// Index of the file.
    pub file: u32,
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
}

/// All that was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Findings {
    /// At most [`MAX_FINDINGS`], by place.
    pub list: Vec<Finding>,
    /// Errors, those that were not kept included.
    pub errors: usize,
    /// Warnings, those that were not kept included.
    pub warnings: usize,
}

impl Findings {
    /// Findings that were counted and not kept.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.errors + self.warnings - self.list.len()
    }
}

/// Where findings are collected. One place says one thing: what is found there later is a consequence or one more of
/// the items that one line stands for.
#[derive(Debug)]
pub(crate) struct Sink {
    files: Vec<Box<str>>,
    found: Vec<(Spot, Finding)>,
    seen: HashSet<(Spot, String)>,
    errors: usize,
    warnings: usize,
    /// How often near names may still be looked for: that walks all names.
    searches: usize,
    limits: Limits,
    /// Names that patterns may still stand for; none once a pattern asked for more.
    names_left: Option<usize>,
}

impl Sink {
    pub(crate) fn new(files: Vec<Box<str>>) -> Self {
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

    pub(crate) fn error(&mut self, at: Spot, path: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Error, at, path.into(), what.into(), fix.into());
    }

    pub(crate) fn warning(
        &mut self,
        at: Spot,
        path: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(Severity::Warning, at, path.into(), what.into(), fix.into());
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// `site.yaml:12`
    pub(crate) fn place(&self, at: Spot) -> String {
        format!("{}:{}", self.file(at), at.line)
    }

    /// True a bounded number of times.
    pub(crate) fn may_search(&mut self) -> bool {
        self.searches = self.searches.saturating_sub(1);
        self.searches > 0
    }

    pub(crate) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Names that patterns may still stand for. None once a pattern asked for more: one finding has said so.
    pub(crate) const fn names_left(&self) -> Option<usize> {
        self.names_left
    }

    /// Counts names that a pattern stands for; none when the pattern asks for more than are left.
    pub(crate) fn take_names(&mut self, count: Option<usize>) {
        self.names_left = self.names_left.zip(count).and_then(|(left, n)| left.checked_sub(n));
    }

    fn file(&self, at: Spot) -> &str {
        self.files.get(at.file as usize).map_or("", |file| file)
    }

    fn add(&mut self, severity: Severity, at: Spot, path: String, what: String, fix: String) {
        // Beyond the limit places are no longer told apart, so that memory stays bounded.
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

    pub(crate) fn finish(mut self) -> Findings {
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
