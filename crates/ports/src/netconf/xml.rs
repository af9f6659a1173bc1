//! XML of a switch as a tree of elements. Answers are hostile input: documents with a DTD, with other entities than the
//! five of XML, or with too many or too deeply nested elements are refused.

use quick_xml::NsReader;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};

/// Maximum depth of nested elements. The leaves of a port are at depth 9.
const DEPTH_MAX: usize = 32;
/// Maximum number of elements of a document: some 20,000 ports.
const ELEMENTS_MAX: usize = 400_000;
/// Maximum number of namespace declarations in effect at one element: each name is compared with all of them.
const DECLARATIONS_MAX: usize = 64;

/// The namespaces with a meaning for the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// NETCONF itself.
    Base,
    /// `openconfig-interfaces`.
    Interfaces,
    /// `openconfig-if-ethernet`.
    Ethernet,
    /// `openconfig-vlan`.
    Vlan,
    /// Any other.
    Other,
}

impl Space {
    /// The name of the namespace.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Base => "urn:ietf:params:xml:ns:netconf:base:1.0",
            Self::Interfaces => "http://openconfig.net/yang/interfaces",
            Self::Ethernet => "http://openconfig.net/yang/interfaces/ethernet",
            Self::Vlan => "http://openconfig.net/yang/vlan",
            Self::Other => "",
        }
    }

    fn of(resolved: &ResolveResult<'_>) -> Self {
        let ResolveResult::Bound(Namespace(name)) = resolved else {
            return Self::Other;
        };
        let known = [Self::Base, Self::Interfaces, Self::Ethernet, Self::Vlan];
        known
            .into_iter()
            .find(|space| space.name() == *name)
            .unwrap_or(Self::Other)
    }
}

/// An XML element: its name, its text and its children.
#[derive(Debug)]
pub(crate) struct Element {
    space: Space,
    name: Box<str>,
    text: String,
    children: Vec<Element>,
}

impl Element {
    /// Whether the element has this name.
    pub(crate) fn is(&self, space: Space, name: &str) -> bool {
        self.space == space && &*self.name == name
    }

    /// The children with this name.
    pub(crate) fn all<'a>(&'a self, space: Space, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.is(space, name))
    }

    /// The first child with this name.
    pub(crate) fn child(&self, space: Space, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.is(space, name))
    }

    /// The text directly in the element, without white space around it.
    pub(crate) fn text(&self) -> &str {
        self.text.trim()
    }

    /// The text of the first child with this name.
    pub(crate) fn leaf(&self, space: Space, name: &str) -> Option<&str> {
        self.child(space, name).map(Self::text)
    }
}

/// A message of NETCONF, as an XML document.
#[derive(Debug)]
pub(crate) struct Document {
    /// The outermost element.
    pub(crate) root: Element,
    /// The attribute `message-id` of the outermost element.
    pub(crate) message_id: Option<String>,
}

/// Text with the characters escaped that have a meaning in XML.
pub(crate) fn escape(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

/// Parses a document.
///
/// # Errors
/// The fault, as a part of a sentence.
pub(crate) fn parse(bytes: &[u8]) -> Result<Document, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut reader = NsReader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    reader.resolver_mut().set_max_namespace_bindings(DECLARATIONS_MAX);
    let (mut open, mut root, mut message_id): (Vec<Element>, Option<Element>, _) = (Vec::new(), None, None);
    let mut count = 0;
    loop {
        let (resolved, event) = reader
            .read_resolved_event()
            .map_err(|error| format!("it is not XML: {error}"))?;
        match event {
            Event::Start(start) => {
                count += 1;
                if root.is_some() {
                    return Err("it has two outermost elements".to_owned());
                }
                if open.len() >= DEPTH_MAX || count > ELEMENTS_MAX {
                    return Err(format!(
                        "it has more than {ELEMENTS_MAX} elements, or more than {DEPTH_MAX} levels"
                    ));
                }
                if open.is_empty() {
                    message_id = id_of(&start)?;
                }
                open.push(Element {
                    space: Space::of(&resolved),
                    name: start.local_name().as_ref().into(),
                    text: String::new(),
                    children: Vec::new(),
                });
            }
            Event::End(_) => {
                let Some(ended) = open.pop() else { continue };
                match open.last_mut() {
                    Some(outer) => outer.children.push(ended),
                    None => root = Some(ended),
                }
            }
            Event::Text(text) => add(&mut open, &text.xml10_content())?,
            Event::CData(text) => add(&mut open, &text.xml10_content())?,
            Event::GeneralRef(entity) => {
                let character = entity
                    .resolve_char_ref()
                    .map_err(|error| format!("it is not XML: {error}"))?;
                let character = character.or_else(|| predefined(&entity));
                let character = character.ok_or_else(|| "it has an entity of its own".to_owned())?;
                add(&mut open, character.encode_utf8(&mut [0; 4]))?;
            }
            Event::DocType(_) => return Err("it has a DTD".to_owned()),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => break,
        }
    }
    match (root, open.is_empty()) {
        (Some(root), true) => Ok(Document { root, message_id }),
        _ => Err("it ends before its outermost element".to_owned()),
    }
}

fn id_of(start: &BytesStart<'_>) -> Result<Option<String>, String> {
    let fault = |error: quick_xml::Error| format!("it is not XML: {error}");
    let id = start
        .try_get_attribute("message-id")
        .map_err(|error| fault(error.into()))?;
    id.map(|id| {
        id.normalized_value(quick_xml::XmlVersion::Implicit1_0)
            .map(String::from)
            .map_err(fault)
    })
    .transpose()
}

fn add(open: &mut [Element], text: &str) -> Result<(), String> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err("it has text outside of its outermost element".to_owned()),
    }
    Ok(())
}

fn predefined(entity: &str) -> Option<char> {
    match entity {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "apos" => Some('\''),
        "quot" => Some('"'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_by_namespace_and_text_is_decoded() {
        let document = parse(
            b"<?xml version='1.0'?><!-- x --><n:rpc-reply xmlns:n='urn:ietf:params:xml:ns:netconf:base:1.0' message-id='7'>
              <data xmlns='http://openconfig.net/yang/vlan'> a&amp;b <![CDATA[<c>]]>&#100; </data><data>other</data></n:rpc-reply>",
        )
        .unwrap();
        assert_eq!(document.message_id.as_deref(), Some("7"));
        assert!(document.root.is(Space::Base, "rpc-reply"));
        assert_eq!(document.root.leaf(Space::Vlan, "data"), Some("a&b <c>d"));
        assert_eq!(document.root.leaf(Space::Other, "data"), Some("other"));
        assert_eq!(document.root.leaf(Space::Base, "data"), None);
        assert_eq!(escape("a<\"b\">&'"), "a&lt;&quot;b&quot;&gt;&amp;&apos;");
    }

    #[test]
    fn dtds_entities_and_documents_without_an_end_are_refused() {
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        let wide = format!("<a>{}</a>", "<b/>".repeat(ELEMENTS_MAX));
        let declared: String = (0..=DECLARATIONS_MAX).map(|n| format!(" xmlns:n{n}='x'")).collect();
        for (text, fault) in [
            ("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", "a DTD"),
            ("<a>&b;</a>", "an entity"),
            ("<a>&#xD800;</a>", "not XML"),
            ("<a><b></a>", "not XML"),
            ("<a>", "ends before"),
            ("", "ends before"),
            ("<a/><b/>", "two outermost"),
            ("words", "outside"),
            (&deep, "levels"),
            (&wide, "elements"),
            (&format!("<a{declared}/>"), "not XML"),
        ] {
            let found = parse(text.as_bytes()).unwrap_err();
            assert!(found.contains(fault), "{fault}: {found}");
        }
        assert!(parse(b"<a>\xff</a>").unwrap_err().contains("UTF-8"));
    }
}
