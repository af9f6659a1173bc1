//! KCS, the way from the machine into its BMC that needs no password: read and closed by each vendor's property.

use std::time::Duration;

use rackwright_redfish::{BmcClient, StateItem, StateListed, StatePart, StateScope};
use serde_json::{Value, json};

use crate::bmc::{Bmc, SYSTEM, State, merge, standard_tree};
use crate::server::{Answer, Request};

const MANAGER: &str = "/redfish/v1/Managers/BMC";

/// One vendor's BMC.
struct Vendor {
    name: &'static str,
    /// A resource, and the property by which the profile knows the vendor.
    known_by: (&'static str, Value),
    /// The resource with the switch, below the manager.
    resource: &'static str,
    /// The switch while KCS is open; the change that closes it; further values that count as closed.
    open: Value,
    closing: Value,
    closed: Vec<Value>,
}

fn vendors() -> Vec<Vendor> {
    let vendor = |name: &str| ("/redfish/v1", json!({"Vendor": name}));
    let hpe = |value: bool| json!({"Oem": {"Hpe": {"KcsEnabled": value}}});
    let lenovo = |value: Value| json!({"Oem": {"Lenovo": {"KCSEnabled": value}}});
    let privilege = |value: &str| json!({"Privilege": value});
    let local_configuration_is_locked = |value: &str| json!({"Attributes": {"LocalSecurity.1.LocalConfig": value}});
    let xcc = || (MANAGER, json!({"Model": "Lenovo XClarity Controller"}));
    vec![
        Vendor {
            name: "HPE",
            known_by: vendor("HPE"),
            resource: "/NetworkProtocol",
            open: hpe(true),
            closing: hpe(false),
            closed: vec![],
        },
        Vendor {
            name: "Lenovo, truth value",
            known_by: xcc(),
            resource: "",
            open: lenovo(json!(true)),
            closing: lenovo(json!(false)),
            closed: vec![],
        },
        Vendor {
            name: "Lenovo, text",
            known_by: xcc(),
            resource: "",
            open: lenovo(json!("Enabled")),
            closing: lenovo(json!("Disabled")),
            closed: vec![],
        },
        Vendor {
            name: "Supermicro",
            known_by: (SYSTEM, json!({"Manufacturer": "Supermicro"})),
            resource: "/Oem/Supermicro/KCSInterface",
            open: privilege("Administrator"),
            closing: privilege("Callback"),
            closed: vec![privilege("DisableKCS"), privilege("User")],
        },
        Vendor {
            name: "Dell",
            known_by: vendor("Dell"),
            resource: "/Oem/Dell/DellAttributes/iDRAC.Embedded.1",
            open: local_configuration_is_locked("Disabled"),
            closing: local_configuration_is_locked("Enabled"),
            closed: vec![],
        },
    ]
}

impl Vendor {
    fn path(&self) -> String {
        format!("{MANAGER}{}", self.resource)
    }

    /// Its BMC, with a neighbour of the switch that a change must leave as it is.
    async fn bmc(&self, hook: impl Fn(&Request, &mut State) -> Option<Answer> + Send + Sync + 'static) -> Bmc {
        let mut tree = standard_tree();
        let (path, property) = &self.known_by;
        merge(tree.get_mut(*path).unwrap(), property);
        let holder = tree.entry(self.path()).or_insert_with(|| json!({"Id": "holder"}));
        merge(holder, &self.open);
        merge(holder, &json!({"Neighbour": "as before"}));
        Bmc::start_with(tree, Duration::ZERO, hook).await
    }
}

/// The open switches of KCS.
async fn kcs(client: &BmcClient, name: &str) -> Vec<StateItem> {
    let scope = StateScope {
        own: "admin",
        in_band: true,
        uefi: false,
    };
    let state = client.bmc_state(scope).await.unwrap();
    let listed = state.parts.into_iter().find(|(part, _)| *part == StatePart::Kcs);
    match listed {
        Some((_, StateListed::Whole(items))) => items,
        other => panic!("{name}: {other:?}"),
    }
}

#[tokio::test]
async fn each_vendors_property_closes_kcs_by_one_change() {
    for vendor in vendors() {
        let bmc = vendor.bmc(|_, _| None).await;
        let client = bmc.connect().await;
        let open = kcs(&client, vendor.name).await;
        assert!(open.len() == 1 && open[0].is_open, "{}: {open:?}", vendor.name);
        client.remove_foreign(&open[0]).await.unwrap();
        let changes = bmc
            .server
            .requests()
            .into_iter()
            .filter(|request| request.method == "PATCH");
        let changes: Vec<(String, Value)> = changes.map(|request| (request.path, request.body)).collect();
        assert_eq!(changes, [(vendor.path(), vendor.closing.clone())], "{}", vendor.name);
        let left = kcs(&client, vendor.name).await;
        assert!(left.is_empty(), "{}: the second reading: {left:?}", vendor.name);
        let neighbour = bmc.state.lock().unwrap().tree[&vendor.path()]["Neighbour"].clone();
        assert_eq!(neighbour, "as before", "{}", vendor.name);
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn every_value_that_bounds_root_counts_as_closed() {
    for vendor in vendors() {
        for closed in vendor.closed.iter().chain([&vendor.closing]) {
            let bmc = vendor.bmc(|_, _| None).await;
            merge(bmc.state.lock().unwrap().tree.get_mut(&vendor.path()).unwrap(), closed);
            let client = bmc.connect().await;
            let left = kcs(&client, vendor.name).await;
            assert!(left.is_empty(), "{}: {closed}: {left:?}", vendor.name);
            client.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn kcs_that_stays_open_is_seen_by_the_second_reading_and_a_refusal_is_an_error() {
    for vendor in vendors() {
        for (answer, is_accepted) in [
            (Answer::status(204), true),
            (Answer::error(403, "Base.1.8.InsufficientPrivilege", "no"), false),
        ] {
            let bmc = vendor
                .bmc(move |request, _| (request.method == "PATCH").then(|| answer.clone()))
                .await;
            let client = bmc.connect().await;
            let open = kcs(&client, vendor.name).await;
            let outcome = client.remove_foreign(&open[0]).await;
            assert_eq!(outcome.is_ok(), is_accepted, "{}: {outcome:?}", vendor.name);
            assert_eq!(kcs(&client, vendor.name).await, open, "{}", vendor.name);
            client.close().await.unwrap();
        }
    }
}
