//! Protocol Buffers on the wire, with buffers that begin small.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};

/// Bytes that a buffer begins with; it grows with its messages. tonic's own begin with 8 KiB, two for each stream: of ten
/// thousand agents that say little, 160 MB.
const BUFFER: usize = 512;
/// Messages that are ready are sent together up to this number of bytes, which is tonic's default.
const YIELD: usize = 32 << 10;

/// The codec that the generated code uses.
#[derive(Debug, Clone, Copy)]
pub struct Prost<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Prost<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for Prost<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = tonic_prost::ProstEncoder<T>;
    type Decoder = tonic_prost::ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        tonic_prost::ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER, YIELD))
    }

    fn decoder(&mut self) -> Self::Decoder {
        tonic_prost::ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER, YIELD))
    }
}
