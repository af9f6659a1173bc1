//! Tests the driver against a real NETCONF server with the OpenConfig modules: netconfd of yuma123, behind the SSH server
//! of OpenSSH. This server has the configuration of a switch and no ports, so it reports no operational state.
//!
//! The test restarts itself in new namespaces. Everything in them ends with the test.

mod support;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rackwright_ports::{
    Access, HostKey, Login, Netconf, NetconfSettings, PortDriver, PortsError, SshSettings, SwitchConfig, Version, Vlan,
    report,
};
use support::in_namespaces;

const USER: &str = "rackwright";
const PASSWORD: &str = "a password";
const PORT: u16 = 8300;
/// Time limit for a server to start, or to notice the end of a session.
const LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
const END: &str = "]]>]]>";
const BASE: &str = "urn:ietf:params:xml:ns:netconf:base:1.0";

/// Fetches the OpenConfig modules, and returns their folder.
fn modules() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("a target folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openconfig.sh");
    let made = Command::new(script)
        .arg(target.join("openconfig"))
        .stderr(Stdio::inherit())
        .output();
    let made = made.expect("openconfig.sh runs");
    assert!(
        made.status.success(),
        "the OpenConfig modules cannot be fetched (Debian package python3-venv, a package index)"
    );
    String::from_utf8_lossy(&made.stdout).trim().into()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {words}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[expect(
    clippy::disallowed_methods,
    reason = "programs and files outside of this process give no event"
)]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(PAUSE);
    }
}

/// A switch: netconfd, and sshd in front of it.
struct Switch {
    dir: PathBuf,
    netconfd: Child,
    sshd: Child,
    host_key: HostKey,
}

impl Switch {
    /// Starts a switch with the ports p1 to p3. `options` are further options of netconfd.
    fn start(dir: &Path, options: &[&str]) -> Self {
        run("ip", &["link", "set", "lo", "up"]);
        let at = dir.display();
        for key in ["host", "user", "other"] {
            let file = dir.join(key).display().to_string();
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &file]);
        }
        let crypted = run("openssl", &["passwd", "-6", PASSWORD]);
        let passwd = format!(
            "root:x:0:0::/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n{USER}:{}:1000:1000::{at}:/bin/sh\n",
            crypted.trim()
        );
        std::fs::write(dir.join("passwd"), passwd).expect("a file");
        run(
            "mount",
            &["--bind", &dir.join("passwd").display().to_string(), "/etc/passwd"],
        );
        let subsystem = format!("/usr/sbin/netconf-subsystem --ncxserver-sockname={PORT}@{at}/netconf.sock");
        let config = format!(
            "Port {PORT}\nListenAddress 127.0.0.1\nHostKey {at}/host\nPidFile none\nUsePAM no\nStrictModes no\n\
             AuthorizedKeysFile {at}/user.pub\nPasswordAuthentication yes\nSubsystem netconf \"{subsystem}\"\n"
        );
        std::fs::write(dir.join("sshd_config"), config).expect("a file");
        let port = |name: &str| {
            format!(
                "<interface><name>{name}</name><config><name>{name}</name><description>rack 7 &amp; 8</description>\
                 <type xmlns:t=\"urn:ietf:params:xml:ns:yang:iana-if-type\">t:ethernetCsmacd</type></config></interface>"
            )
        };
        let ports = ["p1", "p2", "p3"].map(port).concat();
        let start = format!(
            "<nc:config xmlns:nc=\"{BASE}\"><interfaces xmlns=\"http://openconfig.net/yang/interfaces\">{ports}</interfaces>\
             </nc:config>"
        );
        std::fs::write(dir.join("start.xml"), start).expect("a file");
        let netconfd = start_netconfd(dir, options);
        // A server without the rights of the superuser lets only its own user log in, who is in this namespace.
        let sshd = Command::new("unshare")
            .args([
                "--user",
                "--map-user=1000",
                "--map-group=1000",
                "/usr/sbin/sshd",
                "-D",
                "-e",
                "-f",
            ])
            .arg(dir.join("sshd_config"))
            .stderr(std::fs::File::create(dir.join("sshd.log")).expect("a file"))
            .spawn();
        let sshd = sshd.expect("sshd (Debian package openssh-server)");
        until("sshd listens", || {
            std::net::TcpStream::connect(("127.0.0.1", PORT)).is_ok()
        });
        let shown = run("ssh-keygen", &["-lf", &dir.join("host.pub").display().to_string()]);
        let host_key = shown
            .split(' ')
            .nth(1)
            .expect("a fingerprint")
            .parse()
            .expect("a fingerprint");
        Self {
            dir: dir.to_owned(),
            netconfd,
            sshd,
            host_key,
        }
    }

    fn settings(&self) -> NetconfSettings {
        NetconfSettings {
            switch: "leaf-1".into(),
            ssh: SshSettings {
                address: format!("ssh://127.0.0.1:{PORT}").parse().expect("an address"),
                host_key: self.host_key,
                user: USER.into(),
                login: Login::Key(self.dir.join("user")),
            },
            isolated: [10].into(),
            timeout: Duration::from_secs(60),
        }
    }

    fn driver(&self) -> Netconf {
        Netconf::new(self.settings())
    }

    /// A driver with other settings.
    fn driver_with(&self, change: impl FnOnce(&mut NetconfSettings)) -> Netconf {
        let mut settings = self.settings();
        change(&mut settings);
        Netconf::new(settings)
    }

    /// The number of logins so far.
    fn logins(&self) -> usize {
        let log = std::fs::read_to_string(self.dir.join("sshd.log")).expect("a log");
        log.matches("Accepted ").count()
    }
}

fn start_netconfd(dir: &Path, options: &[&str]) -> Child {
    let at = dir.display();
    let modules = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .with_file_name("openconfig")
        .join("yang");
    // A server that was killed leaves its socket behind.
    let socket = dir.join("netconf.sock");
    if socket.exists() {
        std::fs::remove_file(&socket).expect("a socket");
    }
    let child = Command::new("netconfd")
        .arg("--module=openconfig-vlan")
        .arg(format!("--modpath={}:/usr/share/yuma/modules", modules.display()))
        .arg(format!("--startup={at}/start.xml"))
        .arg(format!("--superuser={USER}"))
        .arg(format!("--port={PORT}"))
        .arg(format!("--ncxserver-sockname={at}/netconf.sock"))
        .arg(format!("--log={at}/netconfd.log"))
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child = child.expect("netconfd (Debian package netconfd)");
    until("netconfd listens", || {
        std::os::unix::net::UnixStream::connect(dir.join("netconf.sock")).is_ok()
    });
    child
}

/// A session of another program on the switch. It ends when this is dropped.
struct Other(Child);

impl Other {
    fn start(dir: &Path) -> Self {
        let child = Command::new("/usr/sbin/netconf-subsystem")
            .arg(format!("--ncxserver-sockname={PORT}@{}/netconf.sock", dir.display()))
            .env("SSH_CONNECTION", format!("127.0.0.1 1 127.0.0.1 {PORT}"))
            .env("USER", USER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut other = Self(child.expect("netconf-subsystem (Debian package netconfd)"));
        other.exchange(&format!(
            "<hello xmlns=\"{BASE}\"><capabilities><capability>urn:ietf:params:netconf:base:1.0</capability></capabilities></hello>"
        ));
        other
    }

    /// Sends a message and returns the answer.
    fn exchange(&mut self, message: &str) -> String {
        let (input, output) = (
            self.0.stdin.as_mut().expect("a pipe"),
            self.0.stdout.as_mut().expect("a pipe"),
        );
        input
            .write_all(format!("{message}{END}").as_bytes())
            .expect("the server reads");
        input.flush().expect("the server reads");
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(END.as_bytes()) {
            output.read_exact(&mut byte).expect("the server answers");
            answer.push(byte[0]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn call(&mut self, operation: &str) -> String {
        self.exchange(&format!(
            "<rpc message-id=\"1\" xmlns=\"{BASE}\" xmlns:nc=\"{BASE}\">{operation}</rpc>"
        ))
    }

    /// Edits a configuration.
    fn set(&mut self, datastore: &str, port: &str, leaves: &str) {
        let answer = self.call(&format!(
            "<edit-config><target><{datastore}/></target><config><interfaces \
             xmlns=\"http://openconfig.net/yang/interfaces\"><interface><name>{port}</name><ethernet \
             xmlns=\"http://openconfig.net/yang/interfaces/ethernet\"><switched-vlan xmlns=\"http://openconfig.net/yang/vlan\">\
             <config nc:operation=\"replace\">{leaves}</config></switched-vlan></ethernet></interface></interfaces></config>\
             </edit-config>"
        ));
        assert!(answer.contains("<ok/>"), "{answer}");
    }

    fn config(&mut self, datastore: &str) -> String {
        self.call(&format!("<get-config><source><{datastore}/></source></get-config>"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.0.kill();
        let _: std::io::Result<_> = self.0.wait();
    }
}

fn config(step: u64, ports: &[(&str, u16)]) -> SwitchConfig {
    let access = |(port, vlan): &(&str, u16)| {
        let (vlan, isolated) = (*vlan, *vlan == 10);
        ((*port).to_owned(), Access { vlan, isolated })
    };
    SwitchConfig {
        version: Version { generation: 1, step },
        ports: ports.iter().map(access).collect(),
    }
}

async fn refused(driver: &Netconf, step: u64, ports: &[(&str, u16)]) -> PortsError {
    driver.apply(&config(step, ports)).await.expect_err("it is refused")
}

async fn vlan(driver: &Netconf, port: &str) -> Vlan {
    driver.read().await.expect("the switch answers").ports[port]
        .vlan
        .clone()
}

/// Moves, the version, changes by hand.
async fn ports_are_moved(switch: &Switch, edited: &str) {
    let driver = switch.driver();
    let mut other = Other::start(&switch.dir);
    assert_eq!(
        vlan(&driver, "p1").await,
        Vlan::Other("no VLAN".into()),
        "a port as it was"
    );
    let both = [("p1", 10), ("p2", 10)];
    let applied = driver
        .apply(&config(1, &both))
        .await
        .unwrap_or_else(|error| panic!("{}", report(&error)));
    assert!(applied.changed && applied.reading.in_effect && !applied.operational);
    assert!(applied.reading.ports["p1"].is(Access {
        vlan: 10,
        isolated: true
    }));
    let running = other.config("running");
    assert_eq!(running.matches("<access-vlan>10</access-vlan>").count(), 2, "{running}");
    assert_eq!(
        running
            .matches("<description>rack 7 &amp; 8 [rackwright 1.1]</description>")
            .count(),
        2,
        "{running}"
    );
    assert!(
        !driver
            .apply(&config(1, &both))
            .await
            .expect("the switch answers")
            .changed
    );
    // One port moves.
    assert!(
        driver
            .apply(&config(2, &[("p2", 101)]))
            .await
            .expect("the switch answers")
            .changed
    );
    assert_eq!(
        (vlan(&driver, "p1").await, vlan(&driver, "p2").await),
        (Vlan::Access(10), Vlan::Access(101))
    );
    // A manual change is read, and mended.
    let trunk = "<interface-mode>TRUNK</interface-mode><native-vlan>4</native-vlan><trunk-vlans>6</trunk-vlans>\
                 <trunk-vlans>7</trunk-vlans>";
    other.set(edited, "p1", trunk);
    if edited == "candidate" {
        assert!(other.call("<commit/>").contains("<ok/>"));
    }
    assert_eq!(vlan(&driver, "p1").await, Vlan::Trunk([4, 6, 7].into()));
    assert!(
        driver
            .apply(&config(3, &both))
            .await
            .expect("the switch answers")
            .changed
    );
    let running = other.config("running");
    assert!(!running.contains("trunk") && !running.contains("native"), "{running}");
    // An old wish, a missing port and an isolation that the site does not give leave all ports unchanged.
    let old = refused(&driver, 2, &[("p1", 101)]).await;
    assert!(matches!(old, PortsError::Superseded { .. }), "{old}");
    let missing = refused(&driver, 4, &[("p1", 101), ("p9", 101)]).await;
    assert!(matches!(missing, PortsError::NoPort { .. }), "{missing}");
    let not_isolated = switch.driver_with(|settings| settings.isolated = [20].into());
    let not_isolated = refused(&not_isolated, 4, &both).await;
    assert!(
        not_isolated.to_string().contains("VLAN 10, isolated was requested"),
        "{not_isolated}"
    );
    assert_eq!(other.config("running"), running);
}

/// Host keys and logins.
async fn only_the_switch_is_trusted(switch: &Switch) {
    let before = switch.logins();
    let print: HostKey = "SHA256:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"
        .parse()
        .expect("a fingerprint");
    let wrong = refused(
        &switch.driver_with(|settings| settings.ssh.host_key = print),
        9,
        &[("p1", 102)],
    )
    .await;
    let words = format!(
        "switch leaf-1 at ssh://127.0.0.1:{PORT} is not proven: a server with another host key answers, {};",
        switch.host_key
    );
    assert!(wrong.to_string().starts_with(&words), "{wrong}");
    let log = std::fs::read_to_string(switch.dir.join("sshd.log")).expect("a log");
    assert!(
        !log.contains("Failed ") && !log.contains("nvalid user"),
        "no login was tried: {log}"
    );
    for (user, login) in [
        (USER, Login::Key(switch.dir.join("other"))),
        ("unknown", Login::Key(switch.dir.join("user"))),
        (USER, Login::Password(switch.dir.join("other"))),
    ] {
        let driver = switch.driver_with(|settings| (settings.ssh.user, settings.ssh.login) = (user.into(), login));
        let error = refused(&driver, 9, &[("p1", 102)]).await;
        assert!(
            error
                .to_string()
                .contains(&format!("the switch refuses the login of user {user:?}")),
            "{error}"
        );
    }
    for (file, words) in [
        ("missing", "missing cannot be used"),
        ("sshd_config", "is not a private key"),
    ] {
        let driver = switch.driver_with(|settings| settings.ssh.login = Login::Key(switch.dir.join(file)));
        let error = refused(&driver, 9, &[("p1", 102)]).await;
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(switch.logins(), before);
    std::fs::write(switch.dir.join("password"), format!("{PASSWORD}\n")).expect("a file");
    let driver = switch.driver_with(|settings| settings.ssh.login = Login::Password(switch.dir.join("password")));
    driver.read().await.unwrap_or_else(|error| panic!("{}", report(&error)));
}

/// Locks of other sessions.
async fn a_lock_is_awaited(switch: &Switch, edited: &str) {
    let mut holder = Other::start(&switch.dir);
    assert!(
        holder
            .call(&format!("<lock><target><{edited}/></target></lock>"))
            .contains("<ok/>")
    );
    let hasty = switch.driver_with(|settings| settings.timeout = Duration::from_secs(20));
    let locked = refused(&hasty, 20, &[("p1", 120)]).await;
    let words = locked.to_string();
    assert!(
        words.starts_with("switch leaf-1: session ") && words.contains("has locked its configuration"),
        "{locked}"
    );
    assert!(driver_reads(&hasty).await, "a lock does not stop readings");
    let waiting = tokio::task::LocalSet::new();
    let driver = switch.driver();
    let applied = waiting.run_until(async {
        let applied = tokio::task::spawn_local(async move { driver.apply(&config(20, &[("p1", 120)])).await });
        let logins = switch.logins();
        until_async("the driver logs in", || switch.logins() > logins).await;
        drop(holder);
        applied.await.expect("the task ends")
    });
    assert!(
        applied
            .await
            .unwrap_or_else(|error| panic!("{}", report(&error)))
            .changed
    );
}

async fn driver_reads(driver: &Netconf) -> bool {
    driver.read().await.is_ok()
}

async fn until_async(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Changes that end in the middle.
async fn a_change_that_is_cut_off_leaves_the_old_or_the_new_state(switch: &Switch) {
    let driver = switch.driver();
    let begun = Instant::now();
    driver
        .apply(&config(30, &[("p1", 130), ("p2", 130)]))
        .await
        .expect("the switch answers");
    // A dozen places in the middle of a change, also on a slow computer.
    let part = begun.elapsed() / 12;
    let (mut cuts, mut delay) = ((0, 0), Duration::ZERO);
    for step in 31.. {
        let vlan = 100 + u16::try_from(step).expect("a small number");
        let before = driver.read().await.expect("the switch answers").ports;
        let wanted = config(step, &[("p1", vlan), ("p2", vlan)]);
        let is_cut = tokio::time::timeout(delay, driver.apply(&wanted)).await.is_err();
        let after = driver.read().await.expect("the switch answers").ports;
        let is_new = after["p1"].vlan == Vlan::Access(vlan) && after["p2"] == after["p1"];
        assert!(is_new || after == before, "after {delay:?}: {after:?}");
        if !is_cut {
            break;
        }
        // No lock and no half of a change are left: the switch closes the session of the driver by itself.
        let other = switch.driver_with(|settings| settings.timeout = Duration::from_secs(20));
        let next = config(step, &[("p3", vlan)]);
        other
            .apply(&next)
            .await
            .unwrap_or_else(|error| panic!("after {delay:?}: {}", report(&error)));
        assert_eq!(
            driver.read().await.expect("the switch answers").ports["p1"],
            after["p1"]
        );
        cuts = if is_new {
            (cuts.0, cuts.1 + 1)
        } else {
            (cuts.0 + 1, cuts.1)
        };
        delay += part;
    }
    assert!(cuts.0 > 2, "{cuts:?}");
}

/// Servers that are gone.
async fn a_switch_that_is_gone_is_named(mut switch: Switch) {
    let driver = switch.driver();
    switch.netconfd.kill().expect("it runs");
    switch.netconfd.wait().expect("it ends");
    let gone = driver.read().await.expect_err("no server answers");
    assert!(report(&gone).contains("leaf-1"), "{}", report(&gone));
    switch.sshd.kill().expect("it runs");
    switch.sshd.wait().expect("it ends");
    let gone = driver.read().await.expect_err("no server answers");
    let words = format!("switch leaf-1 cannot be reached at ssh://127.0.0.1:{PORT}");
    assert!(report(&gone).starts_with(&words), "{}", report(&gone));
}

async fn a_switch_with_a_candidate(dir: &Path) {
    let switch = Switch::start(dir, &["--target=candidate"]);
    ports_are_moved(&switch, "candidate").await;
    only_the_switch_is_trusted(&switch).await;
    a_lock_is_awaited(&switch, "candidate").await;
    edits_of_others_are_not_committed(&switch).await;
    a_change_that_is_cut_off_leaves_the_old_or_the_new_state(&switch).await;
    a_switch_that_is_gone_is_named(switch).await;
}

/// An edit that another session left in the candidate is not committed with a move.
async fn edits_of_others_are_not_committed(switch: &Switch) {
    let driver = switch.driver();
    let mut other = Other::start(&switch.dir);
    other.set(
        "candidate",
        "p3",
        "<interface-mode>ACCESS</interface-mode><access-vlan>666</access-vlan>",
    );
    let hasty = switch.driver_with(|settings| settings.timeout = Duration::from_secs(20));
    let modified = refused(&hasty, 25, &[("p1", 125)]).await;
    assert!(modified.to_string().contains("leaf-1"), "{modified}");
    assert!(other.call("<discard-changes/>").contains("<ok/>"));
    driver
        .apply(&config(25, &[("p1", 125)]))
        .await
        .unwrap_or_else(|error| panic!("{}", report(&error)));
    assert_ne!(vlan(&driver, "p3").await, Vlan::Access(666));
}

async fn a_switch_without_a_candidate(dir: &Path) {
    let options = ["--target=running", "--protocols=netconf1.0", "--with-startup=true"];
    let mut switch = Switch::start(dir, &options);
    ports_are_moved(&switch, "running").await;
    a_lock_is_awaited(&switch, "running").await;
    a_change_that_is_cut_off_leaves_the_old_or_the_new_state(&switch).await;
    // The moves stay when the switch starts again.
    let driver = switch.driver();
    driver
        .apply(&config(500, &[("p1", 150)]))
        .await
        .expect("the switch answers");
    switch.netconfd.kill().expect("it runs");
    switch.netconfd.wait().expect("it ends");
    switch.netconfd = start_netconfd(dir, &options);
    assert_eq!(vlan(&driver, "p1").await, Vlan::Access(150));
}

fn fetch() {
    modules();
}

#[test]
fn ports_of_a_netconf_server_with_a_candidate_configuration_are_moved() {
    in_namespaces(
        "ports_of_a_netconf_server_with_a_candidate_configuration_are_moved",
        fetch,
        a_switch_with_a_candidate,
    );
}

#[test]
fn ports_of_a_netconf_server_that_edits_its_running_configuration_are_moved() {
    in_namespaces(
        "ports_of_a_netconf_server_that_edits_its_running_configuration_are_moved",
        fetch,
        a_switch_without_a_candidate,
    );
}
