//! What can go wrong with a BMC over IPMI, in words that say where and what to do.

/// What a caller may do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may succeed later.
    Retryable,
    /// The same call will fail again until something is changed.
    Permanent,
    /// Name or password are not what they should be: a person must look, nobody may go on trying.
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
        /// The fault.
        why: String,
    },
    /// Name or password are none that IPMI can send.
    #[error("{what} of BMC {bmc} cannot be used over IPMI: {why}")]
    InvalidAccount {
        /// The BMC.
        bmc: String,
        /// User name or password.
        what: &'static str,
        /// The fault.
        why: &'static str,
    },
    /// The program is not here.
    #[error("ipmitool is not installed on this machine (Debian: apt-get install ipmitool); BMCs at ipmi:// need it")]
    NotInstalled,
    /// The program could not be run.
    #[error("ipmitool could not be run")]
    NotRun {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No session could be made: there is no answer.
    #[error(
        "BMC {bmc} does not answer over IPMI; check that it has power, its address, and that IPMI over LAN is switched on"
    )]
    NoAnswer {
        /// The BMC.
        bmc: String,
    },
    /// The host's name cannot be resolved.
    #[error("the name of BMC {bmc} cannot be resolved; check its address and the name server")]
    NoSuchHost {
        /// The BMC.
        bmc: String,
    },
    /// Name or password are wrong.
    #[error(
        "BMC {bmc} refused user name or password over IPMI; it is not tried again for {hold_s} s, lest the account be locked"
    )]
    Refused {
        /// The BMC.
        bmc: String,
        /// How long the same name and password are not sent again, in seconds.
        hold_s: u64,
    },
    /// Name or password were wrong a short while ago.
    #[error(
        "BMC {bmc} refused this user name and password {ago_s} s ago; they are sent again in {left_s} s at the earliest, lest \
         the account be locked: set others with `rackwright node update`"
    )]
    Held {
        /// The BMC.
        bmc: String,
        /// Since then, in seconds.
        ago_s: u64,
        /// Until then, in seconds.
        left_s: u64,
    },
    /// The account may not have what the login asks for.
    #[error(
        "the account at BMC {bmc} may not be {privilege} over IPMI; give it that, or put privilege=operator into the address"
    )]
    Privilege {
        /// The BMC.
        bmc: String,
        /// What was asked for.
        privilege: &'static str,
    },
    /// The BMC does not have the cipher suite.
    #[error("BMC {bmc} does not have the cipher suite; put another into the address, as in ?cipher=3 or ?cipher=17")]
    Cipher {
        /// The BMC.
        bmc: String,
    },
    /// All sessions are in use, or the console is.
    #[error("BMC {bmc} is busy: {what}")]
    Busy {
        /// The BMC.
        bmc: String,
        /// With what.
        what: &'static str,
    },
    /// It took too long.
    #[error("{command} on BMC {bmc} did not end within {limit_s} s")]
    TimedOut {
        /// The BMC.
        bmc: String,
        /// What was asked.
        command: String,
        /// The limit in seconds.
        limit_s: u64,
    },
    /// The BMC refused a command, or `ipmitool` did.
    #[error("{command} on BMC {bmc} failed: {words}")]
    Failed {
        /// The BMC.
        bmc: String,
        /// What was asked.
        command: String,
        /// What `ipmitool` said.
        words: String,
    },
    /// The answer is none that we know.
    #[error("{command} on BMC {bmc} was answered in a form that is not known: {answer:?}")]
    Unreadable {
        /// The BMC.
        bmc: String,
        /// What was asked.
        command: String,
        /// The beginning of the answer.
        answer: String,
    },
    /// The BMC accepted something and reads back something else.
    #[error("BMC {bmc} accepted {wanted} and reads back {seen}")]
    NotTaken {
        /// The BMC.
        bmc: String,
        /// What was set.
        wanted: String,
        /// What is there.
        seen: String,
    },
}

impl IpmiError {
    /// What a caller may do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotRun { .. }
            | Self::NoAnswer { .. }
            | Self::NoSuchHost { .. }
            | Self::Busy { .. }
            | Self::TimedOut { .. } => ErrorKind::Retryable,
            Self::Refused { .. } | Self::Held { .. } => ErrorKind::Security,
            Self::InvalidAddress { .. }
            | Self::InvalidAccount { .. }
            | Self::NotInstalled
            | Self::Privilege { .. }
            | Self::Cipher { .. }
            | Self::Failed { .. }
            | Self::Unreadable { .. }
            | Self::NotTaken { .. } => ErrorKind::Permanent,
        }
    }
}
