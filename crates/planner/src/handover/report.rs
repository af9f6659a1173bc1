//! The validation report.

use std::collections::BTreeMap;

use super::text::{cell, table};
use super::{Cluster, PackFile, ReportRow, Verdict, file};

pub(super) fn sheet(cluster: &Cluster<'_>) -> PackFile {
    let mut rows: Vec<&ReportRow> = cluster.report.iter().collect();
    let key = |row: &ReportRow| {
        let words = [&row.check, &row.subject, &row.measured, &row.wanted].map(String::clone);
        (row.verdict, words)
    };
    rows.sort_by_cached_key(|row| key(row));
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry(row.verdict).or_default() += 1);
    let counts: Vec<String> = counts
        .iter()
        .map(|(verdict, count)| format!("{count} {}", verdict.name()))
        .collect();
    let mut text = "# Validation\n\n".to_owned();
    if rows.is_empty() {
        text.push_str("No check was made.\n");
        return file("validation.md", text);
    }
    text.push_str(&format!("Checks: {}.\n\n", counts.join(", ")));
    let lines = rows.into_iter().map(|row| {
        let mut line = vec![row.verdict.name().to_owned()];
        line.extend([&row.check, &row.subject, &row.measured, &row.wanted].map(|text| cell(text)));
        line
    });
    text.push_str(&table(&["", "check", "of", "measured", "wanted"], lines));
    file("validation.md", text)
}
