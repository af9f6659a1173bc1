//! Tests the client against `virtualbmc`, the IPMI server of OpenStack's tests, with a machine of libvirt's test
//! driver: another independent BMC.
//!
//! `tests/venv.sh` creates its environment in the target folder. This needs `python3` with `venv`, a package index and
//! Debian's `python3-libvirt`. Without them this test fails.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod matrix;
#[path = "../../redfish/tests/support_page/mod.rs"]
mod support_page;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rackwright_ipmi::{Account, BootDevice, Ipmi, IpmiError, Persistence, Power, PowerAction, RequestLimiter};
use tokio::process::{Child, Command};

const WAIT_LIMIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "virtual-password";
/// The driver recreates the machine when its last connection ends, so one connection must outlive the requests.
const PROGRAM: &str = "import sys, libvirt
from virtualbmc.vbmc import VirtualBMC
uri = 'test:///default'
kept_open = libvirt.open(uri)
VirtualBMC(username='admin', password=sys.argv[1], port=int(sys.argv[2]), address='127.0.0.1', domain_name='test',
           libvirt_uri=uri).listen()
";

async fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new(here.join("../../tests/venv.sh"))
        .arg(target.join("venv-virtualbmc"))
        .arg(here.join("tests/virtualbmc-requirements.txt"))
        .arg("libvirt")
        .stderr(Stdio::piped())
        .output()
        .await
        .unwrap();
    let words = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success(),
        "cannot make the environment of virtualbmc: {words}"
    );
    Path::new(String::from_utf8(made.stdout).unwrap().trim()).join("python")
}

/// Dropping this ends the program.
struct Virtual {
    child: Child,
    client: Ipmi,
}

impl Virtual {
    async fn start() -> Self {
        let port = rackwright_free_port::free_port().unwrap();
        let mut child = Command::new(python().await)
            .args(["-c", PROGRAM, PASSWORD, &port.to_string()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let client = client(port, PASSWORD);
        let started = Instant::now();
        while let Err(failure) = client.power().await {
            assert!(matches!(failure, IpmiError::NoAnswer { .. }), "{failure}");
            assert!(started.elapsed() < WAIT_LIMIT, "{failure}");
            assert!(child.try_wait().unwrap().is_none(), "virtualbmc has ended");
        }
        Self { child, client }
    }
}

fn client(port: u16, password: &str) -> Ipmi {
    let account = Account {
        username: "admin".to_owned(),
        password: password.into(),
    };
    let address = format!("ipmi://127.0.0.1:{port}?cipher=3");
    Ipmi::new(address.parse().unwrap(), account, Arc::new(RequestLimiter::default())).unwrap()
}

#[tokio::test]
async fn power_and_boot_of_a_machine_of_libvirt() {
    let mut bmc = Virtual::start().await;
    let client = &bmc.client;
    assert_eq!(client.power().await.unwrap(), Power::On);
    client
        .set_power(Power::Off, PowerAction::Off, WAIT_LIMIT)
        .await
        .unwrap();
    assert_eq!(client.power().await.unwrap(), Power::Off);
    for device in [BootDevice::Pxe, BootDevice::Cdrom, BootDevice::Disk] {
        let set = client.set_boot(device, Persistence::Once).await.unwrap();
        assert_eq!(set.seen.device, device);
        // libvirt stores the order of devices and no other flag.
        assert_eq!(set.deviations, ["the firmware type differs"]);
    }
    client.set_power(Power::On, PowerAction::On, WAIT_LIMIT).await.unwrap();
    client.power_cycle(WAIT_LIMIT).await.unwrap();
    assert_eq!(client.power().await.unwrap(), Power::On);
    assert_eq!(client.boot().await.unwrap().device, BootDevice::Disk, "it stays");
    // The BMC reports what it does not know, which is not a failure.
    assert_eq!(client.guid().await.unwrap(), None);
    assert_eq!(client.fru().await.unwrap().serial, None);
    assert!(!client.offers_console().await.unwrap());

    let report = matrix::report(client).await;
    support_page::check("virtualbmc, libvirt test driver (IPMI)", &report);
    bmc.child.kill().await.unwrap();
}
