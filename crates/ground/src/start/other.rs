//! Checks whether another daemon serves this site from another database.
//!
//! A server with a certificate of this authority, at one of the endpoints for agents, has the same keys. This daemon sends
//! it a random challenge to write into its database. A replica writes it into the shared database, where this daemon finds
//! it. The holder of a copy does not. Only a holder of the sealing keys can make the proof in the request, so other hosts
//! cannot learn or change anything with it.

use std::time::Duration;

use rackwright_api::v1::ProveDatabaseRequest;
use rackwright_api::v1::control_service_client::ControlServiceClient;
use rackwright_identity::{KeyFiles, Rng, RngError, Sealer};
use rackwright_store::{Database, Store, StoreError};
use secrecy::ExposeSecret as _;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::config::Config;

/// The purpose of the key for proofs.
const PROOF_KEY: &str = "database-challenge";
/// A server that takes longer than this to show its certificate counts as absent.
const CONNECT: Duration = Duration::from_secs(3);
/// For the answer of a server with a certificate of this authority.
const ANSWER: Duration = Duration::from_secs(10);
/// Tries, because replicas that start at the same time overwrite each other's challenges.
const TRIES: u32 = 3;
/// The longest challenge, in characters.
const CHALLENGE_MAX: usize = 64;

/// Another daemon serves this site, or the check failed.
#[derive(Debug, thiserror::Error)]
pub enum OtherError {
    /// The other daemon has the same keys and another database.
    #[error(
        "another rackwrightd with the keys of this site answers at {endpoint}, and it uses another database: {why}. One \
         of the two databases is a copy. Stop the other daemon first, or inspect this database with `rackwrightd serve \
         --paused`"
    )]
    Other {
        endpoint: String,
        /// Its answer.
        why: String,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There are no random numbers.
    #[error(transparent)]
    Random(#[from] RngError),
}

/// The proof that the caller has the sealing keys.
fn proof(sealer: &Sealer, challenge: &str) -> blake3::Hash {
    blake3::keyed_hash(sealer.derive(PROOF_KEY).expose_secret(), challenge.as_bytes())
}

/// Whether a request comes from a holder of the sealing keys.
#[must_use]
pub fn is_proven(sealer: &Sealer, challenge: &str, given: &[u8]) -> bool {
    let given = <[u8; 32]>::try_from(given).map(blake3::Hash::from_bytes);
    // The comparison takes constant time.
    challenge.len() <= CHALLENGE_MAX && given.is_ok_and(|given| given == proof(sealer, challenge))
}

/// Checks every endpoint for agents.
///
/// # Errors
/// A daemon with the same keys has another database.
pub async fn ask(config: &Config, keys: &KeyFiles, store: &Store, rng: &dyn Rng) -> Result<(), OtherError> {
    let authority = keys.authority.trusted_pem();
    let mut connecting = JoinSet::new();
    for endpoint in config.endpoints.clone() {
        let authority = authority.clone();
        connecting.spawn(async move { Some((connect(&endpoint, &authority).await?, endpoint)) });
    }
    let connected = connecting.join_all().await;
    for (channel, endpoint) in connected.into_iter().flatten() {
        match request_repeatedly(&channel, keys, store, rng).await? {
            Answer::Ours => {}
            Answer::Unreachable(why) if matches!(config.database, Database::Server(_)) => {
                // A replica without its database does nothing, and must not stop others from starting.
                tracing::warn!(endpoint, why, "a replica could not prove that it shares this database");
            }
            Answer::Unreachable(why) | Answer::Another(why) => return Err(OtherError::Other { endpoint, why }),
        }
    }
    Ok(())
}

/// The answer of a server with the same keys.
enum Answer {
    /// It shares the database.
    Ours,
    /// It cannot answer now; the reason.
    Unreachable(String),
    /// It has another database, or does not prove that it shares this one; the reason.
    Another(String),
}

async fn request_repeatedly(
    channel: &Channel,
    keys: &KeyFiles,
    store: &Store,
    rng: &dyn Rng,
) -> Result<Answer, OtherError> {
    let mut answer = request_once(channel, keys, store, rng).await?;
    for _ in 1..TRIES {
        if matches!(answer, Answer::Ours) {
            break;
        }
        answer = request_once(channel, keys, store, rng).await?;
    }
    Ok(answer)
}

async fn request_once(channel: &Channel, keys: &KeyFiles, store: &Store, rng: &dyn Rng) -> Result<Answer, OtherError> {
    let mut random = [0; 16];
    rng.fill(&mut random)?;
    let challenge = format!("{:032x}", u128::from_be_bytes(random));
    let request = ProveDatabaseRequest {
        proof: proof(&keys.sealer, &challenge).as_bytes().to_vec(),
        challenge: challenge.clone(),
    };
    let mut client = ControlServiceClient::new(channel.clone());
    let answer = tokio::time::timeout(ANSWER, client.prove_database(request)).await;
    Ok(match answer {
        Err(_) => Answer::Unreachable(format!("it did not answer within {} s", ANSWER.as_secs())),
        Ok(Err(status)) if status.code() == Code::Unavailable => Answer::Unreachable(status.message().to_owned()),
        Ok(Err(status)) => Answer::Another(format!(
            "it did not prove that it uses this database ({})",
            status.message()
        )),
        Ok(Ok(_)) if store.challenge().await? == challenge => Answer::Ours,
        Ok(Ok(_)) => {
            Answer::Another("the challenge that it wrote into its database is not in this database".to_owned())
        }
    })
}

/// A connection to a server with a certificate of this authority. `None`: there is no such server.
async fn connect(endpoint: &str, authority: &str) -> Option<Channel> {
    let name = endpoint.strip_prefix("https://")?.rsplit_once(':')?.0;
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority))
        .domain_name(name);
    let endpoint = Endpoint::from_shared(endpoint.to_owned()).ok()?;
    let endpoint = endpoint.connect_timeout(CONNECT).tls_config(tls).ok()?;
    tokio::time::timeout(CONNECT, endpoint.connect()).await.ok()?.ok()
}
