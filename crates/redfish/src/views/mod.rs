//! Tolerant views: each property that is odd is absent, the rest of the resource stays readable.

mod action;
mod boot;
mod components;
mod manager;
mod network;
mod service_root;
mod system;
mod task;
mod virtual_media;

pub use action::{Action, ActionInfo};
pub use boot::{BootMode, BootView};
pub use components::{Drive, Memory, Processor};
pub use manager::Manager;
pub use network::{EthernetInterface, MacAddress, NetworkAdapter, NetworkFunction, NetworkPort};
pub use service_root::ServiceRoot;
pub use system::{PowerState, System};
pub use task::{Task, TaskPhase};
pub use virtual_media::{MediaKind, VirtualMedia};

/// Makes a view over a resource.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name($crate::resource::Resource);

        impl $name {
            /// The resource below the view.
            pub fn resource(&self) -> &$crate::resource::Resource {
                &self.0
            }

            /// The link by which it was fetched.
            pub fn path(&self) -> &str {
                self.0.path()
            }
        }

        impl From<$crate::resource::Resource> for $name {
            fn from(resource: $crate::resource::Resource) -> Self {
                Self(resource)
            }
        }
    };
}
use view;
