//! Golden values of firmware: an operator approves the values of a node.

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::intent;
use rackwright_lifecycle::EventKind;
use rackwright_nodes::golden_firmware::components::Component;
use rackwright_nodes::golden_firmware::{Values, approve, id_of, parse};
use rackwright_store::{FirmwareValuesRow, GoldenFirmwareRow, StoreError};

use super::super::call::MutatingCall;
use super::super::{convert, names};

const COLLECTION: &str = "golden-firmware";
/// Most golden values of one SKU: each session of its nodes is compared with all of them.
const OF_A_SKU_MAX: usize = 16;

pub(super) fn message(row: &GoldenFirmwareRow) -> Result<v1::GoldenFirmware, StoreError> {
    let Values {
        registers, components, ..
    } = parse(&row.id, &row.body)?;
    let registers = registers.into_iter().map(|(pcr, register)| v1::FirmwareRegister {
        pcr: pcr.into(),
        value: register.value,
        measured: register.events.into_iter().map(|event| event.name).collect(),
    });
    Ok(v1::GoldenFirmware {
        name: format!("{COLLECTION}/{}", row.id),
        sku: row.sku.clone(),
        node: format!("nodes/{}", row.node),
        approved_by: row.approved_by.clone(),
        approve_time: convert::time(row.approved_at),
        reason: row.reason.clone(),
        registers: registers.collect(),
        components: components.into_iter().map(component).collect(),
    })
}

fn component((name, component): (String, Component)) -> v1::FirmwareComponent {
    let is_signed = component.is_signed();
    let measurements = component.measurements.into_iter();
    v1::FirmwareComponent {
        component: name,
        signed: is_signed,
        measurements: measurements
            .map(|(index, one)| v1::ComponentMeasurement {
                index: index.into(),
                what: one.what,
                value: one.value,
            })
            .collect(),
    }
}

pub(super) async fn add(
    call: &MutatingCall<'_>,
    request: &v1::AddGoldenFirmwareRequest,
) -> Result<v1::GoldenFirmware, ApiError> {
    let node = &names::node_id("node", &request.node)?;
    let reason = intent::checked_text("reason", &request.reason)?;
    let mut tx = match call.begin().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let record = tx.node(node).await?;
    let values = tx.firmware_values(node).await?.filter(|row| !row.body.is_empty());
    let Some(values) = values else {
        let hint = "boot the machine into the agent, as `rackwright node readmit` does; it needs an enrolled TPM 2.0";
        return Err(ApiError::precondition(
            &request.node,
            "neither an enrolled TPM nor a component has reported the firmware of the machine",
            hint,
        ));
    };
    let sku = &record.spec.sku;
    let id = id_of(sku, &parse(node.as_str(), &values.body)?);
    if !request.values.is_empty() && request.values != id {
        let fault = format!("the machine reports the values {id} now, not {}", request.values);
        let hint = format!("look at `rackwright node explain {node}` again");
        return Err(ApiError::precondition(&request.node, fault, hint));
    }
    let body = approve(&values.body).map_err(|fault| {
        let hint = "correct this, then boot the machine into the agent again with `rackwright node readmit`";
        ApiError::precondition(&request.node, fault, hint)
    })?;
    let approved = tx.golden_firmware_of(sku).await?;
    let is_full = approved.len() >= OF_A_SKU_MAX;
    let former = approved.into_iter().find(|row| row.id == id);
    if is_full && former.is_none() {
        let fault = format!("SKU {sku} has {OF_A_SKU_MAX} golden values");
        let hint = "remove old values: `rackwright firmware golden remove ID`";
        return Err(ApiError::precondition(&request.node, fault, hint));
    }
    // The present keys of its components become trusted, too.
    if body != values.body {
        let seen = FirmwareValuesRow {
            body: body.clone(),
            ..values
        };
        tx.put_firmware_values(&seen).await?;
    }
    if let Some(former) = &former {
        return call.end(tx, message(former)?).await;
    }
    let row = GoldenFirmwareRow {
        id,
        sku: sku.clone(),
        body,
        approved_at: call.now(),
        approved_by: call.caller().name.clone(),
        node: node.to_owned(),
        reason,
    };
    tx.add_golden_firmware(&row).await?;
    let answer = message(&row)?;
    let words = format!(
        "{} approved the firmware values {} of {node} for SKU {sku}: {}",
        row.approved_by, row.id, row.reason
    );
    tx.add_event(&call.event(EventKind::SecurityGoldenFirmwareAdded, &answer.name, words))
        .await?;
    call.end(tx, answer).await
}

pub(super) async fn remove(call: &MutatingCall<'_>, request: &v1::RemoveGoldenFirmwareRequest) -> Result<(), ApiError> {
    let id = names::id_of("name", &request.name, COLLECTION)?;
    let mut tx = match call.begin::<()>().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let row = tx.remove_golden_firmware(id).await?;
    let words = format!(
        "{} removed the golden firmware values {id} of SKU {}",
        call.caller().name,
        row.sku
    );
    tx.add_event(&call.event(EventKind::SecurityGoldenFirmwareRemoved, &request.name, words))
        .await?;
    call.end(tx, ()).await
}
