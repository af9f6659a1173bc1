//! Signs erase certificates, each as the next place in the site's chain.
//!
//! A certificate is signed in the change that stores it: the head of the chain is locked, so that two replicas never sign
//! two certificates for one place.

use prost::Message as _;
use rackwright_api::v1;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_identity::{EraseRecord, chain_hash, payload_hash};
use rackwright_lifecycle::{NodeId, Timestamp};
use rackwright_store::{ChainEntry, StoreError, WriteTx};

use crate::effect_result::Erase;

/// Certifies erases of a node, in order.
pub async fn all(
    core: &Core,
    tx: &mut WriteTx,
    node: &NodeId,
    erases: &[Erase],
    now: Timestamp,
) -> Result<(), StoreError> {
    if erases.is_empty() {
        return Ok(());
    }
    let mut head = tx.erase_head().await?;
    for erase in erases {
        head.number += 1;
        let record = erase.linked(head.number, &head.hash, clock::system_time(now));
        let payload = record.encode().map_err(|error| StoreError::Corrupt {
            what: "erase certificate",
            id: erase.id.clone(),
            source: error.into(),
        })?;
        let hash = payload_hash(&payload);
        head.hash = chain_hash(head.number, &head.hash, &hash);
        let entry = ChainEntry {
            number: head.number,
            payload_hash: hash,
            customer: "".into(),
            body: signed(core, record, erase.method, payload).encode_to_vec(),
        };
        tx.add_to_erase_chain(&erase.id, node, &entry, &head.hash).await?;
    }
    Ok(())
}

fn signed(core: &Core, record: EraseRecord, method: i32, payload: Vec<u8>) -> v1::EraseCertificate {
    let (signature, signer_public_key) = core.keys.signer.sign_with_key(&payload);
    let link = record.link;
    v1::EraseCertificate {
        name: record.name,
        node: record.node,
        claim_generation: record.claim_generation,
        operation: record.operation,
        drive_name: record.drive_name,
        drive_model: record.drive_model,
        drive_serial: record.drive_serial,
        drive_bytes: record.drive_bytes,
        method,
        start_time: Some(record.start_time.into()),
        end_time: Some(record.end_time.into()),
        samples: record.samples,
        sample_bytes: record.sample_bytes,
        rejected_methods: record.rejected_methods,
        signature,
        signed_payload: payload,
        signer_public_key: signer_public_key.to_vec(),
        witnesses: record.witnesses,
        identity: record.identity,
        evidence: record.evidence,
        number: link.as_ref().map_or(0, |link| link.number),
        attestation_sha256: link.map(|link| link.attestation).unwrap_or_default(),
    }
}
