//! The address of a BMC, and how links in its answers become URLs that stay on that BMC.

use std::fmt;

use url::Url;

use crate::error::RedfishError;

/// Longest link that the client follows, in bytes. Real links stay below 300.
const MAX_LINK_LEN: usize = 2048;

/// The origin of a BMC (scheme, host, port) and the optional path before `/redfish/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BmcAddress {
    origin: Url,
    base_path: String,
}

impl BmcAddress {
    /// Reads `https://host:port/base`, or a bare `host`, `host:port` or `[v6]:port`, which mean HTTPS.
    ///
    /// A trailing `/redfish` or `/redfish/v1` is removed. User names, passwords, queries and fragments are
    /// refused: an address never carries a secret.
    ///
    /// # Errors
    /// [`RedfishError::InvalidAddress`] with the reason. The error repeats the address only if it cannot hold a
    /// password.
    pub fn parse(text: &str) -> Result<Self, RedfishError> {
        let text = text.trim();
        let invalid = |why: &str| {
            let shown = if text.contains('@') {
                "(not shown, it may hold a password)"
            } else {
                text
            };
            RedfishError::InvalidAddress {
                address: shown.chars().take(200).collect(),
                why: why.to_owned(),
            }
        };
        let full = if text.contains("://") {
            text.to_owned()
        } else {
            format!("https://{text}")
        };
        let mut url = Url::parse(&full).map_err(|fault| invalid(&fault.to_string()))?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(invalid("only https:// and http:// are supported"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("give user name and password in their own fields"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it must not have a query or a fragment"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(invalid("it has no host name or IP address"));
        }
        let mut path = url.path().trim_end_matches('/');
        // All repetitions are removed: a displayed address must parse to the same address again.
        while let Some(before) = path.strip_suffix("/v1").unwrap_or(path).strip_suffix("/redfish") {
            path = before.trim_end_matches('/');
        }
        let base_path = path.to_owned();
        url.set_path("/");
        Ok(Self { origin: url, base_path })
    }

    /// The BMC's IP address; none if the address is a name.
    #[must_use]
    pub fn ip(&self) -> Option<std::net::IpAddr> {
        match self.origin.host()? {
            url::Host::Ipv4(ip) => Some(ip.into()),
            url::Host::Ipv6(ip) => Some(ip.into()),
            url::Host::Domain(_) => None,
        }
    }

    /// Whether requests are unencrypted. Meant only for emulators on a loopback address.
    pub fn is_plain(&self) -> bool {
        self.origin.scheme() == "http"
    }

    /// The path of the service root, which DSP0266 fixes.
    pub fn root_path(&self) -> String {
        format!("{}/redfish/v1/", self.base_path)
    }

    /// The path of the sessions by DSP0266. Used only if the root cannot be read without credentials.
    pub fn standard_sessions_path(&self) -> String {
        format!("{}/redfish/v1/SessionService/Sessions", self.base_path)
    }

    /// Turns a link from an answer into a URL on this BMC; the fragment is dropped.
    ///
    /// `current` is the path of the document that held the link (a `nextLink` may be only a query).
    ///
    /// # Errors
    /// [`RedfishError::ForeignLink`] if it leads to another scheme, host or port, or is not a link.
    pub fn resolve(&self, current: Option<&Url>, link: &str) -> Result<Url, RedfishError> {
        let foreign = || RedfishError::ForeignLink {
            bmc: self.to_string(),
            link: link.chars().take(200).flat_map(char::escape_default).collect(),
        };
        if link.is_empty() || link.len() > MAX_LINK_LEN {
            return Err(foreign());
        }
        let base = if link.starts_with('?') {
            current.unwrap_or(&self.origin)
        } else {
            &self.origin
        };
        let mut url = base.join(link).map_err(|_| foreign())?;
        if url.origin() != self.origin.origin() || !url.username().is_empty() || url.password().is_some() {
            return Err(foreign());
        }
        url.set_fragment(None);
        self.put_below_base(&mut url);
        // Escaping can make the link three times as long.
        if url.as_str().len() > MAX_LINK_LEN {
            return Err(foreign());
        }
        Ok(url)
    }

    /// Like [`resolve`](Self::resolve), for a `Location` header. A BMC behind address translation writes its inner
    /// address there, so only the path counts.
    pub fn resolve_location(&self, location: &str) -> Result<Url, RedfishError> {
        match Url::parse(location) {
            Ok(absolute) if absolute.has_host() => {
                let query = absolute.query().map(|query| format!("?{query}")).unwrap_or_default();
                self.resolve(None, &format!("{}{query}", absolute.path()))
            }
            _ => self.resolve(None, location),
        }
    }

    fn put_below_base(&self, url: &mut Url) {
        let path = url.path();
        let is_below = path
            .strip_prefix(self.base_path.as_str())
            .is_some_and(|rest| rest.starts_with('/'));
        if !self.base_path.is_empty() && !is_below {
            let path = format!("{}{path}", self.base_path);
            url.set_path(&path);
        }
    }
}

impl fmt::Display for BmcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin.as_str().trim_end_matches('/'), self.base_path)
    }
}

/// Whether two links name the same resource. Trailing slashes and letter case vary within one BMC.
pub fn same_resource(a: &str, b: &str) -> bool {
    a.trim_end_matches('/').eq_ignore_ascii_case(b.trim_end_matches('/'))
}

/// The last segment of a link, which is nearly always the resource's `Id`.
pub fn last_segment(link: &str) -> &str {
    link.trim_end_matches('/').rsplit('/').next().unwrap_or(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_many_spellings() {
        for (text, shown, root) in [
            ("10.0.0.1", "https://10.0.0.1", "/redfish/v1/"),
            ("bmc-7:8443", "https://bmc-7:8443", "/redfish/v1/"),
            ("[fd77::1]:8001", "https://[fd77::1]:8001", "/redfish/v1/"),
            ("https://10.0.0.1/redfish/v1/", "https://10.0.0.1", "/redfish/v1/"),
            ("https://10.0.0.1/redfish", "https://10.0.0.1", "/redfish/v1/"),
            (
                "https://10.0.0.1/redfish//redfish/v1/redfish/v1",
                "https://10.0.0.1",
                "/redfish/v1/",
            ),
            (
                "http://127.0.0.1:8000/rack1/node2/",
                "http://127.0.0.1:8000/rack1/node2",
                "/rack1/node2/redfish/v1/",
            ),
            ("https://h/api/v1", "https://h/api/v1", "/api/v1/redfish/v1/"),
        ] {
            let address = BmcAddress::parse(text).unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(address.root_path(), root, "{text}");
        }
    }

    #[test]
    fn bad_addresses_do_not_show_passwords() {
        for text in [
            "ftp://x",
            "https://admin:hunter2@10.0.0.1",
            "https://h/?a=b",
            "",
            "https://h#f",
        ] {
            let message = BmcAddress::parse(text).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn links_stay_on_the_bmc() {
        let address = BmcAddress::parse("https://10.0.0.1:8443/rack1").unwrap();
        let path = |link: &str| {
            address
                .resolve(None, link)
                .map(|url| url[url::Position::BeforePath..].to_owned())
        };
        assert_eq!(
            path("/redfish/v1/Systems/1#/Boot").unwrap(),
            "/rack1/redfish/v1/Systems/1"
        );
        assert_eq!(path("/rack1/redfish/v1/Systems").unwrap(), "/rack1/redfish/v1/Systems");
        assert_eq!(path("/rack10/x").unwrap(), "/rack1/rack10/x");
        assert_eq!(
            path("https://10.0.0.1:8443/redfish/v1/x?a=b").unwrap(),
            "/rack1/redfish/v1/x?a=b"
        );
        for bad in [
            "//evil/redfish",
            "https://evil/redfish",
            "http://10.0.0.1:8443/x",
            "file:///etc/passwd",
            "",
        ] {
            assert!(path(bad).is_err(), "{bad}");
        }
        let current = address.resolve(None, "/redfish/v1/Systems").unwrap();
        let next = address.resolve(Some(&current), "?$skip=50").unwrap();
        assert_eq!(&next[url::Position::BeforePath..], "/rack1/redfish/v1/Systems?$skip=50");
        let location = address
            .resolve_location("https://192.168.0.5/redfish/v1/TaskService/Tasks/1")
            .unwrap();
        assert_eq!(
            location.as_str(),
            "https://10.0.0.1:8443/rack1/redfish/v1/TaskService/Tasks/1"
        );
    }
}
