//! The system event log: the changes of the machine's power, kept by the BMC until the log is cleared (DSP2046,
//! `LogService`, `LogEntry`).

use super::reply::{Fault, empty, json, tagged};
use super::routes::{Object, To};
use super::time::{now_s, time};
use axum::extract::Path;
use axum::response::Response;
use http::{StatusCode, Uri};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) const SERVICES: &str = "/redfish/v1/Managers/1/LogServices";
pub(super) const SERVICE: &str = "/redfish/v1/Managers/1/LogServices/SEL";
pub(super) const ENTRIES: &str = "/redfish/v1/Managers/1/LogServices/SEL/Entries";
pub(super) const CLEAR: &str = "/redfish/v1/Managers/1/LogServices/SEL/Actions/LogService.ClearLog";
/// Most stored entries; older entries are overwritten.
const MOST: usize = 64;

/// The log of one BMC.
#[derive(Debug, Default)]
pub(super) struct Log(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    entries: VecDeque<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    id: u64,
    at_s: u64,
    severity: &'static str,
    message: String,
}

impl Log {
    /// Adds an entry; `severity` is `OK`, `Warning` or `Critical`.
    pub(super) fn write(&self, at_s: u64, severity: &'static str, message: String) {
        let mut kept = self.lock();
        kept.last += 1;
        let id = kept.last;
        kept.entries.push_back(Entry {
            id,
            at_s,
            severity,
            message,
        });
        if kept.entries.len() > MOST {
            kept.entries.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn body(&self) -> Value {
        json!({
            "@odata.id": format!("{ENTRIES}/{}", self.id),
            "@odata.type": "#LogEntry.v1_15_0.LogEntry",
            "Id": self.id.to_string(),
            "Name": format!("Log entry {}", self.id),
            "EntryType": "Event",
            "Created": time(self.at_s),
            "Severity": self.severity,
            "Message": self.message,
        })
    }
}

pub(super) async fn services(To(_): To) -> Response {
    let body = super::resources::collection(
        SERVICES,
        "#LogServiceCollection.LogServiceCollection",
        "LogServices",
        std::iter::once("SEL"),
    );
    json(StatusCode::OK, &body)
}

pub(super) async fn service(To(bmc): To) -> Response {
    let body = json!({
        "@odata.id": SERVICE,
        "@odata.type": "#LogService.v1_5_0.LogService",
        "Id": "SEL",
        "Name": "System Event Log",
        "ServiceEnabled": true,
        "MaxNumberOfRecords": MOST,
        "OverWritePolicy": "WrapsWhenFull",
        "LogEntryType": "Event",
        "DateTime": time(now_s().saturating_add_signed(bmc.host.clock_skew_s())),
        "DateTimeLocalOffset": "+00:00",
        "Status": {"State": "Enabled", "Health": "OK"},
        "Entries": {"@odata.id": ENTRIES},
        "Actions": {"#LogService.ClearLog": {"target": CLEAR}},
    });
    tagged(json(StatusCode::OK, &body), "\"1\"")
}

/// All entries in full, the newest first.
pub(super) async fn entries(To(bmc): To) -> Response {
    let members: Vec<Value> = bmc.log.lock().entries.iter().rev().map(Entry::body).collect();
    let body = json!({
        "@odata.id": ENTRIES,
        "@odata.type": "#LogEntryCollection.LogEntryCollection",
        "Name": "Entries",
        "Members@odata.count": members.len(),
        "Members": members,
    });
    json(StatusCode::OK, &body)
}

pub(super) async fn entry(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let kept = bmc.log.lock();
    let found = kept.entries.iter().find(|entry| entry.id.to_string() == id);
    let body = found.map(Entry::body).ok_or_else(|| Fault::not_found(uri.path()))?;
    Ok(json(StatusCode::OK, &body))
}

/// Clears the log and adds an entry about the clearing.
pub(super) async fn clear(To(bmc): To, Object(body): Object) -> Result<Response, Fault> {
    if let Some(name) = body.keys().find(|name| *name != "LogEntriesETag") {
        return Err(Fault::unknown_property(name));
    }
    bmc.log.lock().entries.clear();
    let at_s = now_s().saturating_add_signed(bmc.host.clock_skew_s());
    bmc.log.write(at_s, "OK", "The event log was cleared.".to_owned());
    Ok(empty(StatusCode::NO_CONTENT))
}
