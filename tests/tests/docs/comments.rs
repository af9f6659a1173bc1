//! A doc comment says more than the name below it; otherwise there is none.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::sources;

/// Words that add nothing to a name.
const FILLERS: &[&str] = &["the", "a", "an", "its", "of", "in", "to", "by", "for"];

/// The keywords that may stand between a doc comment and the name of its item.
const KEYWORDS: &[&str] = &[
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "macro_rules",
    "mod",
    "mut",
    "pub",
    "static",
    "struct",
    "trait",
    "type",
    "unsafe",
];

/// The words of a comment or of a name, in lower case, without fillers and without the `s` of a plural.
fn words(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut before = ' ';
    for c in text.chars() {
        if c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            spaced.push(' ');
        }
        spaced.push(if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            ' '
        });
        before = c;
    }
    spaced
        .split_whitespace()
        .filter(|word| !FILLERS.contains(word))
        .map(|word| word.strip_suffix('s').unwrap_or(word).to_owned())
        .filter(|word| !word.is_empty())
        .collect()
}

/// Whether a comment has the words of the name and no others, in any order. `User name` repeats `username`, too.
fn repeats(comment: &str, name: &str) -> bool {
    let (mut comment, mut name) = (words(comment), words(name));
    if comment.concat() == name.concat() {
        return true;
    }
    comment.sort_unstable();
    name.sort_unstable();
    comment == name
}

/// The text of `#[doc = "..."]`, which is how the parser of tokens returns a line of a doc comment.
fn doc_text(attribute: TokenStream) -> Option<String> {
    let mut parts = attribute.into_iter();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(TokenTree::Ident(word)), Some(TokenTree::Punct(_)), Some(TokenTree::Literal(text))) if word == "doc" => {
            Some(text.to_string())
        }
        _ => None,
    }
}

/// `line: name` for each name that its doc comment only repeats: of an item, a field or a variant, also in the input of a
/// macro.
fn repeated(tokens: TokenStream, found: &mut Vec<String>) {
    let mut comment = String::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                if let Some(TokenTree::Group(attribute)) = tokens.peek()
                    && attribute.delimiter() == Delimiter::Bracket
                {
                    comment += &doc_text(attribute.stream()).unwrap_or_default();
                    tokens.next();
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            TokenTree::Ident(word) if KEYWORDS.iter().any(|keyword| word == *keyword) => {}
            TokenTree::Ident(name) => {
                let text = name.to_string();
                if !comment.is_empty() && repeats(&comment, text.trim_start_matches("r#")) {
                    found.push(format!("{}: {text}", name.span().start().line));
                }
                comment.clear();
            }
            TokenTree::Group(group) => repeated(group.stream(), found),
        }
    }
}

#[test]
fn no_doc_comment_only_repeats_a_name() {
    let mut faults = Vec::new();
    let mut files = 0;
    for (path, text) in sources() {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        files += 1;
        let tokens: TokenStream = text
            .parse()
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut found = Vec::new();
        repeated(tokens, &mut found);
        faults.extend(found.into_iter().map(|fault| format!("{}:{fault}", path.display())));
    }
    assert!(files > 500, "only {files} Rust files were read");
    assert!(
        faults.is_empty(),
        "\n{}\nThese doc comments say no more than the name. Delete them, or state the unit, the range, who sets the value, \
         the meaning of none, or the reason",
        faults.join("\n")
    );
}

#[test]
fn a_comment_that_only_repeats_a_name_is_found() {
    let source = r#"
/// The boot order.
#[derive(Debug)]
pub(crate) struct BootOrder {
    /// Id of the node.
    pub node_id: u8,
    /// Its port,
    /// from 1.
    port: u8,
    /// The type.
    r#type: u8,
    /// Who set it: the type.
    holder: u8,
}

names! {
    /// A word.
    Words {
        /// User name.
        #[default]
        Username = "user",
        /// A UUID.
        Key = "key",
    }
}

impl BootOrder {
    /// `Ports`.
    pub(super) const fn ports(&self) -> u8 {
        // The port.
        let port = self.port;
        port
    }

    /// The ports of both.
    fn ports(&self) {}
}
"#;
    let mut found = Vec::new();
    repeated(source.parse().unwrap(), &mut found);
    let expected = [
        "4: BootOrder",
        "6: node_id",
        "11: r#type",
        "18: Words",
        "21: Username",
        "29: ports",
    ];
    assert_eq!(found, expected);
}

/// The lines of `# Errors` above a section that says only that the database failed: the type of the result says this.
fn empty_errors_sections(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_empty = |part: &[&str]| {
        part[0] == "/// # Errors" && part[1] == "/// The database failed." && !part[2].starts_with("///")
    };
    let parts = lines.windows(3).enumerate();
    parts.filter(|(_, part)| is_empty(part)).map(|(at, _)| at + 1).collect()
}

#[test]
fn no_section_about_errors_only_says_that_the_database_failed() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let lines = empty_errors_sections(&text);
        faults.extend(lines.into_iter().map(|line| format!("{}:{line}", path.display())));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    let full = "/// # Errors\n/// The database failed.\n/// `Corrupt`: the row does not parse.\nfn f() {}\n";
    let empty = "    /// # Errors\n    /// The database failed.\n    #[must_use]\n    fn g() {}\n";
    assert_eq!(empty_errors_sections(&format!("{full}{empty}")), [5]);
}
