//! Tests the client against OpenIPMI's `ipmi_sim`, and against a program that simulates a faulty `ipmitool`.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod matrix;
mod simulator;
#[path = "../../redfish/tests/support_page/mod.rs"]
mod support_page;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rackwright_ipmi::{BootDevice, IpmiError, Persistence, Power, PowerAction, RequestLimiter};
use simulator::{PASSWORD, Simulator, USER, client, script, serial};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn power_boot_and_identity() {
    let (_serial, port) = serial().await;
    let mut bmc = Simulator::start(port).await;
    let client = bmc.connect(&Arc::default()).await;

    client.set_power(Power::Off, PowerAction::Off, LIMIT).await.unwrap();
    assert_eq!(bmc.calls(), [""; 0], "it is off");
    client.set_power(Power::On, PowerAction::On, LIMIT).await.unwrap();
    assert_eq!(bmc.calls(), ["power=1"]);
    client.act(PowerAction::Reset).await.unwrap();
    assert_eq!(bmc.calls(), ["reset=1"]);
    client.power_cycle(LIMIT).await.unwrap();
    assert_eq!(bmc.calls(), ["power=0", "power=1"]);
    // This chassis ignores a soft shutdown.
    let failure = client
        .set_power(Power::Off, PowerAction::SoftOff, Duration::from_secs(2))
        .await;
    let error = failure.unwrap_err().to_string();
    assert!(error.contains("accepted power off and reads back power on"), "{error}");
    assert_eq!(bmc.calls(), ["shutdown=1"]);
    client.set_power(Power::Off, PowerAction::Off, LIMIT).await.unwrap();
    assert_eq!(
        (bmc.calls().as_slice(), client.power().await.unwrap()),
        (["power=0".to_owned()].as_slice(), Power::Off)
    );

    for (device, called) in [
        (BootDevice::Pxe, "boot=pxe"),
        (BootDevice::Disk, "boot=default"),
        (BootDevice::Cdrom, "boot=cdrom"),
        (BootDevice::None, "boot=none"),
    ] {
        let outcome = client.set_boot(device, Persistence::Once).await.unwrap();
        assert_eq!(outcome.seen.device, device);
        assert_eq!(bmc.calls(), [called]);
        // ipmi_sim passes only the device to the chassis and drops the other flags.
        assert_eq!(
            outcome.deviations.len(),
            if device == BootDevice::None { 0 } else { 2 },
            "{outcome:?}"
        );
    }
    assert_eq!(client.boot().await.unwrap().device, BootDevice::None);
    // A BMC that accepts settings without effect.
    let chassis = std::fs::read_to_string(bmc.file("chassis.sh")).unwrap();
    std::fs::write(bmc.file("chassis.sh"), chassis.replace(">\"$2\"", ">/dev/null")).unwrap();
    let failure = client.set_boot(BootDevice::Pxe, Persistence::Continuous).await;
    let error = failure.unwrap_err().to_string();
    assert!(
        error.contains("accepted boot device Pxe and reads back None"),
        "{error}"
    );

    let controller = client.controller().await.unwrap();
    assert_eq!(controller.manufacturer.as_deref(), Some("MontaVista Software, Inc."));
    assert_eq!(
        (controller.firmware.as_deref(), controller.ipmi.as_deref()),
        (Some("9.08"), Some("2.0"))
    );
    assert!(client.guid().await.unwrap().is_some());
    assert_eq!(client.fru().await.unwrap().serial, None);
    assert!(client.offers_console().await.unwrap());
    assert!(client.event_log().await.unwrap().is_empty());
    client.clear_event_log().await.unwrap();
}

#[tokio::test]
async fn supported_operations_are_on_the_page() {
    let (_serial, port) = serial().await;
    let mut bmc = Simulator::start(port).await;
    let client = bmc.connect(&Arc::default()).await;
    let report = matrix::report(&client).await;
    support_page::check("OpenIPMI ipmi_sim (IPMI)", &report);
}

#[tokio::test]
async fn refusals_are_classified_and_not_repeated() {
    let (_serial, port) = serial().await;
    let mut bmc = Simulator::start(port).await;
    let limiter = Arc::new(RequestLimiter::default());
    let right = bmc.connect(&limiter).await;

    let wrong = bmc.client("wrong", &limiter);
    let failure = wrong.power().await.unwrap_err();
    assert!(matches!(failure, IpmiError::Refused { hold_s: 300, .. }), "{failure}");
    let failure = wrong.power().await.unwrap_err();
    assert!(matches!(failure, IpmiError::LoginSuspended { .. }), "{failure}");
    let failure = wrong.console().await.unwrap_err();
    assert!(matches!(failure, IpmiError::LoginSuspended { .. }), "{failure}");
    right.power().await.unwrap();

    let stranger = client(&bmc.address("cipher=3"), "nobody", PASSWORD, &Arc::default()).unwrap();
    let failure = stranger.power().await.unwrap_err();
    assert!(matches!(failure, IpmiError::Refused { .. }), "{failure}");
    let modern = client(&bmc.address("cipher=17"), USER, PASSWORD, &Arc::default()).unwrap();
    let failure = modern.power().await.unwrap_err();
    assert!(matches!(failure, IpmiError::Cipher { .. }), "{failure}");
    let negotiated = client(&bmc.address(""), USER, PASSWORD, &Arc::default()).unwrap();
    assert_eq!(
        negotiated.power().await.unwrap(),
        Power::Off,
        "ipmitool queries the cipher suites"
    );
    let long = client(&bmc.address(""), USER, &"p".repeat(21), &Arc::default()).unwrap_err();
    assert!(long.to_string().contains("longer than 20 bytes"), "{long}");
    let nowhere = client("ipmi://127.0.0.1:9?cipher=3", USER, PASSWORD, &Arc::default()).unwrap();
    let failure = nowhere.for_polling().power().await.unwrap_err();
    assert!(matches!(failure, IpmiError::NoAnswer { .. }), "{failure}");
    let nameless = client("ipmi://no-such-host.invalid", USER, PASSWORD, &Arc::default()).unwrap();
    let failure = nameless.for_polling().power().await.unwrap_err();
    assert!(matches!(failure, IpmiError::NoSuchHost { .. }), "{failure}");
}

#[tokio::test]
async fn the_serial_console_passes_every_byte_and_is_given_back() {
    let (listener, port) = serial().await;
    let mut bmc = Simulator::start(port).await;
    let client = bmc.connect(&Arc::default()).await;
    let (mut machine, _) = tokio::time::timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
    let mut console = client.console().await.unwrap();

    let failure = client.console().await.unwrap_err();
    assert!(
        failure
            .to_string()
            .contains("another client has the serial console open"),
        "{failure}"
    );

    machine.write_all(b"login: \r\n").await.unwrap();
    let mut read = vec![0; 9];
    console.read_exact(&mut read).await.unwrap();
    assert_eq!(read, b"login: \r\n");
    // The input includes sequences that would end or suspend ipmitool if it took them for its own commands.
    let typed = b"root\r~.\r\x1f.\r\x1f\x1fB\n\x1f?\x00\xff\x03";
    console.write_all(typed).await.unwrap();
    console.flush().await.unwrap();
    let mut received = Vec::new();
    let all = async { while received.len() < typed.len() && machine.read_buf(&mut received).await.unwrap() > 0 {} };
    let _ = tokio::time::timeout(LIMIT, all).await;
    assert_eq!(received, typed);
    // Power commands run meanwhile.
    assert_eq!(client.power().await.unwrap(), Power::Off);

    console.close().await.unwrap();
    let dropped = client.console().await.unwrap();
    drop(dropped);
    let started = Instant::now();
    let again = loop {
        match client.console().await {
            Ok(console) => break console,
            Err(IpmiError::Busy { .. }) if started.elapsed() < LIMIT => {}
            Err(failure) => panic!("{failure}"),
        }
    };
    // Closes the console of a client that left it open.
    client.close_console().await.unwrap();
    client.close_console().await.unwrap();
    let taken = client.console().await.unwrap();
    drop((again, taken));
}

/// Only this process and the program can read the password. A hanging program ends with its caller.
#[tokio::test]
async fn a_program_gone_wrong_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let marks = dir.path().display().to_string();
    let limiter = Arc::new(RequestLimiter::default());
    let with = |text: &str| {
        let client = client("ipmi://127.0.0.1:9", USER, PASSWORD, &limiter).unwrap();
        client.for_polling().with_program(script(dir.path(), text))
    };

    let noisy = with(&format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" >{marks}/arguments\nenv >{marks}/environment\necho Chassis Power is on\n"
    ));
    assert_eq!(noisy.power().await.unwrap(), Power::On);
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(!read("arguments").contains(PASSWORD) && read("arguments").contains("lanplus"));
    assert!(read("environment").contains(PASSWORD));
    assert!(!format!("{noisy:?}").contains(PASSWORD));
    let names: Vec<String> = read("environment")
        .lines()
        .map(|l| l.split('=').next().unwrap().to_owned())
        .collect();
    assert!(!names.iter().any(|name| name.starts_with("CARGO")), "{names:?}");

    let failure = with("#!/bin/sh\nwhile :; do echo 0123456789012345678901234567890123456789; done\n")
        .power()
        .await;
    let error = failure.unwrap_err().to_string();
    assert!(error.contains("more than 1048576 bytes"), "{error}");
    let failure = with("#!/bin/sh\necho '<html>'\n").power().await.unwrap_err();
    assert!(matches!(failure, IpmiError::Unreadable { .. }), "{failure}");
    let failure = with("#!/bin/sh\necho 'Command not supported in present state' >&2; exit 1\n")
        .power()
        .await;
    assert!(
        failure
            .unwrap_err()
            .to_string()
            .ends_with("Command not supported in present state")
    );

    let hangs = with(&format!("#!/bin/sh\necho $$ >{marks}/pid\nexec sleep 1000\n"));
    let started = Instant::now();
    let process = {
        let mut call = std::pin::pin!(hangs.power());
        loop {
            tokio::select! {
                answer = &mut call => panic!("it has ended: {answer:?}"),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
            // The shell creates the file before it writes the line.
            let written = std::fs::read_to_string(dir.path().join("pid")).unwrap_or_default();
            if written.ends_with('\n') {
                break format!("/proc/{}", written.trim());
            }
            assert!(started.elapsed() < LIMIT, "the program does not begin");
        }
    };
    let started = Instant::now();
    while std::path::Path::new(&process).exists() {
        assert!(started.elapsed() < LIMIT, "{process} still runs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ends = with("#!/bin/sh\necho '[SOL Session operational.  Use ?'\nprintf 'last words'\n");
    let mut read = Vec::new();
    ends.console().await.unwrap().read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"last words");
    let absent = with("").with_program("/nowhere/ipmitool");
    assert!(matches!(absent.power().await.unwrap_err(), IpmiError::NotInstalled));
    assert!(matches!(absent.console().await.unwrap_err(), IpmiError::NotInstalled));
}
