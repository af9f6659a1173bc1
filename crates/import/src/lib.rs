//! Site files from other sources: NetBox, and the dump of a fabric by `ibnetdiscover`.
//!
//! The input is rows or a dump, the output the text of a site file and findings. The same input gives the same output.
//! Items in regular order are written as one, in compact notation ([`rackwright_site::compact`]).
//! Values are never invented silently. A required field without a value is omitted, with a comment above the item and
//! an error at its line. If there is a safe substitute, it is written with a comment and a warning.
//! [`rackwright_site::file::check`] checks the text before it is returned.

mod csv;
pub mod discovery;
mod draft;
mod dump;
mod kinds;
mod names;
pub mod netbox;
mod shape;
mod sku;
mod write;
#[cfg(test)]
mod write_tests;

use rackwright_site::file::{MAX_TOTAL_BYTES, Source, TooLarge, check};
use rackwright_site::finding::{Findings, Severity, Sink, Spot};
use rackwright_site::model::{Site, Speed};

pub use dump::{DumpOptions, from_dump};
pub use sku::SkuFile;

use self::draft::{Draft, Remarks};
use self::write::Form;
use rackwright_infiniband::Speed as LaneSpeed;

/// The options of every import.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// The site's name.
    pub site: &'a str,
    /// The name of the written file in findings.
    pub output: &'a str,
    /// The SKUs, which other systems do not know. Their text becomes a part of the written file.
    pub skus: Option<&'a SkuFile>,
}

/// The result of an import.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The site file. It must be completed if `site` is `None`. Empty if it would be larger than a site may be, which has
    /// its finding.
    pub text: String,
    /// The site. `None`: the file has errors.
    pub site: Option<Site>,
    /// Unusable data (with the place in the source), missing and assumed values (with the place in the written file),
    /// and the findings of [`rackwright_site::file::check`].
    pub findings: Findings,
}

/// Writes a draft, checks the text and collects all findings. `output` is the last file of the sink.
fn finish(draft: &Draft, options: &Options<'_>, output: u32, sink: Sink) -> Imported {
    finish_as(draft, Form::Compact, options, output, sink, MAX_TOTAL_BYTES)
}

/// The same in one of the forms, with a text of at most `limit` bytes.
fn finish_as(draft: &Draft, form: Form, options: &Options<'_>, output: u32, mut sink: Sink, limit: usize) -> Imported {
    let mut text = write::write(draft, form, output, &mut sink);
    if let Some(skus) = options.skus {
        text.push_str(&format!(
            "\n# From {}.\n---\n",
            rackwright_site::text::comment(skus.name())
        ));
        text.push_str(skus.text());
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if let Err(error) = TooLarge::check_within(text.len() as u64, limit as u64) {
        let at = Spot {
            file: output,
            line: 1,
            column: 1,
        };
        let fix = "items in regular order are written as one: give names, labels and GUIDs in order, or import a part";
        sink.error(at, "", error.to_string(), fix);
        return Imported {
            text: String::new(),
            site: None,
            findings: sink.finish(),
        };
    }
    let name = options.output;
    let checked = check(&[Source { name, text: &text }]);
    // A gap reported at its line is not reported twice: the sink keeps the first finding for a place and path.
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

/// Converts a link's speed for a site file. Speeds too slow for it become the slowest one, with a remark.
fn site_speed(speed: LaneSpeed, field: &'static str, remarks: &mut Remarks) -> Speed {
    match speed {
        LaneSpeed::Edr => Speed::Edr,
        LaneSpeed::Hdr => Speed::Hdr,
        LaneSpeed::Ndr => Speed::Ndr,
        LaneSpeed::Xdr => Speed::Xdr,
        slower => {
            let what = format!("its links run at {slower}, but EDR is the slowest speed of a site file");
            remarks.assumed(
                field,
                what,
                "no change is possible: the fabric is slower than the file states",
            );
            Speed::Edr
        }
    }
}
