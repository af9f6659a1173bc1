//! The calls of each phase: enrol, deploy, release, list.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{
    BatchEnrollNodesRequest, DeployNodeRequest, Deployment, EnrollNodeRequest, FinishUploadRequest, ImageFormat,
    ListNodesRequest, Mutation, NodeSpec, ReleaseNodeRequest, StartUploadRequest,
};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::fresh_key;
use rackwright_cli_context::output::Ui;
use rackwright_cli_context::{names, nodes, upload, wait};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::progress::{Edge, Passage, Tally};
use crate::report::Listing;
use crate::test_bed::{Machine, TestBed};

/// Nodes of one batch; the API accepts up to 1000.
const BATCH: usize = 1000;
/// The size of the deployed image, in MiB. It contains noise, so that no part is left out or compressed.
const IMAGE_MIB: usize = 8;
const IMAGE: &str = "bench";

/// A mutation with a new key.
pub fn mutation() -> Option<Mutation> {
    Some(Mutation {
        idempotency_key: fresh_key(),
        resource_version: String::new(),
    })
}

/// Adds the image that [`deploy`] deploys.
pub async fn add_image(ui: &Ui, test_bed: &TestBed) -> Result<(), CliError> {
    let file = test_bed.folder().join("image.raw");
    let bytes = noise(IMAGE_MIB << 20);
    std::fs::write(&file, &bytes).map_err(|e| CliError::file("write", &file, e))?;
    let sha256 = hex::encode(ring::digest::digest(&ring::digest::SHA256, &bytes));
    let client = &test_bed.client;
    let request = StartUploadRequest {
        image_id: IMAGE.to_owned(),
        size_bytes: bytes.len() as u64,
        sha256,
        format: ImageFormat::Raw as i32,
        mutation: mutation(),
        ..StartUploadRequest::default()
    };
    let started = rpc!(client, ImageServiceClient.start_upload, "add the image", request).await?;
    let uploaded = upload::run(client, ui, &file, started).await?;
    let request = FinishUploadRequest {
        name: uploaded.name,
        mutation: mutation(),
    };
    let import = rpc!(client, ImageServiceClient.finish_upload, "add the image", request).await?;
    let done = wait::until_done(client, ui, vec![import], None).await?;
    wait::verdict(&ui.silenced(), &done)
}

/// Bytes that do not compress: a linear congruential generator's (Knuth's MMIX constants), the same in every run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Enrols all machines, batch by batch.
pub async fn enrol(client: &Client, machines: &[Machine]) -> Result<(), CliError> {
    enrol_labelled(client, machines, |_| HashMap::new()).await
}

/// Enrols all machines, batch by batch; `labels` gives the labels of each by its place in the list.
pub async fn enrol_labelled(
    client: &Client,
    machines: &[Machine],
    labels: impl Fn(usize) -> HashMap<String, String>,
) -> Result<(), CliError> {
    let placed: Vec<(usize, &Machine)> = machines.iter().enumerate().collect();
    for batch in placed.chunks(BATCH) {
        let one = |(place, machine): &(usize, &Machine)| EnrollNodeRequest {
            node_id: machine.id.clone(),
            labels: labels(*place),
            spec: Some(NodeSpec {
                bmc: Some(machine.bmc()),
                ..NodeSpec::default()
            }),
            ..EnrollNodeRequest::default()
        };
        let request = BatchEnrollNodesRequest {
            requests: batch.iter().map(one).collect(),
            mutation: mutation(),
        };
        rpc!(client, NodeServiceClient.batch_enroll_nodes, "enrol nodes", request).await?;
    }
    Ok(())
}

/// Deploys the image to all machines, `parallel` calls at once.
pub async fn deploy(client: &Arc<Client>, machines: &[Machine], parallel: usize) -> Result<(), CliError> {
    let mut calls = Calls::new(parallel);
    for machine in machines {
        calls.begin(deploy_one(Arc::clone(client), machine.id.clone())).await?;
    }
    calls.end().await
}

/// Releases all machines, `parallel` calls at once.
pub async fn release(client: &Arc<Client>, machines: &[Machine], parallel: usize) -> Result<(), CliError> {
    let mut calls = Calls::new(parallel);
    for machine in machines {
        calls.begin(release_one(Arc::clone(client), machine.id.clone())).await?;
    }
    calls.end().await
}

/// Takes each machine from step to step as soon as it is ready for the next, independent of the others, until `over`
/// reports that all machines are done.
pub async fn life(
    client: &Arc<Client>,
    machines: &[Machine],
    parallel: usize,
    passages: &mut mpsc::Receiver<Passage>,
    over: impl Future<Output = Result<Tally, CliError>>,
) -> Result<(), CliError> {
    let mut calls = Calls::new(parallel);
    // Passages are received to the end; otherwise no more events would be read.
    let go_on = async {
        loop {
            tokio::select! {
                passed = passages.recv() => match passed {
                    Some((machine, Edge::Inspected)) => calls.begin(deploy_one(Arc::clone(client), machine)).await?,
                    Some((machine, Edge::Validated)) => calls.begin(release_one(Arc::clone(client), machine)).await?,
                    Some((_, Edge::Enrolled | Edge::HostUp | Edge::Erased)) => {}
                    None => std::future::pending().await,
                },
                ended = calls.one_ends(), if !calls.running.is_empty() => ended?,
            }
        }
    };
    let all = async {
        enrol(client, machines).await?;
        over.await.map(drop)
    };
    tokio::select! {
        failed = go_on => failed,
        done = all => done,
    }
}

async fn deploy_one(client: Arc<Client>, id: String) -> Result<(), CliError> {
    let request = DeployNodeRequest {
        name: names::full("nodes", &id),
        deployment: Some(Deployment {
            image: names::full("images", IMAGE),
            ..Deployment::default()
        }),
        mutation: mutation(),
    };
    let doing = format!("deploy node {id}");
    rpc!(client, NodeServiceClient.deploy_node, doing, request)
        .await
        .map(drop)
}

async fn release_one(client: Arc<Client>, id: String) -> Result<(), CliError> {
    let request = ReleaseNodeRequest {
        name: names::full("nodes", &id),
        mutation: mutation(),
    };
    let doing = format!("release node {id}");
    rpc!(client, NodeServiceClient.release_node, doing, request)
        .await
        .map(drop)
}

/// A limited number of concurrent calls; the first failure ends all.
struct Calls {
    running: JoinSet<Result<(), CliError>>,
    most: usize,
}

impl Calls {
    fn new(most: usize) -> Self {
        Self {
            running: JoinSet::new(),
            most,
        }
    }

    async fn begin(
        &mut self,
        call: impl Future<Output = Result<(), CliError>> + Send + 'static,
    ) -> Result<(), CliError> {
        while self.running.len() >= self.most {
            self.one_ends().await?;
        }
        self.running.spawn(call);
        Ok(())
    }

    async fn end(mut self) -> Result<(), CliError> {
        while !self.running.is_empty() {
            self.one_ends().await?;
        }
        Ok(())
    }

    async fn one_ends(&mut self) -> Result<(), CliError> {
        match self.running.join_next().await {
            Some(Ok(done)) => done,
            Some(Err(e)) => Err(CliError::BadAnswer(format!("a call ended unexpectedly: {e}"))),
            None => Ok(()),
        }
    }
}

/// The number of nodes in a state, by the list of nodes.
pub async fn in_state(client: &Client, state: &str) -> Result<usize, CliError> {
    nodes::all(client, &format!("state = \"{state}\""))
        .await
        .map(|nodes| nodes.len())
}

/// Measures the time of listing nodes.
pub async fn listing(client: &Client) -> Result<Listing, CliError> {
    let first_page_ms = page_ms(client, "").await?;
    let filtered_page_ms = page_ms(client, "state = \"inspecting\"").await?;
    let begun = Instant::now();
    nodes::all(client, "").await?;
    Ok(Listing {
        first_page_ms,
        filtered_page_ms,
        all_pages_s: begun.elapsed().as_secs_f64(),
    })
}

async fn page_ms(client: &Client, filter: &str) -> Result<f64, CliError> {
    let mut times = Vec::new();
    for _ in 0..10 {
        let request = ListNodesRequest {
            page_size: 100,
            filter: filter.to_owned(),
            ..ListNodesRequest::default()
        };
        let begun = Instant::now();
        rpc!(client, NodeServiceClient.list_nodes, "list nodes", request).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_noise_and_the_same_each_time() {
        let bytes = noise(4096);
        let mut seen = [0usize; 256];
        bytes.iter().for_each(|&byte| seen[usize::from(byte)] += 1);
        assert!(seen.iter().all(|&count| count < 64), "{seen:?}");
        assert_eq!(bytes, noise(4096));
    }
}
