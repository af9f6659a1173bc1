//! External programs: bounded in time and in output, and their error messages are reported.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rackwright_fabric::{Diags, FabricError, ToolError, ToolSettings, Tools};
use rackwright_infiniband::{Guid, Tables};

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
        timeout: Duration::from_secs(5),
        output_bytes: 10_000,
        at_once: 2,
    })
}

#[tokio::test]
async fn tools_are_bounded_in_time_and_output_and_fail_with_their_words() {
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
async fn what_tools_print_is_not_believed_blindly() {
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
    assert_eq!(master.get(), 0xa1);
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
