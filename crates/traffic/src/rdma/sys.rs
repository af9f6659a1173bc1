//! libibverbs, loaded on demand: the calls and structures of version IBVERBS_1.1 of its interface, which is stable since
//! 2008 (`infiniband/verbs.h` of rdma-core). Posting and polling have no symbols: they are entries of a table in every open
//! device.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::sync::OnceLock;

/// `ibv_device`; only its address is used.
#[repr(C)]
pub struct Device([u8; 0]);

/// `ibv_pd`; only its address is used.
#[repr(C)]
pub struct Domain([u8; 0]);

/// The used part of `ibv_context`, which contains the table `ibv_context_ops`.
#[repr(C)]
pub struct Context {
    device: *mut Device,
    before: [*const c_void; 11],
    /// `ops.poll_cq`
    pub poll_cq: Option<unsafe extern "C" fn(*mut Completions, c_int, *mut Completion) -> c_int>,
    between: [*const c_void; 13],
    /// `ops.post_send`
    pub post_send: Option<unsafe extern "C" fn(*mut Pair, *mut SendRequest, *mut *mut SendRequest) -> c_int>,
    /// `ops.post_recv`
    pub post_recv: Option<unsafe extern "C" fn(*mut Pair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int>,
}

/// The used part of `ibv_cq`.
#[repr(C)]
pub struct Completions {
    context: *mut Context,
}

/// The used part of `ibv_qp`.
#[repr(C)]
pub struct Pair {
    context: *mut Context,
    before: [*const c_void; 5],
    handle: u32,
    /// Number of the queue pair.
    pub number: u32,
}

/// The used part of `ibv_mr`.
#[repr(C)]
pub struct Region {
    before: [*const c_void; 4],
    handle: u32,
    /// Key for requests of this side.
    pub local_key: u32,
    /// Key for requests of the other side.
    pub remote_key: u32,
}

/// `ibv_port_attr`
#[repr(C)]
#[derive(Default)]
pub struct PortAttributes {
    /// Port state; 4: active.
    pub state: u32,
    max_mtu: u32,
    /// MTU code, 1 to 5: 256 to 4096 bytes.
    pub active_mtu: u32,
    numbers: [u32; 5],
    pkeys: u16,
    /// LID; 0: the link is not InfiniBand.
    pub lid: u16,
    sm_lid: u16,
    small: [u8; 8],
    /// Link layer; 2: Ethernet.
    pub link_layer: u8,
    flags: u8,
    more_capabilities: u16,
    /// Room for fields of later versions.
    spare: [u32; 16],
}

/// `ibv_qp_cap`
#[repr(C)]
#[derive(Default)]
pub struct Capacity {
    /// Most send requests.
    pub sends: u32,
    /// Most receive requests.
    pub receives: u32,
    /// Most pieces of a send request.
    pub send_pieces: u32,
    /// Most pieces of a receive request.
    pub receive_pieces: u32,
    pub(super) inline_bytes: u32,
}

/// `ibv_qp_init_attr`
#[repr(C)]
pub struct PairSetup {
    /// Unused.
    pub owner: *mut c_void,
    /// Queue for completions of sends.
    pub sent: *mut Completions,
    /// Queue for completions of receives.
    pub received: *mut Completions,
    /// Unused.
    pub shared: *mut c_void,
    /// Limits of the queue pair.
    pub capacity: Capacity,
    /// [`RELIABLE`]
    pub kind: u32,
    /// 1: every send has a completion.
    pub signal_all: c_int,
}

/// `ibv_gid`
#[repr(C, align(8))]
#[derive(Default, Clone, Copy)]
pub struct Gid(pub [u8; 16]);

/// `ibv_ah_attr` with its `ibv_global_route`.
#[repr(C)]
#[derive(Default)]
pub struct Path {
    /// Address of the other side.
    pub gid: Gid,
    pub(super) flow_label: u32,
    /// Index of the own address in the port's table.
    pub own_gid: u8,
    /// Most routers on the way.
    pub hop_limit: u8,
    pub(super) traffic_class: u8,
    /// LID of the other side, in an InfiniBand subnet.
    pub lid: u16,
    pub(super) service_level: u8,
    pub(super) path_bits: u8,
    pub(super) static_rate: u8,
    /// 1: route by GID.
    pub is_global: u8,
    /// Number of the own port.
    pub port: u8,
}

/// `ibv_qp_attr`
#[repr(C)]
#[derive(Default)]
pub struct PairAttributes {
    /// [`INIT`], [`READY_TO_RECEIVE`], [`READY_TO_SEND`]
    pub state: u32,
    pub(super) current_state: u32,
    /// As [`PortAttributes::active_mtu`].
    pub path_mtu: u32,
    pub(super) migration: u32,
    pub(super) qkey: u32,
    /// First sequence number of received packets.
    pub receive_psn: u32,
    /// First sequence number of sent packets.
    pub send_psn: u32,
    /// Number of the other side's queue pair.
    pub peer: u32,
    /// Rights of the other side.
    pub access: c_uint,
    pub(super) capacity: Capacity,
    /// The route to the other side.
    pub path: Path,
    pub(super) alternative: Path,
    /// Index of the partition in the port's table.
    pub pkey_index: u16,
    pub(super) alternative_pkey: u16,
    pub(super) drained: [u8; 2],
    /// Most concurrent reads.
    pub reads: u8,
    /// Most concurrent reads by the other side.
    pub peer_reads: u8,
    /// Timer code: how long the other side must wait while there is no receive request.
    pub not_ready_timer: u8,
    /// Number of the own port.
    pub port: u8,
    /// 4.096 µs * 2^this until a packet is sent again.
    pub timeout: u8,
    /// Number of retries, at most 7.
    pub retries: u8,
    /// Retries while the other side has no receive request; 7: unlimited.
    pub not_ready_retries: u8,
    pub(super) alternative_port: [u8; 2],
    pub(super) rate_limit: u32,
}

/// `ibv_sge`
#[repr(C)]
pub struct Piece {
    /// Address of the memory.
    pub address: u64,
    /// Size in bytes.
    pub length: u32,
    /// [`Region::local_key`]
    pub key: u32,
}

/// `ibv_send_wr`
#[repr(C)]
pub struct SendRequest {
    /// Returned with the completion.
    pub id: u64,
    /// The next request; null: none.
    pub next: *mut SendRequest,
    /// The pieces to send.
    pub pieces: *mut Piece,
    /// Number of pieces.
    pub count: c_int,
    /// [`SEND`], [`WRITE`]
    pub operation: u32,
    /// 0: `signal_all` covers every request.
    pub flags: c_uint,
    /// Unused.
    pub immediate: u32,
    /// Target address of a write.
    pub remote_address: u64,
    /// [`Region::remote_key`] of the other side.
    pub remote_key: u32,
    /// Fields of other operations.
    pub rest: [u64; 9],
}

/// `ibv_recv_wr`
#[repr(C)]
pub struct ReceiveRequest {
    /// Returned with the completion.
    pub id: u64,
    /// The next request; null: none.
    pub next: *mut ReceiveRequest,
    /// The pieces to fill.
    pub pieces: *mut Piece,
    /// Number of pieces.
    pub count: c_int,
}

/// `ibv_wc`
#[repr(C)]
#[derive(Default, Clone, Copy)]
pub struct Completion {
    /// Id of the request.
    pub id: u64,
    /// 0: success; `STATUS` names the others.
    pub status: u32,
    operation: u32,
    /// The adapter's own error code.
    pub vendor_error: u32,
    /// Bytes of a received message.
    pub bytes: u32,
    immediate: u32,
    pair: u32,
    source: u32,
    flags: c_uint,
    pkey_index: u16,
    source_lid: u16,
    service_level: u8,
    path_bits: u8,
}

// The offsets and sizes come from a C compiler with rdma-core's header, on a machine with 64-bit pointers.
const _: () = {
    assert!(offset_of!(Context, poll_cq) == 8 + 88 && offset_of!(Context, post_send) == 8 + 200);
    assert!(offset_of!(Context, post_recv) == 8 + 208);
    assert!(offset_of!(Pair, number) == 52 && offset_of!(Region, local_key) == 36);
    assert!(offset_of!(PortAttributes, lid) == 34 && offset_of!(PortAttributes, link_layer) == 46);
    assert!(offset_of!(PortAttributes, spare) == 52 && size_of::<PairSetup>() == 64 && size_of::<Path>() == 32);
    assert!(offset_of!(Path, lid) == 24 && offset_of!(Path, is_global) == 29 && offset_of!(Path, port) == 30);
    assert!(offset_of!(PairAttributes, send_psn) == 24 && offset_of!(PairAttributes, peer) == 28);
    assert!(offset_of!(PairAttributes, path) == 56 && offset_of!(PairAttributes, pkey_index) == 120);
    assert!(offset_of!(PairAttributes, peer_reads) == 127 && offset_of!(PairAttributes, port) == 129);
    assert!(offset_of!(PairAttributes, rate_limit) == 136 && size_of::<PairAttributes>() == 144);
    assert!(offset_of!(SendRequest, operation) == 28 && offset_of!(SendRequest, remote_address) == 40);
    assert!(size_of::<SendRequest>() == 128 && size_of::<ReceiveRequest>() == 32 && size_of::<Piece>() == 16);
    assert!(offset_of!(Completion, vendor_error) == 16 && size_of::<Completion>() == 48);
};

/// `IBV_QPT_RC`
pub const RELIABLE: u32 = 2;
/// `IBV_QPS_INIT` and its required attributes: state, partition, port, access.
pub const INIT: (u32, c_int) = (1, 57);
/// `IBV_QPS_RTR` and its required attributes: state, path, MTU, peer, its first packet, its reads, timer.
pub const READY_TO_RECEIVE: (u32, c_int) = (2, 1_216_897);
/// `IBV_QPS_RTS` and its required attributes: state, timeout, retries, first packet, reads.
pub const READY_TO_SEND: (u32, c_int) = (3, 77_313);
/// `IBV_WR_SEND`
pub const SEND: u32 = 2;
/// `IBV_WR_RDMA_WRITE`
pub const WRITE: u32 = 0;
/// `IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE`
pub const MAY_WRITE: c_int = 3;
/// `IBV_PORT_ACTIVE`
pub const ACTIVE: u32 = 4;
/// `IBV_LINK_LAYER_ETHERNET`
pub const ETHERNET: u8 = 2;

/// `enum ibv_wc_status`, in its order, without the prefix `IBV_WC_`.
const STATUS: [&str; 24] = [
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "MW_BIND_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "LOC_RDD_VIOL_ERR",
    "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",
    "INV_EECN_ERR",
    "INV_EEC_STATE_ERR",
    "FATAL_ERR",
    "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
    "TM_ERR",
    "TM_RNDV_INCOMPLETE",
];

/// The name of a completion's status.
pub fn status(status: u32) -> String {
    let name = usize::try_from(status).ok().and_then(|at| STATUS.get(at));
    name.map_or(format!("status {status}"), |name| format!("IBV_WC_{name}"))
}

// Unused in a static program, which cannot load a library.
#[cfg_attr(target_feature = "crt-static", allow(dead_code))]
const FILE: &str = "libibverbs.so.1";

macro_rules! library {
    ($($(#[$doc:meta])* $name:ident: $symbol:literal, $type:ty;)*) => {
        /// The used calls.
        pub struct Verbs { $($(#[$doc])* pub $name: $type,)* }

        impl Verbs {
            #[cfg_attr(target_feature = "crt-static", allow(dead_code))]
            fn of(handle: *mut c_void) -> Result<Self, String> {
                Ok(Self { $($name: {
                    // SAFETY: the handle is an open library's, the name ends with a zero.
                    let symbol = unsafe { libc::dlsym(handle, $symbol.as_ptr()) };
                    if symbol.is_null() {
                        return Err(format!("{FILE} has no {}", $symbol.to_string_lossy()));
                    }
                    // SAFETY: rdma-core's header declares the symbol as a function of this type.
                    unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
                },)* })
            }
        }
    };
}

library! {
    /// Lists all devices, terminated by null.
    get_device_list: c"ibv_get_device_list", unsafe extern "C" fn(*mut c_int) -> *mut *mut Device;
    /// Frees the list.
    free_device_list: c"ibv_free_device_list", unsafe extern "C" fn(*mut *mut Device);
    /// The name of a device.
    get_device_name: c"ibv_get_device_name", unsafe extern "C" fn(*mut Device) -> *const c_char;
    open_device: c"ibv_open_device", unsafe extern "C" fn(*mut Device) -> *mut Context;
    close_device: c"ibv_close_device", unsafe extern "C" fn(*mut Context) -> c_int;
    /// Reads the attributes of a port.
    query_port: c"ibv_query_port", unsafe extern "C" fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    /// Makes a protection domain.
    alloc_pd: c"ibv_alloc_pd", unsafe extern "C" fn(*mut Context) -> *mut Domain;
    /// Frees a protection domain.
    dealloc_pd: c"ibv_dealloc_pd", unsafe extern "C" fn(*mut Domain) -> c_int;
    /// Registers memory with the adapter.
    reg_mr: c"ibv_reg_mr", unsafe extern "C" fn(*mut Domain, *mut c_void, usize, c_int) -> *mut Region;
    /// Deregisters memory.
    dereg_mr: c"ibv_dereg_mr", unsafe extern "C" fn(*mut Region) -> c_int;
    /// Makes a completion queue.
    create_cq: c"ibv_create_cq", unsafe extern "C" fn(*mut Context, c_int, *mut c_void, *mut c_void, c_int) -> *mut Completions;
    /// Destroys a completion queue.
    destroy_cq: c"ibv_destroy_cq", unsafe extern "C" fn(*mut Completions) -> c_int;
    /// Makes a queue pair.
    create_qp: c"ibv_create_qp", unsafe extern "C" fn(*mut Domain, *mut PairSetup) -> *mut Pair;
    /// Changes the state of a queue pair.
    modify_qp: c"ibv_modify_qp", unsafe extern "C" fn(*mut Pair, *mut PairAttributes, c_int) -> c_int;
    /// Destroys a queue pair.
    destroy_qp: c"ibv_destroy_qp", unsafe extern "C" fn(*mut Pair) -> c_int;
}

/// The library of this system, loaded once.
///
/// # Errors
/// The library is not installed, or this program is linked statically and cannot load it.
pub fn verbs() -> Result<&'static Verbs, String> {
    static VERBS: OnceLock<Result<Verbs, String>> = OnceLock::new();
    VERBS.get_or_init(load).as_ref().map_err(Clone::clone)
}

#[cfg(target_feature = "crt-static")]
fn load() -> Result<Verbs, String> {
    let why = crate::embedded::NO_RDMA_REASON.get().cloned();
    Err(why.unwrap_or_else(|| "this program is linked statically and cannot load a library".into()))
}

#[cfg(not(target_feature = "crt-static"))]
fn load() -> Result<Verbs, String> {
    // SAFETY: the name ends with a zero. What the library does as it is loaded is safe in any process.
    let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: after a failure it gives null or a text that lives until this thread's next call.
        let text = unsafe { libc::dlerror().as_ref().map(|text| std::ffi::CStr::from_ptr(text)) };
        let text = text.map_or_else(Default::default, std::ffi::CStr::to_string_lossy);
        return Err(format!("{FILE} cannot be loaded: {text}"));
    }
    Verbs::of(handle)
}
