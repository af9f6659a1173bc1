use serde::Serialize;

use super::action::Action;
use super::view;

/// What a virtual drive looks like to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum MediaKind {
    /// A CD or DVD drive.
    Cd,
    /// A USB stick.
    Usb,
}

impl MediaKind {
    /// The words in `MediaTypes` that mean this kind.
    pub(crate) fn words(self) -> &'static [&'static str] {
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
    /// `Id`.
    pub fn id(&self) -> String {
        self.0.id()
    }

    /// `MediaTypes`; empty where it does not say.
    pub fn media_types(&self) -> Vec<String> {
        self.0.texts(&["MediaTypes"])
    }

    /// Whether it can play this kind of medium. One that does not say is judged by its id.
    pub fn plays(&self, kind: MediaKind) -> bool {
        let types = self.media_types();
        let has = |word: &&str| types.iter().any(|one| one.eq_ignore_ascii_case(word));
        if types.is_empty() {
            let id = self.id().to_ascii_lowercase();
            return kind
                .words()
                .iter()
                .any(|word| id.starts_with(&word.to_ascii_lowercase()));
        }
        kind.words().iter().any(has)
    }

    /// `Image`: the URL of what is inserted.
    pub fn image(&self) -> Option<String> {
        self.0.fact(&["Image"])
    }

    /// Whether something is inserted. Where `Inserted` is missing, an image means yes.
    pub fn is_inserted(&self) -> bool {
        self.0.flag(&["Inserted"]).unwrap_or_else(|| self.image().is_some())
    }

    /// The action that inserts.
    pub fn insert(&self) -> Option<Action> {
        Action::find(&self.0, "VirtualMedia.InsertMedia")
    }

    /// The action that ejects.
    pub fn eject(&self) -> Option<Action> {
        Action::find(&self.0, "VirtualMedia.EjectMedia")
    }
}
