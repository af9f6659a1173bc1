//! `rackwright site export`: the files as they were applied last.

use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::SiteFile;

use super::show;
use crate::args::Cx;
use crate::error::CliError;
use crate::output::{Format, clean};
use crate::save::{self, Present};

/// `rackwright site export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Directory to write the files to (one YAML stream on standard output when not given)
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Replace files that are there
    #[arg(long, requires = "folder")]
    force: bool,
}

/// Writes them.
pub async fn run(cx: &Cx, args: ExportArgs) -> Result<(), CliError> {
    let site = show::get(&*cx.client().await?).await?;
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

/// All files as one stream of YAML documents, each under a comment with its name.
fn stream(files: &[SiteFile]) -> String {
    let mut stream = String::new();
    for (place, file) in files.iter().enumerate() {
        // Text from a server: YAML knows no other control characters than these.
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
            // It begins a document itself.
            Some(line) if line.starts_with("---") => "",
            // A directive may stand only after an end.
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
