//! The rows of IPMI BMCs in `docs/bmc-support.md`: each `pass` is the result of an action just performed.

use std::time::Duration;

use rackwright_ipmi::{BootDevice, Ipmi, IpmiError, Persistence, Power, PowerAction};
use rackwright_redfish::capabilities::{Capability, Detected, Finding, Outcome, Report};

const LIMIT: Duration = Duration::from_secs(60);

/// The outcome of a request to the BMC.
fn outcome<T>(answer: Result<T, IpmiError>, is_so: impl FnOnce(&T) -> bool) -> Outcome {
    match answer {
        Ok(answer) if is_so(&answer) => Outcome::Pass,
        Ok(_) | Err(IpmiError::Failed { .. } | IpmiError::NotApplied { .. }) => Outcome::NotOffered,
        Err(_) => Outcome::Fail,
    }
}

async fn tried(client: &Ipmi, capability: Capability) -> Outcome {
    // For a running machine, virtualbmc reports the device that it booted from.
    let boot = async |device, persistence| {
        client.set_power(Power::Off, PowerAction::Off, LIMIT).await?;
        client.set_boot(device, persistence).await
    };
    match capability {
        Capability::PowerOn => outcome(client.set_power(Power::On, PowerAction::On, LIMIT).await, |_| true),
        Capability::PowerOff => outcome(client.set_power(Power::Off, PowerAction::Off, LIMIT).await, |_| true),
        // Only the machine's system can shut down, so acceptance by the BMC is enough.
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
        // The address requests UEFI by default.
        Capability::BootMode => outcome(boot(BootDevice::Pxe, Persistence::Once).await, |set| set.seen.is_uefi),
        Capability::Console => outcome(client.offers_console().await, |offers| *offers),
        Capability::EventLog => outcome(client.event_log().await, |_| true),
        // IPMI lacks the other capabilities, or this client does not read them.
        _ => Outcome::NotOffered,
    }
}

/// Tries every capability, in the order of the tables.
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
