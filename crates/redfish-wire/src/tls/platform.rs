//! TLS by the platform's OpenSSL, which has the RSA key exchange that rustls lacks.

use std::io;
use std::net::IpAddr;
use std::pin::Pin as Pinned;
use std::sync::{Arc, LazyLock};

use openssl::error::ErrorStack;
use openssl::ssl::{
    self, Ssl, SslContext, SslMethod, SslMode, SslOptions, SslSessionCacheMode, SslVerifyMode, SslVersion,
};
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

use super::{BoxError, CertificateFingerprint, Pin, TlsFault};

/// The error text if the BMC supports none of the cipher suites.
pub const NO_SHARED_CIPHER: &str =
    "the BMC and the platform's OpenSSL have no common cipher suite (alert handshake_failure)";

/// TLS over TCP.
pub(crate) type Stream = SslStream<TcpStream>;

/// Forward secrecy first, then RSA key exchange. Listed in full, as some platforms leave RSA key exchange out of
/// `DEFAULT`. Level 1 allows keys of 1024 bits, which old BMCs have.
const SUITES_1_2: &str = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:ECDHE+AES:DHE+AES:kRSA+AESGCM:kRSA+AES:\
     !aNULL:!eNULL:!PSK:!SRP:!aDSS:@SECLEVEL=1";
/// In the same order as the built-in TLS.
const SUITES_1_3: &str = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

/// Reasons of OpenSSL (sslerr.h): a number over 1000 is an alert's number plus 1000.
const NO_CIPHER: [i32; 2] = [1040, 1071];
const UNEXPECTED_EOF: i32 = 294;

/// One context for all BMCs: it depends on no property of a single BMC.
static CONTEXT: LazyLock<Result<SslContext, ErrorStack>> = LazyLock::new(context);

fn context() -> Result<SslContext, ErrorStack> {
    let mut context = SslContext::builder(SslMethod::tls_client())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    context.set_cipher_list(SUITES_1_2)?;
    context.set_ciphersuites(SUITES_1_3)?;
    // No chain, date or name is checked: the pin is the trust anchor, and `connect` checks it.
    context.set_verify(SslVerifyMode::NONE);
    context.set_options(SslOptions::NO_COMPRESSION | SslOptions::NO_RENEGOTIATION);
    context.set_mode(SslMode::RELEASE_BUFFERS);
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    Ok(context.build())
}

/// State that outlives the connections to a BMC. Empty: resuming a session is unsafe in OpenSSL's binding.
#[derive(Debug, Default)]
pub(crate) struct Kept {}

/// Performs the handshake with one BMC and requires the pinned certificate.
#[derive(Clone)]
pub(crate) struct Connector {
    context: &'static SslContext,
    pin: Arc<Pin>,
}

impl Connector {
    pub(crate) fn new(pin: &Arc<Pin>, _kept: &Kept) -> Result<Self, BoxError> {
        Ok(Self {
            context: CONTEXT.as_ref().map_err(ErrorStack::clone)?,
            pin: Arc::clone(pin),
        })
    }

    /// Checks the certificate after the proof of its key and before any other data is sent.
    pub(crate) async fn connect(&self, host: &str, tcp: TcpStream) -> Result<Stream, TlsFault> {
        let mut stream = self.stream(host, tcp).map_err(refused)?;
        Pinned::new(&mut stream).connect().await.map_err(fault)?;
        let shown = stream.ssl().peer_certificate();
        let shown = shown.ok_or_else(|| TlsFault::Refused("the BMC showed no certificate".into()))?;
        let shown = CertificateDer::from(shown.to_der().map_err(refused)?);
        let checked = self.pin.check(CertificateFingerprint::of(&shown));
        checked.map_err(|fault| TlsFault::Refused(fault.into()))?;
        Ok(stream)
    }

    fn stream(&self, host: &str, tcp: TcpStream) -> Result<Stream, ErrorStack> {
        let mut tls = Ssl::new(self.context)?;
        if host.parse::<IpAddr>().is_err() {
            tls.set_hostname(host)?;
        }
        SslStream::new(tls, tcp)
    }
}

fn refused(source: ErrorStack) -> TlsFault {
    TlsFault::Refused(source.into())
}

/// A fault of the connection itself is not a refusal.
fn fault(source: ssl::Error) -> TlsFault {
    let Some(stack) = source.ssl_error() else {
        let source = source.into_io_error();
        return TlsFault::Broken(source.unwrap_or_else(|_| io::ErrorKind::UnexpectedEof.into()));
    };
    let has = |codes: &[i32]| stack.errors().iter().any(|error| codes.contains(&error.reason_code()));
    if has(&[UNEXPECTED_EOF]) {
        TlsFault::Broken(io::ErrorKind::UnexpectedEof.into())
    } else if has(&NO_CIPHER) {
        TlsFault::NoSharedCipher(stack.clone().into())
    } else {
        refused(stack.clone())
    }
}
