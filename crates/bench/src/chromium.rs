//! Headless Chromium, as benchmarks and tests start it by WebDriver.

use std::path::Path;

use thirtyfour::error::WebDriverResult;
use thirtyfour::{CapabilitiesHelper as _, ChromeCapabilities, ChromiumLikeCapabilities as _, DesiredCapabilities};

const ARGUMENTS: [&str; 10] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1440,900",
];

/// The WebDriver capabilities of a browser with its profile in this folder. It accepts the certificates of a site's own
/// authority.
///
/// # Errors
/// A capability cannot be encoded.
pub fn capabilities(profile: &Path) -> WebDriverResult<ChromeCapabilities> {
    let mut wanted = DesiredCapabilities::chrome();
    for argument in ARGUMENTS {
        wanted.add_arg(argument)?;
    }
    wanted.add_arg(&format!("--user-data-dir={}", profile.display()))?;
    wanted.accept_insecure_certs(true)?;
    Ok(wanted)
}
