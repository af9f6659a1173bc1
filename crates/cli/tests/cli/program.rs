//! Runs the program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::fake::{Fake, TOKEN};

/// A user with a separate home directory.
pub struct Program {
    home: TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub struct Finished {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

impl Program {
    pub fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
        }
    }

    /// A user logged in to the fake.
    pub fn logged_in(fake: &Fake) -> Self {
        Self::logged_in_at(fake, &fake.url())
    }

    /// A user logged in to the fake through another address.
    pub fn logged_in_at(fake: &Fake, url: &str) -> Self {
        let program = Self::new();
        let login = program.login(fake, url);
        assert_eq!(login.code, 0, "{login:?}");
        program
    }

    pub fn login(&self, fake: &Fake, url: &str) -> Finished {
        self.run(&[
            "login",
            "--server",
            url,
            "--token",
            TOKEN,
            "--ca-sha256",
            &fake.authority.pin(),
        ])
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn config(&self, file: &str) -> PathBuf {
        self.home.path().join("config").join(file)
    }

    /// Writes a file below the home directory and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rackwright"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .env("RACKWRIGHT_CONFIG", self.home.path().join("config"))
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Finished {
        finish(self.command(arguments).spawn().unwrap())
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Finished {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        finish(child)
    }

    /// Runs a command on a terminal (by script(1) of Debian's essential package bsdutils) with some typed input. Both
    /// streams are combined, including control sequences.
    pub fn run_on_terminal(&self, arguments: &[&str], typed: &str) -> Finished {
        let quoted: Vec<String> = arguments.iter().map(|argument| format!("'{argument}'")).collect();
        let line = format!(
            "stty cols 100 rows 30; exec {} {}",
            env!("CARGO_BIN_EXE_rackwright"),
            quoted.join(" ")
        );
        let mut command = Command::new("script");
        command
            .args([
                "--quiet",
                "--return",
                "--echo",
                "never",
                "--command",
                &line,
                "/dev/null",
            ])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env("HOME", self.home.path())
            .env("RACKWRIGHT_CONFIG", self.home.path().join("config"))
            .current_dir(self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(typed.as_bytes()).unwrap();
        // Open until the command has ended: the end of the input would end the terminal.
        let mut stdout = String::new();
        child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        drop(input);
        Finished {
            stdout,
            ..finish(child)
        }
    }

    /// Starts a command that does not end by itself.
    pub fn follow(&self, arguments: &[&str]) -> Following {
        let mut child = self.command(arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Following { child, lines }
    }
}

fn finish(child: Child) -> Finished {
    let output = child.wait_with_output().unwrap();
    Finished {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap_or(-1),
    }
}

/// A running command; dropping this value ends the command.
pub struct Following {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Following {
    /// The next line; empty after the end of the command.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends the command and returns its stderr.
    pub fn end(mut self) -> String {
        let _ = self.child.kill();
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
