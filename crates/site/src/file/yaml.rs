//! YAML as a tree in which each value has its place. Anchors, aliases and tags are refused, so the tree is never larger
//! than its text. Size and depth are bounded.

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use crate::finding::{Sink, Spot};

/// Maximum nesting depth.
const MAX_DEPTH: usize = 16;

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) at: Spot,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// An empty value, `~` or `null`.
    Null,
    /// Any scalar, as text.
    Text(Box<str>),
    List(Vec<Tree>),
    Map(Vec<(Key, Tree)>),
    /// A refused value, which has a finding.
    Broken,
}

/// A key of a mapping and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) at: Spot,
    pub(crate) name: Box<str>,
}

/// The documents of one file, without empty ones. False: the text could not be read to its end.
pub(crate) fn documents(file: u32, text: &str, sink: &mut Sink) -> (Vec<Tree>, bool) {
    let mut reader = Reader {
        file,
        parser: Parser::new_from_str(text),
        sink,
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

/// The rest of the file is unreadable, which has a finding.
struct Stop;

struct Reader<'a> {
    file: u32,
    parser: Parser<'a, StrInput<'a>>,
    sink: &'a mut Sink,
}

impl<'a> Reader<'a> {
    fn spot(&self, line: usize, column: usize) -> Spot {
        let bounded = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Spot {
            file: self.file,
            line: bounded(line),
            column: bounded(column + 1),
        }
    }

    fn stop<T>(&mut self, at: Spot, what: impl Into<String>, fix: &str) -> Result<T, Stop> {
        self.sink.error(at, "", what, fix);
        Err(Stop)
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, Spot)>, Stop> {
        loop {
            return match self.parser.next() {
                Some(Ok((Event::Comment(..), _))) => continue,
                None => Ok(None),
                Some(Ok((event, span))) => Ok(Some((event, self.begin(&span)))),
                Some(Err(error)) => {
                    let at = self.spot(error.marker().line(), error.marker().col());
                    self.stop(
                        at,
                        format!("this is not YAML: {}", error.info()),
                        "the rest of this file was not checked",
                    )
                }
            };
        }
    }

    fn begin(&self, span: &Span) -> Spot {
        self.spot(span.start.line(), span.start.col())
    }

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
            return self.stop(at, "this is nested too deeply", "a site file needs at most six levels");
        }
        match &event {
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(_, anchor, tag)
            | Event::MappingStart(_, anchor, tag) => {
                if *anchor != 0 {
                    self.sink
                        .error(at, "", "anchors are not supported", "write the value out");
                } else if tag.is_some() {
                    self.sink.error(at, "", "tags are not supported", "remove the `!...`");
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
                self.sink
                    .error(at, "", "aliases are not supported", "write the value out");
                Value::Broken
            }
            _ => return self.stop(at, "a value is missing", ""),
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
                    self.sink.error(at, "", "a key must be a plain word", "");
                    self.tree(event, at, depth + 1)?;
                    None
                }
            };
            let Some((event, value_at)) = self.next()? else { break };
            let value = self.tree(event, value_at, depth + 1)?;
            // Duplicate keys are detected later, where the field names are known.
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
        let mut sink = Sink::new(vec!["f".into()]);
        let (trees, whole) = documents(0, text, &mut sink);
        let found = sink.finish().list.iter().map(ToString::to_string).collect();
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
        let Value::Map(inner) = &pairs[1].1.value else {
            panic!("{trees:?}")
        };
        assert_eq!((inner[0].0.at.line, inner[0].0.at.column), (5, 3));
        let Value::List(items) = &inner[0].1.value else {
            panic!("{trees:?}")
        };
        assert_eq!(items[1].value, Value::Text("null".into()), "quoted null is text");
    }

    #[test]
    fn what_is_not_taken_is_told_and_the_rest_is_read() {
        for (text, found, whole) in [
            (
                "a: 1\nb: &x 2\nc: *x\n",
                "f:2:7: error: : anchors are not supported|f:3:4: error: : aliases are not supported",
                true,
            ),
            ("a: !!str 2\nb: 3\n", "f:1:10: error: : tags are not supported", true),
            ("? [a]\n: b\nc: 1\n", "f:1:3: error: : a key must be a plain word", true),
            (
                "a: 1\n---\nb: [1\n",
                "f:3:4: error: : this is not YAML: unclosed bracket '['",
                false,
            ),
        ] {
            let (trees, w, f) = read(text);
            assert_eq!((f.join("|").as_str(), w), (found, whole), "{text}");
            assert!(!trees.is_empty(), "{text}");
        }
        assert!(!read(&("[".repeat(100) + &"]".repeat(100))).1);
    }
}
