//! Operations that are refused for nodes with IPMI, and the messages.

use super::*;

const ADDRESS: &str = "ipmi://127.0.0.1:9?cipher=3&mac=52:54:00:00:00:07";

fn refused(site: &Site, arguments: &[&str]) -> String {
    let done = site.try_cli(arguments);
    let (out, words) = texts(&done);
    assert!(!done.status.success(), "{arguments:?}: {out}");
    words
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_of_ipmi_bmcs_are_given_and_not_changed() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start_with(dir.path(), "pxe", "bmc_accounts: {}\n").await;
    let site = &plane.site;
    let [good, long] = [("good", "0123456789abcdef"), ("long", "0123456789abcdef01234")].map(|(name, password)| {
        let file = dir.path().join(name);
        std::fs::write(&file, password).expect("the file can be written");
        file.display().to_string()
    });
    let enroll = ["node", "enroll", "n1", "--bmc", ADDRESS];
    let words = refused(site, &enroll);
    assert!(
        words.contains("is required over IPMI: the factory list is not tried there"),
        "{words}"
    );
    let with = |file| [&enroll[..], &["--user", "admin", "--password-file", file]].concat();
    let words = refused(site, &with(&long));
    assert!(words.contains("at most 20 bytes over IPMI"), "{words}");
    site.cli(with(&good));
    let words = refused(site, &["node", "update", "n1", "--password-file", &long]);
    assert!(words.contains("at most 20 bytes over IPMI"), "{words}");
    let words = refused(site, &["node", "bmc-password", "rotate", "n1", "--wait"]);
    assert!(
        words.contains("Rackwright changes no passwords over IPMI") && words.contains("node update"),
        "{words}"
    );
    // The address does not answer: the node waits for that, not for a password.
    let deadline = Instant::now() + TEST_LIMIT;
    while !site
        .cli(["node", "explain", "n1"])
        .contains("does not answer over IPMI")
    {
        assert!(Instant::now() < deadline, "{}", site.cli(["node", "explain", "n1"]));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let events = site.cli(["events", "--target", "nodes/n1", "-o", "json"]);
    assert!(
        !events.contains("bmc-password") && !events.contains("bmc-no-redfish"),
        "{events}"
    );
    plane.site.stop().await;
}
