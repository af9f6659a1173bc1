//! The methods of the services, and the translation of their messages.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use prost::Message as _;
use prost_reflect::prost_types::FileDescriptorSet;
use prost_reflect::{
    DescriptorError as PoolError, DescriptorPool, DeserializeOptions, DynamicMessage, FileDescriptor,
    MessageDescriptor, MethodDescriptor,
};
use tonic::Status;

use crate::openapi;
use crate::rest::{Routes, TableError};

/// The descriptors of the services cannot be used.
#[derive(Debug)]
pub struct DescriptorError(Box<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the descriptors of the services cannot be used")
    }
}

impl std::error::Error for DescriptorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

impl From<prost::DecodeError> for DescriptorError {
    fn from(error: prost::DecodeError) -> Self {
        Self(error.into())
    }
}

impl From<PoolError> for DescriptorError {
    fn from(error: PoolError) -> Self {
        Self(error.into())
    }
}

/// All methods, by the path of their requests.
#[derive(Debug)]
pub struct Methods {
    pool: DescriptorPool,
    by_path: BTreeMap<String, MethodDescriptor>,
    routes: Routes,
    openapi: Option<OpenApi>,
}

/// The source of the OpenAPI document.
#[derive(Debug)]
pub(crate) struct OpenApi {
    descriptors: &'static [u8],
    table: String,
    package: String,
    pub(crate) title: String,
    pub(crate) version: String,
    /// The gRPC paths of calls that need no credential.
    pub(crate) open: &'static [&'static str],
}

impl Methods {
    /// The methods of these encoded `FileDescriptorSet`s. A message that is in several sets is taken from the first one.
    /// The details of errors (`google.rpc`) are known, too.
    ///
    /// # Errors
    /// A set does not parse, or lacks a file.
    pub fn new(sets: &[&[u8]]) -> Result<Self, DescriptorError> {
        let (mut pool, mut files) = (DescriptorPool::new(), HashSet::new());
        for set in sets.iter().chain([&tonic_types::pb::FILE_DESCRIPTOR_SET]) {
            let mut set = FileDescriptorSet::decode(*set)?;
            set.file.retain(|file| {
                let is_known = |name: &str| {
                    pool.get_message_by_name(&format!("{}.{name}", file.package()))
                        .is_some()
                };
                let has_known = file.message_type.iter().any(|message| is_known(message.name()));
                files.insert(file.name().to_owned()) && !has_known
            });
            pool.add_file_descriptor_set(set)?;
        }
        let methods = pool
            .services()
            .flat_map(|service| service.methods().collect::<Vec<_>>());
        let by_path = methods.map(|method| {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            (path, method)
        });
        Ok(Self {
            by_path: by_path.collect(),
            routes: Routes::default(),
            openapi: None,
            pool,
        })
    }

    /// With the REST paths of the methods of a package: a verb, a path and `SERVICE/METHOD` in each line.
    ///
    /// # Errors
    /// The first fault of the table.
    pub fn with_rest(mut self, table: &str, package: &str) -> Result<Self, TableError> {
        self.routes = Routes::parse(table, &self, package)?;
        Ok(self)
    }

    /// With an OpenAPI document of the REST paths at `/openapi.json`. `descriptors` have the comments of the services. The
    /// gRPC paths `open` are of calls that need no credential.
    #[must_use]
    pub fn with_openapi(
        mut self,
        descriptors: &'static [u8],
        (table, package): (&str, &str),
        (title, version): (&str, &str),
        open: &'static [&'static str],
    ) -> Self {
        self.openapi = Some(OpenApi {
            descriptors,
            table: table.to_owned(),
            package: package.to_owned(),
            title: title.to_owned(),
            version: version.to_owned(),
            open,
        });
        self
    }

    /// The OpenAPI 3.1 document. `None`: there is no source.
    ///
    /// # Errors
    /// The source does not parse.
    pub fn openapi(&self) -> Result<Option<serde_json::Value>, Box<dyn std::error::Error + Send + Sync>> {
        let Some(source) = &self.openapi else {
            return Ok(None);
        };
        let methods = Self::new(&[source.descriptors])?.with_rest(&source.table, &source.package)?;
        Ok(Some(openapi::document(&methods, source)))
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = FileDescriptor> {
        self.pool.files()
    }

    /// The full names of the methods with a REST path.
    pub fn with_rest_paths(&self) -> impl Iterator<Item = &str> {
        self.routes.all().map(|route| route.method.full_name())
    }

    /// The paths of all methods.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().map(String::as_str)
    }

    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    pub(crate) fn get(&self, path: &str) -> Option<&MethodDescriptor> {
        self.by_path.get(path)
    }

    /// The JSON form of an encoded message of this type. `None`: the type is unknown, or the message does not parse.
    pub(crate) fn json_of(&self, type_name: &str, message: &[u8]) -> Option<serde_json::Value> {
        let descriptor = self.pool.get_message_by_name(type_name)?;
        let message = DynamicMessage::decode(descriptor, message).ok()?;
        serde_json::to_value(message).ok()
    }
}

/// The longest text of an error about a request, in characters: the error may quote the request.
const FAULT_MAX: usize = 200;

/// The error of a request with invalid JSON or fields.
pub(crate) fn invalid(place: &str, error: impl std::fmt::Display) -> Status {
    let text: String = error.to_string().chars().take(FAULT_MAX).collect();
    Status::invalid_argument(format!("{place}: {text}"))
}

/// Encodes a JSON message, with these encoded fields merged into it. An empty text is the empty message. Fields come in the
/// order of their numbers: the audit reads the beginning of a message.
pub(crate) fn from_json(descriptor: MessageDescriptor, json: &[u8], fields: &[u8]) -> Result<Vec<u8>, Status> {
    let unfit = |error: serde_json::Error| invalid("the JSON of the request", error);
    if json.iter().all(u8::is_ascii_whitespace) {
        return Ok(fields.to_vec());
    }
    let mut parser = serde_json::Deserializer::from_slice(json);
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let mut message = DynamicMessage::deserialize_with_options(descriptor, &mut parser, &options).map_err(unfit)?;
    parser.end().map_err(unfit)?;
    let merged = message.merge(fields);
    merged.map_err(|error| Status::internal(format!("the fields of the path cannot be merged: {error}")))?;
    Ok(message.encode_to_vec())
}

/// The version of an encoded resource: `metadata.resource_version`. `None`: the message has none.
pub(crate) fn version(descriptor: MessageDescriptor, message: Bytes) -> Option<String> {
    descriptor.get_field_by_name("metadata")?;
    let message = DynamicMessage::decode(descriptor, message).ok()?;
    let metadata = message.get_field_by_name("metadata")?;
    let version = metadata.as_message()?.get_field_by_name("resource_version")?;
    version
        .as_str()
        .filter(|version| !version.is_empty())
        .map(str::to_owned)
}

/// The JSON of an encoded message.
pub(crate) fn to_json(descriptor: MessageDescriptor, message: Bytes) -> Result<Bytes, Status> {
    let internal =
        |error: &dyn std::fmt::Display| Status::internal(format!("the answer cannot be written as JSON: {error}"));
    let message = DynamicMessage::decode(descriptor, message).map_err(|error| internal(&error))?;
    let json = serde_json::to_vec(&message).map_err(|error| internal(&error))?;
    Ok(json.into())
}
