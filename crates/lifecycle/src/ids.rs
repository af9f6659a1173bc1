//! Ids of stored objects, one type for each kind, so that the compiler refuses a cluster's id as the id of a node.
//!
//! The name of a constructor says where the text comes from:
//!
//! - `parse` takes an id that a caller chooses for a new object, and checks it.
//! - `named` takes an id that a caller gives for an existing object. The lookup of the object is the check.
//! - `stored` takes an id from a row, from the site file or from another value of this program, where it was checked before.
//! - `From` takes an id in the source text, as in tests.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest id that a caller may choose, in bytes.
const LENGTH_MAX: usize = 63;

/// The refusal of an id that a caller may not choose. It holds the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not 1 to 63 of a-z 0-9 and '-', with a letter or digit first and last")]
pub struct InvalidId(String);

/// Checks an id that a caller chooses: 1 to 63 of a-z 0-9 '-', with a letter or digit first and last.
///
/// # Errors
/// The id has another form.
pub fn check(id: &str) -> Result<(), InvalidId> {
    let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let has_good_first = id.bytes().next().is_some_and(is_alphanumeric);
    let has_good_last = id.bytes().last().is_some_and(is_alphanumeric);
    let has_good_ends = has_good_first && has_good_last;
    if has_good_ends && id.len() <= LENGTH_MAX && id.bytes().all(|b| is_alphanumeric(b) || b == b'-') {
        return Ok(());
    }
    Err(InvalidId(id.to_owned()))
}

/// Makes the type of one kind of id, with the constructors `stored` and `From`.
macro_rules! id_type {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        ///
        /// Copies share the text.
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// An id from a row of the database, from the site file, or from another value of this program. The text was
            /// checked when the object was created.
            #[must_use]
            pub fn stored(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&'static str> for $name {
            fn from(text: &'static str) -> Self {
                Self(text.into())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl PartialEq<String> for $name {
            fn eq(&self, other: &String) -> bool {
                *self.0 == **other
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, other: &$name) -> bool {
                **self == *other.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::stored)
            }
        }
    };
}

/// Gives the types the constructor `named`.
macro_rules! impl_named {
    ($($name:ident),+) => { $(
        impl $name {
            /// The id that a caller gives for an existing object, as in the resource name of a request. The text is not
            /// checked here: the lookup finds the object or refuses the id.
            #[must_use]
            pub fn named(text: &str) -> Self {
                Self(text.into())
            }
        }
    )+ };
}

/// Gives the types the constructor `parse`.
macro_rules! impl_parse {
    ($($name:ident),+) => { $(
        impl $name {
            /// The id that a caller chooses for a new object; [`check`] has the rules.
            ///
            /// # Errors
            /// The id has another form.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                check(text).map(|()| Self(text.into()))
            }
        }
    )+ };
}

id_type! {
    /// The id of an operation: a UUID, ordered by time.
    OperationId
}

id_type! {
    /// Chosen by the caller who adds the image. [`check`] has the rules.
    ImageId
}

id_type! {
    /// The name of a customer. Empty: no customer in particular.
    CustomerId
}

id_type! {
    /// Chosen by the caller who enrols the node. [`check`] has the rules.
    NodeId
}

id_type! {
    /// Chosen by the caller who creates the cluster. [`check`] has the rules.
    ClusterId
}

impl CustomerId {
    /// Whether this id names no customer in particular.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl_named!(OperationId, ImageId, CustomerId, ClusterId, NodeId);
impl_parse!(ImageId, ClusterId, NodeId);

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    #[test]
    fn chosen_ids_are_dns_labels() {
        for id in ["a", "gpu-001", "0"] {
            assert_eq!(check(id), Ok(()), "{id}");
        }
        for id in ["", "-a", "a-", "A", "a.b", &"a".repeat(64)] {
            assert!(check(id).is_err(), "{id}");
        }
    }

    #[test]
    fn an_id_is_stored_and_shown_as_its_text() {
        let id = OperationId::stored("o-1");
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""o-1""#);
        assert_eq!(serde_json::from_str::<OperationId>(r#""o-1""#).unwrap(), id);
        assert_eq!(format!("{id} {id:?} {id:>5}"), r#"o-1 "o-1"   o-1"#);
    }

    #[test]
    fn maps_by_id_are_searched_by_text() {
        let id = OperationId::stored("o-1");
        assert_eq!(HashMap::from([(id.clone(), 1)]).get("o-1"), Some(&1));
        assert_eq!(BTreeMap::from([(id, 1)]).get("o-1"), Some(&1));
    }
}
