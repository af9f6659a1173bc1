//! The walk: breadth first along links, within limits.

use std::collections::{BTreeSet, VecDeque};

use rackwright_redfish::capabilities::error_summary;
use rackwright_redfish::{BmcClient, InventoryGap, RedfishError};
use rackwright_redfish_wire::json;
use serde_json::Value;
use url::Position;

use crate::{RecordLimits, Recording};

/// Resources that are requested between two checks of the limits.
const BATCH: usize = 16;
/// Most gaps that are stored.
const MAX_GAPS: usize = 2000;

/// A walk in progress.
struct Walk<'a> {
    client: &'a BmcClient,
    limits: &'a RecordLimits,
    /// In lower case: on some BMCs links to one resource differ in letter case.
    seen: BTreeSet<String>,
    open: VecDeque<(String, usize)>,
    /// Beginnings of paths that are not followed: schemas, registries, sessions.
    closed: Vec<String>,
    bytes: usize,
    recording: Recording,
}

impl Recording {
    /// Reads everything reachable from the root, unchanged: see [`scrubbed`](Self::scrubbed). The walk leaves out schemas
    /// and registries (published by the standard), sessions, and all but the first entries of logs. `progress` receives the
    /// number of resources read and the number known to be left.
    ///
    /// # Errors
    /// Those of [`get`](BmcClient::get) for the root. Later, a failing resource is a gap, and a fault of the whole BMC ends
    /// the recording early.
    pub async fn of(
        client: &BmcClient,
        limits: &RecordLimits,
        mut progress: impl FnMut(usize, usize) + Send,
    ) -> Result<Self, RedfishError> {
        let root = client.service_root().await?;
        let mut walk = Walk {
            client,
            limits,
            seen: BTreeSet::new(),
            open: VecDeque::new(),
            closed: Vec::new(),
            bytes: 0,
            recording: Recording::default(),
        };
        let resource = root.resource();
        for name in ["JsonSchemas", "Registries"] {
            walk.closed
                .extend(resource.link(&[name]).and_then(|link| walk.path(&link)));
        }
        let sessions = root.sessions().and_then(|link| walk.path(&link));
        walk.closed.extend(sessions.map(|path| format!("{path}/")));
        walk.closed = walk.closed.iter().map(|path| path.to_ascii_lowercase()).collect();
        let began = client.settings().environment.now();
        walk.add_link(root.path(), 0);
        while !walk.open.is_empty() && walk.recording.cut.is_none() {
            let spent = client.settings().environment.now().saturating_sub(began);
            if spent >= limits.time {
                walk.recording.cut = Some(format!("the time limit of {} s was reached", limits.time.as_secs()));
                break;
            }
            walk.step().await?;
            progress(walk.recording.resources.len(), walk.open.len());
        }
        Ok(walk.recording)
    }
}

impl Walk<'_> {
    /// The path of a link on this BMC, without the part before `/redfish`, fragment and trailing slash; a query stays.
    fn path(&self, link: &str) -> Option<String> {
        let url = self.client.bmc().resolve(None, link).ok()?;
        let path = &url[Position::BeforePath..Position::AfterQuery];
        let from = path.find("/redfish/").or_else(|| path.find("/redfish"))?;
        Some(path[from..].trim_end_matches('/').to_owned())
    }

    fn add_link(&mut self, link: &str, depth: usize) {
        let Some(path) = self.path(link) else { return };
        let low = path.to_ascii_lowercase();
        let is_closed = self.closed.iter().any(|closed| low.starts_with(closed.as_str())) || low.contains("/$metadata");
        if !is_closed && self.seen.insert(low) {
            self.open.push_back((path, depth));
        }
    }

    async fn step(&mut self) -> Result<(), RedfishError> {
        let room = self.limits.resources.saturating_sub(self.recording.resources.len());
        if room == 0 {
            self.recording.cut = Some(format!("only {} resources were read", self.limits.resources));
            return Ok(());
        }
        let count = BATCH.min(room).min(self.open.len());
        let batch: Vec<(String, usize)> = self.open.drain(..count).collect();
        let links: Vec<String> = batch.iter().map(|(path, _)| path.clone()).collect();
        let read = self.client.get_each(&links).await;
        for ((path, outcome), (_, depth)) in read.into_iter().zip(batch) {
            match outcome {
                Ok(resource) => self.keep(&path, resource.json(), depth),
                Err(failure) if failure.is_fatal_for_walk() && self.recording.resources.is_empty() => {
                    return Err(failure);
                }
                Err(failure) if failure.is_fatal_for_walk() => {
                    self.recording.cut = Some(failure.to_string());
                    return Ok(());
                }
                Err(failure) => self.gap(&path, error_summary(&failure)),
            }
        }
        Ok(())
    }

    fn gap(&mut self, path: &str, why: String) {
        if self.recording.gaps.len() < MAX_GAPS {
            let path = path.to_owned();
            self.recording.gaps.push(InventoryGap { path, why });
        }
    }

    fn keep(&mut self, path: &str, body: &Value, depth: usize) {
        self.bytes += body.to_string().len();
        if self.bytes > self.limits.bytes {
            self.recording.cut = Some(format!("more than {} bytes were read", self.limits.bytes));
            return;
        }
        let mut links = Vec::new();
        let is_log = json::text(body, &["@odata.type"]).is_some_and(|kind| kind.contains("LogEntryCollection"));
        if is_log {
            links.extend(
                json::links(body, &["Members"])
                    .into_iter()
                    .take(self.limits.log_entries),
            );
        } else {
            gather(body, &mut links);
        }
        if depth < self.limits.depth {
            for link in links {
                self.add_link(&link, depth + 1);
            }
        } else if !links.is_empty() {
            self.gap(
                path,
                format!("{} links from the root, its own links were not read", self.limits.depth),
            );
        }
        // The page of a collection belongs to the collection, which has a path that is valid as a file name.
        if !path.contains('?') {
            self.recording.resources.insert(path.to_owned(), body.clone());
        } else if let Some((collection, _)) = path.split_once('?') {
            self.join(collection, body);
        }
    }

    /// Adds the members of a further page to the collection's first page.
    fn join(&mut self, collection: &str, page: &Value) {
        let Some(first) = self.recording.resources.get_mut(collection) else {
            return;
        };
        let more = page
            .get("Members")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        if let Some(members) = first.get_mut("Members").and_then(Value::as_array_mut) {
            let fresh: Vec<Value> = more.into_iter().filter(|one| !members.contains(one)).collect();
            members.extend(fresh);
        }
        if let Some(first) = first.as_object_mut() {
            first.remove("Members@odata.nextLink");
            first.remove("@odata.nextLink");
        }
    }
}

/// All links of a document, at any depth.
fn gather(value: &Value, links: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let is_link = matches!(
                    name.as_str(),
                    "@odata.id" | "@odata.nextLink" | "Members@odata.nextLink" | "@Redfish.ActionInfo"
                );
                match value {
                    Value::String(link) if is_link => links.push(link.clone()),
                    other => gather(other, links),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| gather(value, links)),
        _ => {}
    }
}
