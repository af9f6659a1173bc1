//! What packages of the program contain beside it: man pages and completion scripts.

use std::process::Command;

use crate::program::Program;

#[test]
fn man_pages_are_written_to_a_directory_and_the_top_page_is_printed() {
    let program = Program::new();
    let dir = program.home().join("share/man1");
    let written = program.run(&["man", "--dir", dir.to_str().unwrap()]);
    assert_eq!(written.code, 0, "{written:?}");
    let count = std::fs::read_dir(&dir).unwrap().count();
    assert!(count > 100, "{count} pages");
    assert_eq!(
        written.stdout,
        format!("{count} man pages written to {}\n", dir.display())
    );
    let page = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert!(page("rackwright-node-deploy.1").contains("hand them over"));
    // A second run replaces the pages.
    assert_eq!(program.run(&["man", "--dir", dir.to_str().unwrap(), "-q"]).code, 0);
    let top = program.run(&["man"]);
    assert_eq!(
        (top.code, top.stdout),
        (0, page("rackwright.1").trim_end().to_owned() + "\n")
    );
    let file = program.file("file", "text");
    let wrong = program.run(&["man", "--dir", &file]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("cannot make the directory"), "{wrong:?}");
}

/// Runs a shell and returns its output.
fn shell(name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(name);
    let output = command.args(arguments).env("HOME", std::env::temp_dir()).output();
    let output = output.unwrap_or_else(|error| panic!("{name}: {error}; `make deps` installs missing shells"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {stderr}");
    assert_eq!(stderr, "", "{name} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_shells_accept_their_completion_scripts() {
    let program = Program::new();
    for name in ["bash", "zsh", "fish"] {
        let script = program.run(&["completion", name]);
        assert_eq!(script.code, 0, "{script:?}");
        let file = program.file(name, &script.stdout);
        shell(name, &["-n", &file]);
    }
}

#[test]
fn bash_completes_commands_options_and_formats() {
    let program = Program::new();
    let file = program.file("completion.bash", &program.run(&["completion", "bash"]).stdout);
    let complete = |words: &[&str]| {
        let at = words.len() - 1;
        let script = format!(
            "source '{file}'; COMP_WORDS=({}); COMP_CWORD={at}; _rackwright rackwright '{}' '{}'; \
             echo \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words[at],
            words[at - 1],
        );
        shell("bash", &["-c", &script]).trim().to_owned()
    };
    assert_eq!(complete(&["rackwright", "node", "dep"]), "deploy");
    assert_eq!(complete(&["rackwright", "cluster", "repl"]), "replace");
    assert_eq!(complete(&["rackwright", "node", "list", "--sort"]), "--sort-by");
    assert_eq!(complete(&["rackwright", "node", "list", "-o", "js"]), "json jsonpath=");
}
