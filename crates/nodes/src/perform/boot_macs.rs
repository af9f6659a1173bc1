//! The MAC addresses by which the network boot of a machine is recognised.
//!
//! They come from the BMC: from its interfaces and adapters, else from the boot options of the machine. What a machine sends
//! on the boot network is no source: any host there can send another machine's UUID.

use rackwright_ground::intent::known_macs;
use rackwright_ground::text::cut;
use rackwright_redfish::{BmcClient, InventoryGap, MacAddress, RedfishError};
use rackwright_store::NodeRecord;

/// Longest reason of an unread part, in bytes.
const GAP_MAX: usize = 200;

/// The addresses of a machine.
pub(super) struct BootMacs {
    /// The addresses that count; empty: none is known.
    pub(super) all: Vec<String>,
    /// The addresses in its boot options at the first identification.
    pub(super) in_options: Vec<String>,
    /// Parts of the boot options that could not be read.
    pub(super) gaps: Vec<InventoryGap>,
}

/// The addresses of the machine with this UUID. `reported` are those of its interfaces and adapters.
///
/// Root on a machine can change its boot options, so they are read only while the node has no address.
///
/// # Errors
/// A fault of the whole BMC.
pub(super) async fn of(
    record: &NodeRecord,
    client: &BmcClient,
    uuid: &str,
    reported: &[MacAddress],
) -> Result<BootMacs, RedfishError> {
    let known = &record.identity;
    let mut in_options = Vec::new();
    if known.uuid == uuid {
        in_options.clone_from(&known.boot_option_macs);
    }
    let all = known_macs(&texts(reported), &record.spec.boot_macs, &in_options);
    if !all.is_empty() || !known.macs.is_empty() {
        let gaps = Vec::new();
        return Ok(BootMacs { all, in_options, gaps });
    }
    let (macs, gaps) = client.boot_option_macs().await?;
    let in_options = texts(&macs);
    Ok(BootMacs {
        all: in_options.clone(),
        in_options,
        gaps,
    })
}

fn texts(macs: &[MacAddress]) -> Vec<String> {
    macs.iter().map(ToString::to_string).collect()
}

/// The failure of an identification without an address.
pub(super) fn missing(record: &NodeRecord, gaps: &[InventoryGap]) -> String {
    let (id, bmc) = (&record.id, &record.spec.bmc_address);
    let give = format!(
        "Give the addresses of the network cards that it boots from: `rackwright node update {id} --boot-mac MAC`, or \
         boot_macs in the file of `rackwright apply`"
    );
    if !record.identity.macs.is_empty() {
        return format!(
            "BMC {bmc} reports no MAC address of the machine of node {id} any more, so its network boot cannot be \
             recognised. {give}"
        );
    }
    let unread = gaps.first().map(|gap| format!(" ({}: {})", gap.path, gap.why));
    let unread = cut(&unread.unwrap_or_default(), GAP_MAX);
    format!(
        "BMC {bmc} reports no MAC address of the machine of node {id}: no interface, no adapter and no boot option has \
         one{unread}, so its network boot cannot be recognised. {give}. Boot options are reported at a start: for a \
         machine that was never on, switching it on once at its BMC may be enough"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use axum::http::{Method, StatusCode, Uri};
    use axum::response::IntoResponse;
    use axum::{Json, Router};
    use rackwright_ground::bmc::bmc_password_purpose;
    use rackwright_ground::core::Core;
    use rackwright_ground::intent;
    use rackwright_ground::testing;
    use rackwright_lifecycle::{Outcome, State, Timestamp};
    use rackwright_store::Scope;
    use secrecy::SecretString;
    use serde_json::{Value, json};

    use crate::perform::bmc::identify;

    const CARD: &str = "94:6d:ae:57:0d:d6";
    const CARD_OPTION: &str = "PciRoot(0x0)/Pci(0x0,0x0)/MAC(946DAE570DD6,0x1)/IPv4(0.0.0.0)";
    const OTHER: &str = "58:a2:e1:bb:b1:0f";
    const OTHER_OPTION: &str = "PciRoot(0x0)/Pci(0x0,0x0)/MAC(58A2E1BBB10F,0x1)/IPv4(0.0.0.0)";
    const UUID: &str = "6173ecec-6ef5-11ee-834a-0a8fc3a58a71";
    const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
    const SYSTEM: &str = "/redfish/v1/Systems/System_0";

    /// A BMC that lists no interfaces, of a machine with these device paths in its boot options.
    async fn bmc(options: &[&str]) -> String {
        let link = |path: &str| json!({"@odata.id": path});
        let list = format!("{SYSTEM}/BootOptions");
        let paths: Vec<String> = (0..options.len()).map(|n| format!("{list}/Boot000{n}")).collect();
        let members: Vec<Value> = paths.iter().map(|path| link(path)).collect();
        let mut tree = BTreeMap::from([
            (
                "/redfish/v1".to_owned(),
                json!({"Systems": link("/redfish/v1/Systems"), "Links": {"Sessions": link(SESSIONS)}}),
            ),
            ("/redfish/v1/Systems".to_owned(), json!({"Members": [link(SYSTEM)]})),
            (
                SYSTEM.to_owned(),
                json!({"Id": "System_0", "UUID": UUID, "PowerState": "Off", "Boot": {"BootOptions": link(&list)}}),
            ),
            (list, json!({"Members": members})),
        ]);
        let bodies = options.iter().map(|device| json!({"UefiDevicePath": device}));
        tree.extend(paths.into_iter().zip(bodies));
        let tree = Arc::new(tree);
        let answer = move |method: Method, uri: Uri| {
            let found = tree.get(uri.path().trim_end_matches('/')).cloned();
            async move {
                match found {
                    _ if method == Method::POST => {
                        let headers = [("X-Auth-Token", "t".to_owned()), ("Location", format!("{SESSIONS}/1"))];
                        (StatusCode::CREATED, headers).into_response()
                    }
                    Some(body) => Json(body).into_response(),
                    None => StatusCode::NOT_FOUND.into_response(),
                }
            }
        };
        let app = Router::new().fallback(answer);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        format!("http://{address}")
    }

    /// A node with this BMC that was never identified.
    async fn enroll(core: &Core, address: &str) {
        let mut record = testing::node("n1", State::Discovered, None);
        record.spec.bmc_address = address.to_owned();
        record.spec.bmc_username = "admin".to_owned();
        let password = SecretString::from("secret");
        let sealed = core.keys.sealer.seal(&password, &bmc_password_purpose(&"n1".into()));
        record.spec.bmc_password = sealed.unwrap();
        testing::add(core, &record).await;
    }

    /// Identifies the machine at this address and stores what is learned. Returns the message of a failure.
    async fn identified(core: &Core, address: &str) -> Option<String> {
        let mut record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        record.spec.bmc_address = address.to_owned();
        let done = identify(core, &record).await;
        let mut tx = core.store.write().await.unwrap();
        let mut record = tx.node(&"n1".into()).await.unwrap();
        if let Some(learned) = &done.learned {
            learned.store(&mut tx, &mut record, Timestamp(2)).await.unwrap();
        }
        tx.commit().await.unwrap();
        match done.outcome {
            Outcome::Failed { code, message, .. } => {
                assert_eq!(code, "no-mac", "{message}");
                Some(message)
            }
            Outcome::Succeeded => None,
            other => panic!("{other:?}"),
        }
    }

    async fn macs(core: &Core) -> Vec<String> {
        core.store.node(&Scope::Site, &"n1".into()).await.unwrap().identity.macs
    }

    #[tokio::test]
    async fn a_machine_is_known_by_the_boot_options_of_its_first_identification() {
        let core = testing::core().await;
        let address = bmc(&[CARD_OPTION]).await;
        enroll(&core, &address).await;
        assert_eq!(identified(&core, &address).await, None);
        assert_eq!(macs(&core).await, [CARD]);
        assert_eq!(core.store.node_of_mac(CARD).await.unwrap(), Some("n1".into()));
        // Root on the machine has changed its boot options since.
        let changed = bmc(&[OTHER_OPTION, CARD_OPTION]).await;
        assert_eq!(identified(&core, &changed).await, None);
        assert_eq!(macs(&core).await, [CARD]);
        let removed = bmc(&[]).await;
        assert_eq!(identified(&core, &removed).await, None);
        assert_eq!(macs(&core).await, [CARD]);
    }

    #[tokio::test]
    async fn a_machine_without_an_address_waits_for_one_from_an_operator_or_from_its_first_start() {
        let core = testing::core().await;
        let address = bmc(&[]).await;
        enroll(&core, &address).await;
        let message = identified(&core, &address).await.unwrap();
        for word in [
            "node n1",
            &*address,
            "reports no MAC address",
            "`rackwright node update n1 --boot-mac MAC`",
            "boot_macs",
        ] {
            assert!(message.contains(word), "{word}: {message}");
        }
        let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        assert_eq!(
            record.identity.uuid, UUID,
            "by which its requests on the boot network are found"
        );
        assert_eq!(macs(&core).await, [""; 0]);
        let started = bmc(&[CARD_OPTION]).await;
        assert_eq!(identified(&core, &started).await, None);
        assert_eq!(macs(&core).await, [CARD]);
    }

    #[tokio::test]
    async fn an_address_from_an_operator_replaces_those_of_boot_options() {
        let core = testing::core().await;
        let address = bmc(&[CARD_OPTION]).await;
        enroll(&core, &address).await;
        let mut tx = core.store.write().await.unwrap();
        let mut record = tx.node(&"n1".into()).await.unwrap();
        intent::boot_macs(&mut record, vec![OTHER.to_owned()]).unwrap();
        assert_eq!(record.identity.macs, [""; 0], "it counts after the identification");
        tx.save_node(&mut record, Timestamp(2)).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(identified(&core, &address).await, None);
        assert_eq!(macs(&core).await, [OTHER]);
        // The node has had an address: boot options are not read any more.
        let mut tx = core.store.write().await.unwrap();
        let mut record = tx.node(&"n1".into()).await.unwrap();
        record.spec.boot_macs.clear();
        tx.save_node(&mut record, Timestamp(3)).await.unwrap();
        tx.commit().await.unwrap();
        let message = identified(&core, &address).await.unwrap();
        assert!(message.contains("any more"), "{message}");
        assert_eq!(macs(&core).await, [OTHER], "it keeps the address");
    }
}
