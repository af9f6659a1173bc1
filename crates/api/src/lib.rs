//! The gRPC types and stubs generated from `proto/`, and nothing else.

pub mod codec;

/// `google.rpc`.
pub mod google {
    /// `google.rpc.Status`, the wire form of an error inside a message.
    #[allow(clippy::all, missing_docs)]
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}

pub mod rackwright {
    /// `rackwright.v1`.
    #[allow(clippy::all, clippy::unwrap_used, missing_docs)]
    pub mod v1 {
        tonic::include_proto!("rackwright.v1");
    }
}

pub use rackwright::v1;

/// The encoded `FileDescriptorSet`, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// [`DESCRIPTORS`] without comments and positions: a third of the bytes, for a program that reads them at each start.
pub const BARE_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bare_descriptors.bin"));

/// The paths of the API in REST form: verb, path and method in each line.
pub const REST: &str = include_str!("../../../proto/rest.txt");
