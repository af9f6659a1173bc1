//! The fake's sessions and API keys.

use rackwright_api::v1::session_service_server::SessionService;
use rackwright_api::v1::*;
use tonic::{Request, Response, Status};

use crate::fake::{Answer, Service, key};
use crate::fixtures::{api_keys, fixed, sessions};

const TOKEN: &str = "rw1_00000000000000000000000000000000000000000000000000000000000000aa";
const KEY: &str = "rwk_00000000000000000000000000000000000000000000000000000000000000bb";

fn missing(kind: &str, name: &str) -> Status {
    Status::not_found(format!("{kind} {name} does not exist"))
}

#[tonic::async_trait]
impl SessionService for Service {
    async fn create_login_token(&self, request: Request<CreateLoginTokenRequest>) -> Answer<CreateLoginTokenResponse> {
        self.enter("CreateLoginToken", &request, &key(&request.get_ref().mutation))?;
        Ok(Response::new(CreateLoginTokenResponse {
            token: TOKEN.into(),
            url: format!("https://rack.example:7080/login#{TOKEN}"),
            expire_time: Some(fixed(60)),
        }))
    }

    async fn open_session(&self, _request: Request<OpenSessionRequest>) -> Answer<OpenSessionResponse> {
        Err(Status::unimplemented("browsers open sessions"))
    }

    async fn list_sessions(&self, request: Request<ListSessionsRequest>) -> Answer<ListSessionsResponse> {
        self.enter("ListSessions", &request, "")?;
        // One session per page: the client must read further pages.
        let number: usize = request.get_ref().page_token.parse().unwrap_or(0);
        let all = sessions();
        Ok(Response::new(ListSessionsResponse {
            next_page_token: match number + 1 {
                next if next < all.len() => next.to_string(),
                _ => String::new(),
            },
            sessions: all.into_iter().skip(number).take(1).collect(),
        }))
    }

    async fn end_session(&self, request: Request<EndSessionRequest>) -> Answer<()> {
        self.enter("EndSession", &request, &key(&request.get_ref().mutation))?;
        let name = &request.get_ref().name;
        let found = sessions().into_iter().find(|session| session.name == *name);
        found.map(|_| Response::new(())).ok_or_else(|| missing("session", name))
    }

    async fn create_api_key(&self, request: Request<CreateApiKeyRequest>) -> Answer<CreateApiKeyResponse> {
        self.enter("CreateApiKey", &request, &key(&request.get_ref().mutation))?;
        let request = request.into_inner();
        let mut made = api_keys().remove(0);
        made.label = request.label;
        if request.role != 0 {
            made.role = request.role;
        }
        Ok(Response::new(CreateApiKeyResponse {
            key: KEY.into(),
            api_key: Some(made),
        }))
    }

    async fn list_api_keys(&self, request: Request<ListApiKeysRequest>) -> Answer<ListApiKeysResponse> {
        self.enter("ListApiKeys", &request, "")?;
        Ok(Response::new(ListApiKeysResponse {
            api_keys: api_keys(),
            next_page_token: String::new(),
        }))
    }

    async fn delete_api_key(&self, request: Request<DeleteApiKeyRequest>) -> Answer<()> {
        self.enter("DeleteApiKey", &request, &key(&request.get_ref().mutation))?;
        let name = &request.get_ref().name;
        let found = api_keys().into_iter().find(|one| one.name == *name);
        found.map(|_| Response::new(())).ok_or_else(|| missing("API key", name))
    }
}
