//! Resources as JSON values, by the protobuf JSON mapping (<https://protobuf.dev/programming-guides/json/>) with three
//! deviations, documented in `docs/cli.md`: fields keep their snake_case names, fields with default values are written
//! too (unset messages are not), and 64-bit integers are numbers.
//!
//! The conversion reads the API's own descriptors, so a field added to the API appears here automatically.

use std::sync::LazyLock;

use base64::Engine as _;
use prost_reflect::{DescriptorPool, DynamicMessage, EnumDescriptor, Kind, MapKey, ReflectMessage as _};
use rackwright_api::v1;
use serde_json::{Map, Value};

use crate::error::CliError;

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(rackwright_api::BARE_DESCRIPTORS).ok());

/// A message that can be shown: its name in the API's descriptors, and its output for `-o name`.
pub trait Resource: prost::Message {
    const MESSAGE: &'static str;
    fn resource_name(&self) -> String;
}

macro_rules! resources {
    ($($type:ident: |$it:ident| $name:expr),* $(,)?) => {
        $(impl Resource for v1::$type {
            const MESSAGE: &'static str = concat!("rackwright.v1.", stringify!($type));
            fn resource_name(&self) -> String {
                let $it = self;
                $name
            }
        })*

        #[cfg(test)]
        const MESSAGES: &[&str] = &[$(<v1::$type as Resource>::MESSAGE),*];
    };
}

resources! {
    AuditRecord: |it| format!("audit/{}", it.position),
    Node: |it| it.name.clone(),
    Member: |it| it.name.clone(),
    MemberToken: |it| it.name.clone(),
    Session: |it| it.name.clone(),
    ApiKey: |it| it.name.clone(),
    WatchNodesResponse: |it| it.node.as_ref().map(|node| node.name.clone()).unwrap_or_default(),
    Explanation: |it| it.node.as_ref().map(|node| node.name.clone()).unwrap_or_default(),
    Inventory: |it| it.dmi.as_ref().map(|dmi| dmi.serial_number.clone()).unwrap_or_default(),
    NodeSettings: |it| it.name.clone(),
    Report: |it| it.name.clone(),
    EraseCertificate: |it| it.name.clone(),
    ConsoleBoot: |it| it.boot.to_string(),
    ConsoleHostKey: |it| it.node.clone(),
    ReadConsoleLogResponse: |it| it.time.as_ref().map(crate::units::stamp).unwrap_or_default(),
    SshKey: |it| it.fingerprint.clone(),
    Image: |it| it.name.clone(),
    ImageSpread: |it| it.name.clone(),
    Operation: |it| it.name.clone(),
    Firmware: |it| it.name.clone(),
    GoldenFirmware: |it| it.name.clone(),
    NodeFirmware: |it| it.name.clone(),
    NodeCompliance: |it| it.node.clone(),
    MaintenanceWindow: |it| it.target.clone(),
    FleetSummary: |it| it.states.iter().map(|count| super::clean(&count.value)).collect::<Vec<_>>().join("\n"),
    Event: |it| it.position.to_string(),
    TraceBootResponse: |it| it.mac.clone(),
    UnknownMachine: |it| it.mac.clone(),
    GetCountersResponse: |it| {
        let mut names: Vec<_> = it.counters.keys().cloned().collect();
        names.sort();
        names.join("\n")
    },
    BmcWork: |it| it.name.clone(),
    ListBmcLogEntriesResponse: |it| {
        let ids: Vec<_> = it.entries.iter().map(|entry| super::clean(&format!("{}/{}", entry.log, entry.id))).collect();
        ids.join("\n")
    },
    Discovery: |it| it.name.clone(),
    Finding: |it| it.name.clone(),
    EnrolledFinding: |it| it.finding.clone(),
    Alarm: |it| it.name.clone(),
    ExplainPowerResponse: |it| it.name.clone(),
    PowerHeadroom: |it| it.name.clone(),
    Cluster: |it| it.name.clone(),
    HandoverPack: |it| {
        let names: Vec<_> = it.files.iter().map(|file| super::clean(&file.name)).collect();
        names.join("\n")
    },
    ClusterResizePlan: |it| {
        let names: Vec<_> = it.join.iter().chain(&it.leave).map(|name| super::clean(name)).collect();
        names.join("\n")
    },
    PlanSiteResponse: |it| {
        let names: Vec<_> = it.changes.iter().map(|change| super::clean(&change.name)).collect();
        names.join("\n")
    },
    Site: |it| it.name.clone(),
    ListFabricFaultsResponse: |it| {
        let names: Vec<_> = it.faults.iter().map(|fault| super::clean(&fault.id)).collect();
        names.join("\n")
    },
    Capacity: |it| {
        let names: Vec<_> = it.skus.iter().map(|sku| super::clean(&sku.sku)).collect();
        names.join("\n")
    },
    ListUsageResponse: |it| {
        let names: Vec<_> = it.records.iter().map(|record| record.node.clone()).collect();
        names.join("\n")
    },
    ListUsageBreachesResponse: |it| {
        let names: Vec<_> = it.breaches.iter().map(|breach| breach.cluster.clone()).collect();
        names.join("\n")
    },
    SumUsageResponse: |it| {
        let names: Vec<_> = it.sums.iter().map(|sum| super::clean(&sum.customer)).collect();
        names.join("\n")
    },
    Term: |it| it.name.clone(),
    FactoryCredential: |it| it.name.clone(),
    WhoAmIResponse: |it| it.member.clone(),
    Control: |it| if it.paused { "paused" } else { "working" }.to_owned(),
    CreateTokenResponse: |it| it.token.clone(),
    CreateConsoleTokenResponse: |it| it.token.clone(),
    CreateLoginTokenResponse: |it| it.url.clone(),
    CreateApiKeyResponse: |it| it.key.clone(),
}

/// The message as a JSON value.
///
/// # Errors
/// Only if the API's descriptors and types do not match, which a test excludes.
pub fn to_value<T: Resource>(message: &T) -> Result<Value, CliError> {
    let pool = POOL
        .as_ref()
        .ok_or_else(|| CliError::BadAnswer("the API's descriptors cannot be read".to_owned()))?;
    let descriptor = pool
        .get_message_by_name(T::MESSAGE)
        .ok_or_else(|| CliError::BadAnswer(format!("{} is not in the API's descriptors", T::MESSAGE)))?;
    let dynamic = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())
        .map_err(|e| CliError::BadAnswer(format!("{}: {e}", T::MESSAGE)))?;
    Ok(message_value(&dynamic))
}

fn message_value(message: &DynamicMessage) -> Value {
    let descriptor = message.descriptor();
    if let Some(value) = well_known(descriptor.full_name(), message) {
        return value;
    }
    let mut object = Map::new();
    for field in descriptor.fields() {
        if field.supports_presence() && !message.has_field(&field) {
            continue;
        }
        let value = field_value(message.get_field(&field).as_ref(), &field.kind());
        object.insert(field.name().to_owned(), value);
    }
    Value::Object(object)
}

fn field_value(value: &prost_reflect::Value, kind: &Kind) -> Value {
    use prost_reflect::Value as Proto;
    match value {
        Proto::Bool(v) => Value::from(*v),
        Proto::I32(v) => Value::from(*v),
        Proto::I64(v) => Value::from(*v),
        Proto::U32(v) => Value::from(*v),
        Proto::U64(v) => Value::from(*v),
        Proto::F32(v) => Value::from(*v),
        Proto::F64(v) => Value::from(*v),
        Proto::String(v) => Value::from(v.as_str()),
        Proto::Bytes(v) => Value::from(base64::engine::general_purpose::STANDARD.encode(v)),
        Proto::EnumNumber(number) => enum_value(*number, kind.as_enum()),
        Proto::Message(message) => message_value(message),
        Proto::List(list) => list.iter().map(|element| field_value(element, kind)).collect(),
        Proto::Map(map) => {
            let kind = kind
                .as_message()
                .map_or(Kind::String, |entry| entry.map_entry_value_field().kind());
            let mut pairs: Vec<(String, Value)> = map
                .iter()
                .map(|(key, value)| (map_key(key), field_value(value, &kind)))
                .collect();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(pairs.into_iter().collect())
        }
    }
}

fn enum_value(number: i32, descriptor: Option<&EnumDescriptor>) -> Value {
    match descriptor.and_then(|d| d.get_value(number)) {
        Some(value) => Value::from(value.name()),
        None => Value::from(number),
    }
}

fn map_key(key: &MapKey) -> String {
    match key {
        MapKey::Bool(v) => v.to_string(),
        MapKey::I32(v) => v.to_string(),
        MapKey::I64(v) => v.to_string(),
        MapKey::U32(v) => v.to_string(),
        MapKey::U64(v) => v.to_string(),
        MapKey::String(v) => v.clone(),
    }
}

/// The types with a special form in the mapping.
fn well_known(name: &str, message: &DynamicMessage) -> Option<Value> {
    match name {
        "google.protobuf.Timestamp" => {
            let time: prost_types::Timestamp = message.transcode_to().ok()?;
            Some(Value::from(time.to_string()))
        }
        "google.protobuf.Duration" => {
            let duration: prost_types::Duration = message.transcode_to().ok()?;
            Some(Value::from(duration.to_string()))
        }
        "google.protobuf.FieldMask" => {
            let mask: prost_types::FieldMask = message.transcode_to().ok()?;
            Some(Value::from(mask.paths.join(",")))
        }
        "google.protobuf.Any" => {
            let any: prost_types::Any = message.transcode_to().ok()?;
            let value = base64::engine::general_purpose::STANDARD.encode(&any.value);
            Some(serde_json::json!({ "@type": any.type_url, "value": value }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_in_the_descriptors() {
        let pool = POOL.as_ref().expect("descriptors");
        for message in MESSAGES {
            assert!(pool.get_message_by_name(message).is_some(), "{message}");
        }
    }

    #[test]
    fn the_mapping_is_as_documented() {
        let mut node = v1::Node {
            name: "nodes/a".into(),
            ..Default::default()
        };
        node.status = Some(v1::NodeStatus {
            state: v1::NodeState::Active as i32,
            state_since: Some(prost_types::Timestamp {
                seconds: 1_767_323_045,
                nanos: 500_000_000,
            }),
            claim_generation: 1 << 60,
            ..Default::default()
        });
        let labels = [("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())];
        node.metadata = Some(v1::Metadata {
            labels: labels.into(),
            ..Default::default()
        });
        let value = to_value(&node).unwrap();
        assert_eq!(value["name"], "nodes/a");
        assert_eq!(value["status"]["state"], "NODE_STATE_ACTIVE");
        assert_eq!(value["status"]["state_since"], "2026-01-02T03:04:05.500Z");
        assert_eq!(value["status"]["claim_generation"], 1u64 << 60);
        assert_eq!(value["status"]["agent_connected"], false, "default values are written");
        assert!(
            value["status"].get("inventory").is_none(),
            "messages that are not set are not"
        );
        assert!(value.get("spec").is_none());
        assert_eq!(
            value["metadata"]["labels"].to_string(),
            r#"{"a":"1","b":"2"}"#,
            "maps are sorted"
        );
    }

    #[test]
    fn bytes_durations_and_errors() {
        let certificate = v1::EraseCertificate {
            signature: vec![1, 2, 255],
            ..Default::default()
        };
        assert_eq!(to_value(&certificate).unwrap()["signature"], "AQL/");
        let history = vec![v1::Transition {
            time_in_former_state: Some(prost_types::Duration {
                seconds: 3,
                nanos: 500_000_000,
            }),
            ..Default::default()
        }];
        let value = to_value(&v1::Explanation {
            history,
            ..Default::default()
        })
        .unwrap();
        assert_eq!(value["history"][0]["time_in_former_state"], "3.500s");
        let error = rackwright_api::google::rpc::Status {
            code: 9,
            message: "no".into(),
            details: vec![prost_types::Any {
                type_url: "t/x".into(),
                value: vec![0],
            }],
        };
        let value = to_value(&v1::Operation {
            error: Some(error),
            ..Default::default()
        })
        .unwrap();
        assert_eq!(
            value["error"]["details"][0].to_string(),
            r#"{"@type":"t/x","value":"AA=="}"#
        );
    }
}
