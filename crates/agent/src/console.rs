//! What the machine's console shows: log lines, and marks by which the stages of a boot are timed.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::root::SysRoot;

/// Prints `MARK NAME SECONDS`, seconds since the kernel started.
pub fn mark(root: &SysRoot, name: &str) {
    line(&format!("MARK {name} {:.2}", root.uptime_s()));
}

/// Prints a line; a console that does not take it is no reason to stop.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Makes the console the receiver of all log events from `info` up, of this project's crates.
pub fn install() {
    // A second call (tests) leaves the first one in place.
    let _ = tracing::subscriber::set_global_default(Console { root: SysRoot::real() });
}

/// A subscriber without filters, spans and colours; a fraction of the usual one's size in the ramdisk.
struct Console {
    root: SysRoot,
}

impl Subscriber for Console {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("rackwright") && metadata.is_event()
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        line(&format!(
            "[{:9.2}] {:5} {}{}",
            self.root.uptime_s(),
            event.metadata().level(),
            text.message,
            text.fields
        ));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            let _ = write!(self.fields, " {}={value:?}", field.name());
        }
    }
}
