//! The BMC's log of its machine: reads the entries of its log services, newest first, and clears them.
//!
//! Log services are below the system, its managers and its chassis (DSP2046, `LogService`). Entries come inline in the pages
//! of a collection, or as links. No order is guaranteed, so all pages within the limits are read, and the times decide.

use std::time::Duration;

use rackwright_redfish_wire::address::{last_segment, same_resource};
use rackwright_redfish_wire::environment::Poll;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::json;
use rackwright_redfish_wire::retry::Repeat;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::BmcClient;
use crate::inventory::{InventoryGap, Walk};
use crate::resource::Resource;
use crate::views::{Action, Manager};

/// Most resources that one reading of the logs fetches.
const MAX_RESOURCES: usize = 2000;
/// Most managers, and most chassis, with logs that are read: a DGX H100 has some 30 chassis with a log.
const MAX_PLACES: usize = 64;
/// Most log services of one resource.
const MAX_LOGS: usize = 16;
/// Most pages of one log. An iDRAC returns 50 entries a page and needs seconds for each page.
const MAX_PAGES: usize = 40;
/// Most entries of one log that come as links.
const MAX_LINKED: usize = 200;
/// Longest stored text of an entry, in characters.
const TEXT_CHARS: usize = 1000;
/// How long a cleared log may take to read as empty.
const CLEARED_WITHIN: Duration = Duration::from_secs(60);

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Id of the entry's log, such as `SEL`.
    pub log: String,
    /// The entry's id; ids count up in most logs.
    pub id: String,
    /// Creation time as the BMC wrote it; none if the text is not a date.
    pub created: Option<String>,
    /// Creation time in seconds since 1970, by the BMC's clock.
    pub created_s: Option<i64>,
    /// `OK`, `Warning` or `Critical`, if the BMC reports it.
    pub severity: Option<String>,
    /// `ResourceEvent.1.0.…` and the like.
    pub message_id: Option<String>,
    /// The message, shortened and without control characters.
    pub message: String,
}

/// A log service and the size of its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogInfo {
    /// Link of the log service.
    pub path: String,
    /// The log service's id.
    pub id: String,
    /// Entries that were read.
    pub read: usize,
    /// Number of entries that the BMC reports.
    pub claimed: Option<u64>,
    /// Whether the log can be cleared.
    pub can_clear: bool,
}

/// The entries of all logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLog {
    /// Newest first. Entries without a time come last, by descending id.
    pub entries: Vec<LogEntry>,
    /// One item for each log service.
    pub logs: Vec<LogInfo>,
    /// Resources that could not be read, or that exceeded a limit.
    pub gaps: Vec<InventoryGap>,
}

/// Body of the request that clears a log; BMCs differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClearPayload {
    /// `{}`.
    Empty,
    /// No body.
    Nothing,
    /// The ETag of the entries, which some BMCs require (`LogEntriesETag`, DSP2046).
    EntriesEtag,
}

/// The order for BMCs without an order in their profile.
pub(crate) const CLEAR_ORDER: [ClearPayload; 3] =
    [ClearPayload::Empty, ClearPayload::EntriesEtag, ClearPayload::Nothing];

impl BmcClient {
    /// Reads the logs of the system, its managers and its chassis. Keeps the newest `most` entries.
    ///
    /// # Errors
    /// Those of [`system`](Self::system), and faults of the whole BMC. Any other fault is a gap.
    pub async fn event_log(&self, most: usize) -> Result<EventLog, RedfishError> {
        let (services, mut walk) = self.log_services().await?;
        let mut found = EventLog::default();
        for service in services {
            let entries = service.link(&["Entries"]);
            let mut read = walk.entries(&service, entries).await?;
            found.logs.push(LogInfo {
                path: service.path().to_owned(),
                id: service.id(),
                read: read.found.len(),
                claimed: read.claimed,
                can_clear: clear_action(&service).is_some(),
            });
            found.entries.append(&mut read.found);
        }
        found.entries.sort_by(|a, b| {
            let number = |one: &LogEntry| one.id.parse::<u64>().ok();
            (b.created_s, number(b), &b.id).cmp(&(a.created_s, number(a), &a.id))
        });
        found.entries.truncate(most);
        found.gaps = walk.gaps;
        Ok(found)
    }

    /// Clears the log of this id or path, or all logs that can be cleared. Returns the ids of the logs that read back
    /// as cleared; a BMC may log the clearing at once.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if no such log can be cleared, the BMC's error, or [`RedfishError::NotApplied`].
    pub async fn clear_event_log(&self, log: Option<&str>) -> Result<Vec<String>, RedfishError> {
        let (services, _) = self.log_services().await?;
        let is_wanted = |service: &&Resource| {
            log.is_none_or(|log| same_resource(service.path(), log) || service.id().eq_ignore_ascii_case(log))
        };
        let clearable = |service: &&Resource| clear_action(service).is_some();
        let chosen: Vec<&Resource> = services.iter().filter(is_wanted).filter(clearable).collect();
        if chosen.is_empty() {
            let offered: Vec<String> = services.iter().filter(clearable).map(Resource::id).collect();
            return Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: format!("clearing {}", log.unwrap_or("any log")),
                offered: if offered.is_empty() {
                    "no log that can be cleared".to_owned()
                } else {
                    offered.join(", ")
                },
            });
        }
        let mut cleared = Vec::new();
        for service in chosen {
            self.clear(service).await?;
            cleared.push(service.id());
        }
        Ok(cleared)
    }

    /// The log services, each once, and the walk that found them.
    async fn log_services(&self) -> Result<(Vec<Resource>, Walk<'_>), RedfishError> {
        let system = self.system().await?;
        let mut walk = Walk::of_at_most(self, MAX_RESOURCES);
        let mut collections: Vec<String> = system.resource().link(&["LogServices"]).into_iter().collect();
        // Accelerator boards have their own logs.
        for board in walk.side_systems(&system).await? {
            collections.extend(board.resource().link(&["LogServices"]));
        }
        let root = self.service_root().await?;
        let mut managers = self.manager_links(&system).await?;
        managers.extend(walk.member_links(root.managers()).await?);
        let mut chassis = system.chassis();
        chassis.extend(walk.member_links(root.chassis()).await?);
        for mut links in [managers, chassis] {
            walk.cut(&mut links, MAX_PLACES);
            let places = walk.get_all(&links).await?.into_iter().map(Manager::from);
            collections.extend(places.filter_map(|place| place.resource().link(&["LogServices"])));
        }
        let mut services: Vec<Resource> = Vec::new();
        let mut known: Vec<String> = Vec::new();
        for collection in collections {
            if known.iter().any(|one| same_resource(one, &collection)) {
                continue;
            }
            let mut links = walk.member_links(Some(collection.clone())).await?;
            known.push(collection);
            links.retain(|link| !services.iter().any(|one| same_resource(one.path(), link)));
            walk.cut(&mut links, MAX_LOGS);
            services.extend(walk.get_all(&links).await?);
        }
        services.retain(|service| service.flag(&["ServiceEnabled"]) != Some(false));
        Ok((services, walk))
    }

    async fn clear(&self, service: &Resource) -> Result<(), RedfishError> {
        let Some(action) = clear_action(service) else {
            return Ok(());
        };
        let before = self.count_entries(service).await?;
        let mut refusal = None;
        for payload in &self.profile().await?.clear_log_order {
            let sent = match payload {
                ClearPayload::Empty => self.post(&action.target, &json!({}), Repeat::Always).await,
                ClearPayload::Nothing => self.post_nothing(&action.target, Repeat::Always).await,
                ClearPayload::EntriesEtag => match before.as_ref().and_then(Resource::etag) {
                    Some(etag) => {
                        let body = json!({"LogEntriesETag": etag});
                        self.post(&action.target, &body, Repeat::Always).await
                    }
                    None => continue,
                },
            };
            match sent {
                Ok(reply) => {
                    self.finish(&reply, CLEARED_WITHIN).await?;
                    return self.wait_cleared(service, before.as_ref()).await;
                }
                Err(failure) if matches!(failure.status(), Some(400 | 411 | 412 | 415 | 428)) => {
                    refusal = Some(failure)
                }
                Err(failure) => return Err(failure),
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// The first page of a log's entries.
    async fn count_entries(&self, service: &Resource) -> Result<Option<Resource>, RedfishError> {
        match service.link(&["Entries"]) {
            Some(link) => self.get(&link).await.map(Some),
            None => Ok(None),
        }
    }

    async fn wait_cleared(&self, service: &Resource, before: Option<&Resource>) -> Result<(), RedfishError> {
        let Some(before) = before.map(count).filter(|before| *before > 1) else {
            return Ok(());
        };
        let settings = self.settings();
        let environment = &*settings.environment;
        let mut poll = Poll::new(
            environment,
            settings.poll_first,
            settings.poll_cap,
            settings.read_back_timeout,
        );
        loop {
            let now = self.count_entries(service).await?.as_ref().map_or(0, count);
            if now < before {
                return Ok(());
            }
            if !poll.pause(None).await {
                return Err(RedfishError::NotApplied {
                    bmc: self.address(),
                    path: service.path().to_owned(),
                    property: "number of entries".to_owned(),
                    wanted: "fewer".to_owned(),
                    seen: format!("{now}, as before"),
                });
            }
        }
    }
}

/// The entries read from one log.
#[derive(Default)]
struct Entries {
    found: Vec<LogEntry>,
    claimed: Option<u64>,
}

impl Walk<'_> {
    async fn entries(&mut self, service: &Resource, link: Option<String>) -> Result<Entries, RedfishError> {
        let mut read = Entries::default();
        let mut linked: Vec<String> = Vec::new();
        let log = service.id();
        for page in self.pages(link, MAX_PAGES).await? {
            read.claimed = read.claimed.or_else(|| page.whole(&["Members@odata.count"]));
            let members = page.at(&["Members"]).and_then(Value::as_array);
            for member in members.into_iter().flatten() {
                match LogEntry::of(&log, member) {
                    Some(entry) => read.found.push(entry),
                    None => linked.extend(json::link(member, &[])),
                }
            }
        }
        // The highest numbers are the newest entries, in whatever order they are listed.
        linked.sort_by_key(|link| std::cmp::Reverse(last_segment(link).parse::<u64>().ok()));
        self.cut(&mut linked, MAX_LINKED);
        let followed = self.get_all(&linked).await?;
        read.found
            .extend(followed.iter().filter_map(|one| LogEntry::of(&log, one.json())));
        Ok(read)
    }
}

impl LogEntry {
    /// An entry; none if the value is only a link.
    pub fn of(log: &str, entry: &Value) -> Option<Self> {
        let message = ["Message", "EntryCode", "OemRecordFormat"]
            .iter()
            .find_map(|name| json::text(entry, &[name]));
        let created = ["Created", "EventTimestamp"]
            .iter()
            .find_map(|name| json::text(entry, &[name]));
        if message.is_none() && created.is_none() && json::text(entry, &["EntryType"]).is_none() {
            return None;
        }
        let created_s = created.as_deref().and_then(seconds_of);
        let id =
            json::text(entry, &["Id"]).or_else(|| json::link(entry, &[]).map(|link| last_segment(&link).to_owned()));
        Some(Self {
            log: log.to_owned(),
            id: clean(&id.unwrap_or_default()),
            created: created.filter(|_| created_s.is_some()).map(|text| clean(&text)),
            created_s,
            severity: json::fact(entry, &["Severity"]).map(|text| clean(&text)),
            message_id: json::fact(entry, &["MessageId"]).map(|text| clean(&text)),
            message: clean(&message.unwrap_or_default()),
        })
    }
}

fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(TEXT_CHARS)
        .collect()
}

fn clear_action(service: &Resource) -> Option<Action> {
    Action::find(service, "LogService.ClearLog")
}

/// Members of a first page, or the total that the BMC reports.
fn count(page: &Resource) -> u64 {
    let listed = page.at(&["Members"]).and_then(Value::as_array).map_or(0, Vec::len) as u64;
    page.whole(&["Members@odata.count"])
        .map_or(listed, |claimed| claimed.max(listed))
}

/// The last second of the year 9999.
const LAST_S: i64 = 253_402_300_799;

/// Seconds since 1970 of a time such as `2024-07-18T22:00:55.851+00:00`. None: no time, such as `0000-00-00T00:00:00Z`, or a
/// time after the year 9999. No zone means UTC.
pub(crate) fn seconds_of(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let marks = [4, 7, 13, 16].map(|at| text.as_bytes().get(at).copied());
    let is_date = marks == [Some(b'-'), Some(b'-'), Some(b':'), Some(b':')] && (1..=12).contains(&month);
    if !is_date || !(1..=31).contains(&day) || hour > 24 || minute > 59 || second > 60 || year < 1970 {
        return None;
    }
    let zone = text
        .get(19..)?
        .trim_start_matches(['.', ','])
        .trim_start_matches(|c: char| c.is_ascii_digit());
    let offset = match zone.as_bytes().first() {
        Some(sign @ (b'+' | b'-')) => {
            let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
            let minutes =
                digits.get(..2)?.parse::<i64>().ok()? * 60 + digits.get(2..4).map_or(Some(0), |m| m.parse().ok())?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => 0,
    };
    // Days from the civil calendar: years begin in March, so the leap day is the last day.
    let (y, m) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset * 60;
    // A message of the API has no form for a time after the year 9999.
    (0..=LAST_S).contains(&seconds).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_as_bmcs_write_them() {
        for (text, expected) in [
            ("1970-01-01T00:01:38Z", Some(98)),
            ("2024-07-18T22:00:55.851+00:00", Some(1_721_340_055)),
            ("2024-08-08T18:48:07-05:00", Some(1_723_160_887)),
            ("2024-02-29T12:00:00", Some(1_709_208_000)),
            ("2000-03-01T00:00:00+0530", Some(951_849_000)),
            ("0000-00-00T00:00:00Z", None),
            ("1970-01-01T00:00:00+01:00", None),
            ("9999-12-31T23:59:59Z", Some(LAST_S)),
            ("9999-12-31T23:59:59-00:01", None),
            ("9999-12-31T24:00:00Z", None),
            ("9999-12-31T00:00:00-99:99", None),
            ("2024-13-01T00:00:00Z", None),
            ("T00:00:00Z", None),
            ("Tue Jul 18", None),
            ("2024-07-18Tüü:00:55", None),
            ("", None),
        ] {
            assert_eq!(seconds_of(text), expected, "{text}");
        }
    }

    #[test]
    fn an_entry_that_is_only_a_link_is_none() {
        assert_eq!(LogEntry::of("SEL", &json!({"@odata.id": "/x/1"})), None);
        let malformed =
            json!({"@odata.id": "/x/7/", "Message": "a\u{7}b", "Created": "never", "Severity": 3, "MessageId": "N/A"});
        let entry = LogEntry::of("SEL", &malformed).unwrap();
        assert_eq!((entry.id.as_str(), entry.message.as_str()), ("7", "a b"));
        assert_eq!(
            (entry.created, entry.severity.as_deref(), entry.message_id),
            (None, Some("3"), None)
        );
    }
}
