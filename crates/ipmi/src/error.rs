//! IPMI errors with the place and a hint for the operator.

/// The reaction that an error calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may succeed later.
    Retryable,
    /// The same call fails again until the cause is fixed.
    Permanent,
    /// Name or password are wrong: an operator must look, and no caller may retry.
    Security,
}

/// Any failure over IPMI. Never holds a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IpmiError {
    /// The address cannot be used.
    #[error("BMC address {address:?} cannot be used: {why}; write ipmi://HOST[:PORT]?mac=MAC")]
    InvalidAddress {
        /// The address as given, unless it may hold a password.
        address: String,
        /// The fault in the address.
        why: String,
    },
    /// Name or password cannot be sent over IPMI.
    #[error("{what} of BMC {bmc} cannot be used over IPMI: {why}")]
    InvalidAccount {
        bmc: String,
        /// User name or password.
        what: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// `ipmitool` is not installed.
    #[error("ipmitool is not installed on this machine (Debian: apt-get install ipmitool); BMCs at ipmi:// need it")]
    NotInstalled,
    /// `ipmitool` could not be run.
    #[error("ipmitool could not be run")]
    NotRun {
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// No session could be made, because the BMC does not answer.
    #[error(
        "BMC {bmc} does not answer over IPMI; check that it has power, its address, and that IPMI over LAN is switched on"
    )]
    NoAnswer { bmc: String },
    /// The host's name cannot be resolved.
    #[error("the name of BMC {bmc} cannot be resolved; check its address and the name server")]
    NoSuchHost { bmc: String },
    /// Name or password are wrong.
    #[error(
        "BMC {bmc} refused user name or password over IPMI; they are not sent again for {hold_s} s, so that the BMC does \
         not lock the account"
    )]
    Refused {
        bmc: String,
        /// Time during which the same name and password are not sent again, in seconds.
        hold_s: u64,
    },
    /// The BMC refused the name or password a short while ago.
    #[error(
        "BMC {bmc} refused this user name and password {ago_s} s ago; they are sent again in {left_s} s at the earliest, so \
         that the BMC does not lock the account: set other credentials with `rackwright node update`"
    )]
    LoginSuspended {
        bmc: String,
        /// Time since the refusal, in seconds.
        ago_s: u64,
        /// Time until the next try is allowed, in seconds.
        left_s: u64,
    },
    /// The account lacks the requested privilege level.
    #[error(
        "the account at BMC {bmc} does not have the privilege {privilege} over IPMI; grant this privilege, or put \
         privilege=operator into the address"
    )]
    Privilege {
        bmc: String,
        /// The requested level.
        privilege: &'static str,
    },
    /// The BMC does not have the cipher suite.
    #[error(
        "BMC {bmc} does not support the cipher suite; put another into the address, such as ?cipher=3 or ?cipher=17"
    )]
    Cipher { bmc: String },
    /// All sessions are in use, or another client has the console.
    #[error("BMC {bmc} is busy: {what}")]
    Busy {
        bmc: String,
        /// The busy resource.
        what: &'static str,
    },
    /// The command did not end within the limit.
    #[error("{command} on BMC {bmc} did not end within {limit_s} s")]
    TimedOut {
        bmc: String,
        command: String,
        /// The limit in seconds.
        limit_s: u64,
    },
    /// The BMC or `ipmitool` refused the command.
    #[error("{command} on BMC {bmc} failed: {words}")]
    Failed {
        bmc: String,
        command: String,
        /// The message of `ipmitool`.
        words: String,
    },
    /// The answer has an unknown form.
    #[error("{command} on BMC {bmc} returned an answer in an unknown form: {answer:?}")]
    Unreadable {
        bmc: String,
        command: String,
        /// The beginning of the answer.
        answer: String,
    },
    /// `ipmitool` cannot set the boot device. Nothing was sent.
    #[error(
        "the boot device with selector {selector} cannot be set on BMC {bmc}, because ipmitool has no name for it; choose \
         none, pxe, disk or cdrom"
    )]
    UnknownBootDevice {
        bmc: String,
        /// The selector of the boot flags (IPMI 2.0, table 28-14).
        selector: u8,
    },
    /// The BMC accepted a setting but reads back another value.
    #[error("BMC {bmc} accepted {wanted} and reads back {seen}")]
    NotApplied {
        bmc: String,
        /// The value that was set.
        wanted: String,
        /// The value that reads back.
        seen: String,
    },
}

impl IpmiError {
    /// The reaction that this error calls for.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotRun { .. }
            | Self::NoAnswer { .. }
            | Self::NoSuchHost { .. }
            | Self::Busy { .. }
            | Self::TimedOut { .. } => ErrorKind::Retryable,
            Self::Refused { .. } | Self::LoginSuspended { .. } => ErrorKind::Security,
            Self::InvalidAddress { .. }
            | Self::InvalidAccount { .. }
            | Self::NotInstalled
            | Self::Privilege { .. }
            | Self::Cipher { .. }
            | Self::Failed { .. }
            | Self::Unreadable { .. }
            | Self::UnknownBootDevice { .. }
            | Self::NotApplied { .. } => ErrorKind::Permanent,
        }
    }
}
