//! Checks of the written documents: no unfinished marks, no dead links, every dependency explained, no doc comment that
//! only repeats a name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;

#[path = "docs/comments.rs"]
mod comments;

/// Marks of unfinished work, put together here so that this file does not hold them.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("todo", "!("),
    concat!("unimple", "mented!("),
];

/// Paths that exist only on one developer's machine.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("../sha", "red"), concat!("/ho", "me/")];

/// Folders that do not belong to the sources.
const SKIPPED: &[&str] = &["target", ".git", "out", "node_modules"];

/// Files with unchanged text of other authors.
const FOREIGN: &[&str] = &["LICENSE", "Cargo.lock"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text_files(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("a folder entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                text_files(&path, found);
            }
        } else if !FOREIGN.contains(&name.as_str())
            && let Ok(text) = fs::read_to_string(&path)
        {
            found.push((path, text));
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    text_files(&root(), &mut found);
    assert!(found.len() > 100, "only {} text files found", found.len());
    found
}

/// `line: mark` for each mark in a text.
fn marks(text: &str, wanted: &[&str]) -> Vec<String> {
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(number, line)| {
            wanted
                .iter()
                .filter(|mark| line.contains(**mark))
                .map(move |mark| format!("{}: {mark}", number + 1))
        })
        .collect()
}

#[test]
fn nothing_unfinished_and_no_machine_of_ours_is_in_the_sources() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let found = marks(&text, UNFINISHED).into_iter().chain(marks(&text, MACHINE_PATHS));
        faults.extend(found.map(|fault| format!("{}:{fault}", path.display())));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert_eq!(marks(concat!("a\n// TO", "DO: b"), UNFINISHED).len(), 1);
}

/// Link targets `[text](target)` of a page that are in this repository, with anchors.
fn targets(page: &str) -> Vec<&str> {
    let outside_code = page.split("```").step_by(2);
    let targets = outside_code
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target);
    targets
        .filter(|t| !t.contains("://") && !t.starts_with("mailto:"))
        .collect()
}

/// The files of a page's link targets.
fn local_links(page: &str) -> Vec<&str> {
    let files = targets(page).into_iter().map(|t| t.split('#').next().unwrap_or(t));
    files.filter(|file| !file.is_empty()).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let outside_code = page.split("```").step_by(2);
    let headings = outside_code.flat_map(str::lines).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().chars();
        kept.filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
            .collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut dead = Vec::new();
    for (path, text) in sources()
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "md"))
    {
        let folder = path.parent().expect("a file has a folder");
        dead.extend(
            local_links(text)
                .into_iter()
                .filter(|l| !folder.join(l).exists())
                .map(|l| format!("{}: {l}", path.display())),
        );
    }
    assert!(dead.is_empty(), "\n{}", dead.join("\n"));
    assert_eq!(
        local_links("[a](b.md#c) [d](https://e) ```[f](g)``` [h](i)"),
        ["b.md", "i"]
    );
}

#[test]
fn anchors_of_links_are_headings() {
    let mut dead = Vec::new();
    for (path, text) in sources()
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "md"))
    {
        let folder = path.parent().expect("a file has a folder");
        for target in targets(text) {
            let Some((file, anchor)) = target.split_once('#') else {
                continue;
            };
            let page = match file {
                "" => text.clone(),
                file => fs::read_to_string(folder.join(file)).unwrap_or_default(),
            };
            if !anchors(&page).contains(anchor) {
                dead.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "\n{}", dead.join("\n"));
    assert_eq!(
        anchors("# `a` b: C-d\n```\n# e\n```\n"),
        BTreeSet::from(["a-b-c-d".to_owned()])
    );
}

/// Files and folders of this repository that a page names in code marks. A name in capitals is a placeholder: `CRATE.md`.
fn named_paths(page: &str) -> Vec<&str> {
    let outside_code = page.split("```").step_by(2);
    let marked = outside_code.flat_map(|part| part.split('`').skip(1).step_by(2));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./@-".contains(c);
    let roots = ["crates/", "tests/", "proto/", "images/", "deploy/", "docs/"];
    let is_any = |path: &str| {
        let name = path.rsplit('/').next().and_then(|name| name.split('.').next());
        name.is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase()) && name != "README")
    };
    marked
        .filter(|text| roots.iter().any(|root| text.starts_with(root)) && text.chars().all(is_plain))
        .filter(|path| !is_any(path))
        .collect()
}

#[test]
fn paths_that_pages_name_are_there() {
    let mut missing = Vec::new();
    let mut count = 0;
    for (path, text) in sources()
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "md"))
    {
        for named in named_paths(text) {
            count += 1;
            if !root().join(named).exists() {
                missing.push(format!("{}: {named}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} paths are named");
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
    assert_eq!(
        named_paths("`crates/a/b.rs` ```\n`docs/x`\n``` `docs/d/CRATE.md` `docs/README.md` `crates/*/x` `x/y`"),
        ["crates/a/b.rs", "docs/README.md"]
    );
}

/// Pages for newcomers, and the most lines of each.
const FIRST_PAGES: &[(&str, usize)] = &[
    ("README.md", 120),
    ("docs/architecture.md", 145),
    ("CONTRIBUTING.md", 120),
];

#[test]
fn the_first_pages_are_short() {
    for (page, most) in FIRST_PAGES {
        let lines = fs::read_to_string(root().join(page)).expect("a page").lines().count();
        assert!(
            lines <= *most,
            "{page} has {lines} lines; at most {most}: move a part to a page of its own"
        );
    }
}

#[test]
fn every_crate_has_a_place_in_the_code_map() {
    let page = fs::read_to_string(root().join("docs/code-map.md")).expect("the code map");
    let named: BTreeSet<&str> = named_paths(&page)
        .into_iter()
        .filter_map(|path| path.strip_prefix("crates/")?.split('/').next())
        .collect();
    let folders = fs::read_dir(root().join("crates")).expect("the crates");
    let missing: Vec<String> = folders
        .map(|entry| {
            entry
                .expect("a folder entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| !named.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "docs/code-map.md names no place in {missing:?}");
}

#[test]
fn every_page_is_reached_from_the_readme() {
    let mut reached = BTreeSet::new();
    let mut open = vec![root().join("README.md")];
    while let Some(path) = open.pop() {
        let path = path.canonicalize().expect("a page");
        if !reached.insert(path.clone()) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a page");
        let folder = path.parent().expect("a file has a folder");
        open.extend(
            local_links(&text)
                .into_iter()
                .map(|link| folder.join(link))
                .filter(|p| p.is_file() && p.extension().is_none_or(|e| e != "png")),
        );
    }
    let mut left = Vec::new();
    for entry in fs::read_dir(root().join("docs")).expect("docs") {
        let path = entry.expect("a folder entry").path().canonicalize().expect("a page");
        if path.extension().is_some_and(|e| e == "md") && !reached.contains(&path) {
            left.push(path.display().to_string());
        }
    }
    assert!(left.is_empty(), "no link leads from README.md to\n{}", left.join("\n"));
}

/// Whether a text names a package as a separate word.
fn names(text: &str, package: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.split(|c: char| !part_of_name(c)).any(|word| word == package)
}

#[test]
fn every_dependency_is_explained() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let mut explained = fs::read_to_string(root().join("docs/dependencies.md")).expect("docs/dependencies.md");
    for entry in fs::read_dir(root().join("docs/dependencies.d")).into_iter().flatten() {
        explained += &fs::read_to_string(entry.expect("a folder entry").path()).expect("a page");
    }
    let mut missing: Vec<&str> = metadata
        .workspace_packages()
        .iter()
        .flat_map(|package| &package.dependencies)
        .map(|dependency| dependency.name.as_str())
        .filter(|name| !name.starts_with("rackwright-") && !names(&explained, name))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    assert!(
        missing.is_empty(),
        "docs/dependencies.md does not explain: {}",
        missing.join(", ")
    );
    assert!(names("`tokio-rustls` — TLS", "tokio-rustls") && !names("`tokio-rustls` — TLS", "tokio"));
}

#[test]
fn the_state_diagrams_are_the_charts() {
    let page = root().join("docs/lifecycle.md");
    let mut text = fs::read_to_string(&page).expect("docs/lifecycle.md");
    let charts = [
        (rackwright_lifecycle::chart::mermaid(), "chart.rs"),
        (rackwright_lifecycle::cluster::mermaid(), "cluster/chart.rs"),
    ];
    let mut from = 0;
    for (chart, file) in charts {
        let fence = "```mermaid\n";
        let begin = from + text[from..].find(fence).expect("a diagram") + fence.len();
        let end = begin + text[begin..].find("```").expect("the diagram ends");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            text.replace_range(begin..end, &chart);
            fs::write(&page, &text).expect("the page can be written");
        } else {
            assert!(
                text[begin..end] == chart,
                "docs/lifecycle.md shows another chart than crates/lifecycle/src/{file}; UPDATE_DOCS=1 draws it again:\n{chart}"
            );
        }
        from = begin;
    }
}

/// `module::test` of every attack test.
fn attacks() -> BTreeSet<String> {
    let folder = root().join("tests/tests/attacks");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the attack tests") {
        let path = entry.expect("a folder entry").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let module = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let file = syn::parse_file(&fs::read_to_string(&path).expect("an attack test")).expect("Rust");
        for item in file.items {
            let syn::Item::Fn(function) = item else { continue };
            let is_test =
                |attribute: &syn::Attribute| attribute.path().segments.last().is_some_and(|s| s.ident == "test");
            if function.attrs.iter().any(is_test) {
                found.insert(format!("{module}::{}", function.sig.ident));
            }
        }
    }
    found
}

#[test]
fn the_threat_model_names_every_attack_test_and_no_other() {
    let text = fs::read_to_string(root().join("docs/security.md")).expect("docs/security.md");
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let named: BTreeSet<String> = rows
        .filter_map(|row| row.trim_end_matches(" |").rsplit_once("| `"))
        .map(|(_, test)| test.trim_end_matches('`').to_owned())
        .collect();
    let attacks = attacks();
    assert!(attacks.len() > 30, "{attacks:?}");
    assert_eq!(named, attacks);

    let matrix = fs::read_to_string(root().join("tests/tests/attacks/matrix.txt")).expect("matrix.txt");
    let calls = matrix.lines().filter(|line| !line.starts_with('#'));
    let pairs: usize = calls.map(|line| line.split_whitespace().count() - 1).sum();
    let pairs = format!("{},{:03} pairs of call and caller", pairs / 1000, pairs % 1000);
    assert!(
        text.contains(&pairs),
        "matrix.txt has {pairs}, and the threat model another number"
    );
}
