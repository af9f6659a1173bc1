//! The machine itself: power, boot override, drives, virtual media.

use super::firmware::with;
use super::host::{Accepted, Description, MediaRefused, State};
use super::reply::{Fault, empty, json, tagged};
use super::routes::{Object, To, check_match};
use super::time::now_s;
use super::words::{BootEnabled, BootOverride, BootTarget};
use super::{resources, tasks, uefi};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};

const CD: &str = "/redfish/v1/Managers/1/VirtualMedia/Cd";

/// Changes with the boot override, not with the power state: a client that read the system before the machine came on
/// can still use its ETag.
fn etag(state: &State) -> String {
    format!("\"boot-{}\"", state.boot_generation)
}

pub(super) async fn read(To(bmc): To) -> Response {
    let state = bmc.host.state();
    let mut body = body(&bmc.host.description(), &state);
    if bmc.host.has_settings() {
        body["Bios"] = json!({"@odata.id": "/redfish/v1/Systems/1/Bios"});
        bmc.host
            .firmware(&mut |firmware| body["Boot"]["BootOrder"] = json!(firmware.boot.order()));
        body["Boot"]["BootOptions"] = json!({"@odata.id": uefi::OPTIONS});
    }
    tagged(json(StatusCode::OK, &body), &etag(&state))
}

fn body(machine: &Description, state: &State) -> Value {
    let mut system = resources::system(machine);
    let health = if state.fault.is_some() { "Critical" } else { "OK" };
    let mut allowed = vec!["None"];
    allowed.extend(machine.targets().map(BootTarget::as_str));
    system["PowerState"] = json!(state.power.as_str());
    system["Status"] = json!({"State": "Enabled", "Health": health, "HealthRollup": health});
    if let Some(fault) = &state.fault {
        let condition = json!({"MessageId": "Base.1.13.GeneralError", "Message": fault, "Severity": "Critical"});
        system["Status"]["Conditions"] = json!([condition]);
    }
    system["Boot"] = json!({
        "BootSourceOverrideEnabled": state.boot.enabled.as_str(),
        "BootSourceOverrideEnabled@Redfish.AllowableValues": BootEnabled::ALL.map(BootEnabled::as_str),
        "BootSourceOverrideTarget": state.boot.target.map_or("None", BootTarget::as_str),
        "BootSourceOverrideTarget@Redfish.AllowableValues": allowed,
        "BootSourceOverrideMode": machine.boot_mode(),
        "BootSourceOverrideMode@Redfish.AllowableValues": [machine.boot_mode()],
    });
    system
}

/// Checks everything before it changes anything.
pub(super) async fn change(To(bmc): To, headers: HeaderMap, Object(body): Object) -> Result<Response, Fault> {
    let (machine, state) = (bmc.host.description(), bmc.host.state());
    check_match(&headers, &etag(&state))?;
    let known = self::body(&machine, &state);
    let mut boot = state.boot;
    let mut order = None;
    for (name, value) in &body {
        match (name.as_str(), value) {
            ("Boot", Value::Object(wanted)) => {
                let mut wanted = wanted.clone();
                order = wanted.remove("BootOrder").filter(|_| bmc.host.has_settings());
                boot = requested_boot(&machine, boot, &wanted)?;
            }
            ("Boot", other) => return Err(Fault::wrong_type("Boot", other)),
            (name, _) if known.get(name).is_some() => return Err(Fault::not_writable(name)),
            (name, _) => return Err(Fault::unknown_property(name)),
        }
    }
    let is_order_alone = order.is_some() && boot == state.boot;
    if let Some(order) = order {
        with(bmc.host.as_ref(), "Boot.BootOrder", |firmware| {
            firmware.boot.reorder(&order)
        })??;
    }
    if !is_order_alone {
        bmc.host.set_boot(boot).await.map_err(internal)?;
    }
    Ok(tagged(empty(StatusCode::NO_CONTENT), &etag(&bmc.host.state())))
}

fn requested_boot(
    machine: &Description,
    now: BootOverride,
    wanted: &Map<String, Value>,
) -> Result<BootOverride, Fault> {
    let mut boot = now;
    for (name, value) in wanted {
        let path = format!("Boot.{name}");
        let text = value.as_str().ok_or_else(|| Fault::wrong_type(&path, value))?;
        let refused = || Fault::not_in_list(&path, text);
        match name.as_str() {
            "BootSourceOverrideTarget" if text == "None" => boot.target = None,
            "BootSourceOverrideTarget" => {
                let target = machine.targets().find(|target| target.as_str() == text);
                boot.target = Some(target.ok_or_else(refused)?);
            }
            "BootSourceOverrideEnabled" => {
                let enabled = BootEnabled::ALL.into_iter().find(|enabled| enabled.as_str() == text);
                boot.enabled = enabled.ok_or_else(refused)?;
            }
            "BootSourceOverrideMode" if text == machine.boot_mode() => {}
            "BootSourceOverrideMode" => return Err(refused()),
            _ => return Err(Fault::unknown_property(&path)),
        }
    }
    // DSP2046: a target of None, like Disabled, ends the override. A target alone may be set first and enabled later.
    let disabled = wanted.contains_key("BootSourceOverrideEnabled") && boot.enabled == BootEnabled::Disabled;
    Ok(if disabled || boot.target.is_none() {
        BootOverride::NONE
    } else {
        boot
    })
}

pub(super) async fn reset(To(bmc): To, Object(body): Object) -> Result<Response, Fault> {
    const ACTION: &str = "ComputerSystem.Reset";
    let text = parameter(ACTION, &body, "ResetType")?;
    let offered = bmc.host.description().reset_types;
    let reset = offered.iter().copied().find(|reset| reset.as_str() == text);
    let reset = reset.ok_or_else(|| Fault::bad_parameter(ACTION, "ResetType", text))?;
    let outcome = bmc.host.reset(reset).await;
    let at_s = now_s().saturating_add_signed(bmc.host.clock_skew_s());
    match &outcome {
        Ok(_) => bmc
            .log
            .write(at_s, "OK", format!("Reset {text} was requested over the network.")),
        Err(refused) => bmc
            .log
            .write(at_s, "Warning", format!("Reset {text} was refused: {refused}.")),
    }
    match outcome {
        Ok(Accepted::Silently) => Ok(empty(StatusCode::NO_CONTENT)),
        Ok(Accepted::AsTask(number)) => Ok(tasks::accepted(&bmc, number)),
        Err(refused) => Err(Fault::reset_conflict(text, &refused.to_string())),
    }
}

// ---- virtual media ----

pub(super) async fn media(To(bmc): To) -> Response {
    let media = bmc.host.state().media;
    let url = media.as_deref();
    let name = url.and_then(|url| url.rsplit('/').next());
    let body = json!({
        "@odata.id": CD,
        "@odata.type": "#VirtualMedia.v1_6_3.VirtualMedia",
        "Id": "Cd",
        "Name": "Virtual CD",
        "MediaTypes": ["CD", "DVD"],
        "Image": url,
        "ImageName": name,
        "Inserted": media.is_some(),
        "WriteProtected": true,
        "ConnectedVia": if media.is_some() { "URI" } else { "NotConnected" },
        "TransferProtocolType": media.is_some().then_some("HTTP"),
        "TransferMethod": media.is_some().then_some("Upload"),
        "Actions": {
            "#VirtualMedia.InsertMedia": {
                "target": format!("{CD}/Actions/VirtualMedia.InsertMedia"),
                "TransferProtocolType@Redfish.AllowableValues": ["HTTP"],
            },
            "#VirtualMedia.EjectMedia": {"target": format!("{CD}/Actions/VirtualMedia.EjectMedia")},
        },
    });
    json(StatusCode::OK, &body)
}

pub(super) async fn insert(To(bmc): To, Object(body): Object) -> Result<Response, Fault> {
    const ACTION: &str = "VirtualMedia.InsertMedia";
    let url = parameter(ACTION, &body, "Image")?;
    for (name, value) in &body {
        match (name.as_str(), value) {
            ("Image", _) | ("Inserted" | "WriteProtected", Value::Bool(true)) => {}
            ("UserName" | "Password", Value::String(_)) => {}
            ("TransferProtocolType", Value::String(text)) if text == "HTTP" => {}
            ("TransferMethod", Value::String(text)) if text == "Upload" || text == "Stream" => {}
            ("Inserted" | "WriteProtected" | "TransferProtocolType" | "TransferMethod", value) => {
                return Err(Fault::bad_parameter(ACTION, name, &value.to_string()));
            }
            _ => return Err(Fault::unknown_property(name)),
        }
    }
    if bmc.host.state().media.is_some() {
        return Err(Fault::media_in_use());
    }
    match bmc.host.insert_media(url).await {
        Ok(()) => Ok(empty(StatusCode::NO_CONTENT)),
        Err(MediaRefused::Unreachable(why)) => Err(Fault::media(url, &why)),
        Err(MediaRefused::Failed(why)) => Err(internal(why)),
    }
}

/// Ejecting from an empty drive succeeds, as on most BMCs.
pub(super) async fn eject(To(bmc): To, Object(_): Object) -> Result<Response, Fault> {
    if bmc.host.state().media.is_some() {
        bmc.host.eject_media().await.map_err(internal)?;
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

fn parameter<'a>(action: &str, body: &'a Map<String, Value>, name: &str) -> Result<&'a str, Fault> {
    match body.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(value) => Err(Fault::wrong_type(name, value)),
        None => Err(Fault::missing_parameter(action, name)),
    }
}

fn internal(detail: String) -> Fault {
    Fault::internal(&detail)
}
