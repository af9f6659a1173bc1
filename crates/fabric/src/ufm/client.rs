//! Requests to UFM: bounded in time and size, never redirected, and without credentials in errors.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rackwright_infiniband::PKey;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::{Host, Url};

use super::{UfmAccess, UfmSettings};
use crate::error::RolledBack;

/// Most characters of UFM's message in an error.
const MESSAGE_MAX: usize = 300;

/// Why UFM failed or refused.
#[derive(Debug, thiserror::Error)]
pub enum UfmError {
    /// The settings are unusable, with the reason.
    #[error("the settings of UFM are not usable: {0}")]
    Setup(String),
    /// No answer, or an incomplete one.
    #[error("{method} {path}: UFM does not answer")]
    NoAnswer {
        /// Method of the request.
        method: Method,
        /// Path of the request.
        path: String,
        /// The cause.
        source: reqwest::Error,
    },
    /// An answer of another status than 2xx.
    #[error("{method} {path}: UFM answers {status}: {words}")]
    Status {
        /// Method of the request.
        method: Method,
        /// Path of the request.
        path: String,
        /// The status code.
        status: StatusCode,
        /// The beginning of UFM's message.
        words: String,
    },
    /// An answer larger than the limit.
    #[error("{path}: UFM's answer has more than {most} bytes")]
    TooLarge {
        /// Path of the request.
        path: String,
        /// The limit in bytes.
        most: usize,
    },
    /// An answer of an unexpected form.
    #[error("UFM's answer is not understood: {0}")]
    Answer(String),
    /// A key outside the configured range.
    #[error("{key} is outside the range of Rackwright's keys: {first} to {last}")]
    ForeignKey {
        key: PKey,
        /// First key of the range.
        first: PKey,
        /// Last key of the range.
        last: PKey,
    },
    /// UFM accepted a change and did not make it; the differences.
    #[error("UFM did not apply the change: {}", .0.join("; "))]
    NotApplied(Vec<String>),
    /// A change that failed midway.
    #[error("{why}; {rolled_back}")]
    ApplyFailed {
        /// The cause.
        why: String,
        /// The result of the rollback.
        rolled_back: RolledBack,
    },
}

#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: SecretString,
    answer_bytes: usize,
}

/// The TLS settings: which authorities may sign UFM's certificate. Without TLS only UFM on this machine is allowed, because
/// the password would be visible on the network.
fn tls(settings: &UfmSettings) -> Result<ClientConfig, UfmError> {
    let setup = |error: &dyn std::fmt::Display| UfmError::Setup(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&settings.authorities) {
        let certificate = certificate.map_err(|error| setup(&error))?;
        roots.add(certificate).map_err(|error| setup(&error))?;
    }
    let local = match settings.url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        _ => false,
    };
    match settings.url.scheme() {
        "https" if roots.is_empty() => return Err(setup(&"no certificate authority is given")),
        "https" => {}
        "http" if local => {}
        _ => return Err(setup(&"its URL must begin with https://")),
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| setup(&error))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Client {
    pub(super) fn new(settings: &UfmSettings) -> Result<Self, UfmError> {
        let setup = |error: &dyn std::fmt::Display| UfmError::Setup(error.to_string());
        let (path, authorization) = match &settings.access {
            UfmAccess::User { name, password } => {
                let pair = STANDARD.encode(format!("{name}:{}", password.expose_secret()));
                ("ufmRest/", pair)
            }
            UfmAccess::Token(token) => ("ufmRestV3/", token.expose_secret().to_owned()),
        };
        let mut base = settings.url.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let base = base.join(path).map_err(|error| setup(&error))?;
        let builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .tls_backend_preconfigured(tls(settings)?)
            .user_agent("rackwright")
            .connect_timeout(settings.timeout.min(Duration::from_secs(10)))
            .timeout(settings.timeout);
        Ok(Self {
            http: builder.build().map_err(|error| setup(&error))?,
            base,
            authorization: SecretString::from(format!("Basic {authorization}")),
            answer_bytes: settings.answer_bytes,
        })
    }

    pub(super) async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, UfmError> {
        let body = self.send(Method::GET, path, query, None).await?;
        serde_json::from_slice(&body).map_err(|error| UfmError::Answer(format!("{path}: {error}")))
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<(), UfmError> {
        self.send(Method::POST, path, &[], Some(body)).await.map(drop)
    }

    pub(super) async fn delete(&self, path: &str) -> Result<(), UfmError> {
        self.send(Method::DELETE, path, &[], None).await.map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Vec<u8>, UfmError> {
        let mut url = self
            .base
            .join(path)
            .map_err(|error| UfmError::Setup(error.to_string()))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut secret = HeaderValue::from_str(self.authorization.expose_secret()).map_err(|_| {
            UfmError::Setup("the credential contains characters that an HTTP header cannot carry".to_owned())
        })?;
        secret.set_sensitive(true);
        let mut request = self.http.request(method.clone(), url).header(AUTHORIZATION, secret);
        if let Some(body) = body {
            request = request.json(body);
        }
        let lost = |source: reqwest::Error| UfmError::NoAnswer {
            method: method.clone(),
            path: path.to_owned(),
            source: source.without_url(),
        };
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        let bytes = self.bytes(response, path, lost).await?;
        if status.is_success() {
            return Ok(bytes);
        }
        Err(UfmError::Status {
            method,
            path: path.to_owned(),
            status,
            words: String::from_utf8_lossy(&bytes).chars().take(MESSAGE_MAX).collect(),
        })
    }

    async fn bytes(
        &self,
        mut response: Response,
        path: &str,
        lost: impl Fn(reqwest::Error) -> UfmError,
    ) -> Result<Vec<u8>, UfmError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(&lost)? {
            if bytes.len() + chunk.len() > self.answer_bytes {
                return Err(UfmError::TooLarge {
                    path: path.to_owned(),
                    most: self.answer_bytes,
                });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}
