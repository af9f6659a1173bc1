//! The keys with which a site has signed erase certificates: each key is signed by the previous one.

use rackwright_api::v1::SigningKey;
use ring::signature::{ED25519, UnparsedPublicKey};

/// Reads a public signing key: 64 hex digits.
pub fn public_key(text: &str) -> Result<String, String> {
    match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_owned()),
        false => Err("a public signing key has 64 hex digits".to_owned()),
    }
}

/// The site's signing keys, oldest first, as the control plane lists them. May be empty.
#[derive(Debug, Default)]
pub struct SigningKeys(Vec<SigningKey>);

impl SigningKeys {
    /// Accepts the control plane's list if each key except the first is signed by the previous one.
    pub fn checked(keys: Vec<SigningKey>) -> Result<Self, String> {
        for (before, key) in keys.iter().zip(keys.iter().skip(1)) {
            let statement = format!(
                "rackwright-signing-key-v1\nnumber={}\npublic_key={}\nbefore={}\n",
                key.number,
                hex::encode(&key.public_key),
                hex::encode(&before.public_key)
            );
            let verifier = UnparsedPublicKey::new(&ED25519, &before.public_key);
            if verifier.verify(statement.as_bytes(), &key.signature).is_err() {
                return Err(format!("signing key {} is not signed by the key before it", key.number));
            }
        }
        Ok(Self(keys))
    }

    fn place(&self, key: &str) -> Option<usize> {
        let mut keys = self.0.iter();
        keys.position(|one| hex::encode(&one.public_key).eq_ignore_ascii_case(key))
    }

    /// Refuses a signer that is not one of the site's keys, or does not follow from the wanted key.
    pub fn judge(&self, signer: &str, wanted: Option<&str>) -> Result<(), String> {
        let place = self.place(signer);
        if let Some(wanted) = wanted {
            let follows = place.is_some_and(|place| self.place(wanted).is_some_and(|root| root <= place));
            return match wanted.eq_ignore_ascii_case(signer) || follows {
                true => Ok(()),
                false => Err(format!("it was signed by another key, {signer}")),
            };
        }
        match self.0.is_empty() || place.is_some() {
            true => Ok(()),
            false => Err(format!(
                "it was signed by {signer}, which is not a signing key of this site"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn public(seed: u8) -> String {
        hex::encode(pair(seed).public_key().as_ref())
    }

    fn chain(seeds: &[u8]) -> Vec<SigningKey> {
        let mut keys: Vec<SigningKey> = Vec::new();
        for (place, seed) in seeds.iter().enumerate() {
            let number = u32::try_from(place).unwrap() + 1;
            let signature = place.checked_sub(1).map(|before| {
                let statement = format!(
                    "rackwright-signing-key-v1\nnumber={number}\npublic_key={}\nbefore={}\n",
                    public(*seed),
                    public(seeds[before])
                );
                pair(seeds[before]).sign(statement.as_bytes()).as_ref().to_vec()
            });
            keys.push(SigningKey {
                number,
                public_key: pair(*seed).public_key().as_ref().to_vec(),
                signature: signature.unwrap_or_default(),
            });
        }
        keys
    }

    #[test]
    fn signatures_of_every_key_of_the_site_are_valid_and_no_other() {
        let keys = SigningKeys::checked(chain(&[1, 2, 3])).unwrap();
        for seed in [1, 2, 3] {
            assert_eq!(keys.judge(&public(seed), None), Ok(()));
        }
        assert!(keys.judge(&public(4), None).is_err());
        let none = SigningKeys::default();
        assert_eq!(
            none.judge(&public(4), None),
            Ok(()),
            "an older control plane tells none"
        );
    }

    #[test]
    fn a_required_signing_key_leads_only_to_its_successors() {
        let keys = SigningKeys::checked(chain(&[1, 2, 3])).unwrap();
        let first = public(1).to_uppercase();
        for seed in [1, 2, 3] {
            assert_eq!(keys.judge(&public(seed), Some(&first)), Ok(()));
        }
        assert!(keys.judge(&public(1), Some(&public(2))).is_err(), "an earlier one");
        assert!(keys.judge(&public(4), Some(&first)).is_err(), "a stranger");
        assert!(keys.judge(&public(1), Some(&public(4))).is_err());
    }

    #[test]
    fn a_broken_chain_is_refused() {
        let mut keys = chain(&[1, 2, 3]);
        keys[2].signature[0] ^= 1;
        assert!(SigningKeys::checked(keys).unwrap_err().contains("signing key 3"));
        let mut keys = chain(&[1, 2, 3]);
        keys.remove(1);
        assert!(SigningKeys::checked(keys).is_err());
    }
}
