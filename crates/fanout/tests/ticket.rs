//! Tickets of agents for their peers.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rackwright_fanout::{
    CLOCK_SKEW_S, LONGEST_TICKET, LONGEST_VALIDITY_S, OwnJob, Refusal, Ticket, TicketError, admit,
};

const NOW: i64 = 1_790_000_000;
const BOOT: &str = "01994d5e-7c1f-7abc-8def-0123456789ab";

fn ticket() -> Ticket {
    Ticket {
        image: format!("b3-{}", "a1".repeat(32)),
        customer: "customers/physics".to_owned(),
        node: "gpu-001".to_owned(),
        boot: BOOT.to_owned(),
        ends: NOW + 3600,
    }
}

fn job() -> OwnJob {
    OwnJob {
        image: ticket().image,
        customer: ticket().customer,
        is_public: false,
    }
}

#[test]
fn a_ticket_opens_the_own_image_to_its_own_machine() {
    let own = ("gpu-001", BOOT);
    assert_eq!(admit(&ticket(), &job(), own, NOW), Ok(()));
    let other_image = Ticket {
        image: format!("b3-{}", "a2".repeat(32)),
        ..ticket()
    };
    let other_customer = Ticket {
        customer: "customers/biology".to_owned(),
        ..ticket()
    };
    let none = Ticket {
        customer: String::new(),
        ..ticket()
    };
    let unbound = Ticket {
        boot: String::new(),
        ..ticket()
    };
    let cases = [
        (
            "stolen by another node",
            ticket(),
            ("gpu-002", BOOT),
            Refusal::OtherHolder,
        ),
        (
            "from a former boot",
            ticket(),
            ("gpu-001", "01994d5e-0000"),
            Refusal::OtherHolder,
        ),
        (
            "of a machine without a boot",
            unbound,
            ("gpu-001", ""),
            Refusal::OtherHolder,
        ),
        ("for another image", other_image, own, Refusal::OtherImage),
        (
            "of another customer",
            other_customer.clone(),
            own,
            Refusal::OtherCustomer,
        ),
        ("of no customer", none, own, Refusal::OtherCustomer),
    ];
    for (why, ticket, holder, refusal) in cases {
        assert_eq!(admit(&ticket, &job(), holder, NOW), Err(refusal), "{why}");
    }
    let public = OwnJob {
        is_public: true,
        ..job()
    };
    assert_eq!(
        admit(&other_customer, &public, own, NOW),
        Ok(()),
        "a public image is open to every customer"
    );
}

#[test]
fn clocks_may_differ_a_little() {
    let at = |now| admit(&ticket(), &job(), ("gpu-001", BOOT), now);
    let ends = ticket().ends;
    assert_eq!(at(ends + CLOCK_SKEW_S - 1), Ok(()));
    assert_eq!(at(ends + CLOCK_SKEW_S), Err(Refusal::Ended));
    assert_eq!(at(ends - LONGEST_VALIDITY_S - CLOCK_SKEW_S), Ok(()));
    assert_eq!(at(ends - LONGEST_VALIDITY_S - CLOCK_SKEW_S - 1), Err(Refusal::TooLong));
    let endless = Ticket {
        ends: i64::MAX,
        ..ticket()
    };
    assert_eq!(
        admit(&endless, &job(), ("gpu-001", BOOT), i64::MIN),
        Err(Refusal::TooLong)
    );
}

#[test]
fn only_the_one_encoding_is_a_ticket() {
    let text = ticket().encode().unwrap();
    assert_eq!(Ticket::parse(text.as_bytes()), Ok(ticket()));
    let wrong = [
        text.replace("v1", "v2"),
        text.replace("ends=", "ends=+"),
        text.replace("ends=", "ends=0"),
        text.replace("node=", "nodes="),
        text.replace('\n', "\r\n"),
        format!("{text}\n"),
        format!("{text}ends=9\n"),
        text.trim_end().to_owned(),
        text.replace("customer=customers/physics\n", ""),
        String::new(),
    ];
    for wrong in wrong {
        assert_eq!(Ticket::parse(wrong.as_bytes()), Err(TicketError::Form), "{wrong:?}");
    }
    assert_eq!(Ticket::parse(&[b'x'; LONGEST_TICKET + 1]), Err(TicketError::TooLong));
    let two_lines = Ticket {
        node: "gpu-001\nboot=x".to_owned(),
        ..ticket()
    };
    assert_eq!(
        two_lines.encode(),
        Err(TicketError::Form),
        "a field passes for another one"
    );
    let long = Ticket {
        node: "n".repeat(300),
        ..ticket()
    };
    assert_eq!(long.encode(), Err(TicketError::TooLong));
}

proptest! {
    #[test]
    fn no_other_bytes_give_the_same_ticket(at in 0usize..400, byte: u8) {
        let text = ticket().encode().unwrap();
        let mut changed = text.clone().into_bytes();
        let at = at % changed.len();
        prop_assume!(changed[at] != byte);
        changed[at] = byte;
        if let Ok(other) = Ticket::parse(&changed) {
            prop_assert_ne!(&other, &ticket());
            prop_assert_eq!(other.encode().unwrap().into_bytes(), changed);
        }
    }
}
