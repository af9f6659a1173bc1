//! `rackwright image ...`.

use rackwright_api::v1::ImageSpread;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::cut::Relay;
use crate::fake::Fake;
use crate::fixtures;
use crate::golden::Script;
use crate::program::Program;

/// Bytes that differ from place to place, so that a piece in the wrong place is noticed.
fn content(length: usize) -> Vec<u8> {
    (0..length as u32)
        .flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes())
        .take(length)
        .collect()
}

#[test]
fn images_are_shown() {
    let fake = Fake::start();
    fake.state().images = vec![fixtures::image()];
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    script.run(&program, &["image", "list"]);
    script.run(&program, &["image", "get", "debian"]);
    script.run(&program, &["image", "get", "plan9"]);
    script.run(&program, &["image", "delete", "debian"]);
    script.run(&program, &["image", "list", "-o", "name"]);
    script.check("images", &program);
}

#[test]
fn the_spread_of_an_image_is_shown() {
    let fake = Fake::start();
    let idle = ImageSpread {
        name: "images/ubuntu".into(),
        ..ImageSpread::default()
    };
    fake.state().spreads = vec![fixtures::spread(), idle];
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    for image in ["debian", "ubuntu", "plan9"] {
        script.run(&program, &["image", "spread", image]);
    }
    script.check("image_spread", &program);
}

#[test]
fn an_image_is_added() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let data = content(3_000_000);
    let file = program.file("debian.raw", &data);
    let signature = program.file("debian.raw.minisig", "untrusted comment: x\n");
    let mut script = Script::default();
    script.run(
        &program,
        &[
            "image",
            "add",
            "debian",
            "--file",
            &file,
            "--format",
            "raw",
            "--signature",
            &signature,
            "--os-id",
            "debian",
            "--os-version",
            "12",
            "--kernel",
            "6.1.*",
            "--idempotency-key",
            "k1",
        ],
    );
    script.run(&program, &["image", "add", "debian", "--file", "nowhere"]);
    script.run(&program, &["image", "add", "debian", "--file", &file, "--sha256", "12"]);
    script.run(
        &program,
        &[
            "image",
            "add",
            "debian",
            "--file",
            &file,
            "--sha256",
            &"00".repeat(32),
            "--idempotency-key",
            "k2",
        ],
    );
    script.check("image_add", &program);
    let state = fake.state();
    assert_eq!(state.uploads[0].data, data);
    assert_eq!(state.uploads[0].request.minisign_signature, "untrusted comment: x\n");
    assert_eq!(state.uploads[0].key, "k1.start");
    let request = &state.uploads[0].request;
    let patterns = [&request.os_id, &request.os_version, &request.kernel];
    assert_eq!(patterns, ["debian", "12", "6.1.*"]);
}

#[test]
fn an_upload_resumes_after_the_server_aborted_it() {
    let fake = Fake::start();
    fake.state().upload_cuts.extend([700_000, 0, 1_500_000]);
    fake.refuse("GetUpload", Status::unavailable("not up yet"));
    let program = Program::logged_in(&fake);
    let data = content(5_000_000);
    let file = program.file("debian.raw", &data);
    let add = program.run(&["image", "add", "debian", "--file", &file, "--no-wait"]);
    assert_eq!(add.code, 0, "{add:?}");
    let state = fake.state();
    assert!(state.uploads[0].data == data, "what arrived is what was sent, once");
    assert_eq!(state.uploads.len(), 1);
    assert!(
        add.stderr
            .contains("the upload was interrupted (the server is being restarted)"),
        "{add:?}"
    );
}

#[test]
fn an_upload_waits_for_its_own_former_stream_to_end() {
    let fake = Fake::start();
    fake.state().upload_cuts.push_back(700_000);
    let program = Program::logged_in(&fake);
    let data = content(2_000_000);
    let file = program.file("debian.raw", &data);
    // The answer of a server that has not noticed the end of the old connection, and has then received more from it.
    let details = ErrorDetails::with_bad_request_violation("offset", "is not the end of the received bytes");
    let moved = Status::with_error_details(Code::InvalidArgument, "offset: go on at 800000", details);
    let refusals = [
        Status::unavailable("gone"),
        Status::failed_precondition("another connection writes to the upload"),
        moved,
    ];
    for refusal in refusals {
        fake.refuse("WriteUpload", refusal);
    }
    let add = program.run(&["image", "add", "debian", "--file", &file]);
    assert_eq!(add.code, 0, "{add:?}");
    assert!(
        fake.state().uploads[0].data == data,
        "what arrived is what was sent, once"
    );
    fake.refuse("WriteUpload", Status::invalid_argument("data: a piece is too large"));
    let add = program.run(&["image", "add", "debian", "--file", &file]);
    assert_eq!(add.code, 2, "other faults of the request end it: {add:?}");
}

#[test]
fn an_upload_resumes_after_the_connection_was_cut() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let relay = Relay::start(fake.address, vec![2_000_000, 1_000_000]);
    let data = content(8_000_000);
    let file = program.file("debian.raw", &data);
    let url = relay.url();
    let add = program.run(&["image", "add", "debian", "--file", &file, "--server", &url]);
    assert_eq!(add.code, 0, "{add:?}");
    assert_eq!(relay.cuts(), 2, "{add:?}");
    assert!(
        fake.state().uploads[0].data == data,
        "what arrived is what was sent, once"
    );
}

#[test]
fn an_upload_is_resumed_by_another_run() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let data = content(2_000_000);
    let file = program.file("debian.raw", &data);
    fake.state().upload_cuts.push_back(600_000);
    fake.refuse("GetUpload", Status::permission_denied("you were made a viewer"));
    let add = ["image", "add", "debian", "--file", &file, "--idempotency-key", "k1"];
    let broken = program.run(&add);
    assert_eq!(broken.code, 5, "{broken:?}");
    let again = program.run(&add);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(
        again
            .stderr
            .contains("continuing an upload: 600.0 kB of 2.0 MB are already received"),
        "{again:?}"
    );
    assert_eq!(fake.keys("StartUpload"), ["k1.start", "k1.start"]);
    assert!(fake.state().uploads[0].data == data);
}
