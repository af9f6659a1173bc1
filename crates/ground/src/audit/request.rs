//! Reads the fields that the audit shows from the bytes of a request.
//!
//! The layer around all services has the bytes and the path, so no method needs code for the audit. The bytes are hostile:
//! depth, lengths and counts are bounded, and unreadable parts are left out.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use rackwright_api::DESCRIPTORS;
use serde_json::{Map, Value};

use super::fields;
use crate::text::cut;

/// The package of this project's messages.
const OURS: &str = ".rackwright.v1.";
/// The text in place of a hidden value.
const LEFT_OUT: &str = "(left out)";
/// Length of the gRPC frame header: a flag and the message length.
const FRAME: usize = 5;
/// Longest text that is shown, in bytes.
const TEXT_MAX: usize = 256;
/// Most values of a repeated field that are shown.
const REPEATED_MAX: usize = 16;
/// Deepest nesting of messages that is read.
const DEPTH: usize = 6;
/// Longest JSON of a request, in bytes.
const JSON_MAX: usize = 8 << 10;
/// Fields that name the resource of a request, most specific first, each with the collection of a bare id.
const TARGETS: &[(&str, &str)] = &[
    ("name", ""),
    ("target", ""),
    ("node", "nodes"),
    ("node_id", "nodes"),
    ("cluster_id", "clusters"),
    ("image_id", "images"),
    ("member", "members"),
    ("parent", ""),
    ("fingerprint", "sshKeys"),
    ("mac", "machines"),
];

struct Schema {
    messages: HashMap<String, Shape>,
    enums: HashMap<String, HashMap<i32, String>>,
    /// Request message by "Service/Method".
    requests: HashMap<String, String>,
}

struct Shape {
    is_map_entry: bool,
    fields: HashMap<u32, Field>,
}

struct Field {
    name: String,
    kind: Type,
    type_name: String,
    is_repeated: bool,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::load);

impl Schema {
    fn load() -> Self {
        let mut schema = Self {
            messages: HashMap::new(),
            enums: HashMap::new(),
            requests: HashMap::new(),
        };
        // The descriptor bytes are compiled in, so decoding cannot fail.
        let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default();
        for file in &files.file {
            let package = format!(".{}.", file.package());
            for message in &file.message_type {
                schema.add(&package, message);
            }
            schema.add_enums(&package, &file.enum_type);
            for service in &file.service {
                for method in &service.method {
                    let name = format!("{}/{}", service.name(), method.name());
                    schema.requests.insert(name, method.input_type().to_owned());
                }
            }
        }
        schema
    }

    fn add_enums(&mut self, prefix: &str, enums: &[prost_types::EnumDescriptorProto]) {
        for one in enums {
            let values = one.value.iter().map(|value| (value.number(), value.name().to_owned()));
            self.enums.insert(format!("{prefix}{}", one.name()), values.collect());
        }
    }

    fn add(&mut self, prefix: &str, message: &DescriptorProto) {
        let name = format!("{prefix}{}", message.name());
        let inner = format!("{name}.");
        for nested in &message.nested_type {
            self.add(&inner, nested);
        }
        self.add_enums(&inner, &message.enum_type);
        let field = |field: &prost_types::FieldDescriptorProto| {
            let shape = Field {
                name: field.name().to_owned(),
                kind: field.r#type(),
                type_name: field.type_name().to_owned(),
                is_repeated: field.label() == Label::Repeated,
            };
            (u32::try_from(field.number()).unwrap_or(0), shape)
        };
        let shape = Shape {
            is_map_entry: message.options.as_ref().is_some_and(|options| options.map_entry()),
            fields: message.field.iter().map(field).collect(),
        };
        self.messages.insert(name, shape);
    }
}

/// The shown fields of a request. `body` begins with the frame of the first message.
#[must_use]
pub fn shown(method: &str, body: &[u8]) -> Map<String, Value> {
    let (Some(request), Some(message)) = (SCHEMA.requests.get(method), body.get(FRAME..)) else {
        return Map::new();
    };
    let length = body.get(1..FRAME).and_then(|length| length.try_into().ok());
    let length = length.map_or(0, |length| {
        usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX)
    });
    // A compressed message is not read; the services do not accept it either.
    if body.first() != Some(&0) {
        return Map::new();
    }
    let read = read(request, &message[..message.len().min(length)], false, DEPTH);
    if Value::Object(read.clone()).to_string().len() <= JSON_MAX {
        return read;
    }
    let short = |(_, value): &(String, Value)| value.to_string().len() <= TEXT_MAX + 2;
    let mut kept: Map<String, Value> = read.into_iter().filter(short).collect();
    kept.insert("long fields".into(), LEFT_OUT.into());
    kept
}

/// The resource that a request names.
#[must_use]
pub fn target(request: &Map<String, Value>) -> String {
    let of = |fields: &Map<String, Value>| {
        TARGETS.iter().find_map(|(field, collection)| {
            let name = fields.get(*field)?.as_str().filter(|name| *name != LEFT_OUT)?;
            match *collection {
                "" => Some(name.to_owned()),
                _ if name.contains('/') => Some(name.to_owned()),
                collection => Some(format!("{collection}/{name}")),
            }
        })
    };
    // Otherwise the first nested message with a name: `UpdateNodeRequest.node.name`.
    let inner = || request.values().filter_map(Value::as_object).find_map(of);
    of(request).or_else(inner).unwrap_or_default()
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// The next field: its number and value.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u32, Wire<'a>)> {
    let key = varint(bytes)?;
    let number = u32::try_from(key >> 3).ok()?;
    let value = match key & 7 {
        0 => Wire::Number(varint(bytes)?),
        1 => Wire::Number(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?)),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Wire::Bytes(take(bytes, length)?)
        }
        5 => Wire::Number(u64::from(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?))),
        _ => return None,
    };
    Some((number, value))
}

/// Reads a message up to the first invalid byte or the end. With `is_shown` all fields are shown, as for the entries of a
/// shown map.
fn read(name: &str, mut bytes: &[u8], is_shown: bool, depth: usize) -> Map<String, Value> {
    let mut read = Map::new();
    let Some(shape) = SCHEMA.messages.get(name).filter(|_| depth > 0) else {
        return read;
    };
    let short = name.strip_prefix(OURS);
    let is_shown = is_shown || short.is_none();
    while let Some((number, value)) = next(&mut bytes) {
        let Some(field) = shape.fields.get(&number) else {
            continue;
        };
        let shown = is_shown || fields::is_shown(short.unwrap_or(name), &field.name);
        let value = match shown {
            true => self::value(field, &value, depth),
            false => LEFT_OUT.into(),
        };
        put(&mut read, field, value);
    }
    read
}

fn put(read: &mut Map<String, Value>, field: &Field, value: Value) {
    if !field.is_repeated || value == LEFT_OUT {
        // A message that comes twice is merged, as by the service.
        match (read.get_mut(&field.name), value) {
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (_, value) => {
                read.insert(field.name.clone(), value);
            }
        }
        return;
    }
    let values = read.entry(&field.name).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(values) = values {
        match values.len() {
            n if n < REPEATED_MAX => values.push(value),
            n if n == REPEATED_MAX => values.push("(and more)".into()),
            _ => {}
        }
    }
}

fn value(field: &Field, value: &Wire<'_>, depth: usize) -> Value {
    match (field.kind, value) {
        (Type::String, Wire::Bytes(bytes)) => cut(&String::from_utf8_lossy(bytes), TEXT_MAX).into(),
        (Type::Bytes, Wire::Bytes(bytes)) => format!("({} bytes)", bytes.len()).into(),
        (Type::Message, Wire::Bytes(bytes)) => {
            let is_entry = SCHEMA
                .messages
                .get(&field.type_name)
                .is_some_and(|shape| shape.is_map_entry);
            Value::Object(read(&field.type_name, bytes, is_entry, depth - 1))
        }
        // Packed numbers are read from their bytes, without their types.
        (_, Wire::Bytes(bytes)) => {
            let mut rest = *bytes;
            let numbers = std::iter::from_fn(|| varint(&mut rest)).take(REPEATED_MAX);
            Value::Array(numbers.map(Value::from).collect())
        }
        (Type::Bool, Wire::Number(number)) => (*number != 0).into(),
        (Type::Enum, Wire::Number(number)) => {
            let number = i32::try_from(*number).unwrap_or(-1);
            let name = SCHEMA
                .enums
                .get(&field.type_name)
                .and_then(|values| values.get(&number));
            name.map_or_else(|| number.into(), |name| name.as_str().into())
        }
        (Type::Int32 | Type::Int64, Wire::Number(number)) => number.cast_signed().into(),
        (_, Wire::Number(number)) => (*number).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rackwright_api::v1;

    use super::*;

    fn framed(message: &impl prost::Message) -> Vec<u8> {
        let bytes = message.encode_to_vec();
        let mut framed = vec![0];
        framed.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        framed.extend(bytes);
        framed
    }

    #[test]
    fn each_field_of_a_request_is_either_shown_or_left_out_on_purpose() {
        let listed: BTreeSet<&str> = fields::LIST
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| &line[2..])
            .collect();
        let mut todo: Vec<&String> = SCHEMA.requests.values().filter(|name| name.starts_with(OURS)).collect();
        // The streams of agents are not audited.
        todo.retain(|name| !name.ends_with(".AgentMessage") && !name.ends_with(".ChunkMessage"));
        let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
        while let Some(name) = todo.pop() {
            let shape = &SCHEMA.messages[name];
            if !seen.insert(name) {
                continue;
            }
            for field in shape.fields.values() {
                let short = format!("{}.{}", name.strip_prefix(OURS).unwrap_or(name), field.name);
                if fields::is_shown(&name[OURS.len()..], &field.name)
                    && field.type_name.starts_with(OURS)
                    && SCHEMA
                        .messages
                        .get(&field.type_name)
                        .is_some_and(|shape| !shape.is_map_entry)
                {
                    todo.push(&field.type_name);
                }
                found.insert(short);
            }
        }
        let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        let unlisted: Vec<_> = found.difference(&listed).collect();
        let gone: Vec<_> = listed.difference(&found).collect();
        assert!(unlisted.is_empty(), "decide in audit/fields.txt about {unlisted:?}");
        assert!(
            gone.is_empty(),
            "audit/fields.txt lists what is no field of a request: {gone:?}"
        );
        let secrets = ["password", "token", "user_data", "csr_pem", "proof"];
        let shown = listed.iter().filter(|field| {
            let (message, name) = field.split_once('.').unwrap();
            secrets.contains(&name) && fields::is_shown(message, name)
        });
        assert_eq!(shown.count(), 0);
    }

    #[test]
    fn a_request_is_shown_without_its_secrets_and_with_its_target() {
        let request = v1::EnrollNodeRequest {
            node_id: "n17".into(),
            spec: Some(v1::NodeSpec {
                bmc: Some(v1::Bmc {
                    address: "https://192.0.2.1".into(),
                    username: "admin".into(),
                    password: "hunter2".into(),
                    ..v1::Bmc::default()
                }),
                sku: "h100".into(),
                ..v1::NodeSpec::default()
            }),
            labels: [("rack".to_owned(), "r1".to_owned())].into(),
            ..v1::EnrollNodeRequest::default()
        };
        let shown = shown("NodeService/EnrollNode", &framed(&request));
        assert_eq!(target(&shown), "nodes/n17");
        let text = Value::Object(shown).to_string();
        assert!(
            text.contains("admin") && text.contains("h100") && text.contains("r1"),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
        let request = v1::CreateTokenRequest {
            member: "ann".into(),
            role: v1::Role::Auditor.into(),
            ..v1::CreateTokenRequest::default()
        };
        let shown = super::shown("AuthService/CreateToken", &framed(&request));
        assert_eq!(target(&shown), "members/ann");
        assert_eq!(shown["role"], "ROLE_AUDITOR");
    }

    #[test]
    fn bytes_that_are_no_request_are_read_as_far_as_they_go() {
        let request = v1::HoldNodeRequest {
            name: "nodes/n17".into(),
            reason: "x".repeat(100_000),
            ..v1::HoldNodeRequest::default()
        };
        let whole = framed(&request);
        for end in (0..64).chain([1000, whole.len()]) {
            let shown = shown("NodeService/HoldNode", &whole[..end]);
            assert!(Value::Object(shown).to_string().len() < JSON_MAX);
        }
        assert_eq!(target(&shown("NodeService/HoldNode", &whole[..16 << 10])), "nodes/n17");
        for byte in 0..=u8::MAX {
            let mut noise = vec![0, 0, 0, 1, 0];
            noise.extend(std::iter::repeat_n(byte, 256));
            let _ = shown("NodeService/EnrollNode", &noise);
        }
        assert!(shown("NoService/NoMethod", &whole).is_empty());
    }
}
