//! `node reports` and `node certificates`: the results of validations and erases.

use std::collections::HashMap;

use clap::Args;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{
    EraseCertificate, EraseMethod, ListEraseCertificatesRequest, ListReportsRequest, Report, SigningKey, Verdict,
};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, names, pages, units};
use ring::signature::{ED25519, UnparsedPublicKey};

use super::signing_keys::{SigningKeys, public_key};

/// The first line of a signed erase record, by version. Version 1 names no witnesses, version 3 adds how the machine was
/// identified, and version 4 adds the place in the site's chain and further evidence.
const PAYLOAD_FORMATS: [&[u8]; 4] = [
    b"rackwright-erase-certificate-v1\n",
    b"rackwright-erase-certificate-v2\n",
    b"rackwright-erase-certificate-v3\n",
    b"rackwright-erase-certificate-v4\n",
];

/// `rackwright node reports`
pub async fn reports(cx: &Cx, id: &str, last: usize) -> Result<(), CliError> {
    let client = cx.client().await?;
    let request = ListReportsRequest {
        parent: names::full("nodes", id),
        page_size: i32::try_from(last.clamp(1, 1000)).unwrap_or(1000),
        page_token: String::new(),
    };
    let doing = format!("read the reports of {}", names::short("nodes", id));
    let mut answer = rpc!(client, NodeServiceClient.list_reports, doing, request).await?;
    answer.reports.truncate(last);
    let width = cx.ui.width();
    cx.ui.list(&answer.reports, |paint| {
        if answer.reports.is_empty() {
            return "there is no validation report\n".to_owned();
        }
        let texts: Vec<_> = answer
            .reports
            .iter()
            .map(|report| report_text(report, paint, width))
            .collect();
        texts.join("\n")
    })
}

fn report_text(report: &Report, paint: Paint, width: Option<usize>) -> String {
    let verdict = if report.passed {
        paint.tone(Tone::Good, "passed")
    } else {
        paint.tone(Tone::Bad, "FAILED")
    };
    let took = units::between(report.start_time.as_ref(), report.end_time.as_ref()).unwrap_or_default();
    let mut text = format!(
        "{}  {verdict}  {}, took {}, profile {}, generation {}\n",
        paint.tone(Tone::Strong, &clean(names::last(&report.name))),
        report.end_time.as_ref().map(units::stamp).unwrap_or_default(),
        units::duration(took),
        clean(&report.profile),
        report.claim_generation
    );
    let mut table = Table::new(&["CHECK", "VERDICT", "MEASURED", "WANTED", "FROM", "DETAIL"]).indented(2);
    for check in &report.checks {
        let verdict = match Verdict::try_from(check.verdict) {
            Ok(Verdict::Pass) => Cell::toned("pass", Tone::Good),
            Ok(Verdict::Fail) => Cell::toned("FAIL", Tone::Bad),
            Ok(Verdict::NotApplicable) => Cell::toned("n/a", Tone::Dim),
            _ => Cell::toned("unknown", Tone::Bad),
        };
        table.row([
            (&check.id).into(),
            verdict,
            (&check.measured).into(),
            (&check.threshold).into(),
            (&check.source).into(),
            (&check.detail).into(),
        ]);
    }
    text.push_str(&table.render(paint, width));
    text
}

/// `rackwright node certificates`
#[derive(Debug, Args)]
pub struct CertificatesArgs {
    /// The node
    id: String,
    /// Check that each signature is valid and by a key of the site, and that the signed data is the shown data
    #[arg(long)]
    verify: bool,
    /// Public key that must have signed, or that leads to the signing key, 64 hex digits (with --verify; without this option
    /// the site's keys from the control plane are trusted)
    #[arg(long, value_name = "HEX", value_parser = public_key, requires = "verify")]
    key: Option<String>,
}

pub async fn certificates(cx: &Cx, args: CertificatesArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let (certificates, keys) = all_certificates(&client, &args.id).await?;
    let keys = match args.verify {
        true => SigningKeys::checked(keys).map_err(|why| CliError::untrusted(why, "")),
        false => Ok(SigningKeys::default()),
    }?;
    let checks: Vec<_> = certificates
        .iter()
        .map(|c| args.verify.then(|| verify(c, args.key.as_deref(), &keys)))
        .collect();
    let width = cx.ui.width();
    cx.ui.list(&certificates, |paint| {
        if certificates.is_empty() {
            return "no drive of this node has been erased\n".to_owned();
        }
        certificate_table(&certificates, &checks).render(paint, width)
    })?;
    for certificate in certificates.iter().filter(|c| !c.rejected_methods.is_empty()) {
        let rejected = clean(&certificate.rejected_methods.join("; "));
        cx.ui.note(&format!(
            "{}: stronger erase methods were not usable: {rejected}",
            clean(&certificate.drive_name)
        ));
    }
    let failures: Vec<_> = certificates
        .iter()
        .zip(checks)
        .filter_map(|(certificate, check)| {
            let why = check?.err()?;
            let drive = clean(&format!("{} {}", certificate.drive_name, certificate.drive_serial));
            Some(CliError::untrusted(
                format!("the certificate of drive {drive} is not valid: {why}"),
                "",
            ))
        })
        .collect();
    CliError::gather(failures)
}

/// The certificates of a node, and the signing keys of the site.
async fn all_certificates(client: &Client, id: &str) -> Result<(Vec<EraseCertificate>, Vec<SigningKey>), CliError> {
    let mut signing_keys = Vec::new();
    let certificates = pages::all(async |page_token| {
        let parent = names::full("nodes", id);
        let request = ListEraseCertificatesRequest {
            parent,
            page_size: 1000,
            page_token,
        };
        let doing = format!("read the erase certificates of {}", names::short("nodes", id));
        let page = rpc!(client, NodeServiceClient.list_erase_certificates, doing, request).await?;
        signing_keys = page.signing_keys;
        Ok((page.erase_certificates, page.next_page_token))
    })
    .await?;
    Ok((certificates, signing_keys))
}

fn certificate_table(certificates: &[EraseCertificate], checks: &[Option<Result<(), String>>]) -> Table {
    let mut table = Table::new(&[
        "IDENTITY",
        "ERASED",
        "DRIVE",
        "MODEL",
        "SERIAL",
        "SIZE",
        "METHOD",
        "SAMPLES",
        "GEN",
        "WITNESSES",
        "SIGNATURE",
    ]);
    for (certificate, check) in certificates.iter().zip(checks) {
        let key = hex::encode(&certificate.signer_public_key);
        let key = key.get(..16).unwrap_or(&key);
        let signature = match check {
            None => Cell::from(format!("by {key}, not checked")),
            Some(Ok(())) => Cell::toned(format!("valid, by {key}"), Tone::Good),
            Some(Err(_)) => Cell::toned("NOT VALID", Tone::Bad),
        };
        table.row([
            identity(certificate),
            certificate
                .end_time
                .as_ref()
                .map(units::stamp)
                .unwrap_or_default()
                .into(),
            (&certificate.drive_name).into(),
            (&certificate.drive_model).into(),
            (&certificate.drive_serial).into(),
            units::bytes(certificate.drive_bytes).into(),
            method_name(certificate.method).into(),
            format!("{} × {}", certificate.samples, units::bytes(certificate.sample_bytes)).into(),
            certificate.claim_generation.to_string().into(),
            witnesses(certificate),
            signature,
        ]);
    }
    table
}

/// How the erased machine was identified.
fn identity(certificate: &EraseCertificate) -> Cell {
    match certificate.identity.as_str() {
        "" => Cell::toned("not recorded", Tone::Bad),
        "tpm" => Cell::toned("tpm", Tone::Good),
        other => Cell::from(clean(other)),
    }
}

/// A certificate without witnesses is based on the agent alone.
fn witnesses(certificate: &EraseCertificate) -> Cell {
    if certificate.witnesses.is_empty() {
        Cell::toned("none", Tone::Bad)
    } else {
        Cell::from(certificate.witnesses.join(", "))
    }
}

/// `nvme-sanitize-crypto`
pub fn method_name(method: i32) -> String {
    match EraseMethod::try_from(method) {
        Ok(EraseMethod::Unspecified) | Err(_) => String::new(),
        Ok(method) => method
            .as_str_name()
            .trim_start_matches("ERASE_METHOD_")
            .to_ascii_lowercase()
            .replace('_', "-"),
    }
}

/// Checks the signature, and that the signed record equals the certificate's fields.
fn verify(certificate: &EraseCertificate, wanted_key: Option<&str>, keys: &SigningKeys) -> Result<(), String> {
    keys.judge(&hex::encode(&certificate.signer_public_key), wanted_key)?;
    UnparsedPublicKey::new(&ED25519, &certificate.signer_public_key)
        .verify(&certificate.signed_payload, &certificate.signature)
        .map_err(|_| "the signature is wrong".to_owned())?;
    let signed = signed_fields(&certificate.signed_payload).ok_or("the signed data cannot be read")?;
    let method = EraseMethod::try_from(certificate.method)
        .unwrap_or_default()
        .as_str_name()
        .to_owned();
    let time = |time: &Option<prost_types::Timestamp>| {
        time.as_ref()
            .map(|time| format!("{}.{:09}", time.seconds, time.nanos))
            .unwrap_or_default()
    };
    let shown = [
        ("name", certificate.name.clone()),
        ("node", certificate.node.clone()),
        ("claim_generation", certificate.claim_generation.to_string()),
        ("operation", certificate.operation.clone()),
        ("drive_name", certificate.drive_name.clone()),
        ("drive_model", certificate.drive_model.clone()),
        ("drive_serial", certificate.drive_serial.clone()),
        ("drive_bytes", certificate.drive_bytes.to_string()),
        ("method", method),
        ("start_time", time(&certificate.start_time)),
        ("end_time", time(&certificate.end_time)),
        ("samples", certificate.samples.to_string()),
        ("sample_bytes", certificate.sample_bytes.to_string()),
    ];
    for (field, shown) in shown {
        match signed.get(field) {
            Some(signed) if *signed == [shown.as_bytes()] => {}
            Some(_) => return Err(format!("its {field} differs from the signed value")),
            None => return Err(format!("its {field} was not signed")),
        }
    }
    let of = signed.get("identity").into_iter().flatten().copied().next();
    if of.unwrap_or_default() != certificate.identity.as_bytes() {
        return Err("its identity differs from the signed value".into());
    }
    let number = certificate.number.to_string();
    let in_chain = [
        ("number", &number, "0"),
        ("attestation", &certificate.attestation_sha256, ""),
    ];
    for (field, shown, without) in in_chain {
        let signed = signed.get(field).into_iter().flatten().copied().next();
        if signed.unwrap_or(without.as_bytes()) != shown.as_bytes() {
            return Err(format!("its {field} differs from the signed value"));
        }
    }
    let shown = certificate.witnesses.iter().map(String::as_bytes);
    if !shown.eq(signed.get("witness").into_iter().flatten().copied()) {
        return Err("its witnesses differ from the signed values".into());
    }
    let shown = certificate.evidence.iter().map(String::as_bytes);
    if !shown.eq(signed.get("evidence_line").into_iter().flatten().copied()) {
        return Err("its evidence differs from the signed values".into());
    }
    Ok(())
}

/// The fields of a signed record: lines `name=LENGTH:VALUE`. `None` for any other text.
pub fn signed_fields(payload: &[u8]) -> Option<HashMap<&str, Vec<&[u8]>>> {
    let mut rest = PAYLOAD_FORMATS
        .iter()
        .find_map(|format| payload.strip_prefix(*format))?;
    let mut fields: HashMap<&str, Vec<&[u8]>> = HashMap::new();
    while !rest.is_empty() {
        let equals = rest.iter().position(|b| *b == b'=')?;
        let name = std::str::from_utf8(&rest[..equals]).ok()?;
        rest = &rest[equals + 1..];
        let colon = rest.iter().take(20).position(|b| *b == b':')?;
        let length: usize = std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
        rest = &rest[colon + 1..];
        let value = rest.get(..length)?;
        rest = rest.get(length..)?.strip_prefix(b"\n")?;
        let values = fields.entry(name).or_default();
        values.push(value);
        if values.len() > 1 && !matches!(name, "rejected_method" | "witness" | "evidence_line") {
            return None;
        }
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    fn signed() -> EraseCertificate {
        let fields = [
            ("identity", "tpm"),
            ("name", "nodes/a/eraseCertificates/1"),
            ("node", "nodes/a"),
            ("claim_generation", "3"),
            ("operation", "operations/1"),
            ("drive_name", "vda"),
            ("drive_model", "QEMU\nDISK"),
            ("drive_serial", "S1"),
            ("drive_bytes", "1000"),
            ("method", "ERASE_METHOD_OVERWRITE"),
            ("start_time", "1.000000000"),
            ("end_time", "2.500000000"),
            ("samples", "16"),
            ("sample_bytes", "4096"),
            ("rejected_methods", "2"),
            ("rejected_method", "x"),
            ("rejected_method", "y"),
            ("witnesses", "2"),
            ("witness", "bmc"),
            ("witness", "inspection"),
            ("evidence", "2"),
            ("evidence_line", "memory: off"),
            ("evidence_line", "native capacity: 1000 bytes"),
        ];
        let mut payload = PAYLOAD_FORMATS[3].to_vec();
        for (name, value) in fields {
            payload.extend(format!("{name}={}:{value}\n", value.len()).bytes());
        }
        let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        EraseCertificate {
            name: "nodes/a/eraseCertificates/1".into(),
            node: "nodes/a".into(),
            claim_generation: 3,
            operation: "operations/1".into(),
            drive_name: "vda".into(),
            drive_model: "QEMU\nDISK".into(),
            drive_serial: "S1".into(),
            drive_bytes: 1000,
            method: EraseMethod::Overwrite as i32,
            start_time: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
            end_time: Some(prost_types::Timestamp {
                seconds: 2,
                nanos: 500_000_000,
            }),
            samples: 16,
            sample_bytes: 4096,
            witnesses: vec!["bmc".into(), "inspection".into()],
            identity: "tpm".into(),
            evidence: vec!["memory: off".into(), "native capacity: 1000 bytes".into()],
            signature: key.sign(&payload).as_ref().to_vec(),
            signed_payload: payload,
            signer_public_key: key.public_key().as_ref().to_vec(),
            ..Default::default()
        }
    }

    #[test]
    fn a_good_certificate_holds() {
        let certificate = signed();
        assert_eq!(verify(&certificate, None, &SigningKeys::default()), Ok(()));
        let key = hex::encode(&certificate.signer_public_key);
        assert_eq!(
            verify(&certificate, Some(&key.to_uppercase()), &SigningKeys::default()),
            Ok(())
        );
    }

    #[test]
    fn anything_changed_is_found() {
        assert!(
            verify(&signed(), Some(&"00".repeat(32)), &SigningKeys::default())
                .unwrap_err()
                .contains("another key")
        );
        let mut changed = signed();
        changed.drive_serial = "S2".into();
        assert_eq!(
            verify(&changed, None, &SigningKeys::default()),
            Err("its drive_serial differs from the signed value".into())
        );
        for identity in ["", "address only"] {
            let identity = identity.to_owned();
            let changed = EraseCertificate { identity, ..signed() };
            assert_eq!(
                verify(&changed, None, &SigningKeys::default()),
                Err("its identity differs from the signed value".into())
            );
        }
        for witnesses in [vec![], vec!["bmc".to_owned()], vec!["inspection".into(), "bmc".into()]] {
            let changed = EraseCertificate { witnesses, ..signed() };
            assert_eq!(
                verify(&changed, None, &SigningKeys::default()),
                Err("its witnesses differ from the signed values".into())
            );
        }
        for evidence in [vec![], vec!["memory: off".to_owned()]] {
            let changed = EraseCertificate { evidence, ..signed() };
            assert_eq!(
                verify(&changed, None, &SigningKeys::default()),
                Err("its evidence differs from the signed values".into())
            );
        }
        let mut changed = signed();
        let last = changed.signed_payload.len() - 2;
        changed.signed_payload[last] ^= 1;
        assert_eq!(
            verify(&changed, None, &SigningKeys::default()),
            Err("the signature is wrong".into())
        );
        let mut changed = signed();
        changed.signer_public_key.truncate(5);
        assert_eq!(
            verify(&changed, None, &SigningKeys::default()),
            Err("the signature is wrong".into())
        );
    }

    #[test]
    fn broken_payloads_are_no_records() {
        let line = |text: &str| [PAYLOAD_FORMATS[0], text.as_bytes()].concat();
        assert!(signed_fields(&line("a=1:x\n")).is_some());
        for broken in [
            "a=2:x\n",
            "a=1:x",
            "a=99999999999999999999999:x\n",
            "a=1:x\na=1:y\n",
            "a",
            "=:",
        ] {
            assert!(signed_fields(&line(broken)).is_none(), "{broken:?}");
        }
        assert!(signed_fields(b"something else").is_none());
    }
}
