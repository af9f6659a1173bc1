//! Messages of the API that the decoder accepts, with odd values in their fields: what follows must bear them.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use rackwright_api::DESCRIPTORS;
use rackwright_fuzz::changes::{Numbers, changed};
use rackwright_tests::wire::Method;

/// Messages in messages.
const DEPTH: usize = 5;
/// Texts of fields: names, and what may stand in the place of a name, an address, a number or a time.
const TEXTS: [&str; 24] = [
    "",
    "n1",
    "nodes/n1",
    "nodes/",
    "nodes/-",
    "nodes/../members/operator",
    "images/disk/versions/b3-00",
    "customers/acme",
    "clusters/alpha",
    "site",
    "*",
    "-1",
    "18446744073709551616",
    "1e400",
    "2026-13-41T25:61:61Z",
    "sha256:00",
    "https://127.0.0.1:9/%00?#",
    "ipmi://[::1",
    "52:54:00:zz",
    "a\0b",
    "\u{202e}\u{feff}\u{10ffff}",
    "{\"a\": [[[[[[[[",
    "'; DROP TABLE nodes; --",
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
];
const INTEGERS: [u64; 10] = [
    0,
    1,
    2,
    255,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];
const FLOATS: [f64; 6] = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE];

/// The descriptions of all messages, by their full names.
pub struct Messages(BTreeMap<String, DescriptorProto>);

impl Messages {
    pub fn new() -> Self {
        let set = FileDescriptorSet::decode(DESCRIPTORS).expect("the descriptors decode");
        let mut all = BTreeMap::new();
        for file in set.file {
            let package = format!(".{}", file.package());
            file.message_type
                .into_iter()
                .for_each(|one| add(&mut all, &package, one));
        }
        Self(all)
    }

    /// The request of a method. The same number gives the same message; every second one is a changed copy, which the
    /// decoder may refuse.
    pub fn request(&self, method: &Method, number: usize) -> Vec<u8> {
        let mut numbers = Numbers::of(number as u64);
        let message = self.message(&method.input, DEPTH, &mut numbers);
        match number.is_multiple_of(2) {
            true => message,
            false => changed(&message, &mut numbers),
        }
    }

    fn message(&self, of: &str, depth: usize, numbers: &mut Numbers) -> Vec<u8> {
        let description = self.0.get(of).unwrap_or_else(|| panic!("{of} is not described"));
        let mut bytes = Vec::new();
        for field in &description.field {
            let times = match field.label() {
                _ if numbers.below(4) == 0 => 0,
                Label::Repeated => numbers.below(4),
                _ => 1,
            };
            for _ in 0..times {
                self.field(field, depth, numbers, &mut bytes);
            }
        }
        bytes
    }

    fn field(&self, field: &FieldDescriptorProto, depth: usize, numbers: &mut Numbers, bytes: &mut Vec<u8>) {
        let mut tag = |wire: u64, content: &[u8]| {
            varint((u64::from(field.number().unsigned_abs()) << 3) | wire, bytes);
            if wire == 2 {
                varint(content.len() as u64, bytes);
            }
            bytes.extend_from_slice(content);
        };
        let float = FLOATS[numbers.below(FLOATS.len())];
        match field.r#type() {
            Type::Double => tag(1, &float.to_le_bytes()),
            Type::Float => tag(5, &(float as f32).to_le_bytes()),
            Type::Fixed64 | Type::Sfixed64 => tag(1, &INTEGERS[numbers.below(INTEGERS.len())].to_le_bytes()),
            Type::Fixed32 | Type::Sfixed32 => tag(5, &[numbers.below(256) as u8; 4]),
            Type::String => match numbers.below(16) {
                0 => tag(2, "x".repeat(numbers.below(20_000)).as_bytes()),
                _ => tag(2, TEXTS[numbers.below(TEXTS.len())].as_bytes()),
            },
            Type::Bytes => {
                let noise: Vec<u8> = (0..numbers.below(200)).map(|_| numbers.below(256) as u8).collect();
                tag(2, &noise);
            }
            Type::Message if depth == 0 => tag(2, &[]),
            Type::Message => {
                let inner = self.message(field.type_name(), depth - 1, numbers);
                tag(2, &inner);
            }
            Type::Group => {}
            Type::Bool | Type::Enum => {
                let mut value = Vec::new();
                varint(numbers.below(12) as u64, &mut value);
                tag(0, &value);
            }
            _ => {
                let mut value = Vec::new();
                varint(INTEGERS[numbers.below(INTEGERS.len())], &mut value);
                tag(0, &value);
            }
        }
    }
}

fn add(all: &mut BTreeMap<String, DescriptorProto>, within: &str, message: DescriptorProto) {
    let name = format!("{within}.{}", message.name());
    for inner in message.nested_type.clone() {
        add(all, &name, inner);
    }
    all.insert(name, message);
}

fn varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
