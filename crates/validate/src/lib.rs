//! Validates an installed system over SSH, hands it over, and makes the seed with the provisioning key.
//!
//! The order of a deployment: [`seed`] is written to the disk with the image; [`wait_reachable`] returns a [`Session`] as
//! soon as the installed system accepts the provisioning key and shows the host key from the seed; [`probe`] reads the
//! machine with one shell script; [`judge`] compares, purely, with the inventory and a [`Profile`]; [`hand_over`] removes
//! the provisioning key and proves that it is refused. [`Logins`] keeps the session between these steps.
//!
//! [`serve_traffic`], [`measure`] and [`stop_traffic`] test the network between machines, with a program that is copied to
//! them.
//!
//! [`read_hardware`] runs the hardware probe, a program that is copied too, and [`judge_hardware`] makes checks of its
//! facts.
//!
//! The machine needs only a POSIX shell and its usual tools (busybox will do). A machine with another host key than the
//! expected one gets no data.

mod carried;
mod hand_over;
mod hardware;
mod judge;
mod logins;
mod probe;
mod profile;
mod readings;
mod seed;
mod ssh;
mod traffic;

pub use carried::CarriedProgram;
pub use hand_over::{HandOver, HandOverError, SeedScrub, hand_over, hand_over_in};
pub use hardware::{HardwareReading, PROBE_CHECK, hardware_checks, judge_hardware, read_hardware, read_hardware_below};
pub use judge::{CHECKS, Expected, ImagePatterns, judge, passed};
pub use logins::{Deployment, Logins};
pub use probe::{ClockSpan, Probe, ProbeError, ProbeOptions, probe};
pub use profile::{Fault, Profile, ProfileError, Unexpected};
pub use readings::{
    ClockReading, DiskRead, DriveReading, ImageMarker, NicReading, OsRelease, PciReading, Readings, ReadingsError,
};
pub use seed::{SeedError, SeedSpec, seed};
pub use ssh::{Output, RunLimits, Session, SshError, SshTarget, wait_reachable};
pub use traffic::{
    LaneTarget, MeasureRequest, Measured, Rate, RoundTrip, ServedLane, TrafficError, TrafficServer, TrafficSetup,
    Transport, clear_traffic, keep_traffic, measure, serve_traffic, serve_traffic_below, stop_traffic,
};
