//! The client of one BMC.

use std::path::PathBuf;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use crate::IpmiAddress;
use crate::error::{ErrorKind, IpmiError};
use crate::limiter::RequestLimiter;
use crate::tool::{self, LIMIT, PROGRAM};

/// Maximum length of a user name, in bytes (IPMI 2.0, table 13-13: RAKP message 1).
const USER_MAX: usize = 16;
/// Maximum length of a password, in bytes (IPMI 2.0, section 22.30).
const PASSWORD_MAX: usize = 20;
/// Tries of a command while no session can be made. A failed try has no effect.
const TRIES: u32 = 3;

/// The account for logins to a BMC.
#[derive(Debug, Clone)]
pub struct Account {
    /// The user name, at most 16 bytes.
    pub username: String,
    /// The password, at most 20 bytes.
    pub password: SecretString,
}

/// A BMC reached over IPMI. Each command has its own session.
#[derive(Debug, Clone)]
pub struct Ipmi {
    address: IpmiAddress,
    account: Account,
    account_id: u64,
    limiter: Arc<RequestLimiter>,
    program: PathBuf,
    tries: u32,
}

impl Ipmi {
    /// Creates a client for the BMC at this address. Sends nothing.
    ///
    /// # Errors
    /// Name or password are too long for IPMI or cannot be passed to a program.
    pub fn new(address: IpmiAddress, account: Account, limiter: Arc<RequestLimiter>) -> Result<Self, IpmiError> {
        let password = account.password.expose_secret();
        let invalid = |what, why| IpmiError::InvalidAccount {
            bmc: address.place(),
            what,
            why,
        };
        if account.username.len() > USER_MAX {
            return Err(invalid("the user name", "it is longer than 16 bytes"));
        }
        if password.len() > PASSWORD_MAX {
            return Err(invalid("the password", "it is longer than 20 bytes"));
        }
        for (what, text) in [("the user name", account.username.as_str()), ("the password", password)] {
            if text.contains('\0') {
                return Err(invalid(what, "it contains a zero byte"));
            }
        }
        Ok(Self {
            account_id: limiter.account(&account.username, password),
            address,
            account,
            limiter,
            program: PROGRAM.into(),
            tries: TRIES,
        })
    }

    /// Uses this program instead of the `ipmitool` found by `PATH`.
    #[must_use]
    pub fn with_program(self, program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        Self { program, ..self }
    }

    /// Disables retries of commands that find no session.
    #[must_use]
    pub fn for_polling(self) -> Self {
        Self { tries: 1, ..self }
    }

    /// The BMC's address.
    #[must_use]
    pub fn address(&self) -> &IpmiAddress {
        &self.address
    }

    pub(crate) fn place(&self) -> String {
        self.address.place()
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    pub(crate) fn limiter(&self) -> &Arc<RequestLimiter> {
        &self.limiter
    }

    pub(crate) fn account_id(&self) -> u64 {
        self.account_id
    }

    pub(crate) fn program(&self) -> &std::path::Path {
        &self.program
    }

    /// Runs one command and returns its output.
    pub(crate) async fn ask(&self, words: &[&str]) -> Result<String, IpmiError> {
        let place = self.place();
        let mut number = 1;
        loop {
            let error = {
                let _turn = self.limiter.permit(&place).await;
                // An earlier command in the queue may just have been refused.
                self.limiter.check(&place, self.account_id)?;
                let command = tool::command(&self.program, &self.address, &self.account);
                match tool::run(command, words, &self.address, LIMIT).await {
                    Ok(output) => {
                        self.limiter.record_success(&place);
                        return Ok(output);
                    }
                    Err(error) => tool::record_error(error, &self.limiter, self.account_id),
                }
            };
            let is_sent = !matches!(error, IpmiError::NoAnswer { .. } | IpmiError::Busy { .. });
            if is_sent || error.kind() != ErrorKind::Retryable || number >= self.tries {
                return Err(error);
            }
            tracing::debug!(bmc = place, %error, number, "sending the IPMI request again");
            tokio::time::sleep(self.limiter.pause(&place, number)).await;
            number += 1;
        }
    }

    pub(crate) fn unreadable(&self, words: &[&str], answer: &str) -> IpmiError {
        IpmiError::Unreadable {
            bmc: self.place(),
            command: words.join(" "),
            answer: tool::excerpt(answer),
        }
    }
}
