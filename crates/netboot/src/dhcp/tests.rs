//! Tables of packets and their answers. Replies are decoded with dhcproto's typed reader, which the server does not use.

use std::net::{Ipv4Addr, SocketAddrV4};

use dhcproto::v4::{Decodable as _, Decoder, DhcpOption, Message, MessageType, OptionCode};
use proptest::prelude::*;

use super::testing::{CLIENT, Packet, SERVER, config, settings};
use super::*;
use crate::config::{BootLoader, DhcpMode, Settings, names};
use crate::directory::{BootIntent, Lookup, OneTimeToken};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 10);
const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 10), 68);
const BROADCAST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::BROADCAST, 68);
const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;
const INFORM: u8 = 8;

fn known(boot: BootIntent) -> Lookup {
    Lookup::Known {
        address: Some(ADDRESS),
        hostname: Some("gpu-001".to_owned()),
        boot,
    }
}

fn network() -> Lookup {
    known(BootIntent::Network { loader: None })
}

fn shim() -> Lookup {
    known(BootIntent::Network {
        loader: Some(BootLoader::ShimGrub),
    })
}

fn proxy() -> Settings {
    crate::NetbootConfig {
        dhcp: DhcpMode::Proxy,
        ..config()
    }
    .check()
    .unwrap()
}

fn decided(packet: &Packet, port: Port, lookup: &Lookup, settings: &Settings) -> (Request, Decision) {
    let request = Request::parse(&packet.bytes(), port, settings).unwrap();
    let decision = decide(&request, lookup, settings);
    (request, decision)
}

fn answered_on(port: Port, packet: &Packet, lookup: &Lookup, settings: &Settings) -> (Message, SocketAddrV4) {
    let (request, decision) = decided(packet, port, lookup, settings);
    let Decision::Answer(answer) = decision else {
        panic!("ignored: {decision:?}")
    };
    let token = answer
        .needs_token()
        .then(|| OneTimeToken::new("rw1_token".to_owned()).unwrap());
    let reply = reply(&request, &answer, token.as_ref(), FROM, settings).unwrap();
    assert!(reply.bytes.len() >= 300);
    let message = Message::decode(&mut Decoder::new(&reply.bytes)).unwrap();
    assert_eq!(message.xid(), 0xdead_beef);
    assert_eq!(message.chaddr(), CLIENT.0);
    assert_eq!(
        message.opts().get(OptionCode::ServerIdentifier),
        Some(&DhcpOption::ServerIdentifier(SERVER))
    );
    (message, reply.destination)
}

fn answered(packet: &Packet, lookup: &Lookup) -> (Message, SocketAddrV4) {
    answered_on(Port::Server, packet, lookup, &settings())
}

fn ignored(packet: &Packet, lookup: &Lookup, settings: &Settings) -> Ignored {
    match decided(packet, Port::Server, lookup, settings).1 {
        Decision::Ignore(why) => why,
        Decision::Answer(answer) => panic!("answered: {answer:?}"),
    }
}

fn file(message: &Message) -> Option<String> {
    let field = message
        .fname_str()
        .map(|name| name.unwrap().trim_end_matches('\0').to_owned());
    match message.opts().get(OptionCode::BootfileName) {
        Some(DhcpOption::BootfileName(name)) => Some(String::from_utf8(name.clone()).unwrap()),
        _ => field,
    }
}

fn kind(message: &Message) -> MessageType {
    message.opts().msg_type().unwrap()
}

#[test]
fn every_architecture_gets_its_first_stage() {
    let http = |name: &str| format!("http://10.77.0.1:8080/boot/v1/efi/{name}");
    let table = [
        (0, network(), Some(names::BIOS.to_owned())),
        (0, shim(), Some(names::BIOS.to_owned())),
        (7, network(), Some(names::UEFI_X64.to_owned())),
        (9, network(), Some(names::UEFI_X64.to_owned())),
        (7, shim(), Some(names::SHIM_X64.to_owned())),
        (11, network(), Some(names::UEFI_ARM64.to_owned())),
        // The shim of this architecture is not configured.
        (11, shim(), None),
        (16, network(), Some(http(names::HTTP_X64))),
        (19, network(), Some(http(names::HTTP_ARM64))),
        (16, shim(), None),
        (6, network(), None),
        (7, known(BootIntent::Disk), None),
        (16, known(BootIntent::Disk), None),
    ];
    for (architecture, lookup, expected) in table {
        for message_kind in [DISCOVER, REQUEST] {
            let (message, to) = answered(&Packet::new(message_kind).pxe(architecture), &lookup);
            assert_eq!(file(&message), expected, "{architecture} {lookup:?}");
            assert_eq!(message.yiaddr(), ADDRESS);
            assert_eq!(
                message.siaddr(),
                if expected.is_some() {
                    SERVER
                } else {
                    Ipv4Addr::UNSPECIFIED
                }
            );
            assert_eq!(to, BROADCAST);
            let class = message.opts().get(OptionCode::ClassIdentifier);
            let http = expected.as_ref().is_some_and(|file| file.starts_with("http"));
            assert_eq!(
                class,
                http.then(|| DhcpOption::ClassIdentifier(b"HTTPClient".to_vec()))
                    .as_ref()
            );
        }
    }
}

#[test]
fn ipxe_gets_its_script_and_the_token_only_with_the_acknowledgement() {
    let ipxe = |kind| Packet::new(kind).pxe(7).option(77, b"iPXE").option(175, &[1, 1, 1]);
    let (offer, _) = answered(&ipxe(DISCOVER), &network());
    assert_eq!(
        file(&offer).unwrap(),
        format!("http://10.77.0.1:8080/boot/v1/script?mac={CLIENT}")
    );
    let (ack, _) = answered(&ipxe(REQUEST), &network());
    assert_eq!(
        file(&ack).unwrap(),
        format!("http://10.77.0.1:8080/boot/v1/script?mac={CLIENT}&token=rw1_token")
    );
    let Some(DhcpOption::Unknown(no_proxy)) = ack.opts().get(OptionCode::Unknown(175)) else {
        panic!("no option 175")
    };
    assert_eq!(no_proxy.data(), [176, 1, 1]);
    let (disk, _) = answered(&ipxe(REQUEST), &known(BootIntent::Disk));
    assert_eq!(file(&disk), None);
}

#[test]
fn a_url_that_is_too_long_for_the_file_field_travels_as_an_option() {
    let packet = Packet::new(REQUEST).pxe(7).option(77, b"iPXE");
    let (request, Decision::Answer(answer)) = decided(&packet, Port::Server, &network(), &settings()) else {
        panic!()
    };
    let token = OneTimeToken::new(format!("rw1_{}", "a".repeat(64))).unwrap();
    let sent = reply(&request, &answer, Some(&token), FROM, &settings()).unwrap();
    let message = Message::decode(&mut Decoder::new(&sent.bytes)).unwrap();
    assert!(file(&message).unwrap().ends_with(token.expose()));
    assert_eq!(message.fname(), None);
    let forgotten = reply(&request, &answer, None, FROM, &settings());
    assert_eq!(forgotten, Err(EncodeError::NoToken));
}

#[test]
fn an_installed_system_gets_its_address_and_no_boot_file() {
    for lookup in [network(), known(BootIntent::Disk)] {
        let packet = Packet::new(REQUEST)
            .option(50, &ADDRESS.octets())
            .option(54, &SERVER.octets())
            .option(12, b"x");
        let (message, _) = answered(&packet, &lookup);
        assert_eq!(kind(&message), MessageType::Ack);
        assert_eq!(message.yiaddr(), ADDRESS);
        assert_eq!(file(&message), None);
        let options = message.opts();
        assert_eq!(
            options.get(OptionCode::SubnetMask),
            Some(&DhcpOption::SubnetMask([255, 255, 255, 0].into()))
        );
        assert_eq!(options.get(OptionCode::Router), Some(&DhcpOption::Router(vec![SERVER])));
        assert_eq!(
            options.get(OptionCode::Hostname),
            Some(&DhcpOption::Hostname("gpu-001".to_owned()))
        );
        assert_eq!(
            options.get(OptionCode::AddressLeaseTime),
            Some(&DhcpOption::AddressLeaseTime(3600))
        );
        assert!(options.contains(OptionCode::DomainNameServer));
    }
}

#[test]
fn requests_are_acknowledged_or_refused_by_the_address_they_name() {
    let wrong = [10, 77, 0, 99];
    let ours = SERVER.octets();
    let table = [
        (
            "selecting",
            Packet::new(REQUEST).option(54, &ours).option(50, &ADDRESS.octets()),
            MessageType::Ack,
            BROADCAST,
        ),
        (
            "selecting wrong",
            Packet::new(REQUEST).option(54, &ours).option(50, &wrong),
            MessageType::Nak,
            BROADCAST,
        ),
        (
            "init-reboot",
            Packet::new(REQUEST).option(50, &ADDRESS.octets()),
            MessageType::Ack,
            BROADCAST,
        ),
        (
            "init-reboot wrong",
            Packet::new(REQUEST).option(50, &wrong),
            MessageType::Nak,
            BROADCAST,
        ),
        (
            "renewing",
            Packet::new(REQUEST).ciaddr(ADDRESS.octets()),
            MessageType::Ack,
            FROM,
        ),
        (
            "renewing wrong",
            Packet::new(REQUEST).ciaddr(wrong),
            MessageType::Nak,
            BROADCAST,
        ),
    ];
    for (name, packet, expected, destination) in table {
        let (message, to) = answered(&packet, &network());
        assert_eq!(kind(&message), expected, "{name}");
        assert_eq!(to, destination, "{name}");
        let given = if expected == MessageType::Ack {
            ADDRESS
        } else {
            Ipv4Addr::UNSPECIFIED
        };
        assert_eq!(message.yiaddr(), given, "{name}");
    }
}

#[test]
fn inform_gets_everything_but_an_address() {
    let (message, to) = answered(&Packet::new(8).ciaddr(ADDRESS.octets()), &network());
    assert_eq!(kind(&message), MessageType::Ack);
    assert_eq!(message.yiaddr(), Ipv4Addr::UNSPECIFIED);
    assert_eq!(message.ciaddr(), ADDRESS);
    assert!(message.opts().contains(OptionCode::SubnetMask));
    assert!(!message.opts().contains(OptionCode::AddressLeaseTime));
    assert_eq!(to, FROM);
}

#[test]
fn some_messages_get_no_answer() {
    let settings = settings();
    let elsewhere = Packet::new(REQUEST)
        .option(54, &[10, 77, 0, 2])
        .option(50, &ADDRESS.octets());
    assert_eq!(
        ignored(&elsewhere, &network(), &settings),
        Ignored::OtherServer([10, 77, 0, 2].into())
    );
    for quiet in [4, 7] {
        let packet = Packet::new(quiet).option(54, &SERVER.octets());
        assert_eq!(ignored(&packet, &network(), &settings), Ignored::NotDue);
    }
    let stranger = Lookup::Unknown {
        boot_allowed: true,
        address: None,
    };
    assert_eq!(
        ignored(&Packet::new(DISCOVER).pxe(7), &stranger, &settings),
        Ignored::NoAddress
    );
    let off = crate::NetbootConfig {
        dhcp: DhcpMode::Off,
        ..config()
    }
    .check()
    .unwrap();
    assert_eq!(ignored(&Packet::new(DISCOVER), &network(), &off), Ignored::Off);
}

#[test]
fn unknown_machines_boot_only_if_site_and_directory_agree() {
    let address = Some(Ipv4Addr::new(10, 77, 0, 200));
    let forbidden = crate::NetbootConfig {
        boot_unknown: false,
        ..config()
    }
    .check()
    .unwrap();
    for (boot_allowed, settings, expected) in [
        (true, settings(), Some(names::UEFI_X64.to_owned())),
        (false, settings(), None),
        (true, forbidden, None),
    ] {
        let lookup = Lookup::Unknown { boot_allowed, address };
        let (message, _) = answered_on(Port::Server, &Packet::new(DISCOVER).pxe(7), &lookup, &settings);
        assert_eq!(file(&message), expected);
        assert_eq!(Some(message.yiaddr()), address);
    }
}

#[test]
fn relayed_messages_go_back_to_the_relay_with_its_information_last() {
    let info = [1, 4, b'p', b'o', b'r', b't', 2, 2, 0xaa, 0xbb, 151, 1, 0];
    let behind = Lookup::Known {
        address: Some([10, 78, 0, 10].into()),
        hostname: None,
        boot: BootIntent::Network { loader: None },
    };
    let packet = Packet::new(DISCOVER)
        .pxe(7)
        .giaddr([10, 78, 0, 254])
        .option(82, &info)
        .option(61, &[1, 2, 3]);
    let (request, Decision::Answer(answer)) = decided(&packet, Port::Server, &behind, &settings()) else {
        panic!()
    };
    assert_eq!(request.client.relay, Some([10, 78, 0, 254].into()));
    assert_eq!(request.client.circuit_id.as_deref(), Some(&b"port"[..]));
    assert_eq!(request.client.remote_id.as_deref(), Some(&[0xaa, 0xbb][..]));
    assert_eq!(request.client.subnet.unwrap().to_string(), "10.78.0.0/24");
    let sent = reply(&request, &answer, None, FROM, &settings()).unwrap();
    assert_eq!(sent.destination, SocketAddrV4::new([10, 78, 0, 254].into(), 67));
    let end = sent.bytes.iter().rposition(|b| *b == 255).unwrap();
    let start = end - info.len();
    assert_eq!(sent.bytes[start..end], info);
    assert_eq!(sent.bytes[start - 2..start], [82, 13]);
    let message = Message::decode(&mut Decoder::new(&sent.bytes)).unwrap();
    assert_eq!(message.giaddr(), Ipv4Addr::new(10, 78, 0, 254));
    assert_eq!(
        message.opts().get(OptionCode::SubnetMask),
        Some(&DhcpOption::SubnetMask([255, 255, 255, 0].into()))
    );
    assert_eq!(
        message.opts().get(OptionCode::ClientIdentifier),
        Some(&DhcpOption::ClientIdentifier(vec![1, 2, 3]))
    );
}

#[test]
fn the_place_of_a_client_must_fit_its_address() {
    let elsewhere = Packet::new(DISCOVER).giaddr([10, 78, 0, 254]);
    let expected = Ignored::OtherSubnet {
        address: ADDRESS,
        network: "10.78.0.0/24".parse().unwrap(),
    };
    assert_eq!(ignored(&elsewhere, &network(), &settings()), expected);
    let nowhere = Packet::new(DISCOVER).giaddr([192, 0, 2, 1]);
    assert_eq!(ignored(&nowhere, &network(), &settings()), Ignored::NoSubnet);
    // Link selection (RFC 3527) names a subnet other than giaddr's.
    let selected = Packet::new(DISCOVER)
        .giaddr([192, 0, 2, 1])
        .option(82, &[5, 4, 10, 77, 0, 0]);
    let (message, to) = answered(&selected, &network());
    assert_eq!(message.yiaddr(), ADDRESS);
    assert_eq!(to, SocketAddrV4::new([192, 0, 2, 1].into(), 67));
}

#[test]
fn a_relay_without_the_servers_port_is_answered_where_it_sent_from() {
    let packet = Packet::new(DISCOVER)
        .giaddr([192, 0, 2, 1])
        .option(82, &[5, 4, 10, 77, 0, 0, 19, 0]);
    let (_, to) = answered(&packet, &network());
    assert_eq!(to, SocketAddrV4::new([192, 0, 2, 1].into(), FROM.port()));
}

#[test]
fn a_refusal_through_a_relay_is_to_be_broadcast_there() {
    let behind = Lookup::Known {
        address: Some([10, 78, 0, 10].into()),
        hostname: None,
        boot: BootIntent::Disk,
    };
    let packet = Packet::new(REQUEST)
        .giaddr([10, 78, 0, 254])
        .option(50, &[10, 78, 0, 11]);
    let (message, to) = answered(&packet, &behind);
    assert_eq!(kind(&message), MessageType::Nak);
    assert!(message.flags().broadcast());
    assert_eq!(to, SocketAddrV4::new([10, 78, 0, 254].into(), 67));
}

#[test]
fn the_record_of_an_answer_ends_with_the_given_or_refused_address() {
    let text = |packet: &Packet| match decided(packet, Port::Server, &network(), &settings()) {
        (request, Decision::Answer(answer)) => server::answer_text(&request, &network(), &answer),
        (_, ignored) => panic!("ignored: {ignored:?}"),
    };
    assert_eq!(text(&Packet::new(DISCOVER)), "DHCP client: offered 10.77.0.10");
    assert_eq!(text(&Packet::new(REQUEST)), "DHCP client: given 10.77.0.10");
    let wrong = Packet::new(REQUEST).option(50, &[10, 77, 0, 99]);
    assert_eq!(text(&wrong), "DHCP client: refused the requested address 10.77.0.99");
    // A client that has an address asks for the other settings.
    let inform = Packet::new(INFORM).ciaddr(ADDRESS.octets());
    assert_eq!(text(&inform), "DHCP client: given settings without an address");
}

#[test]
fn a_proxy_adds_the_boot_file_and_no_address() {
    let settings = proxy();
    let (offer, to) = answered_on(Port::Server, &Packet::new(DISCOVER).pxe(7), &network(), &settings);
    assert_eq!(kind(&offer), MessageType::Offer);
    assert_eq!((offer.yiaddr(), offer.siaddr()), (Ipv4Addr::UNSPECIFIED, SERVER));
    assert_eq!(file(&offer).as_deref(), Some(names::UEFI_X64));
    let options = offer.opts();
    assert_eq!(
        options.get(OptionCode::ClassIdentifier),
        Some(&DhcpOption::ClassIdentifier(b"PXEClient".to_vec()))
    );
    assert_eq!(
        options.get(OptionCode::VendorExtensions),
        Some(&DhcpOption::VendorExtensions(vec![6, 1, 8, 255]))
    );
    assert!(!options.contains(OptionCode::SubnetMask) && !options.contains(OptionCode::AddressLeaseTime));
    assert_eq!(to, BROADCAST);

    let ask = Packet::new(REQUEST)
        .pxe(7)
        .ciaddr(ADDRESS.octets())
        .option(97, &[0; 17]);
    let (ack, to) = answered_on(Port::BootServer, &ask, &network(), &settings);
    assert_eq!(kind(&ack), MessageType::Ack);
    assert_eq!(file(&ack).as_deref(), Some(names::UEFI_X64));
    assert!(ack.opts().contains(OptionCode::ClientMachineIdentifier));
    assert_eq!(to, FROM);

    let (ipxe, _) = answered_on(
        Port::Server,
        &Packet::new(DISCOVER).pxe(7).option(77, b"iPXE"),
        &network(),
        &settings,
    );
    assert!(
        file(&ipxe).unwrap().ends_with("&token=rw1_token"),
        "iPXE takes a proxy's offer at its word"
    );
    assert!(!ipxe.opts().contains(OptionCode::Unknown(175)));
}

#[test]
fn a_proxy_keeps_quiet_otherwise() {
    let settings = proxy();
    assert_eq!(
        ignored(&Packet::new(DISCOVER), &network(), &settings),
        Ignored::NothingToAdd(NoBoot::NotRequested)
    );
    let disk = known(BootIntent::Disk);
    assert_eq!(
        ignored(&Packet::new(DISCOVER).pxe(7), &disk, &settings),
        Ignored::NothingToAdd(NoBoot::Disk)
    );
    assert_eq!(
        ignored(&Packet::new(REQUEST).pxe(7), &network(), &settings),
        Ignored::NotDue
    );
}

#[test]
fn clients_are_distinguished() {
    let settings = settings();
    let parse = |packet: Packet| Request::parse(&packet.bytes(), Port::Server, &settings).unwrap().client;
    assert_eq!(parse(Packet::new(1)).kind, Kind::Plain);
    assert_eq!(parse(Packet::new(1).pxe(0)).kind, Kind::Pxe);
    assert_eq!(parse(Packet::new(1).pxe(16)).kind, Kind::HttpBoot);
    assert_eq!(parse(Packet::new(1).pxe(7).option(77, b"iPXE")).kind, Kind::Ipxe);
    assert_eq!(parse(Packet::new(1).pxe(7).option(77, b"\x04iPXE")).kind, Kind::Ipxe);
    let uuid: Vec<u8> = (0..17).collect();
    let client = parse(
        Packet::new(1)
            .option(97, &uuid)
            .option(77, b"a\x1bb")
            .option(50, &ADDRESS.octets()),
    );
    assert_eq!(
        client.system_uuid.as_deref(),
        Some("04030201-0605-0807-090a-0b0c0d0e0f10")
    );
    assert_eq!(client.user_class.as_deref(), Some("a.b"));
    assert_eq!(client.requested, Some(ADDRESS));
    assert_eq!(parse(Packet::new(1).option(97, &[0; 17])).system_uuid, None);
}

#[test]
fn malformed_packets_have_a_named_fault() {
    let settings = settings();
    let parse = |bytes: &[u8]| Request::parse(bytes, Port::Server, &settings).unwrap_err();
    let good = Packet::new(1);
    let table = [
        (vec![], Malformed::Length(0)),
        (good.bytes()[..239].to_vec(), Malformed::Length(239)),
        (vec![1; 4097], Malformed::Length(4097)),
        (good.clone().at(0, &[3]).bytes(), Malformed::Operation(3)),
        (good.clone().at(236, &[0]).bytes(), Malformed::Magic),
        // dhcproto's reader would panic on this length.
        (
            good.clone().at(2, &[255]).bytes(),
            Malformed::Hardware { kind: 1, length: 255 },
        ),
        (
            good.clone().at(1, &[32]).bytes(),
            Malformed::Hardware { kind: 32, length: 6 },
        ),
        (good.clone().at(28, &[0; 6]).bytes(), Malformed::HardwareAddress),
        (good.clone().at(28, &[0xff; 6]).bytes(), Malformed::HardwareAddress),
        (
            good.clone().at(24, &[255; 4]).bytes(),
            Malformed::Relay(Ipv4Addr::BROADCAST),
        ),
        (
            good.clone().option(50, &[1]).bytes(),
            Malformed::OptionLength { code: 50, length: 1 },
        ),
        (
            good.clone().option(93, &[0]).bytes(),
            Malformed::OptionLength { code: 93, length: 1 },
        ),
        (Packet::new(2).bytes(), Malformed::MessageType(2)),
        (
            good.clone().at(0, &[2]).option(54, &[10, 0, 0, 9]).bytes(),
            Malformed::FromServer([10, 0, 0, 9].into()),
        ),
    ];
    for (bytes, expected) in table {
        assert_eq!(parse(&bytes), expected);
    }
    let mut cut = good.option(12, b"name").bytes();
    cut.truncate(cut.len() - 2);
    assert_eq!(parse(&cut), Malformed::Truncated { code: 12, at: 243 });
    let mut bootp = Packet::new(1).bytes();
    bootp.truncate(240);
    assert_eq!(parse(&bootp), Malformed::NoMessageType);
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let option = (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40));
    let flip = (0..240usize, any::<u8>());
    (
        1u8..9,
        proptest::collection::vec(option, 0..12),
        proptest::collection::vec(flip, 0..3),
        0usize..60,
    )
        .prop_map(|(kind, options, flips, cut)| {
            let packet = options.iter().fold(Packet::new(kind).pxe(7), |packet, (code, data)| {
                packet.option(*code, data)
            });
            let packet = flips
                .iter()
                .fold(packet, |packet, (at, value)| packet.at(*at, &[*value]));
            let mut bytes = packet.bytes();
            bytes.truncate(bytes.len().saturating_sub(cut));
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        let _ = Request::parse(&bytes, Port::Server, &settings());
        let _ = request::sender(&bytes);
    }

    /// For nearly valid packets: if the server answers, another reader can decode the answer.
    #[test]
    fn damaged_packets_never_panic(bytes in any_packet(), as_proxy: bool, boot_server: bool) {
        let settings = if as_proxy { proxy() } else { settings() };
        let port = if boot_server { Port::BootServer } else { Port::Server };
        if let Ok(request) = Request::parse(&bytes, port, &settings)
            && let Decision::Answer(answer) = decide(&request, &network(), &settings)
        {
            let token = OneTimeToken::new("t".to_owned());
            let sent = reply(&request, &answer, token.as_ref(), FROM, &settings).unwrap();
            let message = Message::decode(&mut Decoder::new(&sent.bytes)).unwrap();
            prop_assert_eq!(message.opts().get(OptionCode::ServerIdentifier), Some(&DhcpOption::ServerIdentifier(SERVER)));
            prop_assert!(sent.bytes.len() < 1500);
        }
    }
}
