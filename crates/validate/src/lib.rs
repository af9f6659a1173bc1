//! Validates an installed system over SSH, hands it over, and makes the seed that lets us in.
//!
//! The order of one deploy: [`seed`] goes to the disk with the image; [`wait_reachable`] returns a [`Session`] as soon
//! as the installed system lets the provisioning key in (and shows the host key that we made); [`probe`] reads the
//! machine with one shell script; [`judge`] compares, purely, with the inventory and a [`Profile`]; [`hand_over`]
//! removes the provisioning key and proves that it is refused. [`Logins`] keeps the session from one of these to the next.
//!
//! [`serve_traffic`], [`measure`] and [`stop_traffic`] test the network between machines, by a program that is brought along.
//!
//! Nothing needs to be installed on the machine but a POSIX shell and what belongs to it (busybox will do), and no
//! other host key than the expected one is ever talked to.

mod hand_over;
mod judge;
mod logins;
mod probe;
mod profile;
mod readings;
mod seed;
mod ssh;
mod traffic;

pub use hand_over::{HandOver, HandOverError, SeedScrub, hand_over, hand_over_in};
pub use judge::{CHECKS, Expected, ImageSays, judge, passed};
pub use logins::{Deployment, Logins};
pub use probe::{ClockSpan, Probe, ProbeError, ProbeOptions, probe};
pub use profile::{Fault, Profile, ProfileError, Unexpected};
pub use readings::{
    ClockReading, DiskRead, DriveReading, ImageMarker, NicReading, OsRelease, PciReading, Readings, ReadingsError,
};
pub use seed::{SeedError, SeedSpec, seed};
pub use ssh::{Output, RunLimits, Session, SshError, SshTarget, wait_reachable};
pub use traffic::{
    Goal, Measured, Order, Rate, RoundTrip, Served, ServedLane, TrafficError, TrafficProgram, TrafficSetup, Transport,
    clear_traffic, keep_traffic, measure, serve_traffic, serve_traffic_below, stop_traffic,
};
