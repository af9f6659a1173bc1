//! Parses stored JSON and messages. Unreadable data are an error that names the row; they never count as missing.

use std::str::FromStr;

use rackwright_api::v1::Inventory;
use rackwright_store::StoreError;
use serde::de::DeserializeOwned;

/// Parses stored JSON. An empty text was never stored and gives the default.
///
/// # Errors
/// The text does not parse.
pub fn json<T: DeserializeOwned + Default>(what: &'static str, id: &str, text: &str) -> Result<T, StoreError> {
    if text.is_empty() {
        return Ok(T::default());
    }
    present(what, id, text)
}

/// Parses stored JSON that has to be there.
///
/// # Errors
/// The text does not parse.
pub fn present<T: DeserializeOwned>(what: &'static str, id: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| corrupt(what, id, error))
}

/// Parses a stored word, such as a digest or an address.
///
/// # Errors
/// The text does not parse.
pub fn parsed<T>(what: &'static str, id: &str, text: &str) -> Result<T, StoreError>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    text.parse().map_err(|error| corrupt(what, id, error))
}

/// Decodes a stored message.
///
/// # Errors
/// The bytes do not decode.
pub fn message<M: prost::Message + Default>(what: &'static str, id: &str, bytes: &[u8]) -> Result<M, StoreError> {
    M::decode(bytes).map_err(|error| corrupt(what, id, error))
}

/// The inventory of a node or machine, if one is stored.
///
/// # Errors
/// The bytes do not decode.
pub fn inventory(id: &str, bytes: Option<&[u8]>) -> Result<Option<Inventory>, StoreError> {
    bytes.map(|bytes| message("inventory", id, bytes)).transpose()
}

fn corrupt(what: &'static str, id: &str, source: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Corrupt {
        what,
        id: id.to_owned(),
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_data_is_a_named_error() {
        assert_eq!(json::<Vec<u8>>("list", "n1", "").unwrap(), [0_u8; 0]);
        assert_eq!(json::<Vec<u8>>("list", "n1", "[1]").unwrap(), [1]);
        assert!(present::<Vec<u8>>("list", "n1", "").is_err());
        let error = json::<Vec<u8>>("list", "n1", "{").unwrap_err();
        assert!(
            error.to_string().contains("list") && error.to_string().contains("n1"),
            "{error}"
        );
        assert_eq!(parsed::<u8>("number", "n1", "7").unwrap(), 7);
        let error = parsed::<u8>("number", "n1", "seven").unwrap_err();
        assert_eq!(error.to_string(), "number \"n1\" cannot be read back");
        assert_eq!(inventory("n1", None).unwrap(), None);
        assert_eq!(inventory("n1", Some(&[])).unwrap(), Some(Inventory::default()));
        let error = inventory("n1", Some(b"no message")).unwrap_err();
        assert!(
            matches!(error, StoreError::Corrupt { what: "inventory", .. }),
            "{error}"
        );
    }
}
