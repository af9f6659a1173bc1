//! Chunks over HTTP and HTTPS, from several servers in order of preference.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

use super::source::{ChunkSource, FetchControl, FetchError, Fetched, Frame, Object};

/// A connection that delivered at least this many bytes before it broke has made progress.
const PROGRESS_BYTES: usize = 64 << 10;
/// Attempts on one server before the next server is tried.
const TRIES_PER_ORIGIN: u32 = 2;

/// Why a source cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum HttpSourceError {
    /// The list of URLs is empty.
    #[error("no store URL is given")]
    NoUrl,
    /// The URL has another scheme.
    #[error("store URL {0:?} does not begin with http:// or https://")]
    Scheme(String),
    /// HTTPS requires a CA certificate.
    #[error("store URL {0:?} is HTTPS, but there is no CA certificate to verify the server")]
    NoCa(String),
    /// A file is not PEM, or lacks the expected content.
    #[error("the {what} is not usable: {reason}")]
    Pem {
        /// The faulty part.
        what: &'static str,
        /// The fault.
        reason: String,
    },
}

/// The trusted CA and the client's identity.
#[derive(Clone)]
pub struct Tls {
    roots: Vec<Certificate<'static>>,
    client: Option<ClientCert>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("roots", &self.roots.len())
            .field("client", &self.client.is_some())
            .finish()
    }
}

impl Tls {
    /// Trusts only servers with certificates by the CAs in `ca`: PEM, or one certificate as DER.
    pub fn with_ca(ca: &[u8]) -> Result<Self, HttpSourceError> {
        Ok(Self {
            roots: certificates("CA certificate", ca)?,
            client: None,
        })
    }

    /// Sets the client's identity: `chain` (PEM, or one certificate as DER) and its private key (PEM).
    pub fn with_identity(mut self, chain: &[u8], key_pem: &[u8]) -> Result<Self, HttpSourceError> {
        let chain = certificates("client certificate", chain)?;
        let key = PrivateKey::from_pem(key_pem).map_err(|error| HttpSourceError::Pem {
            what: "client key",
            reason: error.to_string(),
        })?;
        self.client = Some(ClientCert::new_with_certs(&chain, key));
        Ok(self)
    }
}

fn certificates(what: &'static str, bytes: &[u8]) -> Result<Vec<Certificate<'static>>, HttpSourceError> {
    // DER begins with the tag of a SEQUENCE; PEM is text.
    if bytes.first() == Some(&0x30) {
        return Ok(vec![Certificate::from_der(bytes).to_owned()]);
    }
    let mut found = Vec::new();
    for item in ureq::tls::parse_pem(bytes) {
        match item {
            Ok(ureq::tls::PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => {
                return Err(HttpSourceError::Pem {
                    what,
                    reason: error.to_string(),
                });
            }
        }
    }
    if found.is_empty() {
        return Err(HttpSourceError::Pem {
            what,
            reason: "it contains no certificate".to_owned(),
        });
    }
    Ok(found)
}

/// Time limits and retries.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Time limit for a TCP connection.
    pub connect_timeout: Duration,
    /// Time limit for the next bytes of an answer.
    pub read_timeout: Duration,
    /// Time limit for one answer, from first to last byte. The missing rest is then requested again.
    pub body_timeout: Duration,
    /// Consecutive failures without progress before the source gives up.
    pub attempts: u32,
    /// Pause after the first failure; doubles after each further failure, with jitter.
    pub first_pause: Duration,
    /// The pause grows no further than this.
    pub longest_pause: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            attempts: 10,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(5),
        }
    }
}

struct Origin {
    base: String,
    dropped: AtomicBool,
}

/// Fetches from one or more servers. All threads share the open connections.
pub struct HttpSource {
    agent: ureq::Agent,
    origins: Vec<Origin>,
    options: HttpOptions,
}

impl HttpSource {
    /// Creates a source of `base_urls`, tried in order. HTTPS requires `tls`.
    pub fn new<S: AsRef<str>>(
        base_urls: &[S],
        tls: Option<&Tls>,
        options: HttpOptions,
    ) -> Result<Self, HttpSourceError> {
        let mut origins = Vec::new();
        for url in base_urls {
            let base = url.as_ref().trim_end_matches('/').to_owned();
            match (base.starts_with("https://"), base.starts_with("http://"), tls) {
                (true, _, None) => return Err(HttpSourceError::NoCa(base)),
                (true, _, Some(_)) | (_, true, _) => origins.push(Origin {
                    base,
                    dropped: AtomicBool::new(false),
                }),
                _ => return Err(HttpSourceError::Scheme(base)),
            }
        }
        if origins.is_empty() {
            return Err(HttpSourceError::NoUrl);
        }
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("rackwright-image/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(options.connect_timeout))
            .timeout_recv_response(Some(options.read_timeout))
            .timeout_per_read(Some(options.read_timeout))
            .timeout_recv_body(Some(options.body_timeout))
            .input_buffer_size(64 << 10)
            .max_idle_connections(128)
            .max_idle_connections_per_host(64)
            .tls_config(tls_config(tls))
            .build()
            .new_agent();
        Ok(Self {
            agent,
            origins,
            options,
        })
    }

    /// Selects the next server: two attempts per server, in order, repeatedly.
    fn next_origin(&self, excluded: &[bool], failures: u32) -> Option<usize> {
        let usable = |index: &usize| !excluded[*index] && !self.origins[*index].dropped.load(Ordering::Relaxed);
        let usable: Vec<usize> = (0..self.origins.len()).filter(usable).collect();
        let turn = (failures / TRIES_PER_ORIGIN) as usize;
        (!usable.is_empty()).then(|| usable[turn % usable.len()])
    }

    fn attempt(
        &self,
        origin: usize,
        object: &Object,
        download: &mut Download<'_>,
        control: &FetchControl<'_>,
    ) -> Result<(), Failure> {
        let url = format!("{}{}", self.origins[origin].base, object.path());
        let mut request = self.agent.get(&url);
        let received = download.frame.filled().len();
        if received > 0 {
            request = request.header("range", format!("bytes={received}-"));
            if let Some(etag) = &download.etag {
                request = request.header("if-range", etag);
            }
        }
        let response = request.call().map_err(|error| Failure::Broken(error.to_string()))?;
        if download.begin(&response)? {
            control.resumes.fetch_add(1, Ordering::Relaxed);
        }
        download.receive(&mut response.into_body().into_reader(), control)
    }

    fn pause(&self, failures: u32, control: &FetchControl<'_>) -> Result<(), FetchError> {
        let doubled = self.options.first_pause.saturating_mul(1 << failures.min(16));
        let longest = doubled.min(self.options.longest_pause);
        // A random part between half and all of the pause, so that machines that failed together do not return together.
        let random = RandomState::new().build_hasher().finish() as u32;
        let until = Instant::now() + longest / 2 + (longest / 2).mul_f64(f64::from(random) / f64::from(u32::MAX));
        loop {
            control.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "the writer has a thread of its own, and looks for a stop"
            )]
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}

fn tls_config(tls: Option<&Tls>) -> TlsConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(provider);
    // Without `tls` only plain HTTP is used, and the empty list trusts no server.
    let roots = tls.map_or(&[][..], |tls| &tls.roots);
    let client = tls.and_then(|tls| tls.client.clone());
    builder
        .root_certs(RootCerts::new_with_certs(roots))
        .client_cert(client)
        .build()
}

/// Why an attempt was incomplete.
enum Failure {
    /// May succeed on retry.
    Broken(String),
    /// This server does not have the object (404, 410).
    Missing,
    /// This server refuses the object.
    Refused(String),
    TooLong,
    Cancelled,
}

/// The received part of an object, possibly from several connections.
struct Download<'a> {
    frame: &'a mut Frame,
    total: Option<u64>,
    etag: Option<String>,
    resumed: bool,
}

impl Download<'_> {
    /// Checks the head of an answer. Returns true if the answer continues the previous one.
    fn begin(&mut self, response: &ureq::http::Response<ureq::Body>) -> Result<bool, Failure> {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        if header("content-encoding").is_some_and(|coding| coding != "identity") {
            return Err(Failure::Refused(
                "the answer has a content encoding that was not requested".to_owned(),
            ));
        }
        let received = self.frame.filled().len() as u64;
        match response.status().as_u16() {
            200 => {
                self.frame.clear();
                self.resumed = false;
                self.total = header("content-length").and_then(|text| text.parse().ok());
                self.etag = header("etag").filter(|tag| !tag.starts_with("W/")).map(str::to_owned);
                let limit = self.frame.limit() as u64;
                if self.total.is_some_and(|total| total > limit) {
                    Err(Failure::TooLong)
                } else {
                    Ok(false)
                }
            }
            206 if received > 0 => {
                let range = header("content-range").and_then(parse_content_range);
                let same_tag = header("etag").is_none_or(|tag| self.etag.as_deref().is_none_or(|known| known == tag));
                if range.is_some_and(|(first, total)| first == received && Some(total) == self.total) && same_tag {
                    self.resumed = true;
                    return Ok(true);
                }
                self.frame.clear();
                Err(Failure::Broken(
                    "the resumed part does not match the part received before".to_owned(),
                ))
            }
            416 => {
                self.frame.clear();
                Err(Failure::Broken(
                    "the object on the server is shorter than before (HTTP status 416)".to_owned(),
                ))
            }
            404 | 410 => Err(Failure::Missing),
            code @ (408 | 425 | 429 | 500..=599) => Err(Failure::Broken(format!("HTTP status {code}"))),
            code => Err(Failure::Refused(format!("HTTP status {code}"))),
        }
    }

    fn complete(&self) -> bool {
        self.total == Some(self.frame.filled().len() as u64)
    }

    fn receive(&mut self, body: &mut dyn std::io::Read, control: &FetchControl<'_>) -> Result<(), Failure> {
        loop {
            control.check().map_err(|_| Failure::Cancelled)?;
            if self.complete() {
                // Reading the end returns the connection to the pool. Its result does not matter: the content is complete.
                let _ = body.read(&mut [0]);
                return Ok(());
            }
            match self.frame.fill_from(body) {
                Ok(0) if self.frame.filled().len() == self.frame.limit() => return Err(Failure::TooLong),
                Ok(0) if self.total.is_none() => return Ok(()),
                Ok(0) => return Err(Failure::Broken("the connection ended early".to_owned())),
                Ok(count) => _ = control.fetched.fetch_add(count as u64, Ordering::Relaxed),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::Broken(error.to_string())),
            }
        }
    }
}

/// `bytes 10-99/100` gives (10, 100).
fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total): (u64, u64, u64) = (first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
    (first <= last && last.checked_add(1) == Some(total)).then_some((first, total))
}

impl ChunkSource for HttpSource {
    fn fetch(&self, object: &Object, frame: &mut Frame, control: &FetchControl<'_>) -> Result<Fetched, FetchError> {
        frame.clear();
        let mut download = Download {
            frame,
            total: None,
            etag: None,
            resumed: false,
        };
        let mut excluded = vec![false; self.origins.len()];
        let mut refusal = None;
        let mut failures = 0;
        loop {
            control.check()?;
            let Some(origin) = self.next_origin(&excluded, failures) else {
                return Err(match refusal {
                    Some((from, reason)) => FetchError::Failed {
                        object: *object,
                        from,
                        attempts: 1,
                        reason,
                    },
                    None if excluded.contains(&true) => FetchError::Missing(*object),
                    None => FetchError::NoSource(*object),
                });
            };
            let from = || self.origins[origin].base.clone();
            let before = download.frame.filled().len();
            match self.attempt(origin, object, &mut download, control) {
                Ok(()) => {
                    return Ok(Fetched {
                        origin,
                        resumed: download.resumed,
                    });
                }
                Err(Failure::Cancelled) => return Err(FetchError::Cancelled),
                Err(Failure::Missing) => excluded[origin] = true,
                Err(Failure::Refused(reason)) => {
                    excluded[origin] = true;
                    refusal = Some((from(), reason));
                }
                Err(Failure::TooLong) => {
                    excluded[origin] = true;
                    download.frame.clear();
                    refusal = Some((
                        from(),
                        format!("longer than the {} bytes allowed", download.frame.limit()),
                    ));
                }
                Err(Failure::Broken(reason)) => {
                    let has_progressed = download.frame.filled().len() >= before + PROGRESS_BYTES;
                    failures = if has_progressed { 0 } else { failures + 1 };
                    tracing::debug!(%object, from = from(), failures, reason, "the download was interrupted");
                    if failures >= self.options.attempts {
                        return Err(FetchError::Failed {
                            object: *object,
                            from: from(),
                            attempts: failures,
                            reason,
                        });
                    }
                    self.pause(failures, control)?;
                }
            }
        }
    }

    fn reject(&self, origin: usize, reason: &dyn fmt::Display) -> bool {
        tracing::warn!(from = self.origins[origin].base, %reason, "the source sent wrong data and is no longer used");
        self.origins[origin].dropped.store(true, Ordering::Relaxed);
        self.origins
            .iter()
            .any(|origin| !origin.dropped.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        assert_eq!(parse_content_range("bytes 10-99/100"), Some((10, 100)));
        for wrong in [
            "bytes 10-98/100",
            "bytes 10-99/*",
            "bytes */100",
            "10-99/100",
            "bytes 99-10/11",
            "bytes -/",
        ] {
            assert_eq!(parse_content_range(wrong), None, "{wrong}");
        }
        assert_eq!(parse_content_range(&format!("bytes 0-{0}/{0}", u64::MAX)), None);
    }

    #[test]
    fn urls_and_certificates_are_checked_at_once() {
        let new = |urls: &[&str]| HttpSource::new(urls, None, HttpOptions::default()).err();
        assert!(matches!(new(&[]), Some(HttpSourceError::NoUrl)));
        assert!(matches!(new(&["ftp://a"]), Some(HttpSourceError::Scheme(_))));
        assert!(matches!(
            new(&["http://a", "https://a"]),
            Some(HttpSourceError::NoCa(_))
        ));
        assert!(matches!(Tls::with_ca(b"nothing"), Err(HttpSourceError::Pem { .. })));
    }

    #[test]
    fn servers_take_turns() {
        let source = HttpSource::new(&["http://a", "http://b"], None, HttpOptions::default()).unwrap();
        let turns: Vec<_> = (0..6)
            .map(|failures| source.next_origin(&[false; 2], failures).unwrap())
            .collect();
        assert_eq!(turns, [0, 0, 1, 1, 0, 0]);
        assert_eq!(source.next_origin(&[true, false], 0), Some(1));
        assert!(source.reject(0, &"wrong"));
        assert_eq!(source.next_origin(&[false; 2], 0), Some(1));
        assert!(!source.reject(1, &"wrong"));
        assert_eq!(source.next_origin(&[false; 2], 0), None);
    }
}
