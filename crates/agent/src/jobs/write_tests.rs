//! WriteImage to a file in place of a drive, with an image created by sfdisk and mkfs; independent tools check the result.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use rackwright_api::v1::Seed;
use tempfile::TempDir;

use super::*;
use crate::disk::marker;
use crate::drives::file::{FileDrive, FileDrives};
use crate::jobs::control::StopReason;
use secrecy::SecretString;

const MIB: u64 = 1 << 20;

/// Runs a tool. Panics with its name if it is not installed.
fn tool(name: &str, arguments: &[&str], input: &str) -> String {
    use std::io::Write as _;
    let mut command = Command::new(name);
    command
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{name} (apt-get install fdisk mtools dosfstools util-linux): {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{name} {arguments:?}: {text}");
    text
}

/// An image of 64 MiB: a BIOS boot partition, an ESP with a loader, and a root partition at the end.
fn image(dir: &TempDir, layout: &str) -> Vec<u8> {
    let path = dir.path().join("image");
    fs::write(&path, vec![0; 64 << 20]).unwrap();
    tool("sfdisk", &["--quiet", path.to_str().unwrap()], layout);
    let esp = dir.path().join("esp");
    fs::write(&esp, vec![0; 16 << 20]).unwrap();
    let esp = esp.to_str().unwrap();
    tool("mkfs.vfat", &["-F", "16", esp], "");
    for folder in ["::EFI", "::EFI/BOOT", "::EFI/debian"] {
        tool("mmd", &["-i", esp, folder], "");
    }
    for file in [
        "::EFI/BOOT/BOOTX64.EFI",
        "::EFI/debian/shimx64.efi",
        "::EFI/BOOT/BOOTAA64.EFI",
        "::EFI/debian/shimaa64.efi",
    ] {
        tool("mcopy", &["-i", esp, "/etc/hostname", file], "");
    }
    let mut image = fs::read(&path).unwrap();
    image[(2 << 20)..(18 << 20)].copy_from_slice(&fs::read(esp).unwrap());
    image
}

const GPT: &str = "label: gpt\nlabel-id: 11111111-2222-3333-4444-555555555555\nstart=2048,size=2048,type=21686148-6449-6E6F-744E-656564454649\n\
start=4096,size=32768,type=uefi,uuid=AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE\nstart=36864,size=90000,type=linux,name=root\n";

/// Writes the image to the file, or fails as configured.
struct Copy {
    image: Vec<u8>,
    fails: Option<JobError>,
    stops: Option<StopReason>,
    request: Mutex<Option<WriteRequest>>,
}

impl Copy {
    fn of(image: Vec<u8>) -> Self {
        Self {
            image,
            fails: None,
            stops: None,
            request: Mutex::new(None),
        }
    }
}

impl ImageWriter for Copy {
    fn logical_bytes(&self, request: &WriteRequest, _: &JobControl) -> Result<u64, JobError> {
        *self.request.lock().unwrap() = Some(request.clone());
        Ok(self.image.len() as u64)
    }
    fn write(&self, _: &WriteRequest, drive: &Path, control: &JobControl) -> Result<WriteSummary, JobError> {
        if let Some(stop) = self.stops {
            control.stop(stop);
            return Err(job_error("cancelled", "stopped", false));
        }
        if let Some(error) = &self.fails {
            return Err(error.clone());
        }
        let disk = OpenOptions::new().write(true).open(drive).unwrap();
        disk.write_all_at(&self.image, 0).unwrap();
        Ok(WriteSummary {
            logical_bytes: self.image.len() as u64,
            written_bytes: 7,
            fetched_bytes: 5,
            ..WriteSummary::default()
        })
    }
}

struct Bench {
    dir: TempDir,
    drive: PathBuf,
    drives: FileDrives,
}

fn bench(size: u64) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let drive = dir.path().join("drive");
    let file = File::create(&drive).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(&[0xA5; 8192], size - 8192).unwrap();
    let drives = FileDrives {
        drives: vec![FileDrive {
            name: "vda".into(),
            serial_number: "S1".into(),
            path: drive.clone(),
        }],
    };
    Bench { dir, drive, drives }
}

fn job() -> WriteImage {
    let files = HashMap::from([
        ("user-data".to_owned(), b"#cloud-config\n".to_vec()),
        ("meta-data".to_owned(), b"instance-id: i-7\n".to_vec()),
        ("rackwright/keys/host".to_owned(), vec![b'k'; 5000]),
    ]);
    WriteImage {
        image_digest: "b3-00".into(),
        seed: Some(Seed { files }),
        boot_entry_label: "debian".into(),
        peers: None,
        ..WriteImage::default()
    }
}

fn run(
    bench: &Bench,
    writer: &Copy,
    job: &WriteImage,
    efivars: Option<EfiVars>,
) -> (Result<WriteImageResult, JobError>, String) {
    let credentials = Credentials {
        ca_pem: String::new(),
        certificate_pem: String::new(),
        key_pem: SecretString::from(""),
    };
    let control = JobControl::without_listener();
    let tools = Tools {
        drives: &bench.drives,
        writer,
        efivars,
        peers: None,
    };
    (write(&tools, job, 42, credentials, &control), control.progress().step)
}

#[test]
fn a_disk_is_finished_so_that_other_tools_agree() {
    let bench = bench(256 * MIB);
    let writer = Copy::of(image(&bench.dir, GPT));
    let efi = tempfile::tempdir().unwrap();
    let (result, step) = run(&bench, &writer, &job(), Some(EfiVars::new(efi.path().to_owned())));
    let result = result.unwrap();
    assert_eq!(
        (
            result.drive_name.as_str(),
            result.drive_serial.as_str(),
            result.written_bytes
        ),
        ("vda", "S1", 7)
    );
    let drive = bench.drive.to_str().unwrap();
    let verified = tool("sfdisk", &["--verify", drive], "");
    assert!(verified.contains("No errors detected"), "{verified}");
    let dump = tool("sfdisk", &["--dump", drive], "");
    assert!(
        dump.contains("label-id: 11111111-2222-3333-4444-555555555555"),
        "{dump}"
    );
    // 256 MiB minus the backup table, minus 32 MiB, rounded down to a MiB: the seed starts at 223 MiB; root ends there.
    assert!(
        dump.contains("start=       36864, size=      419840, type=0FC63DAF"),
        "{dump}"
    );
    assert!(
        dump.contains("start=      456704, size=       65536, type=EBD0A0A2") && dump.contains("name=\"CIDATA\""),
        "{dump}"
    );
    assert!(dump.contains("uuid=AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE"), "{dump}");
    let offset = 223 * MIB;
    let probe = tool(
        "blkid",
        &["--probe", "--offset", &offset.to_string(), "-o", "export", drive],
        "",
    );
    assert!(probe.contains("LABEL=CIDATA") && probe.contains("TYPE=vfat"), "{probe}");
    let at = format!("{drive}@@{offset}");
    assert_eq!(tool("mtype", &["-i", &at, "::user-data"], ""), "#cloud-config\n");
    assert_eq!(
        tool("mtype", &["-i", &at, "::rackwright/keys/host"], ""),
        "k".repeat(5000)
    );
    assert_eq!(
        tool("mtype", &["-i", &at, "::rackwright/image"], ""),
        "digest=b3-00\ngeneration=42\n"
    );
    let seed = bench.dir.path().join("seed");
    let mut content = vec![0; 32 << 20];
    File::open(&bench.drive)
        .unwrap()
        .read_exact_at(&mut content, offset)
        .unwrap();
    fs::write(&seed, content).unwrap();
    tool("fsck.vfat", &["-n", seed.to_str().unwrap()], "");
    assert_eq!(marker::read("vda", &bench.drive, 512).map(|m| m.generation), Some(42));
    assert!(
        step.contains("Boot0000 starts \\EFI\\debian\\shim") && step.contains("partition 2"),
        "{step}"
    );
    let option = fs::read(efi.path().join("Boot0000-8be4df61-93ca-11d2-aa0d-00e098032b8c")).unwrap();
    assert_eq!(
        efi::entry::label_of(&option[4..]).as_deref(),
        Some("Rackwright: debian")
    );
    let guid = efi::entry::partition_of(&option[4..]).unwrap();
    assert_eq!(
        guid,
        [
            0xAA, 0xAA, 0xAA, 0xAA, 0xBB, 0xBB, 0xCC, 0xCC, 0xDD, 0xDD, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE
        ]
    );
}

#[test]
fn writing_twice_gives_a_sound_disk_again() {
    let bench = bench(128 * MIB);
    let writer = Copy::of(image(&bench.dir, GPT));
    for _ in 0..2 {
        run(&bench, &writer, &job(), None).0.unwrap();
        tool("sfdisk", &["--verify", bench.drive.to_str().unwrap()], "");
    }
}

#[test]
fn other_tables_are_refused_and_do_not_boot() {
    for (layout, name) in [
        ("label: dos\nstart=2048,size=2048,type=83\n", "MBR"),
        ("label: gpt\n", "GPT made for 4096-byte blocks"),
    ] {
        let bench = bench(128 * MIB);
        let mut content = image(&bench.dir, layout);
        if name.starts_with("GPT") {
            let header = content[512..1024].to_vec();
            content[512..1024].fill(0);
            content[4096..4608].copy_from_slice(&header);
        }
        let (result, _) = run(&bench, &Copy::of(content), &job(), None);
        let error = result.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.retryable),
            ("unsupported-partition-table", false),
            "{name}: {}",
            error.message
        );
        let mut start = [1; 1024];
        File::open(&bench.drive).unwrap().read_exact_at(&mut start, 0).unwrap();
        assert_eq!(start, [0; 1024], "{name}");
    }
}

#[test]
fn faults_before_writing_leave_the_drive_as_it_was() {
    let bench = bench(80 * MIB);
    let writer = Copy::of(image(&bench.dir, GPT));
    let before = fs::read(&bench.drive).unwrap();
    let bad_seed = WriteImage {
        seed: Some(Seed {
            files: HashMap::from([("../x".to_owned(), vec![])]),
        }),
        ..job()
    };
    let missing = WriteImage {
        root_drive: "nvme0n1".into(),
        ..job()
    };
    for (job, code) in [
        (job(), "disk-too-small"),
        (bad_seed, "seed-invalid"),
        (missing, "disk-missing"),
    ] {
        let error = run(&bench, &writer, &job, None).0.unwrap_err();
        assert_eq!(error.code, code, "{}", error.message);
    }
    assert_eq!(fs::read(&bench.drive).unwrap(), before);
}

#[test]
fn a_drive_that_exists_and_cannot_be_opened_is_not_missing() {
    let error = drive_error(DriveError::Io {
        drive: "vda".into(),
        source: io::ErrorKind::PermissionDenied.into(),
    });
    assert_eq!(error.code, "disk-open-failed");
    let message = "drive vda: it exists and cannot be opened";
    assert!(error.message.starts_with(message), "{}", error.message);
}

#[test]
fn the_writers_errors_are_passed_on() {
    let bench = bench(256 * MIB);
    let error = job_error("digest-mismatch", "chunk 3", false);
    let writer = Copy {
        fails: Some(error.clone()),
        ..Copy::of(vec![0; 1 << 20])
    };
    assert_eq!(run(&bench, &writer, &job(), None).0.unwrap_err(), error);
    for (stop, code) in [(StopReason::Deadline, "deadline"), (StopReason::Cancelled, "cancelled")] {
        let writer = Copy {
            stops: Some(stop),
            ..Copy::of(vec![0; 1 << 20])
        };
        assert_eq!(run(&bench, &writer, &job(), None).0.unwrap_err().code, code);
    }
}

#[test]
fn the_order_and_the_marker_have_the_values_of_the_job() {
    let bench = bench(256 * MIB);
    let writer = Copy::of(image(&bench.dir, GPT));
    let mut job = job();
    job.seed
        .as_mut()
        .unwrap()
        .files
        .insert(MARKER.into(), b"name=debian".to_vec());
    job.store_urls = vec!["https://10.0.0.1:7443/store/v1".into()];
    job.memory_budget_bytes = 99;
    let (result, step) = run(&bench, &writer, &job, None);
    result.unwrap();
    let request = writer.request.lock().unwrap().clone().unwrap();
    assert_eq!((request.store_urls, request.memory_budget_bytes), (job.store_urls, 99));
    assert!(step.contains("BIOS"), "{step}");
    assert_eq!(marker::read("vda", &bench.drive, 512).unwrap().generation, 42);
}

#[test]
fn an_image_without_a_loader_is_written_all_the_same() {
    let bench = bench(256 * MIB);
    let efi = tempfile::tempdir().unwrap();
    let layout = "label: gpt\nstart=36864,size=90000,type=linux\n";
    let (result, step) = run(
        &bench,
        &Copy::of(image(&bench.dir, layout)),
        &job(),
        Some(EfiVars::new(efi.path().to_owned())),
    );
    result.unwrap();
    assert!(
        step.contains("boot entry not set: the image has no EFI loader"),
        "{step}"
    );
}
