//! Hand-over packs for arbitrary clusters and names: lists expand to their names, trees have every node once, YAML has
//! the intended values, and labels are valid for Kubernetes.

#![allow(clippy::unwrap_used)]

mod handover_common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use handover_common::{SMALL, Topology, Yaml, cluster, expand, files, generated, ledger, members, site, yaml};
use proptest::prelude::*;
use rackwright_planner::handover::{Format, ReportRow, Verdict, hostlist, pack};
use rackwright_site::model::{NodeId, Site};

static HALL: LazyLock<Site> = LazyLock::new(|| generated(600));
static LAB: LazyLock<Site> = LazyLock::new(|| site(SMALL));

fn name() -> impl Strategy<Value = String> {
    let prefix = prop::sample::select(vec!["gpu-", "gpu", "n", "r1-n", "r10-n", "a.b-", "x0y", ""]);
    let number = prop_oneof![0u64..30, 90u64..130, 990u64..1010, 999_999_990u64..1_000_000_010];
    (prefix, prop::option::of(number), 0usize..12).prop_map(|(prefix, number, width)| match number {
        Some(number) => format!("{prefix}{number:0width$}"),
        None => format!("{prefix}z"),
    })
}

/// Kubernetes' label syntax, implemented again from its documentation: `prefix/name`, 253 and 63 characters.
fn is_label(key: &str, value: &str) -> bool {
    let word = |text: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= 63
            && ends(text.chars().next())
            && ends(text.chars().last())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let (prefix, name) = key.split_once('/').unwrap();
    let domain = prefix.len() <= 253 && prefix.split('.').all(|part| word(part) && !part.contains('_'));
    domain && word(name) && (value.is_empty() || word(value))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_list_says_what_it_stands_for(names in prop::collection::vec(name(), 0..60)) {
        let short = hostlist::compress(names.iter().map(String::as_str));
        let mut said = expand(&short);
        said.sort();
        let wanted: BTreeSet<String> = names.into_iter().collect();
        prop_assert_eq!(said, wanted.into_iter().collect::<Vec<String>>(), "{}", short);
    }

    #[test]
    fn a_run_of_numbers_is_one_range(first in 0u32..2000, count in 2u32..300, width in 1usize..6) {
        let names: Vec<String> = (first..first + count).map(|number| format!("gpu-{number:0width$}")).collect();
        let short = hostlist::compress(names.iter().map(String::as_str));
        let range = format!("gpu-[{first:0width$}-{:0width$}]", first + count - 1);
        prop_assert_eq!(short, range);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everybody_is_in_every_file_once(chosen in prop::collection::btree_set(0u32..600, 1..80), spares in 0usize..5) {
        let nodes: Vec<NodeId> = chosen.iter().copied().map(NodeId).collect();
        let ledger = ledger(&HALL, &nodes);
        let mut all = members(&HALL, &nodes);
        let used = all.len().saturating_sub(spares).max(1);
        all[used..].iter_mut().for_each(|member| member.spare = true);
        let hosts: Vec<String> = all.iter().map(|member| member.hostname.clone()).collect();
        let files = files(&cluster(&HALL, &ledger, all));
        let topology = Topology::of_conf(&files["slurm/topology.conf"]);
        prop_assert_eq!(topology.check(&hosts), 1);
        prop_assert_eq!(&topology, &Topology::of_yaml(&files["slurm/topology.yaml"]));
        for (unit, below) in &topology.nodes {
            let of: BTreeSet<&str> = below.iter().map(|host| unit_of(host)).collect();
            prop_assert_eq!(of.len(), 1, "{} holds {:?}", unit, of);
        }
        let labels = yaml(&files["kubernetes/nodes.yaml"]);
        prop_assert_eq!(labels.len(), hosts.len());
        for node in &labels {
            for (key, value) in node.get("metadata").get("labels").map() {
                prop_assert!(is_label(key, value.text()), "{key}: {value:?}");
            }
        }
        let inventory = &yaml(&files["ansible/inventory.yaml"])[0];
        prop_assert_eq!(inventory.get("all").get("hosts").map().len(), hosts.len());
        let children = inventory.get("all").get("children");
        prop_assert_eq!(children.get("cluster_alpha").get("hosts").map().len(), hosts.len());
        let count = |kind: &str| -> usize {
            let groups = children.map().iter().filter(|(group, _)| group.starts_with(kind));
            groups.map(|(_, group)| group.get("hosts").map().len()).sum()
        };
        prop_assert_eq!((count("rack_"), count("unit_"), count("leaf_")), (hosts.len(), hosts.len(), 8 * hosts.len()));
        prop_assert_eq!(count("nodes_in_use"), used);
    }

    /// For any host name and report text, a pack that is written contains the text, and no file is broken.
    #[test]
    fn hostile_texts_stay_texts(host in "\\PC{0,12}|[a-zA-Z0-9_.,=\\[\\]:#\n -]{1,12}", text in "\\PC{0,20}|[|\n<&`-]{0,9}") {
        let nodes = [NodeId(0), NodeId(1)];
        let ledger = ledger(&LAB, &nodes);
        let mut one = cluster(&LAB, &ledger, members(&LAB, &nodes));
        one.members[0].hostname.clone_from(&host);
        one.report.push(ReportRow {
            subject: text.clone(),
            check: text.clone(),
            verdict: Verdict::Passed,
            measured: text.clone(),
            wanted: text.clone(),
        });
        if pack(&one, &[Format::Slurm]).is_ok() {
            let files = pack(&one, &[Format::Slurm]).unwrap();
            let conf = files.iter().find(|file| file.name == "slurm/topology.conf").unwrap();
            prop_assert_eq!(Topology::of_conf(&conf.text).check(&[host.clone(), "n2".to_owned()]), 1);
            let nodes = files.iter().find(|file| file.name == "slurm/nodes.conf").unwrap();
            prop_assert!(nodes.text.lines().all(|line| line.starts_with(['#', 'N', 'P'])));
        }
        if let Ok(files) = pack(&one, &[Format::Kubernetes, Format::Ansible]) {
            for file in files.iter().filter(|file| file.name.ends_with(".yaml")) {
                yaml(&file.text);
            }
            let inventory = files.iter().find(|file| file.name.starts_with("ansible")).unwrap();
            let tree: &Yaml = &yaml(&inventory.text)[0];
            prop_assert!(tree.get("all").get("hosts").find(&host).is_some());
        }
        let sheets = pack(&one, &[Format::Report, Format::Power, Format::Partition]).unwrap();
        let report = sheets.iter().find(|file| file.name == "validation.md").unwrap();
        let rows: Vec<&str> = report.text.lines().filter(|line| line.starts_with('|')).collect();
        prop_assert_eq!(rows.len(), 3);
        prop_assert_eq!(rows[2].replace("\\|", "").matches('|').count(), 6);
        prop_assert!(!rows[2].contains('<'));
    }
}

/// The unit of a generated node, by number: 32 nodes per unit.
fn unit_of(host: &str) -> &str {
    static NAMES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        let nodes = HALL.nodes.iter().enumerate();
        nodes
            .map(|(at, node)| (node.name.to_string(), format!("{}", at / 32)))
            .collect()
    });
    &NAMES[host]
}
