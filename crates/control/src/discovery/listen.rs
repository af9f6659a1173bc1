//! Sources of BMC addresses: services that answer an SSDP search, and lease files of DHCP servers.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::time::Duration;

use rackwright_ground::config::discovery::Settings;
use rackwright_import::discovery::{SSDP_PORT, parse_answer, parse_leases, search};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use url::{Host, Url};

use super::spec::{DiscoverySpec, SourceResults, TargetSpec, normal};

/// Multicast groups in which Redfish services listen for searches (DSP0266): IPv4, and IPv6 link-local.
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xc);
/// Searches sent per discovery, because datagrams get lost.
const SEARCHES: u32 = 3;
/// Most services accepted per search, against floods of answers.
const ANSWERS_MAX: usize = 4096;
/// The largest datagram that is read, in bytes.
const DATAGRAM: usize = 4096;
/// The largest lease file that is read, in bytes.
const LEASES_BYTES: u64 = 64 << 20;
/// Time in addition to the configured time for answers.
const GRACE: Duration = Duration::from_secs(1);

/// Reads the wanted sources. A source that fails adds a note and does not stop the others.
///
/// `given` are the addresses that Rackwright's own DHCP has given out; `None` if that DHCP does not run here.
pub async fn listen(spec: &DiscoverySpec, settings: &Settings, given: Option<Vec<Ipv4Addr>>) -> SourceResults {
    let mut results = SourceResults::default();
    if spec.ssdp {
        by_ssdp(settings, &mut results).await;
    }
    if spec.leases {
        for path in &settings.leases {
            by_leases(path, &mut results).await;
        }
        let is_nothing = settings.leases.is_empty() && given.is_none();
        let given = given.unwrap_or_default().into_iter();
        let given = given.filter_map(|address| normal(&address.to_string()).ok());
        results.targets.extend(given.map(|address| known("lease", address)));
        if is_nothing {
            let note = "no leases: discovery.leases in the daemon's settings names no file, and the daemon serves no \
                        DHCP";
            results.notes.push(note.to_owned());
        }
    }
    let limit = usize::try_from(settings.max_addresses).unwrap_or(usize::MAX);
    if results.targets.len() > limit {
        let note = format!(
            "of {} addresses from SSDP and leases, only the first {limit} are scanned",
            results.targets.len()
        );
        results.notes.push(note);
        results.targets.truncate(limit);
    }
    results
}

async fn by_leases(path: &Path, results: &mut SourceResults) {
    let note = |what: String| format!("{}: {what}", path.display());
    let too_long = format!("the file is larger than {} MiB", LEASES_BYTES >> 20);
    let text = match tokio::fs::metadata(path).await {
        Ok(meta) if meta.len() > LEASES_BYTES => return results.notes.push(note(too_long)),
        Ok(_) => tokio::fs::read_to_string(path).await,
        Err(error) => Err(error),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) => return results.notes.push(note(error.to_string())),
    };
    match parse_leases(&text) {
        Ok(leases) => results.targets.extend(leases.into_iter().filter_map(|lease| {
            let address = normal(&lease.address.to_string()).ok()?;
            Some(known("lease", address))
        })),
        Err(fault) => results.notes.push(note(fault.to_string())),
    }
}

fn known(source: &str, address: String) -> TargetSpec {
    TargetSpec {
        address,
        source: source.to_owned(),
        ..TargetSpec::default()
    }
}

/// Source address of a search, and its destination.
type SearchRoute = io::Result<(SocketAddr, SocketAddr)>;

/// The ways to search, each with the name of its source.
#[expect(clippy::disallowed_methods, reason = "sysfs answers from memory")]
fn search_routes(settings: &Settings) -> Vec<(String, SearchRoute)> {
    let v4 = |from: Ipv4Addr| (SocketAddr::from((from, 0)), SocketAddr::from((GROUP_V4, SSDP_PORT)));
    if settings.ssdp_from.is_empty() {
        return vec![("the default interface".to_owned(), Ok(v4(Ipv4Addr::UNSPECIFIED)))];
    }
    let route = |from: &String| match from.parse::<Ipv4Addr>() {
        // Linux sends multicast from the interface that owns the socket's bound address.
        Ok(address) => Ok(v4(address)),
        Err(_) => {
            let index = std::fs::read_to_string(format!("/sys/class/net/{from}/ifindex"))?;
            let index = index.trim().parse().map_err(io::Error::other)?;
            let group = SocketAddrV6::new(GROUP_V6, SSDP_PORT, 0, index);
            Ok((SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), group.into()))
        }
    };
    settings
        .ssdp_from
        .iter()
        .map(|from| (from.clone(), route(from)))
        .collect()
}

async fn by_ssdp(settings: &Settings, results: &mut SourceResults) {
    let mut searches = JoinSet::new();
    for (name, route) in search_routes(settings) {
        let wait_s = settings.ssdp_wait_s;
        searches.spawn(async move {
            let answered = match route {
                Ok((from, group)) => ask(from, group, wait_s).await,
                Err(error) => Err(error),
            };
            (name, answered)
        });
    }
    let mut found = BTreeMap::new();
    for (name, answered) in searches.join_all().await {
        match answered {
            Ok(addresses) => found.extend(addresses),
            Err(error) => results.notes.push(format!("SSDP from {name}: {error}")),
        }
    }
    let addresses = found.into_keys().take(ANSWERS_MAX);
    results.targets.extend(addresses.map(|address| known("ssdp", address)));
}

/// Sends the search several times from one address. Returns the addresses of the service roots that answered.
async fn ask(from: SocketAddr, group: SocketAddr, wait_s: u8) -> io::Result<BTreeMap<String, ()>> {
    let socket = UdpSocket::bind(from).await?;
    if from.is_ipv4() {
        // Management networks are routed, and DSP0266 lets the site choose the range of a search.
        socket.set_multicast_ttl_v4(2)?;
    }
    let text = search(group.ip(), wait_s);
    let mut found = BTreeMap::new();
    let pause = Duration::from_secs(wait_s.into()) / SEARCHES;
    for round in 1..=SEARCHES {
        socket.send_to(text.as_bytes(), group).await?;
        let last = if round == SEARCHES { GRACE } else { Duration::ZERO };
        let until = Instant::now() + pause + last;
        let mut datagram = vec![0; DATAGRAM];
        while let Ok(received) = timeout_at(until, socket.recv_from(&mut datagram)).await {
            let (length, sender) = received?;
            if let Some(address) = answered_address(&datagram[..length], sender.ip())
                && found.len() < ANSWERS_MAX
            {
                found.insert(address, ());
            }
        }
    }
    Ok(found)
}

/// The address in an answer. Only a numeric address counts: a name could resolve to any host. A service that names
/// plain HTTP is looked at over TLS.
fn answered_address(datagram: &[u8], sender: IpAddr) -> Option<String> {
    let answer = parse_answer(datagram)?;
    let url = Url::parse(&answer.location).ok()?;
    let ip: IpAddr = match url.host()? {
        Host::Ipv4(v4) => v4.into(),
        Host::Ipv6(v6) => v6.into(),
        Host::Domain(_) => return None,
    };
    let is_unusable = ip.is_unspecified() || ip.is_multicast() || (ip.is_loopback() && !sender.is_loopback());
    if is_unusable {
        return None;
    }
    let host = match ip {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    let port = url.port().filter(|_| url.scheme() == "https").unwrap_or(443);
    normal(&format!("https://{host}:{port}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(location: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nST: urn:dmtf-org:service:redfish-rest:1\r\nAL: {location}\r\n\r\n")
    }

    #[test]
    fn answers_lead_to_numbers_over_tls_only() {
        let lan: IpAddr = [10, 0, 0, 5].into();
        let at = |location: &str, sender| answered_address(answer(location).as_bytes(), sender);
        assert_eq!(
            at("https://10.0.0.5/redfish/v1/", lan).as_deref(),
            Some("https://10.0.0.5")
        );
        assert_eq!(
            at("https://10.0.0.6:8443/redfish/v1/", lan).as_deref(),
            Some("https://10.0.0.6:8443")
        );
        assert_eq!(
            at("http://10.0.0.5:80/redfish/v1/", lan).as_deref(),
            Some("https://10.0.0.5")
        );
        assert_eq!(
            at("https://[fd00::5]/redfish/v1/", lan).as_deref(),
            Some("https://[fd00::5]")
        );
        for unusable in [
            "https://bmc-7/redfish/v1/",
            "https://127.0.0.1/redfish/v1/",
            "https://239.1.1.1/",
            "https://0.0.0.0/",
        ] {
            assert_eq!(at(unusable, lan), None, "{unusable}");
        }
    }

    #[tokio::test]
    async fn a_search_takes_valid_answers_and_ignores_the_rest() {
        let service = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let group = service.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let mut datagram = [0; 1024];
            let (length, from) = service.recv_from(&mut datagram).await.unwrap();
            assert!(datagram[..length].starts_with(b"M-SEARCH * HTTP/1.1\r\n"));
            for text in [
                "nonsense",
                &answer("https://127.64.0.1:8443/redfish/v1/"),
                &answer("https://elsewhere/"),
            ] {
                service.send_to(text.as_bytes(), from).await.unwrap();
            }
            // Returned, so that it stays open: a closed socket would refuse later searches.
            service
        });
        let found = ask("127.0.0.1:0".parse().unwrap(), group, 1).await.unwrap();
        assert_eq!(found.into_keys().collect::<Vec<_>>(), ["https://127.64.0.1:8443"]);
        drop(serving.await.unwrap());
    }

    #[tokio::test]
    async fn lease_files_that_cannot_be_read_are_noted() {
        let dir = tempfile::tempdir().unwrap();
        let good = dir.path().join("dnsmasq.leases");
        std::fs::write(&good, "0 00:16:3e:00:00:07 10.0.0.7 bmc-7 *\n").unwrap();
        let bad = dir.path().join("hello");
        std::fs::write(&bad, "hello\n").unwrap();
        let settings = Settings {
            leases: vec![good, bad, dir.path().join("none")],
            ..Settings::default()
        };
        let spec = DiscoverySpec {
            leases: true,
            ..DiscoverySpec::default()
        };
        let results = listen(&spec, &settings, Some(vec![[10, 0, 0, 8].into()])).await;
        assert_eq!(results.targets.len(), 2);
        assert_eq!(results.targets[1].address, "https://10.0.0.8");
        assert_eq!(results.targets[0].address, "https://10.0.0.7");
        assert_eq!(results.notes.len(), 2, "{:?}", results.notes);
        let results = listen(&spec, &Settings::default(), None).await;
        assert!(results.notes[0].contains("discovery.leases"));
    }
}
