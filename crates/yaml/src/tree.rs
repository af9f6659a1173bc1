//! YAML as trees. Every value has its place: file, line and column.

use std::fmt;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, StrInput};

use crate::quote;

/// Maximum nesting depth.
pub const MAX_DEPTH: usize = 16;

/// A place in one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Spot {
    /// Index of the file.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A value and the place of its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The place.
    pub at: Spot,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// An empty value, `~` or `null`.
    Null,
    /// Any scalar, as text.
    Text(Box<str>),
    List(Vec<Tree>),
    /// A mapping, with every pair of the text.
    Map(Vec<(Key, Tree)>),
    /// A refused value, which has a fault.
    Broken,
}

/// A key of a mapping and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The place.
    pub at: Spot,
    /// The key.
    pub name: Box<str>,
}

/// A fault and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The place.
    pub at: Spot,
    /// The fault.
    pub kind: FaultKind,
}

/// A fault of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The text is not YAML, for this reason. The rest of it is not read.
    Syntax(String),
    /// A quote is opened at the place of the fault and goes on to this line and column, both from 1, where the text cannot
    /// be read. `None`: no quote closes it. The rest of the text is not read.
    Quote(Option<(u32, u32)>),
    /// A value below [`MAX_DEPTH`]. The rest of the text is not read.
    Depth,
    /// A value is missing. The rest of the text is not read.
    Missing,
    /// `&name`: an anchor.
    Anchor,
    /// `!name`: a tag.
    Tag,
    /// `*name`: an alias.
    Alias,
    /// A list or a mapping as a key.
    Key,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax(why) => return write!(f, "this is not YAML: {why}"),
            Self::Quote(None) => "this is not YAML: the quote that is opened here is not closed",
            Self::Quote(Some((line, column))) => {
                return write!(
                    f,
                    "this is not YAML: the quote that is opened here goes on to line {line}, column {column}"
                );
            }
            Self::Depth => "this is nested too deeply",
            Self::Missing => "a value is missing",
            Self::Anchor => "anchors are not supported",
            Self::Tag => "tags are not supported",
            Self::Alias => "aliases are not supported",
            Self::Key => "a key must be a plain word",
        })
    }
}

impl FaultKind {
    /// The remedy. Empty if it is obvious.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "the rest of this file was not checked",
            Self::Quote(_) => "close the quote; the rest of this file was not checked",
            Self::Depth => "at most 16 levels are read",
            Self::Anchor | Self::Alias => "write the value out",
            Self::Tag => "remove the `!...`",
            Self::Missing | Self::Key => "",
        }
    }
}

/// The documents of one file, without empty ones. `note` is given every fault in the order of the text. False: the text
/// could not be read to its end, and the documents before the fault are returned.
pub fn documents(file: u32, text: &str, note: impl FnMut(Fault)) -> (Vec<Tree>, bool) {
    let mut reader = Reader {
        file,
        text,
        parser: Parser::new_from_str(text),
        note,
    };
    let mut documents = Vec::new();
    loop {
        match reader.document() {
            Ok(Some(tree)) if tree.value == Value::Null => {}
            Ok(Some(tree)) => documents.push(tree),
            Ok(None) => return (documents, true),
            Err(Stop) => return (documents, false),
        }
    }
}

/// The rest of the text is unreadable, which has a fault.
struct Stop;

struct Reader<'a, N> {
    file: u32,
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
    note: N,
}

impl<'a, N: FnMut(Fault)> Reader<'a, N> {
    fn spot(&self, line: usize, column: usize) -> Spot {
        let bounded = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Spot {
            file: self.file,
            line: bounded(line),
            column: bounded(column + 1),
        }
    }

    fn fault(&mut self, at: Spot, kind: FaultKind) {
        (self.note)(Fault { at, kind });
    }

    fn stop<T>(&mut self, at: Spot, kind: FaultKind) -> Result<T, Stop> {
        self.fault(at, kind);
        Err(Stop)
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, Spot)>, Stop> {
        loop {
            return match self.parser.next() {
                Some(Ok((Event::Comment(..), _))) => continue,
                None => Ok(None),
                Some(Ok((event, span))) => {
                    let at = self.spot(span.start.line(), span.start.col());
                    Ok(Some((event, at)))
                }
                Some(Err(error)) => {
                    let (at, kind) = self.unreadable(&error);
                    self.stop(at, kind)
                }
            };
        }
    }

    /// The place and the kind of a fault that the parser reports. The place of a quote without an end is its opening.
    fn unreadable(&self, error: &ScanError) -> (Spot, FaultKind) {
        let at = self.spot(error.marker().line(), error.marker().col());
        let follows = match error.kind() {
            // The parser names the opening quote.
            ErrorKind::UnclosedQuotedScalar | ErrorKind::DocumentIndicatorInQuotedScalar => {
                return (at, FaultKind::Quote(None));
            }
            ErrorKind::InvalidTrailingSingleQuotedScalar | ErrorKind::InvalidTrailingDoubleQuotedScalar => true,
            _ => false,
        };
        let quote = quote::before(self.text, (at.line, at.column));
        let quote = quote.filter(|quote| follows || quote.close.is_none_or(|(line, _)| line > quote.open.0));
        match quote {
            Some(quote::Quote {
                open: (line, column),
                close,
            }) => {
                let end = close.unwrap_or((at.line, at.column));
                (Spot { line, column, ..at }, FaultKind::Quote(Some(end)))
            }
            None => (at, FaultKind::Syntax(error.info())),
        }
    }

    /// The next document's root; `None` at the end of the text.
    fn document(&mut self) -> Result<Option<Tree>, Stop> {
        while let Some((event, at)) = self.next()? {
            match event {
                Event::DocumentStart(..) | Event::DocumentEnd | Event::StreamStart => {}
                Event::StreamEnd => return Ok(None),
                event => return self.tree(event, at, 0).map(Some),
            }
        }
        Ok(None)
    }

    fn tree(&mut self, event: Event<'a>, at: Spot, depth: usize) -> Result<Tree, Stop> {
        if depth > MAX_DEPTH {
            return self.stop(at, FaultKind::Depth);
        }
        match &event {
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(_, anchor, tag)
            | Event::MappingStart(_, anchor, tag) => {
                if *anchor != 0 {
                    self.fault(at, FaultKind::Anchor);
                } else if tag.is_some() {
                    self.fault(at, FaultKind::Tag);
                }
            }
            _ => {}
        }
        let value = match event {
            Event::Scalar(text, style, ..) => {
                let null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                if null { Value::Null } else { Value::Text((*text).into()) }
            }
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => self.map(depth)?,
            Event::Alias(_) => {
                self.fault(at, FaultKind::Alias);
                Value::Broken
            }
            _ => return self.stop(at, FaultKind::Missing),
        };
        Ok(Tree { at, value })
    }

    fn list(&mut self, depth: usize) -> Result<Value, Stop> {
        let mut items = Vec::new();
        while let Some((event, at)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            items.push(self.tree(event, at, depth + 1)?);
        }
        Ok(Value::List(items))
    }

    fn map(&mut self, depth: usize) -> Result<Value, Stop> {
        let mut pairs: Vec<(Key, Tree)> = Vec::new();
        while let Some((event, at)) = self.next()? {
            let name: Option<Box<str>> = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, ..) => Some((*text).into()),
                event => {
                    self.fault(at, FaultKind::Key);
                    self.tree(event, at, depth + 1)?;
                    None
                }
            };
            let Some((event, value_at)) = self.next()? else { break };
            let value = self.tree(event, value_at, depth + 1)?;
            if let Some(name) = name {
                pairs.push((Key { at, name }, value));
            }
        }
        Ok(Value::Map(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Tree>, bool, Vec<String>) {
        let mut found = Vec::new();
        let (trees, whole) = documents(0, text, |fault| {
            found.push(format!("{}:{}: {}", fault.at.line, fault.at.column, fault.kind));
        });
        (trees, whole, found)
    }

    #[test]
    fn places_are_kept() {
        let (trees, whole, found) =
            read("# first\na: 1 # one\nb:\n  # inner\n  c: [x, 'null']\n---\n# nothing\n---\nd: ~\n");
        assert!(whole && found.is_empty(), "{found:?}");
        assert_eq!(trees.len(), 2);
        let Value::Map(pairs) = &trees[0].value else {
            panic!("{trees:?}")
        };
        assert_eq!((pairs[1].0.at.line, pairs[1].0.at.column), (3, 1));
        let Value::Map(inner) = &pairs[1].1.value else {
            panic!("{trees:?}")
        };
        assert_eq!((inner[0].0.at.line, inner[0].0.at.column), (5, 3));
        let Value::List(items) = &inner[0].1.value else {
            panic!("{trees:?}")
        };
        assert_eq!(items[1].value, Value::Text("null".into()), "quoted null is text");
        let Value::Map(pairs) = &trees[1].value else {
            panic!("{trees:?}")
        };
        assert_eq!(pairs[0].1.value, Value::Null);
    }

    #[test]
    fn refused_values_are_faults_and_the_rest_is_read() {
        for (text, found, whole) in [
            (
                "a: 1\nb: &x 2\nc: *x\n",
                "2:7: anchors are not supported|3:4: aliases are not supported",
                true,
            ),
            ("a: !!str 2\nb: 3\n", "1:10: tags are not supported", true),
            ("? [a]\n: b\nc: 1\n", "1:3: a key must be a plain word", true),
            (
                "a: 1\n---\nb: [1\n",
                "3:4: this is not YAML: unclosed bracket '['",
                false,
            ),
        ] {
            let (trees, w, f) = read(text);
            assert_eq!((f.join("|").as_str(), w), (found, whole), "{text}");
            assert!(!trees.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_quote_without_an_end_is_a_fault_where_it_was_opened() {
        for (text, found) in [
            (
                "a: 1\nb: \"x\nc: 2\n",
                "2:4: this is not YAML: the quote that is opened here goes on to line 3, column 1",
            ),
            (
                "a: 1\nb: {c: 'x}\n",
                "2:8: this is not YAML: the quote that is opened here is not closed",
            ),
            (
                "a:\n- {b: \"x, c: y}\n- {b: \"z\", c: y}\n",
                "2:7: this is not YAML: the quote that is opened here goes on to line 3, column 7",
            ),
            (
                "\"x\n---\nb: 1\n",
                "1:1: this is not YAML: the quote that is opened here is not closed",
            ),
        ] {
            let (_, whole, f) = read(text);
            assert_eq!((f.join("|").as_str(), whole), (found, false), "{text}");
        }
        let (_, whole, f) = read("a: \"x\n  y\"\nb: 'it''s'\nc: \"\\\"\"\n");
        assert!(whole && f.is_empty(), "{f:?}");
    }

    #[test]
    fn values_are_nested_sixteen_deep() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(&nested(MAX_DEPTH + 1)).1);
        let (_, whole, found) = read(&nested(MAX_DEPTH + 2));
        assert_eq!(
            (whole, found),
            (false, vec!["1:18: this is nested too deeply".to_owned()])
        );
    }
}
