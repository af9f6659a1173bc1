//! HTTP towards the provider: without proxies and redirects, with limits of time and size.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::{LoginError, chain};

/// Longest time of a request with its answer.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Longest answer, in bytes.
const ANSWER_MAX: usize = 256 << 10;

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// There is no answer.
    #[error(transparent)]
    Request(#[from] reqwest::Error),
    /// The answer has no valid form.
    #[error(transparent)]
    Form(#[from] openidconnect::http::Error),
    /// The answer is too long.
    #[error("the answer is longer than {ANSWER_MAX} bytes")]
    TooLong,
}

/// The HTTP client.
#[derive(Debug, Clone)]
pub(crate) struct Http(reqwest::Client);

impl Http {
    pub(crate) fn new(authorities: Option<&[u8]>) -> Result<Self, LoginError> {
        let setup = |error: &dyn std::error::Error| LoginError::Setup(chain(error));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| setup(&error))?
            .with_root_certificates(roots(authorities)?)
            .with_no_client_auth();
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .tls_backend_preconfigured(config)
            .user_agent("rackwright")
            .connect_timeout(TIME_MAX)
            .timeout(TIME_MAX)
            .build();
        Ok(Self(client.map_err(|error| setup(&error))?))
    }

    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut answer = self.0.execute(request.try_into()?).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            if bytes.len() + chunk.len() > ANSWER_MAX {
                return Err(HttpError::TooLong);
            }
            bytes.extend_from_slice(&chunk);
        }
        let mut response = openidconnect::http::Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            headers.clone_from(answer.headers());
        }
        Ok(response.body(bytes)?)
    }
}

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.answer(request))
    }
}

/// The authorities of the provider's certificate.
fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, LoginError> {
    let mut roots = RootCertStore::empty();
    let Some(pem) = pem else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| LoginError::Setup(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| LoginError::Setup(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(LoginError::Setup("the file of authorities has no certificate".into())),
        false => Ok(roots),
    }
}
