//! The rows of BMCs that speak IPMI in `docs/bmc-support.md`: each `pass` is something that was just done.

use std::time::Duration;

use rackwright_ipmi::{BootDevice, Ipmi, IpmiError, Persistence, Power, PowerAction};
use rackwright_redfish::capabilities::{Capability, Detected, Finding, Outcome, Report};

const LIMIT: Duration = Duration::from_secs(60);

/// What a BMC answered to being asked for something.
fn outcome<T>(answer: Result<T, IpmiError>, is_so: impl FnOnce(&T) -> bool) -> Outcome {
    match answer {
        Ok(answer) if is_so(&answer) => Outcome::Pass,
        Ok(_) | Err(IpmiError::Failed { .. } | IpmiError::NotTaken { .. }) => Outcome::NotOffered,
        Err(_) => Outcome::Fail,
    }
}

async fn tried(client: &Ipmi, capability: Capability) -> Outcome {
    // Of a machine that runs, virtualbmc tells what it booted from.
    let boot = async |device, persistence| {
        client.set_power(Power::Off, PowerAction::Off, LIMIT).await?;
        client.set_boot(device, persistence).await
    };
    match capability {
        Capability::PowerOn => outcome(client.set_power(Power::On, PowerAction::On, LIMIT).await, |_| true),
        Capability::PowerOff => outcome(client.set_power(Power::Off, PowerAction::Off, LIMIT).await, |_| true),
        // Only the machine's system can end; that the BMC takes it is what it offers.
        Capability::PowerGracefulOff => outcome(client.act(PowerAction::SoftOff).await, |_| true),
        Capability::PowerRestart => {
            let on = client.set_power(Power::On, PowerAction::On, LIMIT).await;
            match on {
                Ok(()) => outcome(client.act(PowerAction::Reset).await, |_| true),
                other => outcome(other, |_| true),
            }
        }
        Capability::BootPxe => outcome(boot(BootDevice::Pxe, Persistence::Once).await, |_| true),
        Capability::BootDisk => outcome(boot(BootDevice::Disk, Persistence::Once).await, |_| true),
        Capability::BootCd => outcome(boot(BootDevice::Cdrom, Persistence::Once).await, |_| true),
        Capability::BootOnce => outcome(boot(BootDevice::Pxe, Persistence::Once).await, |set| {
            set.seen.is_valid && !set.seen.is_persistent
        }),
        Capability::BootContinuous => outcome(boot(BootDevice::Pxe, Persistence::Continuous).await, |set| {
            set.seen.is_valid && set.seen.is_persistent
        }),
        // The address says UEFI, as it does by itself.
        Capability::BootMode => outcome(boot(BootDevice::Pxe, Persistence::Once).await, |set| set.seen.is_uefi),
        Capability::Console => outcome(client.offers_console().await, |offers| *offers),
        Capability::EventLog => outcome(client.event_log().await, |_| true),
        // IPMI has none of the rest, or this client does not read it.
        _ => Outcome::NotOffered,
    }
}

/// Tries all of it, in the order of tables.
pub async fn report(client: &Ipmi) -> Report {
    let mut findings = Vec::new();
    for &capability in Capability::ALL {
        findings.push(Finding {
            capability,
            outcome: tried(client, capability).await,
            detail: String::new(),
            note: None,
        });
    }
    Report {
        detected: Detected::default(),
        profiles: Vec::new(),
        findings,
        missing_for_deploy: Vec::new(),
    }
}
