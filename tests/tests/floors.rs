//! The floors inside the crates of the features, as data: which module may use which. `docs/architecture.md` gives the
//! reasons.
//!
//! The test reads the sources. Code under `#[cfg(test)]` may use anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The floors of one crate.
struct Crate {
    name: &'static str,
    /// Its modules, from the ground up. A module may use modules of its own floor and of lower ones.
    floors: &'static [(&'static str, &'static [&'static str])],
    /// Modules with a field or a section for many others, so that these are in a cycle with them.
    shared: &'static [&'static str],
    /// Most modules in one cycle, without the shared ones. The aim is 3; lower this number when a cycle shrinks.
    largest_cycle: usize,
}

const CRATES: &[Crate] = &[
    Crate {
        name: "ground",
        floors: &[
            (
                "ground: no state of the daemon",
                &[
                    "agents",
                    "api_error",
                    "clock",
                    "intent",
                    "local_user",
                    "parts",
                    "polling",
                    "share",
                    "space",
                    "stored",
                    "text",
                    "waits",
                    "watch_status",
                ],
            ),
            (
                "the state of the daemon, and its parts that every feature uses",
                &[
                    "audit",
                    "bmc",
                    "bmc_state",
                    "config",
                    "core",
                    "deployment_keys",
                    "features",
                    "firmware_files",
                    "hall",
                    "invite",
                    "keys",
                    "login_provider",
                    "measured_boot",
                    "metrics",
                    "rights",
                    "site_uploads",
                    "start",
                    "telemetry",
                    "tls",
                    "uploads",
                    "user_data",
                ],
            ),
            ("composition of the state", &["open"]),
            ("for tests of this crate and of the crates above", &["testing"]),
        ],
        shared: &["config", "core"],
        largest_cycle: 0,
    },
    Crate {
        name: "nodes",
        floors: &[
            (
                "features of nodes: each with its state",
                &[
                    "agent_boot",
                    "agent_session",
                    "attestation",
                    "bmc_secret",
                    "bmc_work",
                    "boot",
                    "console",
                    "credentials",
                    "drives",
                    "effect_result",
                    "ethernet",
                    "firmware",
                    "firmware_settings",
                    "golden_firmware",
                    "perform",
                    "replicas",
                    "runner",
                    "start_rooms",
                ],
            ),
            ("for tests of this crate and of the crates above", &["testing"]),
        ],
        shared: &[],
        largest_cycle: 3,
    },
    Crate {
        name: "control",
        floors: &[
            (
                "features of many nodes: each with its state",
                &["clusters", "discovery", "facility", "watch_power"],
            ),
            ("for tests of this crate and of the crates above", &["testing"]),
        ],
        shared: &[],
        largest_cycle: 0,
    },
];

fn sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../crates/{name}/src"))
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = |meta: &syn::Meta| matches!(meta, syn::Meta::Path(path) if path.is_ident("test"));
        match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => {
                list.parse_args::<syn::Meta>().is_ok_and(|m| is_test(&m))
            }
            meta => is_test(meta),
        }
    })
}

/// The file name in `#[path]`, without its ending.
fn named_path(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    let syn::Expr::Lit(syn::ExprLit {
        lit: syn::Lit::Str(file),
        ..
    }) = &pair.value
    else {
        return None;
    };
    pair.path
        .is_ident("path")
        .then(|| file.value().trim_end_matches(".rs").to_owned())
}

/// The modules that one file uses by `crate::`, and the files of its test modules.
#[derive(Default)]
struct Uses {
    modules: BTreeSet<String>,
    /// Names of test modules in separate files.
    test_files: BTreeSet<String>,
    /// Test modules with a file name in `#[path]`.
    test_paths: BTreeSet<String>,
}

impl Uses {
    fn tree(&mut self, tree: &syn::UseTree, is_inside: bool) {
        match tree {
            syn::UseTree::Path(path) if path.ident == "crate" => self.tree(&path.tree, true),
            syn::UseTree::Path(path) if is_inside => drop(self.modules.insert(path.ident.to_string())),
            syn::UseTree::Name(name) if is_inside => drop(self.modules.insert(name.ident.to_string())),
            syn::UseTree::Rename(name) if is_inside => drop(self.modules.insert(name.ident.to_string())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, is_inside)),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&item.tree, false);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        } else if let Some(path) = item.attrs.iter().find_map(named_path) {
            self.test_paths.insert(path);
        } else if item.content.is_none() {
            self.test_files.insert(item.ident.to_string());
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|first| first.ident == "crate")
            && let Some(module) = segments.next()
        {
            self.modules.insert(module.ident.to_string());
        }
        visit::visit_path(self, path);
    }
}

/// The modules of a crate that each top-level module uses.
fn arrows(name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources(name);
    let (mut found, mut tests): (Vec<(PathBuf, Uses)>, BTreeSet<PathBuf>) = Default::default();
    let mut folders = vec![sources.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry of a folder").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file");
            let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut uses = Uses::default();
            uses.visit_file(&file);
            let is_root = ["mod", "lib", "main"]
                .iter()
                .any(|name| path.file_stem().is_some_and(|stem| stem == *name));
            let below = if is_root {
                folder.clone()
            } else {
                path.with_extension("")
            };
            tests.extend(uses.test_files.iter().map(|name| below.join(name)));
            tests.extend(uses.test_paths.iter().map(|name| folder.join(name)));
            found.push((path, uses));
        }
    }
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, uses) in found {
        if tests
            .iter()
            .any(|test| path.starts_with(test) || path.with_extension("") == *test)
        {
            continue;
        }
        let inside = path.strip_prefix(&sources).expect("a file of the crate");
        let top = inside
            .components()
            .next()
            .expect("a name")
            .as_os_str()
            .to_string_lossy();
        let top = top.trim_end_matches(".rs").to_owned();
        if top != "lib" && top != "main" {
            let others: Vec<String> = uses.modules.into_iter().filter(|module| *module != top).collect();
            arrows.entry(top).or_default().extend(others);
        }
    }
    arrows
}

impl Crate {
    fn floor_of(&self, module: &str) -> Option<usize> {
        self.floors.iter().position(|(_, modules)| modules.contains(&module))
    }
}

#[test]
fn no_module_of_the_daemon_uses_a_floor_above_its_own() {
    let mut up = Vec::new();
    for one in CRATES {
        let arrows = arrows(one.name);
        let listed: BTreeSet<&str> = one.floors.iter().flat_map(|(_, modules)| *modules).copied().collect();
        let there: BTreeSet<&str> = arrows.keys().map(String::as_str).collect();
        assert_eq!(there, listed, "modules of {} (left) and of CRATES (right)", one.name);
        for (module, others) in &arrows {
            for other in others {
                // Other names below `crate::` are not modules.
                if let (Some(from), Some(to)) = (one.floor_of(module), one.floor_of(other))
                    && to > from
                {
                    let (from, to) = (one.floors[from].0, one.floors[to].0);
                    up.push(format!("{}: {module} ({from}) uses {other} ({to})", one.name));
                }
            }
        }
    }
    assert!(up.is_empty(), "\n{}", up.join("\n"));
}

/// All modules that a module reaches.
fn reached<'a>(arrows: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for other in arrows.get(module).into_iter().flatten() {
            if arrows.contains_key(other) && seen.insert(other.as_str()) {
                open.push(other);
            }
        }
    }
    seen
}

/// Modules that reach each other, the largest cycle first.
fn cycles(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = arrows.keys().map(|m| (m.as_str(), reached(arrows, m))).collect();
    let mut found = BTreeSet::new();
    for (module, others) in &reach {
        let cycle: Vec<&str> = others
            .iter()
            .copied()
            .filter(|other| reach[other].contains(module))
            .collect();
        if cycle.len() > 1 {
            found.insert(cycle);
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    found
}

#[test]
fn cycles_of_modules_do_not_grow() {
    for one in CRATES {
        let mut arrows = arrows(one.name);
        for shared in one.shared {
            assert!(
                arrows.remove(*shared).is_some(),
                "{shared} is no module of {} any more: take it from its shared modules",
                one.name
            );
        }
        let cycles = cycles(&arrows);
        let largest = cycles.first().map_or(0, Vec::len);
        assert_eq!(
            largest, one.largest_cycle,
            "the largest cycle of {} (left), and the known one (right):\n{cycles:#?}",
            one.name
        );
    }
}

#[test]
fn arrows_and_cycles_are_found() {
    let mut uses = Uses::default();
    let file = syn::parse_file(
        "use crate::{a, b::c as d}; fn f() { crate::e::g(); } #[cfg(test)] mod tests { use crate::h; } #[cfg(test)] mod more;",
    );
    uses.visit_file(&file.expect("Rust"));
    assert_eq!(uses.modules.iter().collect::<Vec<_>>(), ["a", "b", "e"]);
    assert_eq!(uses.test_files.iter().collect::<Vec<_>>(), ["more"]);
    let arrow = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|t| (*t).to_owned()).collect());
    let made_up = BTreeMap::from([
        arrow("a", &["b"]),
        arrow("b", &["c", "d"]),
        arrow("c", &["a"]),
        arrow("d", &[]),
    ]);
    assert_eq!(cycles(&made_up), [["a", "b", "c"]]);
}
