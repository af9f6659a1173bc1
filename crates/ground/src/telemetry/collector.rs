//! A collector that accepts OTLP over gRPC, as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// Longest time for a connection and for a batch; after it the collector counts as away.
const CONNECT: Duration = Duration::from_secs(3);
const SEND: Duration = Duration::from_secs(5);

/// A collector in the settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collector {
    /// URL of the collector's OTLP/gRPC port.
    pub(crate) url: String,
    /// PEM file with the authorities that may sign the collector's certificate.
    #[serde(default)]
    pub(crate) ca_file: Option<PathBuf>,
    /// Headers of each batch.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, SecretString>,
}

/// Why sending to a collector is not possible.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The authorities cannot be read.
    #[error("the authorities of the collector in {} cannot be read", path.display())]
    Authorities {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The authorities or the URL are invalid.
    #[error("the connection to the collector {url} cannot be set up; check its URL and its ca_file")]
    Connection {
        /// URL of the collector.
        url: String,
        /// The error of the connection setup.
        #[source]
        source: tonic::transport::Error,
    },
    /// A header is invalid.
    #[error("{0}")]
    Header(String),
}

impl Collector {
    /// Adds one line to `faults` for each invalid setting. `place` is the section of the settings, `url` the name of
    /// the URL in it.
    pub(crate) fn check(&self, place: &str, url: &str, faults: &mut Vec<String>) {
        match (self.is_https(), &self.ca_file) {
            (true, Some(file)) if !file.is_file() => {
                faults.push(format!("{place}.ca_file: {} is not a file", file.display()));
            }
            (true, None) => faults.push(format!("{place}.ca_file: must be set with https://")),
            (false, Some(_)) => faults.push(format!("{place}.ca_file: has no effect without https://")),
            _ => {}
        }
        if !self.is_https() && !self.url.starts_with("http://") || Endpoint::from_shared(self.url.clone()).is_err() {
            faults.push(format!(
                "{place}.{url}: {:?} is not an http:// or https:// URL",
                self.url
            ));
        }
        if let Err(CollectorError::Header(fault)) = self.metadata() {
            faults.push(format!("{place}.headers: {fault}"));
        }
    }

    fn is_https(&self) -> bool {
        self.url.starts_with("https://")
    }

    /// The headers of each batch.
    pub(crate) fn metadata(&self) -> Result<MetadataMap, CollectorError> {
        let mut map = MetadataMap::new();
        for (name, value) in &self.headers {
            let key: Result<AsciiMetadataKey, _> = name.to_ascii_lowercase().parse();
            let value: Result<AsciiMetadataValue, _> = value.expose_secret().parse();
            let (Ok(key), Ok(mut value)) = (key, value) else {
                let fault = format!("{name:?} is not a header name, or its value is not ASCII");
                return Err(CollectorError::Header(fault));
            };
            value.set_sensitive(true);
            map.insert(key, value);
        }
        Ok(map)
    }

    /// A channel that connects at the first send.
    #[expect(clippy::disallowed_methods, reason = "called at the start")]
    pub(crate) fn channel(&self) -> Result<Channel, CollectorError> {
        let failed = |source| CollectorError::Connection {
            url: self.url.clone(),
            source,
        };
        let endpoint = Endpoint::from_shared(self.url.clone()).map_err(failed)?;
        let endpoint = endpoint.connect_timeout(CONNECT).timeout(SEND);
        let Some(path) = &self.ca_file else {
            return Ok(endpoint.connect_lazy());
        };
        let pem = std::fs::read(path).map_err(|source| CollectorError::Authorities {
            path: path.clone(),
            source,
        })?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
        Ok(endpoint.tls_config(tls).map_err(failed)?.connect_lazy())
    }
}
