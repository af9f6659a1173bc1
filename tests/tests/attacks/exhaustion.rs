//! Clients that try to exhaust memory, connections and disk space.

#[path = "exhaustion/plane.rs"]
pub mod plane;

use std::net::{Ipv4Addr, SocketAddrV4};

use prost::Message as _;
use prost_types::FileDescriptorSet;
use rackwright_api::DESCRIPTORS;
use rackwright_api::v1;
use rackwright_api::v1::agent_service_client::AgentServiceClient;
use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_api::v1::site_service_client::SiteServiceClient;
use rackwright_sim::install_crypto;
use rackwright_tests::flood::{Flood, HTTP, Speed, TLS, announced, raise_open_files};
use rackwright_tests::site::texts;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use plane::{Plane, TEST_LIMIT, image};

const MIB: u64 = 1 << 20;
/// Most memory that an attack without a certificate may cost.
const MEMORY: u64 = 32 * MIB;

/// The paths of all calls.
fn paths() -> Vec<String> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("the descriptors decode");
    let files = set.file.iter().filter(|file| file.package() == "rackwright.v1");
    let services = files.flat_map(|file| &file.service);
    let paths = services.flat_map(|s| {
        let path = |m: &str| format!("/rackwright.v1.{}/{m}", s.name());
        s.method.iter().map(move |m| path(m.name()))
    });
    let mut paths: Vec<String> = paths.collect();
    paths.push("/grpc.health.v1.Health/Watch".to_owned());
    paths.push("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".to_owned());
    paths
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_message_without_a_certificate_is_refused_and_not_kept() {
    const LENGTH: u64 = 256 * MIB;
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path(), "").await;
    let before = plane.memory();
    let open = [
        "AgentService/Register",
        "AuthService/BeginDeviceLogin",
        "AuthService/FinishDeviceLogin",
        "AuthService/RedeemToken",
        "ControlService/ProveDatabase",
        "SessionService/OpenSession",
    ];
    let mut largest = before;
    for path in paths() {
        let is_open = open.iter().any(|call| path.ends_with(call));
        let (status, sent) = announced(&plane.channel(None), &path, LENGTH, LENGTH).await;
        let wanted = if is_open {
            Code::ResourceExhausted
        } else {
            Code::Unauthenticated
        };
        assert_eq!(status.code(), wanted, "{path}: {status:?}");
        assert!(sent < 4 * MIB, "{path}: {sent} bytes were taken");
        largest = largest.max(plane.memory());
    }
    assert!(largest < before + MEMORY, "{before} bytes grew to {largest}");
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_never_finished_cost_little_and_end() {
    const CONNECTIONS: usize = 40;
    const CALLS: usize = 8;
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path(), "").await;
    let before = plane.memory();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let channel = plane.channel(None);
        for _ in 0..CALLS {
            let channel = channel.clone();
            // Announces little, sends less, and waits.
            let call = async move {
                announced(&channel, "/rackwright.v1.AgentService/Register", 60_000, 50_000)
                    .await
                    .0
            };
            calls.spawn(call);
        }
    }
    let mut largest = before;
    let all = async {
        while let Some(status) = calls.join_next().await {
            let status = status.expect("a call ends by itself");
            assert_ne!(status.code(), Code::Ok, "{status:?}");
            largest = largest.max(plane.memory());
        }
    };
    timeout(TEST_LIMIT, all)
        .await
        .expect("calls that are never finished end");
    assert!(largest < before + MEMORY, "{before} bytes grew to {largest}");
    plane.site.cli(["whoami"]);
    plane.site.stop().await;
}

fn local(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// Addresses of attackers.
fn addresses(count: u8) -> Vec<Ipv4Addr> {
    (1..=count).map(|n| Ipv4Addr::new(127, 250, 0, n)).collect()
}

/// Inspects, images and erases a machine and answers a member, while sockets are held open against the listeners.
async fn life_during_flood(further: &str, flood: impl AsyncFnOnce(&Plane) -> Vec<Flood>) {
    install_crypto();
    raise_open_files();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path(), further).await;
    let file = image(dir.path()).display().to_string();
    let floods = flood(&plane).await;
    let before = plane.memory();
    let fleet = plane.machine().await;
    let site = &plane.site;
    let id = fleet.node(0).name();
    site.cli(["image", "add", "disk", "--file", &file]);
    site.cli(["node", "deploy", &id, "--image", "disk"]);
    site.until(&id, &["rebooting"], TEST_LIMIT).await;
    site.cli(["node", "release", "--yes", &id]);
    site.until(&id, &["available"], TEST_LIMIT).await;
    for flood in &floods {
        assert!(flood.opened() > 0, "{flood:?}");
    }
    let after = plane.memory();
    assert!(after < before + 4 * MEMORY, "{before} bytes grew to {after}");
    drop(floods);
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousands_of_idle_sockets_of_one_address_block_no_other_client() {
    // More than boot HTTP accepts in total.
    const SOCKETS: usize = 5000;
    life_during_flood("", async |plane| {
        let mut floods = Vec::new();
        for (port, sockets) in [(plane.http, SOCKETS), (plane.api, 1500), (plane.store, 1500)] {
            floods.push(Flood::start(local(port), sockets, &addresses(1), Speed::Silent).await);
        }
        floods
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_bytes_from_many_addresses_block_no_other_client() {
    let limits = "connections: {unauthenticated: 48, boot_http: 48, per_address: 4}\n";
    life_during_flood(limits, async |plane| {
        let mut floods = Vec::new();
        for (port, head) in [(plane.http, HTTP), (plane.api, TLS), (plane.store, TLS)] {
            floods.push(Flood::start(local(port), 60, &addresses(30), Speed::Slow(head)).await);
        }
        floods
    })
    .await;
}

type Planned = Result<tonic::Response<v1::PlanSiteResponse>, Status>;

fn site_part(name: &str, length: usize) -> v1::PlanSiteRequest {
    v1::PlanSiteRequest {
        part: Some(v1::SiteFilePart {
            name: name.into(),
            data: vec![b'#'; length],
        }),
    }
}

/// A set of site files that is not finished until the sender is dropped, and that blocked a second set.
async fn unfinished_set(sites: &SiteServiceClient<Channel>) -> (Sender<v1::PlanSiteRequest>, JoinHandle<Planned>) {
    loop {
        let (sender, parts) = tokio::sync::mpsc::channel(1);
        sender
            .send(site_part("site.yaml", 1))
            .await
            .expect("the stream is open");
        let mut of_first = sites.clone();
        let first = tokio::spawn(async move { of_first.plan_site(ReceiverStream::new(parts)).await });
        // If a second set arrives first, the first one is refused: both are sent again.
        while !first.is_finished() {
            let mut of_second = sites.clone();
            let second = of_second.plan_site(tokio_stream::once(site_part("site.yaml", 1))).await;
            if second.is_err_and(|status| status.code() == Code::ResourceExhausted) {
                return (sender, first);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn site_files_in_too_many_parts_are_refused_early_and_one_set_at_a_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path(), "storage: {site_files_mib: 4, reserve_mib: 256}\n").await;
    let before = plane.memory();
    let mut sites = SiteServiceClient::new(plane.channel(Some(plane.operator())));
    let text = |n: usize| site_part(if n == 0 { "site.yaml" } else { "" }, 1 << 20);
    let refused = sites
        .plan_site(tokio_stream::iter((0..300).map(text)))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains("4 MiB"), "{refused:?}");
    let refused = sites
        .plan_site(tokio_stream::once(site_part("site.yaml", 3 << 20)))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    // An unfinished set blocks a second one of the same member, but no other member's.
    let (sender, first) = timeout(TEST_LIMIT, unfinished_set(&sites))
        .await
        .expect("the second is refused");
    drop(sender);
    first.await.expect("no panic").expect("the first one is answered");
    let after = plane.memory();
    assert!(after < before + 2 * MEMORY, "{before} bytes grew to {after}");
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_members_and_agents_are_bounded() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path(), "").await;
    let before = plane.memory();
    let member = plane.channel(Some(plane.operator()));
    for path in paths().iter().filter(|path| path.starts_with("/rackwright")) {
        let (status, _) = announced(&member, path, 256 * MIB, 256 * MIB).await;
        let is_agents = path.ends_with("AgentService/Connect") || path.ends_with("AgentService/ClaimChunks");
        let is_refused = match status.code() {
            Code::PermissionDenied => is_agents,
            Code::OutOfRange | Code::ResourceExhausted | Code::InvalidArgument => !is_agents,
            _ => false,
        };
        assert!(is_refused, "{path}: {status:?}");
    }
    let after = plane.memory();
    assert!(after < before + MEMORY, "{before} bytes grew to {after}");
    let mut agents = AgentServiceClient::new(plane.channel(None));
    let refused = agents.connect(tokio_stream::pending()).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
    plane.site.stop().await;
}

/// Begins an upload of `size_bytes` by the API, without the CLI.
async fn begin(images: &mut ImageServiceClient<Channel>, size_bytes: u64) -> Result<v1::Upload, Status> {
    let request = v1::StartUploadRequest {
        image_id: "second".into(),
        size_bytes,
        sha256: "0".repeat(64),
        format: v1::ImageFormat::Raw.into(),
        mutation: Some(v1::Mutation {
            idempotency_key: format!("begin-{size_bytes}"),
            ..v1::Mutation::default()
        }),
        ..v1::StartUploadRequest::default()
    };
    images.start_upload(request).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_ends_before_the_disk_is_full_and_stored_images_are_deployed() {
    // More than any disk has, so that the reserve is already used up.
    const RESERVE: &str = "storage: {reserve_mib: 1000000000}\n";
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start(dir.path(), "").await;
    let fleet = plane.machine().await;
    let id = fleet.node(0).name();
    let file = image(dir.path()).display().to_string();
    plane.site.cli(["image", "add", "disk", "--file", &file]);
    let mut images = ImageServiceClient::new(plane.channel(Some(plane.operator())));
    let upload = begin(&mut images, 4 * MIB).await.expect("there is room");
    let piece = |offset: u64| v1::WriteUploadRequest {
        name: upload.name.clone(),
        offset,
        data: vec![7; 1 << 20],
    };
    let written = images.write_upload(tokio_stream::once(piece(0))).await;
    assert_eq!(written.expect("there is room").into_inner().received_bytes, MIB);
    let partial = dir.path().join("data").join(&upload.name);
    assert!(partial.is_file());

    plane.restart_with(RESERVE).await;
    let mut images = ImageServiceClient::new(plane.channel(Some(plane.operator())));
    let refused = images.write_upload(tokio_stream::once(piece(MIB))).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert!(
        refused.message().contains("data/uploads") && refused.message().contains("reserve"),
        "{refused:?}"
    );
    assert!(!partial.exists(), "what had arrived is removed");
    let refused = begin(&mut images, 8 * MIB).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let site = &plane.site;
    let (_, error) = texts(&site.try_cli(["image", "add", "more", "--file", &file]));
    assert!(error.contains("reserve") && error.contains("image delete"), "{error}");
    let firmware = ["firmware", "add", &file, "--component", "bios", "--version", "1"];
    let (_, error) = texts(&site.try_cli(firmware));
    assert!(error.contains("data/firmware") && error.contains("reserve"), "{error}");
    let left = std::fs::read_dir(dir.path().join("data/firmware"))
        .expect("the folder is there")
        .count();
    assert_eq!(left, 0, "no part of the firmware file is left");
    // Stored data is served as before, and changes are stored.
    site.cli(["node", "deploy", &id, "--image", "disk"]);
    site.until(&id, &["rebooting"], TEST_LIMIT).await;
    site.cli(["node", "release", "--yes", &id]);
    site.until(&id, &["available"], TEST_LIMIT).await;
    plane.site.stop().await;
    fleet.stop().await;
}
