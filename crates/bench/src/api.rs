//! `rackwright-bench api`: the cost of a call by gRPC, by Connect and by REST, on the same connection.

use std::time::Instant;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use rackwright_api::v1::{GetNodeRequest, ListNodesRequest};
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};
use serde::Serialize;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::Service as _;

use crate::args::{ApiArgs, FleetArgs};
use crate::fleet::print;
use crate::phases;
use crate::progress::{Edge, Progress};
use crate::test_bed::TestBed;

/// Rounds of all forms, one after the other. The cheapest round of each form counts: other work on the computer only adds.
const ROUNDS: usize = 5;

/// The form of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    Grpc,
    ConnectProto,
    ConnectJson,
    Rest,
}

/// gRPC first: the others are compared with it.
const FORMS: [Form; 4] = [Form::Grpc, Form::ConnectProto, Form::ConnectJson, Form::Rest];

/// A call in each form.
struct Call {
    name: &'static str,
    message: Vec<u8>,
    json: String,
    rest: String,
}

/// A line of the output.
#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    call: &'static str,
    form: Form,
    calls: usize,
    /// Bytes of a response's body.
    response_bytes: usize,
    /// Time of a call, one after the other.
    us: f64,
    /// CPU time of the control plane for a call.
    cpu_us: f64,
    /// The time as a multiple of gRPC's in the same run.
    ratio: f64,
    /// The CPU time as a multiple of gRPC's in the same run.
    cpu_ratio: f64,
}

/// The cost of a call in one form.
#[derive(Debug, Clone, Copy)]
struct Cost {
    us: f64,
    cpu_us: f64,
    bytes: usize,
}

/// Measures each call in each form.
pub async fn run(cx: &Cx, args: ApiArgs) -> Result<(), CliError> {
    if args.nodes == 0 || args.calls == 0 {
        return Err(CliError::usage("--nodes and --calls must be at least 1", ""));
    }
    let fleet = FleetArgs::of_nodes(args.nodes, args.programs);
    cx.ui.note(&format!(
        "starting the control plane and {}",
        plural(args.nodes, "machine")
    ));
    let test_bed = TestBed::start(cx, &fleet).await?;
    let mut progress = Progress::follow(test_bed.client.clone(), std::iter::empty(), None);
    phases::enrol(&test_bed.client, &test_bed.machines).await?;
    // The control plane is at rest after the inspections.
    progress.until(Edge::Inspected, args.nodes, fleet.patience).await?;
    let name = format!("nodes/{}", test_bed.machines[0].id);
    let get = GetNodeRequest {
        name: name.clone(),
        ..GetNodeRequest::default()
    };
    let calls = [
        Call {
            name: "GetNode",
            message: get.encode_to_vec(),
            json: serde_json::json!({ "name": name }).to_string(),
            rest: format!("/v1/{name}"),
        },
        Call {
            name: "ListNodes",
            message: ListNodesRequest::default().encode_to_vec(),
            json: "{}".to_owned(),
            rest: "/v1/nodes".to_owned(),
        },
    ];
    for call in &calls {
        cx.ui.note(&format!("{} {} times in each form", call.name, args.calls));
        for report in measured(&test_bed, call, args.calls).await? {
            print(cx, &report)?;
        }
    }
    Ok(())
}

async fn measured(test_bed: &TestBed, call: &Call, calls: usize) -> Result<Vec<Report>, CliError> {
    let (channel, _) = test_bed.client.channel("measure calls").await?;
    let server = test_bed.client.first_server();
    let control = test_bed.control_plane();
    let mut cheapest: [Option<Cost>; FORMS.len()] = [None; FORMS.len()];
    for _ in 0..ROUNDS {
        for (form, cheapest) in FORMS.into_iter().zip(&mut cheapest) {
            let (before, begun) = (control.usage()?, Instant::now());
            let mut bytes = 0;
            for _ in 0..calls {
                bytes = answered(channel.clone(), call.request(form, &server)?, form).await?;
            }
            let per_call = |seconds: f64| seconds * 1e6 / calls as f64;
            let cost = Cost {
                us: per_call(begun.elapsed().as_secs_f64()),
                cpu_us: per_call(control.usage()?.cpu_s - before.cpu_s),
                bytes,
            };
            *cheapest = Some(cheapest.map_or(cost, |known| Cost {
                us: known.us.min(cost.us),
                cpu_us: known.cpu_us.min(cost.cpu_us),
                bytes,
            }));
        }
    }
    let costs: Vec<(Form, Cost)> = FORMS.into_iter().zip(cheapest.into_iter().flatten()).collect();
    let Some((_, grpc)) = costs.first().copied() else {
        return Ok(Vec::new());
    };
    let reports = costs.into_iter().map(|(form, cost)| Report {
        bench: "api",
        call: call.name,
        form,
        calls,
        response_bytes: cost.bytes,
        us: cost.us,
        cpu_us: cost.cpu_us,
        ratio: cost.us / grpc.us,
        cpu_ratio: cost.cpu_us / grpc.cpu_us,
    });
    Ok(reports.collect())
}

impl Call {
    fn request(&self, form: Form, server: &str) -> Result<Request<Body>, CliError> {
        let path = format!("{server}/rackwright.v1.NodeService/{}", self.name);
        let request = |method: Method, uri: String, content_type: &str, body: Bytes| {
            let request = Request::builder().method(method).uri(uri);
            let request = request.header("content-type", content_type).header("te", "trailers");
            let request = request.body(Body::new(Full::new(body)));
            request.map_err(|error| CliError::BadAnswer(format!("the request is malformed: {error}")))
        };
        match form {
            Form::Grpc => {
                let mut framed = BytesMut::new();
                framed.put_u8(0);
                framed.put_u32(u32::try_from(self.message.len()).unwrap_or_default());
                framed.put(self.message.as_slice());
                request(Method::POST, path, "application/grpc", framed.freeze())
            }
            Form::ConnectProto => {
                let message = Bytes::copy_from_slice(&self.message);
                request(Method::POST, path, "application/proto", message)
            }
            Form::ConnectJson => {
                let message = Bytes::copy_from_slice(self.json.as_bytes());
                request(Method::POST, path, "application/json", message)
            }
            Form::Rest => request(
                Method::GET,
                format!("{server}{}", self.rest),
                "application/json",
                Bytes::new(),
            ),
        }
    }
}

/// The bytes of a response, which must be a good one.
async fn answered(mut channel: Channel, request: Request<Body>, form: Form) -> Result<usize, CliError> {
    let lost = |error: &dyn std::fmt::Display| CliError::BadAnswer(format!("{form:?}: {error}"));
    std::future::poll_fn(|context| channel.poll_ready(context))
        .await
        .map_err(|error| lost(&error))?;
    let response = channel.call(request).await.map_err(|error| lost(&error))?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| lost(&error))?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let is_good = match form {
        Form::Grpc => trailers.get("grpc-status").is_some_and(|status| status == "0"),
        _ => status == StatusCode::OK,
    };
    let bytes = body.to_bytes();
    match is_good {
        true => Ok(bytes.len()),
        false => Err(lost(&format!("{status} {}", String::from_utf8_lossy(&bytes)))),
    }
}
