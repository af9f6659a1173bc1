//! Tests the driver against a real Open vSwitch with its userspace datapath and hosts on its ports. The ports read back
//! as set, and frames pass or are blocked accordingly. Over TLS the driver accepts only the switch itself.
//!
//! The test restarts itself in new namespaces. Everything in them ends with the test.

mod support;

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use rackwright_ports::{
    Access, Address, Fingerprint, OpenVSwitch, OvsSettings, OwnCertificate, PortDriver, PortsError, SwitchConfig,
    TlsSettings, Version, Vlan, report,
};
use support::in_namespaces;
use tokio::net::TcpStream;

/// The switch's port for connections by TLS.
const TLS_PORT: u16 = 6640;
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Length of a datagram in bytes: two frames. With a single frame, the checksum is left to the network card, which
/// these hosts do not have.
const LENGTH: usize = 2000;
/// Time limit for a frame to arrive or a port to change.
const LIMIT: Duration = Duration::from_secs(30);
/// Pause between two sends while a frame is awaited.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs a program and returns its output.
fn run(dir: &Path, program: &str, arguments: &str) -> String {
    let mut command = Command::new(program);
    let output = command
        .args(arguments.split(' '))
        .env("OVS_RUNDIR", dir)
        .env("OVS_LOGDIR", dir)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{program} (Debian package openvswitch-switch): {error}"));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments}: {words}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A machine on a port of the switch: a network namespace with one interface.
struct Host {
    number: u8,
    socket: UdpSocket,
    /// The namespace lives as long as its thread. Dropping this sender ends the thread.
    _end: mpsc::Sender<()>,
}

impl Host {
    /// Plugs a host into the port `p<number>`.
    fn plug_in(dir: &Path, number: u8) -> Self {
        let (ready, thread) = mpsc::channel();
        let (plugged_in, link) = mpsc::channel();
        let (bound, socket) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let folder = dir.to_owned();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            ready.send(gettid()).expect("the test waits");
            link.recv().expect("the test plugs the host in");
            run(
                &folder,
                "ip",
                &format!("addr add 10.9.9.{number}/24 brd 10.9.9.255 dev nic"),
            );
            run(&folder, "ip", "link set nic up");
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9)).expect("a socket");
            socket.set_broadcast(true).expect("broadcasts are allowed");
            socket.set_read_timeout(Some(PAUSE)).expect("a time-out can be set");
            bound.send(socket).expect("the test waits");
            let _: Result<(), _> = ended.recv();
        });
        let thread = thread.recv().expect("the host starts");
        run(
            dir,
            "ip",
            &format!("link add p{number} type veth peer name nic netns {thread}"),
        );
        run(dir, "ip", &format!("link set p{number} up"));
        plugged_in.send(()).expect("the host waits");
        let socket = socket.recv().expect("the host is up");
        Self {
            number,
            socket,
            _end: end,
        }
    }

    fn send(&self, words: &str) {
        let words = format!("{words:LENGTH$}");
        let sent = self.socket.send_to(words.as_bytes(), (Ipv4Addr::new(10, 9, 9, 255), 9));
        sent.expect("a frame is sent");
    }

    /// The next frame, if it arrives within the pause.
    fn receive(&self) -> Option<String> {
        let mut frame = [0; 2 * LENGTH];
        let length = self.socket.recv(&mut frame).ok()?;
        Some(String::from_utf8_lossy(&frame[..length]).trim_end().to_owned())
    }
}

/// Sends `words` until the receiver gets them. Returns the frames received before.
fn until_received(from: &Host, to: &Host, words: &str) -> Vec<String> {
    let begun = Instant::now();
    let mut before = Vec::new();
    while begun.elapsed() < LIMIT {
        from.send(words);
        while let Some(frame) = to.receive() {
            if frame == words {
                return before;
            }
            before.push(frame);
        }
    }
    panic!("no frame from host {} to host {}: {before:?}", from.number, to.number);
}

/// Whether frames of `from`, which reach `witness`, pass to `to`. A frame of `marker` reaches `to` after them, so a
/// frame that has not arrived by then does not pass. Old flows may live for a moment after a change, so the check is
/// repeated.
fn await_passing(from: &Host, witness: &Host, to: &Host, marker: &Host, wanted: bool) {
    let begun = Instant::now();
    for round in 0.. {
        let (probe, mark) = (format!("probe {round}"), format!("mark {round}"));
        until_received(from, witness, &probe);
        let before = until_received(marker, to, &mark);
        if before.contains(&probe) == wanted {
            return;
        }
        assert!(
            begun.elapsed() < LIMIT,
            "frames from host {} to host {}: wanted {wanted}",
            from.number,
            to.number
        );
    }
}

/// Starts a switch with a bridge. `options` are further options of its OVSDB server.
fn start_switch(dir: &Path, options: &str) -> OpenVSwitch {
    let at = dir.display();
    let socket = dir.join("db.sock");
    let remote = socket.display();
    run(dir, "ovsdb-tool", &format!("create {at}/conf.db {SCHEMA}"));
    let server =
        format!("{at}/conf.db --remote=punix:{remote} --unixctl={at}/server.ctl --log-file={at}/server.log{options}");
    run(
        dir,
        "ovsdb-server",
        &format!("{server} --pidfile={at}/server.pid --detach"),
    );
    run(dir, "ovs-vsctl", &format!("--db=unix:{remote} --no-wait init"));
    let daemon = format!("unix:{remote} --disable-system --unixctl={at}/switch.ctl --log-file={at}/switch.log");
    run(
        dir,
        "ovs-vswitchd",
        &format!("{daemon} --pidfile={at}/switch.pid --detach"),
    );
    run(
        dir,
        "ovs-vsctl",
        &format!("--db=unix:{remote} add-br br0 -- set bridge br0 datapath_type=netdev"),
    );
    OpenVSwitch::new(OvsSettings {
        switch: "leaf-1".into(),
        address: Address::Unix(socket),
        tls: None,
        bridge: "br0".into(),
        timeout: Duration::from_secs(60),
    })
}

fn config(step: u64, ports: &[(&str, u16, bool)]) -> SwitchConfig {
    let access = |(port, vlan, isolated): &(&str, u16, bool)| {
        let access = Access {
            vlan: *vlan,
            isolated: *isolated,
        };
        ((*port).to_owned(), access)
    };
    SwitchConfig {
        version: Version { generation: 1, step },
        ports: ports.iter().map(access).collect(),
    }
}

async fn ports_are_moved_and_frames_follow(dir: &Path) {
    run(dir, "ip", "link set lo up");
    let switch = start_switch(dir, "");
    let db = format!("--db=unix:{}/db.sock", dir.display());
    let hosts: Vec<Host> = (1..=4).map(|number| Host::plug_in(dir, number)).collect();
    for host in &hosts {
        run(dir, "ovs-vsctl", &format!("{db} add-port br0 p{}", host.number));
    }
    let [one, two, three, four] = hosts.as_slice() else {
        panic!("four hosts")
    };
    let found = switch.read().await.expect("the switch answers");
    assert_eq!(found.ports["p1"].vlan, Vlan::Trunk([].into()), "a port as it was added");

    // Hosts 1 and 2 belong to one customer, 3 and 4 to another.
    let two_customers = [
        ("p1", 101, false),
        ("p2", 101, false),
        ("p3", 102, false),
        ("p4", 102, false),
    ];
    let applied = switch
        .apply(&config(1, &two_customers))
        .await
        .expect("the switch answers");
    assert!(applied.changed && applied.reading.in_effect);
    assert_eq!(run(dir, "ovs-vsctl", &format!("{db} get port p3 tag")).trim(), "102");
    await_passing(one, two, three, four, false);
    await_passing(three, four, two, one, false);
    assert!(
        !switch
            .apply(&config(1, &two_customers))
            .await
            .expect("the switch answers")
            .changed
    );

    // Host 3 moves to the first customer.
    assert!(
        switch
            .apply(&config(2, &[("p3", 101, false)]))
            .await
            .expect("the switch answers")
            .changed
    );
    await_passing(one, two, three, one, true);
    await_passing(three, two, four, four, false);

    // Hosts 1 and 2 are on the boot network. They reach the control plane (3) but not each other.
    let boot = [("p1", 10, true), ("p2", 10, true), ("p3", 10, false)];
    switch.apply(&config(3, &boot)).await.expect("the switch answers");
    await_passing(one, three, two, three, false);
    await_passing(two, three, one, three, false);

    // A manual change is read. An old wish is refused. A missing port leaves all ports unchanged.
    run(dir, "ovs-vsctl", &format!("{db} set port p1 tag=102 protected=false"));
    run(dir, "ovs-vsctl", &format!("{db} clear port p2 tag vlan_mode"));
    let found = switch.read().await.expect("the switch answers");
    assert_eq!(found.ports["p1"].vlan, Vlan::Access(102));
    assert_eq!(found.ports["p2"].vlan, Vlan::Trunk([].into()));
    let old = switch
        .apply(&config(2, &[("p1", 101, false)]))
        .await
        .expect_err("it is refused");
    assert!(matches!(old, PortsError::Superseded { .. }), "{old}");
    let missing = switch
        .apply(&config(4, &[("p1", 10, true), ("p9", 10, true)]))
        .await
        .expect_err("it is refused");
    assert!(matches!(missing, PortsError::NoPort { .. }), "{missing}");
    assert_eq!(
        switch.read().await.expect("the switch answers").ports["p1"].vlan,
        Vlan::Access(102)
    );
    let mended = switch.apply(&config(4, &boot)).await.expect("the switch answers");
    assert!(mended.reading.ports["p1"].is(Access {
        vlan: 10,
        isolated: true
    }));
    await_passing(one, three, four, four, false);

    // The database accepts a change while the switch process is halted, so nothing is proven.
    let pid = std::fs::read_to_string(dir.join("switch.pid")).expect("a process number");
    run(dir, "kill", &format!("-STOP {}", pid.trim()));
    let halted = switch
        .apply(&config(5, &[("p1", 101, false)]))
        .await
        .expect_err("it is refused");
    assert!(matches!(halted, PortsError::NotInEffect { .. }), "{halted}");
    run(dir, "kill", &format!("-CONT {}", pid.trim()));
    let begun = Instant::now();
    while let Err(error) = switch.apply(&config(5, &[("p1", 101, false)])).await {
        assert!(begun.elapsed() < LIMIT, "{error}");
    }
}

/// Makes a certificate and its key in files of that name.
fn certificate(dir: &Path, name: &str) -> Fingerprint {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    std::fs::write(dir.join(format!("{name}.crt")), made.cert.pem()).expect("the certificate is written");
    std::fs::write(dir.join(format!("{name}.key")), made.signing_key.serialize_pem()).expect("the key is written");
    Fingerprint::of(made.cert.der())
}

/// A driver that expects this certificate, and has the certificate of that name or none.
fn driver(dir: &Path, address: &str, certificate: Option<Fingerprint>, own: Option<&str>) -> OpenVSwitch {
    let own = own.map(|name| OwnCertificate {
        certificate: dir.join(format!("{name}.crt")),
        key: dir.join(format!("{name}.key")),
    });
    OpenVSwitch::new(OvsSettings {
        switch: "leaf-1".into(),
        address: address.parse().expect("an address"),
        tls: certificate.map(|certificate| TlsSettings { certificate, own }),
        bridge: "br0".into(),
        timeout: Duration::from_secs(60),
    })
}

async fn only_the_switch_itself_is_accepted(dir: &Path) {
    run(dir, "ip", "link set lo up");
    let (pin, other) = (certificate(dir, "switch"), certificate(dir, "other"));
    certificate(dir, "control-plane");
    let at = dir.display();
    let files = format!("--private-key={at}/switch.key --certificate={at}/switch.crt --ca-cert={at}/control-plane.crt");
    start_switch(dir, &format!(" --remote=pssl:{TLS_PORT}:127.0.0.1 {files}"));
    run(dir, "ip", "link add p1 type veth peer name nic");
    let db = format!("--db=unix:{at}/db.sock");
    run(dir, "ovs-vsctl", &format!("{db} add-port br0 p1"));
    let address = format!("ssl:127.0.0.1:{TLS_PORT}");
    let refused = async |driver: OpenVSwitch| {
        let error = driver.apply(&config(9, &[("p1", 102, false)])).await;
        error.expect_err("nothing is set")
    };

    let switch = driver(dir, &address, Some(pin), Some("control-plane"));
    let applied = switch.apply(&config(1, &[("p1", 101, false)])).await;
    assert!(applied.expect("the switch answers").changed);
    assert_eq!(
        switch.read().await.expect("the switch answers").ports["p1"].vlan,
        Vlan::Access(101)
    );

    // Another certificate at the address, no expected certificate, and a server without TLS are not the switch.
    let wrong = refused(driver(dir, &address, Some(other), Some("control-plane"))).await;
    let words =
        format!("switch leaf-1 at {address} is not proven: a server with another certificate answers, sha256:{pin};");
    assert!(
        matches!(wrong, PortsError::Unproven { .. }) && wrong.to_string().starts_with(&words),
        "{wrong}"
    );
    let none = refused(driver(dir, &address, None, Some("control-plane"))).await;
    assert!(matches!(none, PortsError::Unproven { .. }), "{none}");
    run(
        dir,
        "ovs-appctl",
        &format!("-t {at}/server.ctl ovsdb-server/add-remote ptcp:6641:127.0.0.1"),
    );
    // The server opens the port after its answer.
    let listens = async {
        while TcpStream::connect("127.0.0.1:6641").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let listens = tokio::time::timeout(Duration::from_secs(60), listens).await;
    listens.expect("the server opens the port");
    let by_tcp = driver(dir, "tcp:127.0.0.1:6641", None, None);
    assert!(by_tcp.read().await.expect("the switch answers").in_effect);
    let plain = refused(driver(dir, "ssl:127.0.0.1:6641", Some(pin), Some("control-plane"))).await;
    assert!(plain.to_string().contains("the TLS handshake failed"), "{plain}");

    // The switch refuses a client without the certificate that it trusts. A missing file is named.
    for own in [None, Some("other")] {
        let unknown = refused(driver(dir, &address, Some(pin), own)).await;
        assert!(
            matches!(unknown, PortsError::Unproven { .. } | PortsError::Broken { .. }),
            "{own:?}: {}",
            report(&unknown)
        );
    }
    let missing = refused(driver(dir, &address, Some(pin), Some("missing"))).await;
    assert!(missing.to_string().contains("missing.crt cannot be used"), "{missing}");
    assert_eq!(run(dir, "ovs-vsctl", &format!("{db} get port p1 tag")).trim(), "101");
}

#[test]
fn a_port_of_an_open_vswitch_is_in_the_requested_network() {
    in_namespaces(
        "a_port_of_an_open_vswitch_is_in_the_requested_network",
        || {},
        ports_are_moved_and_frames_follow,
    );
}

#[test]
fn over_tls_only_the_switch_with_the_expected_certificate_is_set() {
    in_namespaces(
        "over_tls_only_the_switch_with_the_expected_certificate_is_set",
        || {},
        only_the_switch_itself_is_accepted,
    );
}
