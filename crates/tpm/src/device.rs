//! Ways to a TPM.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// No answer of a TPM is longer.
pub const ANSWER_MAX: usize = 4096;

/// A way to a TPM: one command, one answer.
pub trait Transport: Send {
    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// The TPM cannot be reached.
    fn transmit(&mut self, command: &[u8]) -> io::Result<Vec<u8>>;
}

/// The kernel's device: `/dev/tpmrm0`, which keeps the keys of each process apart, or `/dev/tpm0`.
#[derive(Debug)]
pub struct Device(File);

impl Device {
    /// Opens the first of the two that is there, below `dev`.
    ///
    /// # Errors
    /// `NotFound`: the machine has no TPM 2.0. Else what the kernel says.
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
        // The kernel gives an answer whole.
        let mut answer = vec![0; ANSWER_MAX];
        let length = self.0.read(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    }
}

/// A socket of `swtpm`, a TPM in software: what machines of a lab have.
#[derive(Debug)]
pub struct Socket(UnixStream);

impl Socket {
    /// Connects.
    ///
    /// # Errors
    /// Nothing listens there.
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
            return Err(io::Error::other("the TPM's answer has no possible length"));
        }
        answer.resize(length, 0);
        self.0.read_exact(&mut answer[10..])?;
        Ok(answer)
    }
}
