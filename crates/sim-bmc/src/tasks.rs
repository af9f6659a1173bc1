//! Tasks that follow resets, and their monitors (DSP0266, "Asynchronous operations"). A slow reset is answered with 202,
//! the monitor's URI in `Location` and the task in the body. The monitor answers 202 until the task has ended, and then
//! the answer of the reset itself.

use super::host::{Progress, Task};
use super::reply::{Fault, empty, json};
use super::resources::collection;
use super::routes::{Bmc, To};
use super::time::time;
use axum::extract::Path;
use axum::response::Response;
use http::{HeaderValue, StatusCode, Uri, header};
use serde_json::{Value, json};

pub(super) const TASKS: &str = "/redfish/v1/TaskService/Tasks";
const MONITORS: &str = "/redfish/v1/TaskService/TaskMonitors";
/// Seconds until a client may poll a task again.
const TASK_RETRY_AFTER_S: &str = "1";

fn find(bmc: &Bmc, id: &str, uri: &Uri) -> Result<Task, Fault> {
    let tasks = bmc.host.tasks().unwrap_or_default();
    let found = tasks.into_iter().find(|task| task.number.to_string() == id);
    found.ok_or_else(|| Fault::not_found(uri.path()))
}

/// The answer to a request that starts a task.
pub(super) fn accepted(bmc: &Bmc, number: u64) -> Response {
    let tasks = bmc.host.tasks().unwrap_or_default();
    match tasks.iter().find(|task| task.number == number) {
        Some(task) => in_progress(task),
        None => empty(StatusCode::NO_CONTENT),
    }
}

fn in_progress(task: &Task) -> Response {
    let mut response = json(StatusCode::ACCEPTED, &body(task));
    let headers = response.headers_mut();
    if let Ok(monitor) = HeaderValue::try_from(format!("{MONITORS}/{}", task.number)) {
        headers.insert(header::LOCATION, monitor);
    }
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static(TASK_RETRY_AFTER_S));
    response
}

pub(super) async fn service(To(bmc): To, uri: Uri) -> Result<Response, Fault> {
    if bmc.host.tasks().is_none() {
        return Err(Fault::not_found(uri.path()));
    }
    let body = json!({
        "@odata.id": "/redfish/v1/TaskService",
        "@odata.type": "#TaskService.v1_2_1.TaskService",
        "Id": "TaskService",
        "Name": "Task Service",
        "ServiceEnabled": true,
        "CompletedTaskOverWritePolicy": "Oldest",
        "LifeCycleEventOnTaskStateChange": false,
        "Status": {"State": "Enabled", "Health": "OK"},
        "Tasks": {"@odata.id": TASKS},
    });
    Ok(json(StatusCode::OK, &body))
}

pub(super) async fn list(To(bmc): To, uri: Uri) -> Result<Response, Fault> {
    let tasks = bmc.host.tasks().ok_or_else(|| Fault::not_found(uri.path()))?;
    let mut ids: Vec<String> = tasks.iter().map(|task| task.number.to_string()).collect();
    ids.extend(bmc.updates.tasks());
    let ids = ids.iter().map(String::as_str);
    let body = collection(TASKS, "#TaskCollection.TaskCollection", "Tasks", ids);
    Ok(json(StatusCode::OK, &body))
}

pub(super) async fn read(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    if let Some(settings) = bmc.host.updates()
        && let Some(update) = bmc.updates.task(&id, &settings)
    {
        return Ok(json(StatusCode::OK, &update));
    }
    if let Some(job) = super::firmware::job(bmc.host.as_ref(), &id) {
        return Ok(json(StatusCode::OK, &job));
    }
    Ok(json(StatusCode::OK, &body(&find(&bmc, &id, &uri)?)))
}

/// Only a task that has ended can be deleted: a reset cannot be cancelled.
pub(super) async fn forget(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let task = find(&bmc, &id, &uri)?;
    if bmc.host.forget_task(task.number) {
        Ok(empty(StatusCode::NO_CONTENT))
    } else {
        Err(Fault::task_runs())
    }
}

pub(super) async fn monitor(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let task = find(&bmc, &id, &uri)?;
    match task.progress {
        Progress::Running => Ok(in_progress(&task)),
        Progress::Completed => Ok(empty(StatusCode::NO_CONTENT)),
        Progress::Failed => Err(Fault::internal("a later reset took the place of this one")),
    }
}

fn body(task: &Task) -> Value {
    let (state, status, percent) = match task.progress {
        Progress::Running => ("Running", "OK", 0),
        Progress::Completed => ("Completed", "OK", 100),
        Progress::Failed => ("Exception", "Warning", 100),
    };
    let mut body = json!({
        "@odata.id": format!("{TASKS}/{}", task.number),
        "@odata.type": "#Task.v1_7_1.Task",
        "Id": task.number.to_string(),
        "Name": task.name,
        "TaskState": state,
        "TaskStatus": status,
        "PercentComplete": percent,
        "StartTime": time(task.started_s),
        "Messages": [],
    });
    match task.ended_s {
        Some(ended_s) => body["EndTime"] = json!(time(ended_s)),
        None => body["TaskMonitor"] = json!(format!("{MONITORS}/{}", task.number)),
    }
    body
}
