//! Tolerant views: an odd property counts as absent, and the rest of the resource stays readable.

mod account;
mod action;
mod bios;
mod boot;
mod chassis;
mod components;
mod cooling;
mod manager;
mod network;
mod power_equipment;
mod service_root;
mod system;
mod task;
mod virtual_media;

pub use account::{Account, AccountPolicy, AccountService, Role};
pub use action::{Action, ActionInfo};
pub use bios::{AttributeKind, AttributeRegistry, AttributeRule, Bios, BiosValue, SecureBoot};
pub use boot::{BootMode, BootView};
pub(crate) use chassis::is_in_use;
pub use chassis::{Chassis, PowerSupply, Temperature};
pub use components::{Drive, Memory, Processor};
pub use cooling::{ConnectorSide, CoolantConnector, CoolingUnit, LeakDetector, LeakState};
pub use manager::Manager;
pub use network::{EthernetInterface, MacAddress, NetworkAdapter, NetworkFunction, NetworkPort};
pub use power_equipment::{Breaker, Circuit, Outlet, PowerDistribution};
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

            /// The link from which it was fetched.
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
