//! The `If-Match` values to try, and their order.

use serde::Deserialize;

/// One way to fill `If-Match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EtagRung {
    /// The ETag unchanged.
    Given,
    /// The strong form of a weak ETag.
    Strong,
    /// `*`.
    Star,
    /// No header.
    Omitted,
}

/// The order for BMCs without an order in their profile.
pub const DEFAULT_ORDER: [EtagRung; 4] = [EtagRung::Given, EtagRung::Strong, EtagRung::Star, EtagRung::Omitted];

/// The `If-Match` values to try in turn; none means: leave the header out.
pub fn ladder(order: &[EtagRung], etag: Option<&str>) -> Vec<Option<String>> {
    let mut values: Vec<Option<String>> = Vec::new();
    let mut push = |value: Option<String>| {
        if !values.contains(&value) {
            values.push(value);
        }
    };
    // A resource without an ETag is first written without If-Match, unless the profile states that the BMC requires `*`.
    if etag.is_none() && order.first() != Some(&EtagRung::Star) {
        push(None);
    }
    for rung in order {
        match (rung, etag) {
            (EtagRung::Given, Some(etag)) => push(Some(etag.to_owned())),
            (EtagRung::Strong, Some(etag)) => {
                if let Some(strong) = etag.strip_prefix("W/") {
                    push(Some(strong.to_owned()));
                }
            }
            (EtagRung::Star, _) => push(Some("*".to_owned())),
            (EtagRung::Omitted, _) => push(None),
            (EtagRung::Given | EtagRung::Strong, None) => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_follow_the_configured_order() {
        let of = |order: &[EtagRung], etag| -> Vec<String> {
            ladder(order, etag)
                .into_iter()
                .map(|value| value.unwrap_or_else(|| "-".to_owned()))
                .collect()
        };
        assert_eq!(of(&DEFAULT_ORDER, Some("W/\"a\"")), ["W/\"a\"", "\"a\"", "*", "-"]);
        assert_eq!(of(&DEFAULT_ORDER, Some("\"a\"")), ["\"a\"", "*", "-"]);
        assert_eq!(of(&DEFAULT_ORDER, None), ["-", "*"]);
        assert_eq!(of(&[EtagRung::Star, EtagRung::Omitted], None), ["*", "-"]);
        assert_eq!(of(&[EtagRung::Star, EtagRung::Given], Some("\"a\"")), ["*", "\"a\""]);
    }
}
