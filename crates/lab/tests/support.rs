//! Rackwright's own Redfish client and the BMC of a lab's machine.
#![allow(clippy::unwrap_used)]

#[path = "../../redfish/tests/support_page/mod.rs"]
mod support_page;

use rackwright_lab::{self as lab, Lab, LabConfig};
use rackwright_redfish::{BmcClient, BmcTarget, Settings};

#[test]
fn the_labs_bmc_offers_what_the_page_says() {
    lab::run_test("the_labs_bmc_offers_what_the_page_says", async |namespace| {
        let lab = Lab::start(&namespace, LabConfig::default()).await.unwrap();
        let bmc = lab.machine(0).bmc();
        let target = BmcTarget {
            address: bmc.url.clone(),
            username: bmc.user.clone(),
            password: bmc.password().into(),
            certificate_sha256: Some(bmc.fingerprint.parse().unwrap()),
            system: None,
        };
        let client = BmcClient::connect(target, Settings::default()).await.unwrap();
        support_page::check("lab, QEMU", &client.probe().await.unwrap());
        client.close().await.unwrap();
    });
}
