//! Transports to a TPM.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Maximum length of a TPM's answer, in bytes.
pub const ANSWER_MAX: usize = 4096;

/// A transport to a TPM: one command, one answer.
pub trait Transport: Send {
    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// The TPM cannot be reached.
    fn transmit(&mut self, command: &[u8]) -> io::Result<Vec<u8>>;
}

/// The kernel's device: `/dev/tpmrm0`, which separates the keys of the processes, or `/dev/tpm0`.
#[derive(Debug)]
pub struct Device(File);

impl Device {
    /// Opens `tpmrm0` in the directory `dev`, or `tpm0` if there is no `tpmrm0`.
    ///
    /// # Errors
    /// `NotFound`: the machine has no TPM 2.0. Otherwise the kernel's error.
    pub fn open(dev: &Path) -> io::Result<Self> {
        let open = |name: &str| File::options().read(true).write(true).open(dev.join(name));
        match open("tpmrm0") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => open("tpm0"),
            other => other,
        }
        .map(Self)
    }
}

impl Transport for Device {
    fn transmit(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(command)?;
        // One read returns the whole answer.
        let mut answer = vec![0; ANSWER_MAX];
        let length = self.0.read(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    }
}

/// A socket of `swtpm`, a TPM in software. Lab machines use it.
#[derive(Debug)]
pub struct Socket(UnixStream);

impl Socket {
    /// Connects to the socket at this path.
    ///
    /// # Errors
    /// No program listens there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(Self)
    }
}

impl Transport for Socket {
    fn transmit(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(command)?;
        let mut answer = vec![0; 10];
        self.0.read_exact(&mut answer)?;
        let length = u32::from_be_bytes([answer[2], answer[3], answer[4], answer[5]]) as usize;
        if !(answer.len()..=ANSWER_MAX).contains(&length) {
            return Err(io::Error::other("the TPM's answer has an invalid length"));
        }
        answer.resize(length, 0);
        self.0.read_exact(&mut answer[10..])?;
        Ok(answer)
    }
}
