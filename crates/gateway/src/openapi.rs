//! The OpenAPI document of the REST paths, from the descriptors and their comments.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use prost_reflect::{Cardinality, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

use crate::methods::{Methods, OpenApi};
use crate::request;
use crate::rest::{Form, MUTATION, ROOT, Route, Segment};

/// Deepest nesting of a field that the query may set, such as `mutation.idempotency_key`.
const QUERY_DEPTH: usize = 2;
/// The name of the schema of errors.
const ERROR: &str = "Error";

/// The OpenAPI 3.1 document.
pub(crate) fn document(methods: &Methods, source: &OpenApi) -> Value {
    let mut schemas = Schemas {
        comments: Comments::of(methods.files()),
        ..Schemas::default()
    };
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in methods.routes().all() {
        let (path, names) = template(route);
        let mut operation = operation(route, &names, &mut schemas);
        operation["operationId"] = operation_id(route, &names, methods).into();
        if source.open.contains(&request::path(&route.method).as_str()) {
            operation["security"] = json!([]);
        }
        let verb = route.verb.as_str().to_ascii_lowercase();
        paths.entry(path).or_default().insert(verb, operation);
    }
    let mut schemas = schemas.finish();
    schemas.insert(ERROR.to_owned(), error_schema());
    json!({
        "openapi": "3.1.0",
        "info": {"title": source.title, "version": source.version},
        "security": [{"certificate": []}, {"apiKey": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "certificate": {"type": "mutualTLS", "description": "The certificate of a member"},
                "apiKey": {"type": "http", "scheme": "bearer", "description": "An API key of a member"},
            },
        },
    })
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["code", "status", "message"],
            "properties": {
                "code": {"type": "integer", "description": "The HTTP status"},
                "status": {"type": "string", "description": "The name of the code in gRPC"},
                "message": {"type": "string"},
                "details": {"type": "array", "items": {
                    "type": "object",
                    "required": ["@type"],
                    "properties": {"@type": {"type": "string"}},
                    "additionalProperties": true,
                }},
            },
        }},
    })
}

/// The path with a parameter for each variable segment, and the names of these parameters.
fn template(route: &Route) -> (String, Vec<String>) {
    let (mut path, mut names) = (ROOT.trim_end_matches('/').to_owned(), Vec::new());
    let mut before = "";
    for segment in &route.segments {
        path.push('/');
        match segment {
            Segment::Literal(text) => {
                path.push_str(text);
                before = text;
            }
            Segment::Any => {
                let name = singular(before);
                path.push_str(&format!("{{{name}}}"));
                names.push(name);
            }
        }
    }
    if let Some(action) = &route.action {
        path.push(':');
        path.push_str(action);
    }
    (path, names)
}

/// `discoveries` becomes `discovery`, `golden-firmware` becomes `golden_firmware`.
fn singular(collection: &str) -> String {
    let name = match collection.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => collection.strip_suffix('s').unwrap_or(collection).to_owned(),
    };
    name.replace('-', "_")
}

/// The method. If the method has several paths, also the last parameter of the path.
fn operation_id(route: &Route, names: &[String], methods: &Methods) -> String {
    let method = &route.method;
    let id = format!("{}_{}", method.parent_service().name(), method.name());
    let paths = methods.routes().all().filter(|other| other.method == *method);
    match (paths.count(), names.last()) {
        (2.., Some(name)) => format!("{id}_{name}"),
        _ => id,
    }
}

fn operation(route: &Route, names: &[String], schemas: &mut Schemas) -> Value {
    let method = &route.method;
    let input = method.input();
    let mut parameters: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    if route.takes_query() {
        query_of(route, schemas, &mut parameters);
    }
    if input.get_field_by_name(MUTATION).is_some() {
        for (name, description) in [
            ("Idempotency-Key", "Sets mutation.idempotency_key"),
            (
                "If-Match",
                "Sets mutation.resource_version: only this version is changed",
            ),
        ] {
            let schema = json!({"type": "string"});
            parameters.push(json!({"name": name, "in": "header", "description": description, "schema": schema}));
        }
    }
    let comment = schemas.comments.at(&method.parent_file(), method.path());
    let content_type = match method.is_server_streaming() {
        true => "application/jsonl",
        false => "application/json",
    };
    let (code, result) = match route.form {
        Form::WebSocket(_) => ("101", json!({"description": "The connection is a WebSocket"})),
        Form::Message | Form::Bytes(_) => {
            let output = schemas.of_message(&method.output());
            let content = json!({content_type: {"schema": output}});
            ("200", json!({"description": "The result", "content": content}))
        }
    };
    let mut operation = json!({
        "tags": [method.parent_service().name()],
        "responses": {
            code: result,
            "default": {
                "description": "An error",
                "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{ERROR}")}}},
            },
        },
    });
    if let Some(fields) = operation.as_object_mut() {
        if !comment.is_empty() {
            fields.insert("description".to_owned(), comment.clone().into());
        }
        if !parameters.is_empty() {
            fields.insert("parameters".to_owned(), parameters.clone().into());
        }
        let content = match route.form {
            Form::Message if !route.takes_query() => {
                Some(json!({"application/json": {"schema": schemas.of_message(&input)}}))
            }
            Form::Bytes(_) => Some(json!({"application/octet-stream": {}})),
            Form::Message | Form::WebSocket(_) => None,
        };
        if let Some(content) = content {
            let body = json!({"required": true, "content": content});
            fields.insert("requestBody".to_owned(), body);
        }
    }
    operation
}

/// The parameters of a route's query.
fn query_of(route: &Route, schemas: &mut Schemas, parameters: &mut Vec<Value>) {
    let input = route.method.input();
    let variable = route.variable.as_ref().map(|(field, _, _)| field.as_str());
    let inner = route.query_field().and_then(|outer| {
        let field = input.get_field_by_name(outer)?;
        field.kind().as_message().cloned()
    });
    match (inner, &route.form) {
        (Some(inner), _) => {
            let variable = variable.and_then(|path| path.rsplit_once('.')).map(|(_, name)| name);
            query(&inner, "", QUERY_DEPTH, variable, schemas, parameters);
        }
        (None, Form::Bytes(data)) => {
            query(&input, "", QUERY_DEPTH, variable, schemas, parameters);
            parameters.retain(|parameter| parameter["name"] != data.name());
        }
        (None, _) => query(&input, "", QUERY_DEPTH, variable, schemas, parameters),
    }
}

/// The fields of a message as parameters of the query.
fn query(
    message: &MessageDescriptor,
    before: &str,
    depth: usize,
    variable: Option<&str>,
    schemas: &mut Schemas,
    parameters: &mut Vec<Value>,
) {
    for field in message.fields().filter(|field| !field.is_map()) {
        let name = format!("{before}{}", field.name());
        if variable == Some(name.as_str()) {
            continue;
        }
        if let Kind::Message(inner) = field.kind()
            && well_known(&inner).is_none()
        {
            if depth > 1 && field.cardinality() != Cardinality::Repeated {
                query(&inner, &format!("{name}."), depth - 1, variable, schemas, parameters);
            }
            continue;
        }
        let mut parameter = json!({"name": name, "in": "query", "schema": schemas.of_field(&field)});
        let comment = schemas.comments.at(&message.parent_file(), field.path());
        if let (Some(parameter), false) = (parameter.as_object_mut(), comment.is_empty()) {
            parameter.insert("description".to_owned(), comment.into());
        }
        parameters.push(parameter);
    }
}

/// The schemas of messages and enums that paths use.
#[derive(Debug, Default)]
struct Schemas {
    comments: Comments,
    messages: BTreeMap<String, MessageDescriptor>,
    enums: BTreeMap<String, EnumDescriptor>,
}

impl Schemas {
    fn of_message(&mut self, message: &MessageDescriptor) -> Value {
        if let Some(schema) = well_known(message) {
            return schema;
        }
        let name = short(message.full_name());
        self.messages.entry(name.clone()).or_insert_with(|| message.clone());
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    fn of_kind(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::Double | Kind::Float => json!({"type": "number"}),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => json!({"type": "integer", "format": "int32"}),
            Kind::Uint32 | Kind::Fixed32 => json!({"type": "integer", "minimum": 0}),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => json!({"type": "string", "format": "int64"}),
            Kind::Uint64 | Kind::Fixed64 => json!({"type": "string", "format": "uint64"}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::String => json!({"type": "string"}),
            Kind::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
            Kind::Message(message) => self.of_message(message),
            Kind::Enum(values) => {
                let name = short(values.full_name());
                self.enums.entry(name.clone()).or_insert_with(|| values.clone());
                json!({"$ref": format!("#/components/schemas/{name}")})
            }
        }
    }

    fn of_field(&mut self, field: &FieldDescriptor) -> Value {
        if field.is_map()
            && let Kind::Message(entry) = field.kind()
        {
            let value = self.of_kind(&entry.map_entry_value_field().kind());
            return json!({"type": "object", "additionalProperties": value});
        }
        let one = self.of_kind(&field.kind());
        match field.is_list() {
            true => json!({"type": "array", "items": one}),
            false => one,
        }
    }

    /// All schemas, with those that they need themselves.
    fn finish(mut self) -> Map<String, Value> {
        let mut done: BTreeMap<String, Value> = BTreeMap::new();
        loop {
            let left = self.messages.iter().find(|(name, _)| !done.contains_key(*name));
            let Some((name, message)) = left.map(|(name, message)| (name.clone(), message.clone())) else {
                break;
            };
            let mut properties = Map::new();
            for field in message.fields() {
                let mut schema = self.of_field(&field);
                let comment = self.comments.at(&message.parent_file(), field.path());
                if let (Some(schema), false) = (schema.as_object_mut(), comment.is_empty()) {
                    schema.insert("description".to_owned(), comment.into());
                }
                properties.insert(field.json_name().to_owned(), schema);
            }
            let mut schema = json!({"type": "object", "properties": properties});
            let comment = self.comments.at(&message.parent_file(), message.path());
            if let (Some(schema), false) = (schema.as_object_mut(), comment.is_empty()) {
                schema.insert("description".to_owned(), comment.into());
            }
            done.insert(name, schema);
        }
        for (name, values) in self.enums {
            let names: BTreeSet<String> = values.values().map(|value| value.name().to_owned()).collect();
            let mut schema = json!({"type": "string", "enum": names});
            let comment = self.comments.at(&values.parent_file(), values.path());
            if let (Some(schema), false) = (schema.as_object_mut(), comment.is_empty()) {
                schema.insert("description".to_owned(), comment.into());
            }
            done.insert(name, schema);
        }
        done.into_iter().collect()
    }
}

/// The name without its package: `rackwright.v1.Node.Status` becomes `Node.Status`.
fn short(full_name: &str) -> String {
    let words = full_name.split('.');
    let words: Vec<&str> = words.skip_while(|word| !word.starts_with(char::is_uppercase)).collect();
    words.join(".")
}

/// The schema of a message with a JSON form of its own.
fn well_known(message: &MessageDescriptor) -> Option<Value> {
    Some(match message.full_name() {
        "google.protobuf.Timestamp" => json!({"type": "string", "format": "date-time"}),
        "google.protobuf.Duration" => json!({"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?s$"}),
        "google.protobuf.FieldMask" => json!({"type": "string", "description": "Names of fields, separated by commas"}),
        "google.protobuf.Empty" => json!({"type": "object"}),
        "google.protobuf.Any" => json!({
            "type": "object",
            "properties": {"@type": {"type": "string"}},
            "additionalProperties": true,
        }),
        _ => return None,
    })
}

/// The comments before the parts of files, by the name of the file and the path of the part.
#[derive(Debug, Default)]
struct Comments(HashMap<(String, Vec<i32>), String>);

impl Comments {
    fn of(files: impl Iterator<Item = FileDescriptor>) -> Self {
        let mut comments = HashMap::new();
        for file in files {
            let info = file.file_descriptor_proto().source_code_info.as_ref();
            for location in info.into_iter().flat_map(|info| &info.location) {
                let lines: Vec<&str> = location.leading_comments().lines().map(str::trim).collect();
                let text = lines.join(" ").trim().to_owned();
                if !text.is_empty() {
                    comments.insert((file.name().to_owned(), location.path.clone()), text);
                }
            }
        }
        Self(comments)
    }

    /// Empty: there is no comment.
    fn at(&self, file: &FileDescriptor, path: &[i32]) -> String {
        let comment = self.0.get(&(file.name().to_owned(), path.to_vec()));
        comment.cloned().unwrap_or_default()
    }
}
