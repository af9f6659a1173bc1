//! The types of the web console are those of the API: `crates/web/ui/src/api.ts` is written from the descriptors.
//! `UPDATE_GOLDEN=1` writes the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use prost_reflect::{Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/ui/src/api.ts");

/// The JSON form of a well-known message; none: the message has an interface of its own.
fn well_known(message: &MessageDescriptor) -> Option<&'static str> {
    Some(match message.full_name() {
        "google.protobuf.Timestamp" | "google.protobuf.Duration" | "google.protobuf.FieldMask" => "string",
        "google.protobuf.Any" | "google.protobuf.Struct" | "google.protobuf.Value" => "unknown",
        _ => return None,
    })
}

fn of_kind(kind: &Kind) -> String {
    match kind {
        Kind::Double | Kind::Float | Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Uint32 | Kind::Fixed32 => {
            "number".into()
        }
        Kind::Bool => "boolean".into(),
        Kind::Message(message) => well_known(message).map_or_else(|| message.name().to_owned(), str::to_owned),
        Kind::Enum(of) => of.name().to_owned(),
        // 64-bit integers and bytes are text in JSON.
        _ => "string".into(),
    }
}

fn type_of(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let value = entry.map_entry_value_field();
            format!("Record<string, {}>", of_kind(&value.kind()))
        }
        kind if field.cardinality() == Cardinality::Repeated => format!("{}[]", of_kind(&kind)),
        kind => of_kind(&kind),
    }
}

fn interface(message: &MessageDescriptor) -> String {
    let mut text = format!("export interface {} {{", message.name());
    let mut fields: Vec<FieldDescriptor> = message.fields().collect();
    // In the order of the file.
    fields.sort_by_key(|field| field.path()[field.path().len() - 1]);
    for field in &fields {
        let _ = write!(text, "\n  {}?: {};", field.json_name(), type_of(field));
    }
    text + if fields.is_empty() { "}\n" } else { "\n}\n" }
}

fn union(of: &EnumDescriptor) -> String {
    let names: Vec<String> = of.values().map(|value| format!("\n  | \"{}\"", value.name())).collect();
    format!("export type {} ={};\n", of.name(), names.concat())
}

/// The unary methods, or those that stream their responses.
fn methods(pool: &DescriptorPool, name: &str, streams: bool) -> String {
    let mut rows = Vec::new();
    for service in pool.services() {
        for method in service.methods().filter(|method| !method.is_client_streaming()) {
            if method.is_server_streaming() == streams {
                let (request, response) = (method.input(), method.output());
                rows.push(format!(
                    "  \"{}/{}\": {{ request: {}; response: {} }};\n",
                    service.name(),
                    method.name(),
                    request.name(),
                    response.name()
                ));
            }
        }
    }
    rows.sort();
    format!("export interface {name} {{\n{}}}\n", rows.concat())
}

fn written() -> String {
    let pool = DescriptorPool::decode(rackwright_api::BARE_DESCRIPTORS).expect("the API's descriptors");
    let is_shown = |message: &MessageDescriptor| {
        let package = message.package_name();
        let is_ours = package.starts_with("rackwright.") || message.full_name() == "google.rpc.Status";
        let is_empty = message.full_name() == "google.protobuf.Empty";
        (is_ours || is_empty) && !message.is_map_entry()
    };
    let enums: BTreeMap<String, String> = pool
        .all_enums()
        .filter(|of| of.package_name().starts_with("rackwright."))
        .map(|of| (of.name().to_owned(), union(&of)))
        .collect();
    let messages: BTreeMap<String, String> = pool
        .all_messages()
        .filter(is_shown)
        .map(|message| (message.name().to_owned(), interface(&message)))
        .collect();
    let mut parts = vec!["// Written from proto/ by a program; do not edit.\n".to_owned()];
    parts.extend(enums.into_values());
    parts.extend(messages.into_values());
    parts.push(methods(&pool, "Methods", false));
    parts.push(methods(&pool, "Streams", true));
    parts.join("\n")
}

#[test]
fn the_console_has_the_types_of_the_api() {
    let written = written();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(Path::new(FILE), &written).expect("the file can be written");
    }
    let present = std::fs::read_to_string(FILE).expect("the file can be read");
    if present != written {
        let first = present.lines().zip(written.lines()).position(|(a, b)| a != b);
        let line = first.unwrap_or_else(|| present.lines().count().min(written.lines().count()));
        panic!(
            "crates/web/ui/src/api.ts is not what proto/ says, from line {}: {:?} instead of {:?}; UPDATE_GOLDEN=1 writes it",
            line + 1,
            present.lines().nth(line),
            written.lines().nth(line)
        );
    }
}
