//! The ways in which a BMC offers the serial port of its machine.
//!
//! Newer BMCs list them at the system (`ComputerSystem.SerialConsole`, DSP8010 since 1.13), with port and commands to type.
//! Older BMCs state at the manager (`Manager.SerialConsole`, `Manager.CommandShell`) only that a console exists; the profile
//! holds the commands for these.

mod web;

use rackwright_redfish_wire::error::RedfishError;

use crate::client::BmcClient;
use crate::quirks::ConsoleSsh;
use crate::resource::Resource;

pub use web::{WebConsole, WebLine};

/// IANA's port for SSH.
const SSH_PORT: u16 = 22;
/// DSP0114's port for IPMI over LAN.
const IPMI_PORT: u16 = 623;
/// Longest text that is accepted as a command.
const COMMAND_MAX: usize = 256;

/// The consoles that the BMC and its profile list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsoleOffer {
    /// An SSH server.
    pub ssh: Option<SshConsole>,
    /// A WebSocket of its web server.
    pub web: Option<WebConsole>,
    /// UDP port of IPMI serial-over-LAN.
    pub ipmi_port: Option<u16>,
}

/// A serial port behind an SSH server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshConsole {
    /// TCP port.
    pub port: u16,
    /// Commands to type after the login, one a line, in this order.
    pub commands: Vec<String>,
    /// The key sequence to leave the console, as the BMC describes it to a person.
    pub leave: Option<String>,
}

impl BmcClient {
    /// The consoles that the BMC offers for the machine's serial port; all fields empty if it offers none.
    ///
    /// # Errors
    /// Those of [`system`](Self::system). Facts that the manager does not report are left out.
    pub async fn console(&self) -> Result<ConsoleOffer, RedfishError> {
        let system = self.system().await?;
        let offer = of_system(system.resource());
        if offer.ssh.is_some() || offer.web.is_some() {
            return Ok(offer);
        }
        let manager = match self.manager().await {
            Ok(manager) => Some(manager),
            Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
            Err(_) => None,
        };
        let manager = manager.as_ref().map(|manager| manager.resource());
        let known = self.profile_of(&system, manager).await?.console_ssh.clone();
        Ok(with_manager(offer, manager, known.as_ref()))
    }
}

fn is_on(resource: &Resource, at: &[&str]) -> bool {
    resource.at(at).is_some() && resource.flag(&[at, &["ServiceEnabled"]].concat()) != Some(false)
}

fn port(resource: &Resource, at: &[&str], standard: u16) -> u16 {
    let port = resource.whole(&[at, &["Port"]].concat());
    let port = port.and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port != 0).unwrap_or(standard)
}

/// A text that is safe to type: one line without control characters.
fn command(text: String) -> Option<String> {
    (text.len() <= COMMAND_MAX && !text.chars().any(char::is_control)).then_some(text)
}

fn of_system(system: &Resource) -> ConsoleOffer {
    const SSH: &[&str] = &["SerialConsole", "SSH"];
    const WEB: &[&str] = &["SerialConsole", "WebSocket"];
    const IPMI: &[&str] = &["SerialConsole", "IPMI"];
    let ssh = is_on(system, SSH).then(|| SshConsole {
        port: port(system, SSH, SSH_PORT),
        commands: system
            .text(&["SerialConsole", "SSH", "ConsoleEntryCommand"])
            .and_then(command)
            .into_iter()
            .collect(),
        leave: system.text(&["SerialConsole", "SSH", "HotKeySequenceDisplay"]),
    });
    let has_web = is_on(system, WEB) && system.flag(&["SerialConsole", "WebSocket", "Interactive"]) != Some(false);
    let uri = system.text(&["SerialConsole", "WebSocket", "ConsoleURI"]);
    let web = uri.filter(|_| has_web).map(|uri| WebConsole { uri });
    let ipmi_port = is_on(system, IPMI).then(|| port(system, IPMI, IPMI_PORT));
    ConsoleOffer { ssh, web, ipmi_port }
}

/// Adds the facts of the manager and of its profile.
fn with_manager(mut offer: ConsoleOffer, manager: Option<&Resource>, known: Option<&ConsoleSsh>) -> ConsoleOffer {
    let offers = |service: &str, kind: &str| {
        manager.is_some_and(|manager| {
            let kinds = manager.texts(&[service, "ConnectTypesSupported"]);
            is_on(manager, &[service]) && kinds.iter().any(|offered| offered.eq_ignore_ascii_case(kind))
        })
    };
    if offer.ipmi_port.is_none() && offers("SerialConsole", "IPMI") {
        offer.ipmi_port = Some(IPMI_PORT);
    }
    // A shell alone is useless without known commands to type there.
    let has_shell = offers("SerialConsole", "SSH") || (known.is_some() && offers("CommandShell", "SSH"));
    let is_silent = manager.is_none_or(|manager| manager.at(&["CommandShell"]).is_none());
    if has_shell || (known.is_some() && is_silent) {
        offer.ssh = Some(SshConsole {
            port: known.and_then(|known| known.port).unwrap_or(SSH_PORT),
            commands: known.map(|known| known.commands.clone()).unwrap_or_default(),
            leave: None,
        });
    }
    offer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(body: serde_json::Value) -> Resource {
        Resource::new("/redfish/v1/x", None, body)
    }

    fn known(port: Option<u16>, commands: &[&str]) -> ConsoleSsh {
        ConsoleSsh {
            port,
            commands: commands.iter().map(|c| (*c).to_owned()).collect(),
        }
    }

    /// As recorded from a Supermicro SYS-821GE.
    #[test]
    fn newer_bmcs_report_consoles_at_the_system() {
        let offer = of_system(&resource(json!({"SerialConsole": {
            "MaxConcurrentSessions": 1,
            "SSH": {"ServiceEnabled": true, "Port": 22, "SharedWithManagerCLI": true,
                    "ConsoleEntryCommand": "cd system1/sol1; start",
                    "HotKeySequenceDisplay": "press <Enter>, <Esc>, and then <T> to terminate session"},
            "IPMI": {"HotKeySequenceDisplay": "Press ~.  - terminate connection", "ServiceEnabled": true, "Port": 623}
        }})));
        let ssh = offer.ssh.unwrap();
        assert_eq!((ssh.port, offer.ipmi_port), (22, Some(623)));
        assert_eq!(ssh.commands, ["cd system1/sol1; start"]);
    }

    #[test]
    fn a_web_socket_is_offered_where_one_can_type() {
        let offer = |web| of_system(&resource(json!({"SerialConsole": {"WebSocket": web}}))).web;
        let uri = "/console0".to_owned();
        assert_eq!(
            offer(json!({"ServiceEnabled": true, "ConsoleURI": &uri, "Interactive": true})),
            Some(WebConsole { uri })
        );
        for none in [
            json!({"ServiceEnabled": false, "ConsoleURI": "/console0"}),
            json!({"ServiceEnabled": true, "ConsoleURI": "/console0", "Interactive": false}),
            json!({"ServiceEnabled": true}),
        ] {
            assert_eq!(offer(none), None);
        }
    }

    #[test]
    fn disabled_consoles_are_not_offered_and_malformed_fields_are_left_out() {
        for off in [
            json!({}),
            json!({"SerialConsole": null}),
            json!({"SerialConsole": {"SSH": {"ServiceEnabled": false, "Port": 22}}}),
        ] {
            assert_eq!(of_system(&resource(off)), ConsoleOffer::default());
        }
        let malformed = of_system(&resource(json!({"SerialConsole": {"SSH": {
            "Port": 70000, "ConsoleEntryCommand": "a\nreboot"
        }}})));
        let ssh = malformed.ssh.unwrap();
        assert_eq!((ssh.port, ssh.commands), (22, vec![]));
    }

    /// As recorded from an iDRAC9 (SerialConsole off), a DGX H100 and a Gigabyte machine.
    #[test]
    fn older_bmcs_report_a_shell_at_the_manager() {
        let idrac = resource(json!({
            "SerialConsole": {"ConnectTypesSupported": [], "ServiceEnabled": false},
            "CommandShell": {"ConnectTypesSupported": ["SSH", "IPMI"], "ServiceEnabled": true}
        }));
        let typed = known(None, &["connect com2"]);
        let offer = with_manager(ConsoleOffer::default(), Some(&idrac), Some(&typed));
        assert_eq!(offer.ssh.unwrap().commands, ["connect com2"]);
        let without = with_manager(ConsoleOffer::default(), Some(&idrac), None);
        assert_eq!(without, ConsoleOffer::default(), "the command is unknown");

        let dgx = resource(json!({
            "SerialConsole": {"ConnectTypesSupported": ["IPMI"], "ServiceEnabled": true},
            "CommandShell": {"ConnectTypesSupported": ["IPMI", "SSH"], "ServiceEnabled": true}
        }));
        let offer = with_manager(ConsoleOffer::default(), Some(&dgx), None);
        assert_eq!((offer.ssh, offer.ipmi_port), (None, Some(623)));

        let off = resource(json!({"CommandShell": {"ConnectTypesSupported": ["SSH"], "ServiceEnabled": false}}));
        assert_eq!(
            with_manager(ConsoleOffer::default(), Some(&off), Some(&typed)).ssh,
            None
        );
        // A manager that reports nothing about shells, of a model with its console on a separate port.
        let silent = resource(json!({"Model": "OpenBmc"}));
        let offer = with_manager(ConsoleOffer::default(), Some(&silent), Some(&known(Some(2200), &[])));
        assert_eq!(offer.ssh.unwrap().port, 2200);
    }
}
