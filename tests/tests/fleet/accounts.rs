//! Passwords of BMCs: from the factory's to one that only the control plane knows, and through a crash.

use rackwright_sim::fleet::{AccountRules, SimNode};

use super::*;

/// A BMC's login, from a command on the control plane's own host.
pub(super) fn known(site: &Site, id: &str) -> (String, String) {
    let config = site.dir().join("rackwrightd.yaml");
    let revealed = std::process::Command::new(program("rackwrightd"))
        .args(["bmc-password", id, "--reason", "a test", "--config"])
        .arg(config)
        .output()
        .expect("rackwrightd runs");
    let (out, err) = texts(&revealed);
    assert!(revealed.status.success(), "{out}{err}");
    let value = |name: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {out}")).trim().to_owned()
    };
    (value("username:"), value("password:"))
}

/// The stored login opens the BMC, and the factory's password does not.
fn check_own_password(site: &Site, node: &SimNode) -> (String, String) {
    let (user, password) = known(site, &node.name());
    assert!(node.opens(&user, &password), "{user} is refused");
    assert!(
        !node.opens(node.user(), &node.password()),
        "the factory's password is good still"
    );
    let (_, is_locked) = node.refusals(&user);
    assert!(!is_locked);
    (user, password)
}

async fn life(rules: AccountRules, settings: &str, user: &str) {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start_with(dir.path(), "pxe", settings).await;
    let config = FleetConfig {
        accounts: rules,
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let node = fleet.node(0);
    let id = node.name();
    let (name, first) = check_own_password(&plane.site, &node);
    assert_eq!(name, user);

    plane.site.cli(["node", "bmc-password", "rotate", &id, "--wait"]);
    let (_, second) = check_own_password(&plane.site, &node);
    assert_ne!(first, second);
    assert!(!node.opens(user, &first), "the former password is refused");

    // During the next rotation the control plane is killed.
    plane.site.cli(["node", "bmc-password", "rotate", &id]);
    plane.site.kill().await;
    plane.site.restart().await;
    let site = &plane.site;
    let deadline = Instant::now() + TEST_LIMIT;
    while node.opens(user, &second) || known(site, &id).1 == second {
        assert!(Instant::now() < deadline, "{}", site.cli(["node", "explain", &id]));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (_, third) = check_own_password(site, &node);

    let file = image(dir.path()).display().to_string();
    site.cli(["image", "add", "disk", "--file", &file]);
    site.cli(["node", "deploy", &id, "--image", "disk"]);
    site.until(&id, &["rebooting"], TEST_LIMIT).await;
    site.cli(["node", "release", "--yes", &id]);
    site.until(&id, &["available"], TEST_LIMIT).await;
    let (_, fourth) = check_own_password(site, &node);
    assert_ne!(third, fourth, "the former customer may have read the BMC's password");
    assert!(!node.opens(user, &third));

    // The password is not in any readable place.
    let data = dir.path().join("data/rackwright.db");
    let database = std::fs::read(data).expect("the database can be read");
    let written = site.cli(["events", "-o", "json"]) + &site.log_tail() + &site.cli(["node", "explain", &id]);
    for secret in [&first, &second, &third, &fourth, &node.password()] {
        assert!(!written.contains(secret.as_str()), "a password was written");
        let is_in = database.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_in, "a password is in the database");
    }
    // Stopped first: the control plane logs out of each BMC.
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_must_be_changed_becomes_ours_and_stays_so_through_a_crash() {
    let rules = AccountRules {
        must_change: true,
        needs_etag: true,
        lockout_threshold: Some(3),
        min_length: 13,
        ..AccountRules::default()
    };
    life(rules, "bmc_accounts: {}\n", "admin").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_of_our_own_is_made_in_a_free_slot() {
    let rules = AccountRules {
        slots: Some(16),
        lockout_threshold: Some(3),
        ..AccountRules::default()
    };
    life(rules, "bmc_accounts: {username: rackwright}\n", "rackwright").await;
}

/// Enrols one machine without name and password.
fn enrol_unknown(plane: &Plane, node: &SimNode) {
    let fingerprint = node
        .fingerprint()
        .expect("it has a certificate")
        .expect("it has a TLS certificate");
    plane.site.cli([
        "node",
        "enroll",
        &node.name(),
        "--bmc",
        &node.url(),
        "--bmc-certificate",
        &fingerprint,
    ]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_a_given_password_is_enrolled_with_a_factory_password() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start_with(dir.path(), "pxe", "bmc_accounts: {}\n").await;
    let config = FleetConfig {
        boot_server: Some(plane.dhcp),
        tftp_port: plane.tftp_port,
        accounts: AccountRules {
            lockout_threshold: Some(3),
            ..AccountRules::default()
        },
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.expect("the fleet starts");
    let (site, node) = (&plane.site, fleet.node(0));
    let add = |vendor: &str, password: &str, order: &str| {
        let file = dir.path().join("factory");
        std::fs::write(&file, password).expect("the file can be written");
        let file = file.display().to_string();
        let arguments = ["bmc", "credentials", "add", "--vendor", vendor, "--user", "admin"];
        site.cli(
            arguments
                .into_iter()
                .chain(["--order", order, "--password-file", &file]),
        );
    };
    add("Zenith*", "of another vendor", "1");
    add("rackwright*", "of a former year", "10");
    add("*", &node.password(), "20");
    let listed = site.cli(["bmc", "credentials", "list"]);
    assert!(
        listed.contains("Zenith*") && !listed.contains(&node.password()),
        "{listed}"
    );
    enrol_unknown(&plane, &node);
    site.until(&node.name(), &["available"], TEST_LIMIT).await;
    check_own_password(site, &node);
    // Stopped first: the control plane logs out of each BMC.
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_refused_is_sent_once_and_not_again_after_a_restart() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start_with(dir.path(), "pxe", "power_watch: {interval_s: 1, recheck_s: 1}\n").await;
    let config = FleetConfig {
        accounts: AccountRules {
            lockout_threshold: Some(3),
            lockout: Duration::from_secs(3600),
            ..AccountRules::default()
        },
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let node = fleet.node(0);
    let id = node.name();
    let wrong = dir.path().join("wrong");
    std::fs::write(&wrong, "no such password").expect("the file can be written");
    let wrong = wrong.display().to_string();
    plane.site.cli(["node", "update", &id, "--password-file", &wrong]);
    let refused = "security.bmc-login-refused";
    until_reported(&plane.site, &id, &["security.bmc-"], &[refused]).await;
    // Name and password are sent with the request, and once for a session if the request is refused.
    let (sent, is_locked) = node.refusals("admin");
    assert!((1..=2).contains(&sent) && !is_locked, "{sent}");
    plane.site.kill().await;
    plane.site.restart().await;
    // This operation needs the BMC, and reports the cause.
    let site = &plane.site;
    let tried = tokio::task::block_in_place(|| site.try_cli(["node", "power", &id, "on", "--wait"]));
    assert!(!tried.status.success());
    assert_eq!(node.refusals("admin"), (sent, false), "it was not tried again");
    let explained = site.cli(["node", "explain", &id]);
    assert!(
        explained.contains("refused") && explained.contains("bmc-password rotate"),
        "{explained}"
    );

    // The right password is accepted.
    let right = dir.path().join("right");
    std::fs::write(&right, node.password()).expect("the file can be written");
    let right = right.display().to_string();
    site.cli(["node", "update", &id, "--password-file", &right]);
    site.cli(["node", "power", &id, "on", "--wait"]);
    assert_eq!(node.refusals("admin"), (0, false));
    // Stopped first: the control plane logs out of each BMC.
    plane.site.stop().await;
    fleet.stop().await;
}
