//! A search by SSDP, in a separate network namespace.

use std::net::{Ipv4Addr, UdpSocket};

use rackwright_lab as lab;

use super::strangers::made_up;
use super::{ended, findings, found, plane, start, write};

/// The bridge's address in a lab.
const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Answers searches as a BMC at `location` does, until the test ends.
fn answer_searches(location: String) {
    let socket = UdpSocket::bind("0.0.0.0:1900").unwrap();
    socket
        .join_multicast_v4(&Ipv4Addr::new(239, 255, 255, 250), &OURS)
        .unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut datagram) {
            let search = String::from_utf8_lossy(&datagram[..length]).into_owned();
            if !search.starts_with("M-SEARCH") || !search.contains("ST: urn:dmtf-org:service:redfish-rest:1\r\n") {
                continue;
            }
            let answers = [
                "HTTP/1.1 200 OK\r\nST: urn:schemas-upnp-org:device:printer:1\r\nLOCATION: http://10.77.0.1/\r\n\r\n"
                    .to_owned(),
                "not HTTP at all".to_owned(),
                format!(
                    "HTTP/1.1 200 OK\r\nCACHE-CONTROL: max-age=1800\r\nST: urn:dmtf-org:service:redfish-rest:1:17\r\n\
                     USN: uuid:1de17171-0000-4000-8000-000000000007::urn:dmtf-org:service:redfish-rest:1:17\r\n\
                     AL: {location}\r\nEXT:\r\n\r\n"
                ),
            ];
            for answer in answers {
                let _ = socket.send_to(answer.as_bytes(), from);
            }
        }
    });
}

#[test]
fn bmcs_that_answer_a_search_are_found() {
    lab::run_test("network::bmcs_that_answer_a_search_are_found", async |namespace| {
        let dir = namespace.state_dir().to_owned();
        let site = plane(
            &dir,
            "10.77.0.1",
            "ssdp_from: [\"10.77.0.1\"], ssdp_wait_s: 1, answer_timeout_s: 3",
        )
        .await;
        let at = "10.77.0.1:8443";
        let uuid = "1de17171-0000-4000-8000-000000000007";
        let _bmc = made_up(&dir, at, uuid, "SN-SSDP", "00:16:3e:00:00:07").await;
        answer_searches(format!("https://{at}/redfish/v1/"));
        let password = write(&dir, "password", "secret-of-the-test\n").display().to_string();
        let id = start(&site, &["--ssdp", "--user", "admin", "--password-file", &password]);
        let ended_search = ended(&site, &id).await;
        assert_eq!(
            (ended_search["total"].as_i64(), ended_search["message"].as_str()),
            (Some(1), Some("")),
            "{ended_search}"
        );
        let all = findings(&site, &id);
        assert_eq!(found(&all, &format!("https://{at}")), ("new", ""));
        assert_eq!(
            (all[0]["source"].as_str(), all[0]["serial"].as_str()),
            (Some("ssdp"), Some("SN-SSDP"))
        );
        site.stop().await;
    });
}
