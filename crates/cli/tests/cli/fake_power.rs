//! The fake's power and cooling, and its control plane.

use rackwright_api::v1::control_service_server::ControlService;
use rackwright_api::v1::power_service_server::PowerService;
use rackwright_api::v1::*;
use tonic::{Request, Response, Status};

use crate::fake::{Answer, Service};

/// The fake's data.
#[derive(Default)]
pub struct Power {
    pub explained: Vec<ExplainPowerResponse>,
    pub rows: Vec<PowerHeadroom>,
    pub alarms: Vec<Alarm>,
    pub coverage: Vec<ReadingCoverage>,
}

#[tonic::async_trait]
impl PowerService for Service {
    async fn explain_power(&self, request: Request<ExplainPowerRequest>) -> Answer<ExplainPowerResponse> {
        self.enter("ExplainPower", &request, "")?;
        let request = request.into_inner();
        let state = self.state();
        let known = state.power.explained.iter().find(|one| one.name == request.name);
        let mut page = known
            .cloned()
            .ok_or_else(|| Status::not_found(format!("{} does not exist", request.name)))?;
        // One step per page: the client must read further pages.
        let number: usize = request.page_token.parse().unwrap_or(0);
        let all = page.steps.len();
        page.steps = page.steps.into_iter().skip(number).take(1).collect();
        page.next_page_token = if number + 1 < all {
            (number + 1).to_string()
        } else {
            String::new()
        };
        Ok(Response::new(page))
    }

    async fn get_power_report(&self, request: Request<GetPowerReportRequest>) -> Answer<GetPowerReportResponse> {
        self.enter("GetPowerReport", &request, "")?;
        let request = request.into_inner();
        if request.level == "row" {
            return Err(Status::invalid_argument("level: must be one of utility, panel"));
        }
        let state = self.state();
        let rows = state.power.rows.iter().filter(|row| row.kind == request.level);
        let rows: Vec<_> = rows.cloned().collect();
        let total = i32::try_from(rows.len()).unwrap();
        let number: usize = request.page_token.parse().unwrap_or(0);
        let more = number + 1 < rows.len();
        Ok(Response::new(GetPowerReportResponse {
            rows: rows.into_iter().skip(number).take(1).collect(),
            next_page_token: if more { (number + 1).to_string() } else { String::new() },
            total,
        }))
    }

    async fn list_alarms(&self, request: Request<ListAlarmsRequest>) -> Answer<ListAlarmsResponse> {
        self.enter("ListAlarms", &request, "")?;
        let state = self.state();
        Ok(Response::new(ListAlarmsResponse {
            alarms: state.power.alarms.clone(),
            coverage: state.power.coverage.clone(),
            ..Default::default()
        }))
    }
}

#[tonic::async_trait]
impl ControlService for Service {
    async fn get_control(&self, request: Request<GetControlRequest>) -> Answer<Control> {
        self.enter("GetControl", &request, "")?;
        Ok(Response::new(Control {
            warnings: vec!["the boot network and the BMC network are one".into()],
            ..Control::default()
        }))
    }

    async fn resume_control(&self, _request: Request<ResumeControlRequest>) -> Answer<Control> {
        Err(Status::unimplemented("the fake is never paused"))
    }

    async fn prove_database(&self, _request: Request<ProveDatabaseRequest>) -> Answer<()> {
        Err(Status::unimplemented("the fake has no database"))
    }
}
