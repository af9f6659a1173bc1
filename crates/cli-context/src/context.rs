//! The context of a command: its options, the output, and the way to the control plane.

use std::sync::Arc;

use crate::client::Client;
use crate::error::CliError;
use crate::options::{Global, Output};
use crate::output::Ui;

/// The context of a command.
#[derive(Debug)]
pub struct Cx {
    pub ui: Ui,
    pub global: Global,
}

impl Cx {
    pub fn new(global: Global) -> Self {
        Self {
            ui: Ui::new(global.output.format(), global.quiet)
                .with_wide(global.output == Output::Wide)
                .with_path(global.output.path()),
            global,
        }
    }

    /// A client for the chosen context.
    pub async fn client(&self) -> Result<Arc<Client>, CliError> {
        Client::of_context(&self.ui, &self.global).await
    }
}
