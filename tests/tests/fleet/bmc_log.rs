//! The event log of BMCs, read and cleared through the control plane.

use super::*;

fn log_of(site: &Site, arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["node", "bmc-log"].iter().chain(arguments).copied().collect();
    tokio::task::block_in_place(|| site.json(all))
}

fn refusal(site: &Site, arguments: &[&str]) -> String {
    let output = tokio::task::block_in_place(|| site.try_cli(arguments));
    let (out, err) = texts(&output);
    assert!(!output.status.success(), "{arguments:?} worked: {out}");
    err
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_event_log_of_a_bmc_is_read_and_cleared_and_an_unsupported_ac_cycle_is_refused() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let fleet = plane.machines(FleetConfig::default(), Arc::new(Seen::default())).await;
    let (site, id) = (&plane.site, fleet.node(0).name());
    let cached = log_of(site, &[&id, "--cached"]);
    assert!(
        cached.get("readTime").is_none() && cached.get("read_time").is_none(),
        "{cached}"
    );

    // The inspection powered it on and off.
    let read = log_of(site, &[&id]);
    let entries = read["entries"].as_array().expect("entries").clone();
    assert!(entries.len() >= 2, "{read}");
    let newest = entries[0]["message"].as_str().expect("a text");
    assert!(
        newest.contains("ForceOff") || newest.contains("GracefulShutdown"),
        "{read}"
    );
    assert!(
        entries
            .iter()
            .any(|entry| entry["message"].as_str().is_some_and(|text| text.contains("Reset On")))
    );
    assert_eq!(read["logs"][0]["id"], "SEL", "{read}");
    let critical = log_of(site, &[&id, "--cached", "--severity", "critical"]);
    assert!(
        critical
            .get("entries")
            .is_none_or(|list| list.as_array().is_some_and(Vec::is_empty)),
        "{critical}"
    );
    let future = log_of(site, &[&id, "--cached", "--since", "2999-01-01T00:00:00Z"]);
    assert!(
        future
            .get("entries")
            .is_none_or(|list| list.as_array().is_some_and(Vec::is_empty)),
        "{future}"
    );

    let printed = tokio::task::block_in_place(|| site.cli(["node", "bmc-log", "clear", &id, "--yes"]));
    assert_eq!(printed.trim(), format!("{id}: cleared SEL"));
    let cleared = log_of(site, &[&id, "--cached"]);
    let left = cleared["entries"].as_array().expect("entries");
    assert_eq!(
        (left.len(), left[0]["message"].as_str()),
        (1, Some("The event log was cleared.")),
        "{cleared}"
    );
    until_reported(site, &id, &["bmc.clear"], &["bmc.clear"]).await;

    let err = refusal(site, &["node", "bmc-log", "clear", &id, "--log", "Lclog", "--yes"]);
    assert!(err.contains("does not offer clearing Lclog; it offers: SEL"), "{err}");
    let err = refusal(site, &["node", "power", &id, "ac-cycle", "--wait"]);
    assert!(err.contains("does not offer an AC cycle"), "{err}");
    let err = refusal(site, &["node", "bmc-log", "nobody"]);
    assert!(err.contains("nobody"), "{err}");

    let file = image(dir.path()).display().to_string();
    site.cli(["image", "add", "disk", "--file", &file]);
    site.cli(["node", "deploy", &id, "--image", "disk"]);
    let err = refusal(site, &["node", "power", &id, "ac-cycle"]);
    assert!(
        err.contains("stops everything that runs on it") && err.contains("--force"),
        "{err}"
    );
    plane.site.stop().await;
    fleet.stop().await;
}
