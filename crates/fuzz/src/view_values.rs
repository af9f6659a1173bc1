//! All values that views read from one resource, as comparable lists.

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

/// The values of all views.
#[derive(Debug, PartialEq)]
pub(crate) struct ViewValues {
    /// Copied from the resource unchanged.
    texts: Vec<String>,
    numbers: Vec<f64>,
    /// Derived from the resource.
    other: String,
    report: Report,
}

/// The path of the resource. Its last segment may appear as an id.
const PATH: &str = "/redfish/v1/Systems/1";

pub(crate) fn all(value: &Value) -> ViewValues {
    let resource = Resource::new(PATH, None, value.clone());
    let mut values = ViewValues {
        texts: Vec::new(),
        numbers: Vec::new(),
        other: String::new(),
        report: assess(&observed(&resource)),
    };
    values.machine(&resource);
    values.parts(&resource);
    values.equipment(&resource);
    let messages = BmcMessages::from_json(value);
    let evidence = Evidence::gather(&resource, Some(&resource), Some(&resource));
    let profile = QuirkSet::built_in().map(|all| all.profile_for(&evidence).names);
    values.add_debug(&(messages, profile.ok()));
    values
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

impl ViewValues {
    fn add_debug(&mut self, what: &impl std::fmt::Debug) {
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
        self.add_debug(&root.oem_names());
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
        self.add_debug(&(
            system.id(),
            system.uuid(),
            system.power_state(),
            system.boot_progress(),
            system.boot(),
            system.reset(),
        ));
        self.add_debug(&(system.processor_count(), system.memory_gib()));
        let manager = Manager::from(resource.clone());
        self.texts.extend(
            [manager.model(), manager.firmware_version(), manager.virtual_media()]
                .into_iter()
                .flatten(),
        );
        let media = VirtualMedia::from(resource.clone());
        self.texts.extend(media.media_types().into_iter().chain(media.image()));
        self.add_debug(&(media.is_inserted(), media.insert(), media.eject()));
        let task = Task::from(resource.clone());
        self.add_debug(&(task.is_task(), task.state(), task.percent(), task.messages()));
        self.add_debug(&ActionInfo::from(resource.clone()).allowable("ResetType"));
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
        self.add_debug(&(processor.cores(), processor.threads(), processor.is_present()));
        let memory = Memory::from(resource.clone());
        self.texts.extend(
            [memory.manufacturer(), memory.part_number(), memory.serial()]
                .into_iter()
                .flatten(),
        );
        self.add_debug(&(
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
        self.add_debug(&(drive.capacity_bytes(), drive.is_present()));
        let interface = EthernetInterface::from(resource.clone());
        self.add_debug(&(interface.mac(), interface.link_up(), interface.speed_mbps()));
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
        self.add_debug(&(function.macs(), function.port_guids(), port.macs(), port.port_guids()));
    }

    fn equipment(&mut self, resource: &Resource) {
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
        self.add_debug(&(temperatures, PowerSupply::of(value), LeakDetector::of(value)));
        let unit = CoolingUnit::from(resource.clone());
        self.add_debug(&(
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
        self.add_debug(&(circuit.breaker(), outlet.is_on(), outlet.label(), connector.is_in_use()));
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
fn collect_texts(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            texts.insert(text.trim().to_owned());
        }
        Value::Number(number) => {
            texts.insert(number.to_string());
        }
        Value::Array(list) => list.iter().for_each(|one| collect_texts(one, texts)),
        Value::Object(object) => object.values().for_each(|one| collect_texts(one, texts)),
        _ => {}
    }
}

/// Copied texts are in the resource, numbers are finite, and the report is complete and bounded.
pub(crate) fn assert_invents_nothing(value: &Value, values: &ViewValues) {
    let mut known = BTreeSet::new();
    collect_texts(value, &mut known);
    for text in &values.texts {
        assert!(known.contains(text), "{text:?} is not in the resource");
    }
    assert!(
        values.numbers.iter().all(|number| number.is_finite()),
        "{:?}",
        values.numbers
    );
    assert_eq!(values.report.findings.len(), Capability::ALL.len());
    let size = value.to_string().len();
    // Debug output escapes a character in up to ten.
    assert!(
        values.other.len() <= 4000 + 100 * size,
        "{} bytes of output for {size}",
        values.other.len()
    );
    for finding in &values.report.findings {
        assert!(
            finding.detail.len() <= 400 + 4 * size,
            "{}: {}",
            finding.capability,
            finding.detail
        );
    }
}
