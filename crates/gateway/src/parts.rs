//! From raw bytes to the messages of a request stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Value};
use tonic::Status;
use tonic::body::Body;

use crate::request::framed;

/// Most raw bytes of one message.
const PART_MAX: usize = 1 << 20;

/// The gRPC message with `data` in its field of bytes. `fields` are encoded fields of the same message.
pub(crate) fn part(field: &FieldDescriptor, fields: &[u8], data: Bytes) -> Result<Bytes, Status> {
    let mut message = DynamicMessage::new(field.parent_message().clone());
    message.set_field(field, Value::Bytes(data));
    // Encoded messages that follow one another are one message with the fields of both.
    let mut encoded = fields.to_vec();
    encoded.extend_from_slice(&message.encode_to_vec());
    framed(&encoded)
}

/// A body of raw bytes as the body of a gRPC request. The first message has the fields of the path and the query, too.
///
/// At most two messages are in memory: bytes that have arrived together are sent together.
pub(crate) struct PartsBody {
    body: Body,
    field: FieldDescriptor,
    /// `None`: the first message is sent.
    fields: Option<Bytes>,
    limit: usize,
    read: BytesMut,
    /// The end of `body`.
    end: Option<Result<(), Status>>,
}

impl PartsBody {
    pub(crate) fn new(body: Body, field: FieldDescriptor, fields: Bytes, limit: usize) -> Self {
        Self {
            body,
            field,
            fields: Some(fields),
            limit: limit.clamp(1, PART_MAX),
            read: BytesMut::new(),
            end: None,
        }
    }
}

impl http_body::Body for PartsBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        while this.end.is_none() && this.read.len() < this.limit {
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        this.read.extend_from_slice(&data);
                    }
                }
                Poll::Ready(Some(Err(status))) => this.end = Some(Err(status)),
                Poll::Ready(None) => this.end = Some(Ok(())),
                Poll::Pending if this.read.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        // An empty body is a message without bytes.
        let is_empty = this.fields.is_some() && matches!(this.end, Some(Ok(())));
        if !this.read.is_empty() || is_empty {
            let length = this.read.len().min(this.limit);
            let data = this.read.split_to(length).freeze();
            let fields = this.fields.take().unwrap_or_default();
            return Poll::Ready(Some(part(&this.field, &fields, data).map(Frame::data)));
        }
        match this.end.replace(Ok(())) {
            Some(Err(status)) => Poll::Ready(Some(Err(status))),
            Some(Ok(())) | None => Poll::Ready(None),
        }
    }
}
