//! Data for the output of commands.

use std::time::{SystemTime, UNIX_EPOCH};

use prost_types::{Duration, Timestamp};
use rackwright_api::google::rpc;
use rackwright_api::v1::*;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tonic::Code;

/// 2026-01-02T03:04:05Z
pub const FIXED: Timestamp = Timestamp {
    seconds: 1_767_323_045,
    nanos: 0,
};

pub fn ago(seconds: i64) -> Timestamp {
    ahead(-seconds)
}

pub fn ahead(seconds: i64) -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    Timestamp {
        seconds: now + seconds,
        nanos: 0,
    }
}

pub fn fixed(seconds: i64) -> Timestamp {
    Timestamp {
        seconds: FIXED.seconds + seconds,
        nanos: 0,
    }
}

const DIGEST: &str = "b3-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A node that entered a state some time ago.
pub fn node(id: &str, state: NodeState, seconds: i64) -> Node {
    Node {
        name: format!("nodes/{id}"),
        spec: Some(NodeSpec {
            bmc: Some(Bmc {
                address: format!("https://bmc-{id}"),
                username: "admin".into(),
                certificate_sha256: format!("sha256:{}", "ab".repeat(32)),
                ..Bmc::default()
            }),
            sku: "h100".into(),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            state: state as i32,
            state_since: Some(ago(seconds)),
            power: "on".into(),
            macs: vec!["52:54:00:00:00:01".into()],
            ..NodeStatus::default()
        }),
        metadata: Some(Metadata {
            uid: "u1".into(),
            resource_version: "7".into(),
            create_time: Some(FIXED),
            update_time: Some(FIXED),
            labels: [("rack".to_owned(), "r1".to_owned())].into(),
        }),
    }
}

/// Three nodes in different states.
pub fn nodes() -> Vec<Node> {
    let mut active = node("gpu-001", NodeState::Active, 7200 + 1800);
    let status = active.status.as_mut().unwrap();
    status.claim = Some(Claim {
        generation: 3,
        image_version: format!("images/debian/versions/{DIGEST}"),
        hostname: "gpu-001".into(),
        ssh_authorized_keys: vec!["ssh-ed25519 AAAA".into()],
        release_requested: false,
        customer: "acme".into(),
        has_user_data: false,
    });
    status.claim_generation = 3;
    status.image_written = format!("images/debian/versions/{DIGEST}");
    status.address = "10.0.0.1".into();
    status.inventory = Some(inventory());
    status.set_health(NodeHealth::Ok);
    let mut imaging = node("gpu-002", NodeState::Imaging, 190);
    let status = imaging.status.as_mut().unwrap();
    status.agent_connected = true;
    status.waiting_for = "the agent to write the image".into();
    status.claim = Some(Claim {
        generation: 1,
        image_version: format!("images/debian/versions/{DIGEST}"),
        ..Claim::default()
    });
    let mut failed = node("gpu-003", NodeState::Failed, 3 * 86400);
    let status = failed.status.as_mut().unwrap();
    status.power = "unknown".into();
    status.set_health(NodeHealth::Unreachable);
    status.health_reason = "no route".into();
    // Text from a machine can contain anything.
    status.reason = "the BMC does not answer:\x1b[2J\nno route".into();
    vec![active, imaging, failed]
}

pub fn inventory() -> Inventory {
    Inventory {
        dmi: Some(Dmi {
            system_vendor: "QEMU".into(),
            product_name: "Standard PC".into(),
            serial_number: "SN1".into(),
            uuid: "00000000-0000-0000-0000-000000000001".into(),
            bios_vendor: "EDK II".into(),
            bios_version: "2022.11".into(),
            bios_date: "02/02/2022".into(),
            ..Dmi::default()
        }),
        cpus: vec![
            Cpu {
                model: "EPYC 9654".into(),
                cores: 96,
                threads: 192,
                ..Cpu::default()
            };
            2
        ],
        numa_nodes: vec![NumaNode::default(); 2],
        memory_bytes: 1536 << 30,
        drives: vec![Drive {
            name: "nvme0n1".into(),
            model: "Samsung PM9A3".into(),
            serial_number: "S6".into(),
            firmware_version: "GDC".into(),
            size_bytes: 3_840_755_982_336,
            transport: "nvme".into(),
            erase_methods: vec![EraseMethod::NvmeSanitizeCrypto as i32],
            ..Drive::default()
        }],
        nics: vec![Nic {
            name: "eno1".into(),
            mac: "52:54:00:00:00:01".into(),
            driver: "igb".into(),
            link_up: true,
            speed_mbps: 1000,
            addresses: vec!["10.0.0.1".into()],
            ..Nic::default()
        }],
        gpus: vec![Gpu {
            pci_address: "0000:17:00.0".into(),
            vendor_id: 0x10de,
            device_id: 0x2330,
            model: "H100 SXM5".into(),
        }],
        tpm: Some(Tpm {
            present: true,
            major_version: 2,
            manufacturer: "INTC".into(),
        }),
        boot_mode: "uefi".into(),
        secure_boot: true,
        kernel_release: "6.1.0".into(),
        architecture: "x86_64".into(),
        ..Inventory::default()
    }
}

pub fn explanation() -> Explanation {
    let mut node = nodes().remove(1);
    let status = node.status.as_mut().unwrap();
    status.state_deadline = Some(ahead(1700));
    status.waiting_until = Some(ahead(100));
    let step = |edge: &str, from: NodeState, to: NodeState, seconds: i64, spent: i64| Transition {
        edge: edge.into(),
        from_state: from as i32,
        to_state: to as i32,
        time: Some(ago(seconds)),
        reason: String::new(),
        time_in_former_state: Some(Duration {
            seconds: spent,
            nanos: 500_000_000,
        }),
    };
    Explanation {
        node: Some(node),
        summary: "gpu-002 has been imaging for 3 min, waiting for the agent to write the image".into(),
        hints: vec!["`rackwright node watch gpu-002` shows progress".into(), "wait".into()],
        history: vec![
            step("started", NodeState::Allocated, NodeState::Imaging, 190, 2),
            step("claimed", NodeState::Available, NodeState::Allocated, 200, 4000),
        ],
        attempts: vec![
            Attempt {
                effect: "write-image".into(),
                number: 2,
                start_time: Some(ago(150)),
                outcome: "running".into(),
                ..Attempt::default()
            },
            Attempt {
                effect: "write-image".into(),
                number: 1,
                start_time: Some(ago(7200 + 1800)),
                end_time: Some(ago(7200 + 1788)),
                outcome: "failed".into(),
                detail: "download-failed: connection reset".into(),
                ..Attempt::default()
            },
        ],
        facts: vec![
            FactLine {
                name: "power".into(),
                value: "on".into(),
                time: Some(ago(190)),
            },
            FactLine {
                name: "agent".into(),
                value: "boot 1234".into(),
                time: None,
            },
        ],
    }
}

pub fn report() -> Report {
    let check = |id: &str, verdict: Verdict, measured: &str, threshold: &str, detail: &str| Check {
        id: id.into(),
        verdict: verdict as i32,
        measured: measured.into(),
        threshold: threshold.into(),
        source: "profile h100".into(),
        detail: detail.into(),
    };
    Report {
        name: "nodes/gpu-001/reports/r1".into(),
        claim_generation: 3,
        start_time: Some(fixed(0)),
        end_time: Some(fixed(4)),
        passed: false,
        checks: vec![
            check("memory", Verdict::Pass, "1536 GiB", "at least 1500 GiB", ""),
            check(
                "disk-read-rate",
                Verdict::Fail,
                "1.1 GB/s",
                "at least 3 GB/s",
                "nvme0n1 read at 1.1 GB/s",
            ),
            check("infiniband", Verdict::NotApplicable, "", "", "no HCA in the inventory"),
        ],
        profile: "h100".into(),
    }
}

/// A certificate signed as the control plane signs them.
pub fn certificate(serial: &str) -> EraseCertificate {
    let certificate = EraseCertificate {
        name: "nodes/gpu-001/eraseCertificates/c1".into(),
        node: "nodes/gpu-001".into(),
        claim_generation: 3,
        operation: "operations/o1".into(),
        drive_name: "nvme0n1".into(),
        drive_model: "Samsung PM9A3".into(),
        drive_serial: serial.into(),
        drive_bytes: 3_840_755_982_336,
        method: EraseMethod::NvmeFormatUserData as i32,
        start_time: Some(fixed(0)),
        end_time: Some(fixed(40)),
        samples: 4096,
        sample_bytes: 4096,
        rejected_methods: vec!["nvme-sanitize-crypto: not supported".into()],
        witnesses: vec!["bmc".into(), "inspection".into()],
        identity: "address only".into(),
        ..EraseCertificate::default()
    };
    let fields = [
        ("identity", certificate.identity.clone()),
        ("name", certificate.name.clone()),
        ("node", certificate.node.clone()),
        ("claim_generation", "3".into()),
        ("operation", certificate.operation.clone()),
        ("drive_name", certificate.drive_name.clone()),
        ("drive_model", certificate.drive_model.clone()),
        ("drive_serial", serial.to_owned()),
        ("drive_bytes", certificate.drive_bytes.to_string()),
        ("method", "ERASE_METHOD_NVME_FORMAT_USER_DATA".into()),
        ("start_time", format!("{}.000000000", fixed(0).seconds)),
        ("end_time", format!("{}.000000000", fixed(40).seconds)),
        ("samples", "4096".into()),
        ("sample_bytes", "4096".into()),
        ("rejected_methods", "1".into()),
        ("rejected_method", certificate.rejected_methods[0].clone()),
        ("witnesses", "2".into()),
        ("witness", "bmc".into()),
        ("witness", "inspection".into()),
    ];
    let mut payload = b"rackwright-erase-certificate-v3\n".to_vec();
    for (name, value) in fields {
        payload.extend(format!("{name}={}:{value}\n", value.len()).bytes());
    }
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    EraseCertificate {
        signature: key.sign(&payload).as_ref().to_vec(),
        signed_payload: payload,
        signer_public_key: key.public_key().as_ref().to_vec(),
        ..certificate
    }
}

pub fn image() -> Image {
    let version = |digest: &str, signed_by: &str| ImageVersion {
        name: format!("images/debian/versions/{digest}"),
        create_time: Some(ago(3 * 86400)),
        logical_bytes: 4_294_967_296,
        data_bytes: 1_300_000_000,
        compressed_bytes: 420_000_000,
        chunks: 1024,
        source_sha256: "cd".repeat(32),
        source_format: ImageFormat::Zstd as i32,
        signed_by: signed_by.into(),
        ..ImageVersion::default()
    };
    let annotated = ImageVersion {
        os_id: "debian".into(),
        os_version: "12".into(),
        kernel: "6.1.*".into(),
        ..version(DIGEST, "KEY1")
    };
    Image {
        name: "images/debian".into(),
        versions: vec![annotated, version(&format!("b3-{}", "fe".repeat(32)), "")],
        metadata: Some(Metadata::default()),
    }
}

pub fn event(position: u64) -> Event {
    Event {
        position,
        time: Some(fixed(position as i64)),
        kind: if position.is_multiple_of(2) {
            "started"
        } else {
            "boot.dhcp"
        }
        .into(),
        target: if position.is_multiple_of(2) {
            "nodes/gpu-001"
        } else {
            "nodes/gpu-002"
        }
        .into(),
        message: format!("event number {position}"),
        severity: match position {
            3 => EventSeverity::Warning,
            _ => EventSeverity::Info,
        }
        .into(),
        attributes: [("mac".to_owned(), "52:54:00:00:00:01".to_owned())].into(),
    }
}

/// The forms of an operation that succeeds at once.
pub fn quick() -> Vec<Operation> {
    let running = Operation {
        create_time: Some(ago(190)),
        requested_by: "ann".into(),
        ..Operation::default()
    };
    let done = Operation {
        done: true,
        end_time: Some(ago(107)),
        ..running.clone()
    };
    vec![running, done]
}

/// The forms of an operation that shows its progress and succeeds.
pub fn stepwise() -> Vec<Operation> {
    let mut forms = quick();
    let step = |step: &str, percent: u32, logical_bytes: u64| Operation {
        progress: Some(Progress {
            step: step.into(),
            percent,
            logical_bytes,
            logical_bytes_total: if logical_bytes > 0 { 4_000_000_000 } else { 0 },
            real_bytes: logical_bytes / 3,
            bytes_per_second: if logical_bytes > 0 { 500_000_000 } else { 0 },
        }),
        ..quick().remove(0)
    };
    forms.splice(
        1..1,
        [
            step("starting the agent", 5, 0),
            step("starting the agent", 6, 0),
            step("writing the image", 45, 2_000_000_000),
            step("validating", 95, 0),
        ],
    );
    forms
}

/// The forms of an operation that fails.
pub fn failing() -> Vec<Operation> {
    let mut forms = quick();
    let error = rpc::Status {
        code: Code::FailedPrecondition as i32,
        message: "drive vda of gpu-001 has 8.0 GB, the image needs 16.0 GB".into(),
        details: Vec::new(),
    };
    forms[1].error = Some(error);
    forms
}

/// The form of an operation that never ends.
pub fn endless() -> Vec<Operation> {
    quick().into_iter().take(1).collect()
}

/// An operator, a customer's user without any call yet, and a viewer of an identity provider.
pub fn members() -> Vec<Member> {
    vec![
        Member {
            name: "members/ann".to_owned(),
            role: Role::Operator as i32,
            create_time: Some(FIXED),
            last_use_time: Some(FIXED),
            certificate_expire_time: Some(FIXED),
            ..Member::default()
        },
        Member {
            name: "members/bob@acme".to_owned(),
            role: Role::CustomerUser as i32,
            customer: "acme".to_owned(),
            create_time: Some(FIXED),
            ..Member::default()
        },
        Member {
            name: "members/carl".to_owned(),
            role: Role::Viewer as i32,
            create_time: Some(FIXED),
            issuer: "https://login.example".to_owned(),
            ..Member::default()
        },
    ]
}

/// Two sessions of browsers.
pub fn sessions() -> Vec<Session> {
    let session = |id: &str, member: &str, address: &str, client: &str| Session {
        name: format!("sessions/{id}"),
        member: member.to_owned(),
        create_time: Some(FIXED),
        last_use_time: Some(FIXED),
        expire_time: Some(fixed(3600)),
        address: address.to_owned(),
        client: client.to_owned(),
        ..Session::default()
    };
    vec![
        session("0a1b2c", "ann", "192.0.2.7", "Mozilla/5.0 (X11; Linux x86_64)"),
        session("3d4e5f", "bob@acme", "192.0.2.8", ""),
    ]
}

/// Two API keys; the second was never used.
pub fn api_keys() -> Vec<ApiKey> {
    let key = |id: &str, role: Role, label: &str| ApiKey {
        name: format!("apiKeys/{id}"),
        member: "ann".to_owned(),
        role: role as i32,
        label: label.to_owned(),
        create_time: Some(FIXED),
        expire_time: Some(fixed(3600)),
        ..ApiKey::default()
    };
    let used = ApiKey {
        last_use_time: Some(FIXED),
        ..key("7d8e9f", Role::Operator, "nightly report")
    };
    vec![used, key("a0b1c2", Role::Viewer, "dashboard")]
}

/// Two unused tokens.
pub fn member_tokens() -> Vec<MemberToken> {
    let token = |id: &str, member: &str, role: Role, customer: &str| MemberToken {
        name: format!("tokens/{id}"),
        member: member.to_owned(),
        role: role as i32,
        customer: customer.to_owned(),
        created_by: "ann".to_owned(),
        expire_time: Some(FIXED),
    };
    vec![
        token("0123456789abcdef", "eve", Role::Viewer, ""),
        token("fedcba9876543210", "cleo@acme", Role::CustomerAdmin, "acme"),
    ]
}

/// Three agents in two racks write an image.
pub fn spread() -> ImageSpread {
    let agent = |node: &str, held_chunks, grants, is_alone| SpreadAgent {
        node: format!("nodes/{node}"),
        held_chunks,
        grants,
        is_alone,
        begin_time: Some(ago(95 * 60 + 20)),
    };
    let racks = vec![
        RackSpread {
            agents: vec![agent("gpu-009", 7, 1, true)],
            held_chunks: 0,
            grants: 1,
            alone: 1,
            ..RackSpread::default()
        },
        RackSpread {
            rack: "r1".into(),
            held_chunks: 120,
            grants: 3,
            agents: vec![agent("gpu-001", 80, 2, false), agent("gpu-002", 64, 1, false)],
            ..RackSpread::default()
        },
    ];
    ImageSpread {
        name: "images/debian".into(),
        versions: vec![VersionSpread {
            name: format!("images/debian/versions/{DIGEST}"),
            chunks: 450,
            server_chunks: 131,
            server_chunks_again: 4,
            server_chunks_alone: 8,
            racks,
        }],
    }
}
