//! `PowerService`: power paths, headroom and alarms.

use std::collections::HashMap;
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::power_service_server::PowerService;
use rackwright_control::facility;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::config::facility::Settings;
use rackwright_ground::core::Core;
use rackwright_ground::hall::{HallError, HallSnapshot};
use rackwright_lifecycle::ClusterId;
use rackwright_nodes::start_rooms::StartRoomsCache;
use rackwright_planner::planner::NamedPlacement;
use rackwright_site::model::{DomainKind, NodeId, Site};
use rackwright_site::power::readings::{Below, Expected, Measured, Readings, Rules, expected, measured, trace};
use rackwright_site::power::{Headroom, Ledger, Loads, Reservation, StartRooms, explain, headroom};
use rackwright_store::{AlarmRow, Scope};
use tonic::{Request, Response, Status};

use super::names::{self, Pages};
use super::{caller, convert};

/// Most nodes in an answer.
const NODES_MAX: usize = 1000;
/// Most alarms in an explanation.
const ALARMS_MAX: usize = 100;
/// Most nodes in an alarm.
const HELD_MAX: i64 = 100;
/// Default number of steps in a page.
const STEPS: i32 = 200;

/// Implements `PowerService`.
#[derive(Debug, Clone)]
pub struct Power(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

/// The hall and its readings.
struct View {
    picture: HallSnapshot,
    rooms: Arc<StartRooms>,
    readings: Readings,
    rules: Rules,
}

/// Measured and expected power by domain.
struct Figures {
    drawn: Vec<Measured>,
    wanted: Vec<Expected>,
}

impl View {
    fn site(&self) -> &Site {
        &self.picture.site
    }

    fn figures(&self) -> Figures {
        let (site, now) = (self.site(), clock::now().0);
        let held = facility::reserved(site, &self.picture.live);
        let below = Below::new(site);
        Figures {
            drawn: measured(site, &below, &self.readings, &self.rules, now),
            wanted: expected(site, &|node| held.get(&node).copied()),
        }
    }

    fn watts_of(&self, node: NodeId) -> Option<f64> {
        let seen = self.readings.node(node)?;
        let is_fresh = (clock::now().0 - seen.at_us).abs() <= self.rules.fresh_us;
        seen.value.watts.filter(|_| is_fresh)
    }
}

/// Runs CPU-bound work on a large hall outside the async threads.
async fn work<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| ApiError::Internal(format!("the power figures could not be computed: {e}")))
}

/// The clusters' reservations in a ledger. Reservations that the site does not support any more are left out; `site
/// plan` reports them.
fn ledger(site: &Site, live: &[NamedPlacement]) -> Ledger {
    let mut ledger = Ledger::new(site);
    for placement in live {
        let Some(customer) = site.customer_named(&placement.customer) else {
            continue;
        };
        let names = placement.nodes.iter().chain(&placement.spares);
        let nodes = names.filter_map(|name| site.node_named(name));
        let wanted: Vec<Reservation> = nodes.map(|node| Reservation::full(site, node, customer)).collect();
        if ledger.reserve(site, &wanted).is_err() {
            for one in wanted {
                let _ = ledger.reserve(site, &[one]);
            }
        }
    }
    ledger
}

fn loads(site: &Site, wanted: &[NodeId]) -> Loads {
    let mut loads = Loads::new(site);
    for node in wanted {
        let most = site.sku_of(*node).power.max_watts;
        loads.add(site, *node, most, rackwright_site::model::Redundancy::None);
    }
    loads
}

fn alarm(row: AlarmRow, nodes: Vec<String>) -> v1::Alarm {
    let figure = |thousandths: Option<i64>| thousandths.map(|figure| figure as f64 / 1000.0);
    v1::Alarm {
        name: format!("alarms/{}", row.id),
        kind: row.kind,
        subject: row.subject,
        severity: row.severity,
        message: row.message,
        advice: row.advice,
        measured: figure(row.measured),
        limit: figure(row.limit),
        unit: row.unit,
        node_count: i32::try_from(row.nodes).unwrap_or(i32::MAX),
        nodes: nodes.into_iter().map(|node| format!("nodes/{node}")).collect(),
        blocks: row.blocks,
        cordons: row.cordons,
        open_time: convert::time(row.opened_at),
        seen_time: convert::time(row.seen_at),
    }
}

impl Power {
    async fn view(&self) -> Result<View, ApiError> {
        let core = &self.0;
        let (site, rooms) = core
            .feature::<StartRoomsCache>()
            .rooms(core)
            .await?
            .ok_or(HallError::NoSite)?;
        let picture = core.sites.picture(&core.store).await?;
        Ok(View {
            readings: facility::load(core, &site).await?,
            rules: core.config.facility.as_ref().map(Settings::rules).unwrap_or_default(),
            picture,
            rooms,
        })
    }

    /// The nodes behind a name, in the order of the site.
    async fn nodes_of(&self, view: &View, name: &str) -> Result<Vec<NodeId>, ApiError> {
        let site = view.site();
        let missing = |kind: &'static str, name: &str| ApiError::NotFound {
            kind,
            name: name.to_owned(),
        };
        let placed = |one: &NamedPlacement| -> Vec<NodeId> {
            let names = one.nodes.iter().chain(&one.spares);
            names.filter_map(|name| site.node_named(name)).collect()
        };
        let mut nodes = match name.split_once('/') {
            Some(("nodes", id)) => vec![site.node_named(id).ok_or_else(|| missing("node", id))?],
            Some(("clusters", id)) => {
                let record = self.0.store.cluster(&Scope::Site, &ClusterId::named(id)).await?;
                placed(&rackwright_ground::hall::placement_of(&record)?)
            }
            Some(("customers", id)) => {
                site.customer_named(id).ok_or_else(|| missing("customer", id))?;
                let placements = view.picture.live.iter().filter(|one| one.customer == id);
                placements.flat_map(placed).collect()
            }
            _ => {
                let fault = "must be \"nodes/NODE\", \"clusters/CLUSTER\" or \"customers/CUSTOMER\"";
                return Err(ApiError::invalid("name", fault));
            }
        };
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    async fn explained(&self, request: v1::ExplainPowerRequest) -> Result<v1::ExplainPowerResponse, ApiError> {
        let size = if request.page_size == 0 {
            STEPS
        } else {
            request.page_size
        };
        let limit = names::page_size(size)?;
        let pages = Pages {
            list: "ExplainPower",
            narrowed: &request.name,
            limit,
        };
        let after = place(pages.after(&request.page_token)?)?;
        let view = self.view().await?;
        let nodes = self.nodes_of(&view, &request.name).await?;
        let alarms = self.alarms_of(view.site(), &nodes).await?;
        let name = request.name.clone();
        let (mut response, steps) = work(move || {
            let response = explanation(&view, name, &nodes);
            let figures = view.figures();
            let steps = steps(&view, &nodes, &figures);
            (response, steps)
        })
        .await?;
        response.alarms = alarms;
        let (page, next) = paged(steps, after, limit);
        response.steps = page;
        response.next_page_token = next.map(|next| pages.token_after(&next)).unwrap_or_default();
        Ok(response)
    }

    /// Alarms that hold any of these nodes.
    async fn alarms_of(&self, site: &Site, nodes: &[NodeId]) -> Result<Vec<v1::Alarm>, ApiError> {
        let mut found: HashMap<String, (AlarmRow, Vec<String>)> = HashMap::new();
        for node in nodes.iter().take(NODES_MAX) {
            let name = &site.node(*node).name;
            for row in self
                .0
                .store
                .alarms_of(&rackwright_lifecycle::NodeId::stored(&**name))
                .await?
            {
                let entry = found.entry(row.id.clone()).or_insert_with(|| (row, Vec::new()));
                entry.1.push(name.to_string());
            }
            if found.len() >= ALARMS_MAX {
                break;
            }
        }
        let mut alarms: Vec<v1::Alarm> = found.into_values().map(|(row, nodes)| alarm(row, nodes)).collect();
        alarms.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(alarms)
    }

    async fn report(&self, request: v1::GetPowerReportRequest) -> Result<v1::GetPowerReportResponse, ApiError> {
        let word = if request.level.is_empty() {
            "circuit"
        } else {
            &request.level
        };
        let level = DomainKind::ALL.into_iter().find(|kind| kind.name() == word);
        let Some(level) = level else {
            let known: Vec<&str> = DomainKind::ALL.into_iter().map(DomainKind::name).collect();
            return Err(ApiError::invalid(
                "level",
                format!("must be one of {}", known.join(", ")),
            ));
        };
        let limit = names::page_size(request.page_size)?;
        let pages = Pages {
            list: "GetPowerReport",
            narrowed: word,
            limit,
        };
        let after = place(pages.after(&request.page_token)?)?;
        let view = self.view().await?;
        let rows = work(move || rows(&view, level)).await?;
        let total = i32::try_from(rows.len()).unwrap_or(i32::MAX);
        let (rows, next) = paged(rows, after, limit);
        Ok(v1::GetPowerReportResponse {
            rows,
            next_page_token: next.map(|next| pages.token_after(&next)).unwrap_or_default(),
            total,
        })
    }

    async fn alarms(&self, request: v1::ListAlarmsRequest) -> Result<v1::ListAlarmsResponse, ApiError> {
        let limit = names::page_size(request.page_size)?;
        let pages = Pages {
            list: "ListAlarms",
            narrowed: "",
            limit,
        };
        let after = pages.after(&request.page_token)?;
        let rows = self.0.store.alarms(after, limit).await?;
        let next_page_token = pages.token(rows.len(), rows.last().map(|row| row.id.clone()));
        let mut alarms = Vec::with_capacity(rows.len());
        for row in rows {
            let nodes = self.0.store.nodes_held_by(&row.id, "", HELD_MAX).await?;
            alarms.push(alarm(row, nodes.iter().map(ToString::to_string).collect()));
        }
        let mut coverage = Vec::new();
        if request.page_token.is_empty() {
            for (kind, known, read) in facility::coverage(&self.0).await? {
                coverage.push(v1::ReadingCoverage {
                    kind: kind.to_owned(),
                    known: i32::try_from(known).unwrap_or(i32::MAX),
                    read: i32::try_from(read).unwrap_or(i32::MAX),
                });
            }
        }
        Ok(v1::ListAlarmsResponse {
            alarms,
            next_page_token,
            coverage,
        })
    }
}

/// The end of the previous page.
fn place(token: &str) -> Result<usize, ApiError> {
    match token {
        "" => Ok(0),
        text => text
            .parse()
            .map_err(|_| ApiError::invalid("page_token", "is not a page token of this list")),
    }
}

/// One page, and the start of the next one.
fn paged<T>(all: Vec<T>, after: usize, limit: i64) -> (Vec<T>, Option<String>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let end = after.saturating_add(limit);
    let next = (end < all.len()).then(|| end.to_string());
    (all.into_iter().skip(after).take(limit).collect(), next)
}

fn explanation(view: &View, name: String, nodes: &[NodeId]) -> v1::ExplainPowerResponse {
    let site = view.site();
    let each: Vec<f64> = nodes.iter().map_while(|node| view.watts_of(*node)).collect();
    let mut response = v1::ExplainPowerResponse {
        name,
        nodes: nodes
            .iter()
            .take(NODES_MAX)
            .map(|node| format!("nodes/{}", site.node(*node).name))
            .collect(),
        node_count: i32::try_from(nodes.len()).unwrap_or(i32::MAX),
        reserved_watts: nodes.iter().map(|node| site.sku_of(*node).power.max_watts).sum(),
        measured_watts: (!nodes.is_empty() && each.len() == nodes.len()).then(|| each.iter().sum()),
        ..v1::ExplainPowerResponse::default()
    };
    if response.name.starts_with("nodes/")
        && let [node] = nodes
    {
        let explained = explain(site, &loads(site, nodes), *node);
        let psu = |psu: &rackwright_site::power::PsuPath| v1::PowerPsu {
            psu: i32::try_from(psu.psu).unwrap_or(i32::MAX),
            outlet: psu.outlet.clone().unwrap_or_default(),
            watts: psu.psu_watts,
            outlet_watts: psu.outlet_watts.unwrap_or(0.0),
        };
        let loss = |loss: &rackwright_site::power::LossOutcome| v1::PowerLoss {
            feed: loss.feed.to_string(),
            live: i32::try_from(loss.live).unwrap_or(i32::MAX),
            live_watts: loss.live_watts,
            survives: loss.survives,
        };
        response.psus = explained.psus.iter().map(psu).collect();
        response.losses = explained.losses.iter().map(loss).collect();
    }
    response
}

fn steps(view: &View, nodes: &[NodeId], figures: &Figures) -> Vec<v1::PowerStep> {
    let site = view.site();
    let step = |step: rackwright_site::power::readings::TraceStep| {
        let domain = site.domain(step.domain);
        v1::PowerStep {
            kind: domain.kind.name().to_owned(),
            name: domain.name.to_string(),
            parent: domain
                .parent
                .map(|id| site.domain(id).name.to_string())
                .unwrap_or_default(),
            feed: feed(site, domain.feed),
            rated_watts: step.rated_watts,
            derated_watts: step.capacity_watts,
            reserved_watts: step.reserved_watts,
            own_watts: step.traced_watts,
            measured_watts: step.measured.whole().or(domain.measured_watts),
            nodes: i32::try_from(step.nodes).unwrap_or(i32::MAX),
            starts_at_once: view
                .rooms
                .at(step.domain)
                .map_or(0, |room| i32::try_from(room).unwrap_or(i32::MAX)),
        }
    };
    trace(site, nodes, &figures.drawn, &figures.wanted)
        .into_iter()
        .map(step)
        .collect()
}

fn feed(site: &Site, feed: Option<rackwright_site::model::FeedId>) -> String {
    feed.map(|feed| site.feeds[feed.index()].to_string())
        .unwrap_or_default()
}

/// All vertices of a level, least headroom first.
fn rows(view: &View, level: DomainKind) -> Vec<v1::PowerHeadroom> {
    let site = view.site();
    let drawn = view.figures().drawn;
    let all = headroom(site, &ledger(site, &view.picture.live));
    let mut rows: Vec<Headroom> = all
        .into_iter()
        .filter(|row| site.domain(row.domain).kind == level)
        .collect();
    let share = |row: &Headroom| row.headroom_watts / row.capacity_watts.max(1.0);
    rows.sort_by(|a, b| share(a).total_cmp(&share(b)).then(a.domain.cmp(&b.domain)));
    let row = |row: Headroom| {
        let domain = site.domain(row.domain);
        v1::PowerHeadroom {
            kind: domain.kind.name().to_owned(),
            name: domain.name.to_string(),
            feed: feed(site, domain.feed),
            derated_watts: row.capacity_watts,
            reserved_watts: row.reserved_watts,
            worst_watts: row.worst_watts,
            measured_watts: drawn[row.domain.index()].whole().or(row.measured_watts),
            headroom_watts: row.headroom_watts,
            stranded_watts: row.stranded_watts,
        }
    };
    rows.into_iter().map(row).collect()
}

#[tonic::async_trait]
impl PowerService for Power {
    async fn explain_power(&self, request: Request<v1::ExplainPowerRequest>) -> Answer<v1::ExplainPowerResponse> {
        caller::member(&self.0, &request).await?;
        Ok(Response::new(self.explained(request.into_inner()).await?))
    }

    async fn get_power_report(
        &self,
        request: Request<v1::GetPowerReportRequest>,
    ) -> Answer<v1::GetPowerReportResponse> {
        caller::member(&self.0, &request).await?;
        Ok(Response::new(self.report(request.into_inner()).await?))
    }

    async fn list_alarms(&self, request: Request<v1::ListAlarmsRequest>) -> Answer<v1::ListAlarmsResponse> {
        caller::member(&self.0, &request).await?;
        Ok(Response::new(self.alarms(request.into_inner()).await?))
    }
}
