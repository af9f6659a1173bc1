//! `rackwright bmc record`

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::{Format, clean};
use rackwright_cli_context::{Cx, units};
use rackwright_redfish_record::{RecordLimits, Recording};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::access::{Access, AccessArgs, explain};

/// Most gaps that are shown on the terminal.
const SHOWN_GAPS: usize = 10;

/// `rackwright bmc record`
#[derive(Debug, Args)]
pub struct RecordArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Directory for the recording; must be new or empty
    dir: PathBuf,
    /// Maximum number of resources to read
    #[arg(long, value_name = "N", default_value_t = RecordLimits::default().resources)]
    max_resources: usize,
    /// Time limit; resources read before it are kept
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1h")]
    max_time: Duration,
}

/// Walks, scrubs and writes.
pub async fn run(cx: &Cx, args: RecordArgs) -> Result<(), CliError> {
    refuse_non_empty(&args.dir)?;
    let access = Access::open(cx, args.access).await?;
    let limits = RecordLimits {
        resources: args.max_resources,
        time: args.max_time,
        ..RecordLimits::default()
    };
    let ui = &cx.ui;
    let mut reported = 0;
    let progress = |read: usize, left: usize| {
        if read >= reported + 500 {
            reported = read;
            ui.note(&format!("{read} resources read, at least {left} left"));
        }
    };
    let recording = Recording::of(&access.client, &limits, progress).await;
    access.close(cx).await;
    let recording = recording.map_err(explain)?;
    let known = [access.password.expose_secret().to_owned(), access.host.clone()];
    let recording = recording.scrubbed(&known, &access.user);
    let written = write(&args.dir, &recording)?;
    print_summary(cx, &args.dir, &recording, written)
}

fn refuse_non_empty(dir: &Path) -> Result<(), CliError> {
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(CliError::usage(
                format!("{} is not empty; nothing was read", dir.display()),
                "give a directory that does not exist yet",
            )),
        },
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(CliError::given("read", dir, source)),
    }
}

/// Writes `redfish/v1/.../index.json`; returns the number of files.
fn write(dir: &Path, recording: &Recording) -> Result<usize, CliError> {
    let mut written = 0;
    for (folder, body) in recording.folders() {
        let folder = dir.join(folder);
        fs::create_dir_all(&folder).map_err(|source| CliError::file("make", &folder, source))?;
        let file = folder.join("index.json");
        fs::write(&file, format!("{body:#}\n")).map_err(|source| CliError::file("write", &file, source))?;
        written += 1;
    }
    Ok(written)
}

fn print_summary(cx: &Cx, dir: &Path, recording: &Recording, written: usize) -> Result<(), CliError> {
    let left_out = recording.resources.len() - written;
    if cx.ui.format() != Format::Table {
        return cx.ui.value(&json!({
            "dir": dir.display().to_string(),
            "resources": written,
            "left_out": left_out,
            "cut": recording.cut,
            "gaps": recording.gaps,
        }));
    }
    cx.ui
        .line(&format!("{} in {}", plural(written, "resource"), dir.display()))?;
    if left_out > 0 {
        cx.ui.note(&format!(
            "{} left out: their paths are not valid file names",
            plural(left_out, "resource")
        ));
    }
    if let Some(cut) = &recording.cut {
        cx.ui.note(&format!("the recording is not complete: {}", clean(cut)));
    }
    for gap in recording.gaps.iter().take(SHOWN_GAPS) {
        cx.ui
            .note(&format!("not read: {}: {}", clean(&gap.path), clean(&gap.why)));
    }
    if let Some(more) = recording.gaps.len().checked_sub(SHOWN_GAPS).filter(|more| *more > 0) {
        cx.ui.note(&format!("and {more} more resources were not read"));
    }
    cx.ui
        .note("serial numbers, addresses, names and secrets were replaced; check the recording before you send it");
    Ok(())
}
