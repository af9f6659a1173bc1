//! Calls of any method with any bytes, without the limits of a stub.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet};
use rackwright_api::DESCRIPTORS;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

/// Sends one message to any method and returns the code and the first message of the answer. A stream that
/// opens and stays silent counts as answered.
///
/// # Errors
/// The call was refused.
///
/// # Panics
/// If `path` is not a path.
pub async fn call(channel: Channel, path: &str, message: Vec<u8>) -> Result<Vec<u8>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|e| Status::unknown(e.to_string()))?;
    let request = Request::new(tokio_stream::once(message));
    let path = path.parse().expect("a method has a path");
    let opened = grpc.streaming(request, path, Raw);
    let Ok(opened) = tokio::time::timeout(Duration::from_secs(2), opened).await else {
        return Ok(Vec::new());
    };
    let mut answers: Streaming<Vec<u8>> = opened?.into_inner();
    match tokio::time::timeout(Duration::from_millis(300), answers.message()).await {
        Ok(first) => Ok(first?.unwrap_or_default()),
        Err(_) => Ok(Vec::new()),
    }
}

/// A codec that passes bytes unchanged.
#[derive(Debug, Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}

/// One method, from the descriptors.
#[derive(Debug, Clone)]
pub struct Method {
    /// "rackwright.v1.NodeService"
    pub service: String,
    /// "GetNode"
    pub name: String,
    /// The full name of its request: ".rackwright.v1.GetNodeRequest".
    pub input: String,
    /// Whether its request contains a Mutation.
    pub is_mutation: bool,
    /// Whether the client sends a stream of messages.
    pub streams_requests: bool,
    /// Whether the server answers with a stream of messages.
    pub streams_responses: bool,
}

impl Method {
    /// The path of the call.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}/{}", self.service, self.name)
    }
}

/// Every method of `rackwright.v1`.
///
/// # Panics
/// If the descriptors do not decode.
#[must_use]
pub fn methods() -> Vec<Method> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("the descriptors decode");
    let files: Vec<_> = set.file.iter().filter(|f| f.package() == "rackwright.v1").collect();
    let messages: Vec<&DescriptorProto> = files.iter().flat_map(|f| &f.message_type).collect();
    let carries = |input: &str| {
        let message = messages
            .iter()
            .find(|m| format!(".rackwright.v1.{}", m.name()) == input);
        let message = message.unwrap_or_else(|| panic!("{input} is not described"));
        message.field.iter().any(|f| f.type_name() == ".rackwright.v1.Mutation")
    };
    let services = files.iter().flat_map(|f| &f.service);
    let methods = services.flat_map(|s| s.method.iter().map(move |m| (s, m)));
    methods
        .map(|(service, method)| Method {
            service: format!("rackwright.v1.{}", service.name()),
            name: method.name().to_owned(),
            input: method.input_type().to_owned(),
            is_mutation: carries(method.input_type()),
            streams_requests: method.client_streaming(),
            streams_responses: method.server_streaming(),
        })
        .collect()
}
