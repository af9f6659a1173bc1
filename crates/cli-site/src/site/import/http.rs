//! GET over HTTP/1.1 from one origin, without proxies. Time and size are limited, redirects are not followed, and the token
//! is not shown.

use std::error::Error as StdError;
use std::path::Path;
use std::time::Duration;

use rackwright_cli_context::error::CliError;
use rackwright_cli_context::tls::{CONNECT_TIMEOUT, host_and_port};
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;

/// Largest answer, in bytes. A page of 500 devices has about 3 MB.
const MAX_BODY_BYTES: usize = 64 << 20;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// `https` or `http`.
    pub scheme: &'static str,
    pub host: String,
    pub port: u16,
    /// The path before `/api`, without a `/` at the end.
    pub base: String,
}

impl Origin {
    /// Reads `https://HOST[:PORT][/PATH]`. `http` is allowed for this machine only, because requests carry a token.
    pub fn parse(text: &str) -> Result<Self, CliError> {
        let wrong = |why: &str| {
            CliError::usage(
                format!("`{text}` is not an address: {why}"),
                "the form is https://netbox.example",
            )
        };
        let (scheme, default_port, rest) = match text.split_once("://") {
            Some(("https", rest)) => ("https", 443, rest),
            Some(("http", rest)) => ("http", 80, rest),
            _ => return Err(wrong("it must begin with https://")),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let is_allowed = |c: char| c.is_ascii_graphic() && !"?#@\\".contains(c);
        if !text.chars().all(is_allowed) {
            return Err(wrong("give only a host, a port and a path"));
        }
        let (host, port) = host_and_port(authority, default_port).map_err(wrong)?;
        let host = host.to_ascii_lowercase();
        let is_loopback = host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        if scheme == "http" && !is_loopback {
            return Err(wrong("http would send the token unencrypted"));
        }
        Ok(Self {
            scheme,
            host,
            port,
            base: path.trim_end_matches('/').to_owned(),
        })
    }

    /// The path and query of a link. `None`: the link leads to another server, or its path is not below `base`.
    pub fn path_of(&self, link: &str) -> Option<String> {
        let at = link.find("://").map_or(0, |at| at + 3);
        let path_at = link.get(at..)?.find('/')? + at;
        let (authority, path) = link.split_at(path_at);
        let other = Self::parse(authority).ok()?;
        let is_same_server = (other.scheme, &other.host, other.port) == (self.scheme, &self.host, self.port);
        let is_below_base = path.strip_prefix(&self.base).is_some_and(|rest| rest.starts_with('/'));
        let is_clean = path.chars().all(|c| c.is_ascii_graphic() && c != '#') && !path.contains("/../");
        (is_same_server && is_below_base && is_clean).then(|| path.to_owned())
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// `https://HOST:PORT`
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.authority())
    }
}

/// A client of one origin.
pub struct Client {
    origin: Origin,
    http: reqwest::Client,
    authorization: HeaderValue,
    timeout: Duration,
}

impl Client {
    /// A client that connects at its first request. `authorization` is the value of the header `Authorization`.
    pub fn new(origin: Origin, authorization: &str, ca: Option<&Path>, timeout: Duration) -> Result<Self, CliError> {
        let mut authorization = HeaderValue::from_str(authorization)
            .map_err(|_| CliError::credential("the token contains invalid characters", ""))?;
        authorization.set_sensitive(true);
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots(ca)?)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .http1_only()
            .tls_backend_preconfigured(config)
            .connect_timeout(CONNECT_TIMEOUT)
            .build();
        let http = http.map_err(|e| CliError::credential(format!("TLS cannot be set up: {}", innermost(&e)), ""))?;
        Ok(Self {
            origin,
            http,
            authorization,
            timeout,
        })
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    fn unreachable(&self, why: impl ToString) -> CliError {
        CliError::Unreachable {
            doing: "import".to_owned(),
            tried: vec![(self.origin.url(), why.to_string())],
        }
    }

    /// Reads a path, and returns the body of the answer.
    pub async fn get(&self, path: &str) -> Result<Vec<u8>, CliError> {
        let time = self.timeout;
        match tokio::time::timeout(time, self.answer(path)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unreachable(format!("no complete answer within {} s", time.as_secs()))),
        }
    }

    async fn answer(&self, path: &str) -> Result<Vec<u8>, CliError> {
        let request = self
            .http
            .get(format!("{}{path}", self.origin.url()))
            .header(ACCEPT, "application/json")
            .header(AUTHORIZATION, self.authorization.clone());
        let mut answer = request.send().await.map_err(|e| self.no_answer(&e))?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(self.refused(path, status));
        }
        let mut body = Vec::new();
        let broken_off = |e: reqwest::Error| CliError::BadAnswer(format!("{path}: {}", innermost(&e)));
        while let Some(chunk) = answer.chunk().await.map_err(broken_off)? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                let most = MAX_BODY_BYTES >> 20;
                return Err(CliError::BadAnswer(format!(
                    "{path}: the answer is larger than {most} MiB"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The error of a request without an answer.
    fn no_answer(&self, error: &reqwest::Error) -> CliError {
        if error.is_connect() && error.is_timeout() {
            return self.unreachable(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()));
        }
        self.unreachable(innermost(error))
    }

    fn refused(&self, path: &str, status: StatusCode) -> CliError {
        let url = self.origin.url();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => CliError::credential(
                format!("{url}{path}: {status}"),
                "check that the token is right, not expired, and allowed to view objects of DCIM",
            ),
            StatusCode::NOT_FOUND => CliError::usage(
                format!("{url}{path}: {status}"),
                "check that this is a NetBox and that the path before /api is right",
            ),
            status if status.is_redirection() => CliError::usage(
                format!("{url}{path}: {status}"),
                "redirects are not followed: give the target address",
            ),
            status if status.is_server_error() => self.unreachable(format!("{path}: {status}")),
            status => CliError::BadAnswer(format!("{path}: {status}")),
        }
    }
}

/// The last error of the chain, which is the most specific one.
fn innermost(error: &reqwest::Error) -> String {
    let mut last: &(dyn StdError + 'static) = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

/// The authorities in the file, or without a file the authorities that this system trusts.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, CliError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let bytes = std::fs::read(path).map_err(|e| CliError::given("read", path, e))?;
    let wrong = |why: String| {
        CliError::usage(
            format!("{}: {why}", path.display()),
            "the file must contain certificates as PEM",
        )
    };
    let blocks = pem::parse_many(bytes).map_err(|e| wrong(e.to_string()))?;
    for block in blocks.into_iter().filter(|block| block.tag() == "CERTIFICATE") {
        roots
            .add(CertificateDer::from(block.into_contents()))
            .map_err(|e| wrong(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("the file contains no certificate".to_owned()));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_https_or_of_this_machine() {
        let url = |text: &str| {
            Origin::parse(text)
                .map(|origin| format!("{} {}", origin.url(), origin.base))
                .ok()
        };
        assert_eq!(
            url("https://NetBox.example").as_deref(),
            Some("https://netbox.example:443 ")
        );
        assert_eq!(url("https://a:8443/netbox/").as_deref(), Some("https://a:8443 /netbox"));
        assert_eq!(url("http://127.0.0.1:8000").as_deref(), Some("http://127.0.0.1:8000 "));
        assert_eq!(url("http://[::1]:8000").as_deref(), Some("http://[::1]:8000 "));
        for wrong in [
            "http://netbox.example",
            "netbox.example",
            "https://u@a",
            "https://a?b",
            "https://",
            "https://a:x",
            "https://[::1",
            "https://a b",
        ] {
            assert_eq!(url(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_links_to_the_same_origin_are_followed() {
        let origin = Origin::parse("https://a/netbox").unwrap();
        let path = |link: &str| origin.path_of(link);
        assert_eq!(
            path("https://a/netbox/api/x?offset=5").as_deref(),
            Some("/netbox/api/x?offset=5")
        );
        assert_eq!(path("https://A:443/netbox/api/").as_deref(), Some("/netbox/api/"));
        for other in [
            "https://b/netbox/api",
            "http://a/netbox/api",
            "https://a:444/netbox/api",
            "https://a/other/api",
            "https://a/netboxes/api",
            "https://a@b/netbox/api",
            "https://a/netbox/../api",
            "/netbox/api",
            "https://a",
            "",
        ] {
            assert_eq!(path(other), None, "{other}");
        }
    }
}
