//! `rackwright site import`: site files from external sources.

mod api;
mod fabric;
mod http;
mod netbox;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::Format;
use rackwright_import::{Imported, Options, SkuFile};
use serde_json::json;

use super::load::{Files, read_file, refused};

/// `rackwright site import`
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Rooms, racks, power, nodes, switches and cables from NetBox's API or its CSV exports
    Netbox(Box<netbox::NetboxArgs>),
    /// Switches, nodes and cables from the output of ibnetdiscover
    Fabric(fabric::FabricArgs),
}

/// Arguments of both commands.
#[derive(Debug, Args)]
struct Common {
    /// Site file with the `skus` of the nodes (power, PSUs, height, HCAs); its SKUs become a part of the written file
    #[arg(long, value_name = "FILE")]
    sku_file: Option<PathBuf>,
    /// Name of the site
    #[arg(long, default_value = "imported", value_parser = super::name)]
    name: String,
    /// File to write (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Runs an import command.
pub async fn run(cx: &Cx, command: ImportCommand) -> Result<(), CliError> {
    match command {
        ImportCommand::Netbox(args) => netbox::run(cx, &args).await,
        ImportCommand::Fabric(args) => fabric::run(cx, &args),
    }
}

impl Common {
    /// The SKU file, checked.
    fn skus(&self, cx: &Cx) -> Result<Option<SkuFile>, CliError> {
        let Some(path) = &self.sku_file else { return Ok(None) };
        let (name, text) = (path.display().to_string(), read_file(path)?);
        SkuFile::read(&name, &text).map(Some).map_err(|findings| {
            let files = Files::of(vec![(name, text)]);
            eprint!("{}", files.render(&findings, cx.ui.paint_errors()));
            refused(&findings)
        })
    }

    fn output(&self) -> String {
        self.file
            .as_deref()
            .map_or_else(|| "site.yaml".to_owned(), |file| file.display().to_string())
    }

    fn options<'a>(&'a self, output: &'a str, skus: Option<&'a SkuFile>) -> Options<'a> {
        Options {
            site: &self.name,
            output,
            skus,
        }
    }

    /// Writes the file, shows the findings, and ends with an error if something is missing. `sources` are the files
    /// that were read, for showing their lines.
    fn finish(&self, cx: &Cx, imported: Imported, sources: Vec<(String, String)>) -> Result<(), CliError> {
        let Imported { text, site, findings } = imported;
        let is_too_large = text.is_empty();
        if let Some(file) = self.file.as_deref().filter(|_| !is_too_large) {
            write(file, &text)?;
        }
        let summary = site.map(|site| site.summary());
        match cx.ui.format() {
            Format::Json | Format::Yaml => cx.ui.value(&json!({
                "errors": findings.errors,
                "warnings": findings.warnings,
                "left_out": findings.left_out(),
                "findings": findings.list,
                "site": summary,
                "text": self.file.is_none().then_some(&text),
            }))?,
            Format::Name => cx.ui.line(&self.name)?,
            Format::Table => {
                if self.file.is_none() {
                    cx.ui.line(text.trim_end())?;
                }
                let mut files = sources;
                files.push((self.output(), text));
                eprint!("{}", Files::of(files).render(&findings, cx.ui.paint_errors()));
                if let (Some(file), Some(summary)) = (&self.file, &summary) {
                    cx.ui.say(&format!("{summary}"))?;
                    cx.ui.say(&format!("{} written", file.display()))?;
                }
                if findings.warnings > 0 {
                    cx.ui.note(&plural(findings.warnings, "warning"));
                }
            }
        }
        match summary {
            Some(_) => Ok(()),
            None if is_too_large => Err(CliError::usage(
                format!("{} was not written: it is too large for a site", self.output()),
                "the findings name its size and the limit",
            )),
            None => Err(self.incomplete(findings.errors)),
        }
    }

    fn incomplete(&self, errors: usize) -> CliError {
        let (errors, output) = (plural(errors, "error"), self.output());
        let message = match self.file {
            Some(_) => format!("{errors}: {output} was written, but is not complete"),
            None => format!("{errors}: the written site file is not complete"),
        };
        CliError::usage(
            message,
            "fill in the fields marked MISSING, then run `rackwright site validate`",
        )
    }
}

fn write(file: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(file, text).map_err(|e| CliError::given("write", file, e))
}
