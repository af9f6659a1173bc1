//! NetBox's REST API (`docs/integrations/rest-api.md` of netbox-community/netbox): pages of objects, one after another.

use std::path::Path;

use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::given::read_beginning;
use rackwright_import::netbox::{Table, Tables};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::http::{Client, Origin};
use super::netbox::fault;

/// Objects of a page; NetBox returns at most 1,000 unless its MAX_PAGE_SIZE differs.
const PAGE: usize = 500;

/// Most pages of one table.
const MAX_PAGES: usize = 20_000;

/// Longest token file, in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;

/// Reads all tables.
pub async fn read(cx: &Cx, url: &str, token: &Path, ca: Option<&Path>) -> Result<Tables, CliError> {
    let origin = Origin::parse(url)?;
    let token = read_token(token)?;
    // Tokens of NetBox 4.5 and later begin like this and need another scheme.
    let scheme = if token.expose_secret().starts_with("nbt_") {
        "Bearer"
    } else {
        "Token"
    };
    let authorization = SecretString::from(format!("{scheme} {}", token.expose_secret()));
    let client = Client::new(origin, authorization.expose_secret(), ca, cx.global.call_timeout)?;
    let mut tables = Tables::default();
    for table in Table::ALL {
        let count = read_table(&client, table, &mut tables).await?;
        cx.ui
            .note(&format!("{}: {}", table.endpoint(), plural(count, "object")));
    }
    Ok(tables)
}

fn read_token(path: &Path) -> Result<SecretString, CliError> {
    let text = read_beginning("read the token from", path, MAX_TOKEN_BYTES)?;
    let token = SecretString::from(text.trim().to_owned());
    if token.expose_secret().is_empty() || token.expose_secret().contains(char::is_whitespace) {
        return Err(CliError::credential(
            format!("{} contains no token", path.display()),
            "",
        ));
    }
    Ok(token)
}

/// Reads the pages of one table; returns the number of its objects.
async fn read_table(client: &Client, table: Table, tables: &mut Tables) -> Result<usize, CliError> {
    let endpoint = table.endpoint();
    let file = format!("api/dcim/{endpoint}");
    // Rendered configuration contexts are large and not needed (NetBox's own parameter).
    let more = if table == Table::Devices {
        "&exclude=config_context"
    } else {
        ""
    };
    let mut path = format!("{}/{file}/?limit={PAGE}{more}", client.origin().base);
    let mut count = 0;
    for _ in 0..MAX_PAGES {
        let page: Value = serde_json::from_slice(&client.get(&path).await?)
            .map_err(|e| CliError::BadAnswer(format!("{path} is not JSON: {e}")))?;
        let objects = page.get("results").and_then(Value::as_array);
        let objects = objects.ok_or_else(|| CliError::BadAnswer(format!("{path} has no `results`")))?;
        for object in objects {
            let id = object
                .get("id")
                .and_then(Value::as_u64)
                .and_then(|id| u32::try_from(id).ok());
            let id = id.filter(|id| *id > 0);
            let id = id.ok_or_else(|| CliError::BadAnswer(format!("{path}: an object has no `id`")))?;
            tables
                .add_object(table, &file, id, &fields(object))
                .map_err(|error| fault(&error))?;
        }
        count += objects.len();
        let next = match page.get("next") {
            None | Some(Value::Null) => return Ok(count),
            Some(next) => next.as_str().unwrap_or_default(),
        };
        if objects.is_empty() {
            return Err(CliError::BadAnswer(format!("{path} is empty and names a next page")));
        }
        path = next_path(client.origin(), next, &file)?;
    }
    Err(CliError::BadAnswer(format!("{file} has more than {MAX_PAGES} pages")))
}

fn next_path(origin: &Origin, next: &str, file: &str) -> Result<String, CliError> {
    let begins = format!("{}/{file}/?", origin.base);
    let path = origin.path_of(next).filter(|path| path.starts_with(&begins));
    path.ok_or_else(|| {
        let shown: String = next.chars().filter(|c| !c.is_control()).take(200).collect();
        CliError::untrusted(
            format!("the next page of {file} is at {shown}, not at {}", origin.url()),
            "give the address that NetBox uses for itself; a proxy must set X-Forwarded-Proto and X-Forwarded-Host",
        )
    })
}

/// An object's fields as columns: for a reference its name and id, for a choice its value.
fn fields(object: &Value) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("a_terminations", Value::Array(ends)) => terminations("a", ends, &mut fields),
            ("b_terminations", Value::Array(ends)) => terminations("b", ends, &mut fields),
            ("rear_ports", Value::Array(mappings)) => mapping(mappings, &mut fields),
            (name, Value::Object(_)) => reference(name, value, &mut fields),
            (name, value) => fields.extend(scalar(value).map(|text| (name.to_owned(), text))),
        }
    }
    fields
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn reference(name: &str, value: &Value, fields: &mut Vec<(String, String)>) {
    let of = |field: &str| value.get(field).and_then(scalar);
    // Choices have a value; addresses, device types and devices without a name have no name.
    let text = ["value", "name", "address", "model", "display"]
        .iter()
        .find_map(|field| of(field));
    fields.extend(text.map(|text| (name.to_owned(), text)));
    fields.extend(of("id").map(|id| (format!("{name}_id"), id)));
}

/// The rear port of a patch panel's front port, as in NetBox 4.5 and later. Several mappings count as none.
fn mapping(mappings: &[Value], fields: &mut Vec<(String, String)>) {
    let [one] = mappings else { return };
    let of = |name: &str| one.get(name).and_then(scalar);
    fields.extend(of("rear_port").map(|id| ("rear_port_id".to_owned(), id)));
    fields.extend(of("rear_port_position").map(|position| ("rear_port_position".to_owned(), position)));
}

/// The only end of a cable; several ends are listed with all their names, which match no object.
fn terminations(side: &str, ends: &[Value], fields: &mut Vec<(String, String)>) {
    let text = |value: Option<&Value>| value.and_then(scalar);
    let name = |end: &Value| text(end.pointer("/object/name")).or_else(|| text(end.pointer("/object/display")));
    let names: Vec<String> = ends.iter().filter_map(name).collect();
    fields.push((format!("termination_{side}"), names.join(",")));
    let [end] = ends else { return };
    fields.extend(text(end.get("object_type")).map(|kind| (format!("side_{side}_type"), kind)));
    fields.extend(text(end.get("object_id")).map(|id| (format!("termination_{side}_id"), id)));
    let device = end.pointer("/object/device");
    let device = device.and_then(|device| text(device.get("name")).or_else(|| text(device.get("display"))));
    fields.extend(device.map(|device| (format!("device_{side}"), device)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_become_columns() {
        let object = serde_json::json!({
            "id": 3, "name": null, "rack": {"id": 4, "name": "r1", "display": "r1 (x)"}, "tags": [],
            "device_type": {"id": 5, "model": "DGX", "slug": "dgx"}, "status": {"value": "active", "label": "Active"},
            "oob_ip": {"id": 6, "address": "10.0.0.1/24"}, "position": 3.0, "desc_units": false,
            "a_terminations": [{"object_type": "dcim.interface", "object_id": 9, "object": {"name": "x", "device": {"name": "d"}}}],
            "b_terminations": [{"object": {"name": "y"}}, {"object": {"name": "z"}}],
            "rear_ports": [{"position": 1, "rear_port": 7, "rear_port_position": 3}],
        });
        let got: Vec<String> = fields(&object)
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            got,
            [
                "id=3",
                "rack=r1",
                "rack_id=4",
                "device_type=DGX",
                "device_type_id=5",
                "status=active",
                "oob_ip=10.0.0.1/24",
                "oob_ip_id=6",
                "position=3.0",
                "desc_units=false",
                "termination_a=x",
                "side_a_type=dcim.interface",
                "termination_a_id=9",
                "device_a=d",
                "termination_b=y,z",
                "rear_port_id=7",
                "rear_port_position=3"
            ]
        );
        let several = serde_json::json!({"id": 3, "rear_ports": [{"rear_port": 7}, {"rear_port": 8}]});
        assert_eq!(fields(&several), [("id".to_owned(), "3".to_owned())]);
    }
}
