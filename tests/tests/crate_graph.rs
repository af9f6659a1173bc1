//! The division into crates, as data: allowed uses between crates, and dependencies that are restricted.
//! `docs/crates.md` gives the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

/// Each crate, its layer and the crates of the workspace that its code may use.
const GRAPH: &[(&str, u8, &[&str])] = &[
    ("pattern", 0, &[]),
    ("yaml", 0, &[]),
    ("lifecycle", 0, &["pattern"]),
    ("api", 0, &[]),
    ("redfish-wire", 0, &[]),
    ("redfish-mockup", 0, &[]),
    ("redfish", 1, &["pattern", "redfish-wire"]),
    ("redfish-record", 1, &["redfish", "redfish-wire"]),
    ("ipmi", 1, &[]),
    ("tpm", 0, &[]),
    ("spdm", 0, &[]),
    ("site", 0, &["pattern", "yaml"]),
    ("infiniband", 0, &[]),
    ("placement", 0, &[]),
    ("planner", 1, &["health", "infiniband", "placement", "site"]),
    ("import", 1, &["infiniband", "pattern", "site"]),
    ("store", 1, &["lifecycle"]),
    ("store-tests", 1, &[]),
    ("ports", 0, &[]),
    ("fabric", 1, &["infiniband"]),
    ("gateway", 0, &[]),
    ("oidc", 0, &[]),
    ("web", 0, &[]),
    ("netboot", 1, &["api"]),
    ("agent", 1, &["api", "fanout", "identity", "image", "peers", "tpm"]),
    ("cli-context", 1, &["api", "yaml"]),
    (
        "cli-site",
        1,
        &["api", "cli-context", "import", "infiniband", "planner", "site"],
    ),
    (
        "cli",
        2,
        &[
            "api",
            "cli-context",
            "cli-site",
            "redfish",
            "redfish-record",
            "ipmi",
            "site",
            "placement",
            "planner",
            "import",
            "yaml",
        ],
    ),
    (
        "bench",
        2,
        &[
            "agent",
            "api",
            "cli-context",
            "fanout",
            "free-port",
            "identity",
            "image",
            "peers",
        ],
    ),
    ("probe", 1, &["health"]),
    ("traffic", 0, &[]),
    ("free-port", 0, &[]),
    ("health", 0, &["pattern"]),
    ("fanout", 0, &[]),
    ("image", 1, &[]),
    ("identity", 1, &[]),
    ("peers", 1, &["fanout", "identity", "image"]),
    ("validate", 1, &["api", "health", "pattern", "yaml"]),
    ("serial", 1, &[]),
    (
        "ground",
        2,
        &[
            "api",
            "fabric",
            "identity",
            "image",
            "infiniband",
            "ipmi",
            "lifecycle",
            "netboot",
            "oidc",
            "pattern",
            "placement",
            "planner",
            "ports",
            "redfish",
            "serial",
            "site",
            "store",
            "tpm",
            "validate",
            "yaml",
        ],
    ),
    (
        "spread",
        2,
        &["api", "fanout", "ground", "image", "lifecycle", "peers", "store"],
    ),
    (
        "nodes",
        2,
        &[
            "api",
            "ground",
            "identity",
            "ipmi",
            "lifecycle",
            "netboot",
            "pattern",
            "ports",
            "redfish",
            "serial",
            "site",
            "spdm",
            "spread",
            "store",
            "tpm",
            "validate",
        ],
    ),
    (
        "control",
        2,
        &[
            "api",
            "fabric",
            "ground",
            "import",
            "infiniband",
            "lifecycle",
            "nodes",
            "placement",
            "planner",
            "redfish",
            "site",
            "store",
            "validate",
        ],
    ),
    (
        "grpc",
        3,
        &[
            "control",
            "gateway",
            "ground",
            "nodes",
            "spread",
            "lifecycle",
            "api",
            "redfish",
            "ipmi",
            "store",
            "netboot",
            "identity",
            "oidc",
            "serial",
            "site",
            "placement",
            "planner",
            "import",
            "web",
        ],
    ),
    (
        "daemon",
        4,
        &[
            "control",
            "ground",
            "nodes",
            "grpc",
            "lifecycle",
            "api",
            "store",
            "image",
            "identity",
        ],
    ),
    ("sim-bmc", 1, &[]),
    ("sim", 2, &["api", "agent", "tpm", "sim-bmc", "redfish-mockup", "yaml"]),
    ("lab", 2, &["sim-bmc"]),
    (
        "fuzz",
        1,
        &[
            "agent",
            "redfish",
            "redfish-record",
            "redfish-wire",
            "netboot",
            "image",
            "identity",
            "ports",
            "site",
            "infiniband",
            "planner",
            "import",
            "tpm",
            "spdm",
            "api",
            "gateway",
        ],
    ),
];

/// The workspace member that may use every crate.
const TESTS: &str = "tests";

/// External dependencies that are restricted to a few crates, with the reason. Tests of other crates may use them.
const RESTRICTED: &[(&str, &[&str], &str)] = &[
    (
        "sqlx",
        &["store"],
        "SQL is in one place, and both databases run one suite",
    ),
    (
        "rusqlite",
        &["store"],
        "SQL is in one place, and both databases run one suite",
    ),
    (
        "reqwest",
        &["fabric", "cli-site", "oidc"],
        "the HTTP clients for UFM, for NetBox and for the login provider are bounded in one place each",
    ),
    (
        "openidconnect",
        &["oidc"],
        "which tokens of a login provider are valid is decided in one place",
    ),
    (
        "chrono",
        &["oidc"],
        "time is jiff where it is shown; only the library for logins asks for another form",
    ),
    (
        "openssl",
        &["redfish-wire"],
        "TLS is rustls but towards old BMCs, and there only in builds that ask for it",
    ),
    (
        "tokio-openssl",
        &["redfish-wire"],
        "TLS is rustls but towards old BMCs, and there only in builds that ask for it",
    ),
    (
        "russh",
        &["validate", "serial", "ports", "sim", "sim-bmc"],
        "SSH into installed systems, into switches and for consoles are in one place each, and simulated machines, switches and BMCs answer by russh's server half",
    ),
    ("dhcproto", &["netboot"], "packet codecs stay beside the sockets"),
    (
        "clap",
        &["cli", "cli-context", "cli-site", "bench", "daemon", "sim", "lab"],
        "command lines belong to programs",
    ),
    (
        "rcgen",
        &["identity", "agent", "bench", "cli-context", "sim", "sim-bmc"],
        "certificates are made by the CA, requested by its clients, and faked for BMCs and benchmarks",
    ),
    (
        "ring",
        &[
            "identity",
            "agent",
            "cli",
            "cli-context",
            "bench",
            "image",
            "netboot",
            "ports",
            "redfish-wire",
            "ground",
            "nodes",
            "control",
            "sim",
            "sim-bmc",
            "lab",
            "tpm",
            "spdm",
        ],
        "cryptography is for identity, digests, tokens and TLS",
    ),
    ("io-uring", &["image", "agent"], "direct I/O is for block devices"),
    ("zstd", &["image"], "compression is the image format's"),
    ("liblzma", &["image"], "compression is the image format's"),
    (
        "flate2",
        &["gateway", "image", "web"],
        "compression is the image format's, of the web console's files, and of requests by foreign clients",
    ),
    (
        "minisign-verify",
        &["image"],
        "image signatures are judged in one place",
    ),
    (
        "ureq",
        &["agent", "image"],
        "the blocking client is for the ramdisk's downloads",
    ),
    (
        "granit-parser",
        &["yaml"],
        "YAML is read in one place, with its limits and without anchors and tags",
    ),
    (
        "serde-saphyr",
        &["yaml", "cli-context"],
        "YAML is read in one place, and only the output of commands is written by another crate",
    ),
    ("dirs", &[], "configuration paths are given, not guessed"),
];

/// Crates of pure decisions: no waiting, no clocks, no randomness and no communication, not even in indirect dependencies.
const PURE: &[&str] = &["lifecycle", "site", "fanout"];
const IMPURE: &[&str] = &[
    "tokio",
    "sqlx",
    "rusqlite",
    "tonic",
    "hyper",
    "rand",
    "rand_core",
    "getrandom",
    "fastrand",
    "libc",
    "nix",
    "socket2",
    "mio",
    "time",
    "chrono",
    "jiff",
    "reqwest",
    "ureq",
    "tracing",
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
        .other_options([
            "--locked".to_owned(),
            "--filter-platform=x86_64-unknown-linux-gnu".to_owned(),
        ])
        .exec()
        .expect("cargo metadata")
}

/// `control` for `rackwright-control`; none for an external package.
fn short(name: &str) -> Option<&str> {
    name.strip_prefix("rackwright-")
}

fn row(name: &str) -> Option<&'static (&'static str, u8, &'static [&'static str])> {
    GRAPH.iter().find(|(crate_name, _, _)| *crate_name == name)
}

/// The rules of the graph that these crates and their direct dependencies break.
fn broken_rules(packages: &[(String, Vec<(String, DependencyKind)>)]) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, dependencies) in packages {
        if name == TESTS {
            continue;
        }
        let Some((_, layer, may_use)) = row(name) else {
            broken.push(format!(
                "crate {name} has no row in GRAPH: decide its layer and what it may use"
            ));
            continue;
        };
        for (dependency, kind) in dependencies {
            let own = short(dependency);
            if let Some(other) = own {
                let below = row(other).is_some_and(|(_, level, _)| level <= layer);
                let allowed = if *kind == DependencyKind::Development {
                    below
                } else {
                    may_use.contains(&other)
                };
                if !allowed {
                    broken.push(format!("{name} may not use {other} ({kind:?})"));
                }
            }
            if *kind == DependencyKind::Development {
                continue;
            }
            for (restricted, by, why) in RESTRICTED {
                if restricted == dependency && !by.contains(&name.as_str()) {
                    broken.push(format!("{name} may not use {restricted}: {why}"));
                }
            }
        }
    }
    broken
}

fn direct(metadata: &Metadata) -> Vec<(String, Vec<(String, DependencyKind)>)> {
    metadata
        .workspace_packages()
        .iter()
        .map(|package| {
            let name = short(&package.name).unwrap_or(&package.name).to_owned();
            (
                name,
                package.dependencies.iter().map(|d| (d.name.clone(), d.kind)).collect(),
            )
        })
        .collect()
}

#[test]
fn the_crates_keep_to_the_graph() {
    let packages = direct(&metadata());
    assert_eq!(broken_rules(&packages), Vec::<String>::new());

    let members: BTreeSet<&str> = packages.iter().map(|(name, _)| name.as_str()).collect();
    let listed: BTreeSet<&str> = GRAPH.iter().map(|(name, _, _)| *name).chain([TESTS]).collect();
    assert_eq!(
        members, listed,
        "workspace members (left) and the rows of GRAPH (right)"
    );
}

/// russh contains both sides of SSH, and the graph cannot distinguish them.
#[test]
fn the_simulator_is_an_ssh_server_and_no_client() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for name in ["sim", "sim-bmc"] {
        let answers = ssh_servers(&crates.join(name).join("src"));
        assert!(
            answers > 0,
            "{name} has no SSH server any more: take it from russh's row of RESTRICTED"
        );
    }
}

/// Counts the uses of russh's server half below a folder, and accepts no use of the client half.
fn ssh_servers(sources: &Path) -> usize {
    let (mut folders, mut answers) = (vec![sources.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry of a folder").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source file");
            let named: Vec<&str> = text.split("russh::").skip(1).collect();
            answers += named.iter().filter(|name| name.starts_with("server::")).count();
            let is_client = |name: &&str| name.split(';').next().is_some_and(|used| used.contains("client"));
            assert!(!named.iter().any(is_client), "{} uses russh's client", path.display());
        }
    }
    answers
}

#[test]
fn the_graph_has_no_arrow_up() {
    for (name, layer, may_use) in GRAPH {
        for other in *may_use {
            let (_, level, _) = row(other).unwrap_or_else(|| panic!("{name} names {other}, which has no row"));
            assert!(level <= layer, "{name} of layer {layer} uses {other} of layer {level}");
        }
    }
}

#[test]
fn a_broken_rule_is_found() {
    let made_up = |name: &str, dependency: &str, kind| vec![(name.to_owned(), vec![(dependency.to_owned(), kind)])];
    let found = |packages: &[(String, Vec<(String, DependencyKind)>)]| !broken_rules(packages).is_empty();
    assert!(found(&made_up("store", "rackwright-control", DependencyKind::Normal)));
    assert!(found(&made_up(
        "store",
        "rackwright-control",
        DependencyKind::Development
    )));
    assert!(found(&made_up("control", "rackwright-agent", DependencyKind::Normal)));
    assert!(found(&made_up("control", "sqlx", DependencyKind::Normal)));
    assert!(found(&made_up("api", "reqwest", DependencyKind::Build)));
    assert!(found(&made_up("newcomer", "serde", DependencyKind::Normal)));
    assert!(!found(&made_up("sim", "reqwest", DependencyKind::Development)));
}

#[test]
fn the_pure_crates_depend_on_no_crate_with_effects() {
    let metadata = metadata();
    let resolve = metadata.resolve.as_ref().expect("cargo metadata resolves");
    let edges: BTreeMap<&PackageId, Vec<&PackageId>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let normal = node
                .deps
                .iter()
                .filter(|d| d.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal));
            (&node.id, normal.map(|d| &d.pkg).collect())
        })
        .collect();
    for pure in PURE {
        let package = metadata
            .workspace_packages()
            .into_iter()
            .find(|p| short(&p.name) == Some(pure))
            .expect("a pure crate is a member");
        let mut reached = BTreeSet::from([&package.id]);
        let mut open = vec![&package.id];
        while let Some(id) = open.pop() {
            open.extend(edges[id].iter().copied().filter(|next| reached.insert(next)));
        }
        let names: BTreeSet<&str> = metadata
            .packages
            .iter()
            .filter(|p| reached.contains(&p.id))
            .map(|p| p.name.as_str())
            .collect();
        let impure: Vec<&&str> = IMPURE.iter().filter(|name| names.contains(**name)).collect();
        assert!(impure.is_empty(), "{pure} reaches {impure:?}");
    }
}

#[test]
fn every_crate_denies_the_disallowed_methods() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).expect("Cargo.toml");
    assert!(workspace.lines().any(|line| line == "disallowed_methods = \"deny\""));
    for package in metadata().workspace_packages() {
        let manifest = std::fs::read_to_string(&package.manifest_path).expect("a manifest");
        assert!(
            manifest.contains("[lints]\nworkspace = true\n"),
            "{} lacks the lints of the workspace",
            package.manifest_path
        );
    }
}

/// Clippy reads only one file: the file of the daemon's crates repeats the list of all crates, and adds to it.
#[test]
fn the_daemons_disallowed_methods_are_those_of_all_crates_and_more() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = |file: &str| -> BTreeSet<String> {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.trim().to_owned())
            .collect()
    };
    let (all, daemon) = (listed("clippy.toml"), listed("crates/control/clippy.toml"));
    assert!(
        all.iter().filter(|line| line.starts_with("{ path")).count() > 5,
        "{all:?}"
    );
    let missing: Vec<_> = all.difference(&daemon).collect();
    assert!(
        missing.is_empty(),
        "missing in crates/control/clippy.toml: {missing:#?}"
    );
    for other in ["ground", "nodes", "grpc", "daemon", "spread"].map(|name| format!("crates/{name}/clippy.toml")) {
        assert_eq!(listed(&other), daemon, "{other} and crates/control/clippy.toml");
    }
}
