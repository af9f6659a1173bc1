//! Secure Boot: shim, Debian's signed grub, and a configuration per node over TFTP.
//!
//! The signed grub always reads `grub/grub.cfg` from its own server and cannot speak HTTP, so no token fits into a file
//! name that firmware would accept. Instead:
//!
//! 1. A DHCP answer that names shim *expects* a grub: this MAC address, at the assigned address, for two minutes.
//! 2. `grub/grub.cfg` is the same for all machines and contains no secret. It loads `grub/node/MAC.cfg` for the machine's
//!    own MAC.
//! 3. The first read of that file from the expected address issues and redeems a token at once, with the same rules and the
//!    same trace as for iPXE. Without an expectation, or from another address, the read is refused.
//! 4. For 30 s the same client may read the same text again (TFTP repeats requests, grub opens files twice). Then the
//!    expectation ends.
//!
//! This is weaker than iPXE's way in one respect. An attacker who forges the DHCP exchange of a machine and answers for its
//! address on the link, within the two minutes, gets its plan. Under proxyDHCP the address is not known beforehand; then
//! the kernel's neighbour table must not contradict the MAC address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::config::Settings;
use crate::directory::Binding;
use crate::mac::Mac;
use crate::sessions::Session;

/// Limit between the DHCP answer and the read of the configuration.
const EXPECT_TIMEOUT: Duration = Duration::from_secs(120);
/// Time in which the same client may read the same text again.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(30);
const CAPACITY: usize = 16_384;

/// Machines that were sent to shim, until their grub has read its configuration.
#[derive(Debug, Default)]
pub(crate) struct GrubBoots(Mutex<HashMap<Mac, Expected>>);

#[derive(Debug)]
struct Expected {
    binding: Binding,
    until: Instant,
    served: Option<(IpAddr, Arc<str>)>,
}

/// How to handle a read of a node's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The first read: the caller issues and redeems a token, renders the text, and calls [`GrubBoots::served`].
    First(Binding),
    /// A repeated read, with the text of the first.
    Repeat(Arc<str>),
    Refused(&'static str),
}

impl GrubBoots {
    pub(crate) fn expect(&self, binding: Binding, now: Instant) {
        let Ok(mut boots) = self.0.lock() else { return };
        if boots.len() >= CAPACITY {
            boots.retain(|_, expected| expected.until > now);
        }
        if boots.len() < CAPACITY {
            boots.insert(
                binding.mac,
                Expected {
                    binding,
                    until: now + EXPECT_TIMEOUT,
                    served: None,
                },
            );
        }
    }

    /// Handles a request by `remote` for the configuration of `mac`. `neighbour` is the known owner of the address
    /// `remote`.
    pub(crate) fn claim(&self, mac: Mac, remote: IpAddr, neighbour: Option<Mac>, now: Instant) -> Claim {
        let Ok(boots) = self.0.lock() else {
            return Claim::Refused("the server is shutting down");
        };
        let Some(expected) = boots.get(&mac).filter(|expected| expected.until > now) else {
            return Claim::Refused("no recent DHCP answer directed this machine to grub");
        };
        if neighbour.is_some_and(|neighbour| neighbour != mac) {
            return Claim::Refused("the client address belongs to another machine");
        }
        match (&expected.served, expected.binding.address) {
            (Some((to, text)), _) if *to == remote => Claim::Repeat(text.clone()),
            (None, None) => Claim::First(expected.binding),
            (None, Some(address)) if IpAddr::V4(address) == remote => Claim::First(expected.binding),
            _ => Claim::Refused("the client address is not the address given to this machine"),
        }
    }

    /// Stores the text for repeated reads.
    pub(crate) fn served(&self, mac: Mac, remote: IpAddr, text: Arc<str>, now: Instant) {
        let Ok(mut boots) = self.0.lock() else { return };
        if let Some(expected) = boots.get_mut(&mac) {
            expected.served = Some((remote, text));
            expected.until = now + REPEAT_TIMEOUT;
        }
    }
}

/// The configuration for every grub.
pub(crate) const COMMON: &str = "\
set timeout=0
echo \"rackwright: configuration for $net_default_mac\"
if configfile /grub/node/$net_default_mac.cfg; then true; fi
echo \"rackwright: no boot plan for this machine; going on to the next boot entry\"
sleep 3
exit
";

/// The configuration of one node.
pub(crate) fn node_config(session: &Session, settings: &Settings) -> String {
    let root = format!("(tftp,{})/boot/{}", settings.server_ip, session.id);
    let words: Vec<_> = session
        .cmdline(settings)
        .split_ascii_whitespace()
        .map(|word| format!("'{word}'"))
        .collect();
    let mut text = format!(
        "echo \"rackwright: loading {kernel}\"\nif linux {root}/{kernel} {}; then\n",
        words.join(" "),
        kernel = session.plan.kernel.name,
    );
    let initrds: Vec<_> = session
        .plan
        .initrds
        .iter()
        .map(|file| format!("{root}/{}", file.name))
        .collect();
    if initrds.is_empty() {
        text.push_str("boot\n");
    } else {
        text.push_str(&format!("if initrd {}; then\nboot\nfi\n", initrds.join(" ")));
    }
    text.push_str("fi\n");
    text
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::dhcp::testing::settings;
    use crate::sessions::Sessions;
    use crate::sessions::tests::{MAC, plan};

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 10);

    #[test]
    fn only_the_expected_machine_reads_and_only_for_a_while() {
        let boots = GrubBoots::default();
        let now = Instant::now();
        let remote = IpAddr::V4(ADDRESS);
        let binding = Binding {
            mac: MAC,
            address: Some(ADDRESS),
        };
        assert!(matches!(boots.claim(MAC, remote, None, now), Claim::Refused(_)));
        boots.expect(binding, now);
        let other = IpAddr::from([10, 77, 0, 11]);
        assert!(matches!(boots.claim(MAC, other, None, now), Claim::Refused(_)));
        assert!(matches!(
            boots.claim(MAC, remote, Some(Mac([2; 6])), now),
            Claim::Refused(_)
        ));
        assert!(matches!(
            boots.claim(MAC, remote, None, now + EXPECT_TIMEOUT),
            Claim::Refused(_)
        ));
        assert_eq!(boots.claim(MAC, remote, Some(MAC), now), Claim::First(binding));
        boots.served(MAC, remote, "text".into(), now);
        assert_eq!(boots.claim(MAC, remote, None, now), Claim::Repeat("text".into()));
        assert!(matches!(boots.claim(MAC, other, None, now), Claim::Refused(_)));
        assert!(matches!(
            boots.claim(MAC, remote, None, now + REPEAT_TIMEOUT),
            Claim::Refused(_)
        ));
    }

    #[test]
    fn the_node_configuration_loads_the_session_and_quotes_every_word() {
        let sessions = Sessions::default();
        let session = sessions
            .open(MAC, plan("quiet a=$x;reboot"), ADDRESS.into(), Instant::now())
            .unwrap();
        let text = node_config(&session, &settings());
        let root = format!("(tftp,10.77.0.1)/boot/{}", session.id);
        assert!(text.contains(&format!(
            "linux {root}/vmlinuz 'quiet' 'a=$x;reboot' 'rackwright.mac={MAC}' 'rackwright.ip=10.77.0.10/24' 'rackwright.gw=10.77.0.1'; then"
        )));
        assert!(text.contains(&format!("initrd {root}/initrd; then")));
    }
}
