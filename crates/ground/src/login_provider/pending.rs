//! A login under way, in a sealed cookie of the browser that began it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rackwright_identity::{Rng, RngError, SealError, Sealer, Token};
use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_oidc::LoginSecrets;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

/// A login has to end within this time, in seconds.
pub const VALID_S: i64 = 600;
/// Binds the sealed text to its use.
const PURPOSE: &str = "web-login-by-provider";
/// Longest sealed text that is read, in bytes.
const SEALED_MAX: usize = 4096;

/// A login under way.
#[derive(Debug)]
pub struct Pending {
    /// The secrets of the protocol.
    pub secrets: LoginSecrets,
    /// The login has to end before this time.
    pub until: Timestamp,
    /// The secret of the session that the browser had when the login began. The new session replaces that session. The
    /// request that ends the login comes from the site of the provider, so the browser does not send the cookie of the
    /// former session with it.
    pub former: Option<SecretString>,
}

impl Pending {
    /// A login that begins now.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn new(rng: &dyn Rng, now: Timestamp, former: Option<SecretString>) -> Result<Self, RngError> {
        let secret = || Token::mint(rng).map(|(secret, _)| secret);
        Ok(Self {
            secrets: LoginSecrets {
                state: secret()?,
                nonce: secret()?,
                verifier: secret()?,
            },
            until: now.plus(seconds(VALID_S)),
            former,
        })
    }

    /// The value of the cookie, sealed under a key that is derived from the site's for this purpose.
    ///
    /// # Errors
    /// The sealing failed.
    pub fn seal(&self, sealer: &Sealer) -> Result<String, SealError> {
        let text = json!({
            "state": self.secrets.state.expose_secret(),
            "nonce": self.secrets.nonce.expose_secret(),
            "verifier": self.secrets.verifier.expose_secret(),
            "until": self.until.0,
            "former": self.former.as_ref().map(|secret| secret.expose_secret()),
        });
        let sealed = sealer
            .derived(PURPOSE)?
            .seal(&SecretString::from(text.to_string()), PURPOSE)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Reads the value of the cookie. `None`: another key sealed it, it was changed, or it is too old.
    #[must_use]
    pub fn open(sealer: &Sealer, sealed: &str, now: Timestamp) -> Option<Self> {
        if sealed.len() > SEALED_MAX {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let text = sealer.derived(PURPOSE).ok()?.open(&sealed, PURPOSE).ok()?;
        let value: Value = serde_json::from_str(text.expose_secret()).ok()?;
        let secret = |name: &str| value[name].as_str().map(|text| SecretString::from(text.to_owned()));
        let until = Timestamp(value["until"].as_i64()?);
        if until <= now {
            return None;
        }
        Some(Self {
            secrets: LoginSecrets {
                state: secret("state")?,
                nonce: secret("nonce")?,
                verifier: secret("verifier")?,
            },
            until,
            former: secret("former"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::core_with;

    #[tokio::test]
    async fn a_sealed_login_is_read_within_ten_minutes_and_only_as_it_was_written() {
        let (one, other) = (core_with("").await, core_with("").await);
        let now = Timestamp(1_000_000);
        let pending = Pending::new(one.rng.as_ref(), now, Some("rw1_former".to_owned().into())).unwrap();
        let sealed = pending.seal(&one.keys.sealer).unwrap();
        let read = Pending::open(&one.keys.sealer, &sealed, now.plus(seconds(VALID_S - 1))).unwrap();
        for (read, written) in [
            (&read.secrets.state, &pending.secrets.state),
            (&read.secrets.nonce, &pending.secrets.nonce),
            (&read.secrets.verifier, &pending.secrets.verifier),
        ] {
            assert_eq!(read.expose_secret(), written.expose_secret());
            assert!(!sealed.contains(written.expose_secret()));
        }
        assert_eq!(read.former.unwrap().expose_secret(), "rw1_former");

        let open = |sealer: &Sealer, sealed: &str, now: Timestamp| Pending::open(sealer, sealed, now).is_some();
        assert!(!open(&one.keys.sealer, &sealed, now.plus(seconds(VALID_S))), "too old");
        assert!(!open(&other.keys.sealer, &sealed, now), "of another site");
        for place in [0, 20, sealed.len() - 1] {
            let mut changed = sealed.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(!open(&one.keys.sealer, &changed, now), "byte {place}");
        }
        let bytes = URL_SAFE_NO_PAD.decode(&sealed).unwrap();
        assert!(
            one.keys.sealer.open(&bytes, PURPOSE).is_err(),
            "under the site's own key"
        );
        let secret = one.keys.sealer.seal(&"{}".to_owned().into(), PURPOSE);
        let other_use = URL_SAFE_NO_PAD.encode(secret.unwrap());
        assert!(!open(&one.keys.sealer, &other_use, now), "sealed for another use");
        assert!(!open(&one.keys.sealer, "", now) && !open(&one.keys.sealer, "rw1_", now));
    }
}
