//! Export of the chain of erase certificates.

use prost::Message as _;
use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_identity::chain_head;

use super::names::{self, Pages};

/// All signing keys of the site, oldest first.
pub fn signing_keys(core: &Core) -> Vec<v1::SigningKey> {
    let keys = core.keys.signer.keys().into_iter();
    let keys = keys.map(|key| v1::SigningKey {
        number: key.number,
        public_key: key.public_key.to_vec(),
        signature: key.signature,
    });
    keys.collect()
}

/// One page of the chain.
pub async fn list(core: &Core, request: &v1::ListEraseChainRequest) -> Result<v1::ListEraseChainResponse, ApiError> {
    let limit = names::page_size(request.page_size)?;
    let pages = Pages {
        list: "ListEraseChain",
        narrowed: &request.customer,
        limit,
    };
    let after = pages.after(&request.page_token)?.parse().unwrap_or(0);
    // The head is read first: later entries are newer than this head and are left out.
    let head = core.store.erase_head().await?;
    let mut found = core.store.erase_chain(after, limit).await?;
    let is_full = found.len();
    let last = found.last().map(|entry| entry.number.to_string());
    found.retain(|entry| entry.number <= head.number);
    let next_page_token = match found.len() == is_full {
        true => pages.token(is_full, last),
        false => String::new(),
    };
    let entry = |entry: rackwright_store::ChainEntry| {
        let is_shown = request.customer.is_empty() || entry.customer == *request.customer;
        let certificate = is_shown.then(|| v1::EraseCertificate::decode(entry.body.as_slice()));
        let certificate = certificate
            .transpose()
            .map_err(|e| ApiError::Internal(format!("erase certificate {} of the chain: {e}", entry.number)))?;
        Ok(v1::EraseChainEntry {
            number: entry.number,
            payload_sha256: entry.payload_hash,
            certificate,
        })
    };
    let time = clock::system_time(clock::now());
    let statement = chain_head(head.number, &head.hash, time).map_err(|e| ApiError::Internal(e.to_string()))?;
    let (signature, signer) = core.keys.signer.sign_with_key(&statement);
    Ok(v1::ListEraseChainResponse {
        entries: found.into_iter().map(entry).collect::<Result<_, ApiError>>()?,
        next_page_token,
        signing_keys: signing_keys(core),
        head: Some(v1::EraseChainHead {
            number: head.number,
            hash: head.hash,
            time: Some(time.into()),
            signature,
            signer_public_key: signer.to_vec(),
        }),
    })
}
