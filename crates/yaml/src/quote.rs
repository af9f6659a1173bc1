//! The quote that a fault of the syntax follows from.
//!
//! A quote without an end goes on to the next quote of the text, and the parser meets the fault there. The walk over the
//! lines before the fault finds the place at which the quote was opened.

/// A line and a column, both from 1.
pub(crate) type Place = (u32, u32);

/// A pair of quotes, or a quote that is still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quote {
    /// The opening quote.
    pub open: Place,
    /// The closing quote. `None`: the quote is open.
    pub close: Option<Place>,
}

/// The quote that is open at a place, or that is closed on the same line with nothing but blanks up to the place.
pub(crate) fn before(text: &str, (line, column): Place) -> Option<Quote> {
    let mut walk = Walk::default();
    for (number, content) in (1..=line).zip(text.lines()) {
        if walk.open.is_none() {
            walk.closed = None;
            if walk.block.is_some_and(|indent| is_deeper(content, indent)) {
                continue;
            }
            walk.block = None;
        }
        let most = if number == line {
            column.saturating_sub(1) as usize
        } else {
            usize::MAX
        };
        walk.line(number, content, most);
        if walk.open.is_none() {
            walk.block = block_indent(content);
        }
    }
    match walk.open {
        Some((_, open)) => Some(Quote { open, close: None }),
        None => walk.closed,
    }
}

#[derive(Default)]
struct Walk {
    /// The open quote: its character and its place.
    open: Option<(char, Place)>,
    /// The last pair of quotes, if only blanks follow.
    closed: Option<Quote>,
    /// The indentation of the key of the block text that may follow.
    block: Option<usize>,
}

impl Walk {
    /// Reads the first `most` characters of a line.
    fn line(&mut self, number: u32, content: &str, most: usize) {
        let mut chars = (1_u32..).zip(content.chars().take(most)).peekable();
        let (mut last, mut after_blank) = (None, true);
        while let Some((column, c)) = chars.next() {
            if let Some((mark, open)) = self.open {
                let doubled = mark == '\'' && chars.peek().is_some_and(|(_, next)| *next == mark);
                if (c == '\\' && mark == '"') || (c == mark && doubled) {
                    chars.next();
                } else if c == mark {
                    self.open = None;
                    let close = Some((number, column));
                    self.closed = Some(Quote { open, close });
                    (last, after_blank) = (Some(c), false);
                }
                continue;
            }
            if matches!(c, ' ' | '\t') {
                after_blank = true;
                continue;
            }
            if c == '#' && after_blank {
                return;
            }
            self.closed = None;
            let begins =
                matches!(last, None | Some('[' | '{' | ',')) || (after_blank && matches!(last, Some(':' | '-' | '?')));
            if begins && matches!(c, '"' | '\'') {
                self.open = Some((c, (number, column)));
            }
            (last, after_blank) = (Some(c), false);
        }
    }
}

/// Whether a line belongs to the block text below a key with this indentation.
fn is_deeper(content: &str, indent: usize) -> bool {
    let text = content.trim_start_matches(' ');
    text.trim().is_empty() || content.len() - text.len() > indent
}

/// The indentation of the key, if the line ends with the head of a block text (`|` or `>`).
fn block_indent(content: &str) -> Option<usize> {
    let code = content.split(" #").next().unwrap_or(content).trim_end();
    let head = code.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-'));
    let key = head.strip_suffix(['|', '>'])?;
    if !key.is_empty() && !key.ends_with(' ') {
        return None;
    }
    let (mut rest, mut indent, mut item) = (key, 0, 0);
    loop {
        let text = rest.trim_start_matches(' ');
        indent += rest.len() - text.len();
        match text.strip_prefix("- ") {
            Some(after) => (rest, item, indent) = (after, indent, indent + 2),
            None if text.is_empty() => return Some(item),
            None => return Some(indent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_opening_quote_is_found() {
        let open = |text, place| before(text, place).map(|quote| quote.open);
        // The place is inside the quotes, or directly behind them.
        assert_eq!(open("a: \"x\nb: \"y\"\n", (2, 1)), Some((1, 4)));
        assert_eq!(open("- {a: 'x, b: c}\n- {a: 'y'}\n", (2, 8)), Some((1, 7)));
        assert_eq!(open("a: \"x\" y\n", (1, 8)), Some((1, 4)));
        assert_eq!(open("a: \"x\" y z\n", (1, 10)), None);
        // A pair on an earlier line is whole.
        assert_eq!(open("a: \"x\"\n b: y\n", (2, 2)), None);
        // Escaped and doubled quotes belong to the text.
        assert_eq!(open("a: \"x\\\" y\" z\n", (1, 12)), Some((1, 4)));
        assert_eq!(open("a: 'x'' y' z\n", (1, 12)), Some((1, 4)));
        // Quotes inside words, comments and block texts open nothing.
        assert_eq!(open("a: x\"y\n# it's\nb: it's 1\"\nc: ]\n", (4, 4)), None);
        let block = "- key: |\n    don't\n     \"\n  b: ]\n";
        assert_eq!(open(block, (4, 6)), None);
        assert_eq!(open("- |\n  'a\n- ]\n", (3, 3)), None);
    }
}
