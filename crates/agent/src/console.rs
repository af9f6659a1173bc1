//! Output on the machine's console: log lines, and marks that time the stages of a boot.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::root::SysRoot;

/// Prints `MARK NAME SECONDS`, with the seconds since the start of the kernel.
pub fn mark(root: &SysRoot, name: &str) {
    line(&format!("MARK {name} {:.2}", root.uptime_s()));
}

/// Prints a line. A console error is ignored.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Sends all log events of this project's crates from `info` up to the console.
pub fn install() {
    // A second call (in tests) keeps the first subscriber.
    let _ = tracing::subscriber::set_global_default(Console { root: SysRoot::real() });
}

/// A subscriber without filters, spans and colours. It takes a fraction of the default one's size in the ramdisk.
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
