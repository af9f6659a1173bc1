//! A hall of simulated machines on a fabric that ibsim plays and a real OpenSM manages: its site file, its machines, and the
//! settings of its control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;

use rackwright_infiniband::{Guid, Tables};
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::{Node, NodeId, Redundancy, Site as Model};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::fabric::Lab;
use crate::ports::free_port;
use crate::site::{Site, program};

/// Ports of this computer for the started programs.
#[derive(Debug)]
pub struct Ports {
    /// The API of the control plane.
    pub api: u16,
    /// Its image store and metrics.
    pub store: u16,
    /// The web console.
    pub web: u16,
    boot: u16,
    tftp: u16,
    bmc: u16,
    ssh: u16,
    dhcp: u16,
}

impl Ports {
    /// Free ports.
    #[must_use]
    pub fn find() -> Self {
        Self {
            api: free_port(),
            store: free_port(),
            web: free_port(),
            boot: free_port(),
            tftp: free_port(),
            bmc: free_port(),
            ssh: free_port(),
            dhcp: free_port(),
        }
    }
}

/// The site file of NVIDIA's reference for DGX H100, with customers: name, redundancy, and whether the customer has
/// dedicated circuits. Its fabric uses HDR instead of NDR: ibsim plays HDR, and with any other rate in the site every cable
/// would be at fault.
///
/// # Panics
/// If no site can be generated.
#[must_use]
pub fn describe(nodes: usize, customers: &[(&str, Redundancy, bool)]) -> String {
    let mut request = Request::new(ReferenceSku::DgxH100, nodes);
    let owned =
        |(name, redundancy, is_dedicated): &(&str, Redundancy, bool)| ((*name).to_owned(), *redundancy, *is_dedicated);
    request.customers = customers.iter().map(owned).collect();
    let text = site_file(&request).expect("a site");
    assert!(
        text.contains("speed: NDR"),
        "the reference names the speed of its links"
    );
    text.replace("speed: NDR", "speed: HDR")
}

/// The uplinks of the last leaf of 128 nodes, in the text of [`describe`].
const UPLINKS: &str = "\
- label: c[2017-2048]
  a: leaf-su4-r7/[33-64]
  b: spine-[01-16]/[63-64]
";
/// The same without the last cable.
const FEWER_UPLINKS: &str = "\
- label: c[2017-2046]
  a: leaf-su4-r7/[33-62]
  b: spine-[01-15]/[63-64]
- label: c2047
  a: leaf-su4-r7/63
  b: spine-16/63
";
/// Four storage nodes with a fabric of their own, and cooling for their room.
const STORAGE: &str = "\
---
cooling_units:
- {name: crah-net, kind: crah, room: network, watts: 100000, supply_celsius: 22}
skus:
- name: storage
  power: {max_watts: 1 kW}
  psus: {count: 2, watts: 1000, needed: 1}
  height_units: 2
  hcas: [mlx5_0, mlx5_1]
  hca_speed: HDR
nodes:
- name: store-[1-4]
  sku: storage
  rack: net-r1
  psus: [~, ~]
  guids:
    mlx5_0: 0xa088c20100000000+0x100
    mlx5_1: 0xa088c20100000010+0x100
fabrics: [{name: storage, purpose: storage}]
switches:
- {name: 'stor-leaf-[1-2]', role: leaf, ports: 64, speed: HDR, fabric: storage, guid: 0xfc6a1c0100000000+0x40}
- {name: stor-spine, role: spine, ports: 64, speed: HDR, guid: 0xfc6a1c0100000100}
cables:
- {label: 's[1-4]', a: 'store-[1-4]/mlx5_0', b: 'stor-leaf-1/[1-4]'}
- {label: 's[5-8]', a: 'store-[1-4]/mlx5_1', b: 'stor-leaf-2/[1-4]'}
- {label: 't[1-4]', a: 'stor-leaf-1/[61-64]', b: 'stor-spine/[1-4]'}
- {label: 't[5-8]', a: 'stor-leaf-2/[61-64]', b: 'stor-spine/[5-8]'}
";

/// The site file of 128 nodes in a hall that is not as planned: one cable between a leaf and a spine is absent, and a
/// storage fabric lies beside the compute fabric.
///
/// # Panics
/// If no site can be generated.
#[must_use]
pub fn describe_irregular(customers: &[(&str, Redundancy, bool)]) -> String {
    let text = describe(128, customers);
    assert_eq!(
        text.matches(UPLINKS).count(),
        1,
        "the uplinks of a leaf are in the site file once"
    );
    text.replace(UPLINKS, FEWER_UPLINKS) + STORAGE
}

/// The site file with another port GUID for an adapter of a node. The GUIDs of this adapter of all nodes of the SKU, which
/// must be in one item, become a list.
///
/// # Panics
/// If the site has no such adapter, or the site file has its GUIDs in several items.
#[must_use]
pub fn with_port(text: &str, model: &Model, (node, hca): (&str, &str), port: Guid) -> String {
    let node = model.node_named(node).expect("a node of the site");
    let mut hcas = model.sku_of(node).hcas.iter();
    let at = hcas.position(|one| *one.name == *hca).expect("an adapter of the node");
    let former = |id: NodeId| {
        let guid = model.node(id).port_guids[at].and_then(Guid::new);
        guid.expect("a port GUID").to_string()
    };
    let alike: Vec<NodeId> = model
        .node_ids()
        .filter(|id| model.node(*id).sku == model.node(node).sku)
        .collect();
    let (field, first) = (format!("{hca}: "), former(alike[0]));
    let is_list = |line: &&str| line.trim_start().starts_with(&field) && line.contains(&first);
    let lines: Vec<&str> = text.lines().filter(is_list).collect();
    let [line] = lines.as_slice() else {
        panic!("{} lines have the GUIDs of {hca}", lines.len());
    };
    let guid = |id: NodeId| if id == node { port.to_string() } else { former(id) };
    let guids: Vec<String> = alike.into_iter().map(guid).collect();
    text.replace(*line, &format!("    {field}[{}]", guids.join(", ")))
}

/// The site in the text of a site file.
///
/// # Panics
/// If the text is not valid.
#[must_use]
pub fn read(text: &str) -> Model {
    let name = "site.yaml";
    let checked = check(&[Source { name, text }]);
    checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings))
}

/// Starts machines that are switched off, with BMCs that speak Redfish. `speed` is in seconds of the machines' time per real
/// second. Returns the running program, and each machine as the program describes it.
///
/// # Panics
/// If the program does not start.
pub async fn simulate(dir: &Path, ports: &Ports, nodes: usize, speed: u32, further: &[&str]) -> (Child, Vec<Value>) {
    let log = std::fs::File::create(dir.join("rackwright-sim.log")).expect("a log");
    let mut child = Command::new(program("rackwright-sim"))
        .current_dir(dir)
        .args(["--nodes", &nodes.to_string(), "--profile", "dgx-h100"])
        .args(["--speed", &speed.to_string()])
        .args(["--listen", &format!("0.0.0.0:{}", ports.bmc)])
        .args(["--boot-server", &format!("127.0.0.1:{}", ports.dhcp)])
        .args(["--ssh-listen", &format!("0.0.0.0:{}", ports.ssh)])
        .args(["--format", "json", "--keep-running"])
        .args(further)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("rackwright-sim can be started");
    let mut text = String::new();
    let mut out = child.stdout.take().expect("its output");
    out.read_to_string(&mut text).await.expect("what it prints");
    let described: Value = serde_json::from_str(&text).expect("machines in JSON");
    (child, described["nodes"].as_array().expect("machines").clone())
}

/// Machines under the names of these nodes, as documents for `rackwright apply`.
#[must_use]
pub fn enrolment<'a>(nodes: impl Iterator<Item = &'a Node>, machines: &[Value]) -> String {
    let document = |(node, machine): (&Node, &Value)| {
        let bmc = &machine["bmc"];
        let document = json!({
            "kind": "Node",
            "id": &*node.name,
            "sku": "dgx-h100",
            "bmc": {
                "address": bmc["address"],
                "username": bmc["username"],
                "password": bmc["password"],
                "certificate_sha256": bmc["certificate_sha256"],
            },
        });
        // JSON is YAML.
        format!("---\n{document}\n")
    };
    nodes.zip(machines).map(document).collect()
}

/// The data of an image. Any bytes will do: simulated machines verify the data that they fetch and run no system.
#[must_use]
pub fn image(shift: u32) -> Vec<u8> {
    let words = 0..4_u32 << 20;
    words.map(|n| (n.wrapping_mul(2_654_435_761) >> shift) as u8).collect()
}

/// By partition key without the default one, the ports with the key in their tables.
#[must_use]
pub fn keys_of_ports(tables: &Tables) -> BTreeMap<u16, BTreeSet<Guid>> {
    let mut keys: BTreeMap<u16, BTreeSet<Guid>> = BTreeMap::new();
    for (port, table) in &tables.read {
        let own = table.iter().map(|entry| entry & 0x7fff);
        for key in own.filter(|key| !matches!(key, 0 | 0x7fff)) {
            keys.entry(key).or_default().insert(*port);
        }
    }
    keys
}

/// By partition key, the ports that the nodes of these clusters have in the site.
///
/// # Panics
/// If a cluster has no partition, or a node that the site does not have.
#[must_use]
pub fn keys_of_clusters(site: &Site, model: &Model, clusters: &[&str]) -> BTreeMap<u16, BTreeSet<Guid>> {
    let of = |cluster: &&str| {
        let cluster = site.json(["cluster", "get", cluster]);
        let status = &cluster["status"];
        let key = status["partition"]["key"].as_str().expect("a key");
        let key = u16::from_str_radix(key.trim_start_matches("0x"), 16).expect("a key");
        let members = status["members"].as_array().expect("members").iter();
        let nodes = members.map(|member| member["node"].as_str().expect("a node").trim_start_matches("nodes/"));
        let ports = nodes.flat_map(|name| {
            let node = model.node(model.node_named(name).expect("a node of the site"));
            node.port_guids.iter().flatten().filter_map(|guid| Guid::new(*guid))
        });
        (key, ports.collect())
    };
    clusters.iter().map(of).collect()
}

/// The settings of the control plane. `pace` are further settings of its fabric manager: `check_s: 5`.
///
/// # Panics
/// If the boot files cannot be written.
#[must_use]
pub fn config(dir: &Path, ports: &Ports, lab: &Lab, pace: &str) -> String {
    let manager = manager(lab);
    let fabric = format!("{pace}\n  opensm: {}\n  tools: {}", manager["opensm"], manager["tools"]);
    config_without_fabric(dir, ports) + &format!("fabric:\n  {fabric}\n")
}

/// The settings of a control plane with a manager for each of these fabrics, by their names in the site file.
///
/// # Panics
/// If the boot files cannot be written.
#[must_use]
pub fn config_of_fabrics(dir: &Path, ports: &Ports, labs: &BTreeMap<&str, Lab>, pace: &str) -> String {
    let managers: BTreeMap<&str, Value> = labs.iter().map(|(fabric, lab)| (*fabric, manager(lab))).collect();
    config_without_fabric(dir, ports) + &format!("fabric:\n  {pace}\n  managers: {}\n", json!(managers))
}

/// The settings of the manager of a fabric.
fn manager(lab: &Lab) -> Value {
    let [log, pid] = lab.log_and_pid_files();
    let environment: BTreeMap<String, String> = lab.environment().into_iter().collect();
    json!({
        "opensm": {"partitions": lab.partitions_file(), "log": log, "pid_file": pid},
        "tools": {"environment": environment},
    })
}

/// The settings of a control plane without a fabric manager.
///
/// # Panics
/// If the boot files cannot be written.
#[must_use]
pub fn config_without_fabric(dir: &Path, ports: &Ports) -> String {
    for name in ["vmlinuz", "initrd"] {
        // Simulated machines fetch only the boot script.
        std::fs::write(dir.join(name), name).expect("a boot file");
    }
    let here = dir.display();
    let Ports {
        api,
        store,
        web,
        boot,
        tftp,
        ssh,
        dhcp,
        ..
    } = ports;
    format!(
        "data_dir: {here}/data\nsite: hall\n\
         api:\n  listen: 127.0.0.1:{api}\n  names: [127.0.0.1, localhost]\n\
         store:\n  listen: 127.0.0.1:{store}\n\
         web:\n  listen: 127.0.0.1:{web}\n\
         boot:\n  ramdisk:\n    kernel: {here}/vmlinuz\n    initrd: {here}/initrd\n  \
         network:\n    server_ip: 127.0.0.1\n    interface: lo\n    dhcp_port: {dhcp}\n    boot_server_port: {proxy}\n    \
         http_port: {boot}\n    tftp_port: {tftp}\n    first_stages: {{}}\n    \
         dhcp:\n      server:\n        subnets:\n        - network: 127.128.0.0/10\n          \
         pool: {{first: 127.190.0.1, last: 127.190.255.254}}\n\
         ssh_port: {ssh}\n\
         policy: {{power_off_s: 1, tries: 2, backoff_s: 1, backoff_max_s: 2}}\n",
        proxy = free_port(),
    )
}

#[cfg(test)]
mod tests {
    use rackwright_planner::hall::irregularities;

    use super::*;

    #[test]
    fn the_irregular_hall_lacks_one_cable_and_has_storage_beside() {
        let (whole, hall) = (read(&describe(128, &[])), read(&describe_irregular(&[])));
        // Without one uplink, with eight cables of storage nodes and eight of storage leaves.
        assert_eq!(hall.cables.len(), whole.cables.len() - 1 + 16);
        assert_eq!(hall.nodes.len(), whole.nodes.len() + 4);
        let found: Vec<String> = irregularities(&hall).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["leaf-su4-r7 has 1 of 2 cables to spine-16: unit su04 gives 31 of 32 non-blocking nodes"]
        );
        // ibsim plays every device by its GUID.
        let plan = rackwright_planner::cabling::plan(&hall).expect("a plan");
        assert!(plan.fabric().devices().all(|(_, device)| device.guid.is_some()));
    }

    #[test]
    fn the_port_of_a_replaced_adapter_is_the_only_change() {
        let text = describe_irregular(&[]);
        let before = read(&text);
        let new = Guid::new(0xabc1).expect("a GUID");
        let once = with_port(&text, &before, ("gpu-003", "mlx5_5"), new);
        let after = read(&once);
        let ports = |model: &Model| -> Vec<Option<u64>> {
            let nodes = model.nodes.iter();
            nodes.flat_map(|node| node.port_guids.iter().copied()).collect()
        };
        let mut changed: Vec<_> = ports(&before).into_iter().zip(ports(&after)).collect();
        changed.retain(|(former, port)| former != port);
        assert_eq!(changed, [(before.nodes[2].port_guids[3], Some(0xabc1))]);
        // A list is changed as well.
        let again = with_port(&once, &after, ("gpu-004", "mlx5_5"), Guid::new(0xabc2).expect("a GUID"));
        assert_eq!(read(&again).nodes[3].port_guids[3], Some(0xabc2));
    }
}
