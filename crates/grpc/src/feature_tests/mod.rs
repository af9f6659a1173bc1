//! Features together with the calls that begin their work.

mod chunks;
pub mod clusters;
mod credentials;
pub mod fake_bmc;
mod other_daemon;
mod user_data;
