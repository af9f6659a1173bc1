//! Listeners that are not BMCs, and invented BMCs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rackwright_sim::mockup::{Mockup, Tree};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A stranger's reaction to a connection.
#[derive(Debug, Clone, Copy)]
pub enum Behaviour {
    /// Answers every request with a page, without TLS.
    Page,
    /// Accepts connections and stays silent.
    Silence,
    /// Sends a byte now and then, for ever.
    Drip,
}

/// All data that a listener received.
#[derive(Debug, Default)]
pub struct Received(std::sync::Mutex<Vec<u8>>);

impl Received {
    /// Whether the data contains a text.
    pub fn has(&self, text: &str) -> bool {
        let bytes = self.0.lock().unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }

    /// Whether no data was received.
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

/// Listens until the test ends.
pub async fn stranger(address: &str, behaviour: Behaviour) -> Arc<Received> {
    let listener = TcpListener::bind(address).await.unwrap();
    let received = Arc::new(Received::default());
    let kept = received.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_connection(stream, behaviour, kept.clone()));
        }
    });
    received
}

async fn serve_connection(mut stream: TcpStream, behaviour: Behaviour, received: Arc<Received>) {
    let mut bytes = [0; 4096];
    let length = stream.read(&mut bytes).await.unwrap_or(0);
    received.0.lock().unwrap().extend(&bytes[..length]);
    match behaviour {
        Behaviour::Page => {
            let page =
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 21\r\n\r\n<html>a page</html>\r\n";
            let _ = stream.write_all(page.as_bytes()).await;
        }
        Behaviour::Silence => {
            let _ = stream.read(&mut bytes).await;
        }
        Behaviour::Drip => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{";
            let _ = stream.write_all(head.as_bytes()).await;
            while stream.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// A second address of a BMC: forwards connections to `to`. Returns the counter of connections.
pub async fn second_address(listens: &str, to: SocketAddr) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind(listens).await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let kept = count.clone();
    tokio::spawn(async move {
        while let Ok((mut outer, _)) = listener.accept().await {
            kept.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                if let Ok(mut inner) = TcpStream::connect(to).await {
                    let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
                }
            });
        }
    });
    count
}

/// A BMC made of a few resources. It accepts every login.
pub async fn made_up(dir: &Path, address: &str, uuid: &str, serial: &str, mac: &str) -> Mockup {
    let folder = dir.join(format!("made-up-{address}"));
    let put = |path: &str, body: serde_json::Value| {
        let folder = folder.join("redfish/v1").join(path);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("index.json"), body.to_string()).unwrap();
    };
    let link = |path: &str| json!({"@odata.id": format!("/redfish/v1/{path}")});
    let root = json!({
        "@odata.id": "/redfish/v1/", "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "Id": "RootService",
        "RedfishVersion": "1.17.0", "Vendor": "Made Up", "Systems": link("Systems"), "Managers": link("Managers"),
        "Links": {"Sessions": link("SessionService/Sessions")},
    });
    put("", root);
    put(
        "Systems",
        json!({"@odata.id": "/redfish/v1/Systems", "Members": [link("Systems/1")]}),
    );
    let system = json!({
        "@odata.id": "/redfish/v1/Systems/1", "Id": "1", "UUID": uuid, "SerialNumber": serial, "Manufacturer": "Made Up",
        "Model": "M1", "PowerState": "Off", "EthernetInterfaces": link("Systems/1/EthernetInterfaces"),
        "Links": {"ManagedBy": [link("Managers/1")]},
    });
    put("Systems/1", system);
    let members = json!({"@odata.id": "/redfish/v1/Systems/1/EthernetInterfaces", "Members": [link("Systems/1/EthernetInterfaces/1")]});
    put("Systems/1/EthernetInterfaces", members);
    let nic = json!({"@odata.id": "/redfish/v1/Systems/1/EthernetInterfaces/1", "Id": "1", "MACAddress": mac});
    put("Systems/1/EthernetInterfaces/1", nic);
    put(
        "Managers",
        json!({"@odata.id": "/redfish/v1/Managers", "Members": [link("Managers/1")]}),
    );
    put(
        "Managers/1",
        json!({"@odata.id": "/redfish/v1/Managers/1", "Id": "1", "ManagerType": "BMC"}),
    );
    let tree = Tree::read(&folder).unwrap();
    Mockup::start(tree, address.parse().unwrap(), true).await.unwrap()
}
