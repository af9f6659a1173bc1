//! The floors inside the crates of the daemon, as data: which module may use which. `docs/architecture.md` gives the
//! reasons.
//!
//! The test reads the sources. Code under `#[cfg(test)]` may use anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

#[path = "floors/files.rs"]
mod files;
#[path = "floors/reasons.rs"]
mod reasons;

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
        name: "grpc",
        floors: &[
            (
                "connections, callers and their rights",
                &[
                    "access",
                    "audited",
                    "caller",
                    "connection",
                    "grants",
                    "http1",
                    "paused",
                    "traced",
                ],
            ),
            (
                "translation between messages and records",
                &[
                    "convert",
                    "customer_view",
                    "enrolment",
                    "erase_chain",
                    "explain",
                    "fabric",
                    "fleet",
                    "health",
                    "names",
                    "site_files",
                    "topology",
                ],
            ),
            (
                "steps that several services share",
                &["call", "doubts", "watch", "windows"],
            ),
            (
                "services",
                &[
                    "agents",
                    "audit",
                    "auth",
                    "bmc",
                    "boot",
                    "clusters",
                    "console",
                    "control",
                    "credentials",
                    "device_login",
                    "discovery",
                    "events",
                    "firmware",
                    "images",
                    "members",
                    "metering",
                    "nodes",
                    "operations",
                    "power",
                    "sessions",
                    "settings",
                    "sites",
                    "web",
                ],
            ),
        ],
        shared: &[],
        largest_cycle: 2,
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

/// The items that one file uses, and the files of its test modules.
#[derive(Default)]
struct Uses {
    /// The module that is visited: its path below the crate.
    module: Vec<String>,
    /// Used items: their paths below the crate. A path that begins with another crate is noted as if it began with a module
    /// below the visited one; there is no such module.
    paths: BTreeSet<Vec<String>>,
    /// Names of test modules in separate files.
    test_files: BTreeSet<String>,
    /// Test modules with a file name in `#[path]`.
    test_paths: BTreeSet<String>,
}

impl Uses {
    fn of(module: Vec<String>, file: &syn::File) -> Self {
        let mut uses = Self {
            module,
            ..Self::default()
        };
        uses.visit_file(file);
        uses
    }

    fn note(&mut self, written: &[String]) {
        let mut written = written.iter().map(String::as_str).peekable();
        let mut path = self.module.clone();
        if written.next_if_eq(&"crate").is_some() {
            path.clear();
        }
        while let Some(step) = written.next_if(|step| ["self", "super"].contains(step)) {
            if step == "super" {
                path.pop();
            }
        }
        path.extend(written.map(str::to_owned));
        self.paths.insert(path);
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&path.tree, &with(&path.ident)),
            syn::UseTree::Name(name) if name.ident == "self" => self.note(before),
            syn::UseTree::Name(name) => self.note(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.note(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.note(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, before)),
        }
    }

    /// The top modules of the crate that the file uses.
    fn modules(&self) -> BTreeSet<&str> {
        self.paths
            .iter()
            .filter_map(|path| path.first())
            .map(String::as_str)
            .collect()
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&item.tree, &[]);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
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
        let written: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if written.len() > 1 {
            self.note(&written);
        }
        visit::visit_path(self, path);
    }
}

/// A file of a crate that is no test.
struct Product {
    path: PathBuf,
    syntax: syn::File,
    uses: Uses,
}

/// The files of a crate without those of its tests, and without its programs in `bin`.
fn product(name: &str) -> Vec<Product> {
    let sources = sources(name);
    let (mut found, mut tests): (Vec<Product>, BTreeSet<PathBuf>) = Default::default();
    let mut folders = vec![sources.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry of a folder").path();
            if path.is_dir() {
                folders.extend(Some(path).filter(|path| *path != sources.join("bin")));
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file");
            let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let is_root = ["mod", "lib", "main"]
                .iter()
                .any(|name| path.file_stem().is_some_and(|stem| stem == *name));
            let below = if is_root {
                folder.clone()
            } else {
                path.with_extension("")
            };
            let module = below.strip_prefix(&sources).expect("a file of the crate").iter();
            let module = module.map(|part| part.to_string_lossy().into_owned()).collect();
            let uses = Uses::of(module, &syntax);
            tests.extend(uses.test_files.iter().map(|name| below.join(name)));
            tests.extend(uses.test_paths.iter().map(|name| folder.join(name)));
            found.push(Product { path, syntax, uses });
        }
    }
    found.retain(|one| {
        let is_of = |test: &PathBuf| one.path.starts_with(test) || one.path.with_extension("") == *test;
        !tests.iter().any(is_of)
    });
    found
}

/// The modules of a crate that each top module uses.
fn arrows(name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Product { uses, .. } in product(name) {
        if let Some(top) = uses.module.first() {
            let others = uses.modules().into_iter().filter(|module| module != top);
            let others: Vec<String> = others.map(str::to_owned).collect();
            arrows.entry(top.clone()).or_default().extend(others);
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
    let file = syn::parse_file(
        "use crate::{a, b::c as d}; use super::i::*; fn f() { crate::e::g(); } mod j { use super::k; } \
         #[cfg(test)] mod tests { use crate::h; } #[cfg(test)] mod more;",
    );
    let uses = Uses::of(vec!["own".to_owned()], &file.expect("Rust"));
    assert_eq!(uses.modules(), BTreeSet::from(["a", "b", "e", "i", "own"]));
    assert!(uses.paths.contains(&["own".to_owned(), "k".to_owned()][..]));
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
