//! A process killed in the middle of commits.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rackwright_store::Store;

use crate::conformance::support::event;
use crate::database::Fresh;

/// Path of the file, for the writing process.
const PATH: &str = "RACKWRIGHT_TEST_CRASH";

/// Not a test: the process that `acknowledged_changes_outlive_the_process` starts and kills.
#[tokio::test]
#[ignore = "is run by another test"]
async fn writer() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let store = Store::open(std::path::Path::new(&path)).await.unwrap();
    let from = store.event_range().await.unwrap().1;
    for n in from + 1.. {
        let mut tx = store.write().await.unwrap();
        tx.add_event(&event("written", "t", n)).await.unwrap();
        tx.commit().await.unwrap();
        // Written directly to the pipe: the test harness would capture printed text.
        let line = format!("acknowledged {n}\n");
        std::io::Write::write_all(&mut std::io::stderr().lock(), line.as_bytes()).unwrap();
    }
}

#[tokio::test]
async fn acknowledged_changes_outlive_the_process() {
    let fresh = Fresh::new().await;
    let mut acknowledged = 0;
    for round in 1..=3 {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "crash::writer"])
            .env(PATH, fresh.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(writer.stderr.take().unwrap()).lines();
        let mut killed = false;
        for line in lines.map_while(Result::ok) {
            let Some(n) = line.strip_prefix("acknowledged ").and_then(|n| n.parse::<i64>().ok()) else {
                continue;
            };
            acknowledged = n;
            // Lines already in the pipe are read as well.
            if !killed && n >= round * 40 {
                writer.kill().unwrap();
                killed = true;
            }
        }
        writer.wait().unwrap();
        assert!(killed, "it ended by itself");
        let store = Store::open(&fresh.path()).await.unwrap();
        let (oldest, newest) = store.event_range().await.unwrap();
        assert_eq!(oldest, 1);
        assert!(
            newest >= acknowledged,
            "{acknowledged} were acknowledged, {newest} are there"
        );
        assert!(newest <= acknowledged + 1, "at most the one that was under way");
        store.close().await;
        acknowledged = newest;
    }
}
