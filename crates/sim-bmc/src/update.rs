//! The update service of a BMC: a multipart push, a push of the bare file, and `SimpleUpdate`, by which the BMC fetches the
//! file. A firmware file is a text of ours: `RWFW COMPONENT VERSION`, followed by a reason if the update is to fail. Two
//! words are special: with `after-ac-cycle` the version runs only after an AC cycle, and with `unchanged` the task succeeds
//! but the version stays the same.
//!
//! New firmware for the BMC makes it restart: it hangs up on all clients for a while, and loses sessions and tasks. New
//! firmware for the machine runs from its next power-on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::reply::{Fault, empty, json};
use super::resources::collection;
use super::routes::{Bmc, Object, To};
use super::words::ResetType;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::Response;
use http::{HeaderValue, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const SERVICE: &str = "/redfish/v1/UpdateService";
const INVENTORY: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const TASKS: &str = super::tasks::TASKS;
/// Numbers of update tasks begin here: tasks of resets have smaller numbers.
const FIRST_TASK: u64 = 1_000_000;
/// The largest accepted file.
const FILE_BYTES: usize = 64 << 20;
/// The action that cuts all power, and its reset type.
pub(super) const RESET_CHASSIS: &str = "/redfish/v1/Chassis/1/Actions/Chassis.Reset";
const FULL: &str = "FullPowerCycle";
/// The beginning of a firmware file of ours.
const MAGIC: &str = "RWFW ";
/// Time limit of a fetch.
const FETCH: Duration = Duration::from_secs(60);

/// How a BMC accepts firmware, and how long updates take.
#[derive(Debug, Clone, Copy)]
pub struct UpdateSettings {
    /// By `MultipartHttpPushUri`.
    pub multipart: bool,
    /// By `HttpPushUri`.
    pub push: bool,
    /// By `SimpleUpdate`.
    pub simple: bool,
    /// How long an update takes.
    pub lasts: Duration,
    /// How long the BMC does not answer when it restarts with its new firmware.
    pub restarts: Duration,
    /// The number of valid logins that it refuses after that restart.
    pub refuses: u32,
    /// Whether its chassis has a full power cycle.
    pub ac_cycle: bool,
}

/// The effect of a successful task on the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Runs,
    AfterAcCycle,
    Unchanged,
}

#[derive(Debug, Clone)]
struct Job {
    number: u64,
    component: String,
    version: String,
    effect: Effect,
    fails: Option<String>,
    begun: Instant,
    is_over: bool,
}

/// The installed firmware and the updates in progress.
#[derive(Debug, Default)]
pub struct Updates(Mutex<State>);

#[derive(Debug)]
struct State {
    versions: Vec<(&'static str, String)>,
    jobs: Vec<Job>,
    away_until: Option<Instant>,
    started: u64,
    /// Versions that run after the next AC cycle.
    waiting: Vec<(String, String)>,
    ac_cycles: u64,
    /// Logins that are still to be refused.
    refusals: u32,
}

impl State {
    fn run(&mut self, component: &str, version: &str) {
        if let Some((_, runs)) = self.versions.iter_mut().find(|(part, _)| *part == component) {
            version.clone_into(runs);
        }
    }
}

impl Default for State {
    fn default() -> Self {
        let versions = ["BMC", "BIOS", "NIC"].map(|part| (part, "1.0".to_owned()));
        Self {
            versions: versions.into(),
            jobs: Vec::new(),
            away_until: None,
            started: 0,
            waiting: Vec::new(),
            ac_cycles: 0,
            refusals: 0,
        }
    }
}

impl Updates {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the BMC is restarting and unreachable.
    pub(super) fn is_away(&self) -> bool {
        self.lock().away_until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether the BMC refuses a login because it has not loaded its accounts yet after a restart.
    pub(super) fn refuses(&self) -> bool {
        let mut state = self.lock();
        let is_refused = state.refusals > 0;
        state.refusals = state.refusals.saturating_sub(1);
        is_refused
    }

    /// Whether an update is in progress.
    pub fn is_busy(&self) -> bool {
        self.lock().jobs.iter().any(|job| !job.is_over)
    }

    /// The number of updates ever begun, and the versions installed now.
    pub fn summary(&self) -> (u64, Vec<(String, String)>) {
        let state = self.lock();
        let versions = state
            .versions
            .iter()
            .map(|(part, version)| ((*part).to_owned(), version.clone()));
        (state.started, versions.collect())
    }

    /// The number of AC cycles.
    pub fn ac_cycles(&self) -> u64 {
        self.lock().ac_cycles
    }

    /// Ids of update tasks.
    pub(super) fn tasks(&self) -> Vec<String> {
        self.lock().jobs.iter().map(|job| job.number.to_string()).collect()
    }

    /// The document of an update task.
    pub(super) fn task(&self, id: &str, settings: &UpdateSettings) -> Option<Value> {
        let state = self.lock();
        let job = state.jobs.iter().find(|job| job.number.to_string() == id)?;
        Some(document(job, settings))
    }
}

fn document(job: &Job, settings: &UpdateSettings) -> Value {
    let share = job.begun.elapsed().as_secs_f64() / settings.lasts.as_secs_f64().max(0.001);
    let (state, status, percent) = match (&job.fails, job.is_over) {
        (_, false) => ("Running", "OK", (share * 100.0).min(99.0) as u64),
        (None, true) => ("Completed", "OK", 100),
        (Some(_), true) => ("Exception", "Critical", 100),
    };
    let message = match (&job.fails, job.is_over) {
        (Some(why), true) => json!([{
            "MessageId": "Update.1.0.ApplyFailed",
            "Message": format!("{} {}: {why}", job.component, job.version),
            "MessageSeverity": "Critical",
        }]),
        _ => json!([]),
    };
    json!({
        "@odata.id": format!("{TASKS}/{}", job.number),
        "@odata.type": "#Task.v1_7_1.Task",
        "Id": job.number.to_string(),
        "Name": format!("Update of {}", job.component),
        "TaskState": state,
        "TaskStatus": status,
        "PercentComplete": percent,
        "Messages": message,
    })
}

fn settings(bmc: &Bmc, uri: &Uri) -> Result<UpdateSettings, Fault> {
    bmc.host.updates().ok_or_else(|| Fault::not_found(uri.path()))
}

pub(super) async fn service(To(bmc): To, uri: Uri) -> Result<Response, Fault> {
    let settings = settings(&bmc, &uri)?;
    let mut body = json!({
        "@odata.id": SERVICE,
        "@odata.type": "#UpdateService.v1_11_0.UpdateService",
        "Id": "UpdateService",
        "Name": "Update Service",
        "ServiceEnabled": true,
        "MaxImageSizeBytes": FILE_BYTES,
        "FirmwareInventory": {"@odata.id": INVENTORY},
    });
    if settings.multipart {
        body["MultipartHttpPushUri"] = json!(format!("{SERVICE}/multipart"));
    }
    if settings.push {
        body["HttpPushUri"] = json!(format!("{SERVICE}/push"));
        body["HttpPushUriTargets"] = json!([]);
    }
    if settings.simple {
        body["Actions"] = json!({"#UpdateService.SimpleUpdate": {
            "target": format!("{SERVICE}/Actions/UpdateService.SimpleUpdate"),
            "TransferProtocol@Redfish.AllowableValues": ["HTTP"],
        }});
    }
    Ok(json(StatusCode::OK, &body))
}

/// Sets the targets of the next push; the file itself names its component.
pub(super) async fn change(To(bmc): To, uri: Uri, Object(body): Object) -> Result<Response, Fault> {
    settings(&bmc, &uri)?;
    match body.keys().find(|name| *name != "HttpPushUriTargets") {
        Some(name) => Err(Fault::unknown_property(name)),
        None => Ok(empty(StatusCode::NO_CONTENT)),
    }
}

pub(super) async fn inventory(To(bmc): To, uri: Uri) -> Result<Response, Fault> {
    settings(&bmc, &uri)?;
    let (_, versions) = bmc.updates.summary();
    let ids = versions.iter().map(|(part, _)| part.as_str());
    let body = collection(
        INVENTORY,
        "#SoftwareInventoryCollection.SoftwareInventoryCollection",
        "Firmware",
        ids,
    );
    Ok(json(StatusCode::OK, &body))
}

pub(super) async fn entry(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    settings(&bmc, &uri)?;
    let (_, versions) = bmc.updates.summary();
    let found = versions.iter().find(|(part, _)| *part == id);
    let (part, version) = found.ok_or_else(|| Fault::not_found(uri.path()))?;
    let body = json!({
        "@odata.id": format!("{INVENTORY}/{part}"),
        "@odata.type": "#SoftwareInventory.v1_10_0.SoftwareInventory",
        "Id": part,
        "Name": format!("{part} firmware"),
        "Version": version,
        "SoftwareId": format!("sim-{}", part.to_lowercase()),
        "Updateable": true,
        "Status": {"State": "Enabled", "Health": "OK"},
    });
    Ok(json(StatusCode::OK, &body))
}

pub(super) async fn multipart(To(bmc): To, uri: Uri, request: Request) -> Result<Response, Fault> {
    if !settings(&bmc, &uri)?.multipart {
        return Err(Fault::not_found(uri.path()));
    }
    let kind = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let boundary = kind
        .and_then(|kind| kind.split_once("boundary="))
        .map(|(_, boundary)| boundary.trim_matches('"').to_owned())
        .ok_or_else(Fault::malformed)?;
    let body = whole(request.into_body()).await?;
    let text = String::from_utf8_lossy(&body);
    let (mut parameters, mut file) = (None, None);
    for part in text.split(&format!("--{boundary}")) {
        let Some((head, content)) = part.split_once("\r\n\r\n") else {
            continue;
        };
        if head.contains("name=\"UpdateParameters\"") {
            parameters = serde_json::from_str::<Value>(content.trim()).ok();
        } else if head.contains("name=\"UpdateFile\"") {
            file = Some(content.to_owned());
        }
    }
    if parameters.is_none_or(|parameters| !parameters["Targets"].is_array()) {
        return Err(Fault::missing_property("Targets"));
    }
    begin(&bmc, &uri, &file.ok_or_else(|| Fault::missing_property("UpdateFile"))?)
}

pub(super) async fn push(To(bmc): To, uri: Uri, request: Request) -> Result<Response, Fault> {
    if !settings(&bmc, &uri)?.push {
        return Err(Fault::not_found(uri.path()));
    }
    let body = whole(request.into_body()).await?;
    begin(&bmc, &uri, &String::from_utf8_lossy(&body))
}

pub(super) async fn simple(To(bmc): To, uri: Uri, Object(body): Object) -> Result<Response, Fault> {
    if !settings(&bmc, &uri)?.simple {
        return Err(Fault::not_found(uri.path()));
    }
    let Some(url) = body.get("ImageURI").and_then(Value::as_str) else {
        return Err(Fault::missing_parameter("UpdateService.SimpleUpdate", "ImageURI"));
    };
    let fetched = tokio::time::timeout(FETCH, fetch(url)).await;
    let fetched = fetched.map_err(|_| Fault::media(url, "it took too long"))?;
    let file = fetched.map_err(|why| Fault::media(url, &why))?;
    begin(&bmc, &uri, &file)
}

async fn whole(body: Body) -> Result<Vec<u8>, Fault> {
    let limited = http_body_util::Limited::new(body, FILE_BYTES);
    let bytes = limited.collect().await.map_err(|_| Fault::too_large())?;
    Ok(bytes.to_bytes().to_vec())
}

/// A plain HTTP/1.0 request; the answer ends with the connection.
async fn fetch(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("http://").ok_or("only http is supported")?;
    let (host, path) = rest.split_once('/').ok_or("it has no path")?;
    let mut stream = tokio::net::TcpStream::connect(host).await.map_err(|e| e.to_string())?;
    let request = format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    let mut limited = stream.take(FILE_BYTES as u64);
    limited.read_to_end(&mut answer).await.map_err(|e| e.to_string())?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer is not HTTP")?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        status => Err(format!("the server answered {status:?}")),
    }
}

/// Begins an update with a file; only one at a time.
fn begin(bmc: &Arc<Bmc>, uri: &Uri, file: &str) -> Result<Response, Fault> {
    let settings = settings(bmc, uri)?;
    let line = file.lines().next().and_then(|line| line.strip_prefix(MAGIC));
    let mut words = line.unwrap_or_default().splitn(3, ' ');
    let (Some(part), Some(version)) = (words.next(), words.next()) else {
        return Err(Fault::not_in_list("UpdateFile", "a file of unknown format"));
    };
    let mut state = bmc.updates.lock();
    if !state.versions.iter().any(|(known, _)| *known == part) {
        return Err(Fault::not_in_list("UpdateFile", part));
    }
    if state.jobs.iter().any(|job| !job.is_over) {
        return Err(Fault::unavailable(1));
    }
    state.started += 1;
    let (effect, fails) = match words.next() {
        Some("after-ac-cycle") => (Effect::AfterAcCycle, None),
        Some("unchanged") => (Effect::Unchanged, None),
        why => (Effect::Runs, why.map(str::to_owned)),
    };
    let job = Job {
        number: FIRST_TASK + state.started,
        component: part.to_owned(),
        version: version.to_owned(),
        effect,
        fails,
        begun: Instant::now(),
        is_over: false,
    };
    state.jobs.push(job.clone());
    drop(state);
    let mut response = json(StatusCode::ACCEPTED, &document(&job, &settings));
    if let Ok(place) = HeaderValue::try_from(format!("{TASKS}/{}", job.number)) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    tokio::spawn(carry_out(Arc::clone(bmc), settings, job));
    Ok(response)
}

async fn carry_out(bmc: Arc<Bmc>, settings: UpdateSettings, job: Job) {
    tokio::time::sleep(settings.lasts).await;
    let is_machines = job.component == "BIOS";
    {
        let mut state = bmc.updates.lock();
        if let Some(mine) = state.jobs.iter_mut().find(|one| one.number == job.number) {
            mine.is_over = true;
        }
        match job.effect {
            _ if job.fails.is_some() => return,
            Effect::Unchanged => return,
            Effect::AfterAcCycle => {
                state.waiting.push((job.component, job.version));
                return;
            }
            Effect::Runs => {}
        }
        if job.component == "BMC" {
            state.away_until = Some(Instant::now() + settings.restarts);
            state.refusals = settings.refuses;
            state.jobs.clear();
            bmc.sessions().close_all();
        }
    }
    if is_machines {
        // The version runs from the next power-on.
        while bmc.host.state().powered {
            bmc.host.wait_power_change(bmc.host.state().power).await;
        }
        while !bmc.host.state().powered {
            bmc.host.wait_power_change(bmc.host.state().power).await;
        }
    }
    bmc.updates.lock().run(&job.component, &job.version);
}

/// The actions of a chassis with a full power cycle.
pub(super) fn chassis_actions(settings: &UpdateSettings) -> Option<Value> {
    let reset = json!({"target": RESET_CHASSIS, "ResetType@Redfish.AllowableValues": [FULL]});
    settings.ac_cycle.then(|| json!({"#Chassis.Reset": reset}))
}

/// Cuts the power of machine and BMC: the BMC hangs up on all clients for a while, loses sessions and tasks, and the
/// machine stays off.
pub(super) async fn reset_chassis(To(bmc): To, uri: Uri, Object(body): Object) -> Result<Response, Fault> {
    let settings = settings(&bmc, &uri)?;
    if !settings.ac_cycle {
        return Err(Fault::not_found(uri.path()));
    }
    match body.get("ResetType") {
        Some(Value::String(kind)) if kind == FULL => {}
        other => {
            return Err(Fault::bad_parameter(
                "Chassis.Reset",
                "ResetType",
                &format!("{other:?}"),
            ));
        }
    }
    // A refusal because the machine is already off is as good.
    let _ = bmc.host.reset(ResetType::ForceOff).await;
    let mut state = bmc.updates.lock();
    state.away_until = Some(Instant::now() + settings.restarts);
    state.jobs.clear();
    state.ac_cycles += 1;
    for (component, version) in std::mem::take(&mut state.waiting) {
        state.run(&component, &version);
    }
    drop(state);
    bmc.sessions().close_all();
    Ok(empty(StatusCode::NO_CONTENT))
}
