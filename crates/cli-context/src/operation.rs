//! Operations that a command started or asks for: found, reported, and followed to their end on request.

use std::sync::Arc;

use rackwright_api::v1::operation_service_client::OperationServiceClient;
use rackwright_api::v1::{ListOperationsRequest, Operation};

use crate::client::{Client, rpc};
use crate::error::CliError;
use crate::output::{Format, Ui, clean};
use crate::{Cx, names, pages, wait};

/// Operations of one page.
const PAGE: i32 = 1000;

/// At most `limit` operations that match, newest first.
pub async fn matching(client: &Client, filter: &str, limit: usize) -> Result<Vec<Operation>, CliError> {
    pages::first(limit, PAGE, async |page_size, page_token| {
        let request = ListOperationsRequest {
            page_size,
            page_token,
            filter: filter.to_owned(),
        };
        let page = rpc!(
            client,
            OperationServiceClient.list_operations,
            "list operations",
            request
        )
        .await?;
        Ok((page.operations, page.next_page_token))
    })
    .await
}

/// Shows operations that were just started: `sentence` for people, the resources for programs.
pub fn report(ui: &Ui, operations: &[Operation], sentence: impl Fn(&Operation) -> String) -> Result<(), CliError> {
    if operations.is_empty() {
        return Ok(());
    }
    if ui.format() == Format::Table {
        return operations
            .iter()
            .try_for_each(|operation| ui.say(&clean(&sentence(operation))));
    }
    ui.items(operations, |_| String::new())
}

/// Shows operations after a wait, and fails if one of them failed.
pub fn conclude(ui: &Ui, operations: &[Operation]) -> Result<(), CliError> {
    if ui.format() == Format::Table {
        return wait::verdict(ui, operations);
    }
    ui.items(operations, |_| String::new())?;
    // The sentences would disturb the requested format; the errors are still reported.
    wait::verdict(&ui.silenced(), operations)
}

/// Like [`finish`] for one operation, without a return value.
pub async fn finish_one(
    cx: &Cx,
    client: &Arc<Client>,
    started: Operation,
    waiting: wait::WaitArgs,
) -> Result<(), CliError> {
    finish(cx, client, vec![started], waiting).await.map(drop)
}

/// Waits on request, shows the results, and returns the last known forms of the operations.
pub async fn finish(
    cx: &Cx,
    client: &Arc<Client>,
    started: Vec<Operation>,
    waiting: wait::WaitArgs,
) -> Result<Vec<Operation>, CliError> {
    if !waiting.wait {
        report(&cx.ui, &started, |operation| {
            format!(
                "{} started, operation {}",
                wait::title(operation),
                names::last(&operation.name)
            )
        })?;
        return Ok(started);
    }
    let ended = wait::until_done(client, &cx.ui, started, waiting.timeout).await?;
    conclude(&cx.ui, &ended).map(|()| ended)
}
