//! Headless Chromium, driven by chromedriver, and the scripts that measure in its pages.

use std::fmt::Display;
use std::process::Stdio;
use std::time::Duration;

use rackwright_cli_context::error::CliError;
use rackwright_free_port::free_port;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::WebDriver;
use tokio::process::{Child, Command};

use crate::chromium::capabilities;

/// Time limit for the start of the browser.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Time limit of a script: 100,000 nodes take their time on a busy computer.
const SCRIPT_LIMIT: Duration = Duration::from_secs(600);

/// A browser, and the program that drives it. Dropping it stops both.
pub struct Browser {
    driver: WebDriver,
    address: String,
    _program: Child,
    _profile: TempDir,
}

/// An error of the browser.
fn failed(error: impl Display) -> CliError {
    CliError::BadAnswer(format!("the browser: {error}"))
}

impl Browser {
    /// Starts a browser for the console at an address.
    pub async fn start(address: &str) -> Result<Self, CliError> {
        let port = free_port().map_err(|e| CliError::io("find a free port", e))?;
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).kill_on_drop(true);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let program = command
            .spawn()
            .map_err(|e| CliError::io("start chromedriver (Debian's package chromium-driver)", e))?;
        let profile = TempDir::with_prefix("rackwright-bench-").map_err(|e| CliError::io("make a directory", e))?;
        let wanted = capabilities(profile.path()).map_err(failed)?;
        let url = format!("http://127.0.0.1:{port}");
        let mut why = String::new();
        let connect = async {
            loop {
                match WebDriver::new(&url, wanted.clone()).await {
                    Ok(driver) => return driver,
                    // chromedriver does not listen yet.
                    Err(error) => why = error.to_string(),
                }
                tokio::task::yield_now().await;
            }
        };
        let Ok(driver) = tokio::time::timeout(START_LIMIT, connect).await else {
            return Err(failed(format!("it does not start: {why}")));
        };
        driver.set_script_timeout(SCRIPT_LIMIT).await.map_err(failed)?;
        let observer = json!({ "source": include_str!("observe.js") });
        let cdp = driver.cdp();
        let added = cdp.send_raw("Page.addScriptToEvaluateOnNewDocument", observer).await;
        added.map_err(failed)?;
        Ok(Self {
            driver,
            address: address.to_owned(),
            _program: program,
            _profile: profile,
        })
    }

    /// Opens a whole address, or a path of the console.
    pub async fn open(&self, place: &str) -> Result<(), CliError> {
        let address = match place.starts_with('/') {
            true => format!("{}{place}", self.address),
            false => place.to_owned(),
        };
        self.driver.goto(&address).await.map_err(failed)
    }

    /// Runs a script that ends at once.
    pub async fn run(&self, script: &str, arguments: Vec<Value>) -> Result<(), CliError> {
        self.driver.execute(script, arguments).await.map(drop).map_err(failed)
    }

    /// The answer of a script that waits for what it measures.
    pub async fn measure<T: DeserializeOwned>(&self, script: &str, arguments: Vec<Value>) -> Result<T, CliError> {
        let answer = self.driver.execute_async(script, arguments).await.map_err(failed)?;
        answer.convert().map_err(failed)
    }

    /// Waits until the page shows a text; returns the milliseconds since the start of the page's load.
    pub async fn shows(&self, text: &str) -> Result<f64, CliError> {
        self.measure(include_str!("shown.js"), vec![text.into()]).await
    }

    /// Ends the browser.
    pub async fn end(self) -> Result<(), CliError> {
        self.driver.quit().await.map_err(failed)
    }
}
