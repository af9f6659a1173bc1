//! SSH keys of members, pinned host keys of consoles, the site's own host key.

use rackwright_store::{SSH_KEYS_MAX, SshKeyRow, Store};

use super::support::{Lab, at};

fn key(fingerprint: &str, member: &str) -> SshKeyRow {
    SshKeyRow {
        fingerprint: fingerprint.into(),
        member: member.into(),
        public_key: format!("ssh-ed25519 {fingerprint}"),
        created_at: at(5),
        epoch: 7,
    }
}

async fn add(store: &Store, row: &SshKeyRow) -> bool {
    let mut tx = store.write().await.unwrap();
    let added = tx.add_ssh_key(row).await.unwrap();
    tx.commit().await.unwrap();
    added
}

#[tokio::test]
async fn an_ssh_key_belongs_to_one_member() {
    let lab = Lab::new().await;
    let (ann, bob) = (key("SHA256:a", "ann"), key("SHA256:a", "bob"));
    assert!(add(&lab.store, &ann).await);
    assert!(!add(&lab.store, &ann).await && !add(&lab.store, &bob).await);
    assert!(add(&lab.store, &key("SHA256:b", "bob")).await);
    assert_eq!(lab.store.ssh_key("SHA256:a").await.unwrap(), Some(ann.clone()));
    assert_eq!(lab.store.ssh_key("SHA256:c").await.unwrap(), None);
    assert_eq!(lab.store.ssh_keys("ann").await.unwrap(), [ann]);

    let mut tx = lab.store.write().await.unwrap();
    assert!(
        !tx.remove_ssh_key("SHA256:a", Some("bob")).await.unwrap(),
        "it is ann's"
    );
    assert!(tx.remove_ssh_key("SHA256:a", Some("ann")).await.unwrap());
    assert!(tx.remove_ssh_key("SHA256:b", None).await.unwrap());
    assert!(!tx.remove_ssh_key("SHA256:b", None).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(lab.store.ssh_keys("ann").await.unwrap(), []);
}

#[tokio::test]
async fn the_keys_of_a_member_are_bounded() {
    let lab = Lab::new().await;
    for n in 0..SSH_KEYS_MAX {
        assert!(add(&lab.store, &key(&format!("SHA256:{n}"), "ann")).await);
    }
    assert!(!add(&lab.store, &key("SHA256:more", "ann")).await);
    assert!(add(&lab.store, &key("SHA256:more", "bob")).await);
}

#[tokio::test]
async fn the_first_host_key_stays_until_an_operator_replaces_it() {
    let lab = Lab::new().await;
    let pin = async |address: &str| lab.store.console_pin("u1", address).await.unwrap();
    assert_eq!(pin("bmc:22").await, None);
    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.keep_console_pin("u1", "bmc:22", "SHA256:a").await.unwrap());
    assert!(!tx.keep_console_pin("u1", "bmc:22", "SHA256:b").await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(pin("bmc:22").await.as_deref(), Some("SHA256:a"));
    assert_eq!(pin("other:22").await, None);
    let mut tx = lab.store.write().await.unwrap();
    tx.set_console_pin("u1", "bmc:22", "SHA256:b").await.unwrap();
    tx.set_console_pin("u1", "other:22", "SHA256:c").await.unwrap();
    tx.set_console_pin("u1", "other:22", "").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(pin("bmc:22").await.as_deref(), Some("SHA256:b"));
    assert_eq!(pin("other:22").await, None);

    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.keep_sealed_key("console", b"one").await.unwrap());
    assert!(!tx.keep_sealed_key("console", b"two").await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(lab.store.sealed_key("console").await.unwrap(), Some(b"one".to_vec()));
    assert_eq!(lab.store.sealed_key("other").await.unwrap(), None);
}
