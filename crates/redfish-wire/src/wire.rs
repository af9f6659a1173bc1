//! Requests with repetition by policy; error statuses become errors.

use std::sync::Arc;

use http::{Method, StatusCode};
use hyper::upgrade::Upgraded;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::environment::Environment;
use crate::error::RedfishError;
use crate::retry::{self, Attempts, Repeat};
use crate::settings::RetryPolicy;
use crate::transport::{Opening, Outgoing, Proof, Reply, Transport};
use crate::upload::Upload;

/// The transport with its retry policy.
#[derive(Debug)]
pub struct Wire {
    pub transport: Transport,
    pub environment: Arc<dyn Environment>,
    pub policy: RetryPolicy,
    /// Removed from all messages of the BMC.
    pub password: SecretString,
}

impl Wire {
    /// One exchange; a status other than 2xx is an error.
    pub async fn attempt(&self, outgoing: &Outgoing<'_>, proof: &Proof) -> Result<Reply, RedfishError> {
        let reply = self.transport.send(outgoing, proof).await?;
        self.judge(&outgoing.method, reply)
    }

    /// Sends one file; a status other than 2xx is an error. Only the caller may send it again.
    pub async fn upload(&self, upload: &Upload, proof: &Proof) -> Result<Reply, RedfishError> {
        let reply = self.transport.upload(upload, proof).await?;
        self.judge(&upload.method, reply)
    }

    /// Requests a WebSocket; any other answer is an error.
    pub async fn web_socket(&self, url: &Url, proof: &Proof) -> Result<Upgraded, RedfishError> {
        let reply = match self.transport.web_socket(url, proof).await? {
            Opening::Opened(upgraded) => return Ok(upgraded),
            Opening::Other(reply) => *reply,
        };
        let status = reply.status;
        if !status.is_success() && !status.is_informational() {
            self.judge(&Method::GET, reply)?;
        }
        Err(RedfishError::NotOffered {
            bmc: self.transport.address.to_string(),
            what: format!("a WebSocket at {}", url.path()),
            offered: format!("only a plain answer (HTTP {})", status.as_u16()),
        })
    }

    fn judge(&self, method: &Method, reply: Reply) -> Result<Reply, RedfishError> {
        if reply.status.is_success() {
            return Ok(reply);
        }
        let mut detail = reply.messages();
        detail.redact(self.password.expose_secret());
        let at = self.transport.exchange(method, &reply.url);
        if reply.status == StatusCode::FORBIDDEN && detail.has("PasswordChangeRequired") {
            return Err(RedfishError::PasswordChangeRequired { at, detail });
        }
        Err(RedfishError::Status {
            at,
            status: reply.status.as_u16(),
            detail,
            retry_after: reply.retry_after,
        })
    }

    /// Repeats the exchange until it succeeds or the policy ends it.
    pub async fn repeat(&self, outgoing: &Outgoing<'_>, proof: &Proof, repeat: Repeat) -> Result<Reply, RedfishError> {
        let mut attempts = Attempts::default();
        loop {
            match self.attempt(outgoing, proof).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => self.pause_or_fail(repeat, &mut attempts, failure).await?,
            }
        }
    }

    /// Sleeps before the next attempt, or returns the failure.
    pub async fn pause_or_fail(
        &self,
        repeat: Repeat,
        attempts: &mut Attempts,
        failure: RedfishError,
    ) -> Result<(), RedfishError> {
        match retry::next_pause(&self.policy, repeat, attempts, &failure) {
            Some(pause) => {
                let has_delay = matches!(
                    &failure,
                    RedfishError::Status {
                        retry_after: Some(_),
                        ..
                    }
                );
                let jitter = self.environment.jitter();
                // A pause that the BMC requested may become longer, but not shorter.
                let pause = if has_delay {
                    pause.mul_f64(1.0 + jitter * 0.1)
                } else {
                    retry::spread(pause, jitter)
                };
                tracing::debug!(%failure, pause_ms = pause.as_millis() as u64, "redfish request is repeated");
                if !pause.is_zero() {
                    self.environment.sleep(pause).await;
                }
                Ok(())
            }
            None => Err(failure),
        }
    }
}
