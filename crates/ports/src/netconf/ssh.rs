//! SSH to a switch. The settings pin the switch's host key. Nothing is sent to a server with another key.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use russh::client::{self, AuthResult, Handle, Msg};
use russh::keys::ssh_key::{EcdsaCurve, Fingerprint};
use russh::keys::{Algorithm, HashAlg, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{AlgorithmKind, ChannelMsg, ChannelStream, Preferred};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::TcpStream;

use crate::error::PortsError;

/// The port of NETCONF over SSH (RFC 6242, section 3).
const PORT: u16 = 830;
/// The kinds of host keys, in the order of preference. A server shows its key of the first kind that it has.
const HOST_KEYS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP256,
    },
    Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP384,
    },
    Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP521,
    },
];

/// The address of a switch's SSH server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshAddress(String);

/// The text is not a valid address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form ssh://HOST:PORT; the port of NETCONF is {PORT}")]
pub struct SshAddressError(String);

impl FromStr for SshAddress {
    type Err = SshAddressError;

    /// Reads `ssh://HOST` or `ssh://HOST:PORT`. An IPv6 address is in brackets.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || SshAddressError(text.chars().take(100).collect());
        let rest = text.strip_prefix("ssh://").ok_or_else(fault)?;
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !rest.ends_with(']') => (host, port.parse().ok().filter(|port| *port > 0)),
            _ => (rest, Some(PORT)),
        };
        let is_bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        let port = port.ok_or_else(fault)?;
        match host.is_empty() || is_bare_v6 || host.contains(['/', '@', ' ']) {
            true => Err(fault()),
            false => Ok(Self(format!("{host}:{port}"))),
        }
    }
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ssh://{}", self.0)
    }
}

/// SHA-256 of a switch's host key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostKey(Fingerprint);

/// The text is not a valid fingerprint of a host key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form SHA256:..., as `ssh-keygen -lf FILE` prints it for the switch's host key")]
pub struct HostKeyError(String);

impl FromStr for HostKey {
    type Err = HostKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || HostKeyError(text.chars().take(100).collect());
        match text.trim_end_matches('=').parse() {
            Ok(print @ Fingerprint::Sha256(_)) => Ok(Self(print)),
            _ => Err(fault()),
        }
    }
}

impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The secret of a login. The file is read for each connection, so a new secret is used without a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// File of a private key, in OpenSSH's or PKCS#8 format, without a passphrase.
    Key(PathBuf),
    /// File of a password. White space at its end does not belong to the password.
    Password(PathBuf),
}

impl Login {
    fn file(&self) -> &Path {
        match self {
            Self::Key(file) | Self::Password(file) => file,
        }
    }

    async fn secret(&self) -> Result<SecretString, String> {
        let at = self.file().display();
        let text = tokio::fs::read_to_string(self.file()).await;
        let text = text
            .map(SecretString::from)
            .map_err(|error| format!("{at} cannot be used: {error}"))?;
        Ok(match self {
            Self::Key(_) => text,
            Self::Password(_) => SecretString::from(text.expose_secret().trim_end()),
        })
    }
}

/// The settings of connections by SSH to one switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshSettings {
    /// The address of its SSH server.
    pub address: SshAddress,
    /// Its host key. No other key is accepted.
    pub host_key: HostKey,
    /// The user of the control plane on the switch.
    pub user: String,
    /// The user's secret.
    pub login: Login,
}

/// An open login. The connection ends when it is dropped.
pub(crate) struct Connection {
    _handle: Handle<Pinned>,
    _guard: ConnectionGuard,
}

/// Ends a connection when dropped: russh runs the connection in its own task, also while the server is silent.
struct ConnectionGuard(std::net::TcpStream);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let _: io::Result<()> = self.0.shutdown(Shutdown::Both);
    }
}

/// Logs in and starts the subsystem `netconf`.
pub(crate) async fn connect(
    switch: &str,
    settings: &SshSettings,
) -> Result<(ChannelStream<Msg>, Connection), PortsError> {
    let unproven = |what| PortsError::Unproven {
        switch: switch.to_owned(),
        address: settings.address.to_string(),
        what,
    };
    let secret = settings.login.secret().await.map_err(unproven)?;
    let unreachable = |source| PortsError::Unreachable {
        switch: switch.to_owned(),
        address: settings.address.to_string(),
        source,
    };
    let stream = TcpStream::connect(&settings.address.0).await.map_err(unreachable)?;
    let guard = stream.as_fd().try_clone_to_owned().map_err(unreachable)?;
    let guard = ConnectionGuard(guard.into());
    let config = client::Config {
        preferred: Preferred {
            key: Cow::Borrowed(HOST_KEYS),
            ..Preferred::DEFAULT
        },
        nodelay: true,
        ..client::Config::default()
    };
    let pinned = Pinned(settings.host_key);
    let connected = client::connect_stream(Arc::new(config), stream, pinned).await;
    let mut handle = connected.map_err(|fault| unproven(fault.sentence()))?;
    log_in(&mut handle, settings, secret).await.map_err(unproven)?;
    let refused =
        "the switch offers no NETCONF on this SSH port; enable NETCONF over SSH (subsystem `netconf`) on the switch";
    let ended = |error: russh::Error| unproven(format!("the SSH connection ended after the login ({error})"));
    let mut channel = handle.channel_open_session().await.map_err(ended)?;
    channel.request_subsystem(true, "netconf").await.map_err(ended)?;
    loop {
        match channel.wait().await {
            Some(ChannelMsg::Success) => break,
            Some(ChannelMsg::WindowAdjusted { .. }) => {}
            _ => return Err(unproven(refused.to_owned())),
        }
    }
    Ok((
        channel.into_stream(),
        Connection {
            _handle: handle,
            _guard: guard,
        },
    ))
}

async fn log_in(handle: &mut Handle<Pinned>, settings: &SshSettings, secret: SecretString) -> Result<(), String> {
    let file = settings.login.file().display();
    let result = match &settings.login {
        Login::Key(_) => {
            // The decoder's error is discarded on purpose: it may quote the key.
            let key = russh::keys::decode_secret_key(secret.expose_secret(), None).map_err(|_| {
                format!("{file} is not a private key without a passphrase, of the kind Ed25519 or ECDSA")
            })?;
            let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
            handle.authenticate_publickey(&settings.user, key).await
        }
        Login::Password(_) => {
            handle
                .authenticate_password(&settings.user, secret.expose_secret())
                .await
        }
    };
    match result {
        Ok(AuthResult::Success) => Ok(()),
        Ok(AuthResult::Failure { .. }) => Err(format!(
            "the switch refuses the login of user {:?} with {file}; check `user` and the file in the settings, and the user's \
             keys on the switch",
            settings.user
        )),
        Err(error) => Err(format!("the SSH connection ended during the login ({error})")),
    }
}

/// Accepts exactly one host key.
pub(crate) struct Pinned(HostKey);

#[derive(Debug)]
pub(crate) enum HostFault {
    OtherKey(String),
    Protocol(russh::Error),
}

impl HostFault {
    fn sentence(self) -> String {
        match self {
            Self::OtherKey(shown) => format!(
                "a server with another host key answers, {shown}; check the address and the switch, and correct \
                 `host_key_sha256` of the switch in the settings only if the switch has a new host key"
            ),
            Self::Protocol(russh::Error::NoCommonAlgo {
                kind: AlgorithmKind::Key,
                theirs,
                ..
            }) => format!(
                "the server has host keys of the kinds {} only; make an Ed25519 or ECDSA host key on the switch",
                crate::wire::excerpt(&theirs.join(", "))
            ),
            Self::Protocol(error) => {
                format!("the SSH connection failed ({error}); check that the switch listens with SSH at this port")
            }
        }
    }
}

impl From<russh::Error> for HostFault {
    fn from(error: russh::Error) -> Self {
        Self::Protocol(error)
    }
}

impl client::Handler for Pinned {
    type Error = HostFault;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, HostFault> {
        match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => match key.fingerprint(HashAlg::Sha256) {
                print if print == self.0.0 => Ok(true),
                print => Err(HostFault::OtherKey(print.to_string())),
            },
            PublicKeyOrCertificate::Certificate(_) => Err(HostFault::OtherKey("a certificate".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_host_keys_are_read() {
        for (text, shown) in [
            ("ssh://10.0.0.3", "ssh://10.0.0.3:830"),
            ("ssh://leaf-1:22", "ssh://leaf-1:22"),
            ("ssh://[2001:db8::3]", "ssh://[2001:db8::3]:830"),
            ("ssh://[2001:db8::3]:22", "ssh://[2001:db8::3]:22"),
        ] {
            assert_eq!(text.parse::<SshAddress>().unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "10.0.0.3:830",
            "ssh:10.0.0.3:830",
            "ssh://",
            "ssh://:830",
            "ssh://a:0",
            "ssh://a:x",
            "ssh://2001:db8::3",
            "ssh://u@a",
            "ssh://a/b",
            "tls://a:6513",
        ] {
            assert!(bad.parse::<SshAddress>().is_err(), "{bad}");
        }
        let print = "SHA256:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE";
        assert_eq!(print.parse::<HostKey>().unwrap().to_string(), print);
        assert_eq!(format!("{print}=").parse::<HostKey>(), print.parse());
        for bad in [
            "",
            "SHA256:",
            &print[7..],
            &print[..40],
            "SHA512:MDEy",
            &print.replace("MDEy", "!!!!"),
        ] {
            assert!(bad.parse::<HostKey>().is_err(), "{bad}");
        }
    }
}
