//! The messages by which a Redfish service explains an answer (DSP0266, "Extended information").

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::json;

const MAX_MESSAGES: usize = 8;
const MAX_TEXT_CHARS: usize = 300;

/// Message ids that mean "try later": Dell's SYS518 (data sources not ready), HPE's refusals during POST or between
/// two power states, and the standard's own.
const BUSY_IDS: [&str; 6] = [
    "SYS518",
    "InvalidOperationForSystemState",
    "UnableToModifyDuringSystemPOST",
    "ServiceTemporarilyUnavailable",
    "ResourceInStandby",
    "ServiceInUnknownState",
];

/// Message ids that mean "no session left": Dell's RAC0218 and the standard's own.
const EXHAUSTED_IDS: [&str; 2] = ["RAC0218", "SessionLimitExceeded"];

/// One message of a BMC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BmcMessage {
    /// Message id, with or without registry and version (`Base.1.8.PropertyUnknown`); may be empty.
    pub id: String,
    /// The text, bounded and free of control characters; may be empty.
    pub text: String,
    /// The first path in the arguments or the text, such as the path of the account to change; may be empty.
    #[serde(skip)]
    pub link: String,
}

impl BmcMessage {
    /// Whether the id is `name`, in any registry and version.
    pub fn is(&self, name: &str) -> bool {
        self.id
            .rsplit('.')
            .next()
            .is_some_and(|last| last.eq_ignore_ascii_case(name))
    }
}

/// All messages of one answer, at most eight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BmcMessages(pub Vec<BmcMessage>);

impl BmcMessages {
    /// Collects the messages from all places where BMCs put them. `@Message.ExtendedInfo` may be one object instead
    /// of an array, may be at the top instead of under `error`, or may be missing.
    pub fn from_json(body: &Value) -> Self {
        let mut found = Vec::new();
        for place in [
            &["error", "@Message.ExtendedInfo"][..],
            &["@Message.ExtendedInfo"],
            &["Messages"],
        ] {
            match json::at(body, place) {
                Some(Value::Array(list)) => found.extend(list.iter().take(MAX_MESSAGES).filter_map(message)),
                Some(one @ Value::Object(_)) => found.extend(message(one)),
                _ => {}
            }
        }
        // Some BMCs put only ids there, and the text beside them.
        if found.iter().all(|message| message.text.is_empty()) {
            let id = json::text(body, &["error", "code"]).unwrap_or_default();
            let text = json::text(body, &["error", "message"])
                .or_else(|| json::text(body, &["error"]))
                .or_else(|| json::text(body, &["message"]));
            match (text, found.first_mut()) {
                (Some(text), Some(first)) => first.text = clean(&text),
                (Some(text), None) => found.push(BmcMessage {
                    id: clean(&id),
                    text: clean(&text),
                    link: path_in(&text),
                }),
                (None, _) => {}
            }
        }
        found.truncate(MAX_MESSAGES);
        Self(found)
    }

    /// Makes one message from an answer that is not JSON, such as the XHTML page of some 403s.
    pub fn from_text(body: &str) -> Self {
        let text = clean(&strip_tags(body));
        if text.is_empty() {
            Self::default()
        } else {
            Self(vec![BmcMessage {
                id: String::new(),
                text,
                link: String::new(),
            }])
        }
    }

    /// Whether any message has this id, in any registry and version.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|message| message.is(name))
    }

    /// Whether the BMC asks the client to try later.
    pub fn is_busy(&self) -> bool {
        BUSY_IDS.iter().any(|id| self.has(id))
    }

    /// Whether the BMC has no session left.
    pub fn is_session_limit(&self) -> bool {
        EXHAUSTED_IDS
            .iter()
            .any(|id| self.has(id) || self.0.iter().any(|message| message.text.contains(id)))
    }

    /// Removes a secret that the BMC repeated, as some BMCs do with a malformed password.
    pub fn redact(&mut self, secret: &str) {
        if secret.is_empty() {
            return;
        }
        for message in &mut self.0 {
            message.text = message.text.replace(secret, "***");
            message.id = message.id.replace(secret, "***");
            message.link = message.link.replace(secret, "***");
        }
    }
}

impl fmt::Display for BmcMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, message) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { ": " } else { "; " })?;
            match (message.text.as_str(), message.id.as_str()) {
                ("", id) => f.write_str(id)?,
                (text, "") => f.write_str(text)?,
                (text, id) => write!(f, "{text} ({id})")?,
            }
        }
        Ok(())
    }
}

fn message(value: &Value) -> Option<BmcMessage> {
    let id = json::text(value, &["MessageId"]).unwrap_or_default();
    let text = json::text(value, &["Message"])
        .or_else(|| json::text(value, &["Resolution"]))
        .unwrap_or_default();
    let args = json::texts(value, &["MessageArgs"]);
    let link = args.iter().find(|arg| arg.starts_with('/')).map(|arg| clean(arg));
    (!id.is_empty() || !text.is_empty()).then(|| BmcMessage {
        id: clean(&id),
        link: link.unwrap_or_else(|| path_in(&text)),
        text: clean(&text),
    })
}

/// The first path that is a word of its own or in quotes; empty if there is none.
fn path_in(text: &str) -> String {
    let mut words = text.split(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '<' | '>'));
    let path = words.find(|word| word.len() > 1 && word.starts_with('/'));
    clean(path.unwrap_or_default().trim_end_matches(['.', ',', ';']))
}

fn clean(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_TEXT_CHARS)
        .collect()
}

fn strip_tags(text: &str) -> String {
    let mut out = String::new();
    let mut in_tag = false;
    for c in text.chars().take(20_000) {
        match c {
            '<' => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                out.push(' ');
            }
            _ if !in_tag => out.push(c),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_shape_is_understood() {
        let info = json!({"MessageId": "Base.1.8.PropertyUnknown", "Message": "no\nsuch\tproperty"});
        for body in [
            json!({"error": {"@Message.ExtendedInfo": [info, null, 5]}}),
            json!({"error": {"@Message.ExtendedInfo": info}}),
            json!({"@Message.ExtendedInfo": [info]}),
        ] {
            let messages = BmcMessages::from_json(&body);
            assert!(messages.has("PropertyUnknown"), "{body}");
            assert_eq!(messages.to_string(), ": no such property (Base.1.8.PropertyUnknown)");
        }
        let bare = BmcMessages::from_json(&json!({"error": {"message": "out of order"}}));
        assert_eq!(bare.to_string(), ": out of order");
        let id_only = json!({"error": {"message": "out of order", "@Message.ExtendedInfo": [{"MessageId": "X.Y"}]}});
        assert_eq!(BmcMessages::from_json(&id_only).to_string(), ": out of order (X.Y)");
        assert_eq!(BmcMessages::from_json(&json!([])), BmcMessages::default());
    }

    #[test]
    fn a_page_of_xhtml_becomes_its_text() {
        let page = "<?xml version=\"1.0\"?><html><head><title>403 - Forbidden</title></head>\n<body/></html>";
        assert_eq!(BmcMessages::from_text(page).to_string(), ": 403 - Forbidden");
    }

    #[test]
    fn secrets_are_redacted() {
        let mut messages = BmcMessages::from_text("The value hunter2 for Password is too short");
        messages.redact("hunter2");
        assert_eq!(messages.to_string(), ": The value *** for Password is too short");
    }
}
