//! Decides on the answer to an HTTP request for an object in a store: a function of the request and the files, without a
//! socket. The caller connects it to its server; `docs/image-format.md` describes the protocol.
//!
//! A request's name is parsed into a digest, and the path is built from the digest, so no request can leave the store's
//! folder. The content of a name never changes: any proxy may cache answers for ever (RFC 9110, RFC 9111, RFC 8246).

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::digest::{ChunkDigest, ImageDigest};
use crate::store::ChunkStore;

const CACHE_FOR_EVER: &str = "public, max-age=31536000, immutable";

/// The relevant parts of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// For example `GET` or `HEAD`.
    pub method: &'a str,
    /// Path below the store's base: `/images/b3-…` or `/chunks/…`, without a query.
    pub path: &'a str,
    /// The `Range` header.
    pub range: Option<&'a str>,
    /// The `If-Range` header.
    pub if_range: Option<&'a str>,
    /// The `If-None-Match` header.
    pub if_none_match: Option<&'a str>,
}

/// Content after the headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    Empty,
    /// A sentence for people.
    Bytes(Vec<u8>),
    /// A part of a file. `len` is read when the answer is created, because a file in the store never changes.
    File {
        /// Path of the file.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Number of bytes from `offset`.
        len: u64,
    },
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// HTTP status code.
    pub status: u16,
    /// Header names in lower case. `content-length` is always present.
    pub headers: Vec<(&'static str, String)>,
    /// Content after the headers.
    pub body: Body,
}

impl Response {
    fn text(status: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        let headers = vec![
            ("content-type", "text/plain; charset=utf-8".to_owned()),
            ("content-length", message.len().to_string()),
            ("cache-control", "no-store".to_owned()),
        ];
        Self {
            status,
            headers,
            body: Body::Bytes(message.into_bytes()),
        }
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Decides on the answer. Reads only the metadata of one file.
pub fn respond(store: &ChunkStore, request: &Request<'_>) -> Response {
    let head = match request.method {
        "GET" => false,
        "HEAD" => true,
        _ => {
            let mut response = Response::text(405, "only GET and HEAD are served here\n");
            response.headers.push(("allow", "GET, HEAD".to_owned()));
            return response;
        }
    };
    let mut response = respond_to_get(store, request);
    if head {
        response.body = Body::Empty;
    }
    response
}

fn respond_to_get(store: &ChunkStore, request: &Request<'_>) -> Response {
    let Some((path, name)) = locate(store, request.path) else {
        return Response::text(404, "no such image or chunk\n");
    };
    let length = match fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Response::text(404, "no such image or chunk\n");
        }
        Err(error) => return Response::text(500, format!("the store cannot be read: {}\n", error.kind())),
    };
    // A chunk that was packed again at another level has the same name and content but different bytes.
    let etag = format!("\"{name}-{length}\"");
    let mut headers = vec![
        ("etag", etag.clone()),
        ("accept-ranges", "bytes".to_owned()),
        ("cache-control", CACHE_FOR_EVER.to_owned()),
        ("content-type", "application/octet-stream".to_owned()),
    ];
    if request.if_none_match.is_some_and(|tags| matches_any(tags, &etag)) {
        headers.push(("content-length", length.to_string()));
        return Response {
            status: 304,
            headers,
            body: Body::Empty,
        };
    }
    let range = request
        .range
        .filter(|_| request.if_range.is_none_or(|tag| tag.trim() == etag));
    let (status, offset, len) = match range.map_or(Slice::Whole, |text| parse_range(text, length)) {
        Slice::Whole => (200, 0, length),
        Slice::Part { first, last } => {
            headers.push(("content-range", format!("bytes {first}-{last}/{length}")));
            (206, first, last - first + 1)
        }
        Slice::None => {
            let mut response = Response::text(416, "the range lies beyond the end\n");
            response.headers.push(("content-range", format!("bytes */{length}")));
            return response;
        }
    };
    headers.push(("content-length", len.to_string()));
    Response {
        status,
        headers,
        body: Body::File { path, offset, len },
    }
}

fn locate(store: &ChunkStore, path: &str) -> Option<(PathBuf, String)> {
    if let Some(name) = path.strip_prefix("/images/") {
        let digest: ImageDigest = name.parse().ok()?;
        return Some((store.image_path(&digest), digest.to_string()));
    }
    let digest: ChunkDigest = path.strip_prefix("/chunks/")?.parse().ok()?;
    Some((store.chunk_path(&digest), digest.to_string()))
}

/// `If-None-Match`: a list of tags, weak ones included, or a star (RFC 9110, 13.1.2).
fn matches_any(tags: &str, etag: &str) -> bool {
    tags.split(',')
        .map(str::trim)
        .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

#[derive(Debug, PartialEq, Eq)]
enum Slice {
    Whole,
    Part { first: u64, last: u64 },
    None,
}

/// `Range` (RFC 9110, 14.2). One range is served. A malformed header or several ranges give the whole file, as the standard
/// allows.
fn parse_range(text: &str, length: u64) -> Slice {
    let Some((first, last)) = text
        .trim()
        .strip_prefix("bytes=")
        .and_then(|spec| spec.trim().split_once('-'))
    else {
        return Slice::Whole;
    };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let whole_end = length.saturating_sub(1);
    let (first, last) = match (first, last) {
        ("", suffix) => match number(suffix) {
            None => return Slice::Whole,
            Some(0) => return Slice::None,
            Some(count) => (length.saturating_sub(count), whole_end),
        },
        (first, "") => match number(first) {
            None => return Slice::Whole,
            Some(first) => (first, whole_end),
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => (first, last.min(whole_end)),
            _ => return Slice::Whole,
        },
    };
    if first >= length {
        Slice::None
    } else {
        Slice::Part { first, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        _folder: tempfile::TempDir,
        store: ChunkStore,
        chunk: String,
    }

    fn fixture() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let store = ChunkStore::open(folder.path().join("store")).unwrap();
        let digest = ChunkDigest::of(b"chunk");
        store.put_chunk(&store.hold().unwrap(), &digest, b"0123456789").unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        Fixture {
            _folder: folder,
            store,
            chunk: format!("/chunks/{digest}"),
        }
    }

    fn get<'a>(path: &'a str, range: Option<&'a str>) -> Request<'a> {
        Request {
            method: "GET",
            path,
            range,
            ..Request::default()
        }
    }

    #[test]
    fn a_whole_chunk_may_be_cached_for_ever() {
        let f = fixture();
        let response = respond(&f.store, &get(&f.chunk, None));
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-length"), Some("10"));
        assert_eq!(response.header("accept-ranges"), Some("bytes"));
        assert!(response.header("cache-control").unwrap().contains("immutable"));
        let Body::File {
            path,
            offset: 0,
            len: 10,
        } = response.body
        else {
            panic!("{:?}", response.body)
        };
        assert_eq!(fs::read(path).unwrap(), b"0123456789");
    }

    #[test]
    fn ranges_as_the_standard_has_them() {
        let f = fixture();
        let cases = [
            ("bytes=3-", 206, Some("bytes 3-9/10"), 3, 7),
            ("bytes=3-5", 206, Some("bytes 3-5/10"), 3, 3),
            ("bytes=3-99999999999999999999", 206, Some("bytes 3-9/10"), 3, 7),
            ("bytes=-4", 206, Some("bytes 6-9/10"), 6, 4),
            ("bytes=-40", 206, Some("bytes 0-9/10"), 0, 10),
            ("bytes=5-3", 200, None, 0, 10),
            ("bytes=0-1,4-5", 200, None, 0, 10),
            ("bytes=a-b", 200, None, 0, 10),
            ("lines=1-2", 200, None, 0, 10),
            ("bytes=+3-", 200, None, 0, 10),
        ];
        for (range, status, content_range, offset, len) in cases {
            let response = respond(&f.store, &get(&f.chunk, Some(range)));
            assert_eq!(response.status, status, "{range}");
            assert_eq!(response.header("content-range"), content_range, "{range}");
            assert_eq!(
                response.header("content-length"),
                Some(len.to_string().as_str()),
                "{range}"
            );
            assert!(
                matches!(response.body, Body::File { offset: o, len: l, .. } if o == offset && l == len),
                "{range}"
            );
        }
        for range in ["bytes=10-", "bytes=-0", "bytes=99999999999999999999-"] {
            let response = respond(&f.store, &get(&f.chunk, Some(range)));
            assert_eq!(response.status, 416, "{range}");
            assert_eq!(response.header("content-range"), Some("bytes */10"));
        }
    }

    #[test]
    fn conditions() {
        let f = fixture();
        let etag = respond(&f.store, &get(&f.chunk, None))
            .header("etag")
            .unwrap()
            .to_owned();
        for tags in [etag.clone(), format!("\"x\", W/{etag}"), "*".to_owned()] {
            let request = Request {
                if_none_match: Some(&tags),
                ..get(&f.chunk, None)
            };
            let response = respond(&f.store, &request);
            assert_eq!((response.status, response.body), (304, Body::Empty), "{tags}");
        }
        let stale = Request {
            if_none_match: Some("\"x\""),
            ..get(&f.chunk, None)
        };
        assert_eq!(respond(&f.store, &stale).status, 200);
        let same = Request {
            if_range: Some(&etag),
            ..get(&f.chunk, Some("bytes=3-"))
        };
        assert_eq!(respond(&f.store, &same).status, 206);
        let changed = Request {
            if_range: Some("\"x\""),
            ..get(&f.chunk, Some("bytes=3-"))
        };
        assert_eq!(respond(&f.store, &changed).status, 200);
    }

    #[test]
    fn head_has_the_headers_and_no_body() {
        let f = fixture();
        let request = Request {
            method: "HEAD",
            ..get(&f.chunk, None)
        };
        let response = respond(&f.store, &request);
        assert_eq!((response.status, response.header("content-length")), (200, Some("10")));
        assert_eq!(response.body, Body::Empty);
        let post = Request {
            method: "POST",
            ..get(&f.chunk, None)
        };
        assert_eq!(respond(&f.store, &post).header("allow"), Some("GET, HEAD"));
    }

    #[test]
    fn nothing_outside_is_reachable() {
        let f = fixture();
        let absent = format!("/chunks/{}", ChunkDigest::of(b"absent"));
        let upper = format!("/chunks/{}", &f.chunk[8..].to_uppercase());
        let suffix = format!("{}.zst", f.chunk);
        let doubled = f.chunk.replacen('/', "//", 1);
        let paths = [
            "",
            "/",
            "/lock",
            "/chunks/",
            "/chunks/../../secret",
            "/images/../../secret",
            "/images/%2e%2e/secret",
            "/images/b3-..",
            &absent,
            &upper,
            &suffix,
            &doubled,
        ];
        for path in paths {
            let response = respond(&f.store, &get(path, None));
            assert_eq!(response.status, 404, "{path}");
            assert!(matches!(response.body, Body::Bytes(_)));
        }
    }
}
