use std::path::PathBuf;

use rackwright_ground::config::Config;
use rackwright_store::{Database, Store};

use super::*;

/// Settings of a site with its data below `dir`.
fn settings(dir: &Path) -> Config {
    let file = dir.join("rackwrightd.yaml");
    let text = format!(
        "data_dir: {}/data\napi: {{listen: \"127.0.0.1:1\"}}\nstore: {{listen: \"127.0.0.1:2\"}}\n",
        dir.display()
    );
    std::fs::write(&file, text).unwrap();
    Config::load(&file).unwrap()
}

/// A site with a database that belongs to its keys.
async fn site(dir: &Path) -> Config {
    let config = settings(dir);
    let rng = std::sync::Arc::new(rackwright_identity::SystemRng);
    let now = rackwright_ground::clock::system_time(rackwright_ground::clock::now());
    let keys = rackwright_identity::KeyFiles::load_or_create(&config.data_dir, "Rackwright test", now, rng).unwrap();
    let store = Store::open(config.database.clone()).await.unwrap();
    store.site_authority(&keys.authority.site_id()).await.unwrap();
    let mut tx = store.write().await.unwrap();
    tx.database_age("0123").await.unwrap();
    tx.put_database_age(7).await.unwrap();
    tx.commit().await.unwrap();
    store.close().await;
    config
}

async fn backed_up(config: &Config, to: &Path) -> PathBuf {
    create(config, to).await.unwrap();
    let mut entries: Vec<_> = std::fs::read_dir(to)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

#[tokio::test]
async fn a_backup_is_restored_into_an_empty_place_and_expects_a_newer_database() {
    let (dir, to, new) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let config = site(dir.path()).await;
    let backup = backed_up(&config, to.path()).await;
    let other = settings(new.path());
    let reported = restore(&other, &backup, false).await.unwrap();
    assert!(
        reported.contains("every node is doubted") && !reported.contains("before-restore"),
        "{reported}"
    );
    assert_eq!(
        other.database.site().await.unwrap(),
        config.database.site().await.unwrap()
    );
    let age = std::fs::read_to_string(other.data_dir.join("database-age")).unwrap();
    assert_eq!(age, "0123 8\n");

    let refused = restore(&other, &backup, false).await.unwrap_err();
    assert!(refused.to_string().contains("--replace"), "{refused}");
    let reported = restore(&other, &backup, true).await.unwrap();
    assert!(reported.contains("before-restore-"), "{reported}");
    let entries = std::fs::read_dir(&other.data_dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let aside = entries
        .into_iter()
        .find(|path| path.display().to_string().contains("before-restore"))
        .unwrap();
    assert!(aside.join("keys/authority.pem").is_file() && aside.join("rackwright.db").is_file());
    assert!(
        Database::from(&aside.join("rackwright.db")).site().await.is_ok(),
        "what was there is whole"
    );
}

/// A file of a backup, the change to it, and the text of the refusal.
type Change<'a> = (&'a str, &'a dyn Fn(&Path), &'a str);

#[tokio::test]
async fn a_backup_that_is_not_whole_changes_nothing() {
    let (dir, to, new) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let config = site(dir.path()).await;
    let backup = backed_up(&config, to.path()).await;
    let other = settings(new.path());
    let keep = |name: &str| std::fs::read(backup.join(name)).unwrap();
    let changes: [Change<'_>; 5] = [
        (
            "database.sqlite",
            &|path| std::fs::write(path, "x").unwrap(),
            "its digest is different",
        ),
        (
            "keys/signing.key",
            &|path| std::fs::remove_file(path).unwrap(),
            "is missing",
        ),
        (
            "manifest.json",
            &|path| std::fs::write(path, "{").unwrap(),
            "manifest.json",
        ),
        (
            "keys/sealing-0001.key",
            &|path| std::fs::write(path, [7; 32]).unwrap(),
            "its digest is different",
        ),
        (
            "manifest.json",
            &|path| {
                let text = std::fs::read_to_string(path).unwrap();
                std::fs::write(path, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
            },
            "has version 2",
        ),
    ];
    for (name, change, words) in changes {
        let before = keep(name);
        change(&backup.join(name));
        let refused = restore(&other, &backup, false).await.unwrap_err().to_string();
        assert!(refused.contains(words), "{name}: {refused}");
        assert!(!other.data_dir.join("keys").exists() && !other.data_dir.join("database-age").exists());
        std::fs::write(backup.join(name), before).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(backup.join(name), mode).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", backup.join("keys/more.key")).unwrap();
    let refused = restore(&other, &backup, false).await.unwrap_err().to_string();
    assert!(refused.contains("is not a regular file"), "{refused}");
    std::fs::remove_file(backup.join("keys/more.key")).unwrap();
    restore(&other, &backup, false).await.unwrap();
}

#[test]
fn the_backup_name_has_the_time() {
    assert_eq!(stamp(Timestamp(1_795_515_300_000_000)), "20261124T101500Z");
}
