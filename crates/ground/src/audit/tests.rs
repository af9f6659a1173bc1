use rackwright_identity::{AuditEntry, SystemRng};
use rackwright_store::AuditFilter;

use super::*;
use crate::testing::{self, TestCore};

async fn records(core: &TestCore) -> Vec<AuditRecord> {
    let rows = core.store.audit(&AuditFilter::default(), 0, 100).await.unwrap();
    rows.iter()
        .map(|row| AuditRecord::decode(&row.record).unwrap())
        .collect()
}

async fn verified(core: &TestCore) -> Result<String, String> {
    let kept = HeadFile::new(&core.config.data_dir).read(&core.keys.signer).unwrap();
    let checked = verify::check(&core.store, &core.keys, kept, &[]).await;
    checked.map_err(|error| error.to_string())
}

async fn add(core: &TestCore, message: &str) {
    core.audit(local_record(None, "test", "site", message)).await.unwrap();
}

/// A new process on the same data folder.
fn again(core: &TestCore) -> Audit {
    Audit::open(&core.config.data_dir, "site", "replica", &core.keys).unwrap()
}

#[tokio::test]
async fn records_of_several_processes_are_one_chain() {
    let core = testing::core().await;
    add(&core, "one").await;
    let other = again(&core);
    for message in ["two", "three"] {
        let record = local_record(None, "test", "site", message);
        other.add_and_commit(&core.store, &core.keys, record).await.unwrap();
        add(&core, message).await;
    }
    assert_eq!(records(&core).await.len(), 5);
    core.audit.write_head_file(&core.keys.signer).unwrap();
    let summary = verified(&core).await.unwrap();
    assert!(
        summary.contains("5 records") && summary.contains("the last record is 5 with hash"),
        "{summary}"
    );
    // A process with an older head does not overwrite a newer head file.
    other.write_head_file(&core.keys.signer).unwrap();
    assert_eq!(again(&core).newest(), core.audit.newest());
}

#[tokio::test]
async fn the_record_of_a_dropped_change_leaves_no_trace() {
    let core = testing::core().await;
    add(&core, "one").await;
    let mut tx = core.store.write().await.unwrap();
    let record = local_record(None, "test", "site", "dropped");
    let added = core.audit.add(&mut tx, &core.keys.signer, record).await.unwrap();
    drop((tx, added));
    add(&core, "two").await;
    let messages: Vec<String> = records(&core).await.into_iter().map(|record| record.message).collect();
    assert_eq!(messages, ["one", "two"]);
    verified(&core).await.unwrap();
}

#[tokio::test]
async fn a_database_that_ends_before_the_known_head_gets_one_record_of_that() {
    let core = testing::core().await;
    add(&core, "one").await;
    // The database from before, and a later head.
    let mut head = core.audit.newest().unwrap();
    for _ in 0..3 {
        let (_, next) = AuditEntry::link(&head, &mut AuditRecord::default(), &core.keys.signer);
        head = next;
    }
    HeadFile::new(&core.config.data_dir)
        .write(&head, &core.keys.signer)
        .unwrap();
    assert!(verified(&core).await.unwrap_err().contains("record 4"), "cut");
    let later = again(&core);
    for message in ["two", "three"] {
        let record = local_record(None, "test", "site", message);
        later.add_and_commit(&core.store, &core.keys, record).await.unwrap();
    }
    later.write_head_file(&core.keys.signer).unwrap();
    let records = records(&core).await;
    let methods: Vec<&str> = records.iter().map(|record| record.method.as_str()).collect();
    assert_eq!(methods, ["local/test", GAP, "local/test", "local/test"]);
    assert!(
        records[1].message.starts_with("records 2 to 4 were lost"),
        "{:?}",
        records[1]
    );
    let error = verified(&core).await.unwrap_err();
    assert!(error.contains("record 2 reports a gap"), "{error}");
}

#[tokio::test]
async fn a_head_file_that_the_site_has_not_signed_is_refused() {
    let core = testing::core().await;
    add(&core, "one").await;
    core.audit.write_head_file(&core.keys.signer).unwrap();
    let path = core.config.data_dir.join("audit-head");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen('1', "2", 1)).unwrap();
    let refused = Audit::open(&core.config.data_dir, "site", "replica", &core.keys).unwrap_err();
    assert!(refused.to_string().contains("audit-head"), "{refused}");
}

#[tokio::test]
async fn a_check_names_a_missing_database_and_does_not_create_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = testing::config(dir.path(), "");
    let now = clock::system_time(clock::now());
    KeyFiles::load_or_create(&config.data_dir, "Rackwright test", now, Arc::new(SystemRng)).unwrap();
    let file = config.database.file().unwrap();
    let message = verify::database(&config, &[]).await.unwrap_err().to_string();
    assert!(message.contains(&file.display().to_string()), "{message}");
    assert!(message.contains("contains no site"), "{message}");
    assert!(!file.exists());
}
