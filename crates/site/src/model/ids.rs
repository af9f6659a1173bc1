//! One typed id per kind: an index into the list of that kind in [`super::Site`].

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        // Not every kind has a lookup by name.
        #[allow(dead_code)]
        impl $name {
            /// Stands for an object that could not be found. Occurs only while a file is read, never in a checked site.
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
    /// The outlet layout of a kind of rack PDU.
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
    /// An InfiniBand fabric.
    FabricId;
    /// An InfiniBand switch.
    SwitchId;
    /// A cable between two ports.
    CableId;
    /// A customer.
    CustomerId;
}
