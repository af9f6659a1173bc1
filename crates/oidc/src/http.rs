//! HTTP towards the provider: without proxies and redirects, with limits of time and size.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use openidconnect::http::Uri;
use openidconnect::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
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
    /// The address could be read and changed on the way.
    #[error("{0} has no TLS: only a provider on this host may go without")]
    Plain(String),
    /// The answer is too long.
    #[error("the answer is longer than {ANSWER_MAX} bytes")]
    TooLong,
}

/// The HTTP client.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    /// The provider is on this host, without TLS.
    is_plain: bool,
}

impl Http {
    /// A client for the provider with this address.
    pub(crate) fn new(issuer: &str, authorities: Option<&[u8]>) -> Result<Self, LoginError> {
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
        Ok(Self {
            client: client.map_err(|error| setup(&error))?,
            is_plain: issuer.starts_with("http://"),
        })
    }

    /// Whether an address may be asked: by TLS, or on this host if the provider is there without TLS.
    pub(crate) fn may_ask(&self, uri: &Uri) -> bool {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_local = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        match uri.scheme_str() {
            Some("https") => true,
            Some("http") => self.is_plain && is_local,
            _ => false,
        }
    }

    /// Sends a form. `authorization` is the value of that header.
    pub(crate) async fn post(
        &self,
        url: &str,
        authorization: Option<&str>,
        form: String,
    ) -> Result<HttpResponse, HttpError> {
        let mut request = openidconnect::http::Request::post(url)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        self.answer(request.body(form.into_bytes())?).await
    }

    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Each address of the provider's description comes here before it is asked.
        if !self.may_ask(request.uri()) {
            return Err(HttpError::Plain(request.uri().to_string()));
        }
        let mut answer = self.client.execute(request.try_into()?).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(issuer: &str, url: &str) -> Result<HttpResponse, HttpError> {
        let http = Http::new(issuer, None).expect("a client");
        let request = openidconnect::http::Request::get(url).body(Vec::new());
        http.answer(request.expect("a request")).await
    }

    #[tokio::test]
    async fn an_address_without_tls_is_not_asked() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let url = format!("http://{}/keys", listener.local_addr().expect("an address"));
        let refused = ask("https://login.example", &url).await;
        assert!(matches!(refused, Err(HttpError::Plain(_))), "{refused:?}");
        let unasked = listener.accept().map_err(|error| error.kind());
        assert!(matches!(unasked, Err(std::io::ErrorKind::WouldBlock)), "{unasked:?}");

        for url in [
            "http://192.0.2.1/keys",
            "http://127.0.0.1.example/keys",
            "ftp://127.0.0.1/keys",
        ] {
            let refused = ask("http://127.0.0.1:9000", url).await;
            assert!(matches!(refused, Err(HttpError::Plain(_))), "{url}: {refused:?}");
        }
        let local = Http::new("http://127.0.0.1:9000", None).expect("a client");
        for url in [
            "http://127.0.0.1:9000/keys",
            "http://[::1]/keys",
            "http://localhost/",
            "https://a.example/",
        ] {
            assert!(local.may_ask(&Uri::from_static(url)), "{url}");
        }
    }
}
