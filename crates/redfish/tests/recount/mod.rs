//! Reads a recording independently, from the plain JSON by kind and path, and compares it field by field with the
//! client's result: no field may be lost.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_redfish::{BmcInventory, PartInfo};
use serde_json::Value;

type Tree = BTreeMap<String, Value>;
/// Path in lower case, and fields as texts.
type Rows = BTreeSet<(String, Vec<String>)>;

const PART: [&str; 3] = ["Manufacturer", "Model", "SerialNumber"];

fn kind(body: &Value) -> &str {
    let kind = body["@odata.type"].as_str().unwrap_or_default();
    kind.trim_start_matches('#').split('.').next().unwrap()
}

fn is_absent(body: &Value) -> bool {
    body["Status"]["State"] == "Absent"
}

/// A text with a meaning; placeholders become empty.
fn text(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        _ => String::new(),
    };
    let placeholders = [
        "null",
        "none",
        "n/a",
        "na",
        "unknown",
        "not available",
        "not specified",
        "to be filled by o.e.m.",
    ];
    if placeholders.contains(&text.to_lowercase().as_str()) {
        String::new()
    } else {
        text
    }
}

/// A kind of resources, and the path segments after the root where they are compared; `*` matches any single segment.
type Place = (&'static str, &'static str);

const PROCESSORS: Place = ("Processor", "systems/*/processors/*");
const MEMORY: Place = ("Memory", "systems/*/memory/*");
const ADAPTERS: Place = ("NetworkAdapter", "chassis/*/networkadapters/*");
const FIRMWARE: Place = ("SoftwareInventory", "updateservice/*/*");
const SUPPLIES: Place = ("PowerSupply", "chassis/*/powersubsystem/powersupplies/*");
const FANS: Place = ("Fan", "chassis/*/thermalsubsystem/fans/*");
const CHASSIS: Place = ("Chassis", "chassis/*");
const SENSORS: Place = ("SensorCollection", "chassis/*/sensors");

fn is_of((wanted, place): Place, path: &str, body: &Value) -> bool {
    let segments = path.trim_start_matches("/redfish/v1/").split('/');
    let fits = |(segment, pattern): (&str, &str)| pattern == "*" || segment == pattern;
    kind(body) == wanted
        && segments.clone().count() == place.split('/').count()
        && segments.zip(place.split('/')).all(fits)
}

/// Drives are compared in many places. One recording contains a copy of itself in a separate folder.
fn is_drive(path: &str, body: &Value) -> bool {
    let places = ["/redfish/v1/systems/", "/redfish/v1/chassis/"];
    kind(body) == "Drive" && places.iter().any(|place| path.starts_with(place))
}

/// Whether [`check`] looks at a resource.
pub fn compares(path: &str, body: &Value) -> bool {
    let places = [PROCESSORS, MEMORY, ADAPTERS, FIRMWARE, SUPPLIES, FANS, CHASSIS, SENSORS];
    places.iter().any(|place| is_of(*place, path, body)) || is_drive(path, body) || kind(body) == "SimpleStorage"
}

fn rows(tree: &Tree, is_wanted: impl Fn(&str, &Value) -> bool, fields: &[&str]) -> Rows {
    let found = tree
        .iter()
        .filter(|(path, body)| is_wanted(path, body) && !is_absent(body));
    found
        .map(|(path, body)| (path.clone(), fields.iter().map(|field| text(&body[*field])).collect()))
        .collect()
}

fn path(path: &str) -> String {
    path.trim_end_matches('/').to_lowercase()
}

fn or_empty(value: &Option<impl ToString>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn same(name: &str, what: &str, recorded: &Rows, read: &Rows) {
    let lost: Vec<_> = recorded.difference(read).collect();
    let made_up: Vec<_> = read.difference(recorded).collect();
    assert!(
        lost.is_empty() && made_up.is_empty(),
        "{name}, {what}: lost {lost:#?}, made up {made_up:#?}"
    );
    println!("{name}: {} {what} compared field by field", recorded.len());
}

/// The number of parts that resources of a kind list inline, by name; only of resources that a chassis links.
fn inline(tree: &Tree, holder: &str, list: &str) -> usize {
    let holders: BTreeSet<String> = tree
        .iter()
        .filter(|(_, body)| kind(body) == "Chassis")
        .filter_map(|(_, body)| body[holder]["@odata.id"].as_str().map(path))
        .collect();
    let lists = holders.iter().filter_map(|holder| tree.get(holder)?[list].as_array());
    lists.flatten().filter(|one| one.is_object() && !is_absent(one)).count()
}

/// The drives that simple storage lists inline, with the fields of drives.
fn simple_drives(tree: &Tree) -> Rows {
    let mut found = Rows::new();
    for (path, body) in tree.iter().filter(|(_, body)| kind(body) == "SimpleStorage") {
        let devices = body["Devices"].as_array().unwrap();
        for (index, one) in devices.iter().enumerate().filter(|(_, one)| !is_absent(one)) {
            let fields = [
                "Manufacturer",
                "Model",
                "SerialNumber",
                "MediaType",
                "Protocol",
                "CapacityBytes",
            ];
            let fields = fields.iter().map(|field| text(&one[*field])).collect();
            found.insert((format!("{path}#/devices/{index}"), fields));
        }
    }
    found
}

fn parts(read: &[PartInfo]) -> Rows {
    let row = |one: &PartInfo| {
        let fields = [&one.manufacturer, &one.model, &one.serial];
        (path(&one.path), fields.into_iter().map(or_empty).collect())
    };
    read.iter().filter(|one| !one.path.contains('#')).map(row).collect()
}

/// Compares an inventory with the recording from which it was read. Returns the numbers of network adapters, firmware
/// entries, power supplies, fans and sensors in the recording.
pub fn check(name: &str, tree: &Tree, read: &BmcInventory) -> [usize; 5] {
    processors(name, tree, read);
    memory(name, tree, read);
    drives(name, tree, read);
    let (adapters, firmware) = adapters_and_firmware(name, tree, read);
    let (supplies, fans) = power_and_fans(name, tree, read);
    [adapters, firmware, supplies, fans, sensors(name, tree, read)]
}

fn processors(name: &str, tree: &Tree, read: &BmcInventory) {
    let processors = read.processors.iter().map(|one| {
        let words = [&one.kind, &one.manufacturer, &one.model, &one.serial].map(or_empty);
        let numbers = [or_empty(&one.cores), or_empty(&one.threads)];
        (path(&one.path), words.into_iter().chain(numbers).collect())
    });
    let fields = [
        "ProcessorType",
        "Manufacturer",
        "Model",
        "SerialNumber",
        "TotalCores",
        "TotalThreads",
    ];
    let recorded = rows(tree, |path, body| is_of(PROCESSORS, path, body), &fields);
    same(name, "processors", &recorded, &processors.collect());
}

fn memory(name: &str, tree: &Tree, read: &BmcInventory) {
    let memory = read.memory.iter().map(|one| {
        let words = [&one.manufacturer, &one.part_number, &one.serial].map(or_empty);
        let numbers = [or_empty(&one.capacity_mib), or_empty(&one.speed_mhz)];
        (path(&one.path), words.into_iter().chain(numbers).collect())
    });
    let fields = [
        "Manufacturer",
        "PartNumber",
        "SerialNumber",
        "CapacityMiB",
        "OperatingSpeedMhz",
    ];
    let mut recorded = rows(tree, |path, body| is_of(MEMORY, path, body), &fields);
    recorded.retain(|(_, fields)| fields[3] != "0");
    same(name, "memory modules", &recorded, &memory.collect());
}

fn drives(name: &str, tree: &Tree, read: &BmcInventory) {
    let drives = read.drives.iter().map(|one| {
        let words = [&one.manufacturer, &one.model, &one.serial, &one.media, &one.protocol].map(or_empty);
        (
            path(&one.path),
            words.into_iter().chain([or_empty(&one.capacity_bytes)]).collect(),
        )
    });
    let fields = [
        "Manufacturer",
        "Model",
        "SerialNumber",
        "MediaType",
        "Protocol",
        "CapacityBytes",
    ];
    let mut recorded = rows(tree, is_drive, &fields);
    // The drives of one machine have no facts and no storage links them; its older simple storage lists them inline.
    recorded.retain(|(_, fields)| fields.iter().any(|field| !field.is_empty()));
    let (held, linked): (Rows, Rows) = drives.partition(|(path, _)| path.contains('#'));
    same(name, "drives", &recorded, &linked);
    if recorded.is_empty() {
        same(name, "drives of simple storage", &simple_drives(tree), &held);
    }
}

fn adapters_and_firmware(name: &str, tree: &Tree, read: &BmcInventory) -> (usize, usize) {
    let adapters = read
        .nics
        .iter()
        .filter(|one| path(&one.path).contains("/networkadapters/"));
    let adapters = adapters.map(|one| {
        let words = [&one.manufacturer, &one.model, &one.serial].map(or_empty);
        (path(&one.path), words.into_iter().collect())
    });
    let recorded_adapters = rows(tree, |path, body| is_of(ADAPTERS, path, body), &PART);
    same(name, "network adapters", &recorded_adapters, &adapters.collect());
    let firmware = read.firmware.iter().map(|one| {
        let fields = vec![or_empty(&one.name), or_empty(&one.version), or_empty(&one.updateable)];
        (path(&one.path), fields)
    });
    let fields = ["Name", "Version", "Updateable"];
    let recorded = rows(tree, |path, body| is_of(FIRMWARE, path, body), &fields);
    same(name, "firmware entries", &recorded, &firmware.collect());
    (recorded_adapters.len(), recorded.len())
}

fn power_and_fans(name: &str, tree: &Tree, read: &BmcInventory) -> (usize, usize) {
    let supplies = rows(tree, |path, body| is_of(SUPPLIES, path, body), &PART);
    same(name, "power supplies", &supplies, &parts(&read.power_supplies));
    let fans = rows(tree, |path, body| is_of(FANS, path, body), &PART);
    same(name, "fans", &fans, &parts(&read.fans));
    if supplies.is_empty() {
        assert_eq!(
            read.power_supplies.len(),
            inline(tree, "Power", "PowerSupplies"),
            "{name}"
        );
    }
    if fans.is_empty() {
        assert_eq!(read.fans.len(), inline(tree, "Thermal", "Fans"), "{name}");
    }
    println!(
        "{name}: {} power supplies, {} fans",
        read.power_supplies.len(),
        read.fans.len()
    );
    (read.power_supplies.len(), read.fans.len())
}

fn sensors(name: &str, tree: &Tree, read: &BmcInventory) -> usize {
    let listed: BTreeSet<String> = read.sensors.iter().map(|link| path(link)).collect();
    let lists = tree.iter().filter(|(path, body)| is_of(SENSORS, path, body));
    let members = lists.filter_map(|(_, body)| body["Members"].as_array()).flatten();
    let recorded: BTreeSet<String> = members.filter_map(|one| one["@odata.id"].as_str().map(path)).collect();
    let lost: Vec<_> = recorded.difference(&listed).collect();
    assert!(lost.is_empty(), "{name}: sensors lost: {lost:#?}");
    println!("{name}: {} sensors", listed.len());
    recorded.len()
}
