//! The kernel's statistics of a TCP connection.

#![allow(unsafe_code)]

use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

/// TCP segments that were sent again over the connection's life (`tcpi_total_retrans` of `linux/tcp.h`); none: the kernel
/// does not report it.
pub fn retransmits(stream: &TcpStream) -> Option<u64> {
    // SAFETY: tcp_info is a structure of integers, for which all zeros are values.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = std::mem::size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the call's duration, and the kernel writes no more than `length` bytes to `info`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &mut length,
        )
    };
    (result == 0).then(|| info.tcpi_total_retrans.into())
}
