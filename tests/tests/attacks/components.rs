//! A customer changes the firmware of a component: a GPU, a network card. Components sign their measurements by SPDM, and
//! the BMC passes them on.

use rackwright_sim::fleet::ComponentFault;

use crate::firmware::Bench;

const GPUS: [&str; 2] = ["GPU_0", "GPU_1"];
const LINK: &str = "/redfish/v1/Chassis/GPU_1";

/// A control plane and two machines with approved firmware; a machine with other firmware is held.
async fn held() -> (Bench, [String; 2], String) {
    let bench = Bench::start_fitted("identity: {firmware: hold}\n", &GPUS).await;
    // A BMC that makes each signature a task.
    bench.fleet.node(1).set_component_fault("GPU_0", ComponentFault::ByTask);
    let ids = bench.ids();
    for id in &ids {
        bench.until(id, "failed").await;
    }
    let golden = bench.approve(&ids[0], None);
    assert_eq!(bench.approve(&ids[1], None), golden, "one SKU and one firmware");
    for id in &ids {
        bench.site.cli(["node", "retry", id]);
        bench.until(id, "available").await;
        let explained = bench.explained(id);
        assert!(
            explained.contains(&format!("golden values {golden}, approved by"))
                && explained.contains("signed by the component: /redfish/v1/Chassis/GPU_0, /redfish/v1/Chassis/GPU_1"),
            "{explained}"
        );
    }
    let list = bench.site.cli(["firmware", "golden", "list"]);
    assert!(list.contains("2 signed"), "{list}");
    (bench, ids, golden)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_with_firmware_that_a_customer_changed_holds_the_machine_until_an_operator_approves_it() {
    let (bench, [attacked, honest], first) = held().await;
    bench.deploy(&attacked);
    bench.until(&attacked, "active").await;
    let before = bench.events(&attacked).len();
    bench.fleet.node(0).write_component("GPU_1", "1+");
    bench.site.cli(["node", "release", "--yes", &attacked]);
    bench.until(&attacked, "quarantined").await;
    let reason = bench.site.reason(&attacked);
    for words in [
        &format!("component {LINK}: index 2 (mutable firmware) is "),
        "index 3 (firmware version) is 312b and should be 31",
        &first,
    ] {
        assert!(reason.contains(words), "{words}: {reason}");
    }
    assert!(!reason.contains("GPU_0") && !reason.contains("PCR"), "{reason}");
    assert!(bench.fleet.node(0).installed().is_some(), "it did not erase either");
    let events = bench.events(&attacked);
    assert_eq!(events.len(), before + 1, "two sessions, one event: {events:?}");
    let attributes = &events[before]["attributes"];
    assert_eq!(attributes[format!("component {LINK} 3_expected")], "31");
    assert_eq!(attributes[format!("component {LINK} 3_found")], "312b");

    // The honest machine continues meanwhile.
    bench.deploy(&honest);
    bench.until(&honest, "active").await;

    let second = bench.approve(&attacked, None);
    assert_ne!(second, first);
    bench.site.cli(["node", "readmit", "--yes", &attacked]);
    bench.until(&attacked, "available").await;
    bench.deploy(&attacked);
    bench.until(&attacked, "active").await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_statements_of_a_bmc_about_a_component_are_refused() {
    let (bench, ids, first) = held().await;
    // The firmware is the approved one, so only the proof differs.
    for round in [
        [
            (ComponentFault::Replays, "has another nonce"),
            (ComponentFault::Forges, "the signature is wrong"),
        ],
        [
            (ComponentFault::Unsigned, "is reported by the BMC only"),
            (ComponentFault::Gone, "is not shown by the BMC"),
        ],
    ] {
        for (index, (fault, _)) in round.into_iter().enumerate() {
            bench.fleet.node(index).set_component_fault("GPU_1", fault);
            bench.deploy(&ids[index]);
        }
        for (index, (fault, words)) in round.into_iter().enumerate() {
            let (id, node) = (&ids[index], bench.fleet.node(index));
            bench.until(id, "quarantined").await;
            let reason = bench.site.reason(id);
            assert!(
                reason.contains(&format!("component {LINK}")) && reason.contains(words),
                "{fault:?}: {reason}"
            );
            assert!(node.installed().is_none(), "{fault:?}: it got an image");
            if fault == ComponentFault::Replays {
                let add = ["firmware", "golden", "add", "--from-node", id, "--reason", "x"];
                let refused = bench.site.try_cli(add);
                assert!(!refused.status.success(), "what is not proven cannot be approved");
            }
            node.set_component_fault("GPU_1", ComponentFault::None);
            bench.site.cli(["node", "readmit", "--yes", id]);
        }
        for id in &ids {
            bench.until(id, "available").await;
        }
    }

    let replaced = &ids[1];
    // A component with the same firmware and another key.
    bench.fleet.node(1).fit_component("GPU_1").expect("it has a key");
    bench.deploy(replaced);
    bench.until(replaced, "quarantined").await;
    let reason = bench.site.reason(replaced);
    assert!(
        reason.contains("signs with key") && reason.contains("exchanged"),
        "{reason}"
    );
    assert_eq!(bench.approve(replaced, None), first, "the values are the approved ones");
    bench.site.cli(["node", "readmit", "--yes", replaced]);
    bench.until(replaced, "available").await;
    bench.end().await;
}
