//! Addresses from which a BMC fetches one firmware file. They expire, and only the control plane can make them. An
//! address contains everything that is needed to check it, so any replica can serve it, also after a restart.

use rackwright_ground::core::Core;
use rackwright_lifecycle::Timestamp;
use secrecy::ExposeSecret as _;

/// Purpose for which the key of these addresses is derived.
const KEY: &str = "firmware-links";
/// Lifetime of an address, in seconds.
const GOOD_S: i64 = 3 * 3600;

fn seal(core: &Core, digits: &str, until_s: i64) -> String {
    let key = core.keys.sealer.derive(KEY);
    let text = format!("{digits} {until_s}");
    blake3::keyed_hash(key.expose_secret(), text.as_bytes()).to_hex()[..40].to_owned()
}

/// The address of a file on the boot services' HTTP server. `None`: the boot services do not run here, or the digest is
/// malformed. The address ends with the file name, because some BMCs look at the suffix.
#[must_use]
pub fn make(core: &Core, digest: &str, name: &str, now: Timestamp) -> Option<String> {
    let digits = digest.strip_prefix("sha256:")?;
    let network = &core.config.boot.as_ref()?.network;
    let base = format!("http://{}:{}", network.server_ip, network.http_port);
    Some(format!("{base}{}", path(core, digits, name, now)))
}

fn path(core: &Core, digits: &str, name: &str, now: Timestamp) -> String {
    let until_s = now.0 / 1_000_000 + GOOD_S;
    let seal = seal(core, digits, until_s);
    let name: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || ".-_".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    format!("/firmware/v1/{digits}/{until_s}/{seal}/{name}")
}

/// The digest in an address. `None`: the seal is invalid, or the address has expired.
#[must_use]
pub fn open(core: &Core, digits: &str, until_s: i64, given: &str, now: Timestamp) -> Option<String> {
    if now.0 / 1_000_000 > until_s {
        return None;
    }
    let expected = seal(core, digits, until_s);
    // The hashes are compared, so that the time of the comparison does not reveal how far the texts agree.
    let same = blake3::hash(expected.as_bytes()) == blake3::hash(given.as_bytes());
    same.then(|| format!("sha256:{digits}"))
}

#[cfg(test)]
mod tests {
    use rackwright_ground::{clock, testing};

    use super::*;

    #[tokio::test]
    async fn an_address_is_good_for_its_file_and_its_time() {
        let core = testing::core().await;
        let (now, digits) = (clock::now(), "ab".repeat(32));
        assert_eq!(
            make(&core, &format!("sha256:{digits}"), "bmc.bin", now),
            None,
            "no boot services"
        );
        let path = path(&core, &digits, "bmc 1.bin", now);
        let parts: Vec<&str> = path.rsplitn(5, '/').collect();
        assert_eq!(parts[0], "bmc_1.bin", "no character that some BMC refuses");
        let (seal, until) = (parts[1], parts[2].parse().unwrap());
        assert_eq!(open(&core, &digits, until, seal, now), Some(format!("sha256:{digits}")));
        assert_eq!(
            open(&core, &digits, until + 1, seal, now),
            None,
            "a longer time is sealed otherwise"
        );
        assert_eq!(open(&core, &"cd".repeat(32), until, seal, now), None);
        let late = now.plus(rackwright_lifecycle::seconds(GOOD_S + 2));
        assert_eq!(open(&core, &digits, until, seal, late), None);
    }
}
