//! A BMC for the tests of `rackwright bmc`: a small tree over TLS, with sessions, written by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::authority::Authority;

pub const PASSWORD: &str = "swordfish-4711";
pub const SERIAL: &str = "SNX700123";
pub const MAC: &str = "b8:3f:d2:00:11:22";
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

fn system() -> Value {
    json!({
        "@odata.id": "/redfish/v1/Systems/1", "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "Id": "1",
        "Manufacturer": "Supermicro", "Model": "SYS-821GE-TNHR", "SerialNumber": SERIAL, "SKU": "TAG-55-0001",
        "UUID": "6173ecec-6ef5-11ee-834a-0a8fc3a58a71", "HostName": "gpu-17.hall.example", "AssetTag": "ASSET-0815",
        "BiosVersion": "1.4", "PowerState": "Off",
        "Boot": {
            "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None", "BootSourceOverrideMode": "UEFI",
            "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd", "UsbCd"],
            "BootSourceOverrideEnabled@Redfish.AllowableValues": ["Disabled", "Once"],
            "UefiTargetBootSourceOverride": "PciRoot(0x7)/MAC(B83FD2001122,0x1)/IPv4(10.77.8.9)"
        },
        "Actions": {"#ComputerSystem.Reset": {
            "target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart"]
        }},
        "EthernetInterfaces": link("/redfish/v1/Systems/1/EthernetInterfaces"),
        "SecureBoot": link("/redfish/v1/Systems/1/SecureBoot"),
        "Links": {"ManagedBy": [link("/redfish/v1/Managers/1")]}
    })
}

fn tree() -> BTreeMap<String, Value> {
    let interface = format!("/redfish/v1/Systems/1/EthernetInterfaces/{}", MAC.replace(':', ""));
    let entries = [
        (
            "/redfish/v1",
            json!({
                "@odata.id": "/redfish/v1/", "Id": "RootService", "Name": "Root Service", "RedfishVersion": "1.11.0",
                "Oem": {"Supermicro": {}}, "Systems": link("/redfish/v1/Systems"), "Managers": link("/redfish/v1/Managers"),
                "SessionService": link("/redfish/v1/SessionService"), "AccountService": link("/redfish/v1/AccountService"),
                "JsonSchemas": link("/redfish/v1/JsonSchemas"), "Links": {"Sessions": link(SESSIONS)}
            }),
        ),
        (
            "/redfish/v1/Systems",
            json!({"Members": [link("/redfish/v1/Systems/1")]}),
        ),
        ("/redfish/v1/Systems/1", system()),
        (
            "/redfish/v1/Systems/1/EthernetInterfaces",
            json!({"Members": [link(&interface)]}),
        ),
        (
            interface.as_str(),
            json!({"@odata.id": interface, "Id": "1", "MACAddress": MAC}),
        ),
        (
            "/redfish/v1/Managers",
            json!({"Members": [link("/redfish/v1/Managers/1")]}),
        ),
        (
            "/redfish/v1/Managers/1",
            json!({"@odata.id": "/redfish/v1/Managers/1", "Id": "1", "Model": "ASPEED", "FirmwareVersion": "11.01.01"}),
        ),
        (
            "/redfish/v1/SessionService",
            json!({"SessionTimeout": 300, "Sessions": link(SESSIONS)}),
        ),
        (SESSIONS, json!({"Members": [link(&format!("{SESSIONS}/1"))]})),
        (
            "/redfish/v1/AccountService",
            json!({"MinPasswordLength": 8, "MaxPasswordLength": 20, "Accounts": link("/redfish/v1/AccountService/Accounts")}),
        ),
        (
            "/redfish/v1/AccountService/Accounts",
            json!({"Members": [link("/redfish/v1/AccountService/Accounts/1")]}),
        ),
        (
            "/redfish/v1/AccountService/Accounts/1",
            json!({"Id": "1", "UserName": "ann.operator", "Password": null, "SNMP": {"AuthenticationKey": "k-99-k-99"},
                   "Oem": {"Note": format!("set to {PASSWORD}, once")}}),
        ),
        ("/redfish/v1/JsonSchemas", json!({"Members": []})),
    ];
    entries
        .into_iter()
        .map(|(path, body)| (path.to_owned(), body))
        .collect()
}

/// The BMC, with the digest of its certificate.
pub struct FakeBmc {
    pub url: String,
    pub pin: String,
    _runtime: tokio::runtime::Runtime,
}

impl FakeBmc {
    pub fn start() -> Self {
        let authority = Authority::new("bmc");
        let (certificate, key) = authority.server(&["localhost"]);
        let certificate = pem::parse(certificate).unwrap().into_contents();
        let digest = ring::digest::digest(&ring::digest::SHA256, &certificate);
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(pem::parse(key).unwrap().into_contents());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.into()], key.into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let tree = Arc::new(tree());
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, tree) = (acceptor.clone(), Arc::clone(&tree));
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut buffer = Vec::new();
                    while let Some((head, body)) = request(&mut stream, &mut buffer).await {
                        if stream.write_all(answer(&head, &body, &tree).as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self {
            url,
            pin: format!("sha256:{}", hex::encode(digest)),
            _runtime: runtime,
        }
    }
}

async fn request(stream: &mut (impl tokio::io::AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<(String, String)> {
    loop {
        let text = String::from_utf8_lossy(buffer).into_owned();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let length: usize = length.unwrap_or(0);
            if rest.len() >= length {
                buffer.drain(..head.len() + 4 + length);
                return Some((head.to_owned(), rest[..length].to_owned()));
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(n) if n > 0 => buffer.extend_from_slice(&chunk[..n]),
            _ => return None,
        }
    }
}

fn answer(head: &str, body: &str, tree: &BTreeMap<String, Value>) -> String {
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap().trim_end_matches('/'));
    let known = head.to_ascii_lowercase().contains("x-auth-token: t0ken");
    let reply = |status: u16, more: &str, body: Value| {
        let body = body.to_string();
        format!(
            "HTTP/1.1 {status} Fake\r\n{more}Content-Length: {}\r\nContent-Type: application/json\r\n\r\n{body}",
            body.len()
        )
    };
    match (method, path) {
        ("POST", SESSIONS) if body.contains(PASSWORD) => {
            let more = format!("X-Auth-Token: t0ken\r\nLocation: {SESSIONS}/1\r\n");
            reply(201, &more, json!({"Id": "1"}))
        }
        ("POST", SESSIONS) => reply(
            401,
            "",
            json!({"error": {"code": "Base.1.8.InsufficientPrivilege", "message": "no"}}),
        ),
        ("GET", "/redfish/v1") => reply(200, "", tree[path].clone()),
        _ if !known => reply(401, "", json!({})),
        ("DELETE", _) => reply(200, "", json!({})),
        // Linked, and broken.
        ("GET", "/redfish/v1/Systems/1/SecureBoot") => {
            reply(500, "", json!({"error": {"code": "x", "message": "out of order"}}))
        }
        ("GET", _) => match tree.get(path) {
            Some(body) => reply(200, "", body.clone()),
            None => reply(404, "", json!({})),
        },
        _ => reply(405, "", json!({})),
    }
}
