//! Components that attest their firmware: `ComponentIntegrity` of the BMC (DSP8010), and devices that sign by SPDM.
//!
//! Written from DSP0274 (SPDM 1.2), not from the verifier of statements: the two share no code.

use super::reply::{Fault, json};
use super::resources::collection;
use super::routes::{Bmc, Object, To};
use crate::random;
use axum::extract::Path;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, StatusCode, Uri, header};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384};
use ring::digest::{SHA384, digest};
use ring::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use std::sync::PoisonError;

pub(super) const COLLECTION: &str = "/redfish/v1/ComponentIntegrity";
pub(super) const COMPONENT: &str = "/redfish/v1/ComponentIntegrity/{id}";
pub(super) const CERTIFICATE: &str = "/redfish/v1/ComponentIntegrity/{id}/Certificate";
pub(super) const SIGN: &str =
    "/redfish/v1/ComponentIntegrity/{id}/Actions/ComponentIntegrity.SPDMGetSignedMeasurements";
pub(super) const TASK: &str = "/redfish/v1/ComponentIntegrity/{id}/Task";
pub(super) const SIGNED: &str = "/redfish/v1/ComponentIntegrity/{id}/Signed";

/// The behaviour of a component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ComponentFault {
    /// It signs its actual firmware.
    #[default]
    None,
    /// The same, but the BMC answers with a task that names the place of the answer in its payload.
    ByTask,
    /// The BMC returns the first statement that the component signed.
    Replays,
    /// The BMC changes a measurement in the component's signed statement.
    Forges,
    /// The component does not sign: the BMC reports the firmware itself.
    Unsigned,
    /// The BMC does not list it.
    Gone,
}

/// A device in addition to the CPUs: a GPU, a network card.
pub(super) struct Device {
    name: String,
    key: EcdsaKeyPair,
    certificate: String,
    /// Version of its firmware, which is measured.
    firmware: String,
    fault: ComponentFault,
    first: Option<String>,
    last: Option<String>,
    looks: u32,
}

impl Device {
    /// A device with its own key.
    fn new(name: &str) -> Result<Self, String> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).map_err(|e| e.to_string())?;
        let params = CertificateParams::new(vec![name.to_owned()]).map_err(|e| e.to_string())?;
        let certificate = params.self_signed(&pair).map_err(|e| e.to_string())?.pem();
        let der = pair.serialize_der();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &der, &random::source());
        Ok(Self {
            name: name.to_owned(),
            key: key.map_err(|e| e.to_string())?,
            certificate,
            firmware: "1".to_owned(),
            fault: ComponentFault::None,
            first: None,
            last: None,
            looks: 0,
        })
    }

    /// Index, kind and value: immutable code, firmware, and the version in plain text.
    fn measurements(&self) -> [(u8, u8, Vec<u8>); 3] {
        let hash = |what: &str| digest(&SHA384, what.as_bytes()).as_ref().to_vec();
        [
            (1, 0x00, hash("boot ROM")),
            (2, 0x01, hash(&self.firmware)),
            (3, 0x86, self.firmware.clone().into_bytes()),
        ]
    }

    /// The messages between BMC and device, with the device's signature.
    fn statement(&self, nonce: &[u8; 32]) -> Result<Vec<u8>, Fault> {
        let mut transcript = agreed();
        // GET_MEASUREMENTS: all, signed, with the key of slot 0.
        transcript.extend([0x12, 0xE0, 0x01, 0xFF]);
        transcript.extend(nonce);
        transcript.push(0);
        let mut record = Vec::new();
        for (index, kind, value) in self.measurements() {
            let length = u16::try_from(value.len()).map_err(|_| Fault::internal("a measurement is too long"))?;
            record.extend([index, 1]);
            record.extend((length + 3).to_le_bytes());
            record.push(kind);
            record.extend(length.to_le_bytes());
            record.extend(value);
        }
        // MEASUREMENTS: three blocks, the device's nonce, no opaque data.
        transcript.extend([0x12, 0x60, 0x00, 0x00, 3]);
        let length = u32::try_from(record.len()).map_err(|_| Fault::internal("the record is too long"))?;
        transcript.extend(length.to_le_bytes().into_iter().take(3));
        transcript.extend(record);
        transcript.extend([0x5A; 32]);
        transcript.extend([0, 0]);

        let mut message = b"dmtf-spdm-v1.2.*".repeat(4);
        message.extend([0; 6]);
        message.extend(b"responder-measurements signing");
        message.extend(digest(&SHA384, &transcript).as_ref());
        let signature = self.key.sign(&random::source(), &message);
        transcript.extend(
            signature
                .map_err(|_| Fault::internal("the device cannot sign"))?
                .as_ref(),
        );
        Ok(transcript)
    }

    fn answer(&mut self, nonce: &[u8; 32]) -> Result<String, Fault> {
        let mut statement = self.statement(nonce)?;
        if self.fault == ComponentFault::Forges {
            // A byte of the firmware's digest, which lies some way before the end.
            let digest = self.measurements()[1].2.clone();
            let at = statement.windows(digest.len()).position(|window| window == digest);
            let at = at.ok_or_else(|| Fault::internal("the measurement is not there"))?;
            statement[at] ^= 1;
        }
        let text = STANDARD.encode(statement);
        let first = self.first.get_or_insert_with(|| text.clone()).clone();
        Ok(match self.fault {
            ComponentFault::Replays => first,
            _ => text,
        })
    }
}

/// GET_VERSION to ALGORITHMS, as any SPDM 1.2 device with P-384 and SHA-384 exchanges them.
fn agreed() -> Vec<u8> {
    let mut negotiation = vec![0x10, 0x84, 0, 0];
    negotiation.extend([0x10, 0x04, 0, 0, 0, 1, 0x00, 0x12]);
    for code in [0xE1, 0x61] {
        // No flags matter here; both sides accept messages of 4608 bytes.
        negotiation.extend([0x12, code, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0, 0, 0, 0x12, 0, 0]);
    }
    let (p384, sha384) = (0x80_u32.to_le_bytes(), 0x02_u32.to_le_bytes());
    negotiation.extend([0x12, 0xE3, 0, 0, 32, 0, 1, 0]);
    negotiation.extend(p384.into_iter().chain(sha384).chain([0; 16]));
    negotiation.extend([0x12, 0x63, 0, 0, 36, 0, 1, 0]);
    // Measurements also use SHA-384.
    negotiation.extend(0x04_u32.to_le_bytes());
    negotiation.extend(p384.into_iter().chain(sha384).chain([0; 16]));
    negotiation
}

impl Bmc {
    fn on_devices<T>(&self, act: impl FnOnce(&mut Vec<Device>) -> T) -> T {
        act(&mut self.devices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the BMC attests components.
    pub(super) fn attests(&self) -> bool {
        self.on_devices(|devices| !devices.is_empty())
    }

    /// Adds a component with its own key to the machine; a component of the same name is replaced.
    pub fn fit_component(&self, name: &str) -> Result<(), String> {
        let device = Device::new(name)?;
        self.on_devices(|devices| {
            devices.retain(|one| one.name != name);
            devices.push(device);
        });
        Ok(())
    }

    /// Writes other firmware to a component.
    pub fn write_component(&self, name: &str, firmware: &str) {
        self.on_devices(|devices| {
            for device in devices.iter_mut().filter(|one| one.name == name) {
                firmware.clone_into(&mut device.firmware);
            }
        });
    }

    /// Sets the behaviour of a component.
    pub fn set_component_fault(&self, name: &str, fault: ComponentFault) {
        self.on_devices(|devices| {
            for device in devices.iter_mut().filter(|one| one.name == name) {
                device.fault = fault;
            }
        });
    }

    fn with_device<T>(
        &self,
        id: &str,
        uri: &Uri,
        act: impl FnOnce(&mut Device) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.on_devices(|devices| {
            let device = devices
                .iter_mut()
                .find(|one| one.name == id && one.fault != ComponentFault::Gone);
            act(device.ok_or_else(|| Fault::not_found(uri.path()))?)
        })
    }
}

pub(super) async fn list(To(bmc): To, uri: Uri) -> Result<Response, Fault> {
    if !bmc.attests() {
        return Err(Fault::not_found(uri.path()));
    }
    let names: Vec<String> = bmc.on_devices(|devices| {
        let there = devices.iter().filter(|one| one.fault != ComponentFault::Gone);
        there.map(|one| one.name.clone()).collect()
    });
    let kind = "#ComponentIntegrityCollection.ComponentIntegrityCollection";
    let members = names.iter().map(String::as_str);
    let body = collection(COLLECTION, kind, "Component integrity", members);
    Ok(json(StatusCode::OK, &body))
}

pub(super) async fn read(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let path = uri.path().to_owned();
    let body = bmc.with_device(&id, &uri, |device| {
        let measurements: Vec<Value> = device
            .measurements()
            .into_iter()
            .map(|(index, kind, value)| {
                json!({
                    "MeasurementIndex": index,
                    "MeasurementType": match kind { 0 => "ImmutableROM", 1 => "MutableFirmware", _ => "MutableFirmwareVersion" },
                    "Measurement": STANDARD.encode(value),
                })
            })
            .collect();
        let mut body = json!({
            "@odata.id": path,
            "@odata.type": "#ComponentIntegrity.v1_3_0.ComponentIntegrity",
            "Id": id,
            "Name": "Component integrity",
            "Status": {"State": "Enabled", "Health": "OK"},
            "ComponentIntegrityType": "SPDM",
            "ComponentIntegrityTypeVersion": "1.2.0",
            "ComponentIntegrityEnabled": true,
            "TargetComponentURI": format!("/redfish/v1/Chassis/{id}"),
            "SPDM": {
                "Requester": {"@odata.id": "/redfish/v1/Managers/1"},
                "IdentityAuthentication": {"ResponderAuthentication": {
                    "ComponentCertificate": {"@odata.id": format!("{path}/Certificate")},
                }},
                "MeasurementSet": {"MeasurementSpecification": "DMTF", "Measurements": measurements},
            },
        });
        if device.fault != ComponentFault::Unsigned {
            let target = SIGN.replace("{id}", &id);
            body["Actions"] = json!({"#ComponentIntegrity.SPDMGetSignedMeasurements": {"target": target}});
        }
        Ok(body)
    })?;
    Ok(json(StatusCode::OK, &body))
}

pub(super) async fn certificate(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let pem = bmc.with_device(&id, &uri, |device| Ok(device.certificate.clone()))?;
    let body = json!({
        "@odata.id": uri.path(),
        "@odata.type": "#Certificate.v1_8_0.Certificate",
        "Id": "Certificate",
        "Name": "Certificate of the component",
        "CertificateString": pem,
        "CertificateType": "PEM",
    });
    Ok(json(StatusCode::OK, &body))
}

fn signed_body(id: &str, statement: &str) -> Value {
    json!({
        "SignedMeasurements": statement,
        "Certificate": {"@odata.id": format!("{COLLECTION}/{id}/Certificate")},
        "Version": "1.2",
        "HashingAlgorithm": "TPM_ALG_SHA_384",
        "SigningAlgorithm": "TPM_ALG_ECDSA_ECC_NIST_P384",
    })
}

pub(super) async fn sign(
    To(bmc): To,
    Path(id): Path<String>,
    uri: Uri,
    Object(body): Object,
) -> Result<Response, Fault> {
    let nonce = body.get("Nonce").and_then(Value::as_str).unwrap_or_default();
    let mut bytes = [0; 32];
    hex::decode_to_slice(nonce, &mut bytes).map_err(|_| Fault::not_in_list("Nonce", nonce))?;
    let (text, fault) = bmc.with_device(&id, &uri, |device| {
        if device.fault == ComponentFault::Unsigned {
            return Err(Fault::not_found(uri.path()));
        }
        let text = device.answer(&bytes)?;
        (device.last, device.looks) = (Some(text.clone()), 0);
        Ok((text, device.fault))
    })?;
    if fault != ComponentFault::ByTask {
        return Ok(json(StatusCode::OK, &signed_body(&id, &text)));
    }
    let mut response = json(StatusCode::ACCEPTED, &task_body(&id, "New"));
    let place = HeaderValue::from_str(&TASK.replace("{id}", &id)).map_err(|_| Fault::internal("a header value"))?;
    response.headers_mut().insert(header::LOCATION, place);
    Ok(response)
}

fn task_body(id: &str, state: &str) -> Value {
    let mut body = json!({
        "@odata.id": TASK.replace("{id}", id),
        "@odata.type": "#Task.v1_7_1.Task",
        "Id": "Task",
        "Name": "Signed measurements",
        "TaskState": state,
    });
    if state == "Completed" {
        let place = SIGNED.replace("{id}", id);
        body["Payload"] = json!({"HttpHeaders": ["Host: bmc", format!("Location: {place}")]});
    }
    body
}

pub(super) async fn task(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let looks = bmc.with_device(&id, &uri, |device| {
        device.looks += 1;
        Ok(device.looks)
    })?;
    let state = if looks > 1 { "Completed" } else { "Running" };
    Ok(json(StatusCode::OK, &task_body(&id, state)))
}

pub(super) async fn signed(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let text = bmc.with_device(&id, &uri, |device| {
        device.last.clone().ok_or_else(|| Fault::not_found(uri.path()))
    })?;
    Ok(json(StatusCode::OK, &signed_body(&id, &text)))
}
