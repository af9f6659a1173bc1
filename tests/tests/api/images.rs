//! Images: imported completely or not at all, stored once, kept while they are in use.

use std::path::Path;
use std::process::Command;

use rackwright_api::v1;
use rackwright_identity::{Rng as _, SystemRng};
use rackwright_lab::{self as lab, Lab, LabConfig};
use rackwright_tests::site::{Settings, Site, texts};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status};

use crate::client::{Api, done, enrolment, events, fields, fresh, make_available, precondition, refused, start, until};

const SIZE: usize = 6 << 20;
const PIECE: usize = 512 << 10;

/// The number of files below a folder, and their bytes.
fn stored(dir: &Path) -> (usize, u64) {
    let entries = std::fs::read_dir(dir).expect("the folder can be read").flatten();
    let sizes = entries.map(|entry| match entry.path().is_dir() {
        true => stored(&entry.path()),
        false => (1, entry.metadata().expect("the file is there").len()),
    });
    sizes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn chunks(site: &Site) -> (usize, u64) {
    stored(&site.dir().join("data/images/chunks"))
}

/// Incompressible bytes, as a file, and their SHA-256.
fn content(dir: &Path) -> (Vec<u8>, String, String) {
    let mut bytes = vec![0; SIZE];
    SystemRng.fill(&mut bytes).expect("there is randomness");
    let file = dir.join("content.raw").display().to_string();
    std::fs::write(&file, &bytes).expect("the file can be written");
    let sum = std::process::Command::new("sha256sum")
        .arg(&file)
        .output()
        .expect("sha256sum runs");
    let sum = String::from_utf8(sum.stdout).expect("a digest is text");
    (bytes, file, sum[..64].to_owned())
}

#[test]
fn images_are_uploaded_shared_and_collected() {
    lab::run_test("images::images_are_uploaded_shared_and_collected", async |namespace| {
        let (_lab, mut site, api) = start(&namespace).await;
        let (bytes, file, sha256) = content(namespace.state_dir());
        a_wrong_digest(&site, &api, &file).await;
        assert_eq!(chunks(&site), (0, 0), "a refused image left something");
        let digest = an_upload_in_two_parts(&api, &bytes, &sha256).await;
        let (count, size) = chunks(&site);
        assert!(count > 1 && size >= SIZE as u64, "{count} chunks of {size} bytes");

        site.cli([
            "image", "add", "second", "--file", &file, "--format", "raw", "--sha256", &sha256,
        ]);
        assert_eq!(chunks(&site), (count, size), "the same content is stored again");
        let second = image(&api, "second").await;
        assert_eq!(second.versions[0].name, format!("images/second/versions/{digest}"));
        api.images()
            .delete_image(delete("images/second"))
            .await
            .expect("no node needs it");
        assert_eq!(chunks(&site), (count, size), "chunks of another image were removed");
        let api = an_image_in_use(&mut site, &digest).await;
        assert_eq!(chunks(&site), (count, size), "chunks that are in use were removed");
        unreferenced_chunks(&site, &api).await;
    });
}

async fn a_wrong_digest(site: &Site, api: &Api, file: &str) {
    let wrong = "0".repeat(64);
    let output = site.try_cli([
        "image", "add", "bad", "--file", file, "--format", "raw", "--sha256", &wrong,
    ]);
    let (_, err) = texts(&output);
    assert!(
        !output.status.success() && err.contains(&wrong[..16]),
        "a wrong SHA-256 was taken: {err}"
    );
    let name = "images/bad".to_owned();
    refused(
        api.images().get_image(v1::GetImageRequest { name }).await,
        Code::NotFound,
    );
    let reported = events(api, 0).await;
    assert!(
        reported
            .iter()
            .any(|e| e.kind == "image.refused" && e.target == "images/bad"),
        "{reported:?}"
    );
}

async fn image(api: &Api, id: &str) -> v1::Image {
    let name = format!("images/{id}");
    let answer = api.images().get_image(v1::GetImageRequest { name }).await;
    answer.expect("the image is there").into_inner()
}

async fn received(api: &Api, name: &str) -> u64 {
    let name = name.to_owned();
    let answer = api.images().get_upload(v1::GetUploadRequest { name }).await;
    answer.expect("the upload is there").into_inner().received_bytes
}

/// The messages that send `bytes`, starting at `offset`.
fn pieces(name: &str, offset: u64, bytes: &[u8]) -> Vec<v1::WriteUploadRequest> {
    let first = v1::WriteUploadRequest {
        name: name.to_owned(),
        offset,
        data: Vec::new(),
    };
    let rest = bytes.chunks(PIECE).map(|data| v1::WriteUploadRequest {
        data: data.to_vec(),
        ..Default::default()
    });
    std::iter::once(first).chain(rest).collect()
}

/// Sends the first part and hangs up in the middle of the call.
async fn broken_off(api: &Api, name: &str, bytes: &[u8]) {
    let (sender, receiver) = mpsc::channel(1);
    let sending = tokio::spawn({
        let mut images = api.images();
        async move { images.write_upload(ReceiverStream::new(receiver)).await }
    });
    for piece in pieces(name, 0, bytes) {
        sender.send(piece).await.expect("the call takes it");
    }
    until("the first part arrives", async || {
        (received(api, name).await == bytes.len() as u64).then_some(())
    })
    .await;
    assert!(!sending.is_finished());
    sending.abort();
    assert!(sending.await.is_err_and(|e| e.is_cancelled()));
}

async fn start_upload(api: &Api, request: &v1::StartUploadRequest) -> v1::Upload {
    let answer = api.images().start_upload(request.clone()).await;
    answer.expect("the upload is begun or known").into_inner()
}

async fn write(api: &Api, messages: Vec<v1::WriteUploadRequest>) -> Result<Response<v1::Upload>, Status> {
    api.images().write_upload(tokio_stream::iter(messages)).await
}

fn finishing(upload: &v1::Upload) -> v1::FinishUploadRequest {
    v1::FinishUploadRequest {
        name: upload.name.clone(),
        mutation: fresh(),
    }
}

/// Returns the digest of the resulting image.
async fn an_upload_in_two_parts(api: &Api, bytes: &[u8], sha256: &str) -> String {
    let begin = v1::StartUploadRequest {
        image_id: "first".into(),
        size_bytes: bytes.len() as u64,
        sha256: sha256.to_owned(),
        format: v1::ImageFormat::Raw.into(),
        mutation: fresh(),
        ..Default::default()
    };
    let upload = start_upload(api, &begin).await;
    assert_eq!((upload.received_bytes, upload.size_bytes), (0, SIZE as u64));
    let (head, tail) = bytes.split_at(SIZE / 2);
    broken_off(api, &upload.name, head).await;
    let again = start_upload(api, &begin).await;
    let half = head.len() as u64;
    let wanted = (&upload.name, half);
    assert_eq!(
        (&again.name, again.received_bytes),
        wanted,
        "the same key, the same upload"
    );

    let early = api.images().finish_upload(finishing(&upload)).await;
    precondition(early, &upload.name, "WriteUpload");
    pieces_that_do_not_fit(api, &upload.name, half, tail).await;
    let whole = write(api, pieces(&upload.name, half, tail)).await;
    let whole = whole.expect("it continues").into_inner();
    assert_eq!(whole.received_bytes, SIZE as u64);
    let more = refused(
        write(api, pieces(&upload.name, SIZE as u64, &[1])).await,
        Code::InvalidArgument,
    );
    assert_eq!(fields(&more), ["data"], "more than was announced");

    let finish = finishing(&upload);
    let import = api.images().finish_upload(finish.clone()).await;
    let import = import.expect("it is whole").into_inner();
    let about = (import.kind.as_str(), import.target.as_str());
    assert_eq!(about, ("import-image", "images/first"));
    assert_eq!(done(api, &import).await.error, None);
    // The whole exchange again, as after a crash of the client: no data is sent and no image is imported.
    let after = start_upload(api, &begin).await;
    assert_eq!((&after.name, after.received_bytes), (&upload.name, SIZE as u64));
    let again = api.images().finish_upload(finish).await;
    assert_eq!(again.expect("it is known").into_inner().name, import.name);
    the_version(api, sha256).await
}

async fn pieces_that_do_not_fit(api: &Api, upload: &str, half: u64, tail: &[u8]) {
    // The previous writer may take a moment to notice the end of its stream.
    until("the upload is free", async || {
        let answer = write(api, pieces(upload, 0, tail)).await;
        answer.is_err_and(|s| s.code() == Code::InvalidArgument).then_some(())
    })
    .await;
    for offset in [0, half - 1, half + 1] {
        let status = refused(write(api, pieces(upload, offset, tail)).await, Code::InvalidArgument);
        assert_eq!(fields(&status), ["offset"]);
        assert!(status.message().contains(&half.to_string()), "{status:?}");
    }
    assert_eq!(received(api, upload).await, half, "what was refused was written");
    let mut large = pieces(upload, half, &[]);
    large[0].data = vec![0; (1 << 20) + 1];
    let status = refused(write(api, large).await, Code::InvalidArgument);
    assert_eq!(fields(&status), ["data"]);
}

async fn the_version(api: &Api, sha256: &str) -> String {
    let image = image(api, "first").await;
    let [version] = &image.versions[..] else {
        panic!("one version: {image:?}");
    };
    let source = (version.source_sha256.as_str(), version.source_format());
    assert_eq!(source, (sha256, v1::ImageFormat::Raw));
    assert_eq!(version.logical_bytes, SIZE as u64);
    let digest = version.name.rsplit('/').next().expect("a name has parts");
    digest.to_owned()
}

fn delete(name: &str) -> v1::DeleteImageRequest {
    v1::DeleteImageRequest {
        name: name.to_owned(),
        mutation: fresh(),
    }
}

/// Claims a node with the first image; that needs no machine once the node counts as available.
async fn an_image_in_use(site: &mut Site, digest: &str) -> Api {
    let api = Api::of_site(site);
    api.nodes().enroll_node(enrolment("n1", &[])).await.expect("a new node");
    make_available(site, "n1").await;

    let api = Api::of_site(site);
    let deploy = |image: &str| v1::DeployNodeRequest {
        name: "nodes/n1".into(),
        deployment: Some(v1::Deployment {
            image: image.to_owned(),
            ..Default::default()
        }),
        mutation: fresh(),
    };
    let by_version = deploy(&format!("images/first/versions/{digest}"));
    let claimed = api
        .nodes()
        .deploy_node(by_version.clone())
        .await
        .expect("a free node")
        .into_inner();
    let again = api
        .nodes()
        .deploy_node(by_version)
        .await
        .expect("it is known")
        .into_inner();
    assert_eq!(again.name, claimed.name);
    precondition(
        api.nodes().deploy_node(deploy("images/first")).await,
        "nodes/n1",
        "node reimage n1",
    );
    for name in ["images/first".to_owned(), format!("images/first/versions/{digest}")] {
        precondition(
            api.images().delete_image(delete(&name)).await,
            &name,
            "rackwright node reimage n1",
        );
    }
    assert_eq!(image(&api, "first").await.versions.len(), 1);
    api
}

async fn unreferenced_chunks(site: &Site, api: &Api) {
    let before = chunks(site);
    site.add_image("third", "tiny.raw.zst");
    assert!(chunks(site).0 > before.0, "another image has chunks of its own");
    let stale = v1::DeleteImageRequest {
        mutation: crate::client::seen("999"),
        ..delete("images/third")
    };
    refused(api.images().delete_image(stale).await, Code::Aborted);
    for missing in ["images/none", "images/third/versions/b3-00"] {
        refused(api.images().delete_image(delete(missing)).await, Code::NotFound);
    }
    let request = delete("images/third");
    api.images()
        .delete_image(request.clone())
        .await
        .expect("no node needs it");
    assert_eq!(chunks(site), before, "its chunks, and no others, are gone");
    api.images()
        .delete_image(request)
        .await
        .expect("the same request is answered again");
    let name = "images/third".to_owned();
    refused(
        api.images().get_image(v1::GetImageRequest { name }).await,
        Code::NotFound,
    );
}

#[test]
fn an_image_describes_its_system() {
    lab::run_test("images::an_image_describes_its_system", async |namespace| {
        let (_lab, site, api) = start(&namespace).await;
        let (_, file, _) = content(namespace.state_dir());
        let add = |more: &[&str]| {
            let given = ["image", "add", "deb", "--file", &file, "--format", "raw"];
            site.try_cli(given.iter().chain(more))
        };
        let output = add(&["--os-id", "two words", "--kernel", &"x".repeat(129)]);
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains("os_id") && err.contains("kernel"), "{err}");

        let debian = ["--os-id", "debian", "--os-version", "12*", "--kernel", "6.1.*"];
        let check_patterns = async || {
            let version = image(&api, "deb").await.versions.remove(0);
            let patterns = [version.os_id, version.os_version, version.kernel];
            assert_eq!(patterns, ["debian", "12*", "6.1.*"]);
        };
        for more in [&debian[..], &debian, &[]] {
            let output = add(more);
            assert!(output.status.success(), "{more:?}: {}", texts(&output).1);
            check_patterns().await;
        }
        let shown = site.cli(["image", "get", "deb"]);
        assert!(shown.contains("ID=debian VERSION_ID=12* kernel=6.1.*"), "{shown}");
        // Nodes with this image are judged by its metadata, which must not change.
        let output = add(&["--os-id", "ubuntu"]);
        let (_, err) = texts(&output);
        assert!(
            !output.status.success() && err.contains("already exists and declares another"),
            "{err}"
        );
        check_patterns().await;
    });
}

/// A packed disk with an import of minutes: some data to store first, and then very many zeros.
fn long_import(dir: &Path) -> (Vec<u8>, String) {
    let (bytes, file, _) = content(dir);
    let mut packed = zstd::bulk::compress(&bytes, 1).expect("the bytes pack");
    let zeros = zstd::bulk::compress(&vec![0; 64 << 20], 1).expect("zeros pack");
    (0..8192).for_each(|_| packed.extend_from_slice(&zeros));
    std::fs::write(&file, &packed).expect("the file can be written");
    let sum = Command::new("sha256sum").arg(&file).output().expect("sha256sum runs");
    let sum = String::from_utf8(sum.stdout).expect("a digest is text");
    (packed, sum[..64].to_owned())
}

#[test]
fn a_running_import_is_cancelled() {
    lab::run_test("images::a_running_import_is_cancelled", async |namespace| {
        let (_lab, site, api) = start(&namespace).await;
        let (packed, sha256) = long_import(namespace.state_dir());
        let begin = v1::StartUploadRequest {
            image_id: "long".into(),
            size_bytes: packed.len() as u64,
            sha256,
            mutation: fresh(),
            ..Default::default()
        };
        let upload = start_upload(&api, &begin).await;
        write(&api, pieces(&upload.name, 0, &packed)).await.expect("it arrives");
        let import = api.images().finish_upload(finishing(&upload)).await;
        let import = import.expect("it is whole").into_inner();
        until("chunks are stored", async || (chunks(&site).0 > 0).then_some(())).await;
        until("its progress is reported", async || {
            let name = import.name.clone();
            let now = api.operations().get_operation(v1::GetOperationRequest { name }).await;
            let now = now.expect("the operation is there").into_inner();
            assert!(!now.done, "it takes long: {now:?}");
            now.progress.filter(|p| p.step == "storing chunks")
        })
        .await;
        let cancel = || v1::CancelOperationRequest {
            name: import.name.clone(),
            mutation: fresh(),
        };
        let cancelled = api.operations().cancel_operation(cancel()).await;
        let cancelled = cancelled.expect("it is under way").into_inner();
        assert!(cancelled.cancel_requested, "{cancelled:?}");
        let ended = done(&api, &import).await;
        assert_eq!(ended.error.map(|e| e.code), Some(Code::Cancelled as i32));

        let name = "images/long".to_owned();
        let image = api.images().get_image(v1::GetImageRequest { name }).await;
        refused(image, Code::NotFound);
        let name = upload.name.clone();
        let left = api.images().get_upload(v1::GetUploadRequest { name }).await;
        refused(left, Code::NotFound);
        until("what it had stored is gone", async || {
            (chunks(&site) == (0, 0)).then_some(())
        })
        .await;
        let again = api.operations().cancel_operation(cancel()).await;
        precondition(again, &import.name, "rackwright operation get");
    });
}

/// A minisign key without a password: the file of its secret half, and the base64 line of the public half.
fn signing_key(dir: &Path, name: &str) -> (String, String) {
    let (secret, public) = (dir.join(format!("{name}.key")), dir.join(format!("{name}.pub")));
    let made = Command::new("minisign")
        .args(["-G", "-W", "-s"])
        .arg(&secret)
        .arg("-p")
        .arg(&public)
        .output()
        .expect("minisign runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = std::fs::read_to_string(public).expect("the public key reads");
    let line = text.lines().nth(1).expect("the key is in the second line");
    (secret.display().to_string(), line.to_owned())
}

fn sign(secret: &str, file: &str) -> String {
    let signature = format!("{secret}.minisig");
    let made = Command::new("minisign")
        .args(["-S", "-s", secret, "-x", &signature, "-m", file])
        .output();
    let made = made.expect("minisign runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    signature
}

#[test]
fn a_site_that_asks_for_signatures_takes_no_other_images() {
    lab::run_test(
        "images::a_site_that_asks_for_signatures_takes_no_other_images",
        async |namespace| {
            let dir = namespace.state_dir().join("keys");
            std::fs::create_dir_all(&dir).expect("the folder can be made");
            let (_, file, _) = content(&dir);
            let (ours, public) = signing_key(&dir, "ours");
            let (strange, _) = signing_key(&dir, "strange");
            let lab = Lab::start(&namespace, LabConfig::default())
                .await
                .expect("the lab starts");
            let settings = Settings {
                trusted_key: Some(public),
                ..Settings::default()
            };
            let site = Site::start(&namespace.state_dir().join("site"), &settings).await;
            let add = |more: &[&str]| {
                let given = ["image", "add", "signed", "--file", &file, "--format", "raw"];
                site.try_cli(given.iter().chain(more))
            };
            for (more, word) in [
                (vec![], "signature"),
                (vec!["--signature".to_owned(), sign(&strange, &file)], "signature"),
            ] {
                let more: Vec<&str> = more.iter().map(String::as_str).collect();
                let output = add(&more);
                let (_, err) = texts(&output);
                assert!(!output.status.success() && err.contains(word), "{more:?}: {err}");
                assert_eq!(chunks(&site), (0, 0), "a refused image left something");
            }
            let output = add(&["--signature", &sign(&ours, &file)]);
            assert!(output.status.success(), "{}", texts(&output).1);
            let image = site.json(["image", "get", "signed"]);
            assert_ne!(image["versions"][0]["signed_by"], "", "{image}");
            lab.stop().await.expect("the lab ends");
        },
    );
}
