//! Files of a crate that use each other in a circle. The aim is at most 3 files.
//!
//! A module and its parts are one thing to a reader: that a part uses the module around it does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{cycles, product, sources};

/// Most files in one cycle.
const AIM: usize = 3;
/// Crates with a larger cycle, and its files. Lower a number when the cycle shrinks; add no crate.
const LARGER: &[(&str, usize)] = &[
    ("agent", 11),
    ("fabric", 7),
    ("gateway", 6),
    ("ground", 17),
    ("netboot", 18),
    ("nodes", 4),
    ("placement", 4),
    ("redfish", 25),
    ("redfish-wire", 10),
    ("site", 12),
    ("traffic", 5),
    ("validate", 7),
];

/// Crates that are no part of the product: benchmarks, tests and simulations.
const TOOLS: &[&str] = &["bench", "fuzz", "lab", "sim", "sim-bmc"];

/// The files that each file of a crate uses, without the root of the crate and the modules around the file.
fn arrows(name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let files = product(name);
    let modules: BTreeSet<&[String]> = files.iter().map(|file| file.uses.module.as_slice()).collect();
    let file_of = |path: &[String]| {
        let lengths = (1..=path.len()).rev();
        let mut prefixes = lengths.map(|length| &path[..length]);
        prefixes
            .find(|prefix| modules.contains(prefix))
            .map(|prefix| prefix.join("::"))
    };
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        if let Some(own) = file_of(&file.uses.module) {
            let others = file.uses.paths.iter().filter_map(|path| file_of(path));
            let is_around = |other: &str| own == other || own.strip_prefix(other).is_some_and(|r| r.starts_with("::"));
            let others: Vec<String> = others.filter(|other| !is_around(other)).collect();
            arrows.entry(own).or_default().extend(others);
        }
    }
    arrows
}

#[test]
fn cycles_of_files_do_not_grow() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(sources("ground").join("../..")).expect("the crates") {
        let name = entry.expect("a crate").file_name().to_string_lossy().into_owned();
        if TOOLS.contains(&name.as_str()) || !sources(&name).is_dir() {
            continue;
        }
        let arrows = arrows(&name);
        let cycles = cycles(&arrows);
        let largest = cycles.first().map_or(0, Vec::len);
        let known = LARGER.iter().find(|(of, _)| *of == name).map(|(_, files)| *files);
        let is_right = known.map_or(largest <= AIM, |files| largest == files);
        if !is_right {
            let files = cycles.first().map(|cycle| cycle.join(", ")).unwrap_or_default();
            wrong.push(format!("{name}: {largest} files, {known:?} in LARGER: {files}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
