//! Responses and Redfish errors. Message texts and ids follow DMTF's Base registry (DSP8011), version 1.13.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// An error reply.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    status: StatusCode,
    id: &'static str,
    message: String,
    args: Vec<String>,
    property: Option<String>,
    resolution: &'static str,
    retry_after_s: u32,
}

/// Default `Retry-After`, in seconds.
const RETRY_AFTER_S: u32 = 5;

impl Fault {
    fn new(status: StatusCode, id: &'static str, message: String, args: Vec<String>, resolution: &'static str) -> Self {
        Self {
            status,
            id,
            message,
            args,
            property: None,
            resolution,
            retry_after_s: RETRY_AFTER_S,
        }
    }

    fn about(mut self, property: &str) -> Self {
        self.property = Some(format!("#/{}", property.replace('.', "/")));
        self
    }

    pub(super) fn unauthorized() -> Self {
        let message = "The authentication credentials included with this request are missing or invalid.";
        let resolution = "Authenticate with a session token or with HTTP Basic.";
        Self::new(
            StatusCode::UNAUTHORIZED,
            "NoValidSession",
            message.into(),
            vec![],
            resolution,
        )
    }

    /// DSP0266, "Password change required": the refusal names the only account that may be changed.
    pub(super) fn password_change_required(account: u32) -> Self {
        let path = format!("{}/{account}", super::accounts::ACCOUNTS);
        let message = format!(
            "The password provided for this account must be changed before access is granted. PATCH the Password property \
             for this account located at the target URI '{path}' to complete this process."
        );
        let resolution = "Change the password for this account.";
        Self::new(
            StatusCode::FORBIDDEN,
            "PasswordChangeRequired",
            message,
            vec![path],
            resolution,
        )
    }

    pub(super) fn no_operation() -> Self {
        let message =
            "The request body submitted contain no data to act upon and no changes to the resource took place.";
        let resolution = "Add properties in the JSON object and resubmit the request.";
        Self::new(
            StatusCode::BAD_REQUEST,
            "NoOperation",
            message.into(),
            vec![],
            resolution,
        )
    }

    pub(super) fn insufficient_privilege() -> Self {
        let message = "There are insufficient privileges for the account or credentials associated with the current session \
                       to perform the requested operation.";
        let resolution = "Use an administrator's account.";
        Self::new(
            StatusCode::FORBIDDEN,
            "InsufficientPrivilege",
            message.into(),
            vec![],
            resolution,
        )
    }

    /// The message of this fault, for an answer that is not an error.
    pub(super) fn annotation(&self) -> Value {
        json!([{
            "MessageId": format!("Base.1.13.{}", self.id),
            "Message": self.message,
            "MessageArgs": self.args,
            "MessageSeverity": "Critical",
            "Resolution": self.resolution,
        }])
    }

    pub(super) fn precondition_required() -> Self {
        let message = "A precondition header or annotation is required to change this resource.";
        let resolution = "Read the resource and send its ETag in If-Match.";
        Self::new(
            StatusCode::PRECONDITION_REQUIRED,
            "PreconditionRequired",
            message.into(),
            vec![],
            resolution,
        )
    }

    pub(super) fn sessions_full() -> Self {
        let message = "The session establishment failed due to the number of simultaneous sessions exceeding the limit of \
                       the implementation.";
        let resolution = "Delete a session, or wait until one expires.";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "SessionLimitExceeded",
            message.into(),
            vec![],
            resolution,
        )
    }

    pub(super) fn unavailable(retry_after_s: u32) -> Self {
        let message = format!("The service is temporarily unavailable. Retry in {retry_after_s} seconds.");
        let args = vec![retry_after_s.to_string()];
        let fault = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceTemporarilyUnavailable",
            message,
            args,
            "Wait for the indicated time and retry.",
        );
        Self { retry_after_s, ..fault }
    }

    pub(super) fn not_acceptable() -> Self {
        let message = "The service cannot provide the resource in a format that the request accepts.";
        let resolution = "Accept text/event-stream.";
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "GeneralError",
            message.into(),
            vec![],
            resolution,
        )
    }

    pub(super) fn not_found(path: &str) -> Self {
        let message = format!("The resource at the URI '{path}' was not found.");
        let resolution = "Provide a URI that this service offers.";
        Self::new(
            StatusCode::NOT_FOUND,
            "ResourceMissingAtURI",
            message,
            vec![path.to_owned()],
            resolution,
        )
    }

    pub(super) fn method(method: &str) -> Self {
        let message = format!("The HTTP method {method} is not supported by the requested resource.");
        let resolution = "Use a method that the Allow header names.";
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "OperationNotAllowed",
            message,
            vec![],
            resolution,
        )
    }

    pub(super) fn malformed() -> Self {
        let message = "The request body submitted was malformed JSON and could not be parsed by the receiving service.";
        Self::new(
            StatusCode::BAD_REQUEST,
            "MalformedJSON",
            message.into(),
            vec![],
            "Send a JSON object.",
        )
    }

    pub(super) fn too_large() -> Self {
        let message = "The request body is larger than this service accepts.";
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "GeneralError",
            message.into(),
            vec![],
            "Send a smaller request.",
        )
    }

    pub(super) fn unknown_property(name: &str) -> Self {
        let message = format!("The property {name} is not in the list of valid properties for the resource.");
        let resolution = "Remove the unknown property from the request body.";
        Self::new(
            StatusCode::BAD_REQUEST,
            "PropertyUnknown",
            message,
            vec![name.to_owned()],
            resolution,
        )
        .about(name)
    }

    pub(super) fn not_writable(name: &str) -> Self {
        let message = format!("The property {name} is a read-only property and cannot be assigned a value.");
        let resolution = "Remove the property from the request body.";
        Self::new(
            StatusCode::BAD_REQUEST,
            "PropertyNotWritable",
            message,
            vec![name.to_owned()],
            resolution,
        )
        .about(name)
    }

    pub(super) fn missing_property(name: &str) -> Self {
        let message = format!("The property {name} is a required property and must be included in the request.");
        let resolution = "Add the property to the request body.";
        Self::new(
            StatusCode::BAD_REQUEST,
            "PropertyMissing",
            message,
            vec![name.to_owned()],
            resolution,
        )
        .about(name)
    }

    pub(super) fn wrong_type(name: &str, value: &Value) -> Self {
        let message =
            format!("The value '{value}' for the property {name} is of a different type than the property accepts.");
        let resolution = "Correct the value of the property.";
        let args = vec![value.to_string(), name.to_owned()];
        Self::new(
            StatusCode::BAD_REQUEST,
            "PropertyValueTypeError",
            message,
            args,
            resolution,
        )
        .about(name)
    }

    pub(super) fn not_in_list(name: &str, value: &str) -> Self {
        let message = format!("The value '{value}' for the property {name} is not in the list of acceptable values.");
        let resolution = "Choose a value from the allowable values.";
        let args = vec![value.to_owned(), name.to_owned()];
        Self::new(
            StatusCode::BAD_REQUEST,
            "PropertyValueNotInList",
            message,
            args,
            resolution,
        )
        .about(name)
    }

    pub(super) fn missing_parameter(action: &str, name: &str) -> Self {
        let message = format!("The action {action} requires the parameter {name} to be present in the request body.");
        let resolution = "Supply the parameter.";
        let args = vec![action.to_owned(), name.to_owned()];
        Self::new(
            StatusCode::BAD_REQUEST,
            "ActionParameterMissing",
            message,
            args,
            resolution,
        )
        .about(name)
    }

    pub(super) fn bad_parameter(action: &str, name: &str, value: &str) -> Self {
        let message = format!("The value '{value}' for the parameter {name} in the action {action} is not acceptable.");
        let resolution = "Choose a value from the allowable values.";
        let args = vec![value.to_owned(), name.to_owned(), action.to_owned()];
        Self::new(
            StatusCode::BAD_REQUEST,
            "ActionParameterValueNotInList",
            message,
            args,
            resolution,
        )
        .about(name)
    }

    pub(super) fn reset_conflict(reset: &str, why: &str) -> Self {
        let message = format!("The action ComputerSystem.Reset was submitted with the value '{reset}', but {why}.");
        let resolution = "Read PowerState and choose a reset type that applies to it.";
        let args = vec!["ResetType".to_owned(), reset.to_owned()];
        Self::new(
            StatusCode::CONFLICT,
            "ActionParameterValueConflict",
            message,
            args,
            resolution,
        )
        .about("ResetType")
    }

    pub(super) fn precondition_failed() -> Self {
        let message = "The ETag supplied did not match the ETag required to change this resource.";
        let resolution = "Read the resource again and use its ETag.";
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            message.into(),
            vec![],
            resolution,
        )
    }

    pub(super) fn odata_version(version: &str) -> Self {
        let message = format!("The OData-Version '{version}' is not supported.");
        let resolution = "Send OData-Version 4.0 or none.";
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "HeaderInvalid",
            message,
            vec![],
            resolution,
        )
    }

    pub(super) fn query(name: &str) -> Self {
        let message = format!("Querying by {name} is not supported by this service.");
        let resolution = "Remove the query parameter.";
        Self::new(
            StatusCode::NOT_IMPLEMENTED,
            "QueryNotSupported",
            message,
            vec![],
            resolution,
        )
    }

    pub(super) fn media(url: &str, why: &str) -> Self {
        let message = format!("Failed to get the image at '{url}': {why}.");
        let resolution = "Offer the image by plain HTTP at a URL that the BMC can reach.";
        Self::new(
            StatusCode::BAD_REQUEST,
            "CouldNotEstablishConnection",
            message,
            vec![url.to_owned()],
            resolution,
        )
        .about("Image")
    }

    pub(super) fn media_in_use() -> Self {
        let message = "The virtual media drive already holds an image.";
        Self::new(
            StatusCode::CONFLICT,
            "ResourceInUse",
            message.into(),
            vec![],
            "Eject the medium first.",
        )
    }

    pub(super) fn settings_wait() -> Self {
        let message = "The request failed because a job of an earlier change of settings waits for the next start.";
        let resolution = "Restart the machine, or clear the pending change, and repeat the request.";
        Self::new(
            StatusCode::CONFLICT,
            "ResourceInUse",
            message.into(),
            vec![],
            resolution,
        )
    }

    pub(super) fn task_runs() -> Self {
        let message = "The task is still running and cannot be stopped.";
        let resolution = "Wait until it has ended.";
        Self::new(
            StatusCode::CONFLICT,
            "ResourceInUse",
            message.into(),
            vec![],
            resolution,
        )
    }

    pub(super) fn internal(detail: &str) -> Self {
        let message = format!("The request failed due to an internal service error: {detail}");
        let resolution = "Look at the lab's log.";
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            message,
            vec![],
            resolution,
        )
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let id = format!("Base.1.13.{}", self.id);
        let mut info = json!({
            "@odata.type": "#Message.v1_1_2.Message",
            "MessageId": id,
            "Message": self.message,
            "MessageArgs": self.args,
            "MessageSeverity": "Critical",
            "Resolution": self.resolution,
        });
        if let Some(property) = self.property {
            info["RelatedProperties"] = json!([property]);
        }
        let body = json!({"error": {"code": id, "message": self.message, "@Message.ExtendedInfo": [info]}});
        let mut response = json(self.status, &body);
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(
                    header::WWW_AUTHENTICATE,
                    HeaderValue::from_static("Basic realm=\"Rackwright lab BMC\""),
                );
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, self.retry_after_s.into());
            }
            _ => {}
        }
        response
    }
}

pub(super) fn json(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    if let Some(link) = described_by(body) {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

/// The `Link` header that DSP0266 requires for every resource: the location of its schema.
fn described_by(body: &Value) -> Option<HeaderValue> {
    let kind = body["@odata.type"].as_str()?;
    let (schema, _) = kind.trim_start_matches('#').rsplit_once('.')?;
    HeaderValue::try_from(format!(
        "<http://redfish.dmtf.org/schemas/v1/{schema}.json>; rel=describedby"
    ))
    .ok()
}

/// A response without a body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Adds an ETag.
pub(super) fn tagged(mut response: Response, etag: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}
