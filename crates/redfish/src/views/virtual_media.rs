//! Virtual drives, and the kinds of media that they take.

use serde::Serialize;

use super::action::Action;
use super::view;

/// The kind of drive that the machine sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum MediaKind {
    /// A CD or DVD drive.
    Cd,
    /// A USB stick.
    Usb,
}

impl MediaKind {
    /// The values of `MediaTypes` that mean this kind.
    pub(crate) fn redfish_names(self) -> &'static [&'static str] {
        match self {
            Self::Cd => &["CD", "DVD"],
            Self::Usb => &["USBStick"],
        }
    }
}

view!(
    /// A virtual drive (`#VirtualMedia`).
    VirtualMedia
);

impl VirtualMedia {
    pub fn id(&self) -> String {
        self.0.id()
    }

    /// `MediaTypes`; empty if there are none.
    pub fn media_types(&self) -> Vec<String> {
        self.0.texts(&["MediaTypes"])
    }

    /// Whether it accepts this kind of medium. Without media types the id decides.
    pub fn accepts(&self, kind: MediaKind) -> bool {
        let types = self.media_types();
        let has = |word: &&str| types.iter().any(|one| one.eq_ignore_ascii_case(word));
        if types.is_empty() {
            let id = self.id().to_ascii_lowercase();
            return kind
                .redfish_names()
                .iter()
                .any(|word| id.starts_with(&word.to_ascii_lowercase()));
        }
        kind.redfish_names().iter().any(has)
    }

    /// `Image`: the URL of the inserted image.
    pub fn image(&self) -> Option<String> {
        self.0.fact(&["Image"])
    }

    /// Whether a medium is inserted. If `Inserted` is missing, an image means yes.
    pub fn is_inserted(&self) -> bool {
        self.0.flag(&["Inserted"]).unwrap_or_else(|| self.image().is_some())
    }

    /// The action that inserts an image.
    pub fn insert(&self) -> Option<Action> {
        Action::find(&self.0, "VirtualMedia.InsertMedia")
    }

    /// The action that ejects the image.
    pub fn eject(&self) -> Option<Action> {
        Action::find(&self.0, "VirtualMedia.EjectMedia")
    }
}
