//! The files of the web console, as a browser loads them. `make web` builds them in `dist` from the sources in `ui`.
//!
//! The console is a client of the API like any other: these files contain no data, and every visitor may read them.
//!
//! [`limits`] is what the server of the console remembers of logins and calls.

pub mod limits;

use std::io::Write as _;
use std::sync::LazyLock;

/// A file of the console.
#[derive(Debug)]
pub struct File {
    /// Its name, as in the address.
    pub name: &'static str,
    /// The media type.
    pub content_type: &'static str,
    /// The content.
    pub bytes: &'static [u8],
    /// The content, compressed.
    pub gzip: Vec<u8>,
    /// The entity tag: changes with the content.
    pub tag: String,
}

macro_rules! files {
    ($($name:literal $content_type:literal),+ $(,)?) => {
        [$(($name, $content_type, include_bytes!(concat!("../dist/", $name)) as &[u8])),+]
    };
}

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let files = files![
        "app.css" "text/css; charset=utf-8",
        "app.js" "text/javascript; charset=utf-8",
        "chunk.js" "text/javascript; charset=utf-8",
        "icon.svg" "image/svg+xml",
        "index.html" "text/html; charset=utf-8",
        "more.js" "text/javascript; charset=utf-8",
        "terminal.css" "text/css; charset=utf-8",
        "terminal.js" "text/javascript; charset=utf-8",
    ];
    files
        .into_iter()
        .map(|(name, kind, bytes)| prepared(name, kind, bytes))
        .collect()
});

fn prepared(name: &'static str, content_type: &'static str, bytes: &'static [u8]) -> File {
    let digest = blake3::hash(bytes).to_hex();
    File {
        name,
        content_type,
        bytes,
        gzip: compressed(bytes),
        tag: format!("\"{}\"", &digest[..16]),
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    // Writing to memory does not fail.
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.unwrap_or_default()
}

/// The file with this name.
#[must_use]
pub fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

/// All files.
#[must_use]
pub fn files() -> &'static [File] {
    &FILES
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Largest first load, compressed, in bytes.
    const FIRST_LOAD: usize = 120_000;
    /// The file of the pages that are loaded when they are opened.
    const MORE: &str = "more.js";
    /// The files that only the page of a serial console loads.
    const TERMINAL: &[&str] = &["terminal.css", "terminal.js"];
    /// Their largest size, compressed, in bytes.
    const TERMINAL_LOAD: usize = 100_000;

    #[test]
    fn every_built_file_is_served_and_no_other() {
        let dist = concat!(env!("CARGO_MANIFEST_DIR"), "/dist");
        let built = std::fs::read_dir(dist)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut built: Vec<String> = built.collect();
        built.sort();
        let served: Vec<&str> = files().iter().map(|file| file.name).collect();
        assert_eq!(built, served);
        assert!(file("../Cargo.toml").is_none());
    }

    #[test]
    fn the_compressed_content_is_the_content_and_small() {
        for file in files() {
            let mut content = Vec::new();
            flate2::read::GzDecoder::new(file.gzip.as_slice())
                .read_to_end(&mut content)
                .unwrap();
            assert!(content == file.bytes, "{}", file.name);
        }
        let size = |is_one: &dyn Fn(&str) -> bool| -> usize {
            let files = files().iter().filter(|file| is_one(file.name));
            files.map(|file| file.gzip.len()).sum()
        };
        let terminal = size(&|name| TERMINAL.contains(&name));
        assert!(terminal <= TERMINAL_LOAD, "{terminal} bytes");
        let first = size(&|name| name != MORE && !TERMINAL.contains(&name));
        assert!(first <= FIRST_LOAD, "{first} bytes");
    }

    #[test]
    fn the_page_has_no_inline_code_and_names_no_other_server() {
        let page = std::str::from_utf8(file("index.html").unwrap().bytes).unwrap();
        for inline in [
            "<script>",
            "<style",
            " style=",
            " onclick=",
            "javascript:",
            "http://",
            "https://",
        ] {
            assert!(!page.contains(inline), "{inline} in {page}");
        }
        assert!(page.contains("<script "), "{page}");
    }
}
