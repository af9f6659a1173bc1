//! A login with a device code under way, as a sealed text that the program keeps between its calls.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rackwright_identity::{Rng, RngError, SealError, Sealer, Token};
use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_oidc::DeviceLogin;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

/// Binds the sealed text to its use.
const PURPOSE: &str = "device-login-by-provider";
/// Longest sealed text that is read, in bytes: a certificate request of 16 KiB, the device code, and their forms.
const SEALED_MAX: usize = 48 << 10;

/// A login under way. The certificate request is inside, so a thief of the sealed text without the private key gets nothing
/// of use.
#[derive(Debug)]
pub struct DevicePending {
    /// A secret of this login. It gives one certificate.
    pub secret: SecretString,
    /// The provider gives the token for this secret.
    pub device_code: SecretString,
    /// The request for the certificate.
    pub csr_pem: String,
    /// The login has to end before this time.
    pub until: Timestamp,
}

/// Why a sealed text is no login under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// Another key sealed it, or it was changed.
    Unknown,
    /// Its time has ended.
    TooOld,
}

impl DevicePending {
    /// A login that the provider has begun now.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn new(rng: &dyn Rng, now: Timestamp, login: &DeviceLogin, csr_pem: String) -> Result<Self, RngError> {
        let (secret, _) = Token::mint(rng)?;
        Ok(Self {
            secret,
            device_code: login.device_code.clone(),
            csr_pem,
            until: now.plus(seconds(i64::try_from(login.valid_s).unwrap_or(i64::MAX))),
        })
    }

    /// The sealed text, under a key that is derived from the site's for this purpose.
    ///
    /// # Errors
    /// The sealing failed.
    pub fn seal(&self, sealer: &Sealer) -> Result<String, SealError> {
        let text = json!({
            "secret": self.secret.expose_secret(),
            "device_code": self.device_code.expose_secret(),
            "csr_pem": self.csr_pem,
            "until": self.until.0,
        });
        let sealed = sealer
            .derived(PURPOSE)?
            .seal(&SecretString::from(text.to_string()), PURPOSE)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Reads a sealed text.
    ///
    /// # Errors
    /// It is of no login under way.
    pub fn open(sealer: &Sealer, sealed: &str, now: Timestamp) -> Result<Self, OpenError> {
        let login = Self::read(sealer, sealed).ok_or(OpenError::Unknown)?;
        match login.until <= now {
            true => Err(OpenError::TooOld),
            false => Ok(login),
        }
    }

    fn read(sealer: &Sealer, sealed: &str) -> Option<Self> {
        if sealed.len() > SEALED_MAX {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let text = sealer.derived(PURPOSE).ok()?.open(&sealed, PURPOSE).ok()?;
        let value: Value = serde_json::from_str(text.expose_secret()).ok()?;
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Some(Self {
            secret: text("secret")?.into(),
            device_code: text("device_code")?.into(),
            csr_pem: text("csr_pem")?,
            until: Timestamp(value["until"].as_i64()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login_provider::Pending;
    use crate::testing::core_with;

    #[tokio::test]
    async fn a_sealed_login_is_read_within_its_time_and_only_as_it_was_written() {
        let (one, other) = (core_with("").await, core_with("").await);
        let now = Timestamp(1_000_000);
        let login = DeviceLogin {
            device_code: "a device code".to_owned().into(),
            user_code: "CODE".into(),
            url: String::new(),
            complete_url: None,
            valid_s: 600,
            interval_s: 5,
        };
        let pending = DevicePending::new(one.rng.as_ref(), now, &login, "x".repeat(16 << 10)).unwrap();
        let sealed = pending.seal(&one.keys.sealer).unwrap();
        assert!(!sealed.contains("device"));
        let read = DevicePending::open(&one.keys.sealer, &sealed, now.plus(seconds(599))).unwrap();
        assert_eq!(read.secret.expose_secret(), pending.secret.expose_secret());
        assert_eq!(read.device_code.expose_secret(), "a device code");
        assert_eq!((read.csr_pem, read.until), (pending.csr_pem, now.plus(seconds(600))));

        let open = |sealer: &Sealer, sealed: &str, now: Timestamp| DevicePending::open(sealer, sealed, now).err();
        let late = now.plus(seconds(600));
        assert_eq!(open(&one.keys.sealer, &sealed, late), Some(OpenError::TooOld));
        assert_eq!(
            open(&other.keys.sealer, &sealed, now),
            Some(OpenError::Unknown),
            "of another site"
        );
        for place in [0, 20, sealed.len() - 1] {
            let mut changed = sealed.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(
                open(&one.keys.sealer, &changed, now),
                Some(OpenError::Unknown),
                "byte {place}"
            );
        }
        let of_browser = Pending::new(one.rng.as_ref(), now, None).unwrap();
        let of_browser = of_browser.seal(&one.keys.sealer).unwrap();
        for wrong in ["", "rw1_", &of_browser, &"A".repeat(SEALED_MAX + 1)] {
            assert_eq!(open(&one.keys.sealer, wrong, now), Some(OpenError::Unknown));
        }
    }
}
