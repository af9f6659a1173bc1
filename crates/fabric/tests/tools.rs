//! External programs: bounded in time and in output, and their error messages are reported. OpenSM with scripted tools.

mod permits;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use permits::Permits;
use rackwright_fabric::{
    Diags, FabricError, FabricManager as _, ManagerFault, Master, OpenSm, OpenSmSettings, Process, ToolError,
    ToolSettings, Tools, Unshared,
};
use rackwright_infiniband::{Guid, Partitions, Tables};

fn tool(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

fn tools(folder: &Path) -> Tools {
    Tools::new(ToolSettings {
        directory: None,
        folder: Some(folder.to_owned()),
        environment: vec![("SAYS".into(), "hello".into())],
        port: None,
        timeout: Duration::from_secs(5),
        output_bytes: 10_000,
        at_once: 2,
    })
}

#[tokio::test]
async fn tools_read_the_fabric_of_the_named_port() {
    let folder = tempfile::tempdir().expect("a folder");
    tool(folder.path(), "smpquery", "echo $*");
    let port = Some(("mlx5_2".to_owned(), 1));
    let of = |port| {
        Tools::new(ToolSettings {
            folder: Some(folder.path().to_owned()),
            port,
            ..ToolSettings::default()
        })
    };
    let output = of(port).run_on_fabric("smpquery", &["-G", "pkeys", "0x1"]).await;
    assert_eq!(output.expect("runs"), b"-C mlx5_2 -P 1 -G pkeys 0x1\n");
    let output = of(None).run_on_fabric("smpquery", &["-G", "pkeys", "0x1"]).await;
    assert_eq!(output.expect("runs"), b"-G pkeys 0x1\n");
}

#[tokio::test]
async fn tools_are_bounded_in_time_and_output_and_fail_with_their_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    tool(here, "good", "echo $SAYS $1");
    tool(here, "endless", "exec yes");
    tool(here, "bad", "echo no such port >&2; exit 3");
    let tools = tools(here);
    assert_eq!(tools.run("good", &["you"]).await.expect("runs"), b"hello you\n");
    let begun = Instant::now();
    assert!(matches!(
        tools.run("endless", &[]).await,
        Err(ToolError::TooMuchOutput { bytes: 10_000, .. })
    ));
    assert!(begun.elapsed() < Duration::from_secs(4));
    let error = tools.run("bad", &[]).await.expect_err("fails").to_string();
    assert!(
        error.contains("exit status: 3") && error.contains("no such port"),
        "{error}"
    );
    assert!(matches!(tools.run("absent", &[]).await, Err(ToolError::Start { .. })));

    tool(here, "slow", "exec sleep 60");
    let slow = Tools::new(ToolSettings {
        folder: Some(here.to_owned()),
        timeout: Duration::from_millis(200),
        ..ToolSettings::default()
    });
    assert!(matches!(slow.run("slow", &[]).await, Err(ToolError::TimedOut { .. })));
}

#[tokio::test]
async fn output_of_tools_is_validated() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    tool(here, "ibnetdiscover", "echo nonsense");
    tool(
        here,
        "sminfo",
        "echo 'sminfo: sm lid 1 sm guid 0xa1, activity count 7 priority 0 state 3 SMINFO_MASTER'",
    );
    tool(
        here,
        "smpquery",
        "case $3 in *a1) echo '   0: 0xffff 0x8001'; echo '2 pkeys capacity for this port';; *a2) echo junk;; *) exit 1;; esac",
    );
    let diags = Diags::new(tools(here));
    assert!(matches!(diags.discover().await, Err(FabricError::Dump(_))));
    let master = diags.master().await.expect("a master");
    assert_eq!((master.port.get(), master.priority), (0xa1, 0));
    let ports = ["0xa1", "0xa2", "0xa3"].map(|port| port.parse().expect("a GUID"));
    let tables = diags.tables(&ports.into()).await;
    assert_eq!(tables.read.len(), 1);
    assert_eq!(tables.read[&ports[0]], [0xffff, 0x8001]);
    assert_eq!(tables.unread.len(), 2);
    tool(here, "sminfo", "echo no");
    assert!(matches!(
        diags.master().await,
        Err(FabricError::Output { tool: "sminfo", .. })
    ));
    tool(here, "ibstat", "echo 0xa1; echo 0x0; echo a2; test $1 = -p");
    assert_eq!(diags.local_ports().await.expect("ports"), [ports[0]].into());
}

#[tokio::test]
async fn silence_of_the_subnet_manager_is_another_error_than_a_tool_that_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let diags = Diags::new(tools(here));
    // As infiniband-diags 44 says it.
    tool(
        here,
        "sminfo",
        "echo 'ibwarn: [7] mad_rpc: _do_madrpc failed; dport (Lid 1)' >&2; echo 'sminfo: iberror: failed: query'; exit 255",
    );
    let error = diags.master().await.expect_err("silence");
    assert!(matches!(error, FabricError::NoMaster(None)), "{error:?}");
    assert_eq!(error.to_string(), "no subnet manager answers; ports keep their keys");
    tool(
        here,
        "sminfo",
        "echo 'ibpanic: main: cannot open UMAD port' >&2; exit 255",
    );
    let error = diags.master().await.expect_err("no device").to_string();
    assert!(error.contains("cannot open UMAD port"), "{error}");
}

/// OpenSM with this process id, and a partition file that others have changed.
fn opensm(here: &Path, pid: u32, standbys: &[Guid]) -> OpenSm {
    std::fs::write(here.join("opensm.pid"), format!("{pid}\n")).expect("its pid file");
    std::fs::write(here.join("partitions.conf"), "Default=0x7fff : ALL=full ;\n").expect("a file");
    std::fs::write(here.join("osm.log"), "").expect("a log");
    let settings = OpenSmSettings {
        partitions: here.join("partitions.conf"),
        log: here.join("osm.log"),
        options: None,
        process: Process::File(here.join("opensm.pid")),
        standbys: standbys.iter().copied().collect(),
        deadline: Duration::from_secs(5),
    };
    OpenSm::new(settings, Diags::new(tools(here)))
}

#[tokio::test]
async fn an_opensm_that_does_not_run_finds_the_wanted_partitions_when_it_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    tool(here, "sminfo", "echo 'sminfo: iberror: failed: query'; exit 255");
    // No process has a number beyond the kernel's limit.
    let opensm = opensm(here, 4_194_305, &[]);
    let wanted = Partitions::default();
    let error = opensm.apply(&wanted, &Unshared).await.expect_err("it does not run");
    assert!(matches!(error, FabricError::NoManager(_)), "{error:?}");
    assert_eq!(error.to_string(), "OpenSM does not run (its pid file names 4194305)");
    let file = std::fs::read_to_string(here.join("partitions.conf")).expect("the file");
    assert_eq!(file, wanted.render().expect("a file"));
    let why = "OpenSM does not run (its pid file names 4194305): no subnet manager answers; ports keep their keys";
    let error = opensm.apply(&wanted, &Unshared).await.expect_err("it does not run");
    assert_eq!(error.to_string(), why);
    let ports = [Guid::new(0xa1).expect("a GUID")].into();
    let inspection = opensm.inspect(&ports).await.expect("an inspection");
    assert_eq!(inspection.manager, Some(ManagerFault::Absent(why.into())));
    assert!(inspection.files.iter().all(|file| file.content.is_some()));
    // The number has passed to another program.
    std::fs::write(here.join("opensm.pid"), std::process::id().to_string()).expect("its pid file");
    let error = opensm
        .apply(&wanted, &Unshared)
        .await
        .expect_err("it does not run")
        .to_string();
    assert!(
        error.contains(&format!("names {}, which is \"", std::process::id())),
        "{error}"
    );
}

#[tokio::test]
async fn a_process_without_the_lease_writes_no_partition_file_and_sends_no_signal() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    tool(
        here,
        "sminfo",
        "echo 'sminfo: sm lid 1 sm guid 0xa1, activity count 7 priority 14 state 3 SMINFO_MASTER'",
    );
    tool(here, "ibstat", "echo 0xa1");
    // A process of the name opensm, which SIGHUP ends.
    let program = here.join("opensm");
    std::os::unix::fs::symlink("/bin/sleep", &program).expect("a link");
    let mut process = std::process::Command::new(&program)
        .arg("600")
        .spawn()
        .expect("a process");
    let manager = opensm(here, process.id(), &[]);
    let file = || std::fs::read_to_string(here.join("partitions.conf")).expect("the file");
    let former = file();
    let wanted = Partitions::default();
    let error = manager
        .apply(&wanted, &Permits(0.into()))
        .await
        .expect_err("it is over");
    assert!(error.is_fenced(), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the change of the partitions stopped: another replica has the lease"
    );
    assert_eq!(file(), former);
    // The lease ends between the file and the signal.
    let error = manager
        .apply(&wanted, &Permits(1.into()))
        .await
        .expect_err("it is over");
    assert!(error.is_fenced(), "{error:?}");
    assert_eq!(file(), wanted.render().expect("a file"), "the file is not undone");
    assert!(process.try_wait().expect("its state").is_none(), "it got no signal");
    process.kill().expect("its end");
    process.wait().expect("its end");
}

#[tokio::test]
async fn a_foreign_master_is_named_and_the_file_is_right_for_the_time_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    tool(
        here,
        "sminfo",
        "echo 'sminfo: sm lid 9 sm guid 0xb1, activity count 7 priority 14 state 3 SMINFO_MASTER'",
    );
    tool(here, "ibstat", "echo 0xa1");
    tool(here, "smpquery", "exit 1");
    let guid = |n| Guid::new(n).expect("a GUID");
    let (own, foreign) = (guid(0xa1), guid(0xb1));
    let (ports, wanted) = ([own].into(), Partitions::default());
    let manager = opensm(here, std::process::id(), &[]);
    let error = manager
        .apply(&wanted, &Unshared)
        .await
        .expect_err("another is the master");
    assert_eq!(
        error.to_string(),
        "the subnet manager at port 0x00000000000000b1 (priority 14) is the master and sets the keys of all ports; OpenSM of \
         this machine is not"
    );
    let file = std::fs::read_to_string(here.join("partitions.conf")).expect("the file");
    assert_eq!(file, wanted.render().expect("a file"));
    let inspection = manager.inspect(&ports).await.expect("an inspection");
    let master = Master {
        port: foreign,
        priority: 14,
    };
    assert_eq!(inspection.manager, Some(ManagerFault::Foreign { master, fabric: None }));
    assert!(inspection.reading.managers.is_empty());
    // A standby that the settings name may be the master.
    let manager = opensm(here, std::process::id(), &[foreign]);
    let inspection = manager.inspect(&ports).await.expect("an inspection");
    assert_eq!(
        (inspection.manager, inspection.reading.managers),
        (None, [foreign].into())
    );
}

#[tokio::test]
async fn an_unexpected_table_counts_only_if_its_port_is_active_and_not_every_port_is_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    tool(
        here,
        "smpquery",
        "case \"$2 $3\" in \"portinfo \"*a1|\"portinfo \"*a2) echo LinkState:.....Active;; portinfo*) echo LinkState:.....Init;; \
         *a2) echo '   0: 0x7fff 0x0000'; echo '2 pkeys capacity for this port';; \
         *) echo '   0: 0xffff 0x0000'; echo '2 pkeys capacity for this port';; esac",
    );
    let diags = Diags::new(tools(here));
    let guid = |n| Guid::new(n).expect("a GUID");
    let mut unexpected = Tables::default();
    for n in [0xa1, 0xa2, 0xa3] {
        unexpected.read.insert(guid(n), vec![0xffff, 0]);
    }
    // Port 0xa2 is closed meanwhile, and 0xa3 has just come up.
    let confirmed = diags.confirm(&unexpected).await;
    let expected = [(guid(0xa1), vec![0xffff, 0]), (guid(0xa2), vec![0x7fff, 0])];
    assert_eq!(confirmed.read, expected.into());
    // 64 of 100 ports are read again, and one of them is open.
    for n in 0x1000..0x1061 {
        unexpected.read.insert(guid(n), vec![0xffff, 0]);
    }
    let confirmed = diags.confirm(&unexpected).await;
    assert_eq!((confirmed.read.len(), confirmed.unread.len()), (2 + 36, 0));
    assert!(confirmed.read.contains_key(&guid(0x1060)) && !confirmed.read.contains_key(&guid(0x1000)));
    // None of them is.
    unexpected.read.remove(&guid(0xa1));
    assert_eq!(diags.confirm(&unexpected).await.read.len(), 1);
}
