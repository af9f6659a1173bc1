//! REST paths of methods, from a table.

use std::collections::HashMap;
use std::fmt;

use http::{HeaderMap, HeaderName, Method, StatusCode};
use percent_encoding::percent_decode_str;
use prost::Message as _;
use prost_reflect::{Cardinality, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use serde_json::{Map, Value, json};
use tonic::Status;

use crate::methods::{Methods, invalid};

/// The verb of a WebSocket in the table. The request is a `GET`.
const WEBSOCKET: &str = "WEBSOCKET";
/// Before the paths of the table.
pub(crate) const ROOT: &str = "/v1/";
/// The field of a changing request with the key and the version.
pub(crate) const MUTATION: &str = "mutation";
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A fault of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableError {
    /// The number of the line, from 1.
    pub line: usize,
    pub fault: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the table of REST paths: {}", self.line, self.fault)
    }
}

impl std::error::Error for TableError {}

/// A part of a path between two slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(String),
    Any,
}

/// How a path carries the messages of its method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// The request is one message.
    Message,
    /// The request's body is raw bytes. They become this field of a stream of messages.
    Bytes(FieldDescriptor),
    /// A WebSocket carries messages in both directions. The binary ones are this field.
    WebSocket(FieldDescriptor),
}

/// A path with its method.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) verb: Method,
    pub(crate) form: Form,
    pub(crate) segments: Vec<Segment>,
    /// The word after the last colon.
    pub(crate) action: Option<String>,
    /// The field that the path sets: its path in the request, and its first and last segment.
    pub(crate) variable: Option<(String, usize, usize)>,
    pub(crate) method: MethodDescriptor,
}

/// All REST paths.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// By the number of segments.
    by_length: HashMap<usize, Vec<Route>>,
}

/// A request as the table reads it.
#[derive(Debug)]
pub(crate) struct Routed {
    pub(crate) method: MethodDescriptor,
    pub(crate) form: Form,
    /// The encoded fields from path, query and headers. They are merged into the message of the body, or into the first
    /// message of a stream.
    pub(crate) fields: Vec<u8>,
}

/// Why a path has no method.
#[derive(Debug)]
pub(crate) enum Unrouted {
    /// The path is unknown.
    NotFound,
    /// The path is known with these verbs.
    OtherVerb(Vec<Method>),
    /// The fields do not fit.
    Status(Status),
}

impl Unrouted {
    pub(crate) fn status(&self) -> (StatusCode, Status) {
        match self {
            Self::NotFound => {
                let message = "no method has this path; /openapi.json describes all paths";
                (StatusCode::NOT_FOUND, Status::not_found(message))
            }
            Self::OtherVerb(verbs) => {
                let verbs: Vec<&str> = verbs.iter().map(Method::as_str).collect();
                let message = format!("this path takes {}", verbs.join(", "));
                (StatusCode::METHOD_NOT_ALLOWED, Status::unimplemented(message))
            }
            Self::Status(status) => (crate::error::http_status(status.code()), status.clone()),
        }
    }
}

impl Form {
    fn of(verb: &str, method: &MethodDescriptor) -> Result<Self, String> {
        let name = method.full_name();
        let has_bytes = |message: &MessageDescriptor| {
            bytes_field(message).ok_or_else(|| format!("{} does not have one field of bytes", message.full_name()))
        };
        match (verb, method.is_client_streaming(), method.is_server_streaming()) {
            ("PUT", true, false) => Ok(Self::Bytes(has_bytes(&method.input())?)),
            (WEBSOCKET, true, true) => {
                has_bytes(&method.output())?;
                Ok(Self::WebSocket(has_bytes(&method.input())?))
            }
            ("PUT", ..) => Err(format!("{name} is not a stream of requests with one response")),
            (WEBSOCKET, ..) => Err(format!("{name} does not stream in both directions")),
            (_, true, _) => Err(format!("{name} streams its requests")),
            (_, false, _) => Ok(Self::Message),
        }
    }
}

/// The only field of bytes of a message.
pub(crate) fn bytes_field(message: &MessageDescriptor) -> Option<FieldDescriptor> {
    let mut found = message
        .fields()
        .filter(|field| field.kind() == Kind::Bytes && !field.is_list());
    found.next().filter(|_| found.next().is_none())
}

impl Route {
    /// Whether the query has fields of the request.
    pub(crate) fn takes_query(&self) -> bool {
        matches!(self.verb, Method::GET | Method::DELETE | Method::PUT)
    }

    /// The field of the request with the fields of the query. `None`: the request itself has them. A WebSocket's fields are
    /// those of the message with the variable of the path.
    pub(crate) fn query_field(&self) -> Option<&str> {
        let (variable, _, _) = self.variable.as_ref()?;
        match self.form {
            Form::WebSocket(_) => variable.rsplit_once('.').map(|(outer, _)| outer),
            Form::Message | Form::Bytes(_) => None,
        }
    }

    fn parse(line: &str, methods: &Methods, package: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [verb, path, method] = words.as_slice() else {
            return Err("it does not have a verb, a path and a method".to_owned());
        };
        let found = methods.get(&format!("/{package}.{method}"));
        let method = found.ok_or_else(|| format!("there is no method {method}"))?.clone();
        let form = Form::of(verb, &method)?;
        let verb = match *verb {
            "GET" | WEBSOCKET => Method::GET,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            other => return Err(format!("{other} is not GET, POST, PUT, PATCH, DELETE or {WEBSOCKET}")),
        };
        let path = path
            .strip_prefix(ROOT)
            .ok_or_else(|| format!("{path} does not begin with {ROOT}"))?;
        let (path, action) = match path.rsplit_once(':') {
            Some((path, action)) => (path, Some(action.to_owned())),
            None => (path, None),
        };
        let (mut segments, mut variable) = (Vec::new(), None);
        let mut rest = path;
        while !rest.is_empty() {
            if let Some(opened) = rest.strip_prefix('{') {
                let (inner, after) = opened.split_once('}').ok_or("a { is not closed")?;
                let (field, pattern) = inner.split_once('=').ok_or("a variable has no pattern")?;
                check_field(&method.input(), field)?;
                let first = segments.len();
                segments.extend(pattern.split('/').map(segment));
                if variable
                    .replace((field.to_owned(), first, segments.len() - 1))
                    .is_some()
                {
                    return Err("there are two variables".to_owned());
                }
                rest = after.strip_prefix('/').unwrap_or(after);
            } else {
                let (one, after) = rest.split_once('/').unwrap_or((rest, ""));
                segments.push(segment(one));
                rest = after;
            }
        }
        Ok(Self {
            verb,
            form,
            segments,
            action,
            variable,
            method,
        })
    }

    /// The segments of the path without the action. `None`: it is another path.
    fn matched<'a>(&self, path: &'a str) -> Option<Vec<&'a str>> {
        let path = match &self.action {
            Some(action) => path.strip_suffix(action.as_str())?.strip_suffix(':')?,
            None => path,
        };
        let given: Vec<&str> = path.split('/').collect();
        let fits = |(own, given): (&Segment, &&str)| match own {
            Segment::Literal(own) => own == given,
            Segment::Any => !given.is_empty(),
        };
        (given.len() == self.segments.len() && self.segments.iter().zip(&given).all(fits)).then_some(given)
    }
}

fn segment(text: &str) -> Segment {
    match text {
        "*" => Segment::Any,
        other => Segment::Literal(other.to_owned()),
    }
}

/// Whether the variable names a text of the request.
fn check_field(message: &MessageDescriptor, path: &str) -> Result<(), String> {
    let missing = || format!("{} has no text {path}", message.full_name());
    match path.split_once('.') {
        None => {
            let field = message.get_field_by_name(path).ok_or_else(missing)?;
            (field.kind() == Kind::String && !field.is_list())
                .then_some(())
                .ok_or_else(missing)
        }
        Some((first, rest)) => {
            let field = message.get_field_by_name(first).ok_or_else(missing)?;
            check_field(field.kind().as_message().ok_or_else(missing)?, rest)
        }
    }
}

impl Routes {
    /// Reads the table: a route in each line, empty lines, and comments after `#`.
    pub(crate) fn parse(table: &str, methods: &Methods, package: &str) -> Result<Self, TableError> {
        let mut routes = Self::default();
        for (at, line) in table.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            if line.trim().is_empty() {
                continue;
            }
            let error = |fault: String| TableError { line: at + 1, fault };
            let route = Route::parse(line, methods, package).map_err(error)?;
            let others = routes.by_length.entry(route.segments.len()).or_default();
            let is_same = |other: &Route| {
                (&other.verb, &other.segments, &other.action) == (&route.verb, &route.segments, &route.action)
            };
            if others.iter().any(is_same) {
                return Err(error("this path has a method already".to_owned()));
            }
            others.push(route);
        }
        // A literal segment counts more than a variable, and a path with an action more than one without.
        let generality = |route: &Route| {
            let any = route
                .segments
                .iter()
                .filter(|segment| **segment == Segment::Any)
                .count();
            (route.action.is_none(), any)
        };
        for routes in routes.by_length.values_mut() {
            routes.sort_by_key(generality);
        }
        Ok(routes)
    }

    /// All routes, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Route> {
        self.by_length.values().flatten()
    }

    /// The method of a request, and its fields apart from the body.
    pub(crate) fn find(
        &self,
        verb: &Method,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Routed, Unrouted> {
        let path = path.strip_prefix(ROOT).unwrap_or_default();
        let own = self.by_length.get(&path.split('/').count());
        let mut verbs = Vec::new();
        for route in own.into_iter().flatten() {
            let Some(segments) = route.matched(path) else { continue };
            if route.verb != *verb {
                verbs.push(route.verb.clone());
                continue;
            }
            let fields = fields(route, &segments, query, headers).map_err(Unrouted::Status)?;
            return Ok(Routed {
                method: route.method.clone(),
                form: route.form.clone(),
                fields,
            });
        }
        verbs.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        verbs.dedup();
        Err(match verbs.is_empty() {
            true => Unrouted::NotFound,
            false => Unrouted::OtherVerb(verbs),
        })
    }
}

/// The encoded fields from path, query and headers.
fn fields(route: &Route, segments: &[&str], query: Option<&str>, headers: &HeaderMap) -> Result<Vec<u8>, Status> {
    let input = route.method.input();
    let mut fields = Map::new();
    let takes_query = route.takes_query();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(&name.replace('+', " "))?, decoded(&value.replace('+', " "))?);
        if !takes_query {
            return Err(Status::invalid_argument(format!(
                "{name}: {} takes its fields from the body",
                route.verb
            )));
        }
        if matches!(&route.form, Form::Bytes(data) if data.name() == name || data.json_name() == name) {
            return Err(Status::invalid_argument(format!(
                "{name}: the body of the request has it"
            )));
        }
        let name = route
            .query_field()
            .map_or_else(|| name.clone(), |outer| format!("{outer}.{name}"));
        set(&mut fields, &input, &name, &value)?;
    }
    if let Some((field, first, last)) = &route.variable {
        let parts: Result<Vec<String>, Status> = segments[*first..=*last].iter().map(|part| decoded(part)).collect();
        set(&mut fields, &input, field, &parts?.join("/"))?;
    }
    if let Some(field) = input.get_field_by_name(MUTATION)
        && let Kind::Message(_) = field.kind()
    {
        for (header, name) in [
            (IDEMPOTENCY_KEY, "idempotency_key"),
            (http::header::IF_MATCH, "resource_version"),
        ] {
            let Some(value) = headers.get(&header) else { continue };
            let text = value
                .to_str()
                .map_err(|_| Status::invalid_argument(format!("{header}: it is not ASCII")))?;
            let text = match header == http::header::IF_MATCH {
                true => text.trim().trim_matches('"'),
                false => text.trim(),
            };
            // An empty version would be any version.
            if text.is_empty() {
                return Err(Status::invalid_argument(format!("{header}: it is empty")));
            }
            set(&mut fields, &input, &format!("{MUTATION}.{name}"), text)?;
        }
    }
    if fields.is_empty() {
        return Ok(Vec::new());
    }
    let message = DynamicMessage::deserialize(input, Value::Object(fields));
    let message = message.map_err(|error| invalid("path, query and headers", error))?;
    Ok(message.encode_to_vec())
}

fn decoded(text: &str) -> Result<String, Status> {
    let text = percent_decode_str(text).decode_utf8();
    let text = text.map_err(|_| Status::invalid_argument("path and query must be UTF-8"))?;
    Ok(text.into_owned())
}

/// Sets the field at a path such as `node.name`. Each use of a repeated field adds a value.
fn set(fields: &mut Map<String, Value>, message: &MessageDescriptor, path: &str, text: &str) -> Result<(), Status> {
    let (first, rest) = path
        .split_once('.')
        .map_or((path, None), |(first, rest)| (first, Some(rest)));
    let unknown = || Status::invalid_argument(format!("{first}: {} has no such field", message.name()));
    let by_json = || message.fields().find(|field| field.json_name() == first);
    let field = message.get_field_by_name(first).or_else(by_json).ok_or_else(unknown)?;
    let name = field.name().to_owned();
    let kind = field.kind();
    if let Some(rest) = rest {
        let inner = kind
            .as_message()
            .filter(|_| field.cardinality() != Cardinality::Repeated);
        let inner = inner.ok_or_else(unknown)?;
        let inner_fields = fields.entry(name).or_insert_with(|| Value::Object(Map::new()));
        let inner_fields = inner_fields.as_object_mut().ok_or_else(unknown)?;
        return set(inner_fields, inner, rest, text);
    }
    let value = match kind {
        Kind::Bool => Value::Bool(
            text.parse()
                .map_err(|_| Status::invalid_argument(format!("{first}: {text:?} is not true or false")))?,
        ),
        // The JSON mapping takes numbers, enums, times, durations and masks as texts, too.
        _ => Value::String(text.to_owned()),
    };
    let alone = match field.is_list() {
        true => json!({ field.name(): [value.clone()] }),
        false => json!({ field.name(): value.clone() }),
    };
    DynamicMessage::deserialize(message.clone(), alone).map_err(|error| invalid(first, error))?;
    if field.is_list() {
        let values = fields.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        values.as_array_mut().ok_or_else(unknown)?.push(value);
        return Ok(());
    }
    if fields.insert(name, value).is_some() {
        return Err(Status::invalid_argument(format!("{first} is given twice")));
    }
    Ok(())
}
