//! `rackwright site validate`

use std::path::PathBuf;

use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::Format;
use rackwright_site::file::Checked;
use serde_json::json;

use super::load::{Files, refused};

/// Shows the findings and, if there is no error, a summary of the site in numbers.
pub fn run(cx: &Cx, paths: &[PathBuf]) -> Result<(), CliError> {
    let files = Files::read(paths)?;
    let Checked { site, findings } = files.check_fabric();
    let summary = site.map(|site| site.summary());
    match cx.ui.format() {
        Format::Json | Format::Yaml => cx.ui.value(&json!({
            "files": files.names(),
            "errors": findings.errors,
            "warnings": findings.warnings,
            "left_out": findings.left_out(),
            "findings": findings.list,
            "site": summary,
        }))?,
        Format::Name => {
            if let Some(summary) = &summary {
                cx.ui.line(&summary.name)?;
            }
        }
        Format::Table => {
            let text = files.render(&findings, cx.ui.paint());
            if !text.is_empty() {
                cx.ui.line(text.trim_end())?;
            }
            if let Some(summary) = &summary {
                cx.ui.say(&format!("{summary}"))?;
            }
            if findings.warnings > 0 && findings.errors == 0 {
                cx.ui.note(&plural(findings.warnings, "warning"));
            }
        }
    }
    if summary.is_some() {
        Ok(())
    } else {
        Err(refused(&findings))
    }
}
