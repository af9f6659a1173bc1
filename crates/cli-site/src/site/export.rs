//! `rackwright site export`: the files of the last apply.

use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::{Site, SiteFile};
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::{Format, clean};
use rackwright_cli_context::save::{self, Present};
use rackwright_infiniband::topo;
use rackwright_site::file::{Source, check};

use super::show;
use crate::fabric::plan_of_site;

/// `rackwright site export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Directory for the files (default: one YAML stream on standard output)
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the cabling as a topology file of ibutils (.topo) to standard output instead
    #[arg(long, conflicts_with_all = ["folder", "force"])]
    topo: bool,
    /// Replace existing files
    #[arg(long, requires = "folder")]
    force: bool,
}

/// Writes the files.
pub async fn run(cx: &Cx, args: ExportArgs) -> Result<(), CliError> {
    let site = show::get(&*cx.client().await?).await?;
    if args.topo {
        return cx.ui.line(topology(&site)?.trim_end());
    }
    if let Some(folder) = &args.folder {
        let files: Vec<(&str, &str)> = site.files.iter().map(|file| (&*file.name, &*file.text)).collect();
        let present = if args.force { Present::Replaced } else { Present::Kept };
        save::below(folder, &files, present)?;
        if cx.ui.format() == Format::Table {
            return cx.ui.say(&save::written(files.len(), folder));
        }
    }
    match cx.ui.format() {
        Format::Table => cx.ui.line(stream(&site.files).trim_end()),
        Format::Name => site.files.iter().try_for_each(|file| cx.ui.line(&clean(&file.name))),
        Format::Json | Format::Yaml => cx.ui.item(&site, |_| String::new()),
    }
}

/// The cabling of the site, in the format of ibutils.
fn topology(site: &Site) -> Result<String, CliError> {
    let source = |file: &'_ SiteFile| -> (String, String) { (file.name.clone(), file.text.clone()) };
    let owned: Vec<(String, String)> = site.files.iter().map(source).collect();
    let sources: Vec<Source<'_>> = owned.iter().map(|(name, text)| Source { name, text }).collect();
    let checked = check(&sources).site.ok_or_else(|| {
        let message = "this version of the tool does not accept the applied site";
        CliError::usage(
            message,
            "`rackwright site export DIR`, then `rackwright site validate DIR` shows the errors",
        )
    })?;
    let plan = plan_of_site(&checked)?;
    let version = site.metadata.clone().unwrap_or_default().resource_version;
    let title = format!("{}, version {version} of the site", clean(&site.title));
    Ok(topo::write(plan.fabric(), &title))
}

/// All files as one stream of YAML documents, each under a comment with its name.
fn stream(files: &[SiteFile]) -> String {
    let mut stream = String::new();
    for (place, file) in files.iter().enumerate() {
        // Text from a server: YAML allows no other control characters than these.
        let text: String = file
            .text
            .trim_start_matches('\u{feff}')
            .chars()
            .map(|c| {
                if c.is_control() && !matches!(c, '\n' | '\r' | '\t') {
                    ' '
                } else {
                    c
                }
            })
            .collect();
        let first = text.lines().find(|line| !line.is_empty() && !line.starts_with('#'));
        let between = match first {
            _ if place == 0 => "",
            // The file begins a document itself.
            Some(line) if line.starts_with("---") => "",
            // A directive may only follow a document end.
            Some(line) if line.starts_with('%') => "...\n",
            _ => "---\n",
        };
        stream.push_str(&format!("{between}# {}\n{text}", clean(&file.name)));
        if !stream.ends_with('\n') {
            stream.push('\n');
        }
    }
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cabling_is_written_as_a_topology() {
        let request = rackwright_site::generate::Request::new(rackwright_site::generate::ReferenceSku::DgxH100, 4);
        let site = Site {
            title: "lab".into(),
            files: vec![SiteFile {
                name: "site.yaml".into(),
                text: rackwright_site::generate::site_file(&request).unwrap(),
            }],
            ..Site::default()
        };
        let text = topology(&site).unwrap();
        assert!(text.starts_with("# lab, version  of the site\n"), "{text}");
        let plan = rackwright_infiniband::Plan::from_topo(&text).unwrap();
        assert_eq!(plan.fabric().links().len(), text.matches("->").count() / 2);
        let broken = Site::default();
        assert!(topology(&broken).is_err());
    }

    #[test]
    fn a_stream_says_the_same_as_the_files() {
        let file = |name: &str, text: &str| SiteFile {
            name: name.into(),
            text: text.into(),
        };
        let files = [
            file("a.yaml", "site: {name: lab}"),
            file("b\x1b.yaml", "\u{feff}rooms:\n- name: hall\n"),
            file(
                "c.yaml",
                "# first\n---\nracks:\n- {name: r1, room: hall}\n---\nracks:\n- {name: r2, room: hall}\n",
            ),
            file("d.yaml", "%YAML 1.2\n---\nracks:\n- {name: r3, room: hall}\n"),
        ];
        let stream = stream(&files);
        assert!(
            stream.starts_with("# a.yaml\nsite: {name: lab}\n---\n# b .yaml\nrooms:"),
            "{stream}"
        );
        let check = |sources: &[SiteFile]| {
            let sources: Vec<_> = sources
                .iter()
                .map(|file| rackwright_site::file::Source {
                    name: &file.name,
                    text: &file.text,
                })
                .collect();
            rackwright_site::file::check(&sources)
        };
        let apart = check(&files);
        let joined = check(&[file("all.yaml", &stream)]);
        let summary =
            |checked: &rackwright_site::file::Checked| checked.site.as_ref().map(|site| format!("{}", site.summary()));
        assert_eq!(joined.findings.list, []);
        assert!(summary(&apart).is_some(), "{:?}", apart.findings);
        assert_eq!(summary(&apart), summary(&joined));
    }
}
