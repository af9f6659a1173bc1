//! Site files in parts: joined on arrival within limits, and split on sending.

use std::collections::HashSet;

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_site::file::TooLarge;
use rackwright_store::SiteFile;

/// Largest part of a file in one message, in bytes.
pub(super) const PART_MAX: usize = 1 << 20;
/// Most files of a site.
const FILES_MAX: usize = 1000;
/// Longest name of a file, in bytes.
const NAME_MAX: usize = 1024;

/// Files that are being received.
#[derive(Debug)]
pub(super) struct SiteFileReceiver {
    limit: usize,
    total: usize,
    files: Vec<(String, Vec<u8>)>,
}

impl SiteFileReceiver {
    /// Starts to receive files of at most `limit` bytes in total.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            total: 0,
            files: Vec::new(),
        }
    }

    /// Adds a part.
    pub(super) fn take(&mut self, part: Option<v1::SiteFilePart>) -> Result<(), ApiError> {
        let Some(v1::SiteFilePart { name, data }) = part else {
            return Ok(());
        };
        if data.len() > PART_MAX {
            return Err(ApiError::invalid(
                "part.data",
                format!("must have at most {PART_MAX} bytes in one part"),
            ));
        }
        self.total += data.len();
        if self.total > self.limit {
            let (limit, fix) = (self.limit >> 20, TooLarge::FIX);
            let fault = format!("more than {limit} MiB together (storage.site_files_mib): {fix}");
            return Err(ApiError::invalid("files", fault));
        }
        if name.is_empty() {
            let Some((_, text)) = self.files.last_mut() else {
                return Err(ApiError::invalid(
                    "part.name",
                    "the first part of a file must have the name of the file",
                ));
            };
            text.extend_from_slice(&data);
            return Ok(());
        }
        if self.files.len() == FILES_MAX {
            return Err(too_many());
        }
        if name.len() > NAME_MAX {
            return Err(ApiError::invalid(
                "part.name",
                format!("must have 1 to {NAME_MAX} bytes"),
            ));
        }
        self.files.push((name, data));
        Ok(())
    }

    /// The complete files, after the last part.
    pub(super) fn end(self) -> Result<Vec<SiteFile>, ApiError> {
        if self.files.is_empty() {
            return Err(too_many());
        }
        let mut names = HashSet::new();
        let (mut files, mut faults) = (Vec::new(), Vec::new());
        for (place, (name, text)) in self.files.into_iter().enumerate() {
            if name.chars().any(char::is_control) {
                faults.push((
                    format!("files[{place}].name"),
                    "must have no control characters".to_owned(),
                ));
            } else if !names.insert(name.clone()) {
                faults.push((
                    format!("files[{place}].name"),
                    format!("two files have the name {name:?}"),
                ));
            }
            match String::from_utf8(text) {
                Ok(text) => files.push(SiteFile { name, text }),
                Err(error) => {
                    let at = error.utf8_error().valid_up_to();
                    faults.push((format!("files[{place}]"), format!("is not UTF-8 after {at} bytes")));
                }
            }
        }
        match faults.is_empty() {
            true => Ok(files),
            false => Err(ApiError::Invalid(faults)),
        }
    }
}

fn too_many() -> ApiError {
    ApiError::invalid("files", format!("must have 1 to {FILES_MAX} files"))
}

/// Splits files into parts.
pub(super) fn parts(files: Vec<SiteFile>) -> impl Iterator<Item = v1::SiteFilePart> + Send + 'static {
    files.into_iter().flat_map(|file| {
        let SiteFile { mut name, text } = file;
        let mut at = 0;
        std::iter::from_fn(move || {
            // An empty file has one part.
            if at >= text.len() && name.is_empty() {
                return None;
            }
            let end = (at + PART_MAX).min(text.len());
            let data = text.as_bytes()[at..end].to_vec();
            at = end;
            let name = std::mem::take(&mut name);
            Some(v1::SiteFilePart { name, data })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, data: &[u8]) -> Option<v1::SiteFilePart> {
        Some(v1::SiteFilePart {
            name: name.into(),
            data: data.into(),
        })
    }

    fn file(name: &str, text: String) -> SiteFile {
        SiteFile {
            name: name.into(),
            text,
        }
    }

    #[test]
    fn files_that_were_cut_are_put_together_again() {
        // Characters of three bytes each: parts end inside characters.
        let long = "\u{20ac}".repeat(PART_MAX);
        let files = vec![file("a", long), file("b", String::new()), file("c", "x".into())];
        let cut: Vec<_> = parts(files.clone()).collect();
        assert_eq!(cut.len(), 5);
        assert!(cut.iter().all(|part| part.data.len() <= PART_MAX));
        let mut receiving = SiteFileReceiver::new(4 * PART_MAX);
        for part in cut {
            receiving.take(Some(part)).unwrap();
        }
        assert!(receiving.end().unwrap() == files);
    }

    #[test]
    fn files_have_bounds() {
        fn is_refused(limit: usize, taken: &[(&str, &[u8])], words: &str) {
            let mut receiving = SiteFileReceiver::new(limit);
            let taken = taken
                .iter()
                .try_for_each(|(name, data)| receiving.take(part(name, data)));
            let refused = taken.and_then(|()| receiving.end().map(drop));
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(words), "{words}: {refused}");
        }
        let (full, more) = (vec![b'x'; PART_MAX], vec![b'x'; PART_MAX + 1]);
        let name = "n".repeat(NAME_MAX + 1);
        let too_much: [(&str, &[u8]); 3] = [("a", &full), ("", &full), ("", b"x")];
        is_refused(2 * PART_MAX, &too_much, "more than 2 MiB");
        is_refused(usize::MAX, &[("a", &more)], "part.data");
        is_refused(9, &[("", b"x")], "part.name");
        is_refused(9, &[(&name, b"x")], "1 to 1024 bytes");
        is_refused(9, &[("a\n", b"x")], "control characters");
        is_refused(9, &[("a", b"\xff")], "is not UTF-8 after 0 bytes");
        is_refused(9, &[("a", b"1"), ("a", b"2")], "two files");
        let mut receiving = SiteFileReceiver::new(9);
        assert!(SiteFileReceiver::new(1).end().is_err(), "no file");
        for n in 0..FILES_MAX {
            receiving.take(part(&n.to_string(), b"")).unwrap();
        }
        assert!(receiving.take(part("more", b"")).is_err());
    }
}
