//! Resource names: people type `gpu-001`, the API uses `nodes/gpu-001`; both are accepted everywhere.

/// Most names in a line.
const SHOWN: usize = 8;

/// `nodes/gpu-001` for `gpu-001` and for `nodes/gpu-001`.
pub fn full(collection: &str, id: &str) -> String {
    let id = short(collection, id);
    format!("{collection}/{id}")
}

/// `gpu-001` for `nodes/gpu-001` and for `gpu-001`.
pub fn short<'a>(collection: &str, name: &'a str) -> &'a str {
    name.strip_prefix(collection)
        .and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or(name)
}

/// The last part of a name.
pub fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The API's name of an image or of a version: `images/debian` for `debian`, `images/debian/versions/DIGEST` for
/// `debian@DIGEST`. A name in the API's form stays the same.
pub fn image(text: &str) -> String {
    if text.starts_with("images/") {
        return text.to_owned();
    }
    match text.split_once('@') {
        Some((image, digest)) => format!("images/{image}/versions/{digest}"),
        None => format!("images/{text}"),
    }
}

/// `debian@b3-0123abcd4567` for a version's name, `debian` for an image's.
pub fn image_short(name: &str) -> String {
    let rest = short("images", name);
    match rest.split_once("/versions/") {
        Some((image, digest)) => format!("{image}@{}", digest_short(digest)),
        None => rest.to_owned(),
    }
}

/// A digest shortened for people to its prefix (`b3-`) and 12 hex digits.
pub fn digest_short(digest: &str) -> &str {
    digest.get(..15).unwrap_or(digest)
}

/// The first names, and the number of further ones.
pub fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Whether a text can be the id of a node or a cluster: 1 to 63 of a-z 0-9 and '-', a letter or digit first and last.
pub fn is_id(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()]
        .iter()
        .all(|b| b.is_some_and(|b| good(*b)));
    ends && bytes.len() <= 63 && bytes.iter().all(|b| good(*b) || *b == b'-')
}

/// A MAC address in the API's form, or `None` if the text is not one. Dashes and colons are accepted.
pub fn mac(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split(['-', ':']).collect();
    let hex = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    (parts.len() == 6 && parts.iter().all(hex)).then(|| parts.join(":").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_name_are_taken() {
        assert_eq!(full("nodes", "gpu-001"), "nodes/gpu-001");
        assert_eq!(full("nodes", "nodes/gpu-001"), "nodes/gpu-001");
        assert_eq!(short("nodes", "nodesworth"), "nodesworth");
        assert_eq!(image("debian"), "images/debian");
        assert_eq!(image("debian@b3-00"), "images/debian/versions/b3-00");
        assert_eq!(image("images/debian/versions/b3-00"), "images/debian/versions/b3-00");
        assert_eq!(
            image_short("images/debian/versions/b3-0123456789abcdef"),
            "debian@b3-0123456789ab"
        );
    }

    #[test]
    fn mac_addresses_are_distinguished_from_node_ids() {
        assert_eq!(mac("52:54:00:AB:cd:01").as_deref(), Some("52:54:00:ab:cd:01"));
        assert_eq!(mac("52-54-00-ab-cd-01").as_deref(), Some("52:54:00:ab:cd:01"));
        assert_eq!(mac("gpu-001"), None);
        assert_eq!(mac("52:54:00:ab:cd"), None);
        assert_eq!(mac("52:54:00:ab:cd:0g"), None);
    }
}
