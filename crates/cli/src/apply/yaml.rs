//! YAML as a tree in which every value has its position. Small on purpose: no anchors, no aliases, no tags; depth and
//! size are limited.

use granit_parser::{Event, Parser, ScalarStyle, Span};

/// Deepest nesting.
const MAX_DEPTH: usize = 16;

/// The position of a value's beginning; line and column count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    pub line: usize,
    pub column: usize,
}

impl Spot {
    fn of(span: &Span) -> Self {
        Self {
            line: span.start.line(),
            column: span.start.col() + 1,
        }
    }
}

/// A fault and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    pub at: Spot,
    pub message: String,
}

/// A value and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    pub at: Spot,
    pub value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Any scalar, as text.
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(Key, Tree)>),
}

/// A key of a mapping and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub at: Spot,
    pub name: String,
}

/// All documents of a text. Empty documents are left out. After a syntax error the rest of the text cannot be read;
/// the documents before the error are still returned.
pub fn documents(text: &str) -> (Vec<Tree>, Option<YamlError>) {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
    };
    let mut documents = Vec::new();
    loop {
        match reader.document() {
            Ok(Some(tree)) if tree.value == Value::Null => {}
            Ok(Some(tree)) => documents.push(tree),
            Ok(None) => return (documents, None),
            Err(error) => return (documents, Some(error)),
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Spot)>, YamlError> {
        loop {
            return match self.parser.next() {
                Some(Ok((Event::Comment(..), _))) => continue,
                None => Ok(None),
                Some(Ok((event, span))) => Ok(Some((event, Spot::of(&span)))),
                Some(Err(error)) => {
                    let mark = error.marker();
                    let at = Spot {
                        line: mark.line(),
                        column: mark.col() + 1,
                    };
                    Err(YamlError {
                        at,
                        message: format!("this is not YAML: {}", error.info()),
                    })
                }
            };
        }
    }

    /// The next document's root; `None` at the end of the text.
    fn document(&mut self) -> Result<Option<Tree>, YamlError> {
        while let Some((event, at)) = self.next()? {
            match event {
                Event::DocumentStart(..) | Event::DocumentEnd | Event::StreamStart => {}
                Event::StreamEnd => return Ok(None),
                event => return self.tree(event, at, 0).map(Some),
            }
        }
        Ok(None)
    }

    fn tree(&mut self, event: Event<'a>, at: Spot, depth: usize) -> Result<Tree, YamlError> {
        let fault = |message: &str| {
            Err(YamlError {
                at,
                message: message.to_owned(),
            })
        };
        if depth > MAX_DEPTH {
            return fault("the value is nested too deeply");
        }
        let value = match event {
            Event::Scalar(.., anchor, _) | Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _)
                if anchor != 0 =>
            {
                return fault("anchors are not supported");
            }
            Event::Scalar(.., Some(_)) | Event::SequenceStart(.., Some(_)) | Event::MappingStart(.., Some(_)) => {
                return fault("tags are not supported");
            }
            Event::Scalar(text, style, ..) => {
                let null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                if null {
                    Value::Null
                } else {
                    Value::Text(text.into_owned())
                }
            }
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => self.map(depth)?,
            Event::Alias(_) => return fault("aliases are not supported"),
            _ => return fault("a value is missing"),
        };
        Ok(Tree { at, value })
    }

    fn list(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        while let Some((event, at)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            items.push(self.tree(event, at, depth + 1)?);
        }
        Ok(Value::List(items))
    }

    fn map(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut pairs: Vec<(Key, Tree)> = Vec::new();
        while let Some((event, at)) = self.next()? {
            let name = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, ..) => text.into_owned(),
                _ => {
                    return Err(YamlError {
                        at,
                        message: "a key must be a plain word".to_owned(),
                    });
                }
            };
            let Some((event, value_at)) = self.next()? else { break };
            let value = self.tree(event, value_at, depth + 1)?;
            if pairs.iter().any(|(key, _)| key.name == name) {
                return Err(YamlError {
                    at,
                    message: format!("`{name}` is given twice"),
                });
            }
            pairs.push((Key { at, name }, value));
        }
        Ok(Value::Map(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept() {
        let (documents, error) =
            documents("# first\na: 1 # one\nb:\n  # inner\n  c: [x, 'null']\n---\n# nothing\n---\nd: ~\n");
        assert_eq!(error, None);
        assert_eq!(documents.len(), 2);
        let Value::Map(pairs) = &documents[0].value else {
            panic!("{documents:?}")
        };
        assert_eq!(pairs[1].0.at, Spot { line: 3, column: 1 });
        let Value::Map(inner) = &pairs[1].1.value else {
            panic!("{documents:?}")
        };
        assert_eq!(inner[0].0.at, Spot { line: 5, column: 3 });
        let Value::List(items) = &inner[0].1.value else {
            panic!("{documents:?}")
        };
        assert_eq!(items[1].value, Value::Text("null".into()), "quoted null is text");
        let Value::Map(pairs) = &documents[1].value else {
            panic!("{documents:?}")
        };
        assert_eq!(pairs[0].1.value, Value::Null);
    }

    #[test]
    fn what_is_not_taken_is_refused_at_its_place() {
        for (text, line, words) in [
            ("a: 1\nb: &x 2\n", 2, "anchors"),
            ("a: !!str 2\n", 1, "tags"),
            ("a: 1\na: 2\n", 2, "twice"),
            ("? [a]\n: b\n", 1, "plain word"),
            ("a: [1\n", 1, "not YAML"),
            ("a: *x\n", 1, "not YAML"),
        ] {
            let (_, error) = documents(text);
            let error = error.unwrap_or_else(|| panic!("{text:?} was taken"));
            assert!(error.message.contains(words), "{text:?}: {error:?}");
            assert!(error.at.line >= line, "{text:?}: {error:?}");
        }
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert!(documents(&deep).1.is_some());
    }

    #[test]
    fn what_came_before_a_fault_is_kept() {
        let (documents, error) = documents("a: 1\n---\nb: 2\n---\nc: [\n");
        assert_eq!(documents.len(), 2);
        assert!(error.is_some());
    }
}
