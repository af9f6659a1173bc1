//! Firmware measurements of components: as the BMC reports them (`ComponentIntegrity`, DSP8010) and as components sign them
//! by SPDM.

use std::time::Duration;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rackwright_redfish_wire::environment::Poll;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::json;
use rackwright_redfish_wire::retry::Repeat;
use rackwright_redfish_wire::transport::Reply;
use serde_json::{Value, json};
use url::Url;

use crate::client::BmcClient;
use crate::resource::Resource;
use crate::task::TaskHandle;
use crate::views::{Action, Task, TaskPhase};

/// Most components. A machine with 72 GPUs has fewer components that attest their firmware.
const COMPONENTS_MAX: usize = 128;
/// Most measurements of a component: an index is one byte.
const MEASUREMENTS_MAX: usize = 256;
/// The longest measurement, statement or certificate, as text.
const TEXT_MAX: usize = 512 * 1024;
/// How long a component may take to sign. A GPU takes some seconds.
const SIGNING: Duration = Duration::from_secs(60);

/// A component that measures its firmware by SPDM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentIntegrity {
    /// Link to the measured resource; the `ComponentIntegrity` resource itself if it names none.
    pub target: String,
    /// Whether measurements may be requested.
    pub enabled: bool,
    /// The measurements as the BMC reports them, unsigned, by index.
    pub reported: Vec<ReportedMeasurement>,
    path: String,
    sign: Option<String>,
    certificate: Option<String>,
}

/// A measurement as the BMC reports it, without a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedMeasurement {
    /// The measurement's index in the SPDM statement.
    pub index: u8,
    /// `MeasurementType`, as the BMC writes it.
    pub kind: String,
    /// The measured value, decoded.
    pub value: Vec<u8>,
}

/// Measurements that a component signed. The signature is not checked here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedMeasurements {
    /// The SPDM messages between BMC and component, with the signature at the end.
    pub statement: Vec<u8>,
    /// PEM texts of the keys that the BMC presents as the component's.
    pub keys: Vec<String>,
}

impl ComponentIntegrity {
    fn of(resource: &Resource) -> Option<Self> {
        let kind = resource.text(&["ComponentIntegrityType"])?;
        // TPM measurements come from the agent, by a quote.
        if !kind.eq_ignore_ascii_case("SPDM") {
            return None;
        }
        let list = resource.at(&["SPDM", "MeasurementSet", "Measurements"]);
        let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut reported: Vec<ReportedMeasurement> = list.iter().take(MEASUREMENTS_MAX).filter_map(reported).collect();
        reported.sort_by_key(|one| one.index);
        let identity = [
            "SPDM",
            "IdentityAuthentication",
            "ResponderAuthentication",
            "ComponentCertificate",
        ];
        Some(Self {
            target: resource
                .text(&["TargetComponentURI"])
                .unwrap_or_else(|| resource.path().to_owned()),
            enabled: resource.flag(&["ComponentIntegrityEnabled"]) != Some(false),
            reported,
            path: resource.path().to_owned(),
            sign: Action::find(resource, "ComponentIntegrity.SPDMGetSignedMeasurements").map(|action| action.target),
            certificate: resource.link(&identity),
        })
    }

    /// Whether a signature can be requested from the component.
    pub fn signs(&self) -> bool {
        self.sign.is_some()
    }
}

fn reported(value: &Value) -> Option<ReportedMeasurement> {
    let index = json::whole(value, &["MeasurementIndex"])?;
    Some(ReportedMeasurement {
        index: u8::try_from(index).ok()?,
        kind: json::text(value, &["MeasurementType"]).unwrap_or_default(),
        value: decoded(&json::text(value, &["Measurement"])?)?,
    })
}

/// Decodes Base64 with or without padding, also with line breaks.
fn decoded(text: &str) -> Option<Vec<u8>> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bare: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    GeneralPurpose::new(&STANDARD, config).decode(bare).ok()
}

impl BmcClient {
    /// Whether the BMC reports the firmware of components.
    ///
    /// # Errors
    /// The service root cannot be read.
    pub async fn offers_component_integrity(&self) -> Result<bool, RedfishError> {
        Ok(self.service_root().await?.component_integrity().is_some())
    }

    /// The components with firmware measured by SPDM. None: the BMC does not offer this.
    ///
    /// # Errors
    /// The list or a member cannot be read.
    pub async fn component_integrity(&self) -> Result<Option<Vec<ComponentIntegrity>>, RedfishError> {
        let Some(link) = self.service_root().await?.component_integrity() else {
            return Ok(None);
        };
        let members = match self.member_links(&link).await {
            Ok(members) => members,
            Err(failure) if matches!(failure.status(), Some(404 | 410 | 501)) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        if members.len() > COMPONENTS_MAX {
            return Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: format!("a list of at most {COMPONENTS_MAX} components"),
                offered: format!("{} components", members.len()),
            });
        }
        let mut components = Vec::new();
        for (_, fetched) in self.get_each(&members).await {
            components.extend(ComponentIntegrity::of(&fetched?));
        }
        Ok(Some(components))
    }

    /// Requests a signature of the component's measurements with this nonce.
    ///
    /// # Errors
    /// The component does not sign, or the BMC failed.
    pub async fn signed_measurements(
        &self,
        component: &ComponentIntegrity,
        nonce: &[u8; 32],
    ) -> Result<SignedMeasurements, RedfishError> {
        let Some(link) = &component.sign else {
            return Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: format!("signed measurements of {}", component.target),
                offered: "no signature of this component".to_owned(),
            });
        };
        let body = json!({"Nonce": hex::encode(nonce), "SlotId": 0, "MeasurementIndices": [255]});
        let reply = self.post(link, &body, Repeat::IfRefused).await?;
        let answer = self.signed(&reply, &component.path).await?;
        let statement = json::text(&answer, &["SignedMeasurements"]).and_then(|text| decoded(&text));
        let statement = statement.ok_or_else(|| self.unsigned(&component.path))?;
        let mut keys = Vec::new();
        keys.extend(json::text(&answer, &["PublicKey"]));
        let links = [json::link(&answer, &["Certificate"]), component.certificate.clone()];
        let mut read: Option<String> = None;
        for link in links.into_iter().flatten() {
            if read.as_ref() != Some(&link) {
                keys.extend(self.get(&link).await?.text(&["CertificateString"]));
                read = Some(link);
            }
        }
        keys.retain(|key| key.len() <= TEXT_MAX);
        Ok(SignedMeasurements { statement, keys })
    }

    /// The answer of the action: immediate, or at the end of a task. A task monitor returns the answer; some tasks name its
    /// path in their payload.
    async fn signed(&self, reply: &Reply, path: &str) -> Result<Value, RedfishError> {
        let is_answer = |body: &Value| json::text(body, &["SignedMeasurements"]).is_some();
        if let Some(body) = reply.json().filter(|body| is_answer(body)) {
            return Ok(body.clone());
        }
        let Some(task) = TaskHandle::of(reply, self.bmc()) else {
            return Err(self.unsigned(path));
        };
        let mut places: Vec<Url> = Vec::new();
        for place in task.places() {
            places.push(self.bmc().resolve(None, &place)?);
        }
        let settings = self.settings();
        let mut poll = Poll::new(&*settings.environment, settings.poll_first, settings.poll_cap, SIGNING);
        loop {
            let (mut is_running, mut more) = (false, Vec::new());
            for place in &places {
                let reply = match self.get_reply(place.clone()).await {
                    Ok(reply) => reply,
                    Err(failure) if matches!(failure.status(), Some(404 | 410)) => continue,
                    Err(failure) => return Err(failure),
                };
                let Some(body) = reply.json() else {
                    is_running |= reply.status.as_u16() == 202;
                    continue;
                };
                if is_answer(body) {
                    return Ok(body.clone());
                }
                let task = Task::from(Resource::new(place.path(), None, body.clone()));
                match task.phase() {
                    _ if !task.is_task() => is_running |= reply.status.as_u16() == 202,
                    TaskPhase::Running => is_running = true,
                    TaskPhase::Done => more.extend(self.named_place(&task)),
                    TaskPhase::Failed => {
                        return Err(RedfishError::TaskFailed {
                            bmc: self.address(),
                            path: place.path().to_owned(),
                            state: task.state().unwrap_or_default(),
                            detail: task.messages(),
                        });
                    }
                }
            }
            more.retain(|place| !places.contains(place));
            if more.is_empty() && !is_running {
                return Err(self.unsigned(path));
            }
            let is_named = !more.is_empty();
            places.extend(more);
            if !is_named && !poll.pause(None).await {
                return Err(RedfishError::WaitedTooLong {
                    bmc: self.address(),
                    what: format!("the signature of {path}"),
                    waited_s: poll.elapsed().as_secs(),
                    last: "the task is still running".to_owned(),
                });
            }
        }
    }

    /// `Location: ...` among the headers of a task's payload.
    fn named_place(&self, task: &Task) -> Option<Url> {
        let headers = task.resource().texts(&["Payload", "HttpHeaders"]);
        let location = headers.iter().find_map(|header| {
            let (name, value) = header.split_once(':')?;
            name.trim().eq_ignore_ascii_case("location").then_some(value)
        })?;
        self.bmc().resolve_location(location.trim()).ok()
    }

    fn unsigned(&self, path: &str) -> RedfishError {
        RedfishError::MissingProperty {
            bmc: self.address(),
            path: path.to_owned(),
            property: "SignedMeasurements",
            consequence: "the component's firmware is not proven",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(body: Value) -> Option<ComponentIntegrity> {
        ComponentIntegrity::of(&Resource::new("/redfish/v1/ComponentIntegrity/GPU_0", None, body))
    }

    #[test]
    fn malformed_entries_are_left_out_and_the_rest_is_read() {
        let seen = component(json!({
            "ComponentIntegrityType": "SPDM",
            "TargetComponentURI": "/redfish/v1/Chassis/GPU_0",
            "SPDM": {"MeasurementSet": {"Measurements": [
                {"MeasurementIndex": 2, "Measurement": "AQI=", "MeasurementType": "MutableFirmware"},
                {"MeasurementIndex": 1, "Measurement": "AQ"},
                {"MeasurementIndex": 300, "Measurement": "AQ=="},
                {"MeasurementIndex": 3, "Measurement": "not base64!"},
                {"MeasurementIndex": 4, "Measurement": null},
                7,
            ]}},
            "Actions": {"#ComponentIntegrity.SPDMGetSignedMeasurements": {"target": "/sign"}},
        }))
        .unwrap();
        assert!(seen.enabled && seen.signs());
        assert_eq!(seen.target, "/redfish/v1/Chassis/GPU_0");
        let reported: Vec<(u8, Vec<u8>)> = seen.reported.into_iter().map(|one| (one.index, one.value)).collect();
        assert_eq!(reported, [(1, vec![1]), (2, vec![1, 2])]);
    }

    #[test]
    fn a_tpm_is_no_component_and_one_without_a_target_is_itself() {
        assert_eq!(component(json!({"ComponentIntegrityType": "TPM"})), None);
        assert_eq!(component(json!({"ComponentIntegrityType": 7})), None);
        let bare = component(json!({"ComponentIntegrityType": "SPDM", "ComponentIntegrityEnabled": false})).unwrap();
        assert_eq!(bare.target, "/redfish/v1/ComponentIntegrity/GPU_0");
        assert!(!bare.enabled && !bare.signs() && bare.reported.is_empty());
    }
}
