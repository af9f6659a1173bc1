//! The terminal in raw mode, restored at every end of the program except SIGKILL.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// Raw mode. Dropping it restores the terminal: at the end, in a panic, and when a signal ends the command.
pub struct Raw {
    former: Termios,
}

impl Raw {
    /// Enters raw mode if standard input is a terminal.
    ///
    /// # Errors
    /// The terminal refuses.
    pub fn enter() -> io::Result<Option<Self>> {
        let input = io::stdin();
        if !input.is_terminal() {
            return Ok(None);
        }
        let former = tcgetattr(input.as_fd())?;
        let mut raw = former.clone();
        cfmakeraw(&mut raw);
        tcsetattr(input.as_fd(), SetArg::TCSADRAIN, &raw)?;
        Ok(Some(Self { former }))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, &self.former);
    }
}
