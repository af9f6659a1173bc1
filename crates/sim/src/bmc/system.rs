//! The machine itself: power, boot override, drives, virtual media.

use super::media;
use super::reply::{Fault, empty, json, tagged};
use super::resources;
use super::routes::{Bmc, Object, Shared, check_match};
use crate::lab::{BootEnabled, BootOverride, BootTarget, LabError, Machine, MachineView, Media, ResetType};
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

const CD: &str = "/redfish/v1/Managers/1/VirtualMedia/Cd";

/// Changes with the boot override, not with the power state: a client that read before the machine came on can still set
/// what it read.
fn etag(view: &MachineView) -> String {
    format!("\"boot-{}\"", view.boot_generation)
}

/// Boot targets that the machine's firmware offers.
fn targets(machine: &Machine) -> Vec<BootTarget> {
    let offered = |target: &BootTarget| machine.firmware().is_uefi() || *target != BootTarget::UefiHttp;
    BootTarget::ALL.into_iter().filter(offered).collect()
}

fn boot_mode(machine: &Machine) -> &'static str {
    if machine.firmware().is_uefi() { "UEFI" } else { "Legacy" }
}

pub(super) async fn read(State(bmc): Shared) -> Response {
    let view = bmc.machine.view();
    tagged(json(StatusCode::OK, &body(&bmc.machine, &view)), &etag(&view))
}

fn body(machine: &Machine, view: &MachineView) -> Value {
    let mut system = resources::system(machine);
    let health = if view.fault.is_some() { "Critical" } else { "OK" };
    let mut allowed = vec!["None"];
    allowed.extend(targets(machine).into_iter().map(BootTarget::as_str));
    system["PowerState"] = json!(view.power.as_str());
    system["Status"] = json!({"State": "Enabled", "Health": health, "HealthRollup": health});
    if let Some(fault) = &view.fault {
        let condition = json!({"MessageId": "Base.1.13.GeneralError", "Message": fault, "Severity": "Critical"});
        system["Status"]["Conditions"] = json!([condition]);
    }
    system["Boot"] = json!({
        "BootSourceOverrideEnabled": view.boot.enabled.as_str(),
        "BootSourceOverrideEnabled@Redfish.AllowableValues": BootEnabled::ALL.map(BootEnabled::as_str),
        "BootSourceOverrideTarget": view.boot.target.map_or("None", BootTarget::as_str),
        "BootSourceOverrideTarget@Redfish.AllowableValues": allowed,
        "BootSourceOverrideMode": boot_mode(machine),
        "BootSourceOverrideMode@Redfish.AllowableValues": [boot_mode(machine)],
    });
    system
}

/// Everything is checked before anything is changed.
pub(super) async fn change(State(bmc): Shared, headers: HeaderMap, Object(body): Object) -> Result<Response, Fault> {
    let view = bmc.machine.view();
    check_match(&headers, &etag(&view))?;
    let known = self::body(&bmc.machine, &view);
    let mut boot = view.boot;
    for (name, value) in &body {
        match (name.as_str(), value) {
            ("Boot", Value::Object(wanted)) => boot = wanted_boot(&bmc.machine, boot, wanted)?,
            ("Boot", other) => return Err(Fault::wrong_type("Boot", other)),
            (name, _) if known.get(name).is_some() => return Err(Fault::not_writable(name)),
            (name, _) => return Err(Fault::unknown_property(name)),
        }
    }
    bmc.machine.set_boot(boot).await.map_err(internal)?;
    let view = bmc.machine.view();
    Ok(tagged(empty(StatusCode::NO_CONTENT), &etag(&view)))
}

fn wanted_boot(machine: &Machine, now: BootOverride, wanted: &Map<String, Value>) -> Result<BootOverride, Fault> {
    let mut boot = now;
    for (name, value) in wanted {
        let path = format!("Boot.{name}");
        let text = value.as_str().ok_or_else(|| Fault::wrong_type(&path, value))?;
        let refused = || Fault::not_in_list(&path, text);
        match name.as_str() {
            "BootSourceOverrideTarget" if text == "None" => boot.target = None,
            "BootSourceOverrideTarget" => {
                let target = targets(machine).into_iter().find(|target| target.as_str() == text);
                boot.target = Some(target.ok_or_else(refused)?);
            }
            "BootSourceOverrideEnabled" => {
                let enabled = BootEnabled::ALL.into_iter().find(|enabled| enabled.as_str() == text);
                boot.enabled = enabled.ok_or_else(refused)?;
            }
            "BootSourceOverrideMode" if text == boot_mode(machine) => {}
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

pub(super) async fn reset(State(bmc): Shared, Object(body): Object) -> Result<Response, Fault> {
    const ACTION: &str = "ComputerSystem.Reset";
    let text = parameter(ACTION, &body, "ResetType")?;
    let reset = ResetType::ALL.into_iter().find(|reset| reset.as_str() == text);
    let reset = reset.ok_or_else(|| Fault::bad_parameter(ACTION, "ResetType", text))?;
    match bmc.machine.reset(reset).await {
        Ok(()) => Ok(empty(StatusCode::NO_CONTENT)),
        Err(refused) => Err(Fault::reset_conflict(text, &refused.to_string())),
    }
}

pub(super) async fn drive(State(bmc): Shared, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let view = bmc.machine.view();
    let found = id
        .parse::<usize>()
        .ok()
        .and_then(|index| resources::drive(&view, index));
    let body = found.ok_or_else(|| Fault::not_found(uri.path()))?;
    Ok(json(StatusCode::OK, &body))
}

// ---- virtual media ----

pub(super) async fn media(State(bmc): Shared) -> Response {
    let media = bmc.machine.view().media;
    let url = media.as_ref().map(|media| media.url.as_str());
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

pub(super) async fn insert(State(bmc): Shared, Object(body): Object) -> Result<Response, Fault> {
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
    if bmc.machine.view().media.is_some() {
        return Err(Fault::media_in_use());
    }
    let media = download(&bmc, url).await?;
    bmc.machine.insert_media(media).await.map_err(internal)?;
    Ok(empty(StatusCode::NO_CONTENT))
}

async fn download(bmc: &Bmc, url: &str) -> Result<Media, Fault> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("media-{}.iso", NEXT.fetch_add(1, Ordering::Relaxed));
    let path = bmc.machine.run_dir().join(name);
    match media::fetch(url, &path, bmc.limits.media_bytes).await {
        Ok(_) => Ok(Media {
            url: url.to_owned(),
            path,
        }),
        Err(why) => {
            let _ = tokio::fs::remove_file(&path).await;
            Err(Fault::media(url, &why))
        }
    }
}

/// Ejecting from an empty drive is fine, as on most BMCs.
pub(super) async fn eject(State(bmc): Shared, Object(_): Object) -> Result<Response, Fault> {
    if bmc.machine.view().media.is_some() {
        bmc.machine.eject_media().await.map_err(internal)?;
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

fn internal(error: LabError) -> Fault {
    Fault::internal(&error.to_string())
}
