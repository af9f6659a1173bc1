//! All that views say about one resource, as comparable lists.

use std::collections::BTreeSet;

use rackwright_redfish::capabilities::{Capability, Observed, Reading, Report, assess};
use rackwright_redfish::quirks::{Evidence, Profile, QuirkSet};
use rackwright_redfish::views::{
    ActionInfo, Chassis, Circuit, ConnectorSide, CoolantConnector, CoolingUnit, Drive, EthernetInterface, LeakDetector,
    Manager, Memory, NetworkAdapter, NetworkFunction, NetworkPort, Outlet, PowerDistribution, PowerSupply, Processor,
    ServiceRoot, System, Task, Temperature, VirtualMedia,
};
use rackwright_redfish::{BmcMessages, Resource};
use serde_json::Value;

/// What views say.
#[derive(Debug, PartialEq)]
pub(crate) struct Told {
    /// Taken over from the resource as it stands there.
    texts: Vec<String>,
    numbers: Vec<f64>,
    /// Worked out of it.
    other: String,
    report: Report,
}

/// The place that the resource is said to stand at; its last segment may appear as an id.
const PATH: &str = "/redfish/v1/Systems/1";

pub(crate) fn all(value: &Value) -> Told {
    let resource = Resource::new(PATH, None, value.clone());
    let mut told = Told {
        texts: Vec::new(),
        numbers: Vec::new(),
        other: String::new(),
        report: assess(&observed(&resource)),
    };
    told.machine(&resource);
    told.parts(&resource);
    told.plant(&resource);
    let messages = BmcMessages::from_json(value);
    let evidence = Evidence::gather(&resource, Some(&resource), Some(&resource));
    let profile = QuirkSet::built_in().map(|all| all.profile_for(&evidence).names);
    told.say(&(messages, profile.ok()));
    told
}

/// A BMC that answers the same to everything.
fn observed(resource: &Resource) -> Observed {
    let read = || Reading::Read(resource.clone());
    Observed {
        root: resource.clone(),
        profile: Profile::default(),
        system: read(),
        settings: read(),
        reset_info: read(),
        managers: vec![resource.clone()],
        chassis: vec![resource.clone()],
        media: vec![VirtualMedia::from(resource.clone())],
        media_collections: vec![PATH.to_owned()],
        bios: read(),
        secure_boot: read(),
        account_service: read(),
        accounts: read(),
        session_service: read(),
        event_service: read(),
        update_service: read(),
        logs: vec![(resource.clone(), read())],
        sensors: vec![("Sensors".to_owned(), read()), ("Thermal".to_owned(), read())],
        macs: Ok(1),
    }
}

impl Told {
    fn say(&mut self, what: &impl std::fmt::Debug) {
        self.other.push_str(&format!("{what:?};"));
    }

    fn machine(&mut self, resource: &Resource) {
        let root = ServiceRoot::from(resource.clone());
        self.texts.extend(
            [
                root.vendor(),
                root.product(),
                root.name(),
                root.redfish_version(),
                root.systems(),
            ]
            .into_iter()
            .flatten(),
        );
        self.texts.extend(
            [
                root.managers(),
                root.chassis(),
                root.sessions(),
                root.session_service(),
                root.task_service(),
            ]
            .into_iter()
            .flatten(),
        );
        self.texts.extend(
            [
                root.event_service(),
                root.update_service(),
                root.power_equipment(),
                root.thermal_equipment(),
            ]
            .into_iter()
            .flatten(),
        );
        self.say(&root.oem_names());
        let system = System::from(resource.clone());
        self.texts.extend(
            [
                system.manufacturer(),
                system.model(),
                system.serial(),
                system.sku(),
                system.bios_version(),
            ]
            .into_iter()
            .flatten(),
        );
        self.texts.extend(
            [
                system.host_name(),
                system.settings(),
                system.processors(),
                system.memory(),
                system.storage(),
            ]
            .into_iter()
            .flatten(),
        );
        self.texts
            .extend(system.managed_by().into_iter().chain(system.chassis()));
        self.say(&(
            system.id(),
            system.uuid(),
            system.power_state(),
            system.boot_progress(),
            system.boot(),
            system.reset(),
        ));
        self.say(&(system.processor_count(), system.memory_gib()));
        let manager = Manager::from(resource.clone());
        self.texts.extend(
            [manager.model(), manager.firmware_version(), manager.virtual_media()]
                .into_iter()
                .flatten(),
        );
        let media = VirtualMedia::from(resource.clone());
        self.texts.extend(media.media_types().into_iter().chain(media.image()));
        self.say(&(media.is_inserted(), media.insert(), media.eject()));
        let task = Task::from(resource.clone());
        self.say(&(task.is_task(), task.state(), task.percent(), task.messages()));
        self.say(&ActionInfo::from(resource.clone()).allowable("ResetType"));
    }

    fn parts(&mut self, resource: &Resource) {
        let processor = Processor::from(resource.clone());
        self.texts.extend(
            [
                processor.kind(),
                processor.manufacturer(),
                processor.model(),
                processor.serial(),
            ]
            .into_iter()
            .flatten(),
        );
        self.say(&(processor.cores(), processor.threads(), processor.is_present()));
        let memory = Memory::from(resource.clone());
        self.texts.extend(
            [memory.manufacturer(), memory.part_number(), memory.serial()]
                .into_iter()
                .flatten(),
        );
        self.say(&(
            memory.capacity_mib(),
            memory.speed_mhz(),
            memory.is_present(),
            memory.locator(),
            memory.kind(),
        ));
        let drive = Drive::from(resource.clone());
        self.texts.extend(
            [
                drive.manufacturer(),
                drive.model(),
                drive.serial(),
                drive.media(),
                drive.protocol(),
            ]
            .into_iter()
            .flatten(),
        );
        self.say(&(drive.capacity_bytes(), drive.is_present()));
        let interface = EthernetInterface::from(resource.clone());
        self.say(&(interface.mac(), interface.link_up(), interface.speed_mbps()));
        let adapter = NetworkAdapter::from(resource.clone());
        self.texts.extend(
            [
                adapter.manufacturer(),
                adapter.model(),
                adapter.serial(),
                adapter.ports(),
                adapter.functions(),
            ]
            .into_iter()
            .flatten(),
        );
        let (function, port) = (
            NetworkFunction::from(resource.clone()),
            NetworkPort::from(resource.clone()),
        );
        self.say(&(function.macs(), function.port_guids(), port.macs(), port.port_guids()));
    }

    fn plant(&mut self, resource: &Resource) {
        let chassis = Chassis::from(resource.clone());
        self.texts.extend(
            [
                chassis.environment_metrics(),
                chassis.power(),
                chassis.thermal(),
                chassis.power_subsystem(),
            ]
            .into_iter()
            .flatten(),
        );
        self.texts.extend(
            [chassis.thermal_subsystem(), chassis.leak_detectors()]
                .into_iter()
                .flatten(),
        );
        let value = resource.json();
        let temperatures = [
            Temperature::of_sensor(value),
            Temperature::of_thermal(value),
            Temperature::of_metrics(value),
        ];
        self.numbers
            .extend(temperatures.iter().flatten().map(|one| one.celsius));
        self.say(&(temperatures, PowerSupply::of(value), LeakDetector::of(value)));
        let unit = CoolingUnit::from(resource.clone());
        self.say(&(
            unit.labels(),
            unit.connectors(ConnectorSide::Primary),
            unit.leak_detection(),
        ));
        let connector = CoolantConnector::from(resource.clone());
        self.numbers.extend(
            [
                connector.supply_celsius(),
                connector.return_celsius(),
                connector.flow_lpm(),
            ]
            .into_iter()
            .flatten(),
        );
        let (circuit, outlet) = (Circuit::from(resource.clone()), Outlet::from(resource.clone()));
        self.numbers.extend(
            [
                circuit.watts(),
                circuit.amps(),
                circuit.rated_amps(),
                circuit.volts(),
                outlet.watts(),
                outlet.amps(),
            ]
            .into_iter()
            .flatten(),
        );
        self.say(&(circuit.breaker(), outlet.is_on(), outlet.label(), connector.is_in_use()));
        self.texts.extend(circuit.outlets().into_iter().chain(outlet.branch()));
        let distribution = PowerDistribution::from(resource.clone());
        self.texts.extend(
            [
                distribution.mains(),
                distribution.branches(),
                distribution.outlets(),
                distribution.metrics(),
            ]
            .into_iter()
            .flatten(),
        );
    }
}

/// Every text and number in a document.
fn words(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            texts.insert(text.trim().to_owned());
        }
        Value::Number(number) => {
            texts.insert(number.to_string());
        }
        Value::Array(list) => list.iter().for_each(|one| words(one, texts)),
        Value::Object(object) => object.values().for_each(|one| words(one, texts)),
        _ => {}
    }
}

/// What was taken over stands in the resource, numbers are numbers, and the report is complete and no longer than makes sense.
pub(crate) fn assert_invents_nothing(value: &Value, told: &Told) {
    let mut known = BTreeSet::new();
    words(value, &mut known);
    for text in &told.texts {
        assert!(known.contains(text), "{text:?} stands nowhere");
    }
    assert!(
        told.numbers.iter().all(|number| number.is_finite()),
        "{:?}",
        told.numbers
    );
    assert_eq!(told.report.findings.len(), Capability::ALL.len());
    let size = value.to_string().len();
    // Debug output escapes a character in up to ten.
    assert!(
        told.other.len() <= 4000 + 100 * size,
        "{} bytes said of {size}",
        told.other.len()
    );
    for finding in &told.report.findings {
        assert!(
            finding.detail.len() <= 400 + 4 * size,
            "{}: {}",
            finding.capability,
            finding.detail
        );
    }
}
