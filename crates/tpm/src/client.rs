//! The TPM commands that an agent sends.

use std::io;

use crate::credential::Credential;
use crate::device::Transport;
use crate::pcr::{self, Selection, Values};
use crate::public::{ALG_NULL, ALG_SHA256, Kind, Public, template};
use crate::wire::{Malformed, Reader, Writer};

const NO_SESSIONS: u16 = 0x8001;
const SESSIONS: u16 = 0x8002;
const RH_NULL: u32 = 0x4000_0007;
const RS_PASSWORD: u32 = 0x4000_0009;
const RH_LOCKOUT: u32 = 0x4000_000a;
const RH_ENDORSEMENT: u32 = 0x4000_000b;
/// NV index of the manufacturer's certificate for the P-256 endorsement key.
const NV_EK_CERTIFICATE: u32 = 0x01c0_000a;
/// Maximum size of a certificate, in bytes. [`Tpm::certificate`] ignores a longer one.
pub const CERTIFICATE_MAX: usize = 4096;
/// Bytes per read of NV memory: every TPM supports this size.
const NV_CHUNK: u16 = 256;
/// TPM_RC_YIELDED, TPM_RC_TESTING and TPM_RC_RETRY: the command is sent again.
const RETRY: [u32; 3] = [0x908, 0x90a, 0x922];
const TRIES: usize = 20;

/// TPM_RC_DISABLED: a system has disabled the command.
const DISABLED: u32 = 0x120;
/// TPM_RC_LOCKOUT: too many wrong passwords.
const LOCKED_OUT: u32 = 0x921;

const CLEAR: u32 = 0x126;
const CREATE_PRIMARY: u32 = 0x131;
const ACTIVATE_CREDENTIAL: u32 = 0x147;
const NV_READ: u32 = 0x14e;
const POLICY_SECRET: u32 = 0x151;
const QUOTE: u32 = 0x158;
const FLUSH_CONTEXT: u32 = 0x165;
const NV_READ_PUBLIC: u32 = 0x169;
const START_AUTH_SESSION: u32 = 0x176;
const PCR_READ: u32 = 0x17e;

/// Why a TPM command failed.
#[derive(Debug, thiserror::Error)]
pub enum TpmError {
    /// The TPM cannot be reached.
    #[error("the TPM does not answer: {0}")]
    Io(#[from] io::Error),
    /// The TPM refused the command.
    #[error("the TPM refuses {command}: code {code:#05x}{}", hint(*.code))]
    Refused {
        /// The purpose of the command, in words.
        command: &'static str,
        /// The response code (TPM_RC).
        code: u32,
    },
    /// The TPM's answer is malformed.
    #[error("the TPM's answer: {0}")]
    Malformed(#[from] Malformed),
    /// The TPM's SHA-256 bank of PCRs is switched off.
    #[error("the TPM has no SHA-256 PCRs: switch on the SHA-256 bank in the firmware's settings")]
    NoSha256,
}

/// A hint for the operator about a refusal.
fn hint(code: u32) -> &'static str {
    // TPM_RC_AUTH_FAIL and TPM_RC_BAD_AUTH, for any handle or session.
    if matches!(code & 0xbf, 0x8e | 0xa2) {
        return " (a system has set a password: clear the TPM in the firmware's settings)";
    }
    match code {
        DISABLED => " (a system has switched this off: clear the TPM in the firmware's settings)",
        LOCKED_OUT => " (too many wrong passwords were tried: clear the TPM in the firmware's settings)",
        _ => "",
    }
}

/// A TPM, reached through a transport.
pub struct Tpm {
    transport: Box<dyn Transport>,
}

/// A key in the TPM. The key stays loaded until it is flushed or the connection to the kernel's device is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    handle: u32,
    /// The key's public area.
    pub public: Public,
}

/// What authorizes a command.
#[derive(Clone, Copy)]
enum Session {
    /// An empty password.
    Password,
    /// A policy session with this handle.
    Policy(u32),
}

impl Tpm {
    /// Uses the TPM behind this transport.
    #[must_use]
    pub fn new(transport: Box<dyn Transport>) -> Self {
        Self { transport }
    }

    /// Sends a command. Returns the handle of the answer (0 without `returns_handle`) and the bytes after it. If there are
    /// sessions, these bytes are only the parameters.
    fn command(
        &mut self,
        (code, purpose): (u32, &'static str),
        handles: &[u32],
        sessions: &[Session],
        parameters: &[u8],
        returns_handle: bool,
    ) -> Result<(u32, Vec<u8>), TpmError> {
        let mut body = Writer::new();
        for handle in handles {
            body = body.u32(*handle);
        }
        if !sessions.is_empty() {
            let mut area = Writer::new();
            for session in sessions {
                let handle = match session {
                    Session::Password => RS_PASSWORD,
                    Session::Policy(handle) => *handle,
                };
                // No nonce; the session continues; no password.
                area = area.u32(handle).u16(0).u8(1).u16(0);
            }
            let area = area.done();
            body = body.u32(area.len() as u32).bytes(&area);
        }
        let body = body.bytes(parameters).done();
        let tag = if sessions.is_empty() { NO_SESSIONS } else { SESSIONS };
        let command = Writer::new().u16(tag).u32(10 + body.len() as u32).u32(code);
        let command = command.bytes(&body).done();
        let mut tries = 0;
        let answer = loop {
            let answer = self.transport.transmit(&command)?;
            let mut reader = Reader::new(&answer);
            reader.u16("answer's tag")?;
            if reader.u32("answer's size")? as usize != answer.len() {
                return Err(Malformed("answer's size").into());
            }
            let result = reader.u32("answer's code")?;
            if result == 0 {
                break reader.rest().to_vec();
            }
            tries += 1;
            if !RETRY.contains(&result) || tries >= TRIES {
                return Err(TpmError::Refused {
                    command: purpose,
                    code: result,
                });
            }
        };
        let mut reader = Reader::new(&answer);
        let handle = if returns_handle {
            reader.u32("answer's handle")?
        } else {
            0
        };
        if sessions.is_empty() {
            return Ok((handle, reader.rest().to_vec()));
        }
        let size = reader.u32("size of the answer's parameters")? as usize;
        let parameters = reader.bytes(size, "answer's parameters")?;
        Ok((handle, parameters.to_vec()))
    }

    /// Makes a key of this kind from the seed of the endorsement hierarchy. The key is the same each time.
    ///
    /// # Errors
    /// [`TpmError`]
    pub fn key(&mut self, kind: Kind) -> Result<Key, TpmError> {
        // An empty password and no data. After the template: no outside information and no PCRs.
        let parameters = Writer::new().u16(4).u16(0).u16(0);
        let parameters = parameters.sized(&template(kind)).u16(0).u32(0).done();
        let command = (CREATE_PRIMARY, "to make a key");
        let (handle, answer) = self.command(command, &[RH_ENDORSEMENT], &[Session::Password], &parameters, true)?;
        let parsed = Reader::new(&answer)
            .sized("public area")
            .and_then(|area| Public::parse(kind, area));
        match parsed {
            Ok(public) => Ok(Key { handle, public }),
            Err(error) => {
                // A failure to remove the key must not hide the fault of the answer.
                let _ = self.flush(handle);
                Err(error.into())
            }
        }
    }

    /// Removes a key or a session.
    fn flush(&mut self, handle: u32) -> Result<(), TpmError> {
        let parameters = Writer::new().u32(handle).done();
        self.command((FLUSH_CONTEXT, "to remove a key"), &[], &[], &parameters, false)?;
        Ok(())
    }

    /// Removes a key from the TPM's memory.
    ///
    /// # Errors
    /// [`TpmError`]
    pub fn remove(&mut self, key: &Key) -> Result<(), TpmError> {
        self.flush(key.handle)
    }

    /// Removes everything that systems have stored in the TPM: their keys, their data, and the passwords of the storage
    /// and endorsement hierarchies (TPM2_Clear). The endorsement key and its certificate stay the same. Loaded keys are
    /// lost.
    ///
    /// # Errors
    /// [`TpmError::Refused`]: a system has set the lockout password or has disabled this command.
    pub fn clear(&mut self) -> Result<(), TpmError> {
        self.command(
            (CLEAR, "to be cleared"),
            &[RH_LOCKOUT],
            &[Session::Password],
            &[],
            false,
        )?;
        Ok(())
    }

    /// Opens a credential that was made for these two keys and returns its secret.
    ///
    /// # Errors
    /// [`TpmError::Refused`]: the credential was made for other keys.
    pub fn activate(&mut self, ek: &Key, ak: &Key, credential: &Credential) -> Result<Vec<u8>, TpmError> {
        // A policy session without salt, binding or encryption. The nonce protects nothing, because no password is
        // used.
        let begin = Writer::new().sized(&[0; 16]).u16(0).u8(1).u16(ALG_NULL).u16(ALG_SHA256);
        let command = (START_AUTH_SESSION, "to begin a session");
        let (session, _) = self.command(command, &[RH_NULL, RH_NULL], &[], &begin.done(), true)?;
        let opened = self.activate_in(session, ek, ak, credential);
        let flushed = self.flush(session);
        let opened = opened?;
        flushed?;
        Ok(opened)
    }

    fn activate_in(&mut self, session: u32, ek: &Key, ak: &Key, credential: &Credential) -> Result<Vec<u8>, TpmError> {
        // No nonce, no digest of parameters, no reference, no expiry.
        let secret = Writer::new().u16(0).u16(0).u16(0).u32(0).done();
        let command = (POLICY_SECRET, "the endorsement key's policy");
        let handles = [RH_ENDORSEMENT, session];
        self.command(command, &handles, &[Session::Password], &secret, false)?;
        let parameters = Writer::new().sized(&credential.blob).sized(&credential.seed).done();
        let command = (ACTIVATE_CREDENTIAL, "to open the credential");
        let sessions = [Session::Password, Session::Policy(session)];
        let (_, answer) = self.command(command, &[ak.handle, ek.handle], &sessions, &parameters, false)?;
        Ok(Reader::new(&answer).sized("secret")?.to_vec())
    }

    /// Reads the selected registers of the SHA-256 bank.
    ///
    /// # Errors
    /// [`TpmError::NoSha256`]: the TPM does not have this bank.
    pub fn pcrs(&mut self, selection: Selection) -> Result<Values, TpmError> {
        let mut values = Values::new();
        let mut left = selection;
        while left != Selection::default() {
            let command = (PCR_READ, "to read PCRs");
            let (_, answer) = self.command(command, &[], &[], &left.write(), false)?;
            let mut reader = Reader::new(&answer);
            reader.u32("count of updates")?;
            let read = Selection::read(&mut reader)?;
            let count = reader.u32("count of PCRs")?;
            let fits = count as usize == read.indexes().count() && read.0 & !left.0 == 0;
            if count == 0 {
                return Err(TpmError::NoSha256);
            }
            if !fits {
                return Err(Malformed("count of PCRs").into());
            }
            for index in read.indexes() {
                let value = reader.sized("PCR")?;
                values.insert(index, value.try_into().map_err(|_| Malformed("PCR"))?);
            }
            left.0 &= !read.0;
        }
        Ok(values)
    }

    /// Quotes the selected registers with `extra` as qualifying data. Returns the quote, its signature and the quoted
    /// values.
    ///
    /// # Errors
    /// [`TpmError`]
    pub fn quote(&mut self, ak: &Key, extra: &[u8], selection: Selection) -> Result<Quoted, TpmError> {
        let mut tries = 0;
        loop {
            let values = self.pcrs(selection)?;
            let parameters = Writer::new().sized(extra).u16(ALG_NULL).bytes(&selection.write());
            let command = (QUOTE, "to quote");
            let (_, answer) = self.command(command, &[ak.handle], &[Session::Password], &parameters.done(), false)?;
            let mut reader = Reader::new(&answer);
            let quote = reader.sized("quote")?.to_vec();
            let signature = reader.rest().to_vec();
            tries += 1;
            // A register may have been extended between the read and the quote.
            let parsed = crate::quote::Quote::parse(&quote)?;
            if parsed.digest == pcr::digest(&values) || tries == 3 {
                return Ok(Quoted {
                    quote,
                    signature,
                    values,
                });
            }
        }
    }

    /// The manufacturer's certificate of the endorsement key. `None`: the TPM has no certificate, or it is longer than
    /// [`CERTIFICATE_MAX`].
    ///
    /// # Errors
    /// [`TpmError`]
    pub fn certificate(&mut self) -> Result<Option<Vec<u8>>, TpmError> {
        let parameters = (NV_READ_PUBLIC, "to describe the certificate");
        let answer = match self.command(parameters, &[NV_EK_CERTIFICATE], &[], &[], false) {
            Err(TpmError::Refused { .. }) => return Ok(None),
            other => other?.1,
        };
        let mut area = Reader::new(Reader::new(&answer).sized("area of the certificate")?);
        area.u32("area of the certificate")?;
        area.u16("area of the certificate")?;
        area.u32("area of the certificate")?;
        area.sized("area of the certificate")?;
        let size = area.u16("area of the certificate")?;
        if usize::from(size) > CERTIFICATE_MAX {
            return Ok(None);
        }
        let mut certificate = Vec::new();
        while certificate.len() < usize::from(size) {
            let at = u16::try_from(certificate.len()).unwrap_or(u16::MAX);
            let parameters = Writer::new().u16(NV_CHUNK.min(size - at)).u16(at).done();
            let command = (NV_READ, "to read the certificate");
            let handles = [NV_EK_CERTIFICATE, NV_EK_CERTIFICATE];
            let (_, answer) = self.command(command, &handles, &[Session::Password], &parameters, false)?;
            let part = Reader::new(&answer).sized("certificate")?;
            if part.is_empty() {
                return Err(Malformed("certificate").into());
            }
            certificate.extend_from_slice(part);
        }
        Ok(Some(certificate))
    }
}

/// The result of [`Tpm::quote`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quoted {
    /// TPMS_ATTEST.
    pub quote: Vec<u8>,
    /// TPMT_SIGNATURE.
    pub signature: Vec<u8>,
    /// The values of the registers.
    pub values: Values,
}
