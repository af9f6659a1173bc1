//! Site files from what others know: NetBox, and `ibnetdiscover`'s dump of a fabric.
//!
//! Rows or a dump come in; the text of a site file and findings go out, the same for the same. What the other system
//! does not say is never made up in silence: a required field that nobody knows is left out, with a comment above the
//! item and an error at its line; where something safe can stand for it, that is written with a comment and a warning.
//! The text goes through [`crate::file::check`] before it is handed out.

pub(crate) mod csv;
mod draft;
mod dump;
mod names;
pub mod netbox;
mod plan;
mod shape;
mod sku;
mod write;

use crate::file::{Source, check};
use crate::finding::{Findings, Severity, Sink, Spot};
use crate::model::{Site, Speed};

pub use dump::{DumpOptions, from_dump};
pub use plan::plan;
pub use sku::SkuFile;

use self::draft::{Draft, Remarks};
use crate::fabric::Speed as LaneSpeed;

/// What every import wants to know.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Name of the site.
    pub site: &'a str,
    /// What findings are to call the written file.
    pub output: &'a str,
    /// Classes of nodes, which no other system knows. Its text becomes a part of the written file.
    pub skus: Option<&'a SkuFile>,
}

/// What came of an import.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The site file; to be completed where `site` is none.
    pub text: String,
    /// The site, if the file has no error.
    pub site: Option<Site>,
    /// What could not be used (with the place where it was read), what is missing and what was assumed (with the place
    /// in the written file). Those of [`crate::file::check`] are among them.
    pub findings: Findings,
}

/// Writes a draft, checks what was written, and gathers all findings. The output is the last file of the sink.
fn finish(draft: &Draft, options: &Options<'_>, output: u32, mut sink: Sink) -> Imported {
    let mut text = write::write(draft, output, &mut sink);
    if let Some(skus) = options.skus {
        text.push_str(&format!("\n# From {}.\n---\n", crate::text::comment(skus.name())));
        text.push_str(skus.text());
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    let name = options.output;
    let checked = check(&[Source { name, text: &text }]);
    // A gap that was told at its line is told there once: the sink keeps the first finding of a place and path.
    for finding in checked.findings.list {
        let at = Spot {
            file: output,
            line: finding.line,
            column: finding.column,
        };
        match finding.severity {
            Severity::Error => sink.error(at, finding.path, finding.what, finding.fix),
            Severity::Warning => sink.warning(at, finding.path, finding.what, finding.fix),
        }
    }
    let complete = !sink.has_errors();
    Imported {
        text,
        site: checked.site.filter(|_| complete),
        findings: sink.finish(),
    }
}

/// A link's speed as a site file has it: the slowest that it knows for slower ones, with a remark.
fn site_speed(speed: LaneSpeed, field: &'static str, remarks: &mut Remarks) -> Speed {
    match speed {
        LaneSpeed::Edr => Speed::Edr,
        LaneSpeed::Hdr => Speed::Hdr,
        LaneSpeed::Ndr => Speed::Ndr,
        LaneSpeed::Xdr => Speed::Xdr,
        slower => {
            let what = format!("its links run at {slower}, and EDR is the slowest that a site file knows");
            remarks.assumed(
                field,
                what,
                "nothing can be done: the fabric is slower than the file says",
            );
            Speed::Edr
        }
    }
}
