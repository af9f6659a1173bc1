//! `rackwright man`: man pages, made from the definitions of the commands.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _};
use clap_mangen::Man;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, plural};

use crate::args::Cli;

/// `rackwright man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write one page for each command into this directory, which is made if necessary; existing pages are replaced
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A page: the name of its file, and its text in roff.
struct Page {
    file: String,
    text: Vec<u8>,
}

/// Writes the pages, or prints the page of the whole program.
pub fn run(cx: &Cx, args: &ManArgs) -> Result<(), CliError> {
    let pages = pages().map_err(|error| CliError::io("make the man pages", error))?;
    match &args.dir {
        Some(dir) => {
            write(dir, &pages)?;
            let count = plural(pages.len(), "man page");
            cx.ui.say(&format!("{count} written to {}", dir.display()))
        }
        None => {
            let top = pages.first().map(|page| String::from_utf8_lossy(&page.text));
            cx.ui.line(top.unwrap_or_default().trim_end())
        }
    }
}

fn write(dir: &Path, pages: &[Page]) -> Result<(), CliError> {
    std::fs::create_dir_all(dir).map_err(|error| CliError::given("make the directory", dir, error))?;
    for page in pages {
        let path = dir.join(&page.file);
        std::fs::write(&path, &page.text).map_err(|error| CliError::given("write", &path, error))?;
    }
    Ok(())
}

/// The pages of all commands, that of the program first.
fn pages() -> io::Result<Vec<Page>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &clap::Command, pages: &mut Vec<Page>) -> io::Result<()> {
    let man = Man::new(command.clone())
        .source(concat!("rackwright ", env!("CARGO_PKG_VERSION")))
        .manual("Rackwright");
    let mut text = Vec::new();
    man.render(&mut text)?;
    pages.push(Page {
        file: man.get_filename(),
        text,
    });
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        add_pages(subcommand, pages)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// `rackwright-node-deploy.1`, ...: the files that the commands must have.
    fn wanted(command: &clap::Command, name: &str, found: &mut Vec<String>) {
        found.push(format!("{name}.1"));
        for subcommand in command.get_subcommands() {
            wanted(subcommand, &format!("{name}-{}", subcommand.get_name()), found);
        }
    }

    #[test]
    fn every_command_has_a_page_that_is_not_empty() {
        let pages = pages().unwrap();
        let texts: BTreeMap<_, _> = pages
            .iter()
            .map(|page| (page.file.as_str(), String::from_utf8(page.text.clone()).unwrap()))
            .collect();
        assert_eq!(texts.len(), pages.len(), "two pages have the same name");
        let mut names = Vec::new();
        wanted(&Cli::command(), "rackwright", &mut names);
        names.sort();
        assert_eq!(texts.keys().copied().collect::<Vec<_>>(), names);
        for (file, text) in &texts {
            for section in [".TH ", ".SH NAME", ".SH SYNOPSIS"] {
                assert!(text.contains(section), "{file} has no {section}: {text}");
            }
            assert!(text.lines().count() > 8, "{file}: {text}");
        }
        let deploy = &texts["rackwright-node-deploy.1"];
        assert!(deploy.contains("for the installed system"), "{deploy}");
        assert_eq!(pages[0].file, "rackwright.1");
    }
}
