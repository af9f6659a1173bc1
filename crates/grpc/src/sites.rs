//! `SiteService`: the description of the site by its operators.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::get_site_response::Message as GetSite;
use rackwright_api::v1::site_service_server::SiteService;
use rackwright_control::clusters::partitions;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::hall::{self, HallError, confirmed};
use rackwright_ground::intent;
use rackwright_ground::text::counted;
use rackwright_lifecycle::{ClusterId, EventKind, NodeId};
use rackwright_nodes::firmware_settings::WantedCache;
use rackwright_planner::planner::{Planner, RestoreError};
use rackwright_site::file::Checked;
use rackwright_site::finding::{Finding, Severity};
use rackwright_site::model::{Action, Change, Site, diff};
use rackwright_store::{Database, Scope, SiteFile, SiteRow};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::call::MutatingCall;
use super::site_files::{self, SiteFileReceiver};
use super::{caller, convert};

/// A stream of files ends after this time without a message.
const SILENCE: Duration = Duration::from_secs(60);
/// Most nodes without enrolment in an answer.
const NAMED_MAX: usize = 1000;
/// Most findings in an error.
const REPORTED_MAX: usize = 50;

/// Implements `SiteService`.
#[derive(Debug, Clone)]
pub struct Sites(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

fn finding(finding: &Finding) -> v1::SiteFinding {
    v1::SiteFinding {
        is_error: finding.severity == Severity::Error,
        file: finding.file.to_string(),
        line: finding.line,
        column: finding.column,
        path: finding.path.clone(),
        what: finding.what.clone(),
        fix: finding.fix.clone(),
    }
}

fn change(change: Change) -> v1::SiteChange {
    let (action, fields) = match change.action {
        Action::Added => ("added", Vec::new()),
        Action::Removed => ("removed", Vec::new()),
        Action::Changed(fields) => ("changed", fields),
    };
    let field = |field: rackwright_site::model::FieldChange| v1::SiteFieldChange {
        field: field.field.to_owned(),
        from: field.from,
        to: field.to,
    };
    v1::SiteChange {
        kind: change.kind.to_owned(),
        name: change.name.into(),
        action: action.to_owned(),
        fields: fields.into_iter().map(field).collect(),
    }
}

/// The faults of the files as a call's error.
fn faults(checked: &Checked) -> ApiError {
    let errors = checked
        .findings
        .list
        .iter()
        .filter(|one| one.severity == Severity::Error);
    let violation = |one: &Finding| {
        (
            format!("{}:{}:{}", one.file, one.line, one.column),
            format!("{}: {}", one.path, one.what),
        )
    };
    let mut faults: Vec<_> = errors.clone().take(REPORTED_MAX).map(violation).collect();
    let more = errors.count().saturating_sub(REPORTED_MAX);
    if more > 0 {
        faults.push((
            "files".into(),
            format!("{more} more; `rackwright site validate` lists all"),
        ));
    }
    ApiError::Invalid(faults)
}

/// The part of a request to apply files that is compared when its key is repeated. Files count by their digest, however
/// they are split into parts.
pub(super) fn digested(mutation: Option<v1::Mutation>, files: &[SiteFile]) -> v1::ApplySiteRequest {
    let data = hall::digest(files).into_bytes();
    let name = String::new();
    v1::ApplySiteRequest {
        mutation,
        part: Some(v1::SiteFilePart { name, data }),
    }
}

/// The next message of a stream of files.
async fn next<T>(stream: &mut Streaming<T>) -> Result<Option<T>, Status> {
    match tokio::time::timeout(SILENCE, stream.message()).await {
        Ok(message) => message,
        Err(_) => {
            let message = format!("no part of the files arrived within {} s", SILENCE.as_secs());
            Err(Status::deadline_exceeded(message))
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Sites {
    fn receiving(&self) -> SiteFileReceiver {
        SiteFileReceiver::new(self.0.config.storage.site_files_mib << 20)
    }

    /// Conflicts between the clusters' placements and the files, one sentence each.
    async fn conflicts(&self, site: &Arc<Site>) -> Result<(i64, Vec<String>), ApiError> {
        let core = &self.0;
        let (version, live) = match core.sites.picture(&core.store).await {
            Ok(picture) => (picture.hall_version, picture.live),
            Err(HallError::NoSite) => (core.store.hall().await?.version, Vec::new()),
            Err(other) => return Err(other.into()),
        };
        if live.is_empty() {
            return Ok((version, Vec::new()));
        }
        let ids: Vec<(_, ClusterId)> = self.cluster_names().await?;
        let lacking = self.lacking_ports(site).await?;
        let site = site.clone();
        let restored = tokio::task::spawn_blocking(move || Planner::restore_named(&site, &live).map(drop));
        let restored = restored.await.map_err(|e| ApiError::Internal(e.to_string()))?;
        let name = |number| {
            let known = ids.iter().find(|(known, _)| *known == number);
            known.map_or_else(|| "a cluster".to_owned(), |(_, id)| format!("cluster {id}"))
        };
        let mut conflicts: Vec<String> = match restored {
            Ok(()) => Vec::new(),
            Err(RestoreError::Site(unfit)) => vec![format!("the site cannot hold any cluster: {unfit}")],
            Err(RestoreError::Clusters { faults }) => faults
                .into_iter()
                .map(|(number, why)| format!("{}: {why}", name(number)))
                .collect(),
        };
        // A node that is missing as a whole has no port either.
        if conflicts.is_empty() {
            conflicts = lacking;
        }
        Ok((version, conflicts))
    }

    /// Clusters with a partition and with nodes that lack port GUIDs in the files, one sentence each.
    async fn lacking_ports(&self, site: &Site) -> Result<Vec<String>, ApiError> {
        let core = &self.0;
        let mut lacking = Vec::new();
        if core.config.fabric.is_none() {
            return Ok(lacking);
        }
        for record in hall::live(&core.store).await? {
            let placement = hall::placement_of(&record)?;
            let nodes = placement.nodes.iter().chain(&placement.spares);
            if record.partition.is_some()
                && let Err(why) = partitions::ports(site, nodes)
            {
                lacking.push(format!("cluster {}: {why}", record.id));
            }
        }
        Ok(lacking)
    }

    async fn cluster_names(&self) -> Result<Vec<(rackwright_placement::ClusterId, ClusterId)>, ApiError> {
        let clusters = self.0.store.clusters(&Scope::Site, &Vec::new(), "", i64::MAX).await?;
        Ok(clusters
            .into_iter()
            .map(|one| (hall::number(&one.uid), one.id))
            .collect())
    }

    async fn message(&self, row: &SiteRow, site: &Site) -> Result<v1::Site, ApiError> {
        let enrolled: HashSet<NodeId> = self.0.store.node_ids().await?.into_iter().collect();
        let names = site.nodes.iter().map(|node| &*node.name);
        let missing = names.filter(|name| !enrolled.contains(*name)).take(NAMED_MAX);
        Ok(v1::Site {
            name: "site".into(),
            title: site.name.to_string(),
            files: Vec::new(),
            digest: row.digest.clone(),
            applied_by: row.applied_by.clone(),
            nodes: count(site.nodes.len()),
            switches: count(site.switches.len()),
            cables: count(site.cables.len()),
            not_enrolled: missing.map(str::to_owned).collect(),
            metadata: Some(v1::Metadata {
                uid: row.uid.clone(),
                resource_version: row.version.to_string(),
                create_time: None,
                update_time: convert::time(row.applied_at),
                labels: Default::default(),
            }),
        })
    }

    /// Checks that the disk has room for the files, if the database is a file.
    fn room(&self, files: &[SiteFile]) -> Result<(), ApiError> {
        let Database::File(path) = &self.0.config.database else {
            return Ok(());
        };
        let bytes: usize = files.iter().map(|file| file.text.len()).sum();
        let folder = path.parent().unwrap_or(&self.0.config.data_dir);
        Ok(self.0.space.check(folder, bytes as u64)?)
    }

    /// Reads files as the next version of the site, with the adapters that the control plane confirmed.
    async fn read(&self, files: Vec<SiteFile>) -> Result<(Vec<SiteFile>, Checked), ApiError> {
        let fabric = self.0.config.fabric.as_ref();
        let files = match self.0.store.site().await? {
            Some(former) if fabric.is_some_and(|fabric| fabric.adapters.by_agreement()) => {
                confirmed::carried(&former.files, files)
            }
            _ => files,
        };
        let managed = self.0.sites.managed.clone();
        let read = tokio::task::spawn_blocking(move || {
            let checked = hall::read_for(&files, &managed);
            (files, checked)
        });
        read.await.map_err(|e| ApiError::Internal(e.to_string()))
    }

    /// Applies files as the site.
    pub(super) async fn apply(
        &self,
        call: &MutatingCall<'_>,
        caller: &str,
        files: Vec<SiteFile>,
    ) -> Result<v1::Site, ApiError> {
        let core = &self.0;
        match call.begin::<v1::Site>().await? {
            Ok(tx) => drop(tx),
            Err(former) => return Ok(former),
        }
        self.room(&files)?;
        let (files, checked) = self.read(files).await?;
        let Some(site) = checked.site.clone() else {
            return Err(faults(&checked));
        };
        let site = Arc::new(site);
        let (hall_version, conflicts) = self.conflicts(&site).await?;
        if !conflicts.is_empty() {
            let hint =
                "keep in the site what clusters hold, or release the clusters first: `rackwright cluster release`";
            return Err(ApiError::precondition("site", conflicts.join("; "), hint));
        }
        let former = core.store.site().await?;
        let version = former.as_ref().map_or(0, |row| row.version);
        call.check_version("site", version)?;
        let row = SiteRow {
            version: version + 1,
            uid: former.map_or_else(|| core.new_id(), |row| row.uid),
            digest: hall::digest(&files),
            files,
            applied_by: caller.to_owned(),
            applied_at: call.now(),
        };
        let response = self.message(&row, &site).await?;
        let mut tx = match call.begin::<v1::Site>().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(former),
        };
        let mut hall = tx.hall().await?;
        if hall.version != hall_version {
            let hint = "send the same request again";
            let message = "nodes were reserved or freed while the site was compared with what clusters hold";
            return Err(ApiError::precondition("site", message, hint));
        }
        tx.insert_site(&row).await?;
        tx.save_hall(&mut hall).await?;
        let message = format!(
            "{caller} applied version {} of the site: {}",
            row.version,
            counted(site.nodes.len(), "node")
        );
        tx.add_event(&call.event(EventKind::SiteApplied, "site", message))
            .await?;
        let response = call.end(tx, response).await?;
        core.feature::<WantedCache>().forget();
        // The new site may contain resources that clusters wait for.
        core.store.wake_clusters(call.now()).await?;
        core.clusters_due.notify_one();
        Ok(response)
    }
}

#[tonic::async_trait]
impl SiteService for Sites {
    type GetSiteStream = Pin<Box<dyn Stream<Item = Result<v1::GetSiteResponse, Status>> + Send>>;

    async fn plan_site(&self, request: Request<Streaming<v1::PlanSiteRequest>>) -> Answer<v1::PlanSiteResponse> {
        let caller = caller::member(&self.0, &request).await?;
        let _turn = self.0.site_uploads.begin(&caller)?;
        let mut receiving = self.receiving();
        let mut stream = request.into_inner();
        while let Some(message) = next(&mut stream).await? {
            receiving.take(message.part)?;
        }
        let files = receiving.end()?;
        let (_, checked) = self.read(files).await?;
        let current = self.0.sites.current(&self.0.store).await.map_err(ApiError::from)?;
        let version = current.as_ref().map(|(version, _)| version.to_string());
        let mut response = v1::PlanSiteResponse {
            findings: checked.findings.list.iter().map(finding).collect(),
            // A version even without a site, so that only one of two parallel first applications succeeds.
            resource_version: version.unwrap_or_else(|| "0".into()),
            ..v1::PlanSiteResponse::default()
        };
        if let Some(site) = checked.site {
            let site = Arc::new(site);
            let nothing = Site::default();
            let before = current.as_ref().map_or(&nothing, |(_, site)| site);
            response.changes = diff(before, &site).into_iter().map(change).collect();
            response.conflicts = self.conflicts(&site).await?.1;
        }
        Ok(Response::new(response))
    }

    async fn apply_site(&self, request: Request<Streaming<v1::ApplySiteRequest>>) -> Answer<v1::Site> {
        let caller = caller::operator(&self.0, &request).await?;
        let _turn = self.0.site_uploads.begin(&caller)?;
        let mut receiving = self.receiving();
        let mut stream = request.into_inner();
        let mut mutation = None;
        while let Some(message) = next(&mut stream).await? {
            match mutation {
                None => {
                    let first = message.mutation.unwrap_or_default();
                    intent::check_key(&first.idempotency_key)?;
                    mutation = Some(first);
                }
                Some(_) if message.mutation.is_some() => {
                    return Err(ApiError::invalid("mutation", "is permitted in the first message only").into());
                }
                Some(_) => {}
            }
            receiving.take(message.part)?;
        }
        let files = receiving.end()?;
        let request = digested(mutation, &files);
        let call = MutatingCall::new(&self.0, &caller, "ApplySite", request.mutation.as_ref(), &request)?;
        Ok(Response::new(self.apply(&call, &caller.name, files).await?))
    }

    async fn list_fabric_faults(
        &self,
        request: Request<v1::ListFabricFaultsRequest>,
    ) -> Answer<v1::ListFabricFaultsResponse> {
        caller::member(&self.0, &request).await?;
        Ok(Response::new(super::fabric::faults(&self.0.store).await?))
    }

    async fn get_topology(&self, request: Request<v1::GetTopologyRequest>) -> Answer<v1::GetTopologyResponse> {
        caller::member(&self.0, &request).await?;
        Ok(Response::new(super::topology::page(&self.0, request.get_ref()).await?))
    }

    async fn get_site(&self, request: Request<v1::GetSiteRequest>) -> Answer<Self::GetSiteStream> {
        caller::member(&self.0, &request).await?;
        let row = self.0.store.site().await.map_err(ApiError::from)?;
        let current = self.0.sites.current(&self.0.store).await.map_err(ApiError::from)?;
        let (Some(row), Some((_, site))) = (row, current) else {
            return Err(ApiError::from(HallError::NoSite).into());
        };
        let site = self.message(&row, &site).await?;
        let message = |message| Ok(v1::GetSiteResponse { message: Some(message) });
        let parts = site_files::parts(confirmed::without(row.files)).map(GetSite::Part);
        let messages = std::iter::once(GetSite::Site(site)).chain(parts).map(message);
        Ok(Response::new(Box::pin(tokio_stream::iter(messages))))
    }
}
