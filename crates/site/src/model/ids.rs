//! One typed id per kind: the index of a thing in its list of [`super::Site`].

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        // Not every kind is looked up by name.
        #[allow(dead_code)]
        impl $name {
            /// Stands for a thing that could not be found. Only while a file is read: no checked site holds it.
            pub(crate) const NONE: Self = Self(u32::MAX);

            /// The index in the site's list.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of an index.
            #[must_use]
            pub fn of(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }

            pub(crate) fn is_none(self) -> bool {
                self == Self::NONE
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", stringify!($name), self.0)
            }
        }
    )*};
}

ids! {
    /// A room: a hall, or a building that holds halls.
    RoomId;
    /// A rack.
    RackId;
    /// A vertex of the power tree. Parents have smaller ids than their children.
    DomainId;
    /// What the outlets of a kind of rack PDU are.
    LayoutId;
    /// A feed letter.
    FeedId;
    /// A CRAH, a rear-door exchanger or a CDU.
    CoolingUnitId;
    /// A liquid loop.
    LoopId;
    /// A class of identical nodes.
    SkuId;
    /// A server.
    NodeId;
    /// An InfiniBand switch.
    SwitchId;
    /// A cable between two ports.
    CableId;
    /// A customer.
    CustomerId;
}
