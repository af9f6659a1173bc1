//! Lists that the server returns page by page.

use crate::error::CliError;

/// All items of a list. `read` gets the token of a page, which is empty for the first page. It returns the items of this
/// page and the token of the next page, which is empty after the last page.
pub async fn all<T>(
    mut read: impl AsyncFnMut(String) -> Result<(Vec<T>, String), CliError>,
) -> Result<Vec<T>, CliError> {
    first(usize::MAX, i32::MAX, async |_, page_token| read(page_token).await).await
}

/// The first `limit` items of a list. `read` also gets the number of items to request, at most `page`.
pub async fn first<T>(
    limit: usize,
    page: i32,
    mut read: impl AsyncFnMut(i32, String) -> Result<(Vec<T>, String), CliError>,
) -> Result<Vec<T>, CliError> {
    let mut items = Vec::new();
    let mut page_token = String::new();
    while items.len() < limit {
        let page_size = i32::try_from(limit - items.len()).unwrap_or(i32::MAX).min(page);
        let (found, next) = read(page_size, page_token.clone()).await?;
        items.extend(found);
        if next.is_empty() {
            break;
        }
        if next == page_token {
            return Err(CliError::BadAnswer(
                "a page of the list names itself as the next page".to_owned(),
            ));
        }
        page_token = next;
    }
    items.truncate(limit);
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of the numbers 0 to 6, from the number in the token.
    fn page(size: usize, token: &str) -> (Vec<usize>, String) {
        let from: usize = token.parse().unwrap_or(0);
        let to = (from + size).min(7);
        let next = if to < 7 { to.to_string() } else { String::new() };
        ((from..to).collect(), next)
    }

    #[tokio::test]
    async fn all_pages_are_read_in_order() {
        let mut tokens = Vec::new();
        let items = all(async |token| {
            let read = page(3, &token);
            tokens.push(token);
            Ok(read)
        })
        .await
        .unwrap();
        assert_eq!(items, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(tokens, ["", "3", "6"]);
    }

    #[tokio::test]
    async fn only_the_wanted_items_are_requested() {
        let mut sizes = Vec::new();
        let items = first(5, 3, async |size, token| {
            sizes.push(size);
            Ok(page(size as usize, &token))
        })
        .await
        .unwrap();
        assert_eq!((items.len(), sizes), (5, vec![3, 2]));
        // A server may return more than the requested number.
        let items = first(2, 3, async |_, token| Ok(page(4, &token))).await.unwrap();
        assert_eq!(items, [0, 1]);
    }

    #[tokio::test]
    async fn a_page_that_names_itself_does_not_repeat_for_ever() {
        let outcome = all(async |_| Ok((vec![1], "same".to_owned()))).await;
        assert!(matches!(outcome, Err(CliError::BadAnswer(_))));
    }
}
