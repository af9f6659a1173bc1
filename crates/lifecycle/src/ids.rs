//! Ids of stored objects, one type for each kind, so that the compiler refuses a cluster's id as the id of a node.
//!
//! The constructors say where the text was checked: `parse` checks an id that a caller chooses, `named` takes an id from a
//! resource name of a request, and `stored` takes an id from a row, from the site file or from another value of this program.
//! `From` takes an id that stands in the source, as in tests.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest id that a caller may choose, in bytes.
const LENGTH_MAX: usize = 63;

/// The text is no id that a caller may choose.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not 1 to 63 of a-z 0-9 and '-', with a letter or digit first and last")]
pub struct InvalidId(String);

/// Checks an id that a caller chooses: 1 to 63 of a-z 0-9 '-', with a letter or digit first and last.
///
/// # Errors
/// The id has another form.
pub fn check(id: &str) -> Result<(), InvalidId> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = id.bytes().next().is_some_and(good) && id.bytes().last().is_some_and(good);
    if ends && id.len() <= LENGTH_MAX && id.bytes().all(|b| good(b) || b == b'-') {
        return Ok(());
    }
    Err(InvalidId(id.to_owned()))
}

macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        ///
        /// Copies share the text.
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// An id from a row of the database, from the site file, or from another value of this program. The text was
            /// checked when the object was made.
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

macro_rules! named {
    ($($name:ident),+) => { $(
        impl $name {
            /// The id in a resource name of a request: not empty, without a slash. The lookup of the object decides whether
            /// it exists.
            #[must_use]
            pub fn named(text: &str) -> Self {
                Self(text.into())
            }
        }
    )+ };
}

macro_rules! chosen {
    ($($name:ident),+) => { $(
        impl $name {
            /// The id that a caller chooses for a new object.
            ///
            /// # Errors
            /// The text is no id.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                check(text).map(|()| Self(text.into()))
            }
        }
    )+ };
}

id! {
    /// The id of an operation: a UUID, ordered by time.
    OperationId
}

id! {
    /// The id of an image.
    ImageId
}

id! {
    /// The name of a customer. Empty: no customer in particular.
    CustomerId
}

id! {
    /// The id of a node.
    NodeId
}

id! {
    /// The id of a cluster.
    ClusterId
}

impl CustomerId {
    /// True for no customer in particular.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

named!(OperationId, ImageId, CustomerId, ClusterId, NodeId);
chosen!(ImageId, ClusterId, NodeId);

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
