//! What the commands of all command-line programs share: the context of a command.
//!
//! `client` is the connection to the control plane (endpoints tried in order, retries with the same idempotency key),
//! `login` the first contact, `config` the contexts and credentials on disk, `output` the tables, JSON, YAML, colours and
//! live lines, `pages` reads lists page by page, `wait` and `operation` follow operations, `upload` sends images, `given`
//! reads the values that arguments refer to, and `error` has one sentence and an exit code for everything that can go wrong.

pub mod client;
pub mod config;
pub mod error;
pub mod given;
pub mod login;
pub mod mutation;
pub mod names;
pub mod nodes;
pub mod operation;
pub mod output;
pub mod pages;
pub mod program;
pub mod retry;
pub mod save;
pub mod tls;
pub mod units;
pub mod upload;
pub mod wait;

mod context;
mod options;
mod paint;
mod random;

pub use crate::context::Cx;
pub use crate::options::{Global, Output};
