//! Checks of a node's spec and labels. No I/O; all faults are reported, not only the first.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;

use rackwright_api::v1::{BatchEnrollNodesRequest, Bmc, EnrollNodeRequest};
use rackwright_ground::api_error::ApiError;
use rackwright_ground::text::{NAME_MAX, cut};
use rackwright_ipmi::IpmiAddress;
use rackwright_nodes::attestation;
use rackwright_redfish::MacAddress;

use super::names;

/// Fields, each with its fault.
pub type Faults = Vec<(String, String)>;

/// The SKU of nodes that are enrolled without one.
const SKU_DEFAULT: &str = "default";
/// Longest password, system path and SKU, in bytes.
const PASSWORD_MAX: usize = 1024;
/// Longest password over IPMI, in bytes (IPMI 2.0, section 22.30).
const IPMI_PASSWORD_MAX: usize = 20;
const SYSTEM_MAX: usize = 1024;
const SKU_MAX: usize = 128;
/// Most MAC addresses that an operator gives for one machine.
const BOOT_MACS_MAX: usize = 16;
const TPM_FORM: &str = "\"sha256:\" and 64 hex digits, as `rackwright node get` and refusals show it";

/// The requested SKU, or the default.
#[must_use]
pub fn sku(asked: &str) -> String {
    if asked.is_empty() { SKU_DEFAULT } else { asked }.to_owned()
}

/// Fails if there are faults.
///
/// # Errors
/// `Invalid` with the faults.
pub fn none(faults: Faults) -> Result<(), ApiError> {
    if faults.is_empty() {
        Ok(())
    } else {
        Err(ApiError::Invalid(faults))
    }
}

/// Faults of one enrolment.
#[must_use]
pub fn faults(request: &EnrollNodeRequest) -> Faults {
    let mut faults = Faults::new();
    if let Err(ApiError::Invalid(list)) = names::check_id("node_id", &request.node_id) {
        faults.extend(list);
    }
    let spec = request.spec.clone().unwrap_or_default();
    let bmc = spec.bmc.unwrap_or_default();
    let is_ipmi = IpmiAddress::is_ipmi(&bmc.address);
    if bmc.username.is_empty() && bmc.password.is_empty() && !is_ipmi {
        // Without user name and password, the factory list provides both.
        let named = Bmc {
            username: "-".to_owned(),
            ..bmc
        };
        faults.extend(bmc_faults(&named));
    } else {
        faults.extend(bmc_faults(&bmc));
        faults.extend(password_faults(&bmc.password));
        faults.extend(ipmi_password_faults(&bmc.address, &bmc.password));
    }
    faults.extend(sku_faults(&spec.sku));
    if let Err(ApiError::Invalid(list)) = boot_macs(&spec.boot_macs) {
        faults.extend(list);
    }
    faults.extend(label_faults(&request.labels));
    if !request.tpm_ek.is_empty() && attestation::digest(&request.tpm_ek).is_none() {
        faults.push(("tpm_ek".into(), TPM_FORM.into()));
    }
    faults
}

/// The TPM that a request accepts: `None` without a request, an empty text for "none".
///
/// # Errors
/// The digest is malformed.
pub fn accepted_tpm(asked: &str) -> Result<Option<String>, ApiError> {
    match asked {
        "" => Ok(None),
        "none" => Ok(Some(String::new())),
        other => match attestation::digest(other) {
            Some(digest) => Ok(Some(digest)),
            None => Err(ApiError::invalid(
                "accept_tpm",
                format!("must be {TPM_FORM}, or \"none\""),
            )),
        },
    }
}

/// Faults of a batch: of its entries, and between them.
#[must_use]
pub fn batch_faults(request: &BatchEnrollNodesRequest) -> Faults {
    let mut all = Faults::new();
    let mut ids = BTreeSet::new();
    for (i, one) in request.requests.iter().enumerate() {
        let of_one = faults(one).into_iter();
        all.extend(of_one.map(|(field, fault)| (format!("requests[{i}].{field}"), fault)));
        if !ids.insert(&one.node_id) {
            let fault = format!("another entry enrols {:?} too", one.node_id);
            all.push((format!("requests[{i}].node_id"), fault));
        }
    }
    all
}

/// Faults of a BMC's address and account. The password is checked separately, because it cannot be read back.
#[must_use]
pub fn bmc_faults(bmc: &Bmc) -> Faults {
    let mut faults = Faults::new();
    if IpmiAddress::is_ipmi(&bmc.address) {
        return ipmi_faults(bmc);
    }
    let url_ok = ["https://", "http://"]
        .iter()
        .any(|s| bmc.address.strip_prefix(s).is_some_and(|r| !r.is_empty()));
    if !url_ok || bmc.address.len() > 2048 || bmc.address.chars().any(|c| c.is_control() || c == ' ') {
        let fault = format!(
            "{:?} is not https://HOST[:PORT][/BASE], nor ipmi://HOST[:PORT]?mac=MAC",
            bmc.address
        );
        faults.push(("spec.bmc.address".into(), fault));
    }
    if bmc.username.is_empty() || bmc.username.len() > 256 {
        faults.push(("spec.bmc.username".into(), "must have 1 to 256 characters".into()));
    }
    let pin = bmc.certificate_sha256.strip_prefix("sha256:");
    if !bmc.certificate_sha256.is_empty()
        && !pin.is_some_and(|p| p.len() == 64 && p.bytes().all(|b| b.is_ascii_hexdigit()))
    {
        let fault = "must be \"sha256:\" and 64 hex digits".to_owned();
        faults.push(("spec.bmc.certificate_sha256".into(), fault));
    }
    if bmc.system.len() > SYSTEM_MAX || bmc.system.chars().any(|c| c.is_control() || c == ' ') {
        faults.push((
            "spec.bmc.system".into(),
            "must be a path such as /redfish/v1/Systems/1".into(),
        ));
    }
    faults
}

/// Faults of a BMC over IPMI, which has no certificates and one system.
fn ipmi_faults(bmc: &Bmc) -> Faults {
    let mut faults = Faults::new();
    match bmc.address.parse::<IpmiAddress>() {
        Ok(address) if address.macs().is_empty() => {
            let fault =
                "over IPMI, a BMC does not report which MAC addresses its machine boots from: set ipmi://HOST?mac=MAC";
            faults.push(("spec.bmc.address".into(), fault.into()));
        }
        Ok(_) => {}
        Err(fault) => faults.push(("spec.bmc.address".into(), fault.to_string())),
    }
    if bmc.username.is_empty() || bmc.username.len() > 16 {
        faults.push((
            "spec.bmc.username".into(),
            "must have 1 to 16 characters over IPMI".into(),
        ));
    }
    for (field, value) in [("certificate_sha256", &bmc.certificate_sha256), ("system", &bmc.system)] {
        if !value.is_empty() {
            let fault = "IPMI has no such value: the field must be empty";
            faults.push((format!("spec.bmc.{field}"), fault.into()));
        }
    }
    faults
}

/// Faults of a BMC's password.
#[must_use]
pub fn password_faults(password: &str) -> Faults {
    let fault = match password.len() {
        0 => "is required".to_owned(),
        1..=PASSWORD_MAX => return Faults::new(),
        _ => format!("must have at most {PASSWORD_MAX} bytes"),
    };
    vec![("spec.bmc.password".into(), fault)]
}

/// Faults of a password for a BMC over IPMI; none for other BMCs.
#[must_use]
pub fn ipmi_password_faults(address: &str, password: &str) -> Faults {
    if !IpmiAddress::is_ipmi(address) {
        return Faults::new();
    }
    let fault = match password.len() {
        0 => "is required over IPMI: the factory list is not tried there".to_owned(),
        1..=IPMI_PASSWORD_MAX => return Faults::new(),
        _ => format!("must have at most {IPMI_PASSWORD_MAX} bytes over IPMI"),
    };
    vec![("spec.bmc.password".into(), fault)]
}

#[must_use]
pub fn sku_faults(sku: &str) -> Faults {
    if sku.len() > SKU_MAX || sku.chars().any(|c| c.is_control() || c == '"') {
        return vec![(
            "spec.sku".into(),
            format!("must have at most {SKU_MAX} bytes of text without \""),
        )];
    }
    Faults::new()
}

/// Given MAC addresses in the form in which they are stored: lower case with colons, each once.
///
/// # Errors
/// `Invalid` with each text that is not the address of a single network card, or too many addresses.
pub fn boot_macs(given: &[String]) -> Result<Vec<String>, ApiError> {
    if given.len() > BOOT_MACS_MAX {
        let fault = format!("must have at most {BOOT_MACS_MAX} entries");
        return Err(ApiError::invalid("spec.boot_macs", fault));
    }
    let (mut macs, mut faults): (Vec<String>, _) = (Vec::new(), Faults::new());
    for (i, text) in given.iter().enumerate() {
        match text.parse::<MacAddress>() {
            Ok(mac) if mac.is_usable() => macs.push(mac.to_string()),
            _ => {
                let shown = cut(text, NAME_MAX);
                let fault = format!("{shown:?} is not the MAC address of a network card, such as 58:a2:e1:bb:b1:0f");
                faults.push((format!("spec.boot_macs[{i}]"), fault));
            }
        }
    }
    none(faults)?;
    let mut seen = BTreeSet::new();
    macs.retain(|mac| seen.insert(mac.clone()));
    Ok(macs)
}

#[must_use]
pub fn label_faults<S: BuildHasher>(labels: &HashMap<String, String, S>) -> Faults {
    let key_ok = |k: &str| {
        !k.is_empty() && k.len() <= 63 && k.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
    };
    let value_ok = |v: &str| v.len() <= 256 && !v.chars().any(|c| c.is_control() || c == '"');
    let mut faults: Faults = labels
        .iter()
        .filter(|(key, value)| !key_ok(key) || !value_ok(value))
        .map(|(key, value)| {
            let fault = format!("{key:?} = {value:?}: keys are 1 to 63 of A-Z a-z 0-9 - _ . /, values up to 256 bytes");
            ("labels".to_owned(), fault)
        })
        .collect();
    faults.sort();
    if labels.len() > 64 {
        faults.push(("labels".into(), "must have at most 64 entries".into()));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_mac_addresses_are_stored_in_one_form() {
        let given = |texts: &[&str]| boot_macs(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let texts = ["58-A2-E1-BB-B1-0F", "946dae570dd6", "58:a2:e1:bb:b1:0f"];
        assert_eq!(given(&texts).unwrap(), ["58:a2:e1:bb:b1:0f", "94:6d:ae:57:0d:d6"]);
        let Err(ApiError::Invalid(faults)) = given(&["eth0", "58:a2:e1:bb:b1:0f", "ff:ff:ff:ff:ff:ff", ""]) else {
            panic!("these are no addresses of network cards")
        };
        let fields: Vec<_> = faults.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(fields, ["spec.boot_macs[0]", "spec.boot_macs[2]", "spec.boot_macs[3]"]);
        assert!(given(&["58:a2:e1:bb:b1:0f"; 17]).is_err());
    }

    #[test]
    fn a_bmc_over_ipmi_says_what_it_cannot_be_asked() {
        let faults = |address: &str, certificate: &str| {
            let bmc = Bmc {
                address: address.into(),
                username: "admin".into(),
                certificate_sha256: certificate.into(),
                ..Bmc::default()
            };
            bmc_faults(&bmc)
        };
        assert_eq!(faults("ipmi://10.0.0.7?mac=52:54:00:12:34:56", ""), Faults::new());
        assert_eq!(faults("https://10.0.0.7", ""), Faults::new());
        for (address, word) in [
            ("ipmi://10.0.0.7", "which MAC addresses"),
            ("ipmi://10.0.0.7?mac=1", "mac="),
            ("ipmi://10.0.0.7/redfish", "only options"),
            ("ftp://10.0.0.7", "nor ipmi://"),
        ] {
            let found = faults(address, "");
            assert!(found.len() == 1 && found[0].1.contains(word), "{address}: {found:?}");
        }
        let pinned = faults(
            "ipmi://10.0.0.7?mac=52:54:00:12:34:56",
            &format!("sha256:{}", "0".repeat(64)),
        );
        assert_eq!(pinned[0].0, "spec.bmc.certificate_sha256");
    }
}
