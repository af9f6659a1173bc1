//! Hand-over packs: their content, compared with manually reviewed packs, and refusals.

#![allow(clippy::unwrap_used)]

mod handover_common;

use std::collections::BTreeMap;
use std::path::Path;

use handover_common::{SMALL, Topology, cluster, faults, files, generated, ledger, members, partition, site, yaml};
use rackwright_planner::handover::{Cluster, Format, Processors, ReportRow, Verdict, pack};
use rackwright_site::model::{NodeId, Site, SkuId};
use rackwright_site::power::Ledger;

fn row(check: &str, verdict: Verdict, measured: &str) -> ReportRow {
    ReportRow {
        subject: "n1".to_owned(),
        check: check.to_owned(),
        verdict,
        measured: measured.to_owned(),
        wanted: "at least 48 GB/s".to_owned(),
    }
}

/// A cluster with content for every file: n4 is a spare, n1 has an address.
fn whole<'a>(site: &'a Site, ledger: &'a Ledger) -> Cluster<'a> {
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let mut members = members(site, &nodes);
    members[0].address = Some("10.20.0.1".parse().unwrap());
    members[3].spare = true;
    let partition = partition(site, &members);
    let known = Processors {
        sockets: 2,
        cores_per_socket: 56,
        threads_per_core: 2,
    };
    Cluster {
        processors: BTreeMap::from([(SkuId(0), known)]),
        partition: Some(partition),
        report: vec![
            row("host to device", Verdict::Passed, "52.1 GB/s"),
            row("host to device | <b>", Verdict::Failed, "3 GB/s"),
            row("burn-in", Verdict::Skipped, ""),
        ],
        ..cluster(site, ledger, members)
    }
}

fn files_below(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { files_below(&path) } else { 1 })
        .sum()
}

/// Every file equals its last reviewed version. `UPDATE_GOLDEN=1` writes the files.
#[test]
fn a_small_pack_is_as_it_was_read() {
    let site = site(SMALL);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes);
    let files = files(&whole(&site, &ledger));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/handover_golden");
    for (name, text) in &files {
        let path = folder.join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(*text, golden, "{name} is not as in {}", path.display());
    }
    assert_eq!(files_below(&folder), files.len(), "no other file is there");
    let comments = files["nccl/nccl.conf"].lines().filter(|line| line.starts_with('#'));
    assert!(comments.clone().count() > 3 && !comments.clone().any(|line| line.contains('=')));
}

#[test]
fn every_file_is_described() {
    let docs = include_str!("../../../docs/handover.md");
    let site = site(SMALL);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes);
    for (name, text) in files(&whole(&site, &ledger)) {
        assert!(docs.contains(&format!("`{name}`")), "{name} is not described");
        assert!(text.ends_with('\n') && !text.contains('\r'), "{name}");
    }
}

#[test]
fn the_order_of_members_and_rows_changes_nothing() {
    let site = site(SMALL);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes);
    let one = whole(&site, &ledger);
    let mut other = one.clone();
    other.members.reverse();
    other.report.reverse();
    other.partition.as_mut().unwrap().ports.reverse();
    let formats: Vec<Format> = Format::ALL.into_iter().rev().collect();
    assert_eq!(pack(&one, &Format::ALL), pack(&other, &formats));
}

#[test]
fn slurm_is_told_of_ipv6() {
    let site = site(SMALL);
    let ledger = ledger(&site, &[NodeId(0)]);
    let mut one = cluster(&site, &ledger, members(&site, &[NodeId(0)]));
    assert!(!files(&one)["slurm/nodes.conf"].contains("EnableIPv6"));
    one.members[0].address = Some("fd00::1".parse().unwrap());
    let files = files(&one);
    assert!(
        files["slurm/nodes.conf"].contains("EnableIPv6") && files["slurm/nodes.conf"].contains(" NodeAddr=fd00::1 ")
    );
    let inventory = yaml(&files["ansible/inventory.yaml"]);
    let host = inventory[0].get("all").get("hosts").get("n1");
    assert_eq!(host.get("ansible_host").text(), "fd00::1");
}

#[test]
fn only_what_is_asked_for_is_written() {
    let site = site(SMALL);
    let ledger = ledger(&site, &[NodeId(0)]);
    let one = cluster(&site, &ledger, members(&site, &[NodeId(0)]));
    let names = |formats: &[Format]| -> Vec<String> {
        let files = pack(&one, formats).unwrap();
        files.into_iter().map(|file| file.name).collect()
    };
    assert_eq!(names(&[]), ["README.md"]);
    assert_eq!(names(&[Format::Power]), ["README.md", "power.md"]);
    assert_eq!(names(&[Format::Nccl]), ["README.md", "nccl/nccl.conf", "nccl/hostfile"]);
}

/// The counts match NVIDIA's reference: 32 nodes per unit, four units per pod of 64-port switches with eight rails.
#[test]
fn topologies_of_generated_sites_are_the_fabric() {
    for (nodes, switches, pods) in [(32, 1, 0), (128, 5, 0), (2048, 81, 16)] {
        let site = generated(nodes);
        let all: Vec<NodeId> = site.node_ids().collect();
        let ledger = ledger(&site, &all);
        let files = files(&cluster(&site, &ledger, members(&site, &all)));
        let topology = Topology::of_conf(&files["slurm/topology.conf"]);
        assert_eq!(topology, Topology::of_yaml(&files["slurm/topology.yaml"]));
        let hosts: Vec<String> = site.nodes.iter().map(|node| node.name.to_string()).collect();
        assert_eq!(topology.check(&hosts), 1, "one root");
        assert_eq!(topology.nodes.len() + topology.switches.len(), switches, "{nodes}");
        assert!(topology.nodes.values().all(|hosts| hosts.len() == 32));
        let named = topology.switches.keys().filter(|name| name.starts_with("pod"));
        assert_eq!(named.count(), pods);
        assert!(files["nccl/nccl.conf"].contains("\nNCCL_CROSS_NIC=0\n"));
        assert_eq!(yaml(&files["kubernetes/nodes.yaml"]).len(), nodes);
    }
}

/// Names come from the whole site: a unit has the same name in the packs of all clusters.
#[test]
fn a_part_of_a_site_has_the_names_of_the_whole() {
    let site = generated(512);
    let some: Vec<NodeId> = (96..160).map(NodeId).collect();
    let ledger = ledger(&site, &some);
    let files = files(&cluster(&site, &ledger, members(&site, &some)));
    let conf = &files["slurm/topology.conf"];
    let lines: Vec<&str> = conf.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "SwitchName=su04 Nodes=gpu-[097-128]",
            "SwitchName=su05 Nodes=gpu-[129-160]",
            "SwitchName=pod01 Switches=su04",
            "SwitchName=pod02 Switches=su05",
            "SwitchName=core Switches=pod[01-02]",
        ]
    );
}

/// Without unit and pod numbers in the site file, the wiring gives the same result.
#[test]
fn units_are_found_without_their_numbers() {
    let bare = |text: &str| -> String {
        let fields = ["scalable_unit", "pod"].map(|field| format!("  {field}:"));
        let lines = text
            .lines()
            .filter(|line| !fields.iter().any(|field| line.starts_with(field)));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let request = rackwright_site::generate::Request::new(rackwright_site::generate::ReferenceSku::DgxH100, 512);
    let text = rackwright_site::generate::site_file(&request).unwrap() + "---\ncustomers:\n- {name: acme}\n";
    let of = |text: &str| {
        let site = site(text);
        let all: Vec<NodeId> = site.node_ids().collect();
        let ledger = ledger(&site, &all);
        Topology::of_conf(&files(&cluster(&site, &ledger, members(&site, &all)))["slurm/topology.conf"])
    };
    let (given, found) = (of(&text), of(&bare(&text)));
    assert!(given.nodes.contains_key("su01") && found.nodes.contains_key("unit01"));
    let groups = |topology: &Topology| topology.nodes.values().cloned().collect::<Vec<_>>();
    assert_eq!(groups(&given), groups(&found));
    let counts = |topology: &Topology| topology.switches.values().map(Vec::len).collect::<Vec<_>>();
    let (mut given, mut found) = (counts(&given), counts(&found));
    given.sort_unstable();
    found.sort_unstable();
    assert_eq!(given, found);
}

#[test]
fn what_is_no_cluster_is_refused_with_all_its_faults() {
    let site = site(SMALL);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes[..3]);
    let mut one = cluster(&site, &ledger, members(&site, &nodes[..3]));
    one.members[1] = one.members[0].clone();
    one.members[2].hostname = "N1".to_owned();
    one.name = "a\nb";
    let found = faults(&one, &Format::ALL);
    assert_eq!(
        found,
        [
            "name of the cluster: 1 to 253 characters without control characters are required",
            "node n1: it is listed twice",
            "node n3: another node has the same host name, `N1`",
        ]
    );
    let one = cluster(&site, &ledger, members(&site, &nodes));
    assert_eq!(faults(&one, &[]), ["node n4: no power is reserved for it"]);
    let mut spares = cluster(&site, &ledger, members(&site, &nodes[..2]));
    spares.members.iter_mut().for_each(|member| member.spare = true);
    assert_eq!(faults(&spares, &[]), ["cluster: it has no node in use"]);
    spares.members[0].node = NodeId(99);
    spares.members[1].spare = false;
    assert_eq!(faults(&spares, &[]), ["node 99: the site has no such node"]);
}

#[test]
fn names_that_a_format_cannot_say_are_refused_by_that_format() {
    let site = site(&SMALL.replace("{name: lab}", "{name: 'la:b'}"));
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes);
    let mut one = cluster(&site, &ledger, members(&site, &nodes));
    one.members[1].hostname = "n_2".to_owned();
    one.members[2].hostname = "evil,n9\nPartitionName=x".to_owned();
    let found = |format| faults(&one, &[format]);
    let slurm = found(Format::Slurm);
    assert_eq!(slurm.len(), 1, "{slurm:?}");
    assert!(
        slurm[0].starts_with("Slurm: node n3: host name `evil,n9\\nPartitionName=x`: "),
        "{slurm:?}"
    );
    let kubernetes = found(Format::Kubernetes).join("\n");
    for part in [
        "Kubernetes: node n2: host name `n_2`: ",
        "Kubernetes: node n3: host name `evil,n9\\nPartitionName=x`: ",
        "Kubernetes: node n1: label topology.kubernetes.io/region, `la:b`: ",
    ] {
        assert!(kubernetes.contains(part), "{kubernetes}");
    }
    assert_eq!(found(Format::Ansible).len(), 1);
    assert_eq!(found(Format::Nccl).len(), 1);
    for format in [Format::Partition, Format::Power, Format::Report] {
        assert_eq!(found(format), [""; 0], "{format:?} can say it");
    }
}

#[test]
fn groups_that_ansible_cannot_tell_apart_are_refused() {
    let text = SMALL
        .replace("name: r1,", "name: rx.1,")
        .replace("name: r2,", "name: rx_1,");
    let text = text.replace("rack: r2", "rack: rx_1").replace("r[1-2]", "r[x.,x_]1");
    let site = site(&text);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes);
    let one = cluster(&site, &ledger, members(&site, &nodes));
    let found = faults(&one, &Format::ALL);
    assert!(
        found
            .iter()
            .all(|fault| fault == "Ansible: rack rx_1: `rx.1` has the same group name, rack_rx_1"),
        "{found:?}"
    );
    assert!(!found.is_empty());
}

#[test]
fn a_partition_has_the_ports_of_the_cluster_and_no_others() {
    let site = site(SMALL);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes);
    let three = members(&site, &nodes[..3]);
    let good = Cluster {
        partition: Some(partition(&site, &three)),
        ..cluster(&site, &ledger, three)
    };
    assert_eq!(faults(&good, &Format::ALL), [""; 0]);
    let with = |change: &dyn Fn(&mut rackwright_planner::handover::PartitionSheet)| {
        let mut bad = good.clone();
        change(bad.partition.as_mut().unwrap());
        faults(&bad, &[Format::Partition])
    };
    let foreign = partition(&site, &members(&site, &nodes[3..])).ports[0];
    assert_eq!(
        with(&|sheet| sheet.ports.push(foreign)),
        ["partition sheet: port 0xa088c20000000300: it is in the partition, but belongs to no node of the cluster"]
    );
    assert_eq!(
        with(&|sheet| sheet.ports.truncate(5)),
        ["partition sheet: node n3, mlx5_3: it is not in the partition"]
    );
    let twice = with(&|sheet| sheet.ports.push(sheet.ports[0]));
    assert_eq!(
        twice,
        ["partition sheet: node n1, mlx5_0: it or port 0xa088c20000000000 is in the partition twice"]
    );
    let other = with(&|sheet| sheet.ports[0].guid = rackwright_infiniband::Guid::new(7).unwrap());
    assert_eq!(
        other,
        [
            "partition sheet: node n1, mlx5_0: port 0x0000000000000007 is in the partition, but the site has \
             0xa088c20000000000"
        ]
    );
    let beyond = with(&|sheet| sheet.ports[0].hca = 9);
    assert!(
        beyond[0].ends_with("node n1: the partition has a port of its HCA 9, which does not exist"),
        "{beyond:?}"
    );
}

/// Cables to storage, which is a fabric beside that of the cluster, do not matter to the unit of a node.
#[test]
fn a_storage_fabric_does_not_divide_a_node() {
    let text = SMALL.replace("hcas: [mlx5_0, mlx5_3]", "hcas: [mlx5_7, mlx5_0, mlx5_3]")
        + "---\nswitches:\n- {name: stor-1, role: leaf, ports: 64}\n\
           cables:\n- {label: 's[1-4]', a: 'n[1-4]/mlx5_7', b: 'stor-1/[1-4]'}\n";
    let site = site(&text);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes);
    let one = cluster(&site, &ledger, members(&site, &nodes));
    assert_eq!(faults(&one, &Format::ALL), Vec::<String>::new());
}

/// Two compute fabrics that both number their units from 1, and storage.
#[test]
fn units_of_two_fabrics_are_apart_and_storage_is_in_no_group_and_no_ring() {
    let leaves = "- {name: 'leaf-su[1-2]-r[0-1]', role: leaf, ports: 64, rail: [0, 1], scalable_unit: [1, 1, 2, 2]}
- {name: 'spine-[1-2]', role: spine, ports: 64}
";
    let apart = "- {name: 'leaf-su[1-2]-r[0-1]', role: leaf, ports: 64, rail: [0, 1], scalable_unit: 1, fabric: [east, east, west, west]}
- {name: 'spine-[1-2]', role: spine, ports: 64, fabric: [east, west]}
- {name: stor-1, role: leaf, ports: 64, scalable_unit: 1, fabric: disks}
";
    let text = SMALL
        .replace("hcas: [mlx5_0, mlx5_3]", "hcas: [mlx5_7, mlx5_0, mlx5_3]")
        .replace("guids: {", "guids: {mlx5_7: '0xa088c20000000007+0x100', ")
        .replace(leaves, apart)
        .replace(
            "[spine-1/1, spine-2/1, spine-1/2, spine-2/2, spine-1/3, spine-2/3, spine-1/4, spine-2/4]",
            "'spine-[1-2]/[1-4]'",
        )
        + "---\nfabrics: [{name: east}, {name: west}, {name: disks, purpose: storage}]\n\
           cables:\n- {label: 's[1-4]', a: 'n[1-4]/mlx5_7', b: 'stor-1/[1-4]'}\n";
    let site = site(&text);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes);
    let partition = {
        let mut sheet = partition(&site, &members(&site, &nodes));
        sheet.ports.retain(|port| port.hca > 0);
        sheet
    };
    let files = files(&Cluster {
        partition: Some(partition),
        ..cluster(&site, &ledger, members(&site, &nodes))
    });
    let conf = &files["slurm/topology.conf"];
    for line in ["SwitchName=east-su01 Nodes=n[1-2]", "SwitchName=west-su01 Nodes=n[3-4]"] {
        assert!(conf.lines().any(|one| one == line), "{line} is not in\n{conf}");
    }
    assert!(files["nccl/nccl.conf"].contains("\nNCCL_IB_HCA==mlx5_0:1,mlx5_3:1\n"));
    let partition = &files["fabric/partition.md"];
    assert!(partition.contains("/sys/class/infiniband/mlx5_0/"), "{partition}");
    for name in ["ansible/inventory.yaml", "kubernetes/nodes.yaml"] {
        assert!(!files[name].contains("stor-1"), "{name}");
    }
    let ports = &files["fabric/ports.csv"];
    let storage = ports.lines().filter(|line| line.contains(",mlx5_7,"));
    assert!(storage.clone().all(|line| line.contains(",stor-1,")), "{ports}");
    assert_eq!(storage.count(), 4);
}

/// Rails that are fabrics of their own share their nodes, and so their units.
#[test]
fn rails_apart_have_the_units_of_one_fabric() {
    let text = SMALL
        .replace(
            "scalable_unit: [1, 1, 2, 2]}",
            "scalable_unit: [1, 1, 2, 2], fabric: [rail-0, rail-1, rail-0, rail-1]}",
        )
        .replace(
            "'spine-[1-2]', role: spine, ports: 64}",
            "'spine-[1-2]', role: spine, ports: 64, fabric: [rail-0, rail-1]}",
        )
        .replace(
            "[spine-1/1, spine-2/1, spine-1/2, spine-2/2, spine-1/3, spine-2/3, spine-1/4, spine-2/4]",
            "[spine-1/1, spine-1/2, spine-2/1, spine-2/2, spine-1/3, spine-1/4, spine-2/3, spine-2/4]",
        )
        + "---\nfabrics: [{name: 'rail-[0-1]'}]\n";
    let site = site(&text);
    let nodes: Vec<NodeId> = site.node_ids().collect();
    let ledger = ledger(&site, &nodes);
    let files = files(&cluster(&site, &ledger, members(&site, &nodes)));
    let conf = &files["slurm/topology.conf"];
    let lines: Vec<&str> = conf.lines().skip(1).collect();
    let expected = [
        "SwitchName=su01 Nodes=n[1-2]",
        "SwitchName=su02 Nodes=n[3-4]",
        "SwitchName=spine Switches=su[01-02]",
    ];
    assert_eq!(lines, expected);
}

/// A node on leaves of two units has no place in Slurm's tree, and neither has a node without cables.
#[test]
fn nodes_that_no_tree_holds_are_refused() {
    let text = SMALL.replace("b: [leaf-su2-r0/1,", "b: [leaf-su1-r0/3,");
    let site_ = site(&text);
    let nodes: Vec<NodeId> = site_.node_ids().collect();
    let ledger_ = ledger(&site_, &nodes);
    let one = cluster(&site_, &ledger_, members(&site_, &nodes));
    assert_eq!(
        faults(&one, &Format::ALL),
        ["node n3: it is cabled to several scalable units: su01, su02"]
    );
    let text = SMALL.split("- {label: 'c[05-08]'").next().unwrap().to_owned() + "customers:\n- {name: acme}\n";
    let site = site(&text);
    let ledger = ledger(&site, &nodes);
    let one = cluster(&site, &ledger, members(&site, &nodes));
    assert_eq!(
        faults(&one, &Format::ALL),
        ["n3", "n4"]
            .map(|node| format!("Slurm: node {node}: it has no cable to a switch, so it has no place in the topology"))
    );
    assert!(
        pack(
            &one,
            &[Format::Kubernetes, Format::Ansible, Format::Nccl, Format::Power]
        )
        .is_ok()
    );
}
