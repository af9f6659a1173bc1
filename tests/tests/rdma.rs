//! The traffic program between two machines with RDMA adapters in software (soft-RoCE): real kernels, the real libibverbs,
//! and a cable between them. `make images` builds the machines (images/rdma); QEMU must be 7.2 or newer.

#![allow(clippy::disallowed_methods)] // a test may read clocks, and wait for what it started

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rackwright_tests::site::images;
use serde_json::Value;

/// Time limit for both starts, emulated, on a busy computer.
const LIMIT: Duration = Duration::from_secs(240);
const SETTINGS: &str = "cd /run\nexport RACKWRIGHT_TRAFFIC_TOKEN=00112233445566778899aabbccddeeff\n";
const SERVER: &str = "\
ready=$(./rackwright-traffic serve --deadline-s 600 --port 4242)
pid=${ready#*pid??}
echo \"runs $(busybox readlink /proc/${pid%%,*}/exe)\"
sleep 600
";
/// The address of the link is derived from the MAC address.
const CLIENT: &str = "\
peer=[fe80::5054:ff:fe00:1]:4242
measure() { name=$1; shift; echo \"$name $(./rackwright-traffic run \"$@\")\"; }
tries=0
while [ $tries -lt 200 ] && ./rackwright-traffic run --ms 10 --one-way --tcp rxe0=$peer | grep -q error; do
    tries=$((tries + 1))
    sleep 0.2
done
measure lane --ms 1000 --streams 2 rxe0=$peer
measure named --ms 500 --streams 2 rxe0/rxe0=10.9.0.1:4242
measure tcp --ms 500 --tcp rxe0=$peer
measure unknown --ms 500 rxe0/rxe7=10.9.0.1:4242
RACKWRIGHT_TRAFFIC_TOKEN=ffffffffffffffffffffffffffffffff measure stranger --ms 500 rxe0=$peer
mv /dev/infiniband /dev/elsewhere
measure device --ms 500 rxe0=$peer
mv /dev/elsewhere /dev/infiniband
mv /usr/lib/x86_64-linux-gnu/libibverbs.so.1 /run/
measure library --ms 500 rxe0=$peer
mv /run/libibverbs.so.1 /usr/lib/x86_64-linux-gnu/
measure broken --ms 60000 --one-way rxe0=$peer &
# Not before it sends.
sent() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }
before=$(sent) tries=0
while [ $tries -lt 200 ] && [ $(sent) -lt $((before + 500)) ]; do
    tries=$((tries + 1))
    sleep 0.1
done
echo \"rdma: now\"
wait
";

struct Machine {
    process: Child,
    serial: PathBuf,
    monitor: PathBuf,
}

impl Machine {
    /// `cable`: options of this end of the cable in addition to its socket.
    fn start(dir: &Path, last: u8, script: &str, cable: &str) -> Self {
        let images = images();
        let disk = dir.join(format!("{last}.tar"));
        let folder = dir.join(last.to_string());
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("script"), format!("{SETTINGS}{script}")).expect("the script");
        let packed = Command::new("tar")
            .args(["-c", "-f"])
            .arg(&disk)
            .arg("-C")
            .arg(&folder)
            .arg("script")
            .arg("-C")
            .arg(&images)
            .arg("rackwright-traffic")
            .status();
        assert!(packed.expect("tar runs").success(), "`make images` builds the program");
        let serial = dir.join(format!("{last}.log"));
        let monitor = dir.join(format!("{last}.monitor"));
        let socket = dir.join("cable");
        let words = format!(
            "-machine q35 -accel tcg,tb-size=64 -cpu max -m 384 -nodefaults -display none -no-reboot \
             -netdev stream,id=net,{cable},addr.type=unix,addr.path={} -device virtio-net-pci,netdev=net,mac=52:54:00:00:00:0{last} \
             -drive file={},format=raw,if=virtio,readonly=on -serial file:{} -monitor unix:{},server=on,wait=off",
            socket.display(),
            disk.display(),
            serial.display(),
            monitor.display()
        );
        let process = Command::new("qemu-system-x86_64")
            .args(words.split_whitespace())
            .arg("-kernel")
            .arg(images.join("rdma/vmlinuz"))
            .arg("-initrd")
            .arg(images.join("rdma/initrd"))
            .arg("-append")
            .arg(format!("console=ttyS0 quiet loglevel=1 panic=-1 address=10.9.0.{last}"))
            .stdin(Stdio::null())
            .stderr(File::create(dir.join(format!("{last}.errors"))).expect("a file"))
            .spawn()
            .expect("QEMU starts");
        Self {
            process,
            serial,
            monitor,
        }
    }

    /// Drops all packets to this end from now on, like a pulled cable. The other end may continue to send: if QEMU ended
    /// instead, soft-RoCE's last packets could stay in the other network card for ever, and no retry would follow.
    fn pull_cable(&self) {
        let mut monitor = UnixStream::connect(&self.monitor).expect("QEMU's monitor");
        monitor.set_read_timeout(Some(LIMIT)).expect("a limit");
        monitor.write_all(b"set_link net off\n").expect("the monitor listens");
        // A prompt before the command and a prompt after it.
        let mut printed = String::new();
        while printed.matches("(qemu) ").count() < 2 {
            let mut bytes = [0; 256];
            let count = monitor.read(&mut bytes).expect("the monitor answers");
            assert!(count > 0, "the monitor hung up: {printed}");
            printed.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        assert!(!printed.contains("Error"), "{printed}");
    }

    fn log(&self) -> String {
        let bytes = std::fs::read(&self.serial).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Polls until the condition holds; the machines have no other way to report.
fn until(what: &str, machines: &[&Machine], mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        let logs: Vec<String> = machines.iter().map(|machine| machine.log()).collect();
        assert!(begun.elapsed() < LIMIT, "{what}:\n{}", logs.join("\n----\n"));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The only lane of the measurement with that name.
fn lane(log: &str, name: &str) -> Value {
    let line = log.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let report: Value = serde_json::from_str(line.unwrap_or_default()).unwrap_or_else(|e| panic!("{name}: {e}\n{log}"));
    report["lanes"][0].clone()
}

fn is_whole(lane: &Value, transport: &str) {
    assert_eq!(
        (&lane["transport"], &lane["error"]),
        (&transport.into(), &Value::Null),
        "{lane}"
    );
    for direction in ["sent", "received"] {
        let (bytes, seconds) = (lane[direction]["bytes"].as_f64(), lane[direction]["seconds"].as_f64());
        let (bytes, seconds) = (bytes.expect("bytes"), seconds.expect("seconds"));
        assert!(bytes >= 262_144.0 && seconds > 0.0 && seconds < 30.0, "{lane}");
        let rate = lane[direction]["gbit_per_s"].as_f64().expect("a rate");
        assert!((rate - bytes * 8.0 / 1e9 / seconds).abs() < 1e-9, "{lane}");
    }
    let (p50, p99) = (&lane["round_trip"]["p50_us"], &lane["round_trip"]["p99_us"]);
    assert!(p50.as_f64() > Some(0.0) && p50.as_f64() <= p99.as_f64(), "{lane}");
}

fn assert_contains(lane: &Value, key: &str, words: &str) {
    assert!(
        lane[key].as_str().is_some_and(|text| text.contains(words)),
        "{words:?}: {lane}"
    );
}

#[test]
fn two_machines_measure_by_rdma_or_report_why_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Machine::start(dir.path(), 1, SERVER, "server=on");
    until("the cable is there", &[&server], || dir.path().join("cable").exists());
    let client = Machine::start(dir.path(), 2, CLIENT, "server=off");
    until("the client has measured", &[&server, &client], || {
        client.log().contains("rdma: now")
    });
    // During a measurement.
    server.pull_cable();
    until("the client comes to its end", &[&client], || {
        client.log().contains("rdma: the end")
    });
    let log = client.log();
    for line in log.lines().filter(|line| line.contains("{\"lanes\"")) {
        println!("{line}");
    }

    // By this line the control plane identifies the process that it may end (crates/validate/src/traffic.sh).
    assert!(
        server.log().contains("runs /memfd:rackwright-traffic"),
        "{}",
        server.log()
    );
    is_whole(&lane(&log, "lane"), "rdma");
    is_whole(&lane(&log, "named"), "rdma");
    let tcp = lane(&log, "tcp");
    is_whole(&tcp, "tcp");
    assert_eq!(tcp["no_rdma"], Value::Null, "it was not requested: {tcp}");
    assert_contains(
        &lane(&log, "unknown"),
        "error",
        "RDMA is not possible: there: there is no adapter rxe7",
    );
    assert!(lane(&log, "stranger")["error"].is_string(), "{log}");
    let broken = lane(&log, "broken");
    assert_eq!(broken["transport"], "rdma");
    assert_contains(&broken, "error", "rxe0 port 1: IBV_WC_RETRY_EXC_ERR");
    for (name, why) in [
        ("device", "libibverbs does not list rxe0"),
        ("library", "libibverbs.so.1 cannot be loaded"),
    ] {
        let lane = lane(&log, name);
        is_whole(&lane, "tcp");
        assert_contains(&lane, "no_rdma", why);
    }
}
